"""Plans for the GPU, compiled for an H200 as they would be launched there, on a machine without a GPU.

Triton's own launcher specializes the arguments and its own ptxas assembles; only the launch itself is omitted.
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from aclnn.kernels.cuda import launch

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
SHARED_BYTES = 227 << 10
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]+)(.*)")


class H200:
    """The part of a driver that Triton's launcher uses."""

    utils = SimpleNamespace(get_device_properties=lambda device: {"max_shared_mem": SHARED_BYTES})

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


class Compiled(NamedTuple):
    """A kernel that would have been launched."""

    name: str
    warps: int
    registers: int
    shared_bytes: int
    local_bytes: int
    """Bytes of local memory of a thread, for spilled registers."""
    instructions: tuple[str, ...]
    """Operation names in order."""
    common: tuple[str, ...]
    """The instructions that run when all branches over rare cases are taken."""
    loop: tuple[str, ...]
    """The instructions of the longest innermost loop, if there is one."""
    grid: tuple[int, ...]
    numbers: tuple[float, ...]
    """Constants in float64."""

    def count(self, prefix: str) -> int:
        """Return the number of instructions that begin with a prefix."""
        return sum(name.startswith(prefix) for name in self.instructions)


def read(name: str, kernel: Any, grid: tuple[int, ...]) -> Compiled:
    """Return a compiled kernel's instructions and resources, from the disassembler and the resource table."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        text, usage = (
            subprocess.run([TOOLS / tool, option, file.name], capture_output=True, text=True, check=True).stdout
            for tool, option in (("nvdisasm", "-c"), ("cuobjdump", "-res-usage"))
        )
    found = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    instructions: list[str] = []
    common: list[str] = []
    skipped_to, ended = None, False
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for line in text.splitlines():
        if label := re.match(r"(\.L_x_\d+):", line):
            labels[label[1]] = len(instructions)
            skipped_to = None if label[1] == skipped_to else skipped_to
        elif (instruction := _INSTRUCTION.match(line)) and instruction[2] != "NOP":
            predicate, operation, operands = instruction.groups()
            target = re.search(r"\.L_x_\d+", operands)
            instructions.append(operation)
            if skipped_to is None and not ended:
                common.append(operation)
                ended = operation == "EXIT" and not predicate
                if predicate and operation == "BRA" and target and target[0] not in labels:
                    skipped_to = target[0]
            # The last instruction of a function jumps to itself.
            if operation.startswith("BRA") and target and labels.get(target[0], 1 << 30) < len(instructions) - 1:
                loops.append((labels[target[0]], len(instructions)))
    innermost = [a for a in loops if not any(a[0] <= b[0] and b[1] <= a[1] and a != b for b in loops)]
    begin, end = max(innermost, key=lambda loop: loop[1] - loop[0], default=(0, 0))
    return Compiled(
        name, kernel.metadata.num_warps, found["REG"], kernel.metadata.shared, found["STACK"] + found["LOCAL"],
        tuple(instructions), tuple(common), tuple(instructions[begin:end]), grid, tuple(_numbers(kernel.asm["ttir"])),
    )  # fmt: skip


_NUMBER = re.compile(r"constant (?:dense<)?([^ >]+)>? : (?:tensor<[0-9x]+xf64>|f64)")


def _numbers(ir: str) -> Iterator[float]:
    for text in _NUMBER.findall(ir):
        yield struct.unpack(">d", bytes.fromhex(text[2:]))[0] if text.startswith("0x") else float(text)


def collect_launches(monkeypatch: pytest.MonkeyPatch) -> list[Compiled]:
    """Make plans compile kernels instead of launching them; return the list to which these are added."""
    found: list[Compiled] = []

    def compile_only(function: Any, grid: tuple[int, ...]) -> Any:
        def launched(*arguments: Any, **options: Any) -> Any:
            kernel = function.run(*arguments, grid=grid, warmup=True, **options)
            compiled = read(function.__name__, kernel, grid)
            found.append(compiled)
            return defaultdict(lambda: lambda *again: found.append(compiled))

        return launched

    monkeypatch.setattr(JITFunction, "__getitem__", compile_only)
    monkeypatch.setattr(launch, "device", lambda: torch.device("cpu", 0))
    monkeypatch.setattr(launch, "current_device", lambda: 0)
    # Until Triton 3.4 `active` held the driver itself.
    monkeypatch.setattr(driver, "_active" if hasattr(driver, "_active") else "active", H200(), raising=False)
    return found
