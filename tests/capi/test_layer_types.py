"""Types of MindSpore's layers and optimizers, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from aclnn import cann
from tests.capi.test_single_operators import OnHost, attributes_of, call, described
from tests.helpers.fresh_runtime import recent_error

torch = pytest.importorskip("torch")
F = torch.nn.functional

RNG = np.random.default_rng(11)


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def one(value: float) -> Any:
    return np.array(value, np.float32)


X, DY, ROW, COLUMN = drawn(3, 4), drawn(3, 4), drawn(4), drawn(3)
IMAGE, KERNEL, SMALL = drawn(2, 3, 7, 8), drawn(4, 3, 3, 3), drawn(2, 4, 3, 3)
VOLUME, CUBE = drawn(1, 2, 4, 5, 4), drawn(3, 2, 2, 2, 2)
NCHW = {"data_format": "NCHW"}
STEPS = {"strides": (1, 1, 2, 2), "pads": (1, 0, 1, 2), "dilations": (1, 1, 1, 1), "groups": 1, **NCHW}
CUBES = {"strides": (1, 1, 1, 2, 1), "pads": (0, 0, 1, 1, 0, 0), "dilations": (1,) * 5, "groups": 1}
CUBES["data_format"] = "NCDHW"
WINDOWS = {"ksize": (1, 1, 3, 2), "strides": (1, 1, 2, 2), **NCHW}
SAME, VALID = WINDOWS | {"padding": "SAME"}, WINDOWS | {"padding": "VALID"}
SCALE, OFFSET, MEAN, VARIANCE = drawn(3), drawn(3), drawn(3), np.abs(drawn(3)) + 1
EPSILON = {"epsilon": 1e-3}


def convolved(x: Any, w: Any) -> Any:
    return F.conv2d(F.pad(x, (1, 2, 1, 0)), w, stride=2)


def convolved_volume(x: Any, w: Any) -> Any:
    return F.conv3d(x, w, stride=(1, 2, 1), padding=(0, 1, 0))


def gradients(function: Callable[..., Any], dy: Any, *operands: Any) -> Any:
    given = [torch.tensor(each, requires_grad=True) for each in operands]
    result = function(*given)
    return torch.autograd.grad(result, given, torch.tensor(dy).reshape(result.shape))


def normalized(x: Any, scale: Any, offset: Any) -> Any:
    return F.batch_norm(x, None, None, scale, offset, training=True, eps=1e-3)


def layer_normalized(x: Any, gamma: Any, beta: Any) -> Any:
    return F.layer_norm(x, (4,), gamma, beta, 0.0)


def same(pool: Callable[..., Any], fill: float, **more: Any) -> Callable[[Any], Any]:
    """For seven rows in windows of three, and eight columns in windows of two, SAME pads a row on each side."""
    return lambda x: pool(F.pad(x, (0, 0, 1, 1), value=fill), (3, 2), 2, **more)


def averaged(x: Any) -> Any:
    sums = F.avg_pool2d(F.pad(x, (0, 0, 1, 1)), (3, 2), 2)
    return sums / F.avg_pool2d(F.pad(torch.ones_like(x), (0, 0, 1, 1)), (3, 2), 2)


def valid(x: Any) -> Any:
    return F.avg_pool2d(x, (3, 2), 2)


SUMS, SQUARES = IMAGE.sum((0, 2, 3)), (IMAGE * IMAGE).sum((0, 2, 3))
BATCH_MEAN, BATCH_VARIANCE = IMAGE.mean((0, 2, 3)), IMAGE.var((0, 2, 3))
UNBIASED = IMAGE.transpose(1, 0, 2, 3).reshape(3, -1).var(1, ddof=1)
DIMAGE = drawn(*IMAGE.shape)
DX, DSCALE, DOFFSET = gradients(normalized, DIMAGE, IMAGE, SCALE, OFFSET)
LAYER = gradients(layer_normalized, DY, X, ROW, drawn(4))
DCONV, DCUBES = drawn(2, 4, 3, 5), drawn(1, 3, 3, 3, 3)
DSAME, DVALID = drawn(2, 3, 4, 4), drawn(2, 3, 3, 4)
BIGGEST = same(F.max_pool2d, -np.inf)
ROWS, CHOSEN = drawn(5, 4), np.array([[1, 4], [0, 4]], np.int32)
#: Of each type: inputs, attributes, results.
LAYERS: dict[str, tuple[Sequence[Any], dict[str, Any], Any]] = {
    "AddN": ((X, DY, X), {"N": 3}, X + DY + X),
    "AdaptiveAvgPool2D": ((IMAGE,), {"output_size": (3, 2)}, F.adaptive_avg_pool2d(torch.tensor(IMAGE), (3, 2))),
    "Assign": ((X, DY), {}, DY),
    "AvgPool": ((IMAGE,), SAME, averaged(torch.tensor(IMAGE))),
    "AvgPoolGrad": ((OnHost(IMAGE.shape), DSAME), SAME, gradients(averaged, DSAME, IMAGE)[0]),
    "BiasAdd": ((IMAGE, COLUMN), NCHW, IMAGE + COLUMN[:, None, None]),
    "BiasAddGrad": ((IMAGE,), NCHW, SUMS),
    "BNInfer": (
        (IMAGE, SCALE, OFFSET, MEAN, VARIANCE),
        EPSILON,
        F.batch_norm(*map(torch.tensor, (IMAGE, MEAN, VARIANCE, SCALE, OFFSET)), eps=1e-3),
    ),
    "BNInferGrad": (
        (DIMAGE, SCALE, VARIANCE),
        EPSILON,
        DIMAGE * (SCALE / np.sqrt(VARIANCE + np.float32(1e-3)))[:, None, None],
    ),
    "BNTrainingReduce": ((IMAGE,), {}, (SUMS, SQUARES)),
    "BNTrainingReduceGrad": (
        (DIMAGE, IMAGE, DSCALE.numpy(), DOFFSET.numpy(), SCALE, BATCH_MEAN, BATCH_VARIANCE),
        EPSILON,
        DX,
    ),
    "BNTrainingUpdate": (
        (IMAGE, SUMS, SQUARES, SCALE, OFFSET, MEAN, VARIANCE),
        {"factor": 0.25, **EPSILON},
        (
            normalized(*map(torch.tensor, (IMAGE, SCALE, OFFSET))),
            0.75 * MEAN + 0.25 * BATCH_MEAN,
            0.75 * VARIANCE + 0.25 * UNBIASED,
            BATCH_MEAN,
            BATCH_VARIANCE,
        ),
    ),
    "BNTrainingUpdateGrad": ((DIMAGE, IMAGE, BATCH_MEAN, BATCH_VARIANCE), EPSILON, (DSCALE, DOFFSET)),
    "Conv2D": ((IMAGE, KERNEL), STEPS, convolved(torch.tensor(IMAGE), torch.tensor(KERNEL))),
    "Conv2DTranspose": (
        (OnHost([2, 3, 6, 7]), SMALL, KERNEL),
        STEPS | {"pads": (1, 1, 0, 0), "output_padding": (0, 0, 1, 0)},
        F.conv_transpose2d(torch.tensor(SMALL), torch.tensor(KERNEL), None, 2, (1, 0), (1, 0)),
    ),
    "Conv2DBackpropInput": (
        (OnHost(IMAGE.shape), KERNEL, DCONV),
        STEPS,
        gradients(convolved, DCONV, IMAGE, KERNEL)[0],
    ),
    "Conv2DBackpropFilter": (
        (IMAGE, OnHost(KERNEL.shape), DCONV),
        STEPS,
        gradients(convolved, DCONV, IMAGE, KERNEL)[1],
    ),
    "Conv3D": ((VOLUME, CUBE), CUBES, convolved_volume(torch.tensor(VOLUME), torch.tensor(CUBE))),
    "Conv3DBackpropInput": (
        (OnHost(VOLUME.shape), CUBE, DCUBES),
        CUBES,
        gradients(convolved_volume, DCUBES, VOLUME, CUBE)[0],
    ),
    "Conv3DBackpropFilter": (
        (VOLUME, OnHost(CUBE.shape), DCUBES),
        CUBES,
        gradients(convolved_volume, DCUBES, VOLUME, CUBE)[1],
    ),
    "EluGrad": ((DY, F.elu(torch.tensor(X)).numpy()), {}, gradients(F.elu, DY, X)[0]),
    "GatherV2": ((ROWS, CHOSEN, OnHost([0])), {}, ROWS[CHOSEN]),
    "LayerNorm": (
        (X, ROW, ROW + 1),
        {"begin_norm_axis": -1, "epsilon": 0.0},
        (
            layer_normalized(*map(torch.tensor, (X, ROW, ROW + 1))),
            X.mean(1, keepdims=True),
            X.var(1, keepdims=True),
        ),
    ),
    "LayerNormGrad": ((DY, X, X.var(1, keepdims=True), X.mean(1, keepdims=True), ROW), {}, LAYER),
    "MaxPool": ((IMAGE,), SAME, BIGGEST(torch.tensor(IMAGE))),
    "MaxPoolGrad": (
        (IMAGE, BIGGEST(torch.tensor(IMAGE)).numpy(), DSAME),
        SAME,
        gradients(BIGGEST, DSAME, IMAGE)[0],
    ),
    "OneHot": (
        (np.array([2, 0]), OnHost(3), one(2), one(-1)),
        {"axis": -1},
        np.float32([[-1, -1, 2], [2, -1, -1]]),
    ),
    "OnesLike": ((X,), {}, np.ones_like(X)),
    "Softplus": ((X,), {}, F.softplus(torch.tensor(X))),
    "SoftplusGrad": ((DY, X), {}, gradients(F.softplus, DY, X)[0]),
    "StridedSlice": (
        (IMAGE, OnHost([0, 1, 1, 3]), OnHost([2, 2, 9, 0]), OnHost([1, 1, 2, 2])),
        {"begin_mask": 1, "end_mask": 8, "shrink_axis_mask": 2},
        IMAGE[:, 1, 1::2, 3::2],
    ),
    "StridedSliceGrad": (
        (OnHost([3, 4]), OnHost([-2, 1]), OnHost([3, 2]), OnHost([1, 1]), DY[:2, 1]),
        {"shrink_axis_mask": 2},
        np.pad(DY[:2, 1:2], ((1, 0), (1, 2))),
    ),
    "TensorMove": ((X,), {}, X),
    "Unpack": ((X,), {"axis": 1, "num": 4}, tuple(X.T.copy())),
    "UnsortedSegmentSum": (
        (X, np.array([1, -1, 1], np.int32), OnHost([3])),
        {},
        np.stack([np.zeros(4, np.float32), X[0] + X[2], np.zeros(4, np.float32)]),
    ),
}


@pytest.mark.parametrize("op_type", LAYERS)
def test_layer_operators_by_type_give_pytorchs_results(device: None, op_type: str) -> None:
    inputs, attributes, wanted = LAYERS[op_type]
    expected = [np.asarray(each) for each in (wanted if isinstance(wanted, tuple) else (wanted,))]
    outputs = [np.empty(each.shape, np.float32) for each in expected]
    assert call(op_type, inputs, outputs, attributes) == 0, recent_error()
    for out, each in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(out, each, rtol=2e-5, atol=2e-5)


def test_batch_norm_by_type_takes_two_dimensions(device: None) -> None:
    """MindSpore's BatchNorm1d passes outputs of two dimensions."""
    out = np.empty((4, 3), np.float32)
    given = (X.T.reshape(4, 3, 1, 1).copy(), SCALE, OFFSET, MEAN, VARIANCE)
    assert call("BNInfer", given, [out], EPSILON) == 0, recent_error()
    np.testing.assert_allclose(out, (X.T - MEAN) / np.sqrt(VARIANCE + 1e-3) * SCALE + OFFSET, rtol=1e-5, atol=1e-6)


def test_pooling_windows_may_leave_out_the_last_elements(device: None) -> None:
    out = np.empty((2, 3, 3, 4), np.float32)
    assert call("AvgPool", (IMAGE,), [out], VALID) == 0, recent_error()
    np.testing.assert_allclose(out, valid(torch.tensor(IMAGE)), rtol=1e-5, atol=1e-6)
    back = np.empty_like(IMAGE)
    assert call("AvgPoolGrad", (OnHost(IMAGE.shape), DVALID), [back], VALID) == 0, recent_error()
    np.testing.assert_allclose(back, gradients(valid, DVALID, IMAGE)[0], rtol=1e-5, atol=1e-6)


def updated(op_type: str, inputs: Sequence[Any], attributes: dict[str, Any] | None = None) -> list[Any]:
    """Return the inputs after a call whose output is the first of them, as in MindSpore."""
    attr = attributes_of(attributes or {})
    with described(inputs) as (read, read_at, places):
        status = cann.aclopCompileAndExecute(
            op_type, len(read), read, read_at, 1, read[:1], read_at[:1], attr, 0, 0, None, 0
        )
        assert status == 0, recent_error()
        assert cann.aclrtSynchronizeDevice() == 0
        found = [np.empty_like(each) if place else each for place, each in zip(places, inputs, strict=True)]
        for place, array in zip(places, found, strict=True):
            assert not place or cann.aclrtMemcpy(array.ctypes.data, array.nbytes, place, array.nbytes, 2) == 0
    cann.aclopDestroyAttr(attr)
    return found


START, SLOPES = drawn(3, 4), [drawn(3, 4) for _ in range(3)]


def steps_of_torch(make: Callable[[Any], Any]) -> Any:
    parameter = torch.tensor(START, requires_grad=True)
    optimizer = make([parameter])
    for slope in SLOPES:
        parameter.grad = torch.tensor(slope)
        optimizer.step()
    return parameter.detach().numpy()


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_takes_pytorchs_steps(device: None, nesterov: bool) -> None:
    numbers = {"dampening": 0.0, "weight_decay": 0.125, "nesterov": nesterov}
    var, accum, stat = START, np.zeros_like(START), np.ones_like(START)
    for slope in SLOPES:
        given = (var, slope, one(0.5), accum, one(0.75), stat)
        var, _, _, accum, _, stat = updated("SGD", given, numbers)
    expected = steps_of_torch(lambda p: torch.optim.SGD(p, 0.5, 0.75, weight_decay=0.125, nesterov=nesterov))
    np.testing.assert_allclose(var, expected, rtol=1e-5, atol=1e-6)
    assert not stat.any()


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_takes_pytorchs_steps(device: None, nesterov: bool) -> None:
    var, accum = START, np.zeros_like(START)
    for slope in SLOPES:
        given = (var, accum, one(0.5), slope, one(0.75))
        var, accum, *_ = updated("ApplyMomentum", given, {"use_nesterov": nesterov})
    expected = steps_of_torch(lambda p: torch.optim.SGD(p, 0.5, 0.75, nesterov=nesterov))
    np.testing.assert_allclose(var, expected, rtol=1e-5, atol=1e-6)


def test_adam_updates_its_state_in_place(device: None) -> None:
    var, m, v = START, np.zeros_like(START), np.zeros_like(START)
    for step, slope in enumerate(SLOPES, 1):
        powers = one(0.5**step), one(0.75**step)
        numbers = (*powers, *map(one, (0.125, 0.5, 0.75, 1e-8)))
        var, m, v, *_ = updated("ApplyAdam", (var, m, v, *numbers, slope))
    expected = steps_of_torch(lambda p: torch.optim.Adam(p, 0.125, (0.5, 0.75)))
    np.testing.assert_allclose(var, expected, rtol=1e-5, atol=1e-6)


def test_rmsprop_takes_pytorchs_steps(device: None) -> None:
    """PyTorch adds epsilon to the root instead, where it is too small to make a difference."""
    var, ms, mom = START, np.zeros_like(START), np.zeros_like(START)
    for slope in SLOPES:
        numbers = map(one, (0.125, 0.75, 0.5, 1e-12))
        var, ms, mom, *_ = updated("ApplyRMSProp", (var, ms, mom, *numbers, slope))
    expected = steps_of_torch(lambda p: torch.optim.RMSprop(p, 0.125, 0.75, 1e-12, momentum=0.5))
    np.testing.assert_allclose(var, expected, rtol=1e-4, atol=1e-5)


def test_adagrad_takes_pytorchs_steps(device: None) -> None:
    var, accum = START, np.zeros_like(START)
    for slope in SLOPES:
        var, accum, *_ = updated("ApplyAdagradD", (var, accum, one(0.5), slope))
    np.testing.assert_allclose(var, steps_of_torch(lambda p: torch.optim.Adagrad(p, 0.5)), rtol=1e-5, atol=1e-6)


def test_adam_with_decay_takes_pytorchs_step(device: None) -> None:
    numbers = [*map(one, (0.5, 0.75, 0.25, 0.875, 0.125, 0.0625, 1e-6))]
    slope, m, v = SLOPES[0], SLOPES[1], np.abs(SLOPES[2])
    found = updated("AdamApplyOneWithDecayAssign", (slope, v, m, START, *numbers))[1:4]
    v, m = 0.875 * v + 0.125 * slope**2, 0.75 * m + 0.25 * slope
    wanted = v, m, START - 0.5 * (m / (np.sqrt(v) + 1e-6) + 0.0625 * START)
    for each, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(each, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("op_type", "result"), [("AssignAdd", X + DY), ("AssignSub", X - DY)])
def test_assign_add_adds_in_place(device: None, op_type: str, result: Any) -> None:
    np.testing.assert_array_equal(updated(op_type, (X, DY))[0], result)


def test_dropout_masks_differ_between_calls(device: None) -> None:
    """With masks drawn from the seed alone, each training step would drop the same elements."""
    masks = [np.empty(128, np.uint8) for _ in range(2)]
    for mask in masks:
        given = (OnHost([32, 32]), one(0.75))
        assert call("DropOutGenMask", given, [mask], {"seed": 3, "seed2": 5}) == 0, recent_error()
    shares = [np.unpackbits(mask).mean() for mask in masks]
    assert (masks[0] != masks[1]).any()
    np.testing.assert_allclose(shares, 0.75, atol=0.06)


def test_normal_random_numbers_differ_between_calls(device: None) -> None:
    drawings = [np.empty((50, 40), np.float32) for _ in range(2)]
    for drawing in drawings:
        assert call("RandomStandardNormal", (OnHost([50, 40]),), [drawing], {"seed": 3, "seed2": 5}) == 0, (
            recent_error()
        )
    assert (drawings[0] != drawings[1]).all()
    np.testing.assert_allclose([drawings[0].mean(), drawings[0].std()], [0, 1], atol=0.1)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "text"),
    [
        ("Conv2D", (IMAGE, KERNEL), STEPS | {"data_format": "NHWC"}, "data_format: expected NCHW or NCDHW, got NHWC"),
        ("Conv3D", (VOLUME, CUBE), CUBES | {"pads": (0, 1) * 3}, "pads: expected as many before as after"),
        ("MaxPool", (IMAGE,), SAME | {"ksize": (2, 1, 1, 1)}, "ksize: expected 4 numbers"),
        ("MaxPool", (IMAGE,), SAME | {"padding": "FULL"}, "padding: expected SAME or VALID, got FULL"),
        ("AvgPool", (X,), SAME, "x: expected 4 dimensions, got 2"),
        ("GatherV2", (ROWS, CHOSEN, OnHost([0])), {"batch_dims": 1}, "batch_dims: expected 0, got 1"),
        ("StridedSlice", (X, *[OnHost([1])] * 3), {"ellipsis_mask": 1}, "ellipsis_mask: expected 0, got 1"),
        ("StridedSlice", (X, *[OnHost([0])] * 3), {}, "steps other than 0"),
    ],
)
def test_errors_of_layer_operators_name_the_argument(
    device: None, op_type: str, inputs: Any, attributes: Any, text: str
) -> None:
    assert call(op_type, inputs, [np.empty((1,), np.float32)], attributes) == 161002
    assert text in recent_error()


#: What this file tests.
TESTED = {
    *LAYERS,
    *("AdamApplyOneWithDecayAssign", "ApplyAdagradD", "ApplyAdam", "ApplyMomentum", "ApplyRMSProp", "SGD"),
    *("AssignAdd", "AssignSub", "DropOutGenMask", "RandomStandardNormal"),
}
