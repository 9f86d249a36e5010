"""Rectangles of planes pooled in bins, and their gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.vision import roi_align
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Array, Break, Breaking, LibraryTests, Placed, Subject, torch, wide

FORWARD, V2, BACKWARD = roi_align.OPERATORS
PLANES, BINS = (2, 3, 5, 6), (2, 3)
NCHW = Format.FORMAT_NCHW
#: In the first image one that reaches beyond it, in the second one of less than a pixel.
BOXES = np.array([[0, -3, -3, 9, 12], [1, 4, 2, 4.5, 7], [0, 1, 1, 11, 5], [1, 3, 3, 4, 4]])
POOLED = {"pooledHeight": BINS[0], "pooledWidth": BINS[1], "spatialScale": 0.5}


def _forward(d: D) -> Arguments:
    of_half = d == D.FLOAT16
    return {
        "self": T(d, PLANES, NCHW),
        "rois": T(d, (4, 4)),
        "batchIndices": T(D.INT32, (4,)),
        "mode": "max" if of_half else "avg",
        "outputHeight": BINS[0],
        "outputWidth": BINS[1],
        "samplingRatio": 2 if of_half else 0,
        "spatialScale": 0.5,
        "out": T(d, (4, 3, *BINS), NCHW),
    }


def _v2(d: D) -> Arguments:
    given = {"self": T(d, PLANES, NCHW), "boxes": T(d, (4, 5)), "out": T(d, (4, 3, *BINS), NCHW)}
    return given | POOLED | {"samplingRatio": 3, "aligned": d == D.FLOAT}


def _backward(d: D) -> Arguments:
    given: Arguments = {"gradOutput": T(d, (4, 3, *BINS), NCHW), "boxes": T(d, (4, 5)), "inputShape": PLANES}
    return given | POOLED | {"samplingRatio": 0, "aligned": True, "gradInput": T(d, PLANES, NCHW)}


def _pooled(x: Any, boxes: Any, bins: tuple[int, int], scale: float, samples: int, aligned: bool, mode: str) -> Any:
    """Sample each point by itself, at the border where it is less than a pixel outside, zero beyond."""
    found = []
    for image, x0, y0, x1, y1 in boxes.tolist():
        lines = []
        for low, high, count, extent in ((y0, y1, bins[0], x.shape[2]), (x0, x1, bins[1], x.shape[3])):
            begin, size = low * scale - aligned * 0.5, (high - low) * scale
            size = size if aligned else max(size, 1.0)
            each = samples or int(np.ceil(size / count))
            places = begin + size / (count * each) * (torch.arange(count * each, dtype=torch.float64) + 0.5)
            lines.append((places, (places >= -1) & (places <= extent), 2 * places / (extent - 1) - 1, each))
        (_, inside_y, y, rows), (_, inside_x, across, columns) = lines
        grid = torch.stack(torch.meshgrid(across, y, indexing="xy"), -1)[None]
        plane = x[int(image) : int(image) + 1]
        points = torch.nn.functional.grid_sample(plane, grid, padding_mode="border", align_corners=True)[0]
        points = points * (inside_y[:, None] & inside_x[None])
        points = points.reshape(-1, bins[0], rows, bins[1], columns)
        found.append(points.mean((2, 4)) if mode == "avg" else points.amax((2, 4)))
    return torch.stack(found)


def _reference(a: Mapping[str, Any]) -> Any:
    if "rois" in a:
        boxes = torch.cat((wide(a["batchIndices"])[:, None], wide(a["rois"])), 1)
        return _pooled(wide(a["self"]), boxes, BINS, a["spatialScale"], a["samplingRatio"], False, a["mode"])
    attributes = (BINS, a["spatialScale"], a["samplingRatio"], a["aligned"], "avg")
    if "self" in a:
        return _pooled(wide(a["self"]), wide(a["boxes"]), *attributes)
    x = torch.zeros(PLANES, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(_pooled(x, wide(a["boxes"]), *attributes), x, wide(a["gradOutput"]))[0]


def numbers(operator: str, name: str, array: Array) -> Array:
    known = {"boxes": BOXES, "rois": BOXES[:, 1:], "batchIndices": BOXES[:, 0]}
    return known.get(name, array)


BREAKS: Mapping[str, Breaking] = {
    "data type": lambda o, name: Break(dtype(D.FLOAT16 if o is BACKWARD else D.INT64, name), "ACL_"),
    "format ACL_FORMAT_NCHW": lambda o, name: Break({name: {"format": Format.FORMAT_ND}}, "ACL_FORMAT_NCHW"),
    "format ACL_FORMAT_ND": lambda o, name: Break({name: {"format": NCHW}}, "ACL_FORMAT_ND"),
    "4 dimensions": lambda o, name: Break(shape((2, 3, 5), name), "4 dimensions"),
    "2 dimensions": lambda o, name: Break(shape((4,), name), "2 dimensions"),
    "4 numbers in a row": lambda o, name: Break(shape((4, 5), name), "rows of 4"),
    "5 numbers in a row": lambda o, name: Break(shape((4, 4), name), "rows of 5"),
    "shape is one for each rectangle": lambda o, name: Break(shape((3,), name), "[4]"),
    "planes have elements": lambda o, name: Break(shape((2, 3, 0, 6), name), "have elements"),
    "shape is the bins": lambda o, name: Break(shape((4, 3, 3, 3), name), "[4, 3, 2, 3]"),
    "shape is that of the planes": lambda o, name: Break(shape((2, 3, 6, 5), name), "[2, 3, 5, 6]"),
    "4 extents": lambda o, name: Break({name: (2, 3, 5)}, "4 extents"),
    "text": lambda o, name: Break({name: None}, "'max'"),
    "allowed value": lambda o, name: Break({name: "mean"}, "'max'"),
    "0 or more": lambda o, name: Break({name: -1}, "0 or more"),
    "a finite number above 0": lambda o, name: Break({name: 0.0}, "above 0"),
}


class TestRoiAlign(LibraryTests):
    subject = Subject(
        roi_align.OPERATORS,
        calls={FORWARD.name: _forward, V2.name: _v2, BACKWARD.name: _backward},
        references=dict.fromkeys((FORWARD.name, V2.name, BACKWARD.name), _reference),
        default=(D.FLOAT, D.FLOAT16),
        dtypes={BACKWARD.name: (D.FLOAT,)},
        numbers=numbers,
        empty={
            FORWARD.name: {
                "self": T(D.FLOAT, (0, 3, 5, 6), NCHW),
                "rois": {"shape": (0, 4)},
                "batchIndices": {"shape": (0,)},
                "out": T(D.FLOAT, (0, 3, *BINS), NCHW),
            },
            V2.name: {
                "self": T(D.FLOAT, PLANES, NCHW),
                "boxes": {"shape": (0, 5)},
                "out": T(D.FLOAT, (0, 3, *BINS), NCHW),
            },
            BACKWARD.name: {
                "gradOutput": T(D.FLOAT, (0, 3, *BINS), NCHW),
                "boxes": {"shape": (0, 5)},
                "inputShape": (0, 3, 5, 6),
                "gradInput": T(D.FLOAT, (0, 3, 5, 6), NCHW),
            },
        },
        breaks=BREAKS,
        terms=8,
    )


@pytest.mark.parametrize(
    ("aligned", "line"),
    [(False, [4.5, 6.5, 8.5]), (True, [2.75, 4.5, 6.5])],
    ids=["as they are", "half a pixel before"],
)
def test_roi_align_reproduces_the_documents_example(aligned: bool, line: list[float]) -> None:
    """The document prints the first; the other is ``torch_npu``'s test's."""
    x = Placed(np.arange(1, 37, dtype=np.float32).reshape(1, 1, 6, 6), "contiguous")
    boxes = Placed(np.float32([[0, -2, -2, 22, 22]]), "contiguous")
    out = Placed(np.zeros((1, 1, 3, 3), np.float32), "contiguous")
    for planes in (x, out):
        planes.tensor.format = NCHW
    attributes = {"pooledHeight": 3, "pooledWidth": 3, "spatialScale": 0.25, "samplingRatio": 2, "aligned": aligned}
    arguments = {"self": x.tensor, "boxes": boxes.tensor, "out": out.tensor} | attributes
    prepare(V2, arguments, Product.ATLAS_A2).run()
    assert out.view[0, 0, 0].tolist() == line


def test_rectangles_without_image_are_zeros() -> None:
    call = {name: value for name, value in _forward(D.FLOAT).items() if not isinstance(value, T)}
    shapes = {"self": (0, 3, 5, 6), "rois": (4, 4), "batchIndices": (4,), "out": (4, 3, *BINS)}
    placed = {
        name: Placed(np.full(of, 7, np.int32 if name == "batchIndices" else np.float32), "contiguous")
        for name, of in shapes.items()
    }
    for name in ("self", "out"):
        placed[name].tensor.format = NCHW
    prepare(FORWARD, call | {name: each.tensor for name, each in placed.items()}, Product.ATLAS_A2).run()
    assert not placed["out"].view.any()


def test_a_nonexistent_image_is_rejected() -> None:
    arrays = {"self": np.ones(PLANES), "boxes": np.tile([2.0, 0, 0, 1, 1], (4, 1)), "out": np.ones((4, 3, *BINS))}
    placed = {name: Placed(array.astype(np.float32), "contiguous") for name, array in arrays.items()}
    for name in ("self", "out"):
        placed[name].tensor.format = NCHW
    call = _v2(D.FLOAT) | {name: each.tensor for name, each in placed.items()}
    with pytest.raises(AclnnError, match="images from 0 to 1, got 2"):
        prepare(BY_NAME["roi_align_v2"], call, Product.ATLAS_A2).run()
