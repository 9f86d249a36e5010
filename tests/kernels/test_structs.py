"""Structs that Python fills in and compiled code reads, and the other way about."""

from __future__ import annotations

import ctypes
import operator
from typing import Annotated, Any

import numba
import numpy as np
import pytest
from numba.core import types
from numba.core.registry import cpu_target
from numba.core.typing import npydecl

from aclnn.kernels.cpu.simd.memory import load_float32, store_float32
from aclnn.kernels.cpu.simd.vector import DOUBLES, FLOATS
from aclnn.kernels.cpu.structs import BYTES, Address, Float32, Float64, Int32, Int64, To, address, declared, pointer_to


@declared
class Pair(ctypes.Structure):
    """A struct of two numbers of different sizes."""

    small: Int32
    large: Float64


@declared
class Everything(ctypes.Structure):
    """A struct with a field of each kind."""

    count: Int64
    scale: Float32
    pair: Annotated[Pair, Pair]
    pairs: Annotated[Any, Pair * 3]
    numbers: Annotated[Any, ctypes.c_float * 4]
    data: Address
    other: Annotated[int, ctypes.c_int64, To(Pair)]


everything_at, pair_at, bytes_at = pointer_to(Everything), pointer_to(Pair), pointer_to(None)
longs_at, floats_at = pointer_to(ctypes.c_int64), pointer_to(ctypes.c_float)


def run(function: Any, *arguments: int) -> Any:
    compiled = numba.njit((types.int64,) * len(arguments), error_model="numpy")(function)
    return compiled(*arguments)


def test_compiled_code_reads_every_kind_of_field() -> None:
    other, data = Pair(7, 8.5), np.arange(4, dtype=np.int64)
    given = Everything(3, 0.5, Pair(1, 2.5), (Pair * 3)(Pair(4, 5.0), Pair(5, 6.0), Pair(6, 7.0)))
    given.numbers[:] = [1.5, 2.5, 3.5, 4.5]
    given.data, given.other = data.ctypes.data, ctypes.addressof(other)

    def read(at: int) -> Any:
        p = everything_at(at)
        last = p.pairs[2]
        words = longs_at(p.data)
        return (
            p.count, p.scale, p.pair.small, p.pair.large, (p.pairs + 1).large, last.small,
            p.numbers[3], words[2], p.other.small, p.other.large, (words + 3)[0] + p.count,
        )  # fmt: skip

    expected = (3, 0.5, 1, 2.5, 6.0, 6, 4.5, 2, 7, 8.5, 6)
    assert run(read, ctypes.addressof(given)) == expected


def test_compiled_code_writes_numbers_and_pointers() -> None:
    given, data = Everything(), np.zeros(4, np.float32)

    def write(at: int, source: int) -> None:
        p = everything_at(at)
        p.count = 2**40
        p.scale = 3  # a number is converted to the field's type
        p.pair.large = 0.25
        p.pairs[1].small = -1
        p.numbers[2] = 1.25
        p.data = bytes_at(source)
        p.other = p.pairs + 1
        floats_at(p.data)[3] = 9.0
        floats_at(p.data + 4)[0] = 8.0

    run(write, ctypes.addressof(given), data.ctypes.data)
    assert (given.count, given.scale, given.pair.large, given.pairs[1].small) == (2**40, 3.0, 0.25, -1)
    assert list(given.numbers) == [0.0, 0.0, 1.25, 0.0]
    assert given.data == data.ctypes.data
    assert given.other == ctypes.addressof(given) + Everything.pairs.offset + ctypes.sizeof(Pair)
    assert list(data) == [0.0, 8.0, 0.0, 9.0]


def test_a_null_pointer_is_false_and_a_pointer_has_a_number() -> None:
    def describe(at: int) -> Any:
        p = pair_at(at)
        return bool(p), address(p + 1)

    assert run(describe, 0) == (False, ctypes.sizeof(Pair))
    assert run(describe, 64) == (True, 64 + ctypes.sizeof(Pair))


def test_nested_structs_cannot_be_assigned_and_unknown_fields_are_rejected() -> None:
    def assign(at: int) -> None:
        p = everything_at(at)
        p.pair = p.pairs

    def misspell(at: int) -> Any:
        return everything_at(at).counts

    with pytest.raises(TypeError, match=r"Everything\.pair: expected the field of a number"):
        run(assign, 0)
    with pytest.raises(numba.core.errors.TypingError, match="counts"):
        run(misspell, 0)


def test_names_of_structs_are_unique() -> None:
    """Compiled functions are identified by the names of their parameters' types."""
    with pytest.raises(TypeError, match="declared: struct: expected a new name, got Pair again"):
        declared(type("Pair", (ctypes.Structure,), {"__annotations__": {}}))
    with pytest.raises(TypeError, match="pointer_to: pointee: expected a declared struct, a number or None, got"):
        pointer_to(ctypes.c_char)


def test_vectors_are_read_and_written_by_pointers() -> None:
    source, target = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)

    def copy(source: int, target: int) -> None:
        p, q = floats_at(source), floats_at(target)
        store_float32(q, load_float32(p + 16))
        store_float32(q + 16, load_float32(source))

    run(copy, source.ctypes.data, target.ctypes.data)
    assert np.array_equal(target, np.roll(source, 16))


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (operator.add, (BYTES, types.int64)),
        (operator.add, (FLOATS, FLOATS)),
        (operator.lt, (DOUBLES, types.float64)),
    ],
    ids=str,
)
def test_operators_on_pointers_and_vectors_are_resolved_before_numpys(
    function: Any, arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    typing, searched = cpu_target.typing_context, list[Any]()
    typing.refresh()
    monkeypatch.setattr(npydecl.NumpyRulesArrayOperator, "generic", lambda *call: searched.append(call))
    assert typing.resolve_function_type(function, arguments, {}) is not None
    assert not searched
