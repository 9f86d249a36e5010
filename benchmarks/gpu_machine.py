"""The machine of ``make gpu``: an NVIDIA GPU, or Triton's interpreter with sizes that it can bear (``--dry-run``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple


class Sizes(NamedTuple):
    """Amount of work."""

    elements: int
    """Of an elementwise check."""
    rows_and_columns: tuple[tuple[int, int], ...]
    """Of LayerNorm's checks."""
    chunk: int
    """Float32 inputs of the exhaustive walk that are taken at once."""
    chunks: int
    """Number of cases; where not all, evenly spread."""
    speed_elements: tuple[int, ...]
    """Of an activation's benchmark."""
    layer_norm_elements: tuple[int, ...]
    layer_norm_columns: tuple[int, ...]
    rounds: int
    family_elements: int
    """Of the family's benchmark."""
    family_step: int
    """From one member of the family that is taken to the next."""


_LAUNCHING_CYCLES = 2_000_000
"""About 1 ms, in which Python launches a call's kernels; else the GPU's clock would count it."""
_FLUSHING_BYTES = 256 << 20
"""Written before each timed call, five times what an H200's second-level cache holds, as triton.testing.do_bench does:
a call finds nothing of its operands there, and others' results still to be written, as many as it leaves."""


class Gpu:
    """The current CUDA device, reached as a program does: through PyTorch's dispatcher."""

    measuring = True

    sizes = Sizes(
        100_003, ((300, 1), (300, 257), (4096, 1024), (65, 12_288), (33, 20_000)), 1 << 24, 256,
        (2**28, 2**26, 2**30, 2**28 + 1), (2**27, 2**25), (256, 1024, 4096, 8192, 16384), 15, 2**27, 1,
    )  # fmt: skip

    def __init__(self, torch: Any) -> None:
        self.torch, self.device = torch, torch.device("cuda")
        self.name: str = torch.cuda.get_device_name()

    def operator(self, name: str) -> Callable[..., Any]:
        """``torch.ops.aclnn.<name>``, which takes ``out=`` too."""
        operator: Callable[..., Any] = getattr(self.torch.ops.aclnn, name)
        return operator

    def settle(self) -> None:
        """Wait until the GPU has nothing to do."""
        self.torch.cuda.synchronize()

    @cached_property
    def _flushing(self) -> Any:
        return self.torch.empty(_FLUSHING_BYTES, dtype=self.torch.uint8, device=self.device)

    def time_us(self, call: Callable[[], Any]) -> tuple[float, float]:
        """Microseconds between two events on the stream, which waits until the call is launched, and the host's.

        The second-level cache holds other data when the call begins.
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
    """The GPU's kernels by Triton's interpreter (TRITON_INTERPRET=1): everything but the GPU and its figures."""

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
        """The operator as the dispatcher would call it for CUDA."""
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
        """Nothing is ever queued."""

    def time_us(self, call: Callable[[], Any]) -> tuple[float, float]:
        """Microseconds by the clock, all of them the host's."""
        begun = time.perf_counter()
        call()
        taken = (time.perf_counter() - begun) * 1e6
        return taken, taken
