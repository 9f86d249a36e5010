"""LayerNorm's gradients on the CPU: how the work is cut, which kernel does it, and which memory it needs."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aclnn.dtypes import DataType
from aclnn.kernels import Plan
from aclnn.kernels.cpu import layer_norm_job as jobs
from aclnn.kernels.cpu import layer_norm_rows as rows
from aclnn.kernels.cpu import pool
from aclnn.kernels.cpu.compiler import Kernel
from aclnn.kernels.cpu.layer_norm_calls import aligned, columns_kernel, rows_kernel, working
from aclnn.kernels.cpu.layer_norm_segments import Wanted
from aclnn.kernels.cpu.layer_norm_tiles import MATRICES, Tile
from aclnn.kernels.cpu.layer_norm_views import View, columns_of, described, rows_of, same_elements
from aclnn.kernels.cpu.target import STREAM_BYTES
from aclnn.tensor import Layout, contiguous_strides

WIDE_COLUMNS = 1 << 15
"""Longer rows do not fit in a core's cache with their neighbours: all threads share them, by columns."""
BLOCK_ROWS, BLOCKS, BLOCK_ELEMENTS = 64, 64, 1 << 17
"""A block of rows has its own partial sums of dw and db; there are at most 64 blocks, of at least 64 rows and 2^17
elements: some 50 µs of work, against 6 µs for handing a block to a thread."""
BATCH_ELEMENTS = 1 << 20
"""Elements of dy that wide rows are taken at a time, to stay in the last-level cache between their two passes."""
PARTS = 16
"""Into how many tasks the columns of a batch are cut."""
COLUMN_CHUNK = 1 << 14
"""Columns of dw and db that a thread finishes at a time."""

TILE_ELEMENTS = 1 << 16
"""Elements that are packed together where they do not lie side by side, or need float64: 768 KiB for dy, x and dx."""
ONLY_SEGMENTS = 32
"""Segments whose sums of dw and db are kept in the scratch where there is only one batch: 256 KiB."""
EXACT_SEGMENTS = 32
"""Segments of a wide row that are packed together for float64."""

_ONES = np.ones(jobs.SEGMENT, dtype=np.float32)


class _Regions(NamedTuple):
    """Where in the workspace things begin, in bytes."""

    partials: int
    records: int
    coefficients: int
    end: int


class LayerNormPlan:
    """Rows of at most 32,768 columns go in blocks, each to one thread; longer or few rows in batches, cut by columns.

    ``workspace_bytes``: 8 for each column, wanted gradient (dw, db) and block; 4 for each column if dx is wanted and
    the weight is not contiguous float32; in batches, 16 for each row of a batch and 512 columns, 32 for each row of it.
    """

    def __init__(
        self, inputs: tuple[Layout | None, ...], outputs: tuple[Layout | None, ...], normalized_dims: int
    ) -> None:
        dy, x, mean, rstd, weight = inputs
        dx, dw, db = outputs
        assert dy is not None
        assert x is not None
        assert mean is not None
        assert rstd is not None
        self._wanted = Wanted(dx is not None, dw is not None, db is not None)
        self._matrices = [View(layout, normalized_dims) for layout in (dy, x, dx) if layout is not None]
        self._statistics = [rows_of(mean), rows_of(rstd)]
        self._weight = columns_of(weight) if weight is not None and dx is not None else None
        self._gradients = [columns_of(layout) if layout is not None else None for layout in (dw, db)]
        split = len(dy.shape) - normalized_dims
        self._m, self._n = math.prod(dy.shape[:split]), math.prod(dy.shape[split:])
        self._empty = self._m == 0 or self._n == 0
        self.workspace_bytes = 0
        if self._empty:
            return
        self._segments = -(-self._n // jobs.SEGMENT)
        self._wide = self._n > WIDE_COLUMNS or self._m < 4 * BLOCK_ROWS
        least = max(self._m / BLOCKS, BLOCK_ELEMENTS / max(1, self._n))
        self._block_rows = max(BLOCK_ROWS, math.ceil(least / jobs.GROUP) * jobs.GROUP)
        self._blocks = 1 if self._wide else -(-self._m // self._block_rows)
        groups = max(1, BATCH_ELEMENTS // (self._n * jobs.GROUP))
        self._batch = min(self._m, groups * jobs.GROUP)
        self._regions = self._lay_out()
        self.workspace_bytes = self._regions.end
        self._template = self._job(packed=False)
        self._packed_template = self._job(packed=True)
        same = len({view.dtype for view in self._matrices}) == 1
        self._direct = same and all(view.direct for view in self._matrices)
        self._dtype = dy.dtype if self._direct else DataType.FLOAT
        rows_kernel(self._dtype, self._wanted)

    def _lay_out(self) -> _Regions:
        weight = self._weight
        copied = weight is not None and not (weight.direct and weight.dtype == DataType.FLOAT)
        partials = aligned(4 * self._n) if copied else 0
        records = partials + self._partial_bytes() * self._blocks
        batch = -(-self._batch // jobs.GROUP) * jobs.GROUP if self._wide else 0
        coefficients = aligned(records + jobs.RECORD * self._segments * batch)
        return _Regions(partials, records, coefficients, coefficients + jobs.COEFFICIENT * batch)

    def _partial_bytes(self) -> int:
        """Bytes of one block's partial sums, padded to whole vectors."""
        return 8 * (-(-self._n // 16) * 16) * (self._wanted.dw + self._wanted.db)

    def _pitch(self, segments: int) -> int:
        """Bytes between the rows of a tile: not a power of two, which would put them into few sets of the cache."""
        return 4 * min(self._n, segments * jobs.SEGMENT) // 64 * 64 + 128  # room for a whole vector at the end

    def _job(self, packed: bool) -> NDArray[np.int64]:
        """What compiled code reads, addresses still missing; ``packed`` for tiles in place of dy, x and dx."""
        job = [0] * jobs.JOB_FIELDS
        job[jobs.N], job[jobs.SEGMENTS] = self._n, self._segments
        job[jobs.WEIGHT_STEP] = 4 * jobs.SEGMENT if self._weight is not None else 0
        job[jobs.PARTIAL_BYTES] = self._partial_bytes()
        job[jobs.DB_OFFSET] = self._partial_bytes() // 2 if self._wanted.dw and self._wanted.db else 0
        for field, view in zip((jobs.MEAN, jobs.RSTD), self._statistics, strict=True):
            job[field] = 8 * len(job)
            job += view.fields()
        for field, view in zip(MATRICES, self._matrices, strict=False):
            job[field] = 8 * len(job)
            if packed:
                job += [0, int(DataType.FLOAT), 0, 0, 1, 0, 0]
                continue
            job += view.fields(jobs.GROUP * view.rows[0][1] if len(view.rows) == 1 else 0)
        if self._wanted.dx and not packed:
            dx = self._matrices[2]
            aligned = all(stride % 16 == 0 for _, stride in dx.rows)
            job[jobs.STREAMED] = int(aligned and self._m * self._n * dx.itemsize >= STREAM_BYTES)
        return np.array(job, dtype=np.int64)

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        if not self._empty:
            originals = self._originals(inputs, outputs[0]) if self._wanted.dx else {}
            inputs = [originals[i][0] if i in originals else address for i, address in enumerate(inputs)]
            job = self._filled(inputs, outputs[0], workspace)
            kernel = self._chosen(job)
            if self._wide and self._batch == self._m and self._direct and self._apart(inputs, outputs):
                self._run_only_batch(job, kernel, outputs)
                return
            if self._wide:
                for first in range(0, self._m, self._batch):
                    self._run_batch(job, kernel, first, min(self._m, first + self._batch))
            else:
                pool.run(lambda block: self._run_block(job, kernel, block), self._blocks)
            self._finish(outputs, workspace + self._regions.partials)
        elif self._m == 0:
            self._finish(outputs, 0)

    def _originals(self, inputs: Sequence[int], dx: int) -> dict[int, tuple[int, NDArray[np.uint8]]]:
        """Copies of the inputs that writing dx would change before they are read: the new address and the memory."""
        begin, end = (dx + edge for edge in self._matrices[2].layout.span)
        found = {}
        views = (*self._matrices[:2], *self._statistics, self._weight)
        for i, (address, view) in enumerate(zip(inputs, views, strict=True)):
            if view is None or (i < 2 and address == dx and same_elements(view.layout, self._matrices[2].layout)):
                continue
            below, above = view.layout.span
            if address + below < end and begin < address + above:
                copied = np.empty(above - below, dtype=np.uint8)
                ctypes.memmove(copied.ctypes.data, address + below, above - below)
                found[i] = copied.ctypes.data - below, copied
        return found

    def _filled(self, inputs: Sequence[int], dx: int, workspace: int) -> NDArray[np.int64]:
        """The job with its addresses."""
        regions = self._regions
        job: NDArray[np.int64] = self._template.copy()
        for field, address in zip((*MATRICES, jobs.MEAN, jobs.RSTD), (*inputs[:2], dx, *inputs[2:4]), strict=True):
            if job[field]:
                job[job[field] // 8] = address
        job[jobs.PARTIALS] = workspace + regions.partials
        job[jobs.RECORDS] = workspace + regions.records
        job[jobs.COEFFICIENTS] = workspace + regions.coefficients
        if self._wanted.dx:
            if dx % 16:
                job[jobs.STREAMED] = 0
            job[jobs.WEIGHT] = weight = self._ready_weight(inputs[4], workspace)
            count = self._n if self._weight is not None else 1
            columns_kernel("top_weight")(weight, count, int(job.ctypes.data) + 8 * jobs.TOP_WEIGHT)
        return job

    def _ready_weight(self, address: int, copy: int) -> int:
        """The address of contiguous float32 weights."""
        weight = self._weight
        if weight is None:
            return int(_ONES.ctypes.data)
        if weight.direct and weight.dtype == DataType.FLOAT:
            return address
        fields = np.array(weight.fields(), dtype=np.int64)
        fields[0] = address
        scratch = working.address(64 + 8 + 8 * COLUMN_CHUNK)
        for first in range(0, self._n, COLUMN_CHUNK):
            count = min(COLUMN_CHUNK, self._n - first)
            view = int(fields.ctypes.data)
            columns_kernel("transfer")(view, 0, 0, 1, first, count, copy + 4 * first, 0, scratch)
        return copy

    # --- blocks of rows, each done by one thread ---

    def _chosen(self, job: NDArray[np.int64]) -> Kernel:
        """The kernel for the tensors as they are."""
        if not (self._direct and job[jobs.STREAMED]):
            return rows_kernel(self._dtype, self._wanted)
        dx = self._matrices[2]
        places = (int(job[job[jobs.DX] // 8]), *(stride for _, stride in dx.rows))
        return rows_kernel(self._dtype, self._wanted, any(place % (16 * dx.itemsize) for place in places))

    def _run_block(self, job: NDArray[np.int64], kernel: Kernel, block: int) -> None:
        row, last = block * self._block_rows, min(self._m, (block + 1) * self._block_rows)
        if not self._direct:
            for first in range(row, last, self._tile_rows(self._segments)):
                stop = min(last, first + self._tile_rows(self._segments))
                self._run_tile(job, first, stop, block, int(first == row))
            return
        fresh = 1
        while (row := self._call(kernel, job, rows.ALL, row, last, 0, self._segments, block, fresh)) < last:
            tile = Tile(self, job, row, min(last, row + jobs.GROUP), 0, self._segments)
            tile.fetch()
            row, fresh = self._force(tile, row, last, block), 0
            tile.write_back()

    def _call(self, kernel: Kernel, job: NDArray[np.int64], step: int, *arguments: int) -> int:
        """Call a kernel for rows and columns; the row at which it stopped."""
        scratch = working.address(rows.RECORD_AT + jobs.RECORD * jobs.GROUP * self._segments)
        status = working.status
        kernel(int(job.ctypes.data), step, *arguments, scratch, int(status.ctypes.data))
        return int(status[0])

    def _tile_rows(self, segments: int) -> int:
        """Rows that are packed together: in all 64 Ki elements, or a group."""
        fitting = TILE_ELEMENTS // min(self._n, segments * jobs.SEGMENT)
        return max(jobs.GROUP, fitting // jobs.GROUP * jobs.GROUP)

    def _run_tile(self, job: NDArray[np.int64], first: int, last: int, block: int, fresh: int) -> None:
        """Rows of any layout."""
        kernel = rows_kernel(DataType.FLOAT, self._wanted)
        tile = Tile(self, job, first, last, 0, self._segments)
        tile.fetch()
        row = first
        while (row := self._call(kernel, tile.job, rows.ALL, row, last, 0, self._segments, block, fresh)) < last:
            row, fresh = self._force(tile, row, last, block), 0
        tile.write_back()

    def _force(self, tile: Tile, first: int, last: int, block: int) -> int:
        """dx of the group at which the kernel stopped; where it goes on."""
        kernel = rows_kernel(DataType.FLOAT, self._wanted)
        stop = min(last, first + jobs.GROUP)
        self._call(kernel, tile.job, rows.FORCED, first, stop, 0, self._segments, block, 0)
        coefficients, sums = working.address(0) + rows.COEFFICIENT_AT, np.zeros((jobs.GROUP, 2))
        tile.add_sums(first, stop, coefficients, sums)
        tile.apply(first, stop, coefficients, sums)
        return stop

    # --- batches of rows, shared by all threads ---

    def _apart(self, inputs: Sequence[int], outputs: Sequence[int]) -> bool:
        """Whether dw and db may be written while inputs are still being read, and in any order."""
        views = (*self._matrices[:2], *self._statistics, self._weight)
        read = [(address, view.layout.span) for address, view in zip(inputs, views, strict=True) if view is not None]
        for view, target in zip(self._gradients, outputs[1:], strict=True):
            if view is not None:
                begin, end = (target + edge for edge in view.layout.span)
                if not view.distinct or any(at + low < end and begin < at + high for at, (low, high) in read):
                    return False
        return True

    def _edges(self) -> list[int]:
        """The segments at which the columns of a batch are cut into tasks."""
        parts = min(self._segments, PARTS)
        return [part * self._segments // parts for part in range(parts + 1)]

    def _run_only_batch(self, job: NDArray[np.int64], kernel: Kernel, outputs: Sequence[int]) -> None:
        """As ``_run_batch``, with the sums of dw and db in the scratch, a chunk of columns at a time: less to move."""
        m, segments, edges = self._m, self._segments, self._edges()
        finish = columns_kernel("finish")
        gradients = [(view, int(at)) for view, at in zip(self._gradients, outputs[1:], strict=True) if view is not None]
        numbers = [np.array(described(view.columns), dtype=np.int64) for view, _ in gradients]

        def sums(part: int) -> None:
            own = job.copy()
            used = aligned(rows.RECORD_AT + jobs.RECORD * jobs.GROUP * segments)
            for begin in range(edges[part], edges[part + 1], ONLY_SEGMENTS):
                end = min(edges[part + 1], begin + ONLY_SEGMENTS)
                first, last = begin * jobs.SEGMENT, min(self._n, end * jobs.SEGMENT)
                size = 8 * jobs.SEGMENT * (end - begin)
                scratch = working.address(used + 2 * size)
                own[jobs.PARTIALS] = partial = scratch + used - 8 * first
                own[jobs.DB_OFFSET] = size if len(gradients) == 2 else 0
                self._call(kernel, own, rows.SUMS, 0, m, begin, end, 0, 1)
                for (view, target), dims in zip(gradients, numbers, strict=True):
                    at = int(dims.ctypes.data)
                    finish(at, int(view.dtype), target, int(view.direct), partial, 1, 0, first, last, scratch)
                    partial += size

        pool.run(sums, len(edges) - 1)
        self._apply_batch(job, kernel, 0, m)

    def _step(
        self, job: NDArray[np.int64], kernel: Kernel, step: int, first: int, last: int, begin: int, end: int, batch: int
    ) -> None:
        """Sums or dx of rows and segments of the batch that begins with row ``batch``."""
        fresh = int(step == rows.SUMS and first == 0)
        if self._direct:
            self._call(kernel, job, step, first, last, begin, end, batch, fresh)
            return
        for row in range(first, last, self._tile_rows(end - begin)):
            stop = min(last, row + self._tile_rows(end - begin))
            tile = Tile(self, job, row, stop, begin, end)
            tile.fetch()
            self._call(kernel, tile.job, step, row, stop, begin, end, batch, fresh * int(row == 0))
            if step == rows.APPLY:
                tile.write_back()

    def _run_batch(self, job: NDArray[np.int64], kernel: Kernel, first: int, last: int) -> None:
        edges = self._edges()

        def sums(part: int) -> None:
            self._step(job, kernel, rows.SUMS, first, last, edges[part], edges[part + 1], first)

        pool.run(sums, len(edges) - 1)
        self._apply_batch(job, kernel, first, last)

    def _apply_batch(self, job: NDArray[np.int64], kernel: Kernel, first: int, last: int) -> None:
        """dx of a batch whose sums are done."""
        if not self._wanted.dx:
            return
        edges, sums = self._edges(), {}
        if self._call(kernel, job, rows.JUDGE, first, last, 0, self._segments, first, 0) < last:
            for row in self._unfit(job, first, last):
                sums[row] = self._exact_sums(job, row, min(last, row + jobs.GROUP), first)

        def apply(part: int) -> None:
            begin, end = edges[part], edges[part + 1]
            if not sums:
                self._step(job, kernel, rows.APPLY, first, last, begin, end, first)
                return
            for row in range(first, last, jobs.GROUP):
                stop = min(last, row + jobs.GROUP)
                if row in sums:
                    self._apply_exactly(job, row, stop, begin, end, first, sums[row])
                else:
                    self._step(job, kernel, rows.APPLY, row, stop, begin, end, first)

        pool.run(apply, len(edges) - 1)

    def _unfit(self, job: NDArray[np.int64], first: int, last: int) -> list[int]:
        """The first rows of a batch's groups that float32 will not do for."""
        count = last - first
        memory = (ctypes.c_float * (count * jobs.COEFFICIENT // 4)).from_address(int(job[jobs.COEFFICIENTS]))
        flags = np.ctypeslib.as_array(memory).reshape(count, -1)[:: jobs.GROUP, jobs.UNFIT // 4]
        return [first + jobs.GROUP * int(group) for group in np.flatnonzero(flags)]

    def _exact_sums(self, job: NDArray[np.int64], first: int, last: int, batch: int) -> NDArray[np.float64]:
        sums = np.zeros((jobs.GROUP, 2))
        for begin in range(0, self._segments, EXACT_SEGMENTS):
            tile = Tile(self, job, first, last, begin, min(self._segments, begin + EXACT_SEGMENTS))
            tile.fetch()
            tile.add_sums(first, last, int(job[jobs.COEFFICIENTS]) + jobs.COEFFICIENT * (first - batch), sums)
        return sums

    def _apply_exactly(
        self, job: NDArray[np.int64], first: int, last: int, begin: int, end: int, batch: int,
        sums: NDArray[np.float64],
    ) -> None:  # fmt: skip
        kernel = rows_kernel(DataType.FLOAT, self._wanted)
        for start in range(begin, end, EXACT_SEGMENTS):
            stop = min(end, start + EXACT_SEGMENTS)
            tile = Tile(self, job, first, last, start, stop)
            tile.fetch()
            self._call(kernel, tile.job, rows.APPLY, first, last, start, stop, batch, 0)
            tile.apply(first, last, int(job[jobs.COEFFICIENTS]) + jobs.COEFFICIENT * (first - batch), sums)
            tile.write_back()

    # --- dw and db ---

    def _finish(self, outputs: Sequence[int], partials: int) -> None:
        """Add up the blocks' partial sums; zeros when there are no rows."""
        for view, address in zip(self._gradients, outputs[1:], strict=True):
            if view is not None:
                self._finish_one(view, address, partials)
                partials += self._partial_bytes() // (self._wanted.dw + self._wanted.db)

    def _finish_one(self, view: View, address: int, partials: int) -> None:
        finish, n = columns_kernel("finish"), self._n
        blocks, stride = 0 if self._empty else self._blocks, self._partial_bytes()
        description = np.array(described(view.columns), dtype=np.int64)
        dtype, direct = int(view.dtype), int(view.direct)
        chunk = COLUMN_CHUNK if view.distinct else n

        def task(index: int) -> None:
            first, last = index * chunk, min(n, (index + 1) * chunk)
            lanes, dims = working.address(64), int(description.ctypes.data)
            finish(dims, dtype, address, direct, partials, blocks, stride, first, last, lanes)

        pool.run(task, -(-n // chunk))


class _InOrder:
    """dx has elements that coincide: the gradients go to memory of their own, and from there in logical order."""

    def __init__(
        self,
        inputs: tuple[Layout | None, ...],
        outputs: tuple[Layout, Layout | None, Layout | None],
        normalized_dims: int,
    ) -> None:
        dx, dw, db = outputs
        straight = Layout(dx.dtype, dx.shape, contiguous_strides(dx.shape))
        self._plan = LayerNormPlan(inputs, (straight, dw, db), normalized_dims)
        self._itemsize, self._count = dx.dtype.itemsize, dx.size
        self._dims = [np.array(described(columns_of(layout).columns), dtype=np.int64) for layout in (straight, dx)]
        self.workspace_bytes = self._plan.workspace_bytes

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``Plan.run``."""
        straight = np.empty(self._itemsize * self._count, dtype=np.uint8)
        source = int(straight.ctypes.data)
        self._plan.run(inputs, (source, *outputs[1:]), workspace)
        dims = (int(description.ctypes.data) for description in self._dims)
        columns_kernel("copy")(self._itemsize, self._count, source, outputs[0], *dims)


def plan(inputs: tuple[Layout | None, ...], outputs: tuple[Layout | None, ...], normalized_dims: int) -> Plan:
    """See ``aclnn.kernels.layer_norm_backward``."""
    dx, dw, db = outputs
    if dx is not None and 0 not in dx.shape and not columns_of(dx).distinct:
        return _InOrder(inputs, (dx, dw, db), normalized_dims)
    return LayerNormPlan(inputs, outputs, normalized_dims)
