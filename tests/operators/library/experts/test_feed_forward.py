"""Two products with an activation between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Kind, Operator
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.experts import feed_forward
from tests.cases.table import INVALID, NO_KERNEL, Arguments, T, dtype, shape
from tests.helpers.library import Break, LibraryTests, Subject, torch, wide

FIRST, SECOND, THIRD = feed_forward.OPERATORS
TOKENS = "expertTokensOptional"
BIASES = ("bias1Optional", "bias2Optional")
SCALE, OFFSET = "scaleOptional", "offsetOptional"
DEQ = ("deqScale1Optional", "deqScale2Optional")
SCALES = ("antiquantScale1Optional", "antiquantScale2Optional")
OFFSETS = ("antiquantOffset1Optional", "antiquantOffset2Optional")
QUANTIZING, RESTORING = (SCALE, OFFSET, *DEQ), (*SCALES, *OFFSETS)
NOTHING = dict.fromkeys((TOKENS, *BIASES, *QUANTIZING, *RESTORING))


def call(d: D) -> Arguments:
    bias = D.FLOAT if d == D.BF16 else d
    return {
        "x": T(d, (5, 8)),
        "weight1": T(d, (8, 6)),
        "weight2": T(d, (6, 8)),
        **NOTHING,
        "bias1Optional": T(bias, (6,)),
        "bias2Optional": T(bias, (8,)),
        "activation": "relu",
        "innerPrecise": int(d != D.BF16),
        "y": T(d, (5, 8)),
    }


def later(d: D) -> Arguments:
    return call(d) | {"tokensIndexFlag": False}


def of_experts(o: Operator) -> Arguments:
    tokens = T(D.INT64, (2,)) if o.parameter(TOKENS).kind is Kind.INPUT else (2, 3)
    weights = {"weight1": T(D.FLOAT16, (2, 8, 6)), "weight2": T(D.FLOAT16, (2, 6, 8))}
    return {TOKENS: tokens, **weights, **dict.fromkeys(BIASES)}


QUANTIZED: Mapping[str, Any] = {
    "x": T(D.INT8, (5, 8)),
    "weight1": T(D.INT8, (8, 6)),
    "weight2": T(D.INT8, (6, 8)),
    **dict.fromkeys(BIASES),
    SCALE: T(D.FLOAT, (1,)),
    OFFSET: T(D.FLOAT, (1,)),
    DEQ[0]: T(D.FLOAT, (6,)),
    DEQ[1]: T(D.FLOAT, (8,)),
}
INTEGERS: Mapping[str, Any] = {
    "weight1": T(D.INT4, (8, 6)),
    "weight2": T(D.INT4, (6, 8)),
    **{name: T(D.FLOAT16, (8 if "2" in name else 6,)) for name in RESTORING},
}


def product(a: Mapping[str, Any]) -> Any:
    middle = torch.relu(wide(a["x"]) @ wide(a["weight1"]) + wide(a[BIASES[0]]))
    return middle @ wide(a["weight2"]) + wide(a[BIASES[1]])


def typed(o: Operator, name: str) -> Break:
    change = {TOKENS: T(D.STRING, (2,))} if name == TOKENS else dtype(D.STRING, name)
    if name in (SCALE, OFFSET):
        change = dict(QUANTIZED) | {name: T(D.STRING, (1,))}
    return Break(change, "data type")


GATED: Mapping[str, Any] = {"activation": "ReGLU", "weight2": T(D.FLOAT16, (3, 8))}


def halved(name: str) -> Arguments:
    """A gated call in which one tensor is no longer of halves, and of the weights both."""
    change = dict(GATED) | dtype(D.FLOAT, name)
    weights = {"weight1": T(D.BF16, (8, 6)), "weight2": T(D.BF16, (3, 8))}
    return change | weights if name in weights else change


def mismatched_shapes(o: Operator, name: str) -> Break:
    return Break(shape((7, 6) if name == "weight1" else (5, 8), name), "rows")


def odd(o: Operator, name: str) -> Break:
    extents = (5, 8) if name == "weight1" else (8, 7)
    rows, columns = (8, extents[0]) if name == "weight1" else (7, 6)
    change = dict(INTEGERS) | dict.fromkeys(BIASES)
    change |= {"weight1": T(D.INT4, (rows, columns)), "weight2": T(D.INT4, (columns, rows))}
    change |= {each: T(D.FLOAT16, (rows if "2" in each else columns,)) for each in RESTORING}
    return Break(change | {"x": T(D.FLOAT16, (5, rows)), "y": T(D.FLOAT16, (5, rows))}, "even")


class TestFeedForward(LibraryTests):
    subject = Subject(
        feed_forward.OPERATORS,
        calls={FIRST.name: call, SECOND.name: later, THIRD.name: later},
        references=dict.fromkeys((each.name for each in feed_forward.OPERATORS), product),
        default=(D.FLOAT16, D.BF16),
        empty={
            each.name: {
                of: {"shape": (0, 8)} if of in ("x", "y") else {"shape": value.shape}
                for of, value in call(D.FLOAT16).items()
                if isinstance(value, T)
            }
            | {of: None for of in NOTHING if of not in BIASES}
            for each in feed_forward.OPERATORS
        },
        breaks={
            "needed here": lambda o, name: Break(
                {**(QUANTIZED if name in QUANTIZING else INTEGERS), name: None},
                "an object",
            ),
            "known": lambda o, name: Break({name: "tanh"}, "fastgelu"),
            "data type": typed,
            "as many as x has": lambda o, name: Break(of_experts(o) | {name: (2, 2)}, "5 rows in all"),
            "no private format": lambda o, name: Break(
                {name: T(D.FLOAT16, (6,), Format.FORMAT_FRACTAL_NZ)}, "ACL_FORMAT_ND"
            ),
            "… dimensions (as many as x)": lambda o, name: Break(shape((5, 1, 8), name), "2 dimensions"),
            "2 to 8 dimensions": lambda o, name: Break(shape((8,), "x", "y"), "2 to 8"),
            "1 dimensions": lambda o, name: Break({name: T(D.INT64, (1, 2))}, "1 dimension"),
            "1 dimension": lambda o, name: Break({name: T(D.INT64, (1, 2))}, "1 dimension"),
            "2 dimensions": lambda o, name: Break(
                shape((5, 1, 8), "x", "y"), "2 dimensions", product=Product.ATLAS_INFERENCE
            ),
            "dimensions of a weight": lambda o, name: Break(shape((1, 8, 6), name), "without experts"),
            "at most 65535 rows": lambda o, name: Break(shape((1 << 16, 6), name), "at most 65535"),
            "shapes that go together": mismatched_shapes,
            "of each expert": lambda o, name: Break(
                of_experts(o) | {name: T(D.FLOAT16, (3, 8, 6) if name == "weight1" else (3, 6, 8))}, "(experts)"
            ),
            "an element for each column": lambda o, name: Break(
                {**(QUANTIZED if name in DEQ else {}), name: T(D.FLOAT if name in DEQ else D.FLOAT16, (5,))},
                "expected shape",
            ),
            "no gate": lambda o, name: Break(
                {name: "reglu", "weight2": T(D.FLOAT16, (3, 8))}, "fastgelu", product=Product.ATLAS_INFERENCE
            ),
            "for speed or precision": lambda o, name: Break({name: 1}, "expected 0", D.BF16),
            "of halves alone": lambda o, name: Break(halved(name), "ACL_FLOAT16"),
            "no experts": lambda o, name: Break(
                of_experts(o) | {"activation": "ReGLU", "weight2": T(D.FLOAT16, (2, 3, 8))}, "expected no experts"
            ),
            "used here": lambda o, name: Break({name: T(D.FLOAT, (6,))}, "null"),
            "same data type as weight1": lambda o, name: Break(dtype(D.INT8, name), "ACL_FLOAT16"),
            "same data type as x": lambda o, name: Break({**INTEGERS, name: T(D.BF16, (6,))}, "ACL_FLOAT16"),
            "data type with x": lambda o, name: Break(
                dtype(D.BF16, *(("weight1", "weight2") if name == "weight1" else (name,))), "ACL_FLOAT16"
            ),
            "data type with y": lambda o, name: Break(
                {**QUANTIZED, name: T(D.BF16, QUANTIZED[name].shape)}, "ACL_UINT64"
            ),
            "for each expert or column": lambda o, name: Break({**QUANTIZED, name: T(D.FLOAT, (2,))}, "[1] or [6]"),
            "for each column": lambda o, name: Break({**INTEGERS, name: T(D.FLOAT16, (5,))}, "groups of rows"),
            "as the scale": lambda o, name: Break({**INTEGERS, name: T(D.FLOAT16, (5,))}, "that of the scale"),
            "whole bytes": odd,
            "shape …": lambda o, name: (
                Break(shape((4, 8), name), "[5, 8]")
                if name == "y"
                else Break({**QUANTIZED, name: T(D.FLOAT, (2,))}, "[1]")
            ),
        },
    )


def tensor(array: Any, of: D | None = None) -> Tensor:
    held = np.array(array, order="C")
    return Tensor(of or D.of_numpy(held.dtype), held.shape, address=held.ctypes.data, owner=held)


def run(o: Operator, product: Product = Product.ATLAS_A2, of: D | None = None, **given: Any) -> Any:
    """Run a call of arrays and return y."""
    defaults: dict[str, Any] = {"activation": "relu", "innerPrecise": 0, **NOTHING} | (
        {} if o is FIRST else {"tokensIndexFlag": False}
    )
    result = np.zeros((*given["x"].shape[:-1], given["weight2"].shape[-1]), np.float16)
    arrays = {name: tensor(value) if isinstance(value, np.ndarray) else value for name, value in given.items()}
    arguments = defaults | {"y": tensor(result)} | arrays
    prepare(o, arguments, product).run()
    return arguments["y"].owner


def halves(random: Any, *shape: int) -> Any:
    return random.normal(size=shape).astype(np.float16)


def exact(activation: str, x: Any) -> Any:
    if activation.lower() in GATES:
        left, right = np.split(x, 2, axis=-1)
        return left * exact(GATES[activation.lower()], right)
    tanh = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return {
        "relu": np.maximum(x, 0),
        "silu": x / (1 + np.exp(-x)),
        "fastgelu": x / (1 + np.exp(-1.702 * x)),
        "gelu": x * (1 + tanh) / 2,
    }[activation.lower()]


GATES = {"geglu": "gelu", "swiglu": "silu", "reglu": "relu"}


def test_ffn_v3_reproduces_the_documents_example() -> None:
    x, weight = np.arange(8, dtype=np.float16).reshape(4, 2), np.array([[1, 2], [3, 4]], np.float16)
    found = run(THIRD, x=x, weight1=weight, weight2=weight, innerPrecise=1)
    assert found.tolist() == [[15, 22], [59, 86], [103, 150], [147, 214]]
    assert (run(SECOND, Product.ATLAS_INFERENCE, x=x, weight1=weight, weight2=weight, innerPrecise=1) == found).all()


@pytest.mark.parametrize("activation", ["fastgelu", "Relu", "silu", "GELU", "geglu", "SwiGLU", "reglu"])
def test_activations_in_any_case_of_letters_gate_the_left_half_with_the_right(activation: str) -> None:
    random = np.random.default_rng(2)
    gated = activation.lower() in GATES
    x, first, second = halves(random, 2, 3, 8), halves(random, 8, 6), halves(random, 3 if gated else 6, 8)
    found = run(FIRST, x=x, weight1=first, weight2=second, activation=activation, innerPrecise=1)
    expected = exact(activation, x.astype(float) @ first) @ second
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-3)


def test_experts_take_rows_by_counts_or_by_ends() -> None:
    random = np.random.default_rng(3)
    x, first, second = halves(random, 5, 8), halves(random, 3, 8, 6), halves(random, 3, 6, 8)
    bias = halves(random, 3, 6)
    parts = [(0, 2, 0), (2, 5, 2)]
    expected = [np.maximum(x[a:b].astype(float) @ first[e] + bias[e], 0) @ second[e] for a, b, e in parts]
    given = {"x": x, "weight1": first, "weight2": second, "bias1Optional": bias}
    calls: list[tuple[Operator, Any, bool]] = [
        (FIRST, (2, 0, 3), False),
        (SECOND, (2, 2, 5), True),
        (THIRD, np.array([2, 0, 3]), False),
        (THIRD, np.array([2, 2, 5]), True),
    ]
    for o, tokens, by_ends in calls:
        flag = {} if o is FIRST else {"tokensIndexFlag": by_ends}
        found = run(o, **given, **{TOKENS: tokens}, **flag)
        np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-3, atol=5e-3)
    with pytest.raises(AclnnError, match="expected 5 rows in all"):
        run(THIRD, **given, **{TOKENS: np.array([2, 0, 4])})
    with pytest.raises(AclnnError, match="expected at least 2, got 1"):
        run(SECOND, **given, **{TOKENS: (2, 1, 5)}, tokensIndexFlag=True)


@pytest.mark.parametrize("bits", [False, True])
@pytest.mark.parametrize("experts", [False, True])
def test_integers_are_quantised_again_between_the_products(experts: bool, bits: bool) -> None:
    random = np.random.default_rng(4)
    x = random.integers(-9, 9, (5, 8)).astype(np.int8)
    first, second = (random.integers(-9, 9, size).astype(np.int8) for size in ((2, 8, 6), (2, 6, 8)))
    bias = random.integers(-9, 9, (2, 6)).astype(np.int32)
    factors = [np.full((2, columns), 0.125, np.float32) for columns in (6, 8)]
    scale = random.uniform(0.1, 0.9, (2, 6) if bits else (2,)).astype(np.float32)
    offset = np.array([1, -2], np.float32)
    deq = [each.view(np.uint32).astype(np.uint64) if bits else each for each in factors]
    arrays = [first, second, bias, scale, offset, *deq]
    if not experts:
        arrays = [each[0] if each.ndim > 1 else each[:1] for each in arrays]
    names = ("weight1", "weight2", "bias1Optional", SCALE, OFFSET, *DEQ)
    tokens = {TOKENS: (2, 3)} if experts else {}
    found = run(FIRST, x=x, **dict(zip(names, arrays, strict=True)), **tokens)
    expected = []
    for expert, rows in enumerate((x[:2], x[2:]) if experts else (x,)):
        middle = np.maximum((rows.astype(float) @ first[expert] + bias[expert]) * 0.125, 0)
        middle = np.clip(np.rint(middle * scale[expert] + offset[expert]), -128, 127)
        expected.append(middle @ second[expert] * 0.125)
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-3)


@pytest.mark.parametrize("groups", [1, 2])
def test_weights_of_four_bits_are_restored_by_groups_of_rows(groups: int) -> None:
    random = np.random.default_rng(5)
    x, numbers = halves(random, 5, 8), [random.integers(-8, 8, size).astype(np.int8) for size in ((8, 6), (6, 8))]
    stored = [(each[:, ::2] & 15 | each[:, 1::2] << 4).astype(np.uint8) for each in numbers]
    weights = [
        Tensor(D.INT4, each.shape, address=held.ctypes.data, owner=held)
        for each, held in zip(numbers, stored, strict=True)
    ]
    scales, offsets = (
        [random.uniform(0.1, 1, (groups, columns)).astype(np.float16) for columns in (6, 8)] for _ in range(2)
    )
    shaped = [each if groups > 1 else each[0] for each in (*scales, *offsets)]
    given = dict(zip(RESTORING, shaped, strict=True))
    found = run(FIRST, x=x, weight1=weights[0], weight2=weights[1], **given)
    first, second = (
        (each + np.repeat(offset.astype(float), len(each) // groups, 0))
        * np.repeat(scale.astype(float), len(each) // groups, 0)
        for each, scale, offset in zip(numbers, scales, offsets, strict=True)
    )
    np.testing.assert_allclose(found, np.maximum(x @ first, 0) @ second, rtol=2e-3, atol=1e-2)


def test_products_without_a_kernel_are_rejected() -> None:
    weight = np.ones((2, 2), np.float16)
    for o, on, code in ((FIRST, Product.ATLAS_INFERENCE, INVALID), (SECOND, Product.ASCEND_950, NO_KERNEL)):
        with pytest.raises(AclnnError, match="expected one with a kernel") as failure:
            run(o, on, x=weight, weight1=weight, weight2=weight, innerPrecise=1)
        assert failure.value.code in (code, 561003)
