"""Types of arrays and optimizers that MindSpore calls, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from aclnn.operators.library.by_type import arrays as of_array_types
from tests.capi.test_layer_types import SLOPES, START, gradients, one, steps_of_torch, updated
from tests.capi.test_single_operators import OnHost, call
from tests.helpers.fresh_runtime import recent_error

torch = pytest.importorskip("torch")
F = torch.nn.functional

RNG = np.random.default_rng(12)


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


X, DY, ROW = drawn(3, 4), drawn(3, 4), drawn(4)
POSITIVE = np.abs(X) + np.float32(0.5)
WHOLE, SHIFTS = np.array([[9, -8, 7], [5, 4, 3]], np.int32), np.array([1, 2, 0], np.int32)
IMAGE, LARGE = drawn(2, 3, 4, 5), drawn(2, 3, 6, 7)
CLASSES = np.array([2, 0, 3], np.int32)
PARTS = np.array([[0, 2], [2, 1]]), drawn(2)
T = torch.tensor
K = np.array([-1, 1], np.int32)


def cumulated(x: Any) -> Any:
    """Exclusive and from the end."""
    return np.flip(np.cumprod(np.flip(np.pad(x[:, 1:], ((0, 0), (0, 1)), constant_values=1), 1), 1), 1)


def banded() -> Any:
    """The diagonals 1, 0 and -1, packed to the right above and to the left below."""
    found = X[:, :3].copy()
    found[[0, 1], [1, 2]], found[[1, 2], [0, 1]] = (1, 2), (6, 7)
    np.fill_diagonal(found, (3, 4, 5))
    return found


BAND = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 0]], np.float32)


def resized(mode: str, **options: Any) -> Callable[[Any], Any]:
    return lambda x: F.interpolate(x, (6, 7), mode=mode, **options)


def unit(x: Any) -> Any:
    return F.normalize(x, dim=1)


def padded(mode: str) -> Callable[[Any], Any]:
    return lambda x: F.pad(x, (1, 2, 3, 0), mode)


def entropy(x: Any) -> Any:
    return F.cross_entropy(x, T(CLASSES).long(), reduction="none")


def logits(x: Any) -> Any:
    return F.binary_cross_entropy_with_logits(x, T(DY), reduction="none")


PADDINGS = OnHost([[0, 0], [0, 0], [3, 0], [1, 2]])
HALF, CORNERS = {"half_pixel_centers": True}, {"align_corners": True}
SCATTERED = {
    "Add": lambda x, y: x + y,
    "Div": lambda x, y: x / y,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": lambda x, y: x * y,
    "Sub": lambda x, y: x - y,
    "Update": lambda x, y: y,
}


def scattered(way: str) -> Any:
    found = X.copy()
    found[0, 2], found[2, 1] = (SCATTERED[way](found[at], y) for at, y in zip(((0, 2), (2, 1)), PARTS[1], strict=True))
    return found


#: Of each type: inputs, attributes, results.
ARRAYS: dict[str, tuple[Sequence[Any], dict[str, Any], Any]] = {
    "Acosh": ((POSITIVE + 1,), {}, np.arccosh(POSITIVE + 1)),
    "Addcdiv": ((X, DY, POSITIVE, one(0.25)), {}, X + 0.25 * DY / POSITIVE),
    "Addcmul": ((X, DY, ROW, np.array(2)), {}, X + 2 * DY * ROW),
    "ArgMaxV2": ((X, OnHost(np.int32(1))), {}, X.argmax(1)),
    "ArgMin": ((X, OnHost(np.int32(0))), {}, X.argmin(0)),
    "Asinh": ((X,), {}, np.arcsinh(X)),
    "Atanh": ((np.tanh(X),), {}, X),
    "BesselI0e": ((X,), {}, torch.special.i0e(T(X))),
    "BitwiseAnd": ((WHOLE, SHIFTS), {}, WHOLE & SHIFTS),
    "BitwiseOr": ((WHOLE, SHIFTS), {}, WHOLE | SHIFTS),
    "BitwiseXor": ((WHOLE, SHIFTS), {}, WHOLE ^ SHIFTS),
    "Complex": ((X, DY), {}, X + 1j * DY),
    "Concat": ((OnHost(np.int32(1)), X, DY), {"N": 2}, np.hstack([X, DY])),
    "Cummax": ((X,), {"axis": 1}, tuple(T(X).cummax(1))),
    "Cummin": ((X,), {"axis": 1}, tuple(T(X).cummin(1))),
    "Cumprod": ((X, OnHost(np.int32(1))), {"exclusive": True, "reverse": True}, cumulated(X)),
    "CumulativeLogsumexp": ((X, OnHost(np.int32(0))), {}, T(X).logcumsumexp(0)),
    "CustAdaptiveAvgPool2D": ((IMAGE,), {"output_size": (3, 2)}, F.adaptive_avg_pool2d(T(IMAGE), (3, 2))),
    "CustAdaptiveAvgPool2DGrad": (
        (drawn(2, 3, 2, 2),),
        {},
        None,
    ),
    "Diag": ((ROW,), {}, np.diag(ROW)),
    "DivNoNan": ((X, ROW * (ROW > 0)), {}, np.divide(X, ROW, out=np.zeros_like(X), where=ROW > 0)),
    "Inv": ((X,), {}, 1 / X),
    "IsInf": ((np.array([1, np.inf, np.nan], np.float32),), {}, np.array([False, True, False])),
    "IsNan": ((np.array([1, np.inf, np.nan], np.float32),), {}, np.array([False, False, True])),
    "L2Loss": ((X,), {}, np.float32((X * X).sum() / 2)),
    "L2Normalize": ((X,), {"axis": (1,), "eps": 1e-12}, unit(T(X))),
    "L2NormalizeGrad": ((X, unit(T(X)).numpy(), DY), {"dim": (1,), "eps": 1e-12}, gradients(unit, DY, X)[0]),
    "LeftShift": ((WHOLE, SHIFTS), {}, WHOLE << SHIFTS),
    "Lgamma": ((X,), {}, T(X).lgamma()),
    "LinSpace": ((one(-1), one(2), OnHost(np.int32(5))), {}, np.linspace(-1, 2, 5)),
    "LpNorm": ((X,), {"p": 1, "axes": (1,), "keepdim": True}, np.abs(X).sum(1, keepdims=True)),
    "LpNormV2": ((X,), {"p": 2.5, "axes": (0,)}, T(X).norm(2.5, 0)),
    "MatrixDiagV3": (
        (BAND, K, *[OnHost(np.int32(-1))] * 2, one(9)),
        {},
        np.array([[3, 1, 9], [6, 4, 2], [9, 7, 5]], np.float32),
    ),
    "MatrixSetDiagV3": ((X[:, :3].copy(), BAND, K), {}, banded()),
    "MirrorPad": ((X, OnHost([[1, 2], [0, 3]])), {"mode": "SYMMETRIC"}, np.pad(X, ((1, 2), (0, 3)), "symmetric")),
    "MirrorPadGrad": ((drawn(2, 3, 7, 8), PADDINGS), {"mode": "REFLECT"}, None),
    "MulNoNan": ((np.full_like(X, np.inf), ROW * 0), {}, np.zeros_like(X)),
    "NextAfter": ((X, ROW), {}, np.nextafter(X, ROW)),
    "Pad": ((X, OnHost([[1, 2], [0, 3]])), {}, np.pad(X, ((1, 2), (0, 3)))),
    "PadV3": ((IMAGE, PADDINGS), {"mode": "circular"}, padded("circular")(T(IMAGE))),
    "PadV3Grad": (
        (drawn(2, 3, 7, 8), PADDINGS),
        {"mode": "edge"},
        None,
    ),
    "Range": ((one(1), one(3), one(0.5)), {}, np.arange(1, 3, 0.5)),
    "ReduceProd": ((X, OnHost([1])), {"keep_dims": True}, X.prod(1, keepdims=True)),
    "ReduceStd": ((X,), {"dim": (1,), "unbiased": True}, (X.std(1, ddof=1), X.mean(1))),
    "Relu6": ((9 * X,), {}, F.relu6(T(9 * X))),
    "Relu6Grad": ((DY, 9 * X), {}, gradients(F.relu6, DY, 9 * X)[0]),
    "ResizeBilinearV2": ((IMAGE, OnHost([6, 7])), HALF, resized("bilinear", align_corners=False)(T(IMAGE))),
    "ResizeBilinearV2Grad": (
        (LARGE, IMAGE),
        CORNERS,
        gradients(resized("bilinear", align_corners=True), LARGE, IMAGE)[0],
    ),
    "ResizeNearestNeighborV2": ((IMAGE, OnHost([6, 7])), {}, resized("nearest")(T(IMAGE))),
    "ResizeNearestNeighborV2Grad": (
        (LARGE, OnHost([4, 5])),
        HALF,
        gradients(resized("nearest-exact"), LARGE, IMAGE)[0],
    ),
    "RightShift": ((WHOLE, SHIFTS), {}, WHOLE >> SHIFTS),
    "Rint": ((np.array([0.5, 1.5, -2.6], np.float32),), {}, np.array([0, 2, -3], np.float32)),
    "SigmoidCrossEntropyWithLogits": ((X, DY), {}, logits(T(X))),
    "SigmoidCrossEntropyWithLogitsGrad": ((X, DY, DY), {}, gradients(logits, DY, X)[0]),
    "Softsign": ((X,), {}, F.softsign(T(X))),
    "Sort": ((X,), {"axis": 1, "descending": True}, tuple(T(X).sort(1, descending=True))),
    "SparseSoftmaxCrossEntropyWithLogits": (
        (X, CLASSES),
        {},
        (entropy(T(X)), gradients(entropy, np.ones(3, np.float32), X)[0]),
    ),
    "SqrtGrad": ((np.sqrt(POSITIVE), DY), {}, gradients(torch.sqrt, DY, POSITIVE)[0]),
    "SquaredDifference": ((X, ROW), {}, (X - ROW) ** 2),
    "Xdivy": ((X * (X > 0), ROW), {}, X * (X > 0) / ROW),
    "Xlogy": ((X * (X > 0), POSITIVE), {}, T(X * (X > 0)).xlogy(T(POSITIVE))),
    **{f"TensorScatter{way}": ((X, *PARTS), {}, scattered(way)) for way in SCATTERED},
}
for _name, _function in (
    ("CustAdaptiveAvgPool2DGrad", lambda x: F.adaptive_avg_pool2d(x, (2, 2))),
    ("MirrorPadGrad", padded("reflect")),
    ("PadV3Grad", padded("replicate")),
):
    ARRAYS[_name] = (*ARRAYS[_name][:2], gradients(_function, ARRAYS[_name][0][0], IMAGE)[0])


@pytest.mark.parametrize("op_type", ARRAYS)
def test_array_operators_by_type_give_numpys_results(device: None, op_type: str) -> None:
    """MindSpore's ops were rejected: expected a type of the list in docs/c-functions.md."""
    inputs, attributes, wanted = ARRAYS[op_type]
    expected = [np.asarray(each) for each in (wanted if isinstance(wanted, tuple) else (wanted,))]
    kinds = {"i": np.int32, "b": np.bool_, "c": np.complex64, "f": np.float32}
    outputs = [np.empty(each.shape, kinds[each.dtype.kind]) for each in expected]
    assert call(op_type, inputs, outputs, attributes) == 0, recent_error()
    for out, each in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(out, each, rtol=1e-5, atol=1e-5)


def test_right_shift_by_a_negative_number_shifts_nothing(device: None) -> None:
    """It shifted all bits out, unlike aclnnRightShift, which has the same kernel."""
    out = np.empty(3, np.int32)
    assert call("RightShift", (np.array([-9, 9, -9], np.int32), np.array([-1, -2, 40], np.int32)), [out], {}) == 0
    assert out.tolist() == [-9, 9, -1]


@pytest.mark.parametrize("align", ["LEFT_RIGHT", "RIGHT_LEFT"])
def test_matrix_diag_packs_diagonals_from_the_highest(device: None, align: str) -> None:
    """From the left, or to the right, where they are shorter than the longest."""
    above, below = align.split("_")
    packed = np.array(
        [[1, 2, 0] if above == "LEFT" else [0, 1, 2], [3, 4, 5], [6, 7, 0] if below == "LEFT" else [0, 6, 7]]
    )
    out = np.empty((3, 3), np.int32)
    given = packed.astype(np.int32), K, *[OnHost(np.int32(-1))] * 2, np.array(9, np.int32)
    assert call("MatrixDiagV3", given, [out], {"align": align}) == 0, recent_error()
    assert out.tolist() == [[3, 1, 9], [6, 4, 2], [9, 7, 5]]


def test_pad_v3_pads_with_the_given_value(device: None) -> None:
    """The value is on the device."""
    out = np.empty((6, 7), np.float32)
    assert call("PadV3", (X, OnHost([[1, 2], [0, 3]]), one(2.5)), [out], {"mode": "constant"}) == 0, recent_error()
    np.testing.assert_array_equal(out, np.pad(X, ((1, 2), (0, 3)), constant_values=2.5))


@pytest.mark.parametrize("op_type", of_array_types.SCATTERED)
def test_scatter_types_update_a_part_of_a_variable(device: None, op_type: str) -> None:
    """Variants without Nd address rows."""
    way = op_type.removeprefix("Scatter").removeprefix("Nd")
    if op_type.startswith("ScatterNd"):
        given, expected = PARTS, scattered(way)
    else:
        given, expected = (np.array([2, 0]), DY[:2]), X.copy()
        expected[[2, 0]] = SCATTERED[way](X[[2, 0]], DY[:2])
    np.testing.assert_allclose(updated(op_type, (X, *given))[0], expected, rtol=1e-6)


def test_scatter_add_adds_repeated_indices_twice(device: None) -> None:
    found = updated("ScatterAdd", (X, np.array([1, 1], np.int32), DY[:2]))[0]
    np.testing.assert_allclose(found[1], X[1] + DY[0] + DY[1], rtol=1e-5)


def test_uniform_random_numbers_differ_between_calls(device: None) -> None:
    drawings = [np.empty((50, 40), np.float32) for _ in range(2)]
    for drawing in drawings:
        assert call("RandomUniform", (OnHost([50, 40]),), [drawing], {"seed": 3, "seed2": 5}) == 0, recent_error()
        assert 0 <= drawing.min() <= drawing.max() < 1
    assert (drawings[0] != drawings[1]).all()
    np.testing.assert_allclose(drawings[0].mean(), 0.5, atol=0.05)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "text"),
    [
        ("Concat", (OnHost([0, 1]), X), {}, "inputs[0]: expected one integer, got [0, 1]"),
        ("MirrorPad", (X, OnHost([[0, 0], [0, 0]])), {"mode": "WRAP"}, "mode: expected constant, reflect"),
        ("TensorScatterAdd", (X, PARTS[0], X), {}, "updates: expected shape [2] (of the parts), got [3, 4]"),
    ],
)
def test_errors_of_array_operators_name_the_argument(
    device: None, op_type: str, inputs: Any, attributes: Any, text: str
) -> None:
    assert call(op_type, inputs, [np.empty((3, 4), np.float32)], attributes) == 161002
    assert text in recent_error()


def test_adadelta_takes_pytorchs_steps(device: None) -> None:
    var, accum, update = START, np.zeros_like(START), np.zeros_like(START)
    for slope in SLOPES:
        numbers = map(one, (0.5, 0.75, 1e-3))
        var, accum, update, *_ = updated("ApplyAdadeltaD", (var, accum, update, *numbers, slope))
    expected = steps_of_torch(lambda p: torch.optim.Adadelta(p, 0.5, 0.75, 1e-3))
    np.testing.assert_allclose(var, expected, rtol=1e-5, atol=1e-6)


def test_adamax_takes_pytorchs_steps(device: None) -> None:
    var, m, v = START, np.zeros_like(START), np.zeros_like(START)
    for step, slope in enumerate(SLOPES, 1):
        numbers = map(one, (0.5**step, 0.125, 0.5, 0.75, 1e-12))
        var, m, v, *_ = updated("ApplyAdaMaxD", (var, m, v, *numbers, slope))
    expected = steps_of_torch(lambda p: torch.optim.Adamax(p, 0.125, (0.5, 0.75), 1e-12))
    np.testing.assert_allclose(var, expected, rtol=1e-5, atol=1e-6)


def test_adagrad_with_epsilon_takes_pytorchs_steps(device: None) -> None:
    var, accum = START, np.zeros_like(START)
    for slope in SLOPES:
        var, accum, *_ = updated("ApplyAdagradV2D", (var, accum, one(0.5), slope), {"epsilon": 0.25})
    expected = steps_of_torch(lambda p: torch.optim.Adagrad(p, 0.5, eps=0.25))
    np.testing.assert_allclose(var, expected, rtol=1e-5, atol=1e-6)


def test_centered_rmsprop_takes_pytorchs_steps(device: None) -> None:
    """PyTorch adds epsilon to the root: here it is too small to tell."""
    var, mg, ms, mom = START, *[np.zeros_like(START)] * 3
    for slope in SLOPES:
        numbers = map(one, (0.125, 0.75, 0.5, 1e-10))
        var, mg, ms, mom, *_ = updated("ApplyCenteredRMSProp", (var, mg, ms, mom, *numbers, slope))
    expected = steps_of_torch(lambda p: torch.optim.RMSprop(p, 0.125, 0.75, 1e-10, momentum=0.5, centered=True))
    np.testing.assert_allclose(var, expected, rtol=1e-4, atol=1e-4)


def test_amsgrad_takes_pytorchs_steps(device: None) -> None:
    """PyTorch corrects the second moment before its root: here epsilon is too small to tell."""
    var, m, v, most = START, *[np.zeros_like(START)] * 3
    for step, slope in enumerate(SLOPES, 1):
        numbers = map(one, (0.5**step, 0.75**step, 0.125, 0.5, 0.75, 1e-12))
        var, m, v, most, *_ = updated("ApplyAdamWithAmsgradV2", (var, m, v, most, *numbers, slope))
    expected = steps_of_torch(lambda p: torch.optim.Adam(p, 0.125, (0.5, 0.75), 1e-12, amsgrad=True))
    np.testing.assert_allclose(var, expected, rtol=1e-4, atol=1e-5)


def test_proximal_adagrad_without_norms_is_adagrad(device: None) -> None:
    var, accum = updated("ApplyProximalAdagradD", (START, SLOPES[1] ** 2, *map(one, (0.5, 0, 0)), SLOPES[0]))[:2]
    expected = START - 0.5 * SLOPES[0] / np.sqrt(SLOPES[1] ** 2 + SLOPES[0] ** 2)
    np.testing.assert_allclose(var, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(accum, SLOPES[1] ** 2 + SLOPES[0] ** 2, rtol=1e-6)


def test_ftrl_minimizes_the_regularized_linear_loss(device: None) -> None:
    """linear var + |var| l1 + var^2 (accum^-power / (2 lr) + l2), which each element's neighbours exceed."""
    numbers = [*map(one, (0.5, 0.25, 0.125, -0.5))]
    var, accum, linear = updated("ApplyFtrl", (START, SLOPES[1] ** 2, SLOPES[2], SLOPES[0], *numbers))[:3]
    sums = SLOPES[1] ** 2 + SLOPES[0] ** 2
    np.testing.assert_allclose(accum, sums, rtol=1e-6)
    sigma = (np.sqrt(sums) - np.abs(SLOPES[1])) / 0.5
    np.testing.assert_allclose(linear, SLOPES[2] + SLOPES[0] - sigma * START, rtol=1e-5, atol=1e-5)

    def loss(at: Any) -> Any:
        return linear * at + np.abs(at) * 0.25 + at**2 * (np.sqrt(sums) / (2 * 0.5) + 0.125)

    wide = var.astype(np.float64)
    assert (loss(wide) <= np.minimum(loss(wide - 1e-3), loss(wide + 1e-3))).all()


def test_lamb_takes_the_step_of_its_definition(device: None) -> None:
    numbers = [*map(one, (0.5, 0.5, 0.75, 0.25, 1e-6, 2, 1, 0.125))]
    slope, m, v = SLOPES[0], SLOPES[1], SLOPES[2] ** 2
    moved = [0.75 * v + 0.25 * slope**2, 0.5 * m + 0.5 * slope]
    step = moved[1] / (1 - 0.25) / (np.sqrt(moved[0] / (1 - 0.75**2)) + 1e-6) + 0.125 * START
    out = np.empty_like(START)
    given = slope, v, m, START, *numbers
    assert call("LambApplyOptimizerAssign", given, [out]) == 0, recent_error()
    np.testing.assert_allclose(out, step, rtol=1e-5, atol=1e-6)
    for found, expected in zip(updated("LambApplyOptimizerAssign", given)[1:3], moved, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("of_weights", "ratio"), [(3.0, 1.5), (0.0, 1.0)])
def test_lamb_scales_steps_by_the_ratio_of_norms(device: None, of_weights: float, ratio: float) -> None:
    found = updated("LambApplyWeightAssign", (one(of_weights), one(2), one(0.5), SLOPES[0], START))[4]
    np.testing.assert_allclose(found, START - ratio * 0.5 * SLOPES[0], rtol=1e-6)


#: What this file tests.
TESTED = {
    *ARRAYS,
    *of_array_types.SCATTERED,
    *(
        "ApplyAdaMaxD",
        "ApplyAdadeltaD",
        "ApplyAdagradV2D",
        "ApplyAdamWithAmsgradV2",
        "ApplyCenteredRMSProp",
        "ApplyFtrl",
    ),
    *("ApplyProximalAdagradD", "LambApplyOptimizerAssign", "LambApplyWeightAssign", "RandomUniform"),
}
