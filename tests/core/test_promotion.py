"""Type promotion against the document's table, written out."""

from __future__ import annotations

import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.promotion import promote

NAMES = [
    "f32",
    "f16",
    "f64",
    "bf16",
    "s8",
    "u8",
    "s16",
    "u16",
    "s32",
    "u32",
    "s64",
    "u64",
    "bool",
    "c32",
    "c64",
    "c128",
]
TYPES = dict(
    zip(
        NAMES,
        (
            *(D.FLOAT, D.FLOAT16, D.DOUBLE, D.BF16, D.INT8, D.UINT8, D.INT16, D.UINT16),
            *(D.INT32, D.UINT32, D.INT64, D.UINT64, D.BOOL, D.COMPLEX32, D.COMPLEX64, D.COMPLEX128),
        ),
        strict=True,
    )
)
TABLE = """
f32   f32  f32  f64  f32  f32  f32  f32  -    f32  -    f32  -    f32  c64  c64  c128
f16   f32  f16  f64  f32  f16  f16  f16  -    f16  -    f16  -    f16  c32  c64  c128
f64   f64  f64  f64  f64  f64  f64  f64  -    f64  -    f64  -    f64  c128 c128 c128
bf16  f32  f32  f64  bf16 bf16 bf16 bf16 -    bf16 -    bf16 -    bf16 c32  c64  c128
s8    f32  f16  f64  bf16 s8   s16  s16  -    s32  -    s64  -    s8   c32  c64  c128
u8    f32  f16  f64  bf16 s16  u8   s16  -    s32  -    s64  -    u8   c32  c64  c128
s16   f32  f16  f64  bf16 s16  s16  s16  -    s32  -    s64  -    s16  c32  c64  c128
u16   -    -    -    -    -    -    -    u16  -    -    -    -    -    -    -    -
s32   f32  f16  f64  bf16 s32  s32  s32  -    s32  -    s64  -    s32  c32  c64  c128
u32   -    -    -    -    -    -    -    -    -    u32  -    -    -    -    -    -
s64   f32  f16  f64  bf16 s64  s64  s64  -    s64  -    s64  -    s64  c32  c64  c128
u64   -    -    -    -    -    -    -    -    -    -    -    u64  -    -    -    -
bool  f32  f16  f64  bf16 s8   u8   s16  -    s32  -    s64  -    bool c32  c64  c128
c32   c64  c32  c128 c32  c32  c32  c32  -    c32  -    c32  -    c32  c32  c64  c128
c64   c64  c64  c128 c64  c64  c64  c64  -    c64  -    c64  -    c64  c64  c64  c128
c128  c128 c128 c128 c128 c128 c128 c128 -    c128 -    c128 -    c128 c128 c128 c128
"""
ROWS = {row.split()[0]: row.split()[1:] for row in TABLE.strip().splitlines()}


@pytest.mark.parametrize("first", NAMES)
def test_promotion_of_every_pair_matches_the_table(first: str) -> None:
    for second, expected in zip(NAMES, ROWS[first], strict=True):
        assert promote(TYPES[first], TYPES[second]) == TYPES.get(expected), (first, second)


def test_types_outside_the_table_promote_with_nothing() -> None:
    outside = [dtype for dtype in D if dtype not in TYPES.values()] + [D(5), D(99)]
    for dtype in outside:
        for other in (*TYPES.values(), *outside):
            assert promote(dtype, other) is None
            assert promote(other, dtype) is None
