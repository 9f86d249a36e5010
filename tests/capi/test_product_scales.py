"""aclnnTransQuantParam, which makes scales of products on the host."""

from __future__ import annotations

import numpy as np
import pytest

from aclnn import cann
from aclnn.capi.prototype import call_of
from tests.cases.table import INVALID, NULL

MARK = 1 << 46


def test_scales_and_offsets_are_packed_as_documented() -> None:
    """19 bits of each scale, a mark and nine bits of an offset, with zeros up to 16."""
    one = 0x3F800000 | MARK | 1 << 37
    found = call_of("aclnnTransQuantParam")([1.0, 1.0, 1.0], 3, [1.0, 1.0, 1.0], 3)
    assert found == (0, [one] * 3 + [0] * 13, 16)


def test_a_single_scale_is_not_repeated_and_offsets_alone_have_no_mark() -> None:
    scale = float(np.uint32(0x3F803FFF).view(np.float32))
    assert call_of("aclnnTransQuantParam")([scale], 1, None, 0) == (0, [0x3F802000 | MARK], 1)
    status, stored, count = call_of("aclnnTransQuantParam")([scale], 1, [-300.0, 2.5], 2)
    assert (status, count) == (0, 16)
    assert stored == [0x3F802000 | MARK | 0x100 << 37, 2 << 37, *[0] * 14]


@pytest.mark.parametrize(
    ("scales", "offsets", "status", "text"),
    [
        (None, None, NULL, "scaleArray: expected an address, got null"),
        ([], None, INVALID, "scaleSize: expected at least 1, got 0"),
        ([1.0], [], INVALID, "offsetSize: expected at least 1, got 0"),
    ],
)
def test_invalid_arguments_are_rejected(
    scales: list[float] | None, offsets: list[float] | None, status: int, text: str
) -> None:
    found = call_of("aclnnTransQuantParam")(scales, len(scales or ()), offsets, len(offsets or ()))
    assert found == (status, [], 0)
    assert text in (cann.aclGetRecentErrMsg() or "")
