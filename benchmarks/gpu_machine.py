"""The machine of ``make gpu``: an NVIDIA GPU, or Triton's interpreter with small sizes (``--dry-run``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple


class Sizes(NamedTuple):
    """Amounts of work for a machine."""

    elements: int
    """Elements of an elementwise check."""
    rows_and_columns: tuple[tuple[int, int], ...]
    """Shapes of LayerNorm's checks."""
    chunk: int
    """Float32 inputs per step of the exhaustive walk."""
    chunks: int
    """Number of chunks in the walk, evenly spread if not all."""
    speed_elements: tuple[int, ...]
    """Elements of an activation's benchmark."""
    layer_norm_elements: tuple[int, ...]
    layer_norm_columns: tuple[int, ...]
    rounds: int
    family_elements: int
    """Elements of the family's benchmark."""
    family_step: int
    """Stride through the family's members."""


_LAUNCHING_CYCLES = 2_000_000
"""Cycles of a wait on the GPU of about 1 ms, during which Python launches a call's kernels, untimed."""
_FLUSHING_BYTES = 256 << 20
"""Bytes written before each timed call, as in triton.testing.do_bench: five times an H200's second-level cache. The
cache then holds no operands of the call, and as much unwritten data as the call leaves."""


class Gpu:
    """The current CUDA device, used through PyTorch's dispatcher as in a program."""

    measuring = True

    sizes = Sizes(
        100_003, ((300, 1), (300, 257), (4096, 1024), (65, 12_288), (33, 20_000)), 1 << 24, 256,
        (2**28, 2**26, 2**30, 2**28 + 1), (2**27, 2**25), (256, 1024, 4096, 8192, 16384), 15, 2**27, 1,
    )  # fmt: skip

    def __init__(self, torch: Any) -> None:
        self.torch, self.device = torch, torch.device("cuda")
        self.name: str = torch.cuda.get_device_name()

    def operator(self, name: str) -> Callable[..., Any]:
        """Return ``torch.ops.aclnn.<name>``, which also accepts ``out=``."""
        operator: Callable[..., Any] = getattr(self.torch.ops.aclnn, name)
        return operator

    def settle(self) -> None:
        """Wait until the GPU is idle."""
        self.torch.cuda.synchronize()

    @cached_property
    def _flushing(self) -> Any:
        return self.torch.empty(_FLUSHING_BYTES, dtype=self.torch.uint8, device=self.device)

    def time_us(self, call: Callable[[], Any]) -> tuple[float, float]:
        """Return a call's microseconds between two events on the stream, and on the host.

        The stream waits until the call is launched; the second-level cache holds other data when it begins.
        """
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._flushing.zero_()
        self.torch.cuda._sleep(_LAUNCHING_CYCLES)
        begin.record()
        begun = time.perf_counter()
        call()
        host = time.perf_counter() - begun
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3, host * 1e6


class Interpreter:
    """Triton's interpreter (TRITON_INTERPRET=1) for the GPU's kernels, to run everything but real measurements."""

    measuring = True

    sizes = Sizes(200, ((5, 40),), 1 << 10, 2, (1 << 11,), (1 << 9,), (64,), 2, 1 << 14, 16)
    name = "none: Triton's interpreter"

    def __init__(self, torch: Any) -> None:
        from aclnn.kernels.cuda import launch

        if not launch.INTERPRETED:
            raise SystemExit("make gpu: --dry-run: expected TRITON_INTERPRET=1 in the environment")
        import_module("tests.helpers.triton_hardware")
        self.torch, self.device = torch, torch.device("cpu")

    def operator(self, name: str) -> Callable[..., Any]:
        """Return the operator as the dispatcher calls it for CUDA."""
        from aclnn.operators import BY_NAME
        from aclnn.torch import registration

        operator = BY_NAME[name]
        defaults, names = registration.default_arguments(operator), registration.out_names(operator)
        evaluate = registration.evaluator(operator, "cuda")

        def call(*arguments: Any, **outs: Any) -> Any:
            written: Sequence[Any] | None = [outs[name] for name in names] if outs else None
            results = evaluate((*arguments, *defaults[len(arguments) :]), written)
            return results[0] if len(results) == 1 else tuple(results)

        return call

    def settle(self) -> None:
        """Do nothing, since work is never queued."""

    def time_us(self, call: Callable[[], Any]) -> tuple[float, float]:
        """Return a call's elapsed microseconds, twice, since all are the host's."""
        begun = time.perf_counter()
        call()
        taken = (time.perf_counter() - begun) * 1e6
        return taken, taken
