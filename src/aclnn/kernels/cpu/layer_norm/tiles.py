"""Rows and columns of any layout, packed as contiguous float32 for LayerNorm's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aclnn.kernels.cpu.layer_norm import job as jobs
from aclnn.kernels.cpu.layer_norm.calls import aligned, columns_kernel, working
from aclnn.kernels.cpu.layer_norm.job import Job

if TYPE_CHECKING:
    from aclnn.kernels.cpu.layer_norm.backward import LayerNormPlan

MATRICES = (jobs.DY, jobs.X, jobs.DX)


class Tile:
    """Rows and segments of dy, x and dx as contiguous float32 in the thread's scratch, and the job that says so."""

    def __init__(self, owner: LayerNormPlan, job: Job, first: int, last: int, begin: int, end: int) -> None:
        self._first, self._count = first, last - first
        self._column = begin * jobs.SEGMENT
        self._columns = min(owner.n, end * jobs.SEGMENT) - self._column
        # Not a power of two, which would put rows into few sets of the cache; room for a whole vector at the end.
        self._pitch = 4 * min(owner.n, (end - begin) * jobs.SEGMENT) // 64 * 64 + 128
        size = aligned(self._pitch * self._count)
        start = working.address(3 * size + 64 + 8 * (self._count + self._columns))
        self._tiles = [start + i * size for i in range(3)]
        self._offsets = start + 3 * size
        self._views = [job.address + job[field] if job[field] else 0 for field in MATRICES]
        self._reads_x = owner.spec.x
        self.job = packed = owner.packed_template.copy()
        for field in (*range(jobs.JOB_FIELDS - len(MATRICES)), *range(jobs.JOB_FIELDS, job[jobs.DY] // 8)):
            packed[field] = job[field]
        packed[jobs.STREAMED], packed[jobs.BEGIN], packed[jobs.END] = 0, begin, end
        for field, tile in zip(MATRICES, self._tiles, strict=True):
            if packed[field]:
                view = packed[field] // 8
                packed[view] = tile - first * self._pitch - 4 * self._column
                packed[view + jobs.STEP // 8] = packed[view + jobs.ROWS // 8 + 2] = self._pitch

    def _transfer(self, tensor: int, back: int) -> None:
        columns_kernel("transfer")(
            self._views[tensor], back, self._first, self._count, self._column, self._columns, self._tiles[tensor],
            self._pitch, self._offsets,
        )  # fmt: skip

    def fetch(self) -> None:
        """Bring in what is read."""
        self._transfer(0, 0)
        if self._reads_x:
            self._transfer(1, 0)

    def write_back(self) -> None:
        """Write dx to where it belongs, if it is wanted."""
        if self._views[2]:
            self._transfer(2, 1)
