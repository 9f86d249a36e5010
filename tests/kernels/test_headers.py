"""Recognising arrays by their headers: any difference is seen, whatever object it is in."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import numpy as np
import pytest

from aclnn import kernels
from tests.helpers.exact import BFLOAT16

Array = np.ndarray[Any, Any]
SHAPES = [(), (0,), (1,), (5,), (3, 4), (2, 0, 3), (2, 3, 4), (1,) * 9]


def array(shape: tuple[int, ...] = (3, 4), dtype: Any = np.float32) -> Array:
    return np.ones(shape, dtype)


def frozen(given: Array) -> Array:
    given.flags.writeable = False
    return given


def address(given: Array | None) -> int:
    return 0 if given is None else given.__array_interface__["data"][0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BFLOAT16])
def test_arrays_of_equal_headers_are_found_where_they_are(shape: tuple[int, ...], dtype: Any) -> None:
    headers = kernels.headers((array(shape, dtype), None, array(shape, dtype)))
    for _ in range(3):
        others = array(shape, dtype), None, array(shape, dtype)
        assert headers.match(others) == (0, *map(address, others), 1)


def test_nine_arrays_as_layer_norm_backward_has() -> None:
    arrays = tuple(array((n, 2 * n)) for n in range(1, 10))
    assert kernels.headers(arrays).match(arrays) == (0, *map(address, arrays), 1)


OTHERS = {
    "another data type of the size": array(dtype=np.int32),
    "another data type": array(dtype=np.float64),
    "another byte order": array(dtype=">f4"),
    "another shape": array((3, 5)),
    "another shape of as many": array((4, 3)),
    "fewer dimensions": array((3,)),
    "more dimensions": array((3, 4, 1)),
    "other strides": array((4, 3)).T,
    "a stride of nothing": np.broadcast_to(np.float32(1), (3, 4)),
    "backwards": array()[::-1],
    "not to be written": frozen(array()),
    "none": None,
    "a scalar": np.float32(1),
    "a list": [[1.0]],
    "a subclass": array().view(np.matrix),
}


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("kind", OTHERS)
def test_different_headers_do_not_match(kind: str, place: int) -> None:
    same: list[Any] = [array(), array(), array()]
    headers = kernels.headers(tuple(same))
    different = [*same[:place], OTHERS[kind], *same[place + 1 :]]
    assert not any(headers.match(tuple(different)))
    assert headers.match(tuple(same))[-1]


def test_another_number_of_arrays_does_not_match() -> None:
    headers = kernels.headers((array(), array()))
    assert not any(headers.match(()))
    assert not any(headers.match((array(),)))
    assert not any(headers.match((array(), array(), array())))


def test_absent_outputs_match_only_absent_outputs() -> None:
    headers = kernels.headers((array(), None))
    assert headers.match((array(), None))[-1]
    assert not any(headers.match((array(), array())))


def test_an_array_with_a_changed_shape_does_not_match() -> None:
    given = np.ones(12, np.float32)
    headers = kernels.headers((given,))
    for shape in ((3, 4), (12,), (2, 6), (12,)):
        given.shape = shape
        assert headers.match((given,))[-1] == (shape == (12,))
    given.dtype = np.dtype(np.int32)
    assert not any(headers.match((given,)))


def test_data_types_that_are_equal_but_another_object() -> None:
    headers = kernels.headers((array(),))
    for _ in range(100):
        copy = pickle.loads(pickle.dumps(array()))
        assert headers.match((copy,)) == (0, address(copy), 1)
    assert pickle.loads(pickle.dumps(array())).dtype is not np.dtype(np.float32)
    gc.collect()
    assert headers.match((array(),))[-1]
