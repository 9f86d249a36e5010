"""Rows and columns of any layout, or beyond float32's range, packed as contiguous float32 for LayerNorm's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from aclnn.kernels.cpu import layer_norm_job as jobs
from aclnn.kernels.cpu.layer_norm_calls import aligned, columns_kernel, exact_kernel, working
from aclnn.kernels.cpu.layer_norm_rows import RECORD_AT

if TYPE_CHECKING:
    from aclnn.kernels.cpu.layer_norm import LayerNormPlan

MATRICES = (jobs.DY, jobs.X, jobs.DX)


class Tile:
    """Rows and segments of dy, x and dx as contiguous float32 in the thread's scratch, and the job that says so."""

    def __init__(
        self, owner: LayerNormPlan, job: NDArray[np.int64], first: int, last: int, begin: int, end: int
    ) -> None:
        self._owner, self._first, self._count = owner, first, last - first
        self._column = begin * jobs.SEGMENT
        self._columns = min(owner._n, end * jobs.SEGMENT) - self._column
        self._pitch = owner._pitch(end - begin)
        own = aligned(RECORD_AT + jobs.RECORD * jobs.GROUP * owner._segments)
        size = aligned(self._pitch * self._count)
        offsets = 64 + 8 * (self._count + self._columns)
        start = working.address(own + 3 * size + offsets)
        self._tiles = [start + own + i * size for i in range(3)]
        self._offsets = start + own + 3 * size
        self._views = [int(job.ctypes.data) + int(job[field]) for field in MATRICES]
        self._outer = job
        self.job = job_here = owner._packed_template.copy()
        kept = jobs.JOB_FIELDS - len(MATRICES)
        job_here[:kept] = job[:kept]
        job_here[jobs.JOB_FIELDS : job_here[jobs.DY] // 8] = job[jobs.JOB_FIELDS : job[jobs.DY] // 8]
        job_here[jobs.STREAMED] = 0
        for field, tile in zip(MATRICES, self._tiles, strict=True):
            if job_here[field]:
                view = job_here[field] // 8
                job_here[view] = tile - first * self._pitch - 4 * self._column
                job_here[view + jobs.ROWS // 8 + 2] = self._pitch

    def _transfer(self, tensor: int, back: int) -> None:
        columns_kernel("transfer")(
            self._views[tensor], back, self._first, self._count, self._column, self._columns, self._tiles[tensor],
            self._pitch, self._offsets,
        )  # fmt: skip

    def fetch(self) -> None:
        """Bring in what is read."""
        self._transfer(0, 0)
        if self._owner._wanted.x:
            self._transfer(1, 0)

    def write_back(self) -> None:
        """Write dx to where it belongs."""
        if self._owner._wanted.dx:
            self._transfer(2, 1)

    def _group(self, first: int, last: int) -> tuple[list[int], int, int, int, int]:
        """Addresses of a group's rows in the three tiles, its weights and their step, pitch and number of rows."""
        shift = (first - self._first) * self._pitch
        stepped = 4 if self._outer[jobs.WEIGHT_STEP] else 0
        weight = int(self._outer[jobs.WEIGHT]) + stepped * self._column
        return [tile + shift for tile in self._tiles], weight, stepped, self._pitch, last - first

    def add_sums(self, first: int, last: int, coefficients: int, sums: NDArray[np.float64]) -> None:
        """Add Σg and Σg·x̂ of the group's slow rows in float64."""
        (dy, x, _), *rest = self._group(first, last)
        exact_kernel("add_sums")(dy, x, *rest, self._columns, coefficients, int(sums.ctypes.data))

    def apply(self, first: int, last: int, coefficients: int, sums: NDArray[np.float64]) -> None:
        """dx of the group's slow rows in float64."""
        (dy, x, dx), *rest = self._group(first, last)
        exact_kernel("apply")(self._owner._n, dy, x, dx, *rest, self._columns, coefficients, int(sums.ctypes.data))
