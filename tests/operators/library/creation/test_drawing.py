"""Random numbers, dropouts and their masks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Kind, Operator
from aclnn.core.products import Product
from aclnn.execution.executor import prepare
from aclnn.operators.library.creation import drawing
from tests.cases.table import GRID, Arguments, T, shape
from tests.helpers.library import BREAKS as SHARED
from tests.helpers.library import (
    BY_NAME,
    FLOATING,
    INTEGERS,
    INVALID,
    REAL,
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    first,
    scalar,
    torch,
    wide,
)

DRAWN = {"seed": 5, "offset": 3}
#: The same seed, and the offset in two parts, for the operators that take tensors.
SEEDED = {"seedTensor": T(D.INT64, (1,)), "offsetTensor": T(D.INT64, (1,)), "offset": 1}
SEEDED_BY_TENSORS = (
    *("inplace_normal", "inplace_uniform", "inplace_random", "inplace_random_without_from_to", "multinomial"),
    *("dropout_gen_mask_v2", "dropout_v3"),
)
NORMAL = ("normal_tensor_tensor", "normal_tensor_float", "normal_float_tensor", "normal_float_float")
FILLED = ("inplace_normal", "inplace_random")
RRELU = ("rrelu_with_noise", "inplace_rrelu_with_noise")
#: Up to these numbers PyTorch draws where no bounds are given; of integers, to their greatest.
GREATEST = {D.FLOAT: 2**24, D.FLOAT16: 2**11, D.BF16: 2**8, D.BOOL: 1}


def _bits(mask: Any, count: int) -> Any:
    """The first bits of a mask, the lowest of each byte first."""
    return torch.tensor([(int(mask.flatten()[at // 8]) >> at % 8) & 1 for at in range(count)])


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "dropout_gen_mask_v2": lambda d: {
        "shape": (3, 50),
        "prob": 0.0,
        "seed": 5,
        "offset": 0,
        "probDataType": D.FLOAT,
        "out": T(D.UINT8, (2, 16)),
    },
    "dropout_gen_mask": lambda d: {"shape": (3, 50), "prob": 0.0, "out": T(D.UINT8, (2, 16))} | DRAWN,
    "dropout": lambda d: DRAWN | {"input": T(d, GRID), "p": 1.0, "train": True, "maskOut": T(D.UINT8, (16,))},
    "dropout_backward": lambda d: {"mask": T(D.UINT8, (16,)), "scale": 4.0},
    "dropout_v3_grad": lambda d: {"mask": T(D.UINT8, (16,)), "scale": 0.5},
    "dropout_v3": lambda d: (
        DRAWN | {"input": T(d, GRID), "optionalNoiseShape": None, "p": 0.0, "maskOut": T(D.UINT8, (16,))}
    ),
    "inplace_normal": lambda d: DRAWN | {"mean": 2.0, "std": 0.0},
    "normal_tensor_tensor": lambda d: DRAWN | {"mean": T(d, (3,))},
    "normal_tensor_float": lambda d: DRAWN | {"std": 0.0},
    "normal_float_tensor": lambda d: DRAWN | {"mean": 1.5},
    "normal_float_float": lambda d: DRAWN | {"mean": 1.5, "std": 0.0},
    "inplace_uniform": lambda d: DRAWN | {"low": 2.0, "high": 2.0},
    **{f"{where}bernoulli": lambda d: DRAWN | {"prob": scalar(D.DOUBLE, 1)} for where in ("", "inplace_")},
    **{
        f"{where}bernoulli_tensor": lambda d: DRAWN | {"prob": T(d if d in FLOATING else D.FLOAT, (2, 6))}
        for where in ("", "inplace_")
    },
    "inplace_random": lambda d: DRAWN | {"low": 3, "high": 4},
    "inplace_random_without_from_to": lambda d: DRAWN,
    "sim_thread_exponential": lambda d: DRAWN | {"count": 6, "lambd": math.inf},
    # Slopes of one size are drawn.
    **dict.fromkeys(
        RRELU,
        lambda d: (
            DRAWN
            | {"noise": T(d, (4, 2)), "lower": scalar(D.FLOAT, 0.25), "upper": scalar(D.FLOAT, 0.25), "training": True}
        ),
    ),
    # One of three has a chance.
    "multinomial": lambda d: DRAWN | {"numsamples": 2, "replacement": True, "out": T(D.INT64, (2, 2))},
    "randperm": lambda d: DRAWN | {"n": 1, "out": T(d, (1,))},
    "dropout_do_mask": lambda d: {"mask": T(D.UINT8, (4, 4)), "prob": 0.75},
}
CALLS = CALLS | {
    f"{name}_tensor": lambda d, name=name: (
        {key: value for key, value in CALLS[name](d).items() if key not in DRAWN} | SEEDED
    )
    for name in SEEDED_BY_TENSORS
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    "multinomial": (D.FLOAT, D.BF16),
    **dict.fromkeys(RRELU, TRAINED),
    **dict.fromkeys(("dropout_gen_mask", "dropout_gen_mask_v2"), (D.UINT8,)),
    **dict.fromkeys(("dropout", "dropout_backward", "dropout_do_mask", "dropout_v3", "dropout_v3_grad"), TRAINED),
    **dict.fromkeys(NORMAL, FLOATING),
    "sim_thread_exponential": TRAINED,
    "inplace_random_without_from_to": (*TRAINED, *INTEGERS, D.BOOL),
    **dict.fromkeys(("inplace_uniform", "randperm"), REAL),
    **dict.fromkeys(
        (*(f"{where}bernoulli{what}" for where in ("", "inplace_") for what in ("", "_tensor")), *FILLED),
        (*REAL, D.BOOL),
    ),
}


def _slopes(a: Mapping[str, Any]) -> tuple[Any, Any]:
    """What was drawn, and in its end what noise had; what comes of it."""
    x = first(a)
    slopes = torch.where(x > 0, 1.0, 0.25)
    drawn = torch.cat([slopes.flatten(), a["noise"].flatten()[6:]]).reshape(4, 2)
    return (drawn, wide(x) * slopes) if "self" in a else (wide(x) * slopes, drawn)


REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    **dict.fromkeys(RRELU, _slopes),
    "dropout_v3": lambda a: (a["input"], torch.full((16,), 255)),
    "dropout": lambda a: (torch.zeros(GRID), a["maskOut"]),
    "dropout_backward": lambda a: wide(a["gradOutput"]) * 4 * _bits(a["mask"], 6).reshape(GRID),
    "dropout_v3_grad": lambda a: wide(a["gradY"]) * _bits(a["mask"], 6).reshape(GRID) / 2,
    "inplace_normal": lambda a: torch.full_like(a["selfRef"], 2),
    "normal_tensor_tensor": lambda a: a["mean"].expand(GRID),
    "normal_tensor_float": lambda a: a["mean"],
    "normal_float_tensor": lambda a: torch.full(GRID, 1.5),
    "normal_float_float": lambda a: torch.full(GRID, 1.5),
    "inplace_uniform": lambda a: torch.full(GRID, 2.0),
    **dict.fromkeys(("bernoulli", "inplace_bernoulli"), lambda a: torch.ones(GRID)),
    # Of twelve probabilities the first six count.
    **dict.fromkeys(("bernoulli_tensor", "inplace_bernoulli_tensor"), lambda a: a["prob"].flatten()[:6].reshape(GRID)),
    "sim_thread_exponential": lambda a: torch.zeros(GRID),
    "inplace_random": lambda a: torch.full_like(a["selfRef"], 3),
    "multinomial": lambda a: torch.ones(2, 2),
    "randperm": lambda a: torch.zeros(1),
    **dict.fromkeys(("dropout_gen_mask", "dropout_gen_mask_v2"), lambda a: torch.full((2, 16), 255)),
    "dropout_do_mask": lambda a: wide(a["self"]) * 4 * _bits(a["mask"], 6).reshape(GRID),
}

DTYPES = DTYPES | {f"{name}_tensor": DTYPES[name] for name in SEEDED_BY_TENSORS}
REFERENCES = REFERENCES | {f"{name}_tensor": REFERENCES[name] for name in SEEDED_BY_TENSORS if name in REFERENCES}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "sim_thread_exponential": {"count": 0},
    "dropout_v3": {"optionalNoiseShape": None, "maskOut": {"shape": (0,)}},
    "multinomial": {"out": {"shape": (0, 2)}},
    "randperm": {"n": 0, "out": {"shape": (0,)}},
    **{name: {"shape": (0, 3), "out": {"shape": (0,)}} for name in ("dropout_gen_mask", "dropout_gen_mask_v2")},
    **{name: {"mask": {"shape": (0,)}} for name in ("dropout_do_mask", "dropout_backward", "dropout_v3_grad")},
    "dropout": {"maskOut": {"shape": (0,)}},
}

EMPTY = EMPTY | {
    f"{name}_tensor": {"seedTensor": {"shape": (1,)}, "offsetTensor": {"shape": (1,)}} | EMPTY.get(name, {})
    for name in SEEDED_BY_TENSORS
}

BREAKS: Mapping[str, Breaking] = {
    "1 or 2 dimensions": lambda o, name: Break(shape((1, 2, 3), name), "1 or 2"),
    "as many as there are": lambda o, name: Break({name: 4, "replacement": False}, "from 1 to 3"),
    "shape is numsamples for each row": lambda o, name: Break(shape((2, 3), name), "[2, 2]"),
    **dict.fromkeys(
        ("from 0 to 1", "a number from 0 to 1"),
        lambda o, name: Break({name: scalar(D.DOUBLE, 1.5) if "bernoulli" in o.name else 1.5}, "from 0 to 1"),
    ),
    "a bit for each element": lambda o, name: Break(shape((15,), name), "elements"),
    "0 or a number of at least 1": lambda o, name: Break({name: 0.5}, "at least 1"),
    "same shape as gradY": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
    "same shape as gradOutput": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
    "a number greater than 0": lambda o, name: Break({name: 0.0}, "greater than 0"),
    "as many elements as count": lambda o, name: Break({"count": 5}, "5 elements"),
    "broadcasts with mean": lambda o, name: Break(shape((4, 2), name), "broadcasts with"),
    "broadcasts with out": lambda o, name: Break(shape((4, 2), name), "broadcasts with"),
    "broadcast shape of mean and std": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
    "broadcast shape of mean and out": lambda o, name: Break(shape((1, 3), name), "shape [2, 3]"),
    "same shape as out": lambda o, name: Break(shape((3,), name), "shape [2, 3]"),
    "a number of at least 0": lambda o, name: Break({name: -1.0}, "at least 0"),
    "less than high": lambda o, name: Break({name: 4}, "less than high"),
    "at most high": lambda o, name: Break({name: 3.0}, "at most high"),
    "shape …": lambda o, name: Break(shape((2,), name), "shape [1]"),
    "room for the slopes": lambda o, name: Break(shape((5,), name), "at least 6 elements"),
    "same format as selfRef": lambda o, name: Break({name: {"format": Format.FORMAT_NCHW}}, "format ACL_FORMAT_ND"),
    "no shape of noise": lambda o, name: Break({name: T(D.INT64, (2,))}, "null"),
    "shape is one element": lambda o, name: Break(shape((2,), name), "shape [1]"),
}


def _with_a_kernel(breaking: Breaking) -> Breaking:
    """Of an operator that looks for its kernel first, on the product that has one."""

    def broken(operator: Operator, name: str) -> Break:
        found = breaking(operator, name)
        if operator.name != "dropout_v3_grad":
            return found
        # What converts to the result's data type comes before what is taken.
        change = {name: {"dtype": D.DOUBLE}} if (name, found.expected) == ("gradY", "data type") else found.change
        return found._replace(change=change, product=Product.ASCEND_950)

    return broken


BREAKS = {title: _with_a_kernel(breaking) for title, breaking in {**SHARED, **BREAKS}.items()} | {
    "kernel of the product": lambda o, name: Break({}, "one with a kernel")
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if operator.startswith("multinomial") and name == "self":
        return np.broadcast_to([0, 2, 0], array.shape)
    if operator.endswith("bernoulli_tensor") and name == "prob":
        return array > 0
    return np.zeros_like(array) if name == "std" else array


class TestDrawing(LibraryTests):
    subject = Subject(
        drawing.OPERATORS,
        numbers=numbers,
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        empty=EMPTY,
        breaks=BREAKS,
        codes={"kernel of the product": INVALID},
        elsewhere=("inplace_random_without_from_to", "inplace_random_without_from_to_tensor"),
    )


@pytest.mark.parametrize("d", TRAINED)
def test_rrelu_draws_slopes_for_elements_that_are_not_positive(d: D) -> None:
    x = np.random.default_rng(1).normal(size=20_000).astype(d.numpy)
    x[:3] = 0, -np.inf, np.nan
    given = {name: Placed(array, "contiguous") for name, array in (("self", x), ("noise", x), ("out", x))}
    call = {name: each.tensor for name, each in given.items()} | DRAWN
    call |= {"lower": scalar(D.DOUBLE, 0.125), "upper": scalar(D.DOUBLE, 0.5), "training": True}
    prepare(BY_NAME["rrelu_with_noise"], call, Product.ATLAS_A2).run()
    slopes = given["noise"].view.astype(np.float32)
    rounded = (x.astype(np.float32) * slopes).astype(d.numpy)
    np.testing.assert_array_equal(given["out"].view.astype(np.float32), rounded.astype(np.float32))
    positive = x.astype(np.float32) > 0
    assert (slopes[positive] == 1).all()
    drawn = slopes[~positive]
    assert drawn.min() >= 0.125
    assert drawn.max() <= 0.5
    assert abs(drawn.mean() - 0.3125) < 5 * 0.375 / math.sqrt(12 * drawn.size)


def test_rrelu_uses_the_mean_slope_outside_of_training() -> None:
    x = np.array([-2, 0, 3], np.float32)
    given = {name: Placed(array, "contiguous") for name, array in (("selfRef", x), ("noise", x[:1]))}
    call = {name: each.tensor for name, each in given.items()} | DRAWN
    call |= {"lower": scalar(D.FLOAT, 0.25), "upper": scalar(D.FLOAT, 0.75), "training": False}
    prepare(BY_NAME["inplace_rrelu_with_noise"], call, Product.ATLAS_A2).run()
    assert given["selfRef"].view.tolist() == [-1, 0, 3]
    assert given["noise"].view.tolist() == [-2]


def test_a_dropout_keeps_as_many_as_its_probability_says() -> None:
    masks = []
    for seed, offset in ((1, 0), (1, 0), (1, 10), (2, 0)):
        out = Placed(np.zeros(12_512, np.uint8), "contiguous")
        arguments = {"shape": (1000, 100), "prob": 0.25, "seed": seed, "offset": offset, "probDataType": D.FLOAT}
        prepare(BY_NAME["dropout_gen_mask_v2"], arguments | {"out": out.tensor}, Product.ATLAS_A2).run()
        masks.append(np.unpackbits(out.view)[:100_000])
        assert abs(masks[-1].mean() - 0.75) < 0.007  # five standard deviations
    assert (masks[0] == masks[1]).all()
    assert abs(np.corrcoef(masks[1:])[~np.eye(3, dtype=bool)]).max() < 0.016


@pytest.mark.parametrize(
    ("name", "attributes", "mean", "deviation"),
    [
        ("inplace_normal", {"mean": 1.0, "std": 2.0}, 1.0, 2.0),
        ("normal_float_float", {"mean": 1.0, "std": 2.0}, 1.0, 2.0),
        ("sim_thread_exponential", {"count": 100_000, "lambd": 4.0}, 0.25, 0.25),
        ("inplace_uniform", {"low": -1.0, "high": 3.0}, 1.0, 4 / math.sqrt(12)),
        ("inplace_bernoulli", {"prob": scalar(D.DOUBLE, 0.25)}, 0.25, math.sqrt(3) / 4),
        ("inplace_random", {"low": -2, "high": 3}, 0.0, math.sqrt(2)),
    ],
)
def test_random_numbers_have_their_distribution(
    name: str, attributes: Mapping[str, Any], mean: float, deviation: float
) -> None:
    drawn = []
    for seed, offset in ((1, 0), (1, 0), (1, 4), (2, 0)):
        out = Placed(np.zeros(100_000, np.float32), "contiguous")
        operator = BY_NAME[name]
        filled = next(each.name for each in operator.parameters if each.kind is Kind.OUTPUT)
        arguments = {filled: out.tensor, "seed": seed, "offset": offset, **attributes}
        prepare(operator, arguments, Product.ATLAS_A2).run()
        drawn.append(out.view.copy())
        assert abs(drawn[-1].mean() - mean) < 5 * deviation / math.sqrt(100_000)
        assert abs(drawn[-1].std() / deviation - 1) < 0.02
    assert (drawn[0] == drawn[1]).all()
    # Nor does one stream begin later in another.
    assert not np.isin(drawn[0][:3], drawn[2]).all() or name in ("inplace_bernoulli", "inplace_random")
    assert abs(np.corrcoef(drawn[1:])[~np.eye(3, dtype=bool)]).max() < 0.016


@pytest.mark.parametrize("name", NORMAL[:3])
def test_every_element_has_its_own_mean_and_deviation(name: str) -> None:
    kinds = dict(zip(("mean", "std"), name.split("_")[1:], strict=True))
    expected = {"mean": np.array([[-3] * 3, [5] * 3], np.float32), "std": np.array([[1, 2, 4]] * 2, np.float32)}
    out = Placed(np.zeros((20_000, 2, 3), np.float32), "transposed")
    arguments: dict[str, Any] = {"out": out.tensor, **DRAWN}
    for each, kind in kinds.items():
        expected[each] = expected[each] if kind == "tensor" else np.full((2, 3), 2, np.float32)
        every = Placed(np.tile(expected[each], (20_000, 1, 1)), "reversed with holes").tensor
        arguments[each] = every if kind == "tensor" else 2.0
    prepare(BY_NAME[name], arguments, Product.ATLAS_A2).run()
    assert (abs(out.view.mean(0) - expected["mean"]) < 5 * expected["std"] / math.sqrt(20_000)).all()
    assert abs(out.view.std(0) / expected["std"] - 1).max() < 0.025


def test_every_element_has_its_own_probability() -> None:
    chances = np.array([0, 0.25, 0.5, 1], D.BF16.numpy)
    out = Placed(np.zeros((20_000, 4), np.int8), "contiguous")
    arguments = {"selfRef": out.tensor, "prob": Placed(chances, "contiguous").tensor, "seed": 1, "offset": 0}
    prepare(BY_NAME["inplace_bernoulli_tensor"], arguments, Product.ATLAS_A2).run()
    found = out.view.mean(0)
    assert (found[[0, 3]] == [0, 1]).all()
    assert abs(found - chances.astype(np.float64)).max() < 0.018  # five standard deviations


@pytest.mark.parametrize("d", [*TRAINED, *INTEGERS, D.BOOL], ids=lambda d: d.c_name)
def test_random_integers_without_bounds_reach_the_greatest(d: D) -> None:
    out = Placed(np.zeros(20_000, d.numpy), "contiguous")
    prepare(BY_NAME["inplace_random_without_from_to"], {"selfRef": out.tensor, **DRAWN}, Product.ASCEND_950).run()
    drawn = out.view.astype(np.float64)
    greatest = GREATEST.get(d) or np.iinfo(d.numpy).max
    assert drawn.min() >= 0
    assert 0.999 * greatest < drawn.max() <= greatest
    assert (drawn == np.floor(drawn)).all()
    assert abs(drawn.mean() / greatest - 0.5) < (0.018 if d == D.BOOL else 0.0103)  # five standard deviations


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (2.0, 3.0), (-1.0, 0.1)])
@pytest.mark.parametrize("d", [D.FLOAT16, D.BF16], ids=lambda d: d.c_name)
def test_uniform_numbers_stay_below_the_limit_when_rounded(d: D, low: float, high: float) -> None:
    out = Placed(np.zeros(1_000_000, d.numpy), "contiguous")
    prepare(
        BY_NAME["inplace_uniform"], {"selfRef": out.tensor, "low": low, "high": high, **DRAWN}, Product.ATLAS_A2
    ).run()
    drawn = out.view.astype(np.float64)
    assert low <= drawn.min() < low + 0.01
    assert high - 0.02 < drawn.max() < high
    if low == 0:
        steps = drawn * 2 ** (11 if d == D.FLOAT16 else 8)
        assert (steps == np.floor(steps)).all()


def test_randperm_has_every_number_once() -> None:
    out = Placed(np.zeros(1000, np.int64), "contiguous")
    prepare(BY_NAME["randperm"], {"n": 1000, "seed": 1, "offset": 0, "out": out.tensor}, Product.ATLAS_A2).run()
    assert sorted(out.view) == [*range(1000)]
    assert (out.view != np.arange(1000)).any()


@pytest.mark.parametrize("replacement", [True, False], ids=["again", "each once"])
def test_multinomial_draws_indices_with_their_probabilities(replacement: bool) -> None:
    weights = np.array([[1, 0, 2, 5]], np.float32).repeat(40_000, 0)
    out = Placed(np.zeros((40_000, 2), np.int64), "contiguous")
    call = {"self": Placed(weights, "contiguous").tensor, "numsamples": 2, "replacement": replacement}
    prepare(BY_NAME["multinomial"], call | {"seed": 1, "offset": 0, "out": out.tensor}, Product.ATLAS_A2).run()
    first, second = out.view.T
    assert abs(np.bincount(first, minlength=4) / 40_000 - np.array([1, 0, 2, 5]) / 8).max() < 0.013  # five deviations
    if replacement:
        assert abs(np.corrcoef(first, second)[0, 1]) < 0.025
    else:
        assert (first != second).all()
        after = np.bincount(second[first == 3], minlength=4) / (first == 3).sum()
        assert abs(after - np.array([1, 0, 2, 0]) / 3).max() < 0.015


@pytest.mark.parametrize(("d", "span"), [(np.float64, 1), (np.int64, 8)])
def test_uniform_numbers_are_as_fine_as_their_type(d: Any, span: int) -> None:
    """In float32 there is no number between these limits."""
    low = 2.0**24 + 1
    limits = {"selfRef": np.zeros(10_000, d), "low": low, "high": low + span}
    drawn = computed("inplace_uniform", limits | DRAWN)["selfRef"]
    assert low <= drawn.min() < drawn.max() < low + span
    assert abs(drawn.mean() - low - span / 2) < span / 10


def test_a_uniform_number_of_float32_is_not_rounded_to_the_limit() -> None:
    """The last half step below the limit was rounded to it, for one of 2^25 numbers from 1 to 2."""
    limits = {"selfRef": np.zeros(1 << 24, np.float32), "low": 1.0, "high": 2.0, "seed": 3, "offset": 0}
    assert computed("inplace_uniform", limits)["selfRef"].max() < 2


@pytest.mark.parametrize("name", SEEDED_BY_TENSORS)
def test_a_seed_in_a_tensor_draws_the_same_as_a_number(name: str) -> None:
    """torch_npu draws by these in graphs, whose first execution gives what is drawn outside."""
    call = {
        "inplace_normal": {"mean": 1.0, "std": 2.0},
        "inplace_uniform": {"low": -1.0, "high": 3.0},
        "inplace_random": {"low": -2, "high": 300},
        "inplace_random_without_from_to": {},
        "dropout_v3": {"input": np.ones(1000, np.float32), "optionalNoiseShape": None, "p": 0.25},
        "multinomial": {"self": np.ones((2, 50), np.float32), "numsamples": 20, "replacement": True},
        "dropout_gen_mask_v2": {"shape": (1000,), "prob": 0.25, "probDataType": D.FLOAT},
    }[name]
    out = {
        "multinomial": {"out": np.zeros((2, 20), np.int64)},
        "dropout_v3": {"out": np.zeros(1000, np.float32), "maskOut": np.zeros(128, np.uint8)},
        "dropout_gen_mask_v2": {"out": np.zeros(128, np.uint8)},
    }.get(name, {"selfRef": np.zeros(40, np.float32)})
    drawn = []
    for seed, base, offset in ((2**40, 12, 4), (2**40, 4, 12), (2**40, 12, 5), (3, 12, 4)):
        expected = computed(name, call | out | {"seed": seed, "offset": base + offset}, Product.ASCEND_950)
        tensors = {"seedTensor": np.array([seed]), "offsetTensor": np.array([base])}
        found = computed(f"{name}_tensor", call | out | tensors | {"offset": offset}, Product.ASCEND_950)
        results = [found[output] for output in out]
        for output, result in zip(out, results, strict=True):
            np.testing.assert_array_equal(result, expected[output])
        (result, *_) = results
        drawn.append(result)
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()
    assert (drawn[0] != drawn[3]).any()


def test_a_dropout_converts_to_the_type_of_its_output() -> None:
    x, mask = np.arange(4, dtype=np.float32), np.zeros(16, np.uint8)
    call = {"input": x, "optionalNoiseShape": None, "p": 0.0, "out": x.astype(np.float16) * 0, "maskOut": mask}
    assert computed("dropout_v3", call | DRAWN)["out"].tolist() == x.tolist()


@pytest.mark.parametrize(("p", "train", "kept"), [(0.5, False, 1.0), (0.0, True, 1.0), (1.0, True, 0.0)])
def test_a_dropout_that_draws_nothing_leaves_the_mask(p: float, train: bool, kept: float) -> None:
    x, mask = np.ones(4, np.float32), np.full(16, 7, np.uint8)
    found = computed("dropout", {"input": x, "p": p, "train": train, "out": x * 0, "maskOut": mask} | DRAWN)
    assert found["out"].tolist() == [kept] * 4
    assert found["maskOut"].tolist() == [7] * 16


def test_a_gradient_goes_where_a_dropout_kept_elements() -> None:
    x, mask = np.ones(1000, np.float32), np.zeros(128, np.uint8)
    kept = computed("dropout", {"input": x, "p": 0.25, "train": True, "out": x * 0, "maskOut": mask} | DRAWN)
    gradients = {"gradOutput": x, "mask": kept["maskOut"], "scale": 1 / 0.75, "out": x * 0}
    np.testing.assert_allclose(computed("dropout_backward", gradients)["out"], kept["out"], rtol=1e-6)
    assert 600 < np.count_nonzero(kept["out"]) < 900


def test_a_gradient_that_is_not_finite_stays_so_where_no_element_was_kept() -> None:
    """The document's example, with a factor that its text does not allow and its source does not reject."""
    mask = np.zeros(16, np.uint8)
    mask[0] = 42
    arguments = {"gradY": np.arange(8, dtype=np.float32), "mask": mask, "scale": 2.0, "gradX": np.zeros(8, np.float32)}
    run = functools.partial(computed, "dropout_v3_grad", product=Product.ASCEND_950)
    assert run(arguments)["gradX"].tolist() == [0, 2, 0, 6, 0, 10, 0, 0]
    arguments |= {"gradY": np.array([np.inf] * 2 + [np.nan] * 2, np.float16), "gradX": np.zeros(4, np.float32)}
    np.testing.assert_array_equal(run(arguments | {"scale": -0.5})["gradX"], [np.nan, -np.inf, np.nan, np.nan])
