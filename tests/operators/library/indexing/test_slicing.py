"""Slices along several dimensions at once, and dimensions grouped anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.indexing import slicing
from tests.cases.table import INVALID, NINE, NO_KERNEL, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, INTEGERS, TRAINED, Break, Breaking, LibraryTests, Subject, computed

SLICE, TRANSPOSE = "strided_slice", "confusion_transpose"
MASKS = dict.fromkeys(("beginMask", "endMask", "ellipsisMask", "newAxisMask", "shrinkAxisMask"), 0)

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    SLICE: lambda d: {
        "self": T(d, (4, 3, 5)),
        "begin": (3, 0, -9),
        "end": (0, 2, 5),
        "strides": (-2, 1, 3),
        **MASKS,
        "out": T(d, (2, 2, 2)),
    },
    TRANSPOSE: lambda d: {
        "x": T(d, (2, 3, 4)),
        "perm": (1, 0, 2),
        "shape": (3, 8),
        "transposeFirst": True,
        "out": T(d, (3, 8)),
    },
}


def _on_950(expected: str, change: Callable[[str], Mapping[str, Any]]) -> Breaking:
    return lambda o, name: Break(change(name), expected, product=Product.ASCEND_950)


BREAKS: Mapping[str, Breaking] = {
    "present": _on_950("an object", lambda name: {name: None}),
    "kernel of the product": lambda o, name: Break({}, "one with a kernel"),
    "data type": _on_950("ACL_FLOAT", lambda name: dtype(D.DOUBLE, name)),
    "same data type as self": _on_950("ACL_FLOAT", lambda name: dtype(D.FLOAT16, name)),
    "same data type as x": _on_950("ACL_FLOAT", lambda name: dtype(D.FLOAT16, name)),
    "at most 8 dimensions": _on_950("at most 8", lambda name: shape(NINE, name)),
    "as many of each": _on_950("3 numbers", lambda name: {name: (1, 1)}),
    "not 0": _on_950("other than 0", lambda name: {name: (1, 0, 1)}),
    "one bit at most": _on_950("one bit", lambda name: {name: 3}),
    "positive where dimensions go": _on_950("positive", lambda name: {"shrinkAxisMask": 1}),
    "elements of self": _on_950(
        "elements of self", lambda name: {name: (4, 0, 0), "shrinkAxisMask": 1, "strides": (1,) * 3}
    ),
    "shape is the result": _on_950("the result", lambda name: shape((7,), name)),
    "shape is of the groups": _on_950("of the groups", lambda name: shape((7,), name)),
    "each once": _on_950("each of 3 dimensions", lambda name: {name: (1, 1, 0)}),
    "as many elements": _on_950("24 elements", lambda name: {name: (3, 7)}),
}


class TestSlicing(LibraryTests):
    subject = Subject(
        slicing.OPERATORS,
        calls=CALLS,
        references={
            SLICE: lambda a: a["self"].flip(0)[::2, :2, ::3],
            TRANSPOSE: lambda a: a["x"].transpose(0, 1).reshape(3, 8),
        },
        default=(*TRAINED, *INTEGERS),
        empty={
            SLICE: shape((0, 3), "self", "out"),
            TRANSPOSE: shape((0, 3), "x", "out"),
        },
        breaks=BREAKS,
        codes=dict.fromkeys(("elements of self", "each once", "as many elements", "shape is of the groups"), NO_KERNEL)
        | {"kernel of the product": INVALID},
    )


def _sliced(x: Any, begin: Any, end: Any, strides: Any, **masks: int) -> Any:
    """TensorFlow's rule, an index at a time."""
    masks = MASKS | masks
    rank, specified = x.ndim, len(begin)
    new = [masks["newAxisMask"] >> at & 1 and not masks["ellipsisMask"] >> at & 1 for at in range(specified)]
    out, shape, axis = x, [], 0
    for at in range(specified):
        if masks["ellipsisMask"] >> at & 1:
            rest = rank - axis - sum(not each for each in new[at + 1 :])
            shape += x.shape[axis : axis + rest]
            axis += rest
        elif new[at]:
            shape.append(1)
        else:
            extent, step = x.shape[axis], strides[at]
            low, high = (0, extent) if step > 0 else (-1, extent - 1)
            first, last = (min(max(n + extent if n < 0 else n, low), high) for n in (begin[at], end[at]))
            if masks["beginMask"] >> at & 1:
                first = low if step > 0 else high
            if masks["endMask"] >> at & 1:
                last = high if step > 0 else low
            if masks["shrinkAxisMask"] >> at & 1:
                chosen = [begin[at] % extent]
            else:
                chosen = [*range(first, last, step)]
                shape.append(len(chosen))
            out = np.take(out, chosen, axis)
            axis += 1
    return out.reshape([*shape, *x.shape[axis:]])


@pytest.mark.parametrize(
    ("limits", "masks"),
    [
        (((1,), (2,), (1,)), {}),
        (((1, 7), (9, -9), (1, -2)), {}),
        (((2, 1), (0, 0), (-1, -1)), {"beginMask": 1, "endMask": 2}),
        (((0, 0, 1), (0, 0, 3), (1, 1, 1)), {"ellipsisMask": 2, "endMask": 1}),
        (((0, 0, 4), (0, 0, 0), (1, 1, 1)), {"ellipsisMask": 1, "newAxisMask": 2, "shrinkAxisMask": 4}),
        (((-1, 0, 2), (0, 9, 3), (1, 2, 1)), {"shrinkAxisMask": 5}),
        (((5, 0, 1), (0, 0, 2), (1, 1, 1)), {"newAxisMask": 3, "shrinkAxisMask": 1}),
        (((0, 1), (0, 2), (1, 1)), {"ellipsisMask": 1, "newAxisMask": 1, "beginMask": 3}),
        (((), (), ()), {}),
    ],
)
def test_strided_slice_matches_tensorflow(limits: tuple[tuple[int, ...], ...], masks: dict[str, int]) -> None:
    x = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
    expected = _sliced(x, *limits, **masks)
    call = {"self": x, **dict(zip(("begin", "end", "strides"), limits, strict=True)), **MASKS, **masks}
    found = computed(SLICE, call | {"out": np.zeros_like(expected)}, Product.ASCEND_950)["out"]
    np.testing.assert_array_equal(found, expected)


def test_confusion_transpose_reshapes_before_or_after() -> None:
    x = np.arange(24, dtype=np.uint16).reshape(4, 6)
    call = {
        "x": x,
        "perm": (2, 0, 1),
        "shape": (2, 3, 4),
        "transposeFirst": False,
        "out": np.zeros((4, 2, 3), np.uint16),
    }
    found = computed(TRANSPOSE, call, Product.ASCEND_950)["out"]
    np.testing.assert_array_equal(found, x.reshape(2, 3, 4).transpose(2, 0, 1))


@pytest.mark.parametrize("d", [D.HIFLOAT8, D.FLOAT8_E5M2, D.COMPLEX32])
def test_slices_keep_types_that_numpy_lacks(d: D) -> None:
    bits, out = np.arange(6, dtype=np.uint8), np.zeros(3, np.uint8)
    tensors = [Tensor(d, (n,), address=of.ctypes.data, owner=of) for n, of in ((6, bits), (3, out))]
    call = {"self": tensors[0], "begin": (0,), "end": (6,), "strides": (2,), **MASKS, "out": tensors[1]}
    if d == D.COMPLEX32:
        with pytest.raises(AclnnError) as caught:
            prepare(BY_NAME[SLICE], call, Product.ASCEND_950)
        assert caught.value.code == NO_KERNEL
        return
    prepare(BY_NAME[SLICE], call, Product.ASCEND_950).run()
    assert out.tolist() == [0, 2, 4]
