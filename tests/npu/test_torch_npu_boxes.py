"""Boxes, and what else torch_npu calls by type on Atlas A2; test_torch_npu.py runs it by ``aclnn torch-npu run``."""

from __future__ import annotations

import os
from typing import Any

import pytest

if "ASCEND_HOME_PATH" not in os.environ:
    pytest.skip("needs aclnn torch-npu run", allow_module_level=True)
if not os.environ.get("ACLNN_SOC_NAME", "Ascend910B2").startswith("Ascend910B"):
    pytest.skip("other products call functions", allow_module_level=True)

torch: Any = pytest.importorskip("torch")
torch_npu: Any = pytest.importorskip("torch_npu")
modules: Any = pytest.importorskip("torch_npu.contrib.module")


def sample(*shape: int, seed: int = 0) -> Any:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def boxes(count: int, seed: int) -> Any:
    """Return boxes with their corners as columns."""
    low, size = sample(2, count, seed=seed), sample(2, count, seed=seed + 1) + 0.1
    return torch.cat([low, low + size])


def measures(first: Any, second: Any) -> dict[str, Any]:
    """Compute the measures of pairs of boxes by definition."""
    first, second = first.double(), second.double()
    inner = (torch.minimum(first[2:], second[2:]) - torch.maximum(first[:2], second[:2])).clamp(0)
    hull = torch.maximum(first[2:], second[2:]) - torch.minimum(first[:2], second[:2])
    sizes = [each[2:] - each[:2] for each in (first, second)]
    union = sizes[0].prod(0) + sizes[1].prod(0) - inner.prod(0)
    iou = inner.prod(0) / union
    offset = (first[:2] + first[2:] - second[:2] - second[2:]) / 2
    diou = iou - offset.square().sum(0) / hull.square().sum(0)
    v = 4 / torch.pi**2 * (torch.atan2(*sizes[1]) - torch.atan2(*sizes[0])).square()
    return {
        "giou": iou - 1 + union / hull.prod(0),
        "diou": diou,
        "ciou": diou - v * v / (1 - iou + v),
    }


@pytest.mark.parametrize(
    ("name", "by_centre"), [("giou", True), ("diou", False), ("diou", True), ("ciou", False), ("ciou", True)]
)
def test_iou_giou_diou_and_ciou_match_their_definitions(name: str, by_centre: bool) -> None:
    first, second = boxes(7, 0), boxes(7, 3)
    expected = measures(first, second)[name]
    if by_centre:
        first, second = (torch.cat([(each[:2] + each[2:]) / 2, each[2:] - each[:2]]) for each in (first, second))
    found = getattr(torch_npu, f"npu_{name}")(
        first.to("npu"), second.to("npu"), trans=by_centre, is_cross=False, mode=0
    )
    torch.testing.assert_close(found.cpu().double().flatten(), expected, rtol=1e-5, atol=1e-6)


def test_bounding_box_encode_prints_the_documents_digits() -> None:
    """The document's digits are of 16 bits; torch_npu's tests expect NaN for a ratio below 0 on Atlas A2."""
    anchors = torch.tensor([[1.0, 2.0, 3.0, 4.0], [3.0, 4.0, 5.0, 6.0]]).to("npu")
    truth = torch.tensor([[5.0, 6.0, 7.0, 8.0], [7.0, 8.0, 9.0, 6.0]]).to("npu")
    encoded = torch_npu.npu_bounding_box_encode(anchors, truth, 0, 0, 0, 0, 0.1, 0.1, 0.2, 0.2)
    printed = torch.tensor([[13.3281, 13.3281, 0.0, 0.0], [13.3281, 6.6641, 0.0, torch.nan]])
    torch.testing.assert_close(encoded.cpu(), printed, rtol=1e-3, atol=1e-3, equal_nan=True)
    decoded = torch_npu.npu_bounding_box_decode(anchors, truth, 0, 0, 0, 0, 1, 1, 1, 1, (10, 10), 0.1)
    torch.testing.assert_close(decoded.cpu(), torch.tensor([[2.5, 6.5, 9.0, 9.0], [9.0, 9.0, 9.0, 9.0]]))


@pytest.mark.parametrize("end", [0, 1])
def test_roi_align_matches_grid_sample(end: int) -> None:
    """Compare with points sampled by ``grid_sample`` in the second image."""
    features, roi = sample(2, 3, 9, 8), [1.0, 3.0, 2.0, 14.0, 15.0]
    found = torch_npu.npu_roi_align(features.to("npu"), torch.tensor([roi]).to("npu"), 0.5, 3, 2, 2, end)
    x, y = (
        low / 2 + ((high + end) / 2 - low / 2) * (torch.arange(2 * bins) + 0.5) / (2 * bins)
        for low, high, bins in ((roi[1], roi[3], 2), (roi[2], roi[4], 3))
    )
    grid = torch.stack(torch.meshgrid(2 * x / 7 - 1, 2 * y / 8 - 1, indexing="xy"), -1)
    planes = torch.nn.functional.grid_sample(features[1:], grid[None], padding_mode="border", align_corners=True)
    torch.testing.assert_close(found.cpu(), torch.nn.functional.avg_pool2d(planes, 2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("aligned", "line"), [(False, [0.25] * 6), (True, [0.5625, 0.375, 0.375, 0.375, 0.375, 0.1875])]
)
def test_roi_align_gradients_are_those_of_torch_npus_tests(aligned: bool, line: list[float]) -> None:
    """Gradients also for bins whose rectangles begin half a pixel earlier."""
    x = torch.arange(1.0, 37.0, device="npu").reshape(1, 1, 6, 6).requires_grad_()
    align = modules.ROIAlign((3, 3), 0.25, 2, aligned=aligned)
    y = align(x, torch.tensor([[0, -2.0, -2.0, 22.0, 22.0]], device="npu"))
    torch.testing.assert_close(
        y[0, 0, 0].detach().cpu(), torch.tensor([2.75, 4.5, 6.5] if aligned else [4.5, 6.5, 8.5])
    )
    y.sum().backward()
    torch.testing.assert_close(x.grad[0, 0, 0].cpu(), torch.tensor(line))


def test_npu_iou_is_that_of_torch_npus_tests() -> None:
    """The second boxes are the foreground, and both areas are longer and wider by 0.01."""
    first = torch.tensor([[0, 0, 10, 10], [10, 10, 20, 20], [32, 32, 38, 42]]).half().to("npu")
    second = torch.tensor([[0, 0, 10, 20], [0, 10, 10, 10], [10, 10, 20, 20]]).half().to("npu")
    for mode, printed in enumerate(([0.4985, 0.9961], [0.4990, 0.9980])):
        found = torch_npu.npu_iou(first, second, mode).cpu().float()
        expected = torch.zeros(3, 3)
        expected[0, 0], expected[2, 1] = printed
        torch.testing.assert_close(found, expected, rtol=0, atol=5e-4)


def test_anchor_response_flags_mark_the_cells_of_boxes() -> None:
    boxes = 100 * sample(50, 4)
    found = torch_npu.npu_anchor_response_flags(boxes.to("npu"), [60, 60], [2, 2], 9)
    expected = torch.zeros(60, 60, dtype=torch.uint8)
    columns, rows = ((boxes[:, :2] + boxes[:, 2:]) / 4).long().T
    expected[rows, columns] = 1
    assert torch.equal(found.cpu(), expected.flatten().repeat_interleave(9))


def test_nms_v4_keeps_boxes_without_overlap() -> None:
    corners, scores = boxes(30, 5).T.contiguous(), sample(30, seed=9)
    kept, valid = torch_npu.npu_nms_v4(
        corners.to("npu"), scores.to("npu"), 20, torch.tensor(0.3).to("npu"), torch.tensor(0.25).to("npu")
    )
    expected: list[int] = []
    for at in scores.argsort(descending=True).tolist():
        high = torch.minimum(corners[at, 2:], corners[expected, 2:])
        inner = (high - torch.maximum(corners[at, :2], corners[expected, :2])).clamp(0).prod(1)
        areas = (corners[:, 2:] - corners[:, :2]).prod(1)
        if scores[at] > 0.25 and not (inner / (areas[at] + areas[expected] - inner) > 0.3).any():
            expected.append(at)
    assert 1 < len(expected) < 20
    assert valid.item() == len(expected)
    assert kept.cpu().tolist() == expected + [0] * (20 - len(expected))


def test_bmm_v2_one_hot_and_cross_entropy_by_type_match_pytorch() -> None:
    first, second = sample(2, 3, 4), sample(2, 4, 5, seed=1)
    product = torch_npu.npu_bmmV2(first.to("npu"), second.to("npu"), [])
    torch.testing.assert_close(product.cpu(), first @ second)
    places = torch.tensor([0, 2, 1])
    one_hot = torch_npu.npu_one_hot(places.int().to("npu"), depth=4)
    assert torch.equal(one_hot.cpu(), torch.nn.functional.one_hot(places, 4).float())
    logits, labels = sample(3, 5), sample(3, 5, seed=2).softmax(-1)
    loss = torch_npu.npu_softmax_cross_entropy_with_logits(logits.to("npu"), labels.to("npu"))
    torch.testing.assert_close(loss.cpu(), torch.nn.functional.cross_entropy(logits, labels, reduction="none"))
