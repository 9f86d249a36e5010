"""Separable formulas of 16-bit operands, by tables of their functions of one operand (see ``kernels.separable``).

Results for which that is invalid are evaluated in float64 instead.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclnn.core.dtypes import DataType
from aclnn.kernels import Formula
from aclnn.kernels.cpu.elementwise import general
from aclnn.kernels.cpu.jit import Kernel, kernel
from aclnn.kernels.cpu.strided import CACHED
from aclnn.kernels.separable import Separated, entries, lines, separate
from aclnn.kernels.trace import Program, trace

_TABLE_BYTES = 4 << 16


@lru_cache(maxsize=32)
def plan(formula: Formula, inputs: int, dtype: DataType, numbers: bytes) -> tuple[Kernel, NDArray[np.uint8]] | None:
    """Return the kernel of a formula with ``inputs`` operands and float64 numbers, and its constants.

    These are the numbers followed by the tables. None if the formula is not separable.
    """
    given = np.frombuffer(numbers)
    program = trace(formula, inputs + given.size)
    if (separated := separate(program, given.tolist())) is None:
        return None

    def instead(source: general.Source, program: Program) -> dict[str, Any]:
        for k, (name, operand) in enumerate(zip(separated.names, separated.operands, strict=True)):
            table = f"operands.constants + {len(numbers) + k * _TABLE_BYTES}"
            source.look_up(name, table, f"part{operand} + i * {dtype.itemsize}")
        source(*lines(separated, program))
        source.outside("outside")
        return {}

    def make() -> Any:
        outputs = (dtype,) * len(program.results)
        return general.loop(program, (dtype,) * inputs, outputs, given.size, False, None, instead)

    run = kernel(f"separable-{formula.__name__}-{dtype.name}", (program.digest, given.size, *separated.names), make)
    tables = _tables(program, separated, inputs, dtype, given)
    return run, np.frombuffer(b"".join((numbers, *(table.tobytes() for table in tables))), np.uint8)


def _tables(
    program: Program, separated: Separated, inputs: int, dtype: DataType, numbers: NDArray[np.float64]
) -> list[NDArray[np.float32]]:
    """Evaluate functions of one operand at all 16-bit inputs."""
    functions = program.only(separated.names)
    every, found = np.arange(65536, dtype=np.uint16), np.empty((len(separated.names), 65536))
    operands = array("q", (CACHED, numbers.ctypes.data, *(row.ctypes.data for row in found)))
    operands.extend([every.ctypes.data] * inputs)
    run = kernel(
        f"functions-{program.name}-{dtype.name}",
        (functions.digest, numbers.size),
        lambda: general.loop(functions, (dtype,) * inputs, (DataType.DOUBLE,) * len(found), numbers.size),
    )
    run(operands.buffer_info()[0], 0, every.size, every.size)
    return list(map(entries, found))
