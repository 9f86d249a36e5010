"""Any formula over contiguous elements: float64 lanes, rounded once to each output's data type.

Where a register holds sixteen float32 a wide vector is computed at a time (see ``vector``): of Swish's gradient, in the
cache, sixteen elements take 6.7 instead of 9 ns on Zen 5.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from aclnn.core.dtypes import DataType
from aclnn.kernels import Formula
from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.atomics import finish_streams
from aclnn.kernels.cpu.elementwise.functions import WORDS, narrow_to_odd
from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.simd import vector
from aclnn.kernels.cpu.simd.doubles import narrow, widen, widen_wide
from aclnn.kernels.cpu.simd.memory import (
    FORMATS,
    copy,
    copy_in,
    copy_out,
    store_rounded_bfloat16,
    stream_rounded_bfloat16,
)
from aclnn.kernels.cpu.simd.prefetch import prefetch_ahead_16, prefetch_ahead_32
from aclnn.kernels.cpu.simd.vector import LANES, QUARTERS, WIDE, any_lane, bits, side_by_side
from aclnn.kernels.cpu.strided import NONTEMPORAL, Operands
from aclnn.kernels.cpu.structs import address, load_one_float64, pointer_to, stack_alloc
from aclnn.kernels.cpu.threads import Loop, chunked
from aclnn.kernels.trace import trace

_operands_at = pointer_to(Operands)

LINE = 64
ROUNDED_FORMATS = FORMATS | {
    DataType.BF16: FORMATS[DataType.BF16]._replace(store=store_rounded_bfloat16, stream=stream_rounded_bfloat16)
}


def loads(count: int, wide: bool) -> Any:
    """A function of an address giving ``count`` float64 from there on as a tuple, each in every lane."""
    if count == 0:
        return register_jitable(lambda address: ())
    others, in_lanes = loads(count - 1, wide), widen_wide if wide else widen
    return register_jitable(lambda address: (in_lanes(load_one_float64(address)), *others(address + 8)))


def first_of(count: int) -> Any:
    """A function giving the first ``count`` of several addresses as a tuple."""
    if count == 0:
        return register_jitable(lambda addresses: ())
    others = first_of(count - 1)
    return register_jitable(lambda addresses: (addresses[0], *others(addresses + 1)))


def loading(dtype: DataType, wide: bool) -> Any:
    """A function of an address giving the elements of a data type from there on."""
    load, step = FORMATS[dtype].load, LANES * dtype.itemsize
    if not wide:
        return load

    @register_jitable
    def load_wide(address: Any) -> Any:
        first, second = load(address), load(address + step)
        return side_by_side(first, second, load(address + 2 * step), load(address + 3 * step))

    return load_wide


def storing(store: Any, dtype: DataType, wide: bool) -> Any:
    """A function that stores lanes from an address on."""
    step = LANES * dtype.itemsize
    if not wide:
        return store
    first, second, third, fourth = QUARTERS

    @register_jitable
    def store_wide(address: Any, value: Any) -> None:
        store(address, first(value))
        store(address + step, second(value))
        store(address + 2 * step, third(value))
        store(address + 3 * step, fourth(value))

    return store_wide


def reader(dtypes: tuple[DataType, ...], wide: bool) -> Any:
    """A function giving the elements of each input from number ``at`` on."""
    if not dtypes:
        return register_jitable(lambda addresses, at: ())
    load, size, others = loading(dtypes[0], wide), dtypes[0].itemsize, reader(dtypes[1:], wide)
    prefetch_ahead = prefetch_ahead_16 if size == 2 else prefetch_ahead_32
    nbytes = (WIDE if wide else 1) * LANES * size

    @register_jitable
    def inputs(addresses: Any, at: int) -> Any:
        address = addresses[0] + at * size
        for line in range(0, nbytes, LINE):
            prefetch_ahead(address + line)
        return widen(load(address)), *others(addresses[1:], at)

    return inputs


@register_jitable
def _narrow_for_bfloat16(value: Any) -> Any:
    """Float64 lanes as float32 that round to the bfloat16 next to them.

    The nearest ones do unless one looks halfway between two bfloat16, which takes 2^16 numbers to happen by chance.
    """
    nearest = narrow(value)
    if any_lane((bits(nearest) & 0xFFFF) == 0x8000):
        return narrow_to_odd(value)
    return nearest


ROUNDINGS = {
    DataType.DOUBLE: widen,
    DataType.FLOAT: narrow,
    DataType.FLOAT16: narrow_to_odd,
    DataType.BF16: _narrow_for_bfloat16,
}
"""Float64 lanes as those to store as a data type."""


def writer(dtypes: tuple[DataType, ...], wide: bool) -> Any:
    """A function that writes the elements of each output from number ``at`` on."""
    if not dtypes:
        return register_jitable(lambda addresses, at, policy, values: None)
    dtype, others, in_lanes = dtypes[0], writer(dtypes[1:], wide), widen_wide if wide else widen
    form = ROUNDED_FORMATS[dtype]
    store, stream = storing(form.store, dtype, wide), storing(form.stream, dtype, wide)
    size, rounded = dtype.itemsize, ROUNDINGS[dtype]

    @register_jitable
    def outputs(addresses: Any, at: int, policy: int, values: Any) -> None:
        value = rounded(in_lanes(values[0]))
        if policy:
            stream(addresses[0] + at * size, value)
        else:
            store(addresses[0] + at * size, value)
        others(addresses[1:], at, policy, values[1:])

    return outputs


def copier(dtypes: tuple[DataType, ...], back: bool, wide: bool) -> Any:
    """A function that copies what does not fill the lanes of each operand to consecutive rooms, or back."""
    if not dtypes:
        return register_jitable(lambda addresses, at, count, lines: None)
    size, others, fit_a_line = (
        dtypes[0].itemsize,
        copier(dtypes[1:], back, wide),
        not wide and dtypes[0] != DataType.DOUBLE,
    )

    @register_jitable
    def copies(addresses: Any, at: int, count: int, lines: Any) -> None:
        address = addresses[0] + at * size
        if not fit_a_line:
            copy(address if back else lines[0], lines[0] if back else address, count * size)
        elif back:
            copy_out(lines[0], count * size, address)
        else:
            copy_in(address, count * size, lines[0])
        others(addresses[1:], at, count, lines[1:])

    return copies


def rooms(count: int, room: int) -> Any:
    """A function of an address giving ``count`` addresses, ``room`` bytes apart."""
    if count == 0:
        return register_jitable(lambda address: ())
    others = rooms(count - 1, room)
    return register_jitable(lambda address: (address, *others(address + room)))


def loop(formula: Formula, inputs: tuple[DataType, ...], outputs: tuple[DataType, ...], numbers: int) -> Loop:
    """Compute formula(*inputs, *numbers) for contiguous elements (see ``Operands``), given their types."""
    function, several = on_float64(formula, len(inputs) + numbers), len(outputs) > 1
    wide = target.has_wide_registers()
    take, put, lanes = reader(inputs, wide), writer(outputs, wide), WIDE * LANES if wide else LANES
    bring, take_back = copier(inputs, False, wide), copier(outputs, True, wide)
    read_numbers, first_inputs, first_outputs = loads(numbers, wide), first_of(len(inputs)), first_of(len(outputs))
    room = max(LINE, *(lanes * dtype.itemsize for dtype in (*inputs, *outputs)))
    input_lines, output_lines = rooms(len(inputs), room), rooms(len(outputs), room)
    input_bytes, lines, size = room * len(inputs), room * (len(inputs) + len(outputs)), outputs[0].itemsize
    output_count = len(outputs)

    def part(arguments: int, first: int, last: int) -> None:
        operands = _operands_at(arguments)
        policy, given = operands.policy, read_numbers(operands.constants)
        written, read = first_outputs(operands.addresses), first_inputs(operands.addresses + output_count)
        buffer = stack_alloc(lines)
        read_lines, written_lines = input_lines(buffer), output_lines(buffer + input_bytes)
        at = first
        while at < last:
            # Up to the first output's first whole line, whole vectors, what is left: parts go through a buffer.
            head = (-address(written[0] + at * size) & (LINE - 1)) // size if policy else 0
            whole = head == 0 and last - at >= lanes
            if whole:
                count, begin, nontemporal, source, target = (last - at) & -lanes, at, policy, read, written
            else:
                count = min(last - at, lanes - 1, head) if head else last - at
                bring(read, at, count, read_lines)
                begin, nontemporal, source, target = 0, 0, read_lines, written_lines
            for i in range(begin, begin + count, lanes):
                values = function(*(take(source, i) + given))
                put(target, i, nontemporal, values if several else (values,))
            if not whole:
                take_back(written, at, count, written_lines)
            at += count
        if policy == NONTEMPORAL:
            finish_streams()

    return chunked(part)


_FLOAT32_WORDS = {"where": vector.select, "absolute": vector.absolute, "fma": vector.fma}


@lru_cache(maxsize=512)
def on_float64(formula: Formula, arity: int) -> Any:
    """The formula of ``arity`` elements and numbers on float64 lanes.

    For one thread at a time, as ``jit.kernel`` makes kernels.
    """
    return register_jitable(trace(formula, arity).function(WORDS))


def on_float32(formula: Formula) -> Any:
    """The operations of a fitted version on any number of float32 lanes."""
    return register_jitable(forceinline=True)(trace(formula, 1).function(_FLOAT32_WORDS))
