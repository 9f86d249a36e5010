"""Any formula over contiguous elements: sixteen float64 lanes, rounded once to each output's data type."""

from __future__ import annotations

from typing import Any

from aclnn.kernels import Formula
from aclnn.kernels.cpu.addresses import load_one_float64, load_one_int64, scratch
from aclnn.kernels.cpu.atomics import finish_streams
from aclnn.kernels.cpu.chunks import Loop, shared
from aclnn.kernels.cpu.doubles import narrow, widen
from aclnn.kernels.cpu.elementwise.formulas import on_float64
from aclnn.kernels.cpu.elementwise.functions import narrow_to_odd
from aclnn.kernels.cpu.elementwise.kinds import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    LOADS,
    STORES,
    STREAMS,
    size_of,
)
from aclnn.kernels.cpu.elementwise.strided import DIRECT
from aclnn.kernels.cpu.ends import copy, copy_in, copy_out
from aclnn.kernels.cpu.inner import register_jitable
from aclnn.kernels.cpu.memory import store_rounded_bfloat16, stream_rounded_bfloat16
from aclnn.kernels.cpu.prefetching import prefetch_ahead_16, prefetch_ahead_32
from aclnn.kernels.cpu.vector import LANES, any_lane, bits

_LINE = 64
_STORES = STORES | {BFLOAT16: store_rounded_bfloat16}
_STREAMS = STREAMS | {BFLOAT16: stream_rounded_bfloat16}


def loads(count: int, load: Any) -> Any:
    """A function of an address giving ``count`` numbers of eight bytes from there on as a tuple."""
    if count == 0:
        return register_jitable(lambda address: ())
    others = loads(count - 1, load)
    return register_jitable(lambda address: (load(address), *others(address + 8)))


def _inputs(kinds: tuple[int, ...]) -> Any:
    """A function giving the sixteen elements of each input from number ``at`` on."""
    if not kinds:
        return register_jitable(lambda addresses, at: ())
    load, size, others = LOADS[kinds[0]], size_of(kinds[0]), _inputs(kinds[1:])
    prefetch_ahead = prefetch_ahead_16 if size == 2 else prefetch_ahead_32

    @register_jitable
    def inputs(addresses: Any, at: int) -> Any:
        address = addresses[0] + at * size
        prefetch_ahead(address)
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


_ROUNDINGS = {FLOAT64: widen, FLOAT32: narrow, FLOAT16: narrow_to_odd, BFLOAT16: _narrow_for_bfloat16}
"""Float64 lanes as those to store as a kind."""


def _outputs(kinds: tuple[int, ...]) -> Any:
    """A function that writes sixteen elements of each output from number ``at`` on."""
    if not kinds:
        return register_jitable(lambda addresses, at, streamed, values: None)
    kind, others = kinds[0], _outputs(kinds[1:])
    store, stream, size, rounded = _STORES[kind], _STREAMS[kind], size_of(kind), _ROUNDINGS[kind]

    @register_jitable
    def outputs(addresses: Any, at: int, streamed: int, values: Any) -> None:
        value = rounded(widen(values[0]))
        if streamed:
            stream(addresses[0] + at * size, value)
        else:
            store(addresses[0] + at * size, value)
        others(addresses[1:], at, streamed, values[1:])

    return outputs


def _copies(kinds: tuple[int, ...], back: bool) -> Any:
    """A function that copies ``count`` < 16 elements of each operand to consecutive rooms, or back."""
    if not kinds:
        return register_jitable(lambda addresses, at, count, lines: None)
    size, others, fit_a_line = size_of(kinds[0]), _copies(kinds[1:], back), kinds[0] != FLOAT64

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


def _consecutive(count: int, room: int) -> Any:
    """A function of an address giving ``count`` addresses, ``room`` bytes apart."""
    if count == 0:
        return register_jitable(lambda address: ())
    others = _consecutive(count - 1, room)
    return register_jitable(lambda address: (address, *others(address + room)))


def _operands(inputs: int, outputs: int) -> Any:
    """A function of a kernel's first arguments giving whether to stream, the inputs' and the outputs' addresses."""
    if inputs + outputs > DIRECT:
        read, written = loads(inputs, load_one_int64), loads(outputs, load_one_int64)
        return register_jitable(lambda job, a, b, c: (a, read(job), written(job + 8 * inputs)))
    begin, end = DIRECT - inputs - outputs, DIRECT - outputs

    @register_jitable
    def operands(job: int, a: int, b: int, c: int) -> Any:
        given = (a, b, c)
        return job, given[begin:end], given[end:]

    return operands


def loop(formula: Formula, inputs: tuple[int, ...], outputs: tuple[int, ...], numbers: int) -> Loop:
    """Compute formula(*inputs, *numbers) for contiguous elements; inputs and outputs are kinds.

    Up to ``DIRECT`` operands are a, b and c, the output last; the job is 1 to write around the cache (2: the caller
    finishes streams), which wants the outputs to lie alike within lines. More operands: the job is the address of
    theirs, and a says whether to stream. The table is the address of the numbers, float64.
    """
    function, several = on_float64(formula, len(inputs) + numbers), len(outputs) > 1
    take, put = _inputs(inputs), _outputs(outputs)
    bring, take_back = _copies(inputs, False), _copies(outputs, True)
    read_numbers, operands = loads(numbers, load_one_float64), _operands(len(inputs), len(outputs))
    room = max(_LINE, *(LANES * size_of(kind) for kind in (*inputs, *outputs)))
    input_lines, output_lines = _consecutive(len(inputs), room), _consecutive(len(outputs), room)
    input_bytes, lines, size = room * len(inputs), room * (len(inputs) + len(outputs)), size_of(outputs[0])

    def part(job: int, a: int, b: int, c: int, table: int, first: int, last: int) -> None:
        streamed, read, written = operands(job, a, b, c)
        given = read_numbers(table)
        buffer = scratch(lines)
        read_lines, written_lines = input_lines(buffer), output_lines(buffer + input_bytes)
        at = first
        while at < last:
            # Up to the first output's first whole line, whole vectors, what is left: parts go through a buffer.
            head = (-(written[0] + at * size) & (_LINE - 1)) // size if streamed else 0
            whole = head == 0 and last - at >= LANES
            if whole:
                count, begin, around, source, target = (last - at) & -LANES, at, streamed, read, written
            else:
                count = min(last - at, LANES - 1, head) if head else last - at
                bring(read, at, count, read_lines)
                begin, around, source, target = 0, 0, read_lines, written_lines
            for i in range(begin, begin + count, LANES):
                values = function(*(take(source, i) + given))
                put(target, i, around, values if several else (values,))
            if not whole:
                take_back(written, at, count, written_lines)
            at += count
        if streamed == 1:
            finish_streams()

    return shared(part)
