"""Any formula over contiguous elements: sixteen float64 lanes, rounded once to each output's data type.

Some formulas have a version for 16-bit operands that computes in float32, for most elements.
"""

from __future__ import annotations

from typing import Any

from aclnn.kernels import Formula
from aclnn.kernels.cpu.addresses import load_one_float64, load_one_int64, scratch
from aclnn.kernels.cpu.atomics import finish_streams
from aclnn.kernels.cpu.chunks import Loop, shared
from aclnn.kernels.cpu.doubles import narrow, narrow_to_odd, widen
from aclnn.kernels.cpu.elementwise.formulas import compilable
from aclnn.kernels.cpu.elementwise.kinds import BFLOAT16, FLOAT16, FLOAT32, LOADS, STORES, STREAMS, size_of
from aclnn.kernels.cpu.elementwise.sixteen_bit_gates import Short
from aclnn.kernels.cpu.elementwise.strided import DIRECT
from aclnn.kernels.cpu.ends import copy_in, copy_out
from aclnn.kernels.cpu.inner import register_jitable
from aclnn.kernels.cpu.memory import store_rounded_bfloat16, stream_rounded_bfloat16
from aclnn.kernels.cpu.prefetching import prefetch_ahead_16, prefetch_ahead_32
from aclnn.kernels.cpu.vector import LANES, any_lane, bits, select

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
    prefetch_ahead = prefetch_ahead_32 if kinds[0] == FLOAT32 else prefetch_ahead_16

    @register_jitable
    def inputs(addresses: Any, at: int) -> Any:
        address = addresses[0] + at * size
        prefetch_ahead(address)
        return load(address), *others(addresses[1:], at)

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


def _widened(count: int) -> Any:
    """A function that gives each of so many float32 lanes in float64."""
    if count == 0:
        return register_jitable(lambda lanes: ())
    others = _widened(count - 1)
    return register_jitable(lambda lanes: (widen(lanes[0]), *others(lanes[1:])))


def _rounded(kinds: tuple[int, ...]) -> Any:
    """A function that gives each of some float64 lanes as the float32 to store as a kind."""
    if not kinds:
        return register_jitable(lambda values: ())
    others = _rounded(kinds[1:])
    rounded = {FLOAT32: narrow, FLOAT16: narrow_to_odd, BFLOAT16: _narrow_for_bfloat16}[kinds[0]]
    return register_jitable(lambda values: (rounded(widen(values[0])), *others(values[1:])))


def _chosen(count: int) -> Any:
    """A function that takes each of so many results from the first or the second tuple of them, lane by lane."""
    if count == 0:
        return register_jitable(lambda mask, chosen, otherwise: ())
    others = _chosen(count - 1)

    @register_jitable
    def select_each(mask: Any, chosen: Any, otherwise: Any) -> Any:
        return select(mask, chosen[0], otherwise[0]), *others(mask, chosen[1:], otherwise[1:])

    return select_each


def _evaluation(formula: Formula, inputs: int, outputs: tuple[int, ...], short: Short | None) -> Any:
    """A function of the inputs' lanes and the numbers giving the float32 to store as kinds."""
    function, several = compilable(formula), len(outputs) > 1
    widened, rounded, chosen = _widened(inputs), _rounded(outputs), _chosen(len(outputs))

    @register_jitable
    def exact(lanes: Any, numbers: Any) -> Any:
        values = function(*(widened(lanes) + numbers))
        return rounded(values if several else (values,))

    if short is None:
        return exact

    @register_jitable(forceinline=True)
    def evaluate(lanes: Any, numbers: Any) -> Any:
        near, results = short(*lanes)
        # Lane by lane: what else lies in a vector depends on how work is shared.
        return chosen(near, results, exact(lanes, numbers)) if any_lane(~near) else results

    return evaluate


def _outputs(kinds: tuple[int, ...]) -> Any:
    """A function that writes sixteen elements of each output from number ``at`` on."""
    if not kinds:
        return register_jitable(lambda addresses, at, streamed, values: None)
    kind, others = kinds[0], _outputs(kinds[1:])
    store, stream, size = _STORES[kind], _STREAMS[kind], size_of(kind)

    @register_jitable
    def outputs(addresses: Any, at: int, streamed: int, values: Any) -> None:
        if streamed:
            stream(addresses[0] + at * size, values[0])
        else:
            store(addresses[0] + at * size, values[0])
        others(addresses[1:], at, streamed, values[1:])

    return outputs


def _copies(kinds: tuple[int, ...], back: bool) -> Any:
    """A function that copies ``count`` elements of each operand to consecutive lines, or back."""
    if not kinds:
        return register_jitable(lambda addresses, at, count, lines: None)
    size, others = size_of(kinds[0]), _copies(kinds[1:], back)

    @register_jitable
    def copies(addresses: Any, at: int, count: int, lines: Any) -> None:
        address = addresses[0] + at * size
        if back:
            copy_out(lines[0], count * size, address)
        else:
            copy_in(address, count * size, lines[0])
        others(addresses[1:], at, count, lines[1:])

    return copies


def _consecutive(count: int) -> Any:
    """A function of an address giving ``count`` addresses of consecutive lines."""
    if count == 0:
        return register_jitable(lambda address: ())
    others = _consecutive(count - 1)
    return register_jitable(lambda address: (address, *others(address + _LINE)))


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


def loop(
    formula: Formula, inputs: tuple[int, ...], outputs: tuple[int, ...], numbers: int, short: Short | None = None
) -> Loop:
    """Compute formula(*inputs, *numbers) for contiguous elements; inputs and outputs are kinds.

    Up to ``DIRECT`` operands are a, b and c, the output last; the job is 1 to write around the cache (2: the caller
    finishes streams), which wants the outputs to lie alike within lines. More operands: the job is the address of
    theirs, and a says whether to stream. The table is the address of the numbers, float64. ``short`` is evaluated
    first, and the formula only where that is not good.
    """
    evaluate = _evaluation(formula, len(inputs), outputs, short)
    take, put = _inputs(inputs), _outputs(outputs)
    bring, take_back = _copies(inputs, False), _copies(outputs, True)
    read_numbers, operands = loads(numbers, load_one_float64), _operands(len(inputs), len(outputs))
    input_lines, output_lines = _consecutive(len(inputs)), _consecutive(len(outputs))
    input_bytes, lines, size = _LINE * len(inputs), _LINE * (len(inputs) + len(outputs)), size_of(outputs[0])

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
                put(target, i, around, evaluate(take(source, i), given))
            if not whole:
                take_back(written, at, count, written_lines)
            at += count
        if streamed == 1:
            finish_streams()

    return shared(part)
