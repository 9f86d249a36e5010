"""LayerNorm's gradients on the CPU: how the work is cut, which kernel does it, and which memory it needs."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout
from aclnn.kernels import Plan
from aclnn.kernels.cpu import threads
from aclnn.kernels.cpu.jit import Kernel
from aclnn.kernels.cpu.layer_norm import batches as steps
from aclnn.kernels.cpu.layer_norm import job as jobs
from aclnn.kernels.cpu.layer_norm.calls import addresses, aligned, columns_kernel, driver, taken_in_sets, working
from aclnn.kernels.cpu.layer_norm.in_order import in_order
from aclnn.kernels.cpu.layer_norm.job import Job
from aclnn.kernels.cpu.layer_norm.rows import LONGEST, SHORT
from aclnn.kernels.cpu.layer_norm.segments import NormSpec
from aclnn.kernels.cpu.layer_norm.shared import prepare, sweep
from aclnn.kernels.cpu.layer_norm.tiles import MATRICES, Tile
from aclnn.kernels.cpu.layer_norm.views import View, columns_of, rows_of
from aclnn.kernels.cpu.simd.vector import LANES
from aclnn.kernels.cpu.target import STREAM_BYTES
from aclnn.kernels.layouts import Overlaps, same_elements

BLOCK_ROWS, BLOCKS, BLOCK_ELEMENTS = 64, 64, 1 << 16
"""A block of rows has its own partial sums of dw and db; there are at most 64 blocks, of at least 64 rows and 2^16
elements."""
BATCH_ELEMENTS = 1 << 20
"""Elements of dy that rows are taken at a time when threads share them by columns: they stay in the last-level cache
between their two passes."""
PARTS = 16
"""Into how many parts the columns of a batch are cut at most."""
COLUMN_CHUNK = 1 << 14
"""Columns of dw and db that a thread finishes at a time."""
LINE = 64
"""Bytes of a row below which it is not written around the cache: of 8 float32 rows then take half the time (Zen 4)."""
LONG_ROW = 1 << 13
"""Bytes of a row from which on it is written around the cache though lines at its ends are not written whole: rows of
500 float32 with gaps between them take up to twice as long then, of 2,000 a tenth less (Zen 4)."""
TILE_ELEMENTS = 1 << 16
"""Elements that are packed together where they do not lie side by side: 768 KiB for dy, x and dx."""


class _Regions(NamedTuple):
    """Where in the workspace things begin, in bytes."""

    partials: int
    records: int
    coefficients: int
    end: int


class LayerNormPlan:
    """Rows of at most 32,768 columns go in blocks, each to one thread; longer or few rows in batches, cut by columns.

    ``workspace_bytes``: 8 for each column, wanted gradient (dw, db) and block; 4 for each column if dx is wanted and
    there is no contiguous float32 weight, or short rows are no whole vectors; in batches, 16 for each row of a batch
    and 512 columns, 40 for each row.
    """

    def __init__(
        self,
        inputs: tuple[Layout | None, ...],
        outputs: tuple[Layout | None, ...],
        normalized_dims: int,
        centred: bool,
    ) -> None:
        dy, x, mean, rstd, weight = inputs
        dx, dw, db = outputs
        assert dy is not None
        assert x is not None
        assert rstd is not None
        assert centred == (mean is not None)
        self.spec = NormSpec(dx is not None, dw is not None, db is not None, centred)
        self._matrices = [View(layout, normalized_dims) for layout in (dy, x, dx) if layout is not None]
        self._statistics = [None if mean is None else rows_of(mean), rows_of(rstd)]
        self._weight = columns_of(weight) if weight is not None and dx is not None else None
        self._gradients = [columns_of(layout) if layout is not None else None for layout in (dw, db)]
        split = len(dy.shape) - normalized_dims
        self._m, self.n = math.prod(dy.shape[:split]), math.prod(dy.shape[split:])
        self._empty = self._m == 0 or self.n == 0
        read, written = (
            [None if view is None else view.span for view in views]
            for views in ((*self._matrices[:2], *self._statistics, self._weight), self._gradients)
        )
        overwritten = None if dx is None or self._empty else dx.span  # while inputs are still read
        alike = {i for i, layout in enumerate((dy, x)) if dx is not None and same_elements(layout, dx)}
        self._overlaps = Overlaps(read, [overwritten], alike)
        self._early = Overlaps([*read, None if dx is None else dx.span], written)
        """Of dw and db, where they are written before dx and while inputs are still being read."""
        self._segments = -(-self.n // jobs.SEGMENT)
        self._batched = self.n > LONGEST or self._m < 4 * BLOCK_ROWS
        least = max(self._m / BLOCKS, BLOCK_ELEMENTS / max(1, self.n))
        self._block_rows = max(BLOCK_ROWS, math.ceil(least / jobs.GROUP) * jobs.GROUP)
        self._blocks = 1 if self._batched else -(-self._m // self._block_rows)
        groups = max(1, BATCH_ELEMENTS // max(1, self.n * jobs.GROUP))
        self._batch = min(self._m, groups * jobs.GROUP)
        same = len({view.dtype for view in self._matrices}) == 1
        self._direct = same and all(view.direct for view in self._matrices)
        self._dtype = dy.dtype if self._direct else DataType.FLOAT
        even = not self._direct or all(len(view.rows) == 1 for view in self._matrices)
        ascending = not self._direct or all(
            stride >= self.n * view.itemsize for view in self._matrices for _, stride in view.rows
        )
        in_sets = taken_in_sets(self.spec, self.n, self._dtype.itemsize, ascending)
        self._sets = even and not self._batched and in_sets
        self._regions = self._lay_out()
        self._kernels: dict[tuple[bool, bool, str], tuple[list[Kernel], dict[int, int]]] = {}
        self.workspace_bytes = 0 if self._empty else self._regions.end
        self._template, self.packed_template = self._job(packed=False), self._job(packed=True)
        fields = (*MATRICES[:2], jobs.MEAN, jobs.RSTD, jobs.DX, jobs.DW, jobs.DB)
        given = (*inputs[:4], *outputs)
        self._places = [
            (which, at // 8)
            for which, field in enumerate(fields)
            if (at := self._template[field]) and given[which] is not None
        ]
        """Where in the job the addresses of inputs, without the weight, and outputs go."""
        self._careful = self._batched or (self.spec.dx and (self._sets or not self._direct))
        self._one_by_one = not self._sets and not self._batched and SHORT < self.n <= jobs.SEGMENT
        self._ways = self._ways_to_write()
        self._prepare()

    def _lay_out(self) -> _Regions:
        partials = aligned(4 * self.n) if self.spec.dx and not self._weight_is_ready() else 0
        records = partials + self._partial_bytes() * self._blocks
        batch = -(-self._batch // jobs.GROUP) * jobs.GROUP if self._batched else 0
        coefficients = aligned(records + jobs.RECORD * self._segments * batch)
        return _Regions(partials, records, coefficients, coefficients + jobs.COEFFICIENT * batch)

    def _weight_is_ready(self) -> bool:
        """Whether kernels read the given weights, and not a copy: contiguous float32, in sets whole vectors of them."""
        weight = self._weight
        if weight is None or not weight.direct or weight.dtype != DataType.FLOAT:
            return False
        return not self._sets or self.n % LANES == 0

    def _sum_bytes(self) -> int:
        """Bytes of a block's partial sums of dw or db, padded to whole vectors."""
        return 8 * (-(-self.n // 16) * 16)

    def _db_offset(self) -> int:
        """Bytes from a block's sums of dw to those of db."""
        if not (self.spec.dw and self.spec.db):
            return 0
        return self._sum_bytes() + (jobs.APART - self._sum_bytes()) % 4096

    def _partial_bytes(self) -> int:
        """Bytes of a block's partial sums."""
        return self._db_offset() + self._sum_bytes() * (self.spec.dw or self.spec.db)

    def _job(self, packed: bool) -> Job:
        """What compiled code reads, addresses still missing; ``packed`` for tiles in place of dy, x and dx."""
        job = [0] * jobs.JOB_FIELDS
        job[jobs.N], job[jobs.SEGMENTS] = self.n, self._segments
        job[jobs.SHARE] = int(np.float64(1 / max(1, self.n)).view(np.int64))
        job[jobs.END] = self._segments
        job[jobs.PARTIAL_BYTES] = self._partial_bytes()
        job[jobs.DB_OFFSET] = self._db_offset()
        views = (*self._gradients, *self._statistics)
        for field, view in zip((jobs.DW, jobs.DB, jobs.MEAN, jobs.RSTD), views, strict=True):
            if view is not None:
                job[field] = 8 * len(job)
                job += view.fields()
        if not self.spec.centred:
            job[jobs.MEAN] = job[jobs.RSTD]  # is loaded, and not used
        for field, matrix in zip(MATRICES, self._matrices, strict=False):
            job[field] = 8 * len(job)
            job += [0, int(DataType.FLOAT), 4, 0, 1, 0, 1, 0, 0] if packed else matrix.fields()
        if self.spec.dx:
            job[jobs.STREAMED] = int(self._direct and self._streams(self._matrices[2]))
        return Job.of(job)

    def _streams(self, dx: View) -> bool:
        """Whether dx goes around the cache, if its address allows it."""
        row = self.n * dx.itemsize
        if self._m * row < STREAM_BYTES or any(stride % 16 for _, stride in dx.rows):
            return False
        touching = len(dx.rows) == 1 and dx.rows[0][1] == row
        return (row % 16 == 0 and row >= LINE and touching) or row >= LONG_ROW

    def _ways_to_write(self) -> tuple[str, ...]:
        """How dx is written at addresses that are multiples of 16, the way for whole vectors first."""
        if not self._template[jobs.STREAMED]:
            return ("store",)
        dx = self._matrices[2]
        apart = any(stride % (16 * dx.itemsize) for _, stride in dx.rows)
        return ("trickle",) if apart else ("stream", "trickle")

    def _prepare(self) -> None:
        """Compile in phase one what the run will need.

        But for dx in place of an input, at an address that is no multiple of 16 though large, and for sums that
        overflow on the way: these take other kernels, as slow to make, and are rare.
        """
        driver("finish")
        prepare(max(self._blocks, self._parts() if self._batched else 1, -(-self.n // COLUMN_CHUNK)))
        if self._empty:
            return
        for way in self._ways:
            self._compiled(self._careful, self._one_by_one, way)
        if self.spec.dx:
            columns_kernel("top_weight")
        weight = self._weight
        if not self._direct or (weight is not None and not (weight.direct and weight.dtype == DataType.FLOAT)):
            columns_kernel("transfer")

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        if self.n == 0:
            return
        inputs, _copies = self._overlaps.apart(inputs, outputs)
        job = self._filled(inputs, outputs, workspace)
        in_place = self.spec.dx and outputs[0] in inputs[:2]
        if self._empty:
            self._finish(job, 0)
        elif self._batched:
            self._run_batches(job, inputs, outputs)
        else:
            self._run_blocks(job, in_place)
            self._finish(job, job[jobs.PARTIAL_COUNT])

    def _filled(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> Job:
        """The job with its addresses."""
        regions, job = self._regions, self._template.copy()
        addresses = (*inputs[:4], *outputs)
        for which, place in self._places:
            job[place] = addresses[which]
        job[jobs.PARTIALS] = workspace + regions.partials
        job[jobs.RECORDS] = workspace + regions.records
        job[jobs.COEFFICIENTS] = workspace + regions.coefficients
        job[jobs.FRESH] = 1
        if self.spec.dx and not self._empty:
            job[jobs.STREAMED] &= outputs[0] % 16 == 0
            job[jobs.WEIGHT] = weight = self._ready_weight(inputs[4], workspace)
            columns_kernel("top_weight")(weight, self.n, job.address + 8 * jobs.TOP_WEIGHT)
        return job

    def _ready_weight(self, address: int, copy: int) -> int:
        """The address of contiguous float32 weights; behind those in a copy zeros fill the vector."""
        weight = self._weight
        if self._weight_is_ready():
            return address
        ctypes.memset(copy + 4 * self.n, 0, aligned(4 * self.n) - 4 * self.n)
        if weight is None:
            np.ctypeslib.as_array((ctypes.c_float * self.n).from_address(copy)).fill(1)
            return copy
        if weight.direct and weight.dtype == DataType.FLOAT:
            ctypes.memmove(copy, address, 4 * self.n)
            return copy
        fields = np.array(weight.fields(), dtype=np.int64)
        fields[0] = address
        room = working.address(64 + 8 + 8 * COLUMN_CHUNK)
        for first in range(0, self.n, COLUMN_CHUNK):
            count = min(COLUMN_CHUNK, self.n - first)
            view = int(fields.ctypes.data)
            columns_kernel("transfer")(view, 0, 0, 1, first, count, copy + 4 * first, 0, room)
        return copy

    def _compiled(self, careful: bool, one_by_one: bool, way: str) -> tuple[list[Kernel], dict[int, int]]:
        """The kernels that go through the rows, and the job's fields that say where the others are."""
        found = self._kernels.get((careful, one_by_one, way))
        if found is None:
            names = ["blocks_one_by_one" if one_by_one else "blocks"]
            if self._batched:
                names = ["batch_sums", "batch_dx"]
            drivers = [driver(name) for name in names]
            sets = self._sets and (self.spec.dx or not careful)
            found = drivers, addresses(self._dtype, self.spec, self.n, careful, one_by_one, sets, self._batched, way)
            self._kernels[careful, one_by_one, way] = found
        return found

    def _choose(self, job: Job, careful: bool, one_by_one: bool) -> list[Kernel]:
        """Put into the job where the kernels are that it needs; those that call them."""
        drivers, places = self._compiled(careful, one_by_one, self._way(job))
        for field, address in places.items():
            job[field] = address
        return drivers

    def _way(self, job: Job) -> str:
        """How dx is written."""
        if not job[jobs.STREAMED]:
            return "store"
        return "trickle" if job[job[jobs.DX] // 8] % (16 * self._matrices[2].itemsize) else self._ways[0]

    def _tile_rows(self, segments: int) -> int:
        """Rows that are packed together: in all 64 Ki elements, or a group."""
        fitting = TILE_ELEMENTS // min(self.n, segments * jobs.SEGMENT)
        return max(jobs.GROUP, fitting // jobs.GROUP * jobs.GROUP)

    def _run_blocks(self, job: Job, in_place: bool) -> None:
        """All blocks; once more, with careful kernels, where terms of dw or db were lost and inputs are still there."""
        one_by_one = self._one_by_one and not in_place
        careful = in_place or self._careful
        self._sweep_blocks(job, careful, one_by_one)
        if job[jobs.LOST] and not careful:
            job[jobs.MEASURE] = job[jobs.SETS] = 0
            self._sweep_blocks(job, True, one_by_one)

    def _sweep_blocks(self, job: Job, careful: bool, one_by_one: bool) -> None:
        """All blocks, once."""
        job[jobs.PARTIAL_COUNT] = self._blocks
        (kernel,) = self._choose(job, careful, one_by_one)
        if self._direct:
            operands = (job.address, 0, self._block_rows, self._m, 0)
            sweep(kernel, operands, 1, self._blocks, self._m * self.n // jobs.PER_US)
        else:
            threads.run(lambda block: self._run_packed_block(job, kernel, block), self._blocks)

    def _run_packed_block(self, job: Job, kernel: Kernel, block: int) -> None:
        """A block of rows of any layout."""
        first, last = block * self._block_rows, min(self._m, (block + 1) * self._block_rows)
        size = self._tile_rows(self._segments)
        for row in range(first, last, size):
            stop = min(last, row + size)
            tile = Tile(self, job, row, stop, 0, self._segments)
            tile.job[jobs.FRESH] = row == first
            tile.fetch()
            kernel(tile.job.address, row, size, stop, block, 0, 1, 1)
            if tile.job[jobs.LOST]:
                job[jobs.LOST] = 1  # never back to 0: other threads say so too
            tile.write_back()

    def _run_batches(self, job: Job, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        sums, dx = self._choose(job, self._careful, one_by_one=False)
        job[jobs.ONLY] = only = int(self._batch == self._m and self._direct and self._apart(inputs, outputs))
        for first in range(0, self._m, self._batch):
            last = min(self._m, first + self._batch)
            job[jobs.FRESH], job[jobs.SLOW_ROWS] = first == 0, 0
            self._share(job, sums, (first, last, first, 0))
            if self.spec.dx:
                dx(job.address, steps.VERDICTS, first, last, first, 0, 1, 1)
                if job[jobs.SLOW_ROWS]:
                    self._do(job, dx, (steps.EXACT, first, last, first), 0, self._segments)
                self._share(job, dx, (steps.WRITE, first, last, first))
        if not only:
            self._finish(job, 1)

    def _apart(self, inputs: Sequence[int], outputs: Sequence[int]) -> bool:
        """Whether dw and db may be written before dx, while inputs are still being read, and in any order."""
        if any(view is not None and not view.distinct for view in self._gradients):
            return False
        return next(self._early.among((*inputs, outputs[0]), outputs[1:]), None) is None

    def _parts(self) -> int:
        """Into how many parts the columns of a batch are cut."""
        return min(self._segments, PARTS)

    def _share(self, job: Job, kernel: Kernel, operands: tuple[int, int, int, int]) -> None:
        """A step of a batch on all threads."""
        parts = self._parts()
        if self._direct:
            sweep(kernel, (job.address, *operands), 1, parts, self._batch * self.n // (2 * jobs.PER_US))
            return
        edges = [part * self._segments // parts for part in range(parts + 1)]
        threads.run(lambda i: self._do(job, kernel, operands, edges[i], edges[i + 1]), parts)

    def _do(self, job: Job, kernel: Kernel, operands: tuple[int, int, int, int], begin: int, end: int) -> None:
        """A step of a batch on this thread: all columns, or some segments of any layout.

        The rows are the first two operands of ``batch_sums``; ``batch_dx`` has the step before them.
        """
        if self._direct:
            kernel(job.address, *operands, 0, 1, 1)
            return
        at = int(kernel is driver("batch_dx"))
        first, last, size = operands[at], operands[at + 1], self._tile_rows(PARTS)
        for row in range(first, last, size):
            for segment in range(begin, end, PARTS):
                stop = min(last, row + size)
                tile = Tile(self, job, row, stop, segment, min(end, segment + PARTS))
                tile.job[jobs.FRESH] &= row == 0
                tile.fetch()
                kernel(tile.job.address, *operands[:at], row, stop, *operands[at + 2 :], 0, 1, 1)
                if at and operands[0] == steps.WRITE:
                    tile.write_back()

    def _finish(self, job: Job, partial_count: int) -> None:
        """Add up the blocks' partial sums; zeros when there are no rows."""
        for field, view in zip((jobs.DW, jobs.DB), self._gradients, strict=True):
            if view is not None:
                chunk = COLUMN_CHUNK if view.distinct else self.n
                partials = job[jobs.PARTIALS] + (job[jobs.DB_OFFSET] if field == jobs.DB else 0)
                operands = (job.address, field, partials, partial_count, 0)
                sweep(driver("finish"), operands, chunk, self.n, partial_count * self.n // jobs.PER_US)


def plan(
    inputs: tuple[Layout | None, ...],
    outputs: tuple[Layout | None, ...],
    normalized_dims: int,
    centred: bool = True,
) -> Plan:
    """See ``aclnn.kernels.layer_norm_backward``."""
    return in_order(lambda outputs: LayerNormPlan(inputs, outputs, normalized_dims, centred), outputs, places=(0,))
