"""Overlaps of boxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.operators.library.vision import boxes
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import (
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Subject,
    torch,
    wide,
)


def _call(d: D) -> Arguments:
    pairs = d != D.BF16
    return {
        "bBoxes": T(d, (3, 4)),
        "gtBoxes": T(d, (2 if pairs else 3, 4)),
        "mode": "iou" if pairs else "iof",
        "eps": 0.25,
        "aligned": not pairs,
        "overlap": T(d, (3, 2 if pairs else 1)),
    }


def _columns(d: D) -> Arguments:
    boxes, overlap = T(d, (4, 1024)), T(d, (1, 1024))
    half = d == D.FLOAT16
    given: Arguments = {"bBoxes": boxes, "gtBoxes": boxes, "trans": half, "isCross": False}
    return given | {"mode": "iof" if half else "iou", "overlap": overlap, "atanSub": overlap}


def _complete(a: Mapping[str, Any]) -> Any:
    """By the definition, box by box."""
    first, second = (wide(a[name]) for name in ("bBoxes", "gtBoxes"))
    if a["trans"]:
        first, second = (torch.cat((b[:2] - b[2:] / 2, b[:2] + b[2:] / 2)) for b in (first, second))
    (w, h), (wg, hg) = (b[2:] - b[:2] for b in (first, second))
    common = (torch.minimum(first[2:], second[2:]) - torch.maximum(first[:2], second[:2])).clamp(min=0).prod(0)
    iou = common / (wg * hg if a["mode"] == "iof" else w * h + wg * hg - common)
    diagonal = (torch.maximum(first[2:], second[2:]) - torch.minimum(first[:2], second[:2])).square().sum(0)
    distance = ((first[:2] + first[2:] - second[:2] - second[2:]) / 2).square().sum(0)
    turned = torch.atan(wg / hg) - torch.atan(w / h)
    unlike = 4 / torch.pi**2 * turned**2
    weight = torch.where(unlike > 0, unlike / (1 - iou + unlike), 0.0)
    return (iou - distance / diagonal - weight * unlike)[None], turned[None]


def _covered(box: Any) -> Any:
    """Cells of a sixteenth that a box covers."""
    at = (torch.arange(0, 20 * 16) + 0.5) / 16
    (x0, y0, x1, y1) = box
    return ((at > x0) & (at < x1))[:, None] & ((at > y0) & (at < y1))[None]


def _reference(a: Mapping[str, Any]) -> Any:
    """Count cells; eps widens the boxes, and so what they share."""
    first, second = (wide(a[name]).clone() for name in ("bBoxes", "gtBoxes"))
    for each in (first, second):
        each[:, 2:] += a["eps"]
    rows = []
    for i, box in enumerate(first):
        others = second[i : i + 1] if a["aligned"] else second
        covered = [(_covered(box), _covered(other)) for other in others]
        wholes = [(b if a["mode"] == "iof" else x | b).sum() for x, b in covered]
        rows.append([((x & b).sum().double() / whole).item() for (x, b), whole in zip(covered, wholes, strict=True)])
    return torch.tensor(rows, dtype=torch.float64)


def numbers(operator: str, name: str, array: Array) -> Array:
    if name in ("overlap", "atanSub"):
        return array
    if operator == "ciou":
        # Of at least a pixel, from quarters to quarters, which 16 bits hold.
        first = np.round(np.abs(array) * 4) / 4
        first[2:] = first[:2] + 1 + first[2:]
        return first
    corners = np.array([[0, 0, 10, 10], [5, 2.5, 15, 10], [12, 12, 14, 16]])[: len(array)]
    return corners + (0.5 if name == "gtBoxes" else 0.0)


BREAKS: Mapping[str, Breaking] = {
    "2 dimensions": lambda o, name: Break(shape((3,), name), "2 dimensions"),
    "same data type as bBoxes": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "format ACL_FORMAT_ND": lambda o, name: Break({name: {"format": Format.FORMAT_NCHW}}, "ACL_FORMAT_ND"),
    "allowed value": lambda o, name: Break(
        *(({name: True}, "False") if name == "isCross" else ({name: "giou"}, "iof"))
    ),
    "columns": lambda o, name: Break(shape((4, 1000), name), "multiple of 1024"),
    "same shape as bBoxes": lambda o, name: Break(shape((4, 2048), name), "[4, 1024]"),
    "shape is one for each column": lambda o, name: Break(shape((1024, 1), name), "[1, 1024]"),
    "corners": lambda o, name: Break(shape((3, 5), name), "rows of 4 numbers"),
    "as many as bBoxes": lambda o, name: Break({"aligned": True}, "3 boxes"),
    "shape is pairs of boxes": lambda o, name: Break(shape((2, 3), name), "[3, 2]"),
    "text": lambda o, name: Break({name: None}, "'iof'"),
    "at least 0": lambda o, name: Break({name: -1.0}, "at least 0"),
}


class TestBoxes(LibraryTests):
    subject = Subject(
        boxes.OPERATORS,
        calls={"iou": _call, "ciou": _columns},
        references={"iou": _reference, "ciou": _complete},
        default=TRAINED,
        dtypes={"ciou": (D.FLOAT, D.FLOAT16)},
        empty={
            "ciou": {
                **{name: {"shape": (4, 0)} for name in ("bBoxes", "gtBoxes")},
                **{name: {"shape": (1, 0)} for name in ("overlap", "atanSub")},
            },
            "iou": {"bBoxes": {"shape": (0, 4)}, "gtBoxes": {"shape": (2, 4)}, "overlap": {"shape": (0, 2)}},
        },
        breaks=BREAKS,
        numbers=numbers,
    )
