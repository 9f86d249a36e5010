"""LayerNorm's compiled functions, and the working memory that they are called with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.kernels.cpu.jit import Kernel, address_of, kernel
from aclnn.kernels.cpu.layer_norm import columns, down, exact, segments, short
from aclnn.kernels.cpu.layer_norm import job as jobs
from aclnn.kernels.cpu.layer_norm.batches import batch_dx, batch_sums
from aclnn.kernels.cpu.layer_norm.elements import ELEMENTS
from aclnn.kernels.cpu.layer_norm.rows import SHORT, blocks
from aclnn.kernels.cpu.layer_norm.segments import NormSpec
from aclnn.kernels.cpu.simd.vector import LANES
from aclnn.kernels.cpu.threads import Loop


def aligned(size: int) -> int:
    """The size rounded up to whole cache lines."""
    return -(-size // 64) * 64


class Scratch(threading.local):
    """Each thread's own working memory, kept between calls; the contents last until the thread asks for it again."""

    def __init__(self) -> None:
        self.memory = np.empty(0, dtype=np.uint8)

    def address(self, size: int) -> int:
        """Where ``size`` bytes lie, 64-byte aligned."""
        if self.memory.size < size + 64:
            self.memory = np.empty(size + 64, dtype=np.uint8)
        return int(self.memory.ctypes.data + 63) & -64


working = Scratch()


def columns_kernel(name: str) -> Kernel:
    """One of the functions in ``columns``."""
    return kernel(f"layer_norm_{name}", (), lambda: getattr(columns, name))


DRIVERS: dict[str, Callable[[], Loop]] = {
    "blocks": partial(blocks, one_by_one=False),
    "blocks_one_by_one": partial(blocks, one_by_one=True),
    "batch_sums": batch_sums,
    "batch_dx": batch_dx,
    "finish": columns.finish,
    "judge": lambda: exact.judge,
}


def driver(name: str) -> Kernel:
    """What goes through rows and columns, for all data types."""
    return kernel(f"layer_norm_{name}", (), DRIVERS[name])


def taken_in_sets(spec: NormSpec, columns: int, size: int, ascending: bool) -> bool:
    """Whether sets are made of evenly spaced rows of so many columns, with elements of so many bytes.

    ``ascending``: each row is in memory behind the one before.
    """
    if spec.dx:
        whole = columns % LANES == 0
        return columns <= short.LONGEST_BYTES // size and (whole or ascending)
    return down.SHORTEST <= columns < down.LONG


def addresses(
    dtype: DataType,
    spec: NormSpec,
    columns: int,
    careful: bool,
    one_by_one: bool,
    sets: bool,
    batched: bool,
    way: str,
) -> dict[int, int]:
    """The fields of a job that say where the kernels are, for rows of so many columns.

    ``way`` is how dx is written: ``store``, ``stream`` in whole vectors, or ``trickle``, 16 bytes at a time.
    """
    element, centred = ELEMENTS[dtype], spec.centred
    three = element, element, element

    def made(name: str, key: tuple[object, ...], make: Callable[[], segments.Kernel]) -> int:
        return address_of(kernel(f"layer_norm_{name}", (int(dtype), *key), make))

    def made_sum_row(spec: NormSpec, careful: bool, last: bool) -> int:
        make = partial(segments.sum_row, element, element, spec, careful, last)
        return made("sum_row", (*spec, careful, last), make)

    found = {jobs.FINISH: address_of(driver("finish"))}
    if one_by_one:
        found[jobs.SUM_ROW] = made_sum_row(spec, careful, last=False)
        found[jobs.SUM_LAST_ROW] = made_sum_row(spec, careful, last=True)
    else:
        make = partial(segments.sum_group, element, element, spec, careful)
        found[jobs.SUM_GROUP] = made("sum_group", (*spec, careful), make)
    if sets and spec.dx:
        found[jobs.SETS] = made("sets", (*spec, way), lambda: short.sets(element, element, element, spec, way))
        found[jobs.SET_ROWS] = short.rows_of_a_set(columns)
    elif sets:
        narrow = columns <= down.NARROW
        found[jobs.SETS] = made("sums_down", (*spec, narrow), lambda: down.sums(element, element, spec, narrow))
        found[jobs.SET_ROWS] = down.SET
    if spec.dx and not careful:
        found[jobs.MEASURE] = made_sum_row(spec._replace(dw=False, db=False), careful=True, last=False)
    if spec.dx:
        found[jobs.JUDGE] = address_of(driver("judge"))
        found[jobs.WRITE_ROW] = made("write_row", (way, centred), partial(segments.write_row, *three, way, centred))
        found[jobs.ADD_EXACTLY] = made("add_exactly", (centred,), partial(exact.add_exactly, *three[:2], centred))
        found[jobs.WRITE_EXACTLY] = made("write_exactly", (centred,), partial(exact.write_exactly, *three, centred))
        if columns <= SHORT and not sets and not batched:
            make = partial(segments.write_group, *three, way, centred)
            found[jobs.WRITE_GROUP] = made("write_group", (way, centred), make)
    return found
