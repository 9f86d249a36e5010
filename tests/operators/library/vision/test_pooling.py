"""Max, average and adaptive pooling with their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.vision import pooling, upsampling
from tests.cases.table import INVALID, Arguments, T, changed, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    IMAGES,
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    described,
    label_by_rank,
    labelled,
    no_samples,
    tensors_of,
    to_torch,
    torch,
    wide,
)

POOLING = {"kernelSize": (3, 2), "stride": (2,), "padding": (1, 0), "ceilMode": True}

LARGEST, POOLED = POOLING | {"dilation": (1,)}, (2, 4, 3, 2)

AVERAGE = POOLING | {"countIncludePad": False, "divisorOverride": 0, "cubeMathType": 1}


def _places(indices: Any) -> Any:
    """The place in its window of 3 × 2 of each maximum, from its index in the plane of 5 × 4."""
    rows, columns = indices // 4, indices % 4
    return (rows - (2 * torch.arange(3)[:, None] - 1)) * 2 + columns - 2 * torch.arange(2)


def _rank(operator: Operator) -> int:
    return 3 if "3d" in operator.name else 2


def _led(a: Mapping[str, Any], size: tuple[int, ...]) -> Any:
    """Return the gradients added at their indices in planes or volumes."""
    places, gradients = a["indices"].long().flatten(2), wide(a["gradOutput"]).flatten(2)
    total = torch.zeros(*size[:2], math.prod(size[2:]), dtype=torch.float64)
    return total.scatter_add(2, places, gradients).reshape(size)


def _masked_maxima(a: Mapping[str, Any]) -> Any:
    y, indices = REFERENCES["max_pool2d_with_indices"](a)
    mask = torch.zeros(2, 4, 6, 64)
    for at, place in np.ndenumerate(np.asarray(_places(indices)).reshape(2, 4, 6)):
        image, channel, window = at
        mask.reshape(-1)[384 * image + 64 * int(place) + 2 * window] += 1 << channel
    return y, mask


def _unmasked(a: Mapping[str, Any]) -> Any:
    """The gradient of the third element of each window, to which ``numbers`` lets the mask point."""
    total = torch.zeros(IMAGES, dtype=torch.float64)
    total[:, :, ::2, ::2] = wide(a["gradOutput"])
    return total


#: Volumes of 3 × 5 × 4, in windows of 2 × 3 × 2.
VOLUMES, BLOCKS = (2, 2, 3, 5, 4), (2, 2, 2, 3, 2)
BLOCK = {"kernelSize": (2, 3, 2), "stride": (2,), "padding": (1, 1, 0), "ceilMode": False}
BLOCK_MEAN = BLOCK | {"countIncludePad": True, "divisorOverride": 0}

_CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "max_pool": lambda d: {
        "kernelShape": (3, 2),
        "strides": (2,),
        "autoPad": 0,
        "pads": (1, 0, 0, 1),
        "dilations": (1,),
        "ceilMode": 1,
        "self": T(d, IMAGES),
        "out": T(d, POOLED),
    },
    "max_pool2d_with_indices": lambda d: (
        LARGEST | {"self": T(d, IMAGES), "out": T(d, POOLED), "indices": T(D.INT64, POOLED)}
    ),
    "max_pool2d_with_indices_backward": lambda d: (
        LARGEST
        | {
            "gradOutput": T(d, POOLED),
            "self": T(d, IMAGES),
            "indices": T(D.INT32, POOLED),
            "gradInput": T(d, IMAGES),
        }
    ),
    "max_pool2d_with_mask": lambda d: (
        LARGEST | {"self": T(d, IMAGES), "out": T(d, POOLED), "indices": T(D.INT8, (2, 4, 6, 64))}
    ),
    "max_pool2d_with_mask_backward": lambda d: (
        LARGEST
        | {"gradOutput": T(d, POOLED), "self": T(d, IMAGES), "indices": T(D.INT8, (2, 4, 6, 64))}
        | {"gradInput": T(d, IMAGES)}
    ),
    "max_pool3d_with_argmax": lambda d: (
        BLOCK | {"dilation": (1,), "self": T(d, VOLUMES), "out": T(d, BLOCKS), "indices": T(D.INT32, BLOCKS)}
    ),
    "max_pool3d_with_argmax_backward": lambda d: (
        BLOCK
        | {"dilation": (1,), "self": T(d, VOLUMES), "indices": T(D.INT32, BLOCKS)}
        | {"gradOutput": T(d, BLOCKS), "gradInput": T(d, VOLUMES)}
    ),
    "avg_pool3d": lambda d: BLOCK_MEAN | {"self": T(d, VOLUMES), "out": T(d, BLOCKS)},
    "avg_pool3d_backward": lambda d: (
        BLOCK_MEAN | {"self": T(d, VOLUMES), "gradOutput": T(d, BLOCKS), "gradInput": T(d, VOLUMES)}
    ),
    "adaptive_avg_pool3d": lambda d: {"self": T(d, VOLUMES), "outputSize": (2, 3, 2), "out": T(d, BLOCKS)},
    "adaptive_avg_pool3d_backward": lambda d: {"gradOutput": T(d, BLOCKS), "self": T(d, VOLUMES), "out": T(d, VOLUMES)},
    **{
        f"adaptive_max_pool{rank}": lambda d, x=x, y=y, indices=indices: (
            {"self": T(d, x), "outputSize": y[2:]} | {"outputOut": T(d, y), "indicesOut": T(indices, y)}
        )
        for rank, x, y, indices in (("2d", IMAGES, POOLED, D.INT64), ("3d", VOLUMES, BLOCKS, D.INT32))
    },
    **{
        f"adaptive_max_pool{rank}_backward": lambda d, x=x, y=y: (
            {"self": T(d, x), "gradInput": T(d, x)} | {"gradOutput": T(d, y), "indices": T(D.INT64, y)}
        )
        for rank, x, y in (("2d", IMAGES, POOLED), ("3d", VOLUMES, BLOCKS))
    },
    "avg_pool2d": lambda d: AVERAGE | {"self": T(d, IMAGES), "out": T(d, POOLED)},
    "avg_pool2d_backward": lambda d: (
        AVERAGE | {"gradOutput": T(d, POOLED), "self": T(d, IMAGES), "gradInput": T(d, IMAGES)}
    ),
    "adaptive_avg_pool2d": lambda d: {"self": T(d, IMAGES), "outputSize": (3, 2), "out": T(d, POOLED)},
    "adaptive_avg_pool2d_backward": lambda d: {"gradOutput": T(d, POOLED), "self": T(d, IMAGES), "out": T(d, IMAGES)},
}

CALLS = {name: labelled(call) for name, call in _CALLS.items()}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "max_pool": lambda a: torch.nn.functional.max_pool2d(
        torch.nn.functional.pad(wide(a["self"]), (0, 1, 1, 0), value=-math.inf), (3, 2), 2, ceil_mode=True
    )[..., :2],  # a third window would begin in the padding
    "max_pool2d_with_indices": lambda a: torch.nn.functional.max_pool2d(
        wide(a["self"]), (3, 2), 2, (1, 0), a["dilation"], True, return_indices=True
    ),
    "max_pool3d_with_argmax": lambda a: torch.nn.functional.max_pool3d(
        wide(a["self"]), (2, 3, 2), 2, (1, 1, 0), return_indices=True
    ),
    **dict.fromkeys(("max_pool3d_with_argmax_backward", "adaptive_max_pool3d_backward"), lambda a: _led(a, VOLUMES)),
    "adaptive_max_pool2d_backward": lambda a: _led(a, IMAGES),
    "avg_pool3d": lambda a: torch.nn.functional.avg_pool3d(wide(a["self"]), (2, 3, 2), 2, (1, 1, 0)),
    "avg_pool3d_backward": lambda a: torch.ops.aten.avg_pool3d_backward(
        wide(a["gradOutput"]), wide(a["self"]), (2, 3, 2), (2, 2, 2), (1, 1, 0), False, True, None
    ),
    "adaptive_avg_pool3d": lambda a: torch.nn.functional.adaptive_avg_pool3d(wide(a["self"]), (2, 3, 2)),
    "adaptive_avg_pool3d_backward": lambda a: torch.ops.aten._adaptive_avg_pool3d_backward(
        wide(a["gradOutput"]), wide(a["self"])
    ),
    "adaptive_max_pool2d": lambda a: torch.nn.functional.adaptive_max_pool2d(wide(a["self"]), (3, 2), True),
    "adaptive_max_pool3d": lambda a: torch.nn.functional.adaptive_max_pool3d(wide(a["self"]), (2, 3, 2), True),
    "max_pool2d_with_indices_backward": lambda a: _led(a, IMAGES),
    "max_pool2d_with_mask": lambda a: _masked_maxima(a),
    "max_pool2d_with_mask_backward": lambda a: _unmasked(a),
    "avg_pool2d": lambda a: torch.nn.functional.avg_pool2d(wide(a["self"]), (3, 2), 2, (1, 0), True, False),
    "avg_pool2d_backward": lambda a: torch.ops.aten.avg_pool2d_backward(
        wide(a["gradOutput"]), wide(a["self"]), (3, 2), (2, 2), (1, 0), True, False, None
    ),
    "adaptive_avg_pool2d": lambda a: torch.nn.functional.adaptive_avg_pool2d(wide(a["self"]), (3, 2)),
    "adaptive_avg_pool2d_backward": lambda a: torch.ops.aten._adaptive_avg_pool2d_backward(
        wide(a["gradOutput"]), wide(a["self"])
    ),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    **{operator.name: no_samples(operator, CALLS[operator.name](D.FLOAT)) for operator in pooling.OPERATORS},
}

INDICES: Mapping[tuple[str, str], int] = {
    ("max_pool2d_with_indices_backward", "indices"): 20,
    ("adaptive_max_pool2d_backward", "indices"): 20,
    ("max_pool3d_with_argmax_backward", "indices"): 60,
    ("adaptive_max_pool3d_backward", "indices"): 60,
}

#: Functions that look at the format of each rank.
MEANS_OF_PLANES = ("avg_pool2d", "adaptive_avg_pool2d")

BREAKS: Mapping[str, Breaking] = {
    "channels": lambda o, name: Break(
        {name: {"shape": (5, 4)} | ({"format": Format.FORMAT_ND} if o.name in MEANS_OF_PLANES else {})}, "H, W)"
    ),
    "sizes of windows": lambda o, name: Break(
        {name: (3, 3, 3)[: _rank(o)] if name == "padding" else (2, 2, 2, 2)},
        "at most half" if name == "padding" else f"1 or {_rank(o)} numbers",
    ),
    **{
        numbers: lambda o, name: Break({name: (1, 1, 1)}, "numbers")
        for numbers in ("1 or 2 numbers", "0, 1 or 2 numbers", "0, 1, 2 or 4 numbers")
    },
    "allowed value": lambda o, name: Break({name: 1}, "0") if name == "autoPad" else Break({name: 4}, "0, 1, 2 or 3"),
    "format of the dimensions": lambda o, name: Break({name: {"format": Format.FORMAT_ND}}, "ACL_FORMAT_NCHW"),
    "format of planes": lambda o, name: Break({name: {"format": Format.FORMAT_ND}}, "ACL_FORMAT_NC"),
    "format of volumes": lambda o, name: Break({name: {"format": Format.FORMAT_ND}}, "ACL_FORMAT_NCDHW"),
    **dict.fromkeys(
        ("same format as self", "same format as gradOutput"),
        lambda o, name: Break({name: {"format": Format.FORMAT_ND}}, "ACL_FORMAT_NC"),
    ),
    "channels before the plane": lambda o, name: Break(
        {each: {"format": Format.FORMAT_NHWC} for each in tensors_of(o)}, "channels before the plane"
    ),
    "at most the extents of self": lambda o, name: Break({name: (2, 3, 5)}, "the extents [3, 5, 4]"),
    "at least 1": lambda o, name: Break({name: (0,)}, "at least 1"),
    "at least 0": lambda o, name: Break({name: (-1,)}, "at least 0"),
    "only 1": lambda o, name: Break({name: (1, 2) if name == "dilations" else (2,)}, "only 1"),
    "at most kernelShape": lambda o, name: Break({name: (2, 0, 2, 0)}, "at most kernelShape"),
    "shape of the windows": lambda o, name: Break(shape((2, 4, 3, 4), name), "of at least one window"),
    "room for the mask": lambda o, name: Break(shape((2, 4, 6, 32), name), "[2, 4, 6, 64]"),
    "the requested plane": lambda o, name: Break(
        {name: (3,)} if name == "outputSize" else shape((2, 4, 3, 3), name),
        f"{_rank(o)} numbers" if name == "outputSize" else "3, 2]",
    ),
    "the planes of self": lambda o, name: Break(shape((2, 3, 3, 2), name), "[2, "),
    "same shape as gradOutput": lambda o, name: Break(shape((2, 3, 3, 2), name), "3, 2]"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    if (operator, name) == ("max_pool2d_with_mask_backward", "indices"):
        mask = np.zeros_like(array)
        mask.reshape(-1)[: 2 * 384].reshape(2, 6, 64)[:, 2, :12] = -1
        return mask
    return array


class TestPooling(LibraryTests):
    subject = Subject(
        pooling.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        empty=EMPTY,
        breaks=BREAKS,
        indices=INDICES,
        numbers=numbers,
        default=TRAINED,
        dtypes={
            "max_pool": (D.FLOAT16, D.FLOAT),
            "max_pool2d_with_indices_backward": (D.FLOAT,),
            "adaptive_max_pool2d": (*TRAINED, D.DOUBLE),
        },
    )

    def test_products_without_a_kernel_reject_after_all_checks(self, operator: Operator) -> None:
        """For masks, Ascend 950 names the function to use instead."""
        if "mask" in operator.name:
            with pytest.raises(AclnnError, match="aclnnMaxPool2dWithIndices") as caught:
                prepare(operator, described(CALLS[operator.name](D.FLOAT)), Product.ASCEND_950)
            assert caught.value.code == INVALID
        else:
            super().test_products_without_a_kernel_reject_after_all_checks(operator)


def test_a_mask_leads_gradients_to_the_maxima() -> None:
    """One window's elements of equal size among them: the first takes the gradient."""
    random = np.random.default_rng(3)
    x = random.integers(0, 5, IMAGES).astype(np.float32)
    dy = random.normal(size=POOLED).astype(np.float32)
    leaf = to_torch(x).requires_grad_()
    y = torch.nn.functional.max_pool2d(leaf, (3, 2), 2, (1, 0), 1, True)
    y.backward(to_torch(dy))
    placed = {name: Placed(array, "contiguous") for name, array in (("self", x), ("gradOutput", dy))}
    placed |= {"out": Placed(np.zeros(POOLED, np.float32), "contiguous")}
    placed |= {"indices": Placed(np.zeros((2, 4, 6, 64), np.int8), "contiguous")}
    placed |= {"gradInput": Placed(np.zeros(IMAGES, np.float32), "contiguous")}
    call = LARGEST | {name: each.tensor for name, each in placed.items()}
    for name in ("max_pool2d_with_mask", "max_pool2d_with_mask_backward"):
        prepare(BY_NAME[name], {p.name: call[p.name] for p in BY_NAME[name].parameters}, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(placed["out"].view, y.detach().numpy())
    np.testing.assert_allclose(placed["gradInput"].view, leaf.grad.numpy(), rtol=1e-6)


def test_the_mask_of_the_example_is_read_as_the_kernel_does() -> None:
    """All channels of the first place of sixteen windows, of which there are two."""
    x = np.zeros((1, 1, 4, 3), np.float32)
    mask = np.array([-1] * 32 + [0] * 224, np.int8).reshape(1, 1, 4, 64)
    dy = np.array([0.4757, 0.1726], np.float32).reshape(1, 1, 2, 1)
    named = {"gradOutput": dy, "self": x, "indices": mask, "gradInput": np.ones_like(x)}
    placed = {name: Placed(array, "contiguous") for name, array in named.items()}
    call = LARGEST | {"kernelSize": (2, 2), "stride": (2, 2), "padding": (0, 0), "ceilMode": False}
    operator = BY_NAME["max_pool2d_with_mask_backward"]
    arguments = call | {name: each.tensor for name, each in placed.items()}
    prepare(operator, {p.name: arguments[p.name] for p in operator.parameters}, Product.ATLAS_A2).run()
    assert placed["gradInput"].view.reshape(-1).tolist() == [dy[0, 0, 0, 0], *[0] * 5, dy[0, 0, 1, 0], *[0] * 5]


@pytest.mark.parametrize("channels", [1, 16, 17, 40])
def test_masks_of_blocks_of_channels_lead_back(channels: int) -> None:
    """In windows wider than the plane, too, whose padding a place must not be taken for."""
    random = np.random.default_rng(5)
    x = random.integers(0, 5, (2, channels, 7, 2)).astype(np.float32)
    leaf = to_torch(x).requires_grad_()
    y = torch.nn.functional.max_pool2d(leaf, (3, 4), (2, 1), (1, 2))
    dy = random.normal(size=y.shape).astype(np.float32)
    y.backward(to_torch(dy))
    room = (-(-y[0, 0].numel() // 16) + 1) * 32
    named = {"self": x, "gradOutput": dy, "out": np.zeros_like(dy), "gradInput": np.zeros_like(x)}
    named["indices"] = np.zeros((2, channels, 12, room), np.int8)
    placed = {name: Placed(array, "contiguous") for name, array in named.items()}
    call = LARGEST | {"kernelSize": (3, 4), "stride": (2, 1), "padding": (1, 2), "ceilMode": False}
    call |= {name: each.tensor for name, each in placed.items()}
    for name in ("max_pool2d_with_mask", "max_pool2d_with_mask_backward"):
        prepare(BY_NAME[name], {p.name: call[p.name] for p in BY_NAME[name].parameters}, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(placed["out"].view, y.detach().numpy())
    np.testing.assert_allclose(placed["gradInput"].view, leaf.grad.numpy(), rtol=1e-6, atol=1e-6)


def test_windows_far_larger_than_the_plane_took_memory_for_all_of_their_elements() -> None:
    """EfficientNet pools 2560 channels with a kernel of 2560 × 2560, which took 250 GiB."""
    x = np.random.default_rng(3).normal(size=(2, 5, 3, 2)).astype(np.float32)
    leaf = to_torch(x).requires_grad_()
    y = torch.nn.functional.avg_pool2d(leaf, 40_000, ceil_mode=True, count_include_pad=False)
    y.sum().backward()
    placed = {"self": Placed(x, "contiguous"), "gradOutput": Placed(np.ones((2, 5, 1, 1), np.float32), "contiguous")}
    placed |= {"out": Placed(np.zeros((2, 5, 1, 1), np.float32), "contiguous")}
    placed |= {"gradInput": Placed(np.zeros_like(x), "contiguous")}
    label_by_rank(placed)
    call = AVERAGE | {"kernelSize": (40_000,), "stride": (), "padding": (0,)}
    call |= {name: each.tensor for name, each in placed.items()}
    for name in ("avg_pool2d", "avg_pool2d_backward"):
        prepare(BY_NAME[name], {p.name: call[p.name] for p in BY_NAME[name].parameters}, Product.ATLAS_A2).run()
    np.testing.assert_allclose(placed["out"].view, y.detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(placed["gradInput"].view, leaf.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("end", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("mode", ["adaptive", "nearest", "bilinear", "bicubic"])
def test_a_nan_does_not_spread_over_its_plane(mode: str, end: float) -> None:
    x = np.random.default_rng(3).normal(size=(1, 2, 7, 8))
    x[0, 0, 3, 4] = end
    given = torch.from_numpy(x)
    if mode == "adaptive":
        matrices = [pooling._adaptive(n, count) for n, count in ((7, 3), (8, 5))]
        expected = torch.nn.functional.adaptive_avg_pool2d(given, (3, 5))
    else:
        weights = {"nearest": upsampling._NEAREST, "bilinear": upsampling._linear, "bicubic": upsampling._cubic}[mode]
        matrices = [weights(n, count, 0.0, False) for n, count in ((7, 11), (8, 5))]
        expected = torch.nn.functional.interpolate(given, size=(11, 5), mode=mode)
    np.testing.assert_allclose(pooling.along_axes(x, matrices), expected.numpy(), rtol=1e-9)


@pytest.mark.parametrize("index", [-1, 4])
def test_an_index_beyond_the_plane_adds_to_no_other_channel(index: int) -> None:
    x, windows = np.zeros((1, 2, 2, 2), np.float32), {"kernelSize": (2, 2), "stride": (2, 2), "padding": (0, 0)}
    call = {"gradOutput": np.ones((1, 2, 1, 1), np.float32), "self": x, "dilation": (1, 1), "ceilMode": False}
    call |= {"indices": np.array([index, 3]).reshape(1, 2, 1, 1), "gradInput": x.copy()} | windows
    with pytest.raises(AclnnError, match=f"indices: expected indices from 0 to 3, got {index}"):
        computed("max_pool2d_with_indices_backward", call, Product.ASCEND_950)


def _run(name: str, arguments: Mapping[str, Any], formats: Mapping[int, Format], product: Product) -> dict[str, Array]:
    placed = {key: Placed(each, "contiguous") for key, each in arguments.items() if isinstance(each, np.ndarray)}
    for each in placed.values():
        each.tensor.format = formats.get(len(each.tensor.shape), Format.FORMAT_ND)
    prepare(BY_NAME[name], {**arguments, **{key: each.tensor for key, each in placed.items()}}, product).run()
    return {key: each.view for key, each in placed.items()}


@pytest.mark.parametrize("last", [False, True])
def test_windows_are_dilated_and_channels_last_by_format_on_ascend_950(last: bool) -> None:
    def lies(x: Any) -> Any:
        return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x

    formats = {4: Format.FORMAT_NHWC, 5: Format.FORMAT_NDHWC} if last else {}
    random = np.random.default_rng(6)
    for rank, name in ((2, "max_pool2d_with_indices"), (3, "max_pool3d_with_argmax")):
        leaf = torch.from_numpy(random.normal(size=(2, 3, *(6, 7, 8)[:rank]))).float().requires_grad_()
        pool = getattr(torch.nn.functional, f"max_pool{rank}d")
        y, indices = pool(leaf, 2, 2, 1, 2, return_indices=True)
        dy = torch.from_numpy(random.normal(size=y.shape)).float()
        y.backward(dy)
        sizes = {"kernelSize": (2,), "stride": (2,), "padding": (1,), "dilation": (2,), "ceilMode": False}
        given = sizes | {"self": lies(leaf.detach().numpy())}
        outs = {"out": lies(np.zeros(y.shape, np.float32)), "indices": lies(np.zeros(y.shape, np.int64))}
        got = _run(name, given | outs, formats, Product.ASCEND_950)
        np.testing.assert_array_equal(got["out"], lies(y.detach().numpy()))
        np.testing.assert_array_equal(got["indices"], lies(indices.numpy()))
        if rank == 2 or not last:
            given |= {"gradOutput": lies(dy.numpy()), "indices": lies(indices.numpy())}
            given |= {"gradInput": lies(np.zeros(leaf.shape, np.float32))}
            got = _run(f"{name}_backward", given, formats, Product.ASCEND_950)
            np.testing.assert_allclose(got["gradInput"], lies(leaf.grad.numpy()), 1e-6, 1e-6)


def test_a_gradient_of_means_takes_another_type_of_its_input_and_no_stride() -> None:
    call = CALLS["avg_pool2d_backward"](D.FLOAT)
    prepare(BY_NAME["avg_pool2d_backward"], described(changed(call, dtype(D.FLOAT16, "self"))), Product.ATLAS_A2)
    call |= {"stride": None, "kernelSize": (2,), "padding": (0,), "ceilMode": False}
    prepare(
        BY_NAME["avg_pool2d_backward"],
        described(changed(call, shape((2, 4, 2, 2), "gradOutput"))),
        Product.ATLAS_A2,
    )
    volumes = changed(CALLS["avg_pool3d_backward"](D.FLOAT), dtype(D.BF16, "gradInput"))
    prepare(BY_NAME["avg_pool3d_backward"], described(volumes), Product.ATLAS_A2)


def test_volumes_without_channels_are_averaged() -> None:
    call = changed(CALLS["avg_pool3d"](D.FLOAT), shape((2, 0, 3, 5, 4), "self") | shape((2, 0, *BLOCKS[2:]), "out"))
    prepare(BY_NAME["avg_pool3d"], described(call), Product.ATLAS_A2).run()
