"""Every norm and softmax: rows that spoil careless arithmetic, each for itself, and the same bits however computed.

A row is what is normalised together: a row of LayerNorm, a group of GroupNorm, a channel of BatchNorm.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import set_soc_name
from aclnn.execution import arrays
from aclnn.kernels.cpu import threads
from tests.cases import CASE_BY_NAME, CASES
from tests.cases.table import Case, T
from tests.helpers.calls import assert_close
from tests.helpers.exact import NUMPY
from tests.helpers.instruction_sets import EVERY_OTHER_SET, digest_elsewhere

Array = np.ndarray[Any, Any]
Results = dict[str, Array]
LARGEST = float(np.finfo(np.float32).max)


class Kind(NamedTuple):
    """Describes how an operator's tensors hold R rows of N elements."""

    elements: Callable[[Array], Array]
    """Rows as x."""
    rows: Callable[[Array, int], Array]
    """x, or statistics, as R rows."""
    parameters: Callable[[int, int], tuple[int, ...]]
    """The shape of w and b for R and N."""


def _of_channels(rows: Array) -> Array:
    """Return the shape (2, R, N/2), or one sample if N is odd."""
    samples = 2 - rows.shape[1] % 2
    return np.ascontiguousarray(rows.reshape(len(rows), samples, -1).swapaxes(0, 1))


_BY_ROW = Kind(lambda rows: rows, lambda x, count: x.reshape(count, -1), lambda r, n: (n,))
_BY_SAMPLE = _BY_ROW._replace(elements=lambda rows: rows.reshape(1, *rows.shape))
_BY_GROUP = Kind(
    lambda rows: rows.reshape(-1, 2 - len(rows) % 2, rows.shape[1]),
    _BY_ROW.rows,
    lambda r, n: (2 - r % 2,),
)
_BY_INSTANCE = _BY_GROUP._replace(elements=lambda rows: _BY_GROUP.elements(rows)[..., None])
_BY_CHANNEL = Kind(
    _of_channels,
    lambda x, count: x.reshape(count, 1) if x.ndim == 1 else x.swapaxes(0, 1).reshape(count, -1),
    lambda r, n: (r,),
)


def kind_of(case: Case) -> Kind:
    for word, kind in (("ada", _BY_SAMPLE), ("group", _BY_GROUP), ("instance", _BY_INSTANCE), ("batch", _BY_CHANNEL)):
        if word in case.name:
            return kind
    return _BY_ROW


#: The operators that compute rows.
TABLE = [case for case in CASES if re.search("norm|softmax", case.name)]
EVERY = pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
_FORWARDS = {
    "ada_layer_norm_backward": "ada_layer_norm_v2",
    "fast_batch_norm_backward": "batch_norm",
    "group_norm_swish_grad": "group_norm_swish",
}


def nasty(n: int) -> dict[str, Array]:
    """Return finite rows of n elements that are numerically difficult."""
    normal = np.random.default_rng(n).normal(size=n)
    return {
        "ordinary": normal,
        "large mean, small variance": 4096.0 + normal * 2.0**-8,
        "one huge element": np.where(np.arange(n) == n // 2, 1e30, normal),
        "squares beyond float32": normal * 1e30,
        "the largest": np.where(normal < 1.0, LARGEST, -LARGEST),
        "equal elements": np.full(n, 0.1),
        "zeros": np.zeros(n),
        "subnormal": normal * 1e-42,
    }


def spoilt(n: int) -> dict[str, Array]:
    """Return rows whose results are not finite."""
    normal, at = np.random.default_rng(n + 1).normal(size=n), np.arange(n)
    return {
        "NaN": np.where(at == n // 3, np.nan, normal),
        "infinite": np.where(at == n - 1, np.inf, normal),
        "negative infinite": np.where(at == 0, -np.inf, normal),
        "both infinities": np.where(at % 2, np.inf, -np.inf),
    }


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = threads.shared().threads
    yield
    threads.set_threads(before)


def given(case: Case, rows: Array, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return arguments by C name for rows x; terms of a sum are proportional, a gradient's statistics the forward's."""
    set_soc_name(case.product.example)
    kind, (r, n), rng = kind_of(case), rows.shape, np.random.default_rng(3)
    with np.errstate(over="ignore"):
        x = kind.elements(rows.astype(dtype))
    parameters = kind.parameters(r, n)
    extents = {"N": x.shape[0], "C": parameters[0], "HxW": n, "group": parameters[0], "numGroups": parameters[0]}
    known = _forward_of(case, rows, dtype)
    arguments: dict[str, Any] = {}
    for p in case.operator.parameters:
        if p.name in (o.name for o in case.operator.outputs):
            continue
        name = p.python_name
        if not p.is_tensor:
            valid = case.call(D.FLOAT)[p.name]
            arguments[p.name] = (n,) if name == "normalized_shape" else extents.get(p.name, valid)
        elif name in known:
            arguments[p.name] = known[name]
        elif name in ("input", "x", "x1", "self"):
            arguments[p.name] = x
        elif name in ("x2", "gx"):
            arguments[p.name] = (x * dtype.type(0.5)).astype(dtype)
        else:
            shape = x.shape if name.startswith("grad") else (1, 1, n) if name in ("scale", "shift") else parameters
            values = rng.normal(size=shape)
            arguments[p.name] = (abs(values) if name == "running_var" else values).astype(dtype)
    return arguments


def _forward_name(case: Case) -> str:
    return _FORWARDS.get(case.name, case.name.removesuffix("_backward").removesuffix("_grad"))


def _forward_of(case: Case, rows: Array, dtype: np.dtype[Any]) -> Mapping[str, Any]:
    """Return the results of a gradient's forward operator, by Python's names."""
    name = _forward_name(case)
    if name == case.name:
        return {}
    forward = CASE_BY_NAME[name]
    arguments = given(forward, rows, dtype)
    if name == "add_layer_norm":
        arguments["biasOptional"] = None  # which the gradient knows nothing of
    results = computed(forward, arguments)
    known = {p.python_name: results[p.name] for p in forward.operator.outputs}
    return known | {"output": known["out"]} if "softmax" in name else {k: v for k, v in known.items() if k != "x"}


def computed(
    case: Case, arguments: Mapping[str, Any], move: Callable[[Array], Array] = np.copy, into: Results | None = None
) -> Results:
    """Return the results by C name, including updated inputs; the arguments do not change."""
    moved = {name: move(value) if isinstance(value, np.ndarray) else value for name, value in arguments.items()}
    inputs = [moved[p.name] for p in case.operator.inputs]
    attributes = tuple(moved[p.name] for p in case.operator.attributes)
    outs = [into[p.name] if into else None for p in case.operator.outputs]
    results = arrays.call(case.operator, inputs, attributes, outs)
    results = results if isinstance(results, tuple) else (results,)
    found = dict(zip((p.name for p in case.operator.outputs), results, strict=True))
    return found | {p.name: moved[p.name] for p in case.operator.inputs if p.updated}


def checked(case: Case, arguments: Mapping[str, Any]) -> Results:
    """Compute results, compare them with the formula in extended precision, and return them."""
    found = computed(case, arguments)
    described = {name: T(D.of_numpy(value.dtype), value.shape) for name, value in found.items()}
    assert case.reference is not None
    with np.errstate(all="ignore"):
        expected = case.reference({**arguments, "product": case.product}, described)
    for name, value in found.items():
        assert_close(name, value, *expected[name])
    return found


def by_rows(case: Case, results: Results, rows: Array) -> list[Array]:
    """Return the rows of results that have elements of each row, or one number for it."""
    found = [kind_of(case).rows(value, len(rows)) for value in results.values() if value.size % len(rows) == 0]
    return [value for value in found if value.shape[1] in (1, rows.shape[1])]


def examine(case: Case, rows: Array, finite: int, dtype: D = D.FLOAT) -> None:
    """Check rows; the first ``finite`` of them must have the same bits alone and with the others."""
    kept = rows.copy()
    kept[finite:] = rows[0]
    clean, all_ = (checked(case, given(case, values, NUMPY[dtype])) for values in (kept, rows))
    pairs = list(zip(by_rows(case, clean, rows), by_rows(case, all_, rows), strict=True))
    assert pairs
    for before, after in pairs:
        assert before[:finite].tobytes() == after[:finite].tobytes()


#: The operators of which other rows than short ones are looked at in every run: each is a kernel of its own.
FEW = ("softmax", "softmax_backward", "group_norm", "layer_norm", "layer_norm_backward", "rms_norm_grad")


@pytest.mark.parametrize(
    ("case", "n", "alone"),
    [
        pytest.param(
            case,
            n,
            alone,
            id=f"{case.name}-{n}{'-alone' * alone}",
            marks=[] if case.name in FEW or (n, alone) == (40, False) else [pytest.mark.long],
        )
        for case in TABLE
        for n in (1, 40)
        for alone in (False, True)
    ],
)
def test_difficult_rows_are_exact_and_do_not_affect_others(case: Case, n: int, alone: bool) -> None:
    finite, others = nasty(n), spoilt(n)
    if not alone:
        examine(case, np.stack([*finite.values(), *others.values()]), len(finite))
    for row in finite.values() if alone else ():
        checked(case, given(case, row[None], NUMPY[D.FLOAT]))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=case.name,
            marks=[] if case.name in (*FEW, "add_layer_norm", "group_norm_silu") else pytest.mark.long,
        )
        for case in TABLE
        if D.BF16 in case.operator.support[case.product]
    ],
)
def test_difficult_rows_in_16_bits_are_exact(case: Case) -> None:
    finite, others = nasty(40), spoilt(40)
    examine(case, np.stack([*finite.values(), *others.values()]), len(finite), D.BF16)


@pytest.mark.parametrize("name", ["group_norm", "group_norm_silu", "add_layer_norm", "deep_norm", "gemma_rms_norm"])
def test_16_bit_results_of_distant_and_short_rows_are_exact(name: str) -> None:
    """Rows far from zero, of any magnitude, and short, where errors of float32 lanes would show."""
    case, rng = CASE_BY_NAME[name], np.random.default_rng(7)
    sizes = 10 ** rng.uniform(-4, 3, size=(64, 1))
    for rows in (1000.0 + rng.normal(size=(64, 1000)), sizes * rng.normal(size=(64, 1000)), rng.normal(size=(300, 17))):
        checked(case, given(case, rows, NUMPY[D.FLOAT16]))


@pytest.mark.parametrize("count", [1, 2])
def test_gradients_of_many_samples_share_partial_sums(count: int) -> None:
    """With more than 64 samples, several add to the same partial sums of the weight's and bias's gradients."""
    threads.set_threads(count)
    case, rng = CASE_BY_NAME["ada_layer_norm_backward"], np.random.default_rng(9)
    set_soc_name(case.product.example)

    def normal(*shape: int) -> Array:
        return rng.normal(size=shape).astype(np.float32)

    x, scale, weight, bias = normal(150, 3, 40), normal(150, 1, 40), normal(40), normal(40)
    _, mean, rstd = aclnn.ada_layer_norm_v2(x, scale, scale, weight, bias)
    known = {"grad_out": normal(150, 3, 40), "input": x, "mean": mean, "rstd": rstd, "scale": scale, "shift": scale}
    known |= {"weight": weight, "bias": bias, "normalized_shape": (40,)}
    checked(case, {p.name: known[p.python_name] for p in case.operator.parameters if p.python_name in known})


def test_one_element_a_channel_by_running_statistics() -> None:
    """Rows of one element with given statistics have no reduction and no elements."""
    x, one, two = np.array([[3.0, -1.0]], np.float32), np.ones(2, np.float32), np.full(2, 2, np.float32)
    out, *_ = aclnn.batch_norm(x, two, one, one, two, training=False, eps=2.0)
    np.testing.assert_array_equal(out, [[3, -1]])


def test_16_bit_results_where_float32_does_not_reach() -> None:
    """Rows with differences that overflow float32, and amplified products that are subnormal in it."""
    case, rows = CASE_BY_NAME["group_norm"], np.random.default_rng(8).normal(size=(8, 40))
    found = checked(case, given(case, np.where(rows < 1.0, 3e38, -3e38), NUMPY[D.BF16]))
    assert np.isfinite(found["out"].astype(np.float32)).all()
    case = CASE_BY_NAME["group_norm_backward"]
    arguments = given(case, rows, NUMPY[D.BF16])
    for name, factor in {"gradOut": 1e-36, "gamma": 1e-7, "input": 1e-12, "mean": 1e-12, "rstd": 1e12}.items():
        arguments[name] = (arguments[name].astype(np.float64) * factor).astype(arguments[name].dtype)
    checked(case, arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case, id=case.name, marks=[] if case.name in FEW or "batch_norm" in case.name else [pytest.mark.long]
        )
        for case in TABLE
    ],
)
def test_long_rows_are_exact_and_have_the_same_bits_however_computed(case: Case) -> None:
    """Rows of 65,536 elements: by one thread and two, from and to tensors with other strides."""
    n = 1 << 16
    finite = nasty(n)
    rows = np.stack([finite[name] for name in ("ordinary", "large mean, small variance", "one huge element")])
    rows = np.concatenate([rows, spoilt(n)["NaN"][None]])
    threads.set_threads(1)
    arguments = given(case, rows, NUMPY[D.FLOAT])
    expected = checked(case, arguments)
    threads.set_threads(2)

    def spread(array: Array) -> Array:
        wide = np.full((*array.shape, 2), np.nan, array.dtype)
        wide[..., 0] = array
        return wide[..., 0]

    for move, into in ((np.copy, None), (np.asfortranarray, {name: spread(v) for name, v in expected.items()})):
        for name, value in computed(case, arguments, move, into).items():
            np.testing.assert_array_equal(value, expected[name])
            assert np.array_equal(np.signbit(value), np.signbit(expected[name])) or np.isnan(value).any()


def _norm(x: Array, eps: Any, *dims: int, centred: bool = True) -> Array:
    x = x - x.mean(dims, keepdims=True) * centred
    return x / np.sqrt((x * x).mean(dims, keepdims=True) + eps)


def _swish(z: Array) -> Array:
    return z / (1 + np.exp(-z))


def _softmax(x: Array) -> Array:
    return np.exp(x) / np.exp(x).sum(1, keepdims=True)


#: What each gradient is that of, by the tensors' names in Python; w and b of channels as columns.
DIFFERENTIATED: dict[str, Callable[..., Array]] = {
    "layer_norm_backward": lambda input, weight, bias, eps, **_: _norm(input, eps, 1) * weight + bias,
    "rms_norm_grad": lambda input, weight, eps, **_: _norm(input, eps, 1, centred=False) * weight,
    "add_layer_norm_grad": lambda x1, x2, weight, bias, eps, **_: _norm(x1 + x2, eps, 1) * weight + bias,
    "deep_norm_grad": lambda x, gx, weight, bias, alpha, eps, **_: _norm(alpha * x + gx, eps, 1) * weight + bias,
    "ada_layer_norm_backward": lambda input, scale, shift, weight, bias, eps, **_: (
        (_norm(input, eps, 2) * weight + bias) * (1 + scale) + shift
    ),
    "group_norm_backward": lambda input, weight, bias, eps, **_: _norm(input, eps, 2) * weight[:, None] + bias[:, None],
    "group_norm_swish_grad": lambda input, weight, bias, eps, **_: _swish(
        _norm(input, eps, 2) * weight[:, None] + bias[:, None]
    ),
    **dict.fromkeys(
        ("batch_norm_backward", "fast_batch_norm_backward"),
        lambda input, weight, bias, eps, **_: _norm(input, eps, 0, 2) * weight[:, None] + bias[:, None],
    ),
    "softmax_backward": lambda self, **_: _softmax(self),
    "log_softmax_backward": lambda self, **_: np.log(_softmax(self)),
}


@pytest.mark.parametrize("name", [case.name for case in TABLE if re.search("_(backward|grad)$", case.name)])
def test_gradients_match_the_forward(name: str) -> None:
    """Compare gradients with complex steps, which have no cancellation."""
    case, rows = CASE_BY_NAME[name], np.random.default_rng(4).normal(size=(4, 6))
    arguments = given(case, rows, NUMPY[D.FLOAT])
    arguments |= {"dsumOptional": None} if name == "add_layer_norm_grad" else {}
    forward = CASE_BY_NAME[_forward_name(case)].call(D.FLOAT)
    numbers = {"eps": np.float32(forward.get("epsilon", forward.get("eps", 0.0))), "alpha": arguments.get("alpha")}
    tensors = {p.python_name: arguments[p.name] for p in case.operator.inputs if arguments[p.name] is not None}
    tensors["self"] = rows.astype(np.float32)
    tensors.setdefault("bias", np.zeros_like(tensors.get("weight", rows)))
    dy = tensors["grad_output" if "softmax" in name else "grad_out"].astype(np.longdouble)
    of = {"out": "self", "grad_input": "x1"} if "add_layer" in name else {"out": "self"}
    for parameter in case.operator.outputs:
        target = of.get(parameter.python_name, parameter.python_name.removeprefix("grad_"))
        got = computed(case, arguments)[parameter.name]
        exact = np.empty(got.shape)
        for at in np.ndindex(got.shape):
            moved = {key: value.astype(np.clongdouble) for key, value in tensors.items()}
            moved[target][at] += 1e-200j
            exact[at] = (dy * DIFFERENTIATED[name](**moved, **numbers)).sum().imag / 1e-200
        np.testing.assert_allclose(got, exact, rtol=1e-6, atol=1e-6 * float(np.abs(exact).max()) + 1e-6)


#: Operators of which 16 bits are looked at, too: with lanes along rows and across them.
_IN_16_BITS = ("group_norm_silu", "add_layer_norm", "batch_norm")


def digest(name: str) -> str:
    """Return a digest of an operator's bits on difficult rows."""
    case, found = CASE_BY_NAME[name], hashlib.sha256()
    rows = [(D.FLOAT, n) for n in (1, 40, 1000)] + [(D.BF16, n) for n in (17, 1000) if name in _IN_16_BITS]
    for dtype, n in rows:
        for value in computed(case, given(case, np.stack([*nasty(n).values()]), NUMPY[dtype])).values():
            widened = value.astype(np.float32)
            found.update(np.where(np.isnan(widened), np.float32(np.nan), widened).tobytes())
    return found.hexdigest()


@pytest.mark.long
@EVERY
@EVERY_OTHER_SET
def test_bits_match_other_instructions(case: Case, elsewhere: dict[str, str]) -> None:
    assert digest_elsewhere(__name__, elsewhere, case.name) == digest(case.name)


def test_outputs_in_one_place_of_adjacent_columns() -> None:
    """Outputs that share memory need a larger workspace than the plan's."""
    random = np.random.default_rng(0)
    x, other = (np.asfortranarray(random.standard_normal((64, 100), np.float32)) for _ in range(2))
    weight, y = np.ones(100, np.float32), np.zeros((100, 64), np.float32).T
    _, rstd, total = aclnn.add_rms_norm(x, other, weight)
    got = aclnn.add_rms_norm(x, other, weight, out=(y, np.zeros_like(rstd), y))
    np.testing.assert_array_equal(got[2], total)
