"""Plans of a norm's gradients on the CPU: the division of work, the kernels for it, and the workspace."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Layout
from aclnn.kernels import Plan
from aclnn.kernels.cpu import threads
from aclnn.kernels.cpu.jit import Kernel, address_of, kernel
from aclnn.kernels.cpu.norm import blocks, short_rows
from aclnn.kernels.cpu.norm.arithmetic import sum_float64, sum_rows, write_float64, write_row
from aclnn.kernels.cpu.norm.structs import (
    COEFFICIENTS_BYTES,
    ELEMENTS_PER_US,
    GROUP,
    SEGMENT,
    SUMS_BYTES,
    BlockArgs,
    NormSpec,
    View,
)
from aclnn.kernels.cpu.simd.memory import FORMATS
from aclnn.kernels.cpu.simd.vector import LANES
from aclnn.kernels.cpu.target import STREAM_BYTES
from aclnn.kernels.layouts import Overlaps, in_order, same_elements, whole_lines

BLOCK_ROWS, BLOCKS, BLOCK_ELEMENTS = 64, 64, 1 << 16
"""Minimum rows, maximum number and minimum elements of blocks of rows, each with its own partial sums of dw and db."""
BATCH_ELEMENTS = 1 << 20
"""Elements of dy in a batch of rows that threads share by columns: it stays in the last-level cache between its two
passes."""
PARTS = 16
"""Maximum number of parts that the columns of a batch are divided into."""
COLUMN_CHUNK = 1 << 14
"""Columns of dw and db that a thread finalizes at a time."""
LINE, LONG_ROW = 64, 1 << 13
"""Bytes of a row below which its stores are never non-temporal, and from which on they are non-temporal even though
cache lines at its ends are only partly written."""
TILE_ELEMENTS = 1 << 16
"""Elements of a tile, for rows that are not contiguous."""
ALONE = 1 << 15
"""Number of elements up to which the calling thread computes everything in one call of a kernel."""

_ADDRESSES = Struct("9q")


class NormPlan:
    """A plan of a norm's gradients.

    Rows of up to 32,768 columns are divided into blocks, each computed by one thread. Longer or few rows are divided
    into batches, whose columns threads share.

    ``workspace_bytes``: 8 for each column, block and wanted gradient among dw and db; 4 for each column if dx is wanted
    and the weight is no contiguous float32, or short rows are not whole vectors; in batches, 16 for each row of a batch
    and 512 columns, and 40 for each row.
    """

    def __init__(
        self,
        inputs: tuple[Layout | None, ...],
        outputs: tuple[Layout | None, ...],
        normalized_dims: int,
        spec: NormSpec,
    ) -> None:
        dy, x, mean, rstd, weight = inputs
        dx, dw, db = outputs
        assert dy is not None
        assert x is not None
        assert rstd is not None
        assert spec.centred == (mean is not None)
        self.spec = spec
        self._matrices = [View(layout, normalized_dims) for layout in (dy, x, dx) if layout is not None]
        self._statistics = [View(layout, 0) for layout in (mean or rstd, rstd)]
        vectors = (weight if dx is not None else None, dw, db)
        self._vectors = [None if layout is None else View(layout, len(layout.shape)) for layout in vectors]
        split = len(dy.shape) - normalized_dims
        self._m, self._n = math.prod(dy.shape[:split]), math.prod(dy.shape[split:])
        self._empty = self._m == 0 or self._n == 0
        read = *inputs[:4], vectors[0]
        overwritten = None if self._empty else dx  # while inputs are still read
        alike = {(i, 0) for i, layout in enumerate((dy, x)) if dx is not None and same_elements(layout, dx)}
        self._overlaps = Overlaps(read, [overwritten], alike)
        self._sums = Overlaps((dw, db), (dw, db), [(0, 0), (1, 1)])
        self._segments = -(-self._n // SEGMENT)
        self._batched = self._n > blocks.LONGEST or self._m < 4 * BLOCK_ROWS
        least = max(self._m / BLOCKS, BLOCK_ELEMENTS / max(1, self._n))
        self._block_rows = max(BLOCK_ROWS, math.ceil(least / GROUP) * GROUP)
        self._blocks = 1 if self._batched else -(-self._m // self._block_rows)
        groups = max(1, BATCH_ELEMENTS // max(1, self._n * GROUP))
        self._batch_rows = min(self._m, groups * GROUP)
        same = len({view.dtype for view in self._matrices}) == 1
        self._packed = not same or not all(view.contiguous for view in self._matrices)
        self._dtype = dy.dtype if same else DataType.FLOAT
        self._short = self._takes_short_rows()
        self._checked = self._batched or (self.spec.dx and (self._short or self._packed))
        self._streams = self.spec.dx and not self._packed and self._may_stream(self._matrices[2])
        self._finish_step = COLUMN_CHUNK
        if any(view is not None and not view.layout.distinct for view in self._vectors[1:]):
            self._finish_step = max(1, self._n)  # a single thread, in order
        self._templates: dict[tuple[bool, str], BlockArgs] = {}
        self._description = self._describe()
        self.workspace_bytes = 0 if self._empty else self._description.coefficients_at + self._coefficients_bytes
        self._prepare()

    def _takes_short_rows(self) -> bool:
        """Return true if ``short_rows`` takes the rows: short, evenly spaced, and readable in whole vectors."""
        if not self.spec.dx or self._batched or self._n > short_rows.LONGEST:
            return False
        if self._n % LANES == 0 and self._n * self._dtype.itemsize > short_rows.LONGEST_BYTES:
            return False
        if self._packed:
            return True
        ascending = all(step >= self._n * view.itemsize for view in self._matrices for _, step in view.rows)
        return all(len(view.rows) == 1 for view in self._matrices) and (self._n % LANES == 0 or ascending)

    def _copies_weight(self) -> bool:
        """Return true if kernels read a copy of the weights: unless these are contiguous float32 in whole vectors."""
        weight = self._vectors[0]
        if not self.spec.dx or self._empty:
            return False
        if weight is None or not weight.contiguous or weight.dtype != DataType.FLOAT:
            return True
        return self._short and self._n % LANES != 0

    def _may_stream(self, dx: View) -> bool:
        """Return true if stores of dx are non-temporal, provided that its address is aligned."""
        row = self._n * dx.itemsize
        if self._m * row < STREAM_BYTES or any(stride % 16 for _, stride in dx.rows):
            return False
        touching = len(dx.rows) == 1 and dx.rows[0][1] == row
        return (row % 16 == 0 and row >= LINE and touching) or row >= LONG_ROW

    def _describe(self) -> BlockArgs:
        """Return the kernels' arguments, without addresses."""
        both = self.spec.dw and self.spec.db
        sum_bytes = 8 * (-(-self._n // LANES) * LANES)
        # A load waits for an earlier store whose address has the same low twelve bits (4K aliasing).
        db_offset = sum_bytes + (2048 + 128 - sum_bytes) % 4096 if both else 0
        partial_bytes = db_offset + sum_bytes * (self.spec.dw or self.spec.db)
        batch = -(-self._batch_rows // GROUP) * GROUP if self._batched else 0
        partials_at = whole_lines(4 * self._n) if self._copies_weight() else 0
        sums_at = partials_at + partial_bytes * self._blocks
        args = BlockArgs(
            m=self._m,
            n=self._n,
            inv_n=1 / max(1, self._n),
            segments=self._segments,
            block_rows=self._block_rows,
            batch_rows=self._batch_rows,
            partials_at=partials_at,
            sums_at=sums_at,
            coefficients_at=whole_lines(sums_at + SUMS_BYTES * self._segments * batch),
            copies_weight=self._copies_weight(),
            partial_bytes=partial_bytes,
            db_offset=db_offset,
            partial_count=0 if self._empty else self._blocks,
            packed=self._packed,
            tile_rows=max(1, self._m),
            tile_segments=max(1, self._segments),
        )
        self._coefficients_bytes = COEFFICIENTS_BYTES * batch
        if self._packed:
            if self._batched:
                args.tile_segments = min(self._segments, PARTS)
            columns = min(self._n, args.tile_segments * SEGMENT)
            args.tile_rows = max(GROUP, TILE_ELEMENTS // max(1, columns) // GROUP * GROUP)
            args.tile_dtype, args.tile_itemsize = int(self._dtype), self._dtype.itemsize
            # Tiles of dy, x and dx, and one in a tensor's own type; each padded to a whole vector.
            args.room_bytes = 4 * (whole_lines(min(args.tile_rows, self._m) * columns * 4) + 128)
        views = (*self._matrices[:2], *self._statistics, self._vectors[0], *self._matrices[2:3], *self._vectors[1:])
        names = ("dy", "x", "mean", "rstd", "weights", "dx", "dw", "db")
        for name, view in zip(names, views if self.spec.dx else (*views[:5], None, *views[5:]), strict=True):
            if view is not None:
                setattr(args, name, view.describe(self._packed and view in self._matrices))
        return args

    def _template(self, checked: bool, policy: str) -> BlockArgs:
        """Return the arguments of a call without its addresses, but with the kernels that it needs."""
        found = self._templates.get((checked, policy))
        if found is None:
            found = BlockArgs.from_buffer_copy(self._description)
            if not self._empty:
                self._compile(found, checked, policy)
            self._templates[checked, policy] = found
        return found

    def _compile(self, args: BlockArgs, checked: bool, policy: str) -> None:
        element, spec, centred = FORMATS[self._dtype], self.spec, self.spec.centred

        def made(name: str, key: tuple[object, ...], make: Callable[[], Any]) -> int:
            return address_of(kernel(f"norm-{name}-{self._dtype.name}", key, make))

        def made_sums(spec: NormSpec, checked: bool) -> int:
            return made("sum_rows", (*spec, checked), partial(sum_rows, element, spec, checked))

        args.sum_rows = made_sums(spec, checked)
        if self._packed:
            args.tiles = address_of(_driver(blocks.tiles))
        if not spec.dx:
            return
        if not checked:
            args.sum_rows_checked = made_sums(spec._replace(dw=False, db=False), True)
        args.write_row = made("write_row", (policy, centred), partial(write_row, element, policy, centred))
        args.sum_float64 = made("sum_float64", (centred,), partial(sum_float64, element, centred))
        args.write_float64 = made("write_float64", (centred,), partial(write_float64, element, centred))
        if self._short:
            make = partial(short_rows.short_rows, element, spec, policy)
            args.short_rows = made("short_rows", (*spec, policy), make)
            args.row_batch = short_rows.rows_of_a_batch(self._n)

    def _prepare(self) -> None:
        """Compile in phase one the kernels that runs will need.

        Rare cases compile others in phase two: dx in place of an input, a large dx at an address that is no multiple of
        16, and sums that overflow.
        """
        self._alone = self._batched and self._m * self._n <= ALONE
        threads.prepare(max(self._blocks, self._parts() if self._batched else 1, -(-self._n // self._finish_step)))
        for policy in self._policies():
            self._template(self._checked, policy)
        if not self._empty:
            _driver(blocks.batches if self._batched else blocks.blocks)
        if not self._alone:
            _driver(blocks.preparation)
            _driver(blocks.finish)

    def _policies(self) -> tuple[str, ...]:
        """Return the store policies for dx at multiples of 16 bytes, the one for aligned vectors first."""
        if not self._streams:
            return ("store",)
        dx = self._matrices[2]
        apart = any(stride % (16 * dx.itemsize) for _, stride in dx.rows)
        return ("trickle",) if apart else ("stream", "trickle")

    def _policy(self, dx: int) -> str:
        if not self._streams or dx % 16:
            return "store"
        return "trickle" if dx % (16 * self._matrices[2].itemsize) else self._policies()[0]

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``aclnn.kernels.Plan``."""
        if self._n == 0:
            return
        inputs, _copies = self._overlaps.apart(inputs, outputs)
        in_place = self.spec.dx and outputs[0] in inputs[:2]
        checked = self._checked or in_place
        args = BlockArgs.from_buffer_copy(self._template(checked, self._policy(outputs[0])))
        _ADDRESSES.pack_into(args, 0, *inputs, *outputs, workspace)
        if self._packed:
            rooms = np.empty(threads.shared().threads * args.room_bytes + 64, np.uint8)
            args.room = whole_lines(rooms.ctypes.data)
        address = ctypes.addressof(args)
        if self._alone and not self._empty:
            args.phase = blocks.ALL
            _driver(blocks.batches)(address, 0, 1, 1)
            return
        _driver(blocks.preparation)(address, 0, 1, 1)
        if self._batched and not self._empty:
            self._run_batches(args, address)
        elif not self._empty:
            self._run_blocks(args, address)
            if args.overflowed and not checked:
                # Again, by kernels that check for overflow: no input has been overwritten.
                again = self._template(True, self._policy(outputs[0]))
                args.sum_rows, args.sum_rows_checked, args.short_rows = again.sum_rows, 0, 0
                self._run_blocks(args, address)
        work_us = args.partial_count * self._n // ELEMENTS_PER_US
        step = self._n if self._sums.among(outputs[1:], outputs[1:]) else self._finish_step  # overlaps: in order
        threads.share(_driver(blocks.finish), address, step, self._n, work_us)

    def _run_blocks(self, args: BlockArgs, address: int) -> None:
        args.partial_count, args.rooms_taken = self._blocks, 0
        threads.share(_driver(blocks.blocks), address, 1, self._blocks, self._m * self._n // ELEMENTS_PER_US)

    def _parts(self) -> int:
        """Return the number of parts that the columns of a batch are divided into."""
        return min(self._segments, PARTS)

    def _run_batches(self, args: BlockArgs, address: int) -> None:
        driver, work_us = _driver(blocks.batches), self._batch_rows * self._n // (2 * ELEMENTS_PER_US)
        for args.batch in range(0, self._m, self._batch_rows):
            for args.phase in (blocks.SUMS, blocks.DECISIONS, blocks.WRITES) if self.spec.dx else (blocks.SUMS,):
                args.rooms_taken = 0
                if args.phase == blocks.DECISIONS:
                    driver(address, 0, 1, 1)
                else:
                    threads.share(driver, address, 1, self._parts(), work_us)


def _driver(make: Callable[[], threads.Loop]) -> Kernel:
    """Return a kernel that walks through rows and columns, for all data types."""
    return kernel(f"norm-{make.__name__}", (), make)


def plan(
    inputs: tuple[Layout | None, ...], outputs: tuple[Layout | None, ...], normalized_dims: int, centred: bool = True
) -> Plan:
    """See ``aclnn.kernels.layer_norm_backward``."""
    dx, dw, db = (layout is not None for layout in outputs)
    spec = NormSpec(dx, dw, db, centred)
    return in_order(lambda outputs: NormPlan(inputs, outputs, normalized_dims, spec), outputs, places=(0,))
