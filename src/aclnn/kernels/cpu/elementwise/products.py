"""Products of operands and of fitted functions.

Of float32: in tiles, with outliers evaluated in float64, side by side. Of 16 bits: in float32, by tables.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from aclnn.core.dtypes import DataType
from aclnn.kernels import Formula
from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.elementwise.fitted import in_two
from aclnn.kernels.cpu.elementwise.general import LINE, Elements, Source, on_float64
from aclnn.kernels.cpu.jit import register_jitable
from aclnn.kernels.cpu.simd.doubles import narrow
from aclnn.kernels.cpu.simd.memory import copy, count_lanes, load_float32, store_places, stream_float32
from aclnn.kernels.cpu.simd.vector import LANES, absolute, fma
from aclnn.kernels.cpu.strided import BUFFER, TILE
from aclnn.kernels.cpu.structs import address, pointer_to
from aclnn.kernels.cpu.threads import Loop, chunked
from aclnn.kernels.products import Product, Value, lines, values
from aclnn.kernels.trace import Program

_FLOAT = DataType.FLOAT
_SIZE = _FLOAT.itemsize


@register_jitable
def _write(out: Any, tile: Any, nbytes: int, policy: int) -> None:
    """Copy a tile to an output, whole lines around the cache under a policy that says so."""
    at = min(-address(out) & (LINE - 1), nbytes) if policy else nbytes
    copy(out, tile, at)
    while nbytes - at >= LINE:
        stream_float32(out + at, load_float32(tile + at))
        at += LINE
    copy(out + at, tile + at, nbytes - at)


_NAMES = {
    "absolute": absolute,
    "count_lanes": count_lanes,
    "fma": fma,
    "narrow": narrow,
    "numbers_at": pointer_to(ctypes.c_uint32),
    "store_places": store_places,
    "write": _write,
}


def loop(formula: Formula, products: Sequence[Product], inputs: int) -> Loop:
    """Compute formula(*inputs) for contiguous float32 (see ``Operands``), given the factors of each result."""
    source, outputs = Source(target.has_wide_registers()), len(products)
    read = [Elements(f"x{k}", _FLOAT, f"input{k}") for k in range(inputs)]
    written = [Elements(f"y{k}", _FLOAT, f"tile{k}") for k in range(outputs)]
    with source.block("def part(arguments, begin, last):"):
        source("operands = operands_at(arguments)", "left = last - begin")
        places = [f"output{k}" for k in range(outputs)] + [one.first for one in read]
        source(*(f"{place} = operands.addresses[{k}] + begin * {_SIZE}" for k, place in enumerate(places)))
        source(*(f"{one.first} = stack_alloc({BUFFER})" for one in written))
        source(*(f"packed{k} = stack_alloc({BUFFER})" for k in range(max(inputs, outputs))))
        source(f"places = numbers_at(stack_alloc({BUFFER + source.lanes * _SIZE + LINE}))")
        source(f"buffer = stack_alloc({(inputs + outputs) * source.room([_FLOAT])})")
        with source.block("while left > 0:"):
            source(f"end, found = min(left, {TILE}), 0")
            with source.stretch(read, written, streams=False):
                _evaluate(source, products, inputs)
            _evaluate_outliers(source, inputs, outputs)
            for k in range(outputs):
                source(f"write(output{k}, tile{k}, end * {_SIZE}, operands.policy)")
            source(*(f"{place} = {place} + end * {_SIZE}" for place in places), "left -= end")
        with source.block("if operands.policy:"):
            source("finish_streams()")
    functions = {value.function.__name__: in_two(value.function) for value in values(products)}
    return chunked(source.function("part", formula=on_float64(formula, inputs), **_NAMES, **functions))


TABLE_BYTES = 4 << 16
_NEAR = 4
"""A product of three factors is less than four units of float32's last place off."""
_ROUNDINGS = {DataType.FLOAT16: (13, 127 - 14), DataType.BF16: (16, 127 - 125)}
"""How many digits of float32 a 16-bit type lacks, and the exponent, as float32 has it, above which it lacks no more."""


def by_tables(products: Sequence[Product], dtype: DataType, source: Source, program: Program) -> None:
    """Write what computes results by their factors, 16-bit operands and the values of functions in tables, one by one.

    Numbers that lie near the middle between two of the data type, that are small or infinite are evaluated instead.
    """
    lost, least = _ROUNDINGS[dtype]
    for number, value in enumerate(values(products)):
        table = f"operands.constants + {number * TABLE_BYTES}"
        source.look_up(value.variable, table, f"part{value.operand[1:]} + i * {dtype.itemsize}")
    outside = []
    for k, (product, result) in enumerate(zip(products, program.results, strict=True)):
        factors = (factor.variable if isinstance(factor, Value) else factor for factor in product)
        source(f"{result} = {' * '.join(factors)}", f"size = bits(absolute({result}))")
        source(f"near = ((size + {_NEAR - (1 << lost - 1)}) & {(1 << lost) - 1}) - {2 * _NEAR + 1}")
        source(f"outside{k} = near | ((size - {least << 23}) & (0 - size)) | ({(255 << 23) - 1} - size)")
        outside.append(f"outside{k}")

    def in_float64(name: str) -> str:
        return f"wide_{name}" if name[0] in "xt" else name

    with source.block(f"if any_lane(({' | '.join(outside)}) < 0):"):
        source(*(f"wide_x{k} = widen(x{k})" for k in range(program.arity)))
        source.steps(program.steps, in_float64)
        source(*(f"{result} = rounded_{dtype.name}({in_float64(result)})" for result in program.results))


def _evaluate(source: Source, products: Sequence[Product], inputs: int) -> None:
    """Compute the results of lanes, and note the places of outliers."""
    source(*(f"x{k} = narrow(x{k})" for k in range(inputs)))
    source(*lines(products, lambda value: f"{value.function.__name__}({value.operand})"))
    with source.block("if any_lane(outside < 0):"):
        for number, part in enumerate(source.vectors("outside < 0")):
            source(f"store_places(places + found, at + i + {LANES * number}, {part})", f"found += count_lanes({part})")


def _evaluate_outliers(source: Source, inputs: int, outputs: int) -> None:
    """Evaluate the formula at the places found in a tile."""
    with source.block("while found > 0 and places[found - 1] >= end:"):  # lanes behind the last element
        source("found -= 1")
    with source.block("for k in range(found):"):
        source(*(f"numbers_at(packed{k})[k] = numbers_at(input{k})[places[k]]" for k in range(inputs)))
    with source.block(f"for k in range(0, found, {LANES}):"):
        lanes = ", ".join(f"widen(load_FLOAT(packed{k} + k * {_SIZE}))" for k in range(inputs))
        source(f"{', '.join(f'y{k}' for k in range(outputs))} = formula({lanes})")
        source(*(f"store_FLOAT(packed{k} + k * {_SIZE}, narrow(widen(y{k})))" for k in range(outputs)))
    with source.block("for k in range(found):"):
        source(*(f"numbers_at(tile{k})[places[k]] = numbers_at(packed{k})[k]" for k in range(outputs)))
