"""Replacing rows and stretches by indices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.indexing import updating
from tests.cases.table import INVALID, NO_KERNEL, Arguments, T, dtype, shape
from tests.helpers.library import BREAKS as OF_ALL
from tests.helpers.library import BY_NAME, Array, Break, Breaking, LibraryTests, Placed, Subject, computed

SECOND, ASSIGN = "inplace_quant_scatter_v2", "strided_slice_assign_v2"

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "scatter_nd": lambda d: {
        **{name: T(d, (4, 3, 2)) for name in ("data", "out")},
        "indices": T(D.INT32 if d == D.FLOAT16 else D.INT64, (1, 3, 2)),
        "updates": T(d, (1, 3, 2)),
    },
    "scatter_nd_update": lambda d: {
        "varRef": T(d, (4, 3, 2)),
        "indices": T(D.INT32 if d == D.FLOAT16 else D.INT64, (1, 3, 2)),
        "updates": T(d, (1, 3, 2)),
    },
    "inplace_scatter_update": lambda d: {
        "data": T(d, (3, 2, 4, 2)),
        "indices": T(D.INT64 if d == D.FLOAT16 else D.INT32, (2,)),
        "updates": T(d, (2, 2, 2, 2)),
        "axis": -2,
    },
    "scatter_list": lambda d: {
        "varRef": (T(d, (3, 2, 4)), T(d, (3, 2, 4))),
        "indice": T(D.INT32 if d == D.INT8 else D.INT64, (2,)),
        "updates": T(d, (2, 2, 2, 4)),
        "maskOptional": T(D.UINT8, (2,)) if d == D.FLOAT16 else None,
        "reduceOptional": "update" if d == D.FLOAT else None,
        "axis": 1,
    },
    ASSIGN: lambda d: {
        "varRef": T(d, (4, 3)),
        "inputValue": T(d, (2, 2)),
        "begin": (-9, 1),
        "end": (2, 9),
        "strides": (1, 2),
        "axesOptional": (-1, 0),
    },
    "inplace_quant_scatter": lambda d: {
        "selfRef": T(d, (3, 4, 32)),
        "indices": T(D.INT64, (2,)),
        "updates": T(D.FLOAT16, (2, 2, 32)),
        "quantScales": T(D.FLOAT, (1, 1, 32)),
        "quantZeroPoints": T(D.INT32, (32,)),
        "axis": -2,
        "quantAxis": 2,
        "reduction": 1,
    },
}


def _rounded(d: D) -> Arguments:
    return {**CALLS["inplace_quant_scatter"](d), "roundMode": "rint"}


DTYPES: Mapping[str, tuple[D, ...]] = {
    **dict.fromkeys(("inplace_quant_scatter", SECOND), (D.INT8,)),
    "inplace_scatter_update": (D.FLOAT, D.FLOAT16, D.BF16, D.INT8, D.INT32),
    "scatter_list": (D.FLOAT, D.FLOAT16, D.BF16, D.INT8, D.INT32),
    "scatter_nd": (D.FLOAT, D.FLOAT16, D.BF16, D.BOOL),
    ASSIGN: (D.FLOAT16, D.FLOAT, D.BF16, D.INT32, D.INT64, D.DOUBLE, D.INT8),
    "scatter_nd_update": (D.FLOAT, D.FLOAT16, D.BF16, D.BOOL, D.INT8, D.INT16, D.INT32, D.INT64),
}


def _slid(a: Mapping[str, Any]) -> Any:
    found = a["data"].clone()
    for at, place in enumerate(a["indices"].tolist()):
        found[at].narrow(-2, place, 2).copy_(a["updates"][at])
    return found


def _assigned(a: Mapping[str, Any]) -> Any:
    found = a["varRef"].clone()
    found[1:9:2, :2] = a["inputValue"]
    return found


def _slid_integers(a: Mapping[str, Any]) -> Any:
    found = a["selfRef"].clone()
    integers = (a["updates"].double() / a["quantScales"].flatten() + a["quantZeroPoints"]).round().clamp(-128, 127)
    for at, place in enumerate(a["indices"].tolist()):
        found[at].narrow(-2, place, 2).copy_(integers[at])
    return found


REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "scatter_nd": lambda a: a["data"].index_put(tuple(a["indices"].long().unbind(-1)), a["updates"]),
    "scatter_nd_update": lambda a: a["varRef"].index_put(tuple(a["indices"].long().unbind(-1)), a["updates"]),
    "inplace_scatter_update": _slid,
    "scatter_list": lambda a: [
        data.slice_scatter(new, 0, start, start + 2) if a["maskOptional"] is None or at else data
        for at, (data, new, start) in enumerate(zip(a["varRef"], a["updates"], a["indice"].tolist(), strict=True))
    ],
    "inplace_quant_scatter": _slid_integers,
    ASSIGN: _assigned,
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "scatter_nd": {**shape((0, 3, 2), "data", "out"), **shape((0,), "updates")},
    # It rejects empty tensors.
    "inplace_scatter_update": {**shape((3, 2, 4, 2), "data", "updates"), **shape((), "indices")}
    | shape((1, 2, 2, 2), "updates"),
    "scatter_list": CALLS["scatter_list"](D.FLOAT),
}

INDICES: Mapping[tuple[str, str], int] = {
    **{(name, "indices"): 3 for name in ("inplace_scatter_update", "inplace_quant_scatter", SECOND)},
    ("scatter_list", "indice"): 2,
}

BREAKS: Mapping[str, Breaking] = {
    "same data type as data": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "not empty": lambda o, name: Break(shape((0, 2, 4, 2), name), "expected elements"),
    "as many dimensions as data": lambda o, name: Break(shape((2, 2, 2), name), "4 dimensions"),
    "as many dimensions as selfRef": lambda o, name: Break(shape((2, 32), name), "3 dimensions"),
    "data types that go together": lambda o, name: Break(
        dtype(D.BF16, name), "ACL_FLOAT with" if "S" in name else "ACL_INT32"
    ),
    "3 to 8 dimensions": lambda o, name: Break(shape((2, 32), name, "updates"), "3 to 8"),
    "1 dimension": lambda o, name: Break(shape((2, 2), name), "1 dimension"),
    "the last dimension": lambda o, name: Break({name: 1}, "-1 or 2"),
    "shape within selfRef": lambda o, name: Break(shape((2, 5, 32), name), "[3, 4, 32], or less along"),
    "the last dimension but one": lambda o, name: Break({name: 1}, "-2"),
    "as many elements as the last dimension of updates": lambda o, name: Break(shape((31,), name), "32 elements"),
    "blocks of 32": lambda o, name: Break(
        shape((3, 4, 31), name) | shape((2, 2, 31), "updates") | shape((31,), "quantScales", "quantZeroPoints"),
        "a multiple of 32",
    ),
    "one sample with a single index": lambda o, name: Break(shape((), "indices"), "1 in the first dimension"),
    "0 to 2 dimensions": lambda o, name: Break(shape((2, 1, 1), name), "0 to 2"),
    "a dimension but the first": lambda o, name: Break({name: -4}, "from -3 to 3, and not 0"),
    "an index for each sample": lambda o, name: Break(shape((3,), name), "[2] or [2, 2]"),
    "shape within data": lambda o, name: Break(shape((2, 1, 2, 2), name), "[3, 2, 4, 2], or less along"),
    "same data type as varRef": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "1 to 8 dimensions": lambda o, name: Break(shape((1,) * 9, name), "1 to 8"),
    "shape of the first": lambda o, name: Break({name: (T(D.FLOAT, (3, 2, 4)), T(D.FLOAT, (3, 2, 5)))}, "[3, 2, 4]"),
    "data type of updates": lambda o, name: Break(dtype(D.INT8, "updates"), "ACL_INT8"),
    "stretches of varRef": lambda o, name: Break(shape((2, 4, 2, 4), name), "[2, 3, 2, 4]"),
    "1 to 2 dimensions": lambda o, name: Break(shape((), name), "1 to 2"),
    "shape is a flag for each tensor": lambda o, name: Break({name: T(D.UINT8, (3,))}, "[2]"),
    "allowed value": lambda o, name: Break({name: "add"}, "'update'"),
    "same shape as data": lambda o, name: Break(shape((4, 3, 1), name), "shape [4, 3, 2]"),
    "2 to 8 dimensions": lambda o, name: Break(
        shape((2,), name) if name == "indices" else shape((2,), name, "updates"), "2 to 8"
    ),
    "indices of so many dimensions": lambda o, name: Break(shape((1, 3, 4), name), "from 1 to 3"),
    "shape is rows for all indices": lambda o, name: Break(shape((1, 3, 3), name), "[1, 3, 2]"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if name == "indices" and operator.startswith("scatter_nd"):
        return np.array([[[3, 0], [0, 2], [1, 1]]])
    return np.arange(2) if name == "maskOptional" else array


class TestScattering(LibraryTests):
    """It rejects all with 161002."""

    subject = Subject(
        (BY_NAME["scatter_nd"],),
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        empty=EMPTY,
        breaks=BREAKS,
        numbers=numbers,
    )


class TestLists(LibraryTests):
    """Shapes are left to the tiling function."""

    subject = Subject(
        (BY_NAME["scatter_list"],),
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        empty=EMPTY,
        breaks=BREAKS | {"data type": lambda o, name: Break({name: T(D.STRING, (2,))}, "data type")},
        indices=INDICES,
        numbers=numbers,
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(("data type", "data type of each", "data type of updates", "allowed value"), INVALID),
    )


SHAPES = (
    *("1 to 8 dimensions", "2 to 8 dimensions", "indices of so many dimensions"),
    *("shape is rows for all indices", "a dimension but the first", "an index for each sample"),
    *("shape within data", "shape within selfRef", "the last dimension", "the last dimension but one"),
    *("3 to 8 dimensions", "1 dimension", "blocks of 32"),
    "as many elements as the last dimension of updates",
)


def _on_950(breaking: Breaking) -> Breaking:
    return lambda o, name: breaking(o, name)._replace(product=Product.ASCEND_950)


class TestRounding(LibraryTests):
    """On Ascend 950 alone; other products reject before all else."""

    subject = Subject(
        (BY_NAME[SECOND],),
        calls={SECOND: _rounded},
        references={SECOND: _slid_integers},
        dtypes=DTYPES,
        breaks={title: _on_950(each) for title, each in (OF_ALL | BREAKS).items()}
        | {"allowed value": lambda o, name: Break({name: "round"}, "'rint'", product=Product.ASCEND_950)},
        indices=INDICES,
        numbers=numbers,
        codes=dict.fromkeys(SHAPES, NO_KERNEL),
    )


class TestAssigning(LibraryTests):
    """Shapes are left to the tiling function."""

    subject = Subject(
        (BY_NAME[ASSIGN],),
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        empty={ASSIGN: shape((0, 3), "varRef") | shape((0, 2), "inputValue")},
        breaks=BREAKS
        | {
            "as many as begin": lambda o, name: Break({name: (1,)}, "2 numbers"),
            "dimensions of varRef, each once": lambda o, name: Break({name: (1, -1)}, "from -2 to 1, each once"),
            "positive, 1 at the end": lambda o, name: Break({name: (2, 2)}, "1 along the last dimension"),
            "shape is the slices": lambda o, name: Break(shape((2, 3), name), "[2, 2]"),
        },
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(("data type", "same data type as varRef"), INVALID),
    )


class TestUpdating(LibraryTests):
    subject = Subject(
        tuple(each for each in updating.OPERATORS if each.name not in ("scatter_nd", "scatter_list", SECOND, ASSIGN)),
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        empty=EMPTY,
        breaks=BREAKS,
        indices=INDICES,
        numbers=numbers,
        codes=dict.fromkeys(
            SHAPES,
            NO_KERNEL,
        ),
    )


def _updated(indices: list[list[int]], updates: Array, product: Product = Product.ATLAS_A2) -> Array:
    elements = Placed(np.arange(12, dtype=updates.dtype).reshape(4, 3), "transposed")
    given = (Placed(np.array(indices), "contiguous"), Placed(updates, "contiguous"))
    call = dict(zip(("varRef", "indices", "updates"), (each.tensor for each in (elements, *given)), strict=True))
    prepare(BY_NAME["scatter_nd_update"], call, product).run()
    return elements.view


def test_the_last_of_updates_of_one_row_stays() -> None:
    found = _updated([[1], [0], [1]], np.array([[20] * 3, [30] * 3, [40] * 3], np.uint8), Product.ASCEND_950)
    assert found.tolist() == [[30] * 3, [40] * 3, [6, 7, 8], [9, 10, 11]]


@pytest.mark.parametrize(("index", "place", "last"), [([4, 0], "1, 0", 3), ([3, -1], "1, 1", 2)])
def test_an_index_out_of_range_is_reported_with_its_position(index: list[int], place: str, last: int) -> None:
    with pytest.raises(AclnnError, match=rf"indices\[{place}\]: expected from 0 to {last}, got"):
        _updated([[0, 0], index], np.zeros(2, np.float32))


def test_a_stretch_of_each_sample_is_replaced() -> None:
    """torch_npu's scatter_update and scatter_update_ call it; of the document's example all but the types."""
    data = np.array([[[[1] * 8, [2] * 8]]], np.float32)
    new = {"indices": np.array([1]), "updates": np.full((1, 1, 1, 8), 3, np.float32), "axis": -2}
    assert computed("inplace_scatter_update", {"data": data, **new})["data"].tolist() == [[[[1] * 8, [3] * 8]]]
    of_last = {"indices": np.array([[1, 2]]), "updates": np.array([[8, 9]], np.uint8), "axis": 1}
    data = np.zeros((3, 4), np.uint8)
    found = computed("inplace_scatter_update", {"data": data, **of_last}, Product.ASCEND_950)["data"]
    assert found.tolist() == [[0] * 4, [0, 0, 8, 9], [0] * 4]
    for outside in ([3, 0], [0, 3]):
        given = of_last | {"indices": np.array([outside])}
        with pytest.raises(AclnnError, match="indices: expected numbers from 0 to 2, got 3"):
            computed("inplace_scatter_update", {"data": data, **given}, Product.ASCEND_950)


def test_stretches_of_tensors_have_lengths_of_their_own() -> None:
    """torch_npu's scatter_list calls it."""
    listed = [Placed(np.zeros((2, 4), np.float32), "transposed") for _ in range(2)]
    new = np.arange(1, 13, dtype=np.float32).reshape(2, 2, 3)
    call: dict[str, Any] = {"varRef": tuple(each.tensor for each in listed), "maskOptional": None, "axis": -1}
    call |= {"updates": Placed(new, "contiguous").tensor, "reduceOptional": "update"}
    for first, text in (([1, 3], ""), ([2, 3], "from 0 to 1, got 2"), ([0, 4], "from 0 to 3, got 4")):
        call["indice"] = Placed(np.array([first, [0, 1]]), "contiguous").tensor
        if text:
            with pytest.raises(AclnnError, match=text):
                prepare(BY_NAME["scatter_list"], call, Product.ATLAS_A2).run()
        else:
            prepare(BY_NAME["scatter_list"], call, Product.ATLAS_A2).run()
    assert listed[0].view.tolist() == [[0, 1, 2, 3], [0, 4, 5, 6]]
    assert listed[1].view.tolist() == [[7, 0, 0, 0], [10, 0, 0, 0]]


@pytest.mark.parametrize("d", [D.FLOAT16, D.BF16])
def test_a_stretch_of_each_sample_is_quantised(d: D) -> None:
    """torch_npu's npu_quant_scatter calls it; its test expects what npu_quantize and scatter_update give."""
    new = np.array([[[1.0, 300, -5, 0.5]]]).astype(d.numpy).repeat(8, -1)
    scales = np.full((1, 1, 32), 2).astype(np.float32 if d == D.FLOAT16 else d.numpy)
    given = {"selfRef": np.zeros((1, 2, 32), np.int8), "indices": np.array([1]), "updates": new, "quantScales": scales}
    zero = None if d == D.FLOAT16 else np.full(32, 1).astype(d.numpy)
    numbers = {"quantZeroPoints": zero, "axis": -2, "quantAxis": -1, "reduction": 1}
    found = computed("inplace_quant_scatter", given | numbers, Product.ASCEND_950)["selfRef"]
    integers = [0, 127, -2, 0] if zero is None else [2, 127, -2, 1]
    assert found.tolist() == [[[0] * 32, np.repeat(integers, 8).tolist()]]


def test_empty_updates_may_have_any_shape() -> None:
    tensors = {
        name: Placed(np.zeros(of, np.float32), "contiguous").tensor for name, of in (("varRef", 0), ("updates", 3))
    }
    index = Placed(np.zeros((), np.int64), "contiguous").tensor
    prepare(BY_NAME["scatter_nd_update"], tensors | {"indices": index}, Product.ATLAS_A2).run()


def test_slices_without_axes_are_of_the_first_dimensions() -> None:
    new = np.array([[-1, -2, -3], [-4, -5, -6]], np.float32)
    call = {"varRef": np.arange(12, dtype=np.float32).reshape(4, 3), "inputValue": new, "axesOptional": None}
    found = computed(ASSIGN, call | {"begin": (-3,), "end": (9,), "strides": (2,)})["varRef"]
    assert found.tolist() == [[0, 1, 2], [-1, -2, -3], [6, 7, 8], [-4, -5, -6]]
