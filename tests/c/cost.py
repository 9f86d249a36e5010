"""Time that the C libraries add to the Python functions behind them: ``python -m tests.c.cost``.

Microseconds, the least of many batches; C and Python take turns, three times.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import aclnn
from aclnn import cann
from aclnn.core.dtypes import DataType
from aclnn.execution import arrays
from aclnn.toolkit.programs import compile_program

BATCHES, BATCH, LARGE_TURNS, TURNS = 200, 100, 15, 3


def least_us(call: Callable[[], object], batches: int = BATCHES, batch: int = BATCH) -> float:
    call()
    spent = []
    for _ in range(batches):
        begin = time.perf_counter()
        for _ in range(batch):
            call()
        spent.append((time.perf_counter() - begin) / batch)
    return min(spent) * 1e6


def python_us() -> dict[str, float]:
    """Return the times of these steps through aclnn.cann, and of the public function on arrays."""
    cann.aclrtSetDevice(0)
    _, stream = cann.aclrtCreateStream()
    _, address = cann.aclrtMalloc(256, 0)
    tensors = [cann.aclCreateTensor([16], 1, 0, [1], 0, 2, [16], 1, address + 64 * i) for i in range(3)]

    def malloc_and_free() -> None:
        _, p = cann.aclrtMalloc(64, 0)
        cann.aclrtFree(p)

    def tensor() -> None:
        cann.aclDestroyTensor(cann.aclCreateTensor([4, 2], 2, 0, [2, 1], 0, 2, [4, 2], 2, 0))

    def both_phases() -> None:
        _, size, executor = cann.aclnnSiluBackwardGetWorkspaceSize(*tensors)
        cann.aclnnSiluBackward(0, size, executor, stream)

    large = [arrays.empty(DataType.FLOAT, (1 << 24,)) for _ in range(3)]
    for array in large:
        array.view(np.uint8).fill(0x3C)
    return {
        "aclrtGetDevice": least_us(cann.aclrtGetDevice),
        "aclrtMalloc, aclrtFree": least_us(malloc_and_free),
        "aclCreateTensor, aclDestroyTensor": least_us(tensor),
        "aclnnSiluBackward, both phases, 16 elements": least_us(both_phases),
        "aclnnSiluBackward, 16777216 elements": least_us(
            lambda: aclnn.silu_backward(large[0], large[1], out=large[2]), LARGE_TURNS, 1
        ),
    }


def c_us(program: Path) -> dict[str, float]:
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    return {name: float(value) for name, value in (line.split("\t") for line in lines)}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = compile_program(Path(__file__).with_name("cost.c"), Path(folder) / "cost")
        c_us(program)  # compiles the kernels
        in_c: dict[str, float] = {}
        in_python: dict[str, float] = {}
        for _ in range(TURNS):
            for found, new in ((in_c, c_us(program)), (in_python, python_us())):
                for name, value in new.items():
                    found[name] = min(value, found.get(name, value))
    print(f"{'µs':45} {'C':>12} {'Python':>12} {'C - Python':>12}")
    for name, value in in_c.items():
        beside = in_python.get(name)
        rest = f" {beside:12.2f} {value - beside:12.2f}" if beside is not None else ""
        print(f"{name:45} {value:12.2f}{rest}")


if __name__ == "__main__":
    main()
