"""Products of matrices in groups."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.matrix import grouped
from tests.cases.table import INVALID, NO_KERNEL, Arguments, T, shape
from tests.helpers.library import TRAINED, Break, Breaking, LibraryTests, Subject, described, torch, wide

FIRST, SECOND, OPERATOR, FOURTH, FIFTH, IN_BLOCKS = grouped.OPERATORS
OF_NUMBERS = (FIRST, SECOND)
BIAS, GROUPS = "biasOptional", "groupListOptional"
QUANTIZATION = ("scaleOptional", "offsetOptional", "antiquantScaleOptional", "antiquantOffsetOptional")
#: Of V4 and later, all null but with INT8.
MORE = (
    *("perTokenScaleOptional", "activationInputOptional", "activationQuantScaleOptional"),
    *("activationQuantOffsetOptional", "activationFeatureOutOptional", "dynQuantScaleOutOptional"),
)
FLOAT, HALF = D.FLOAT, D.FLOAT16


def bias_type(d: D) -> D:
    return FLOAT if d == D.BF16 else d


def call(d: D) -> Arguments:
    return {
        "x": (T(d, (5, 3)),),
        "weight": (T(d, (2, 3, 4)),),
        BIAS: (T(bias_type(d), (2, 4)),),
        **dict.fromkeys(QUANTIZATION),
        GROUPS: T(D.INT64, (2,)),
        "splitItem": 2,
        "groupType": 0,
        "y": (T(d, (5, 4)),),
    }


def fourth(arguments: Arguments, group_list_type: int) -> Arguments:
    """A call of V3 as one of V4."""
    others = {name: value for name, value in arguments.items() if name != "y"}
    return others | dict.fromkeys(MORE) | {"groupListType": group_list_type, "actType": 0, "out": arguments["y"]}


def fifth(arguments: Arguments, group_list_type: int) -> Arguments:
    return fourth(arguments, group_list_type) | {"tuningConfigOptional": (2, 0)}


def first(d: D) -> Arguments:
    """Rows of one x have their weights; all rows are in a group."""
    given = {name: value for name, value in call(d).items() if name != "groupType"}
    return given | {"weight": (T(d, (3, 4)),) * 2, BIAS: (T(bias_type(d), (4,)),) * 2, GROUPS: (1, 5)}


SCALE, ROW_SCALE = QUANTIZATION[0], MORE[0]


def integers(changes: Mapping[str, Any] | None = None) -> Arguments:
    """Return the arguments that only INT8 has, with scales of both kinds."""
    given: Arguments = {"x": (T(D.INT8, (5, 3)),), "weight": (T(D.INT8, (2, 3, 4)),), BIAS: None}
    given |= {SCALE: (T(D.BF16, (2, 4)),), ROW_SCALE: (T(FLOAT, (5,)),), "out": (T(D.BF16, (5, 4)),)}
    return given | dict(changes or {})


def out(operator: Operator) -> str:
    return "out" if operator in (FOURTH, FIFTH, IN_BLOCKS) else "y"


def product(a: Mapping[str, Any]) -> Any:
    (x,), (weight,), (bias,), (y,) = (
        map(wide, a[name]) for name in ("x", "weight", BIAS, "out" if "out" in a else "y")
    )
    parts = [x[rows] @ weight[at] + bias[at] for at, rows in enumerate((slice(1), slice(1, 4)))]
    return torch.cat([*parts, y[4:]])


def whole_product(a: Mapping[str, Any]) -> Any:
    (x,), weight, bias = (list(map(wide, a[name])) for name in ("x", "weight", BIAS))
    if len(weight) == 1:
        weight, bias = weight[0], bias[0]
    return torch.cat([x[:1] @ weight[0] + bias[0], x[1:] @ weight[1] + bias[1]])


def single(of: tuple[int, ...], strides: tuple[int, ...] | None = None) -> tuple[Tensor]:
    return (Tensor(FLOAT, of, strides),)


OF_FLOATS = grouped.OPERATORS[1:-1]

BREAKS: Mapping[str, Breaking] = {
    "few tensors": lambda o, name: Break({name: ()}, "1 to 128"),
    "null": lambda o, name: Break({name: (T(D.UINT64, (2, 4)),)}, "null"),
    "not computed": lambda o, name: Break({name: (T(D.UINT64, (2, 4)),)}, "null"),
    "data type of a result": lambda o, name: Break(integers({name: (T(D.DOUBLE, (5, 4)),)}), "ACL_INT32"),
    "one tensor of integers": lambda o, name: Break(integers({name: integers()[name] * 2}), "1 tensor"),
    "scales": lambda o, name: Break(integers({name: None}), "1 tensors with an output of ACL_BF16"),
    "scales of rows": lambda o, name: Break(
        integers({SCALE: None, "out": (T(D.INT32, (5, 4)),)}), "null with an output of ACL_INT32"
    ),
    "data type of scales": lambda o, name: Break(integers({name: (T(HALF, (2, 4)),)}), "ACL_BF16"),
    "data type of scales of rows": lambda o, name: Break(integers({name: (T(HALF, (5,)),)}), "ACL_FLOAT"),
    "a row of scales for each group": lambda o, name: Break(integers({name: (T(D.BF16, (4,)),)}), r"[2, 4]"),
    "one scale for each row": lambda o, name: Break(integers({name: (T(FLOAT, (4,)),)}), "[5]"),
    "data type with x": lambda o, name: Break({name: (T(D.BF16, (2, 4)),)}, "ACL_FLOAT"),
    "allowed value": lambda o, name: Break(
        *{"groupType": ({name: 1}, "-1, 0 or 2"), "groupListType": ({name: 2}, "0 or 1")}.get(name, ({name: 1}, "0"))
    ),
    "goes with groupType": lambda o, name: Break({name: 4 if o is SECOND else 0}, "2 or 3"),
    "format of a weight": lambda o, name: Break(
        {name: (T(FLOAT, (2, 3, 4), Format.FORMAT_FRACTAL_NZ),)}, "ACL_FORMAT_ND"
    ),
    "numbers of groups": lambda o, name: Break({name: (1, 4)}, "2 numbers in order, from 0 on, the last 5"),
    "rows of a group": lambda o, name: Break({name: (6,)}, "from 0 to 5"),
    "as many outputs as splitItem says": lambda o, name: Break({name: (T(FLOAT, (5, 4)),) * 2}, "1 tensors"),
    "as many as of weight, or one": lambda o, name: Break({name: (T(FLOAT, (5, 3)),) * 2}, "1 tensors"),
    "one weight": lambda o, name: Break({"groupType": 2, name: (T(FLOAT, (3, 4)),) * 2}, "1 tensor"),
    "public format of each": lambda o, name: Break(
        {name: (T(FLOAT, (5, 3), Format.FORMAT_FRACTAL_NZ),)}, "ACL_FORMAT_ND"
    ),
    "dimensions of each": lambda o, name: Break({name: (T(FLOAT, (5,)),)}, "2"),
    "extents of each": lambda o, name: Break({name: (T(FLOAT, (2**31 - 7, 3)),)}, "2147483647"),
    "16 bits": lambda o, name: Break({"weight": (T(FLOAT, (3, 4)),) * 2}, "ACL_FLOAT16"),
    "shape of a weight": lambda o, name: Break({name: (T(FLOAT, (2, 5, 4)),)}, "[3, 4]"),
    "enough columns in x": lambda o, name: Break(
        {"groupType": 2, "splitItem": 0, name: (T(FLOAT, (2, 4)),) * 2, out(o): (T(FLOAT, (5, 4)),) * 2},
        "3 rows in all",
        product=Product.ASCEND_950,
    ),
    "shape of a product": lambda o, name: Break({name: (T(FLOAT, (4, 5)),)}, "[5, 4]"),
    "as many biases as weights": lambda o, name: Break({name: (T(FLOAT, (2, 4)),) * 2}, "1 tensors"),
    "a row of a product": lambda o, name: Break({name: (T(FLOAT, (4,)),)}, "[2, 4]"),
    "ends of groups": lambda o, name: Break({name: None}, "ends"),
    "an end for each group": lambda o, name: Break(shape((3,), name), "[2]"),
    "at most 1024 groups": lambda o, name: Break(
        {name: T(D.INT64, (1025,)), "weight": (T(FLOAT, (1025, 3, 4)),), BIAS: (T(FLOAT, (1025, 4)),)}, "1024"
    ),
    "whole blocks": lambda o, name: Break(
        {name: (T(HALF, (2, 3, 4), Format.FORMAT_FRACTAL_NZ),)}, "multiples of 16 rows and of 16 columns", HALF
    ),
    "lie as groupType says": lambda o, name: Break({name: single((5, 3), (1, 5))}, "contiguous"),
    "same layout": lambda o, name: Break({name: single((2, 3, 4), (24, 8, 2))}, "contiguous or transposed"),
    "short rows": lambda o, name: Break(
        {"x": (T(FLOAT, (5, 1 << 16)),), "weight": (T(FLOAT, (2, 1 << 16, 4)),)}
        if name == "x"
        else {
            name: (T(FLOAT, (2, 3, 1 << 16)),),
            out(o): (T(FLOAT, (5, 1 << 16)),),
            BIAS: (T(FLOAT, (2, 1 << 16)),),
        },
        "65535",
    ),
}


class TestGrouped(LibraryTests):
    subject = Subject(
        OF_FLOATS,
        calls={
            SECOND.name: lambda d: call(d) | {GROUPS: (1, 5)},
            OPERATOR.name: call,
            FOURTH.name: lambda d: fourth(call(d), 1),
            FIFTH.name: lambda d: fifth(call(d), 1),
        },
        references={
            SECOND.name: whole_product,
            **dict.fromkeys((OPERATOR.name, FOURTH.name, FIFTH.name), product),
        },
        default=TRAINED,
        plain=tuple(operator.name for operator in grouped.OPERATORS),
        numbers=lambda operator, name, array: (
            np.array([1, 4 if operator == OPERATOR.name else 3]) if name == GROUPS else array
        ),
        empty={
            o.name: {
                "x": (T(FLOAT, (0, 3)),),
                out(o): (T(FLOAT, (0, 4)),),
                GROUPS: (0, 0) if o is SECOND else {"shape": (2,)},
                **({"tuningConfigOptional": None} if o is FIFTH else {}),
            }
            for o in OF_FLOATS
        },
        breaks=BREAKS,
        codes={"not computed": NO_KERNEL},
    )


def in_blocks(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A call of 16 bits instead of 32, and of 16 instead of 3 rows of weights and 32 instead of 4 columns."""
    extents = {3: 16, 4: 32}

    def widened(value: Any) -> Any:
        if type(value) is tuple:
            return tuple(map(widened, value))
        shape = tuple(extents.get(extent, extent) for extent in value.shape)
        dtype = HALF if value.dtype == FLOAT else value.dtype
        return T(dtype, shape) if isinstance(value, T) else Tensor(dtype, shape, value.strides)

    listed = ("x", "weight", BIAS, "out", SCALE)
    return {name: widened(value) if name in listed and value else value for name, value in arguments.items()}


def break_in_blocks(broken: Breaking) -> Breaking:
    def widened(o: Operator, name: str) -> Break:
        change, expected, *others = broken(o, name)
        return Break(in_blocks(change), expected.replace("3, 4]", "16, 4]").replace(", 4]", ", 32]"), *others)

    return widened


class TestInBlocks(LibraryTests):
    subject = Subject(
        (IN_BLOCKS,),
        calls={
            IN_BLOCKS.name: lambda d: (
                in_blocks(fifth(call(d), 1)) | {BIAS: (T(bias_type(d), (2, 32)),), "quantGroupSize": 0}
            )
        },
        references={IN_BLOCKS.name: product},
        default=TRAINED[1:],
        plain=(IN_BLOCKS.name,),
        numbers=lambda operator, name, array: np.array([1, 3]) if name == GROUPS else array,
        empty={
            IN_BLOCKS.name: {
                "x": (T(HALF, (0, 16)),),
                "out": (T(HALF, (0, 32)),),
                GROUPS: {"shape": (2,)},
                "tuningConfigOptional": None,
            }
        },
        breaks={
            **{title: break_in_blocks(broken) for title, broken in BREAKS.items()},
            "one data type": lambda o, name: Break({name: (T(HALF, (3, 4)), T(D.BF16, (3, 4)))}, "ACL_FLOAT16"),
            "public format of each": lambda o, name: Break(
                {name: (T(HALF, (5, 3), Format.FORMAT_FRACTAL_NZ),)}, "ACL_FORMAT_ND"
            ),
            "allowed value": lambda o, name: Break(
                *{"groupType": ({name: 2}, "-1 or 0"), "groupListType": ({name: 2}, "0 or 1")}.get(
                    name, ({name: 1}, "0")
                )
            ),
            "whole blocks": lambda o, name: Break(
                {name: (T(HALF, (2, 16, 24)),), "out": (T(HALF, (5, 24)),), BIAS: (T(HALF, (2, 24)),)},
                "multiples of 16 rows and of 16 columns",
            ),
        },
        codes={"not computed": NO_KERNEL},
    )


class TestFirst(LibraryTests):
    subject = Subject(
        (FIRST,),
        calls={FIRST.name: first},
        references={FIRST.name: whole_product},
        default=TRAINED[1:],
        plain=(FIRST.name,),
        empty={FIRST.name: {"x": (T(HALF, (0, 3)),), "y": (T(HALF, (0, 4)),), GROUPS: (0, 0)}},
        breaks={
            "few tensors": lambda o, name: Break({name: ()}, "1 to 128"),
            "not computed": lambda o, name: Break({name: (T(D.UINT64, (4,)),)}, "null"),
            "one data type": lambda o, name: Break({name: (T(HALF, (3, 4)), T(D.BF16, (3, 4)))}, "ACL_FLOAT16"),
            "data type with x": lambda o, name: Break({name: (T(D.BF16, (4,)),) * 2}, "ACL_FLOAT16"),
            "goes with groupType": lambda o, name: Break({name: 4}, "0, 1, 2 or 3"),
            "as many outputs as splitItem says": lambda o, name: Break({name: (T(HALF, (5, 4)),) * 2}, "1 tensors"),
            "as many as of weight, or one": lambda o, name: Break({name: (T(HALF, (5, 3)),) * 3}, "2 tensors"),
            "public format of each": lambda o, name: Break(
                {name: (T(HALF, (5, 3), Format.FORMAT_FRACTAL_NZ),) * (2 if name == BIAS else 1)}, "ACL_FORMAT_ND"
            ),
            "format of a weight": lambda o, name: Break(
                {name: (T(HALF, (3, 4), Format.FORMAT_FRACTAL_NZ),) * 2},
                "ACL_FORMAT_ND",
                product=Product.ASCEND_950,
            ),
            "dimensions of each": lambda o, name: Break({name: (T(HALF, (5,)),) * (2 if name == "weight" else 1)}, "2"),
            "extents of each": lambda o, name: Break(
                {name: (T(HALF, (2**31 - 15, 3)),) * (2 if name == "weight" else 1)}, "2147483647"
            ),
            "shape of a weight": lambda o, name: Break({name: (T(HALF, (5, 4)),) * 2}, "[3, 4]"),
            "shape of a product": lambda o, name: Break({name: (T(HALF, (4, 5)),)}, "[5, 4]"),
            "as many biases as weights": lambda o, name: Break({name: (T(HALF, (4,)),)}, "2 tensors"),
            "a row of a product": lambda o, name: Break({name: (T(HALF, (5,)),) * 2}, "[4]"),
            "numbers of groups": lambda o, name: Break({name: None}, "the ends of groups"),
            "whole blocks": lambda o, name: Break(
                {name: (T(HALF, (3, 4), Format.FORMAT_FRACTAL_NZ),) * 2}, "multiples of 16 rows"
            ),
            "lie as groupType says": lambda o, name: Break({name: (Tensor(HALF, (5, 3), (1, 5)),)}, "contiguous"),
            "same layout": lambda o, name: Break(
                {name: (Tensor(HALF, (3, 4), (8, 2)),) * 2}, "contiguous or transposed"
            ),
            "short rows": lambda o, name: Break(
                {"x": (T(HALF, (5, 1 << 16)),), "weight": (T(HALF, (1 << 16, 4)),) * 2}
                if name == "x"
                else {
                    name: (T(HALF, (3, 1 << 16)),) * 2,
                    "y": (T(HALF, (5, 1 << 16)),),
                    BIAS: (T(HALF, (1 << 16,)),) * 2,
                },
                "65535",
            ),
        },
        codes={"not computed": NO_KERNEL},
    )


def placed(array: Any, transposed: bool = False) -> Tensor:
    """A matrix in memory, or several, whose columns lie there as rows if it is transposed."""
    held = np.array(array.swapaxes(-1, -2) if transposed else array, order="C")
    view = held.swapaxes(-1, -2) if transposed else held
    strides = [stride // held.itemsize for stride in view.strides]
    return Tensor(D.of_numpy(held.dtype), view.shape, strides, address=held.ctypes.data, owner=held)


def compute(
    x: list[Any],
    weight: list[Any],
    bias: list[Any],
    ends: list[int] | None,
    kind: int,
    split: int,
    shapes: list[tuple[int, ...]],
    transposed: bool = False,
    product: Product = Product.ATLAS_A2,
    group_list_type: int | None = None,
) -> list[Any]:
    y = [placed(np.full(of, 7, x[0].dtype)) for of in shapes]
    arguments = {
        "x": tuple(placed(each, kind == 2) for each in x),
        "weight": tuple(placed(each, transposed) for each in weight),
        BIAS: tuple(map(placed, bias)) or None,
        **dict.fromkeys(QUANTIZATION),
        GROUPS: None if ends is None else placed(np.array(ends)),
        "splitItem": split,
        "groupType": kind,
        "y": tuple(y),
    }
    if group_list_type is None:
        prepare(OPERATOR, arguments, product).run()
    else:
        prepare(FOURTH, fourth(arguments, group_list_type), product).run()
    return [each.owner for each in y]


def normal(*of: int) -> Any:
    return np.random.default_rng(of).normal(size=of).astype(np.float16)


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("transposed", [False, True])
def test_each_x_has_its_weight(transposed: bool) -> None:
    x, weight, bias = [normal(5, 3), normal(2, 6)], [normal(3, 4), normal(6, 7)], [normal(4), normal(7)]
    found = compute(x, weight, bias, None, -1, 0, [(5, 4), (2, 7)], transposed)
    for y, left, right, term in zip(found, x, weight, bias, strict=True):
        close(y, left.astype(float) @ right + term)


@pytest.mark.parametrize("transposed", [False, True])
def test_rows_of_one_x_or_of_several_have_their_weight(transposed: bool) -> None:
    x, weight, bias = normal(6, 3), [normal(3, 4), normal(3, 4) + 1], [normal(4), normal(4) + 1]
    expected = np.concatenate([x[:4].astype(float) @ weight[0] + bias[0], x[4:].astype(float) @ weight[1] + bias[1]])
    for given, ends in (([x], [4, 6]), ([x[:4], x[4:]], [4, 6]), ([x[:4], x[4:]], None)):
        close(compute(given, weight, bias, ends, 0, 2, [(6, 4)], transposed)[0], expected)
    stacked = np.stack(weight)
    close(compute([x], [stacked], [np.stack(bias)], [4, 6], 0, 3, [(6, 4)], transposed)[0], expected)
    close(compute([x], [stacked], [], [4, 4], 0, 3, [(6, 4)], transposed)[0][4:], 7)


@pytest.mark.parametrize("product", [Product.ATLAS_A2, Product.ASCEND_950])
def test_columns_of_x_have_their_rows_of_weights(product: Product) -> None:
    x, weight = normal(5, 6), normal(6, 4)
    parts = [x[:, :4].astype(float) @ weight[:4], np.zeros((5, 4)), x[:, 4:6].astype(float) @ weight[4:6]]
    close(compute([x], [weight], [], [4, 4, 6], 2, 2, [(3, 5, 4)], product=product)[0], parts)
    for given in (None, *([[4, 6]] if product is Product.ASCEND_950 else [])):
        found = compute([x], [weight[:4], weight[4:]], [], given, 2, 1, [(5, 4)] * 2, product=product)
        close(found[0], parts[0])
        close(found[1], parts[2])


@pytest.mark.parametrize(
    ("ends", "several", "text"),
    [
        ([4, 3], False, r"groupListOptional\[1\]: expected an end from 4, that of the one before, to 6, got 3"),
        ([-1, 6], False, r"groupListOptional\[0\]: expected an end from 0, that of the one before, to 6, got -1"),
        ([4, 7], False, r"groupListOptional\[1\]: expected an end from 4, that of the one before, to 6, got 7"),
        ([3, 6], True, r"groupListOptional: expected \[4, 6\], where the tensors of x or weight end, got \[3, 6\]"),
    ],
)
def test_invalid_group_list_ends_are_rejected(ends: list[int], several: bool, text: str) -> None:
    x, weight = normal(6, 3), [normal(3, 4)] * 2
    with pytest.raises(AclnnError, match=text) as caught:
        compute([x[:4], x[4:]] if several else [x], weight, [], ends, 0, 2, [(6, 4)])
    assert caught.value.code == 361001


def test_x_lies_transposed_where_its_columns_are_grouped() -> None:
    arguments = call(FLOAT) | {"groupType": 2, BIAS: None, "y": single((2, 5, 4)), "weight": single((3, 4))}
    ends = Tensor(D.INT64, (2,))
    prepare(OPERATOR, arguments | {"x": single((5, 3), (1, 5)), GROUPS: ends}, Product.ATLAS_A2)
    with pytest.raises(AclnnError, match=r"x\[0\]: expected strides of a transposed matrix, got \[3, 1\]"):
        prepare(OPERATOR, arguments | {"x": single((5, 3)), GROUPS: ends}, Product.ATLAS_A2)


def test_grouped_columns_reject_biases_and_separate_weights_reject_ends() -> None:
    both = {"groupType": 2, "x": single((5, 3), (1, 5)), GROUPS: Tensor(D.INT64, (2,))}
    arguments = call(FLOAT) | both | {"y": single((2, 5, 4)), "weight": single((3, 4)), BIAS: single((4,))}
    with pytest.raises(AclnnError, match="biasOptional: expected no tensors, got 1"):
        prepare(OPERATOR, arguments, Product.ATLAS_A2)
    separate = arguments | {BIAS: None, "splitItem": 0, "y": single((5, 4)), GROUPS: Tensor(D.INT64, (1,))}
    prepare(OPERATOR, separate, Product.ASCEND_950)
    with pytest.raises(AclnnError, match="groupListOptional: expected null with groupType 2, got a tensor"):
        prepare(OPERATOR, separate, Product.ATLAS_A2)


@pytest.mark.parametrize(("kind", "groups"), [(0, [4, 6]), (1, [4, 2])])
def test_v4_accepts_ends_or_sizes(kind: int, groups: list[int]) -> None:
    x, weight = normal(6, 3), [normal(3, 4), normal(3, 4) + 1]
    expected = np.concatenate([x[:4].astype(float) @ weight[0], x[4:].astype(float) @ weight[1]])
    for given in ([x], [x[:4], x[4:]]):
        close(compute(given, weight, [], groups, 0, 2, [(6, 4)], group_list_type=kind)[0], expected)
    rows = normal(6, 4)
    found = compute([normal(5, 6)], [rows], [], groups, 2, 2, [(2, 5, 4)], group_list_type=kind)[0]
    close(found, [normal(5, 6)[:, part].astype(float) @ rows[part] for part in (slice(4), slice(4, 6))])
    separate = compute([x[:4], x[4:]], weight, [], None, -1, 0, [(4, 4), (2, 4)], group_list_type=kind)
    close(np.concatenate(separate), expected)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [([7, -1], r"groupListOptional\[1\]: expected a size of at least 0, got -1"), ([4, 3], "to 6, got 7")],
)
def test_invalid_group_list_sizes_are_rejected(sizes: list[int], text: str) -> None:
    with pytest.raises(AclnnError, match=text):
        compute([normal(6, 3)], [normal(3, 4)] * 2, [], sizes, 0, 2, [(6, 4)], group_list_type=1)


def test_v4_accepts_more_tensors_on_ascend_950() -> None:
    many = fourth(call(D.FLOAT16), 0) | {BIAS: None, "splitItem": 0, "groupType": -1, GROUPS: None}
    many |= {name: (Tensor(D.FLOAT16, (1, 1)),) * 129 for name in ("x", "weight", "out")}
    prepare(FOURTH, many, Product.ASCEND_950)
    with pytest.raises(AclnnError, match="x: expected 1 to 128 tensors, got 129"):
        prepare(FOURTH, many, Product.ATLAS_A2)


def numbered(
    x: list[Any],
    weight: list[Any],
    ends: tuple[int, ...] | None,
    split: int,
    shapes: list[tuple[int, ...]],
    kind: int | None = None,
    product: Product = Product.ATLAS_A2,
) -> list[Any]:
    """Compute by the first version, or by V2 with a type of groups."""
    y = [placed(np.full(of, 7, x[0].dtype)) for of in shapes]
    arguments = first(HALF) | {
        "x": tuple(placed(each, kind == 2) for each in x),
        "weight": tuple(map(placed, weight)),
        BIAS: None,
        GROUPS: ends,
        "splitItem": split,
        "y": tuple(y),
    }
    if kind is None:
        prepare(FIRST, arguments, product).run()
    else:
        prepare(SECOND, arguments | {"groupType": kind}, product).run()
    return [each.owner for each in y]


def test_numeric_group_lists_divide_the_rows_of_one_x() -> None:
    x, weight = normal(6, 3), [normal(3, 4), normal(3, 5)]
    expected = [x[:4].astype(float) @ weight[0], x[4:].astype(float) @ weight[1]]
    for kind in (None, 0):
        for found, one in zip(numbered([x], weight, (4, 6), 0, [(4, 4), (2, 5)], kind), expected, strict=True):
            close(found, one)
    same_shape = [weight[0], weight[0] + 1]
    together = np.concatenate([x[:4].astype(float) @ same_shape[0], x[4:].astype(float) @ same_shape[1]])
    close(numbered([x], same_shape, (4, 6), 3, [(6, 4)])[0], together)
    close(numbered([x], [np.stack(same_shape)], (4, 6), 3, [(6, 4)], 0)[0], together)


@pytest.mark.parametrize("ends", [None, (), (4, 6)])
def test_numeric_group_lists_may_repeat_the_ends_of_tensors(ends: tuple[int, ...] | None) -> None:
    x, weight = [normal(4, 3), normal(2, 3)], [normal(3, 4), normal(3, 4) + 1]
    expected = [left.astype(float) @ right for left, right in zip(x, weight, strict=True)]
    for found, one in zip(numbered(x, weight, ends, 1, [(4, 4), (2, 4)]), expected, strict=True):
        close(found, one)
    close(numbered(x, weight, ends, 2, [(6, 4)])[0], np.concatenate(expected))
    one = normal(4, 3)
    close(numbered([one], weight[:1], (4,) if ends else ends, 0, [(4, 4)])[0], one.astype(float) @ weight[0])


def test_numeric_group_lists_divide_columns() -> None:
    x, weight = normal(5, 6), normal(6, 4)
    parts = [x[:, :4].astype(float) @ weight[:4], x[:, 4:].astype(float) @ weight[4:]]
    close(numbered([x], [weight], (4, 6), 2, [(2, 5, 4)], 2)[0], parts)
    for found, part in zip(numbered([x], [weight[:4], weight[4:]], (4, 6), 0, [(5, 4)] * 2, 2), parts, strict=True):
        close(found, part)


@pytest.mark.parametrize(
    ("ends", "several", "text"),
    [
        ((4, 3), False, r"expected 2 numbers in order, from 0 on, the last 6, got \[4, 3\]"),
        ((-1, 6), False, r"expected 2 numbers in order, from 0 on, the last 6, got \[-1, 6\]"),
        ((4, 5), False, r"expected 2 numbers in order, from 0 on, the last 6, got \[4, 5\]"),
        ((2, 4, 6), False, r"expected 2 numbers in order, from 0 on, the last 6, got \[2, 4, 6\]"),
        ((3, 6), True, r"expected \[4, 6\] \(where the tensors of a list end\), got \[3, 6\]"),
        (None, False, "expected the ends of groups, got null"),
    ],
)
def test_invalid_numeric_group_lists_are_rejected(ends: tuple[int, ...] | None, several: bool, text: str) -> None:
    x, weight = normal(6, 3), [normal(3, 4)] * 2
    with pytest.raises(AclnnError, match=f"groupListOptional: {text}") as caught:
        numbered([x[:4], x[4:]] if several else [x], weight, ends, 2, [(6, 4)])
    assert caught.value.code == INVALID


def test_an_x_of_its_own_may_have_more_dimensions() -> None:
    x, weight = normal(2, 3, 5), normal(5, 4)
    close(numbered([x], [weight], None, 0, [(2, 3, 4)])[0], x.astype(float) @ weight)
    close(compute([x], [weight], [], None, -1, 0, [(2, 3, 4)])[0], x.astype(float) @ weight)
    with pytest.raises(AclnnError, match=r"x\[0\]: expected 2 dimensions, got 3"):
        numbered([x], [weight], None, 0, [(2, 3, 4)], product=Product.ASCEND_950)
    with pytest.raises(AclnnError, match=r"y\[0\]: expected shape \[2, 3, 4\], got \[6, 4\]"):
        numbered([x], [weight], None, 0, [(6, 4)])
    with pytest.raises(AclnnError, match="groupListOptional: expected null with groupType -1 or more than 2 dim"):
        numbered([x], [weight], (2,), 0, [(2, 3, 4)])


def test_weights_of_16_bits_may_be_called_blocks() -> None:
    weight = (Tensor(HALF, (2, 16, 32), format=Format.FORMAT_FRACTAL_NZ),)
    arguments = described(in_blocks(fifth(call(HALF), 0))) | {"weight": weight}
    prepare(FIFTH, arguments, Product.ATLAS_A2)
    prepare(IN_BLOCKS, arguments | {"quantGroupSize": 0}, Product.ASCEND_950)
    with pytest.raises(AclnnError, match=r"weight\[0\]: expected a format such as ACL_FORMAT_ND"):
        prepare(FIFTH, arguments, Product.ASCEND_950)


def whole(*of: int) -> Any:
    return np.random.default_rng(of).integers(-128, 128, of, np.int8)


def of_integers(
    dtype: D,
    given: Mapping[str, Any],
    groups: tuple[int, ...] = (2, 3),
    sized: int = 0,
    product: Product = Product.ATLAS_A2,
    transposed: bool = False,
) -> Any:
    """Multiply five rows of INT8, of which those after the last group stay 7."""
    y = placed(np.full((5, 4), 7, dtype.numpy))
    listed = {name: (placed(array),) for name, array in given.items()}
    listed |= {"x": (placed(whole(5, 300)),), "weight": (placed(whole(2, 300, 4), transposed),), "out": (y,)}
    others = {BIAS: None, GROUPS: placed(np.array(groups)), "splitItem": 3, "tuningConfigOptional": None}
    arguments = fifth(call(D.FLOAT16), sized) | others | listed
    prepare(FIFTH, arguments, product).run()
    return y.owner.astype(np.float64)


def whole_total(bias: Any = 0) -> Any:
    x, weight = whole(5, 300).astype(int), whole(2, 300, 4).astype(int)
    return np.concatenate([x[:2] @ weight[0], x[2:3] @ weight[1]]) + bias


ROWS = np.repeat([0, 1], [2, 1])


@pytest.mark.parametrize("transposed", [False, True])
def test_int8_weights_may_be_labelled_blocks(transposed: bool) -> None:
    """A label of blocks leaves the elements in their old order; blocks of transposed matrices are transposed."""
    x, weight, scale = whole(5, 64), whole(2, 64, 32), np.full((2, 32), 2**-12, np.float32)
    y = placed(np.full((5, 32), 7, np.float16))
    listed = {"x": x, SCALE: scale, ROW_SCALE: np.ones(5, np.float32)}
    arguments = in_blocks(fifth(call(HALF), 1)) | {name: (placed(each),) for name, each in listed.items()}
    arguments |= {"weight": (placed(weight, transposed),), BIAS: None, GROUPS: placed(np.array([2, 1])), "out": (y,)}
    arguments |= {"quantGroupSize": 0, "tuningConfigOptional": None}
    prepare(IN_BLOCKS, arguments, Product.ATLAS_A2).run()
    expected = np.concatenate([x[:2].astype(int) @ weight[0], x[2:3].astype(int) @ weight[1]]) * 2.0**-12
    np.testing.assert_allclose(y.owner[:3], expected, rtol=2**-8)
    narrow = {"weight": (placed(whole(2, 64, 16), transposed),), SCALE: (placed(scale[:, :16]),)}
    arguments |= narrow | {"out": (placed(np.zeros((5, 16), np.float16)),)}
    text = r"weight\[0\]: expected multiples of 16 rows and of 32 columns, got \[64, 16\]"
    with nullcontext() if transposed else pytest.raises(AclnnError, match=text):
        prepare(IN_BLOCKS, arguments, Product.ATLAS_A2)
    prepare(IN_BLOCKS, arguments, Product.ASCEND_950)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("sized", "groups"), [(0, (2, 3)), (1, (2, 1))])
def test_int8_groups_are_multiplied(transposed: bool, sized: int, groups: tuple[int, ...]) -> None:
    found = of_integers(D.INT32, {}, groups, sized, transposed=transposed)
    assert (found[:3] == whole_total()).all()
    assert (found[3:] == 7).all()


@pytest.mark.parametrize("dtype", [D.FLOAT16, D.BF16])
@pytest.mark.parametrize("product", [Product.ATLAS_A2, Product.ASCEND_950])
def test_int8_products_are_scaled_by_columns_and_rows(dtype: D, product: Product) -> None:
    scale = np.arange(1, 9).reshape(2, 4).astype(np.float32 if dtype == D.FLOAT16 else dtype.numpy) / 2**12
    rows, bias = np.arange(1, 6, dtype=np.float32) / 8, np.arange(8, dtype=np.int32).reshape(2, 4) * 100
    found = of_integers(dtype, {SCALE: scale, BIAS: bias}, product=product)
    expected = whole_total(bias[ROWS]) * scale.astype(float)[ROWS]
    np.testing.assert_allclose(found[:3], expected, rtol=2**-8)
    found = of_integers(dtype, {SCALE: scale, ROW_SCALE: rows, BIAS: bias}, product=product)
    np.testing.assert_allclose(found[:3], expected * rows[:3, None], rtol=2**-8)
    assert (found[3:] == 7).all()


def test_int8_products_are_scaled_to_int8() -> None:
    scale = np.arange(1, 9).reshape(2, 4).astype(np.float32) / 2**15
    bits = scale.view(np.uint32).astype(np.uint64) | 3 << 37
    expected = np.clip(np.rint(whole_total() * scale[ROWS].astype(float) + 3), -128, 127)
    assert (of_integers(D.INT8, {SCALE: bits})[:3] == expected).all()
    assert (of_integers(D.INT8, {SCALE: bits}, product=Product.ASCEND_950)[:3] == expected).all()


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_int8_products_have_one_scale_per_group_on_ascend_950(shape: tuple[int, ...]) -> None:
    scale = (np.array([1, 2], np.float32) / 2**12).reshape(shape)
    bias = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32)
    found = of_integers(D.FLOAT16, {SCALE: scale, BIAS: bias}, product=Product.ASCEND_950)
    np.testing.assert_allclose(found[:3], whole_total() * scale.reshape(2, 1)[ROWS] + bias[ROWS], rtol=2**-8)
    with pytest.raises(AclnnError, match=r"scaleOptional\[0\]: expected shape \[2, 4\]"):
        of_integers(D.FLOAT16, {SCALE: scale})


NOTHING: tuple[tuple[Tensor | None, ...], ...] = ((), (Tensor(FLOAT, (0,)),), (None,))


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (FIRST, first(HALF)),
        (SECOND, call(FLOAT) | {GROUPS: (1, 5)}),
        (OPERATOR, call(FLOAT)),
        (FOURTH, fourth(call(FLOAT), 1)),
        (FIFTH, fifth(call(FLOAT), 1)),
        (IN_BLOCKS, in_blocks(fifth(call(HALF), 1)) | {"quantGroupSize": 0}),
    ],
    ids=lambda given: given.name if isinstance(given, Operator) else "",
)
def test_empty_optional_lists_count_as_null(operator: Operator, arguments: Arguments) -> None:
    """Lists without tensors, with one of shape [0], or before 950 with null; these reject null among tensors."""
    given = described(arguments)
    for name in (BIAS, *QUANTIZATION, *(MORE[:1] if out(operator) == "out" else ())):
        for tensors in NOTHING[:2]:
            prepare(operator, given | {name: tensors}, Product.ASCEND_950)
        for tensors in NOTHING:
            prepare(operator, given | {name: tensors}, Product.ATLAS_A2)
        for tensors in ((None,), (Tensor(FLOAT, (4,)), None)):
            with pytest.raises(AclnnError, match=f"{name}.*got null") as caught:
                prepare(operator, given | {name: tensors}, Product.ASCEND_950)
            assert caught.value.code == 161001
