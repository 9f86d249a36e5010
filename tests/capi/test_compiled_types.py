"""Types that torch_npu calls after ``set_compile_mode(jit_compile=True)``, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from aclnn import cann
from aclnn.capi import compiled_types
from tests.capi.test_layer_types import gradients, updated
from tests.capi.test_single_operators import OnHost, attributes_of, call, described
from tests.helpers.fresh_runtime import recent_error

torch = pytest.importorskip("torch")
F = torch.nn.functional
T = torch.tensor

RNG = np.random.default_rng(13)


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


X, DY, WEIGHT = drawn(3, 4), drawn(3, 4), np.abs(drawn(4)) + np.float32(0.5)
SHARES = np.abs(X) + np.float32(0.1)
IMAGE = drawn(2, 3, 7, 8)
ONE, TARGET = np.ones((), np.float32), np.array([2, 0, 3], np.int32)
MEAN, SUM = {"reduction": "mean"}, {"reduction": "sum"}
KEY = OnHost(np.uint64([7])), OnHost(np.uint64([0, 3])), OnHost(np.int32(1))
WINDOWS = {"ksize": (1, 1, 3, 2), "strides": (1, 1, 2, 2), "pads": (1, 1, 0, 0), "padding_mode": "CALCULATED"}
WINDOWS |= {"data_format": "NCHW", "ceil_mode": True, "exclusive": False, "divisor_override": 0}
MAXIMA = {"ksize": (1, 3, 2, 1), "strides": (1, 2, 2, 1), "pads": (1, 1, 0, 1), "dilation": (1, 1, 1, 1)}
MASK = np.zeros((2, 3, 6, 3), np.uint16)
COLUMNS = {"pads": (1, 1, 0, 0), "padding_mode": "CALCULATED", "ksizes": (3, 2), "strides": (2, 2), "dilations": (1, 1)}
ROWS = {"kernel_size": (3, 2), "dilation": (1, 1), "padding": (1, 0), "stride": (2, 2)}


def averaged(x: Any) -> Any:
    return F.avg_pool2d(x, (3, 2), 2, (1, 0), ceil_mode=True)


def largest(x: Any) -> Any:
    return F.max_pool2d(x, (3, 2), 2, (1, 0))


def unfolded(x: Any) -> Any:
    return F.unfold(x, (3, 2), padding=(1, 0), stride=2)


def slope(function: Callable[..., Any], *operands: Any, dy: Any = ONE) -> Any:
    return gradients(function, dy, *operands)[0]


D_AVERAGED, D_LARGEST, D_UNFOLDED = (drawn(*function(T(IMAGE)).shape) for function in (averaged, largest, unfolded))


def squared(x: Any) -> Any:
    return F.mse_loss(x, T(DY), reduction="sum")


def smooth(x: Any) -> Any:
    return F.smooth_l1_loss(x, T(DY), beta=0.25)


def diverging(x: Any) -> Any:
    return F.kl_div(x, T(SHARES), reduction="batchmean")


def weighed(x: Any) -> Any:
    return F.nll_loss(x, T(TARGET).long(), T(WEIGHT))


def crossed(x: Any) -> Any:
    return F.binary_cross_entropy_with_logits(x, T(SHARES), T(SHARES), pos_weight=T(WEIGHT))


CHANCES, HALVES = 1 / (1 + np.exp(-X)), 1 / (1 + np.exp(-DY))


def chanced(x: Any) -> Any:
    return F.binary_cross_entropy(x, T(HALVES), T(SHARES))


FOURS = np.broadcast_to(WEIGHT, X.shape).copy()
PLACES = np.array([2, 0])
#: Of each type: inputs, attributes and the results.
COMPILED: dict[str, tuple[Sequence[Any], dict[str, Any], Any]] = {
    "AdaptiveAvgPool2d": ((IMAGE,), {"output_size": (2, 3)}, F.adaptive_avg_pool2d(T(IMAGE), (2, 3))),
    "AdaptiveAvgPool2dGrad": (
        (IMAGE[:, :, :2, :3].copy(),),
        {"orig_input_shape": IMAGE.shape},
        slope(lambda x: F.adaptive_avg_pool2d(x, (2, 3)), IMAGE, dy=IMAGE[:, :, :2, :3].copy()),
    ),
    "AsStrided": ((X, OnHost([2, 3]), OnHost([1, 4]), OnHost(2)), {}, T(X).as_strided((2, 3), (1, 4), 2)),
    "AvgPoolV2": ((IMAGE,), WINDOWS, averaged(T(IMAGE))),
    "AvgPoolV2Grad": ((OnHost(np.int32(IMAGE.shape)), D_AVERAGED), WINDOWS, slope(averaged, IMAGE, dy=D_AVERAGED)),
    "BinaryCrossEntropy": ((CHANCES, HALVES, SHARES), MEAN, chanced(T(CHANCES))),
    "BinaryCrossEntropyGrad": ((CHANCES, HALVES, ONE, SHARES), MEAN, slope(chanced, CHANCES)),
    "Bincount": ((TARGET, OnHost(np.int32(5)), WEIGHT[:3].copy()), {}, T(TARGET).bincount(T(WEIGHT[:3]), 5)),
    "Col2im": (
        (D_UNFOLDED.reshape(2, 3, 6, -1), OnHost(np.int32([7, 8]))),
        ROWS,
        F.fold(T(D_UNFOLDED), (7, 8), (3, 2), padding=(1, 0), stride=2),
    ),
    "Dot": ((X[0].copy(), X[1].copy()), {}, X[0] @ X[1]),
    "EmbeddingDenseGrad": (
        (DY, TARGET),
        {"num_weights": 5, "padding_idx": -1, "scale_grad_by_freq": False},
        slope(lambda w: w[T(TARGET).long()], drawn(5, 4), dy=DY),
    ),
    "Eye": ((), {"num_rows": 3, "num_columns": 4}, torch.eye(3, 4)),
    "GroupNormSwish": (
        (IMAGE[:, :2].copy(), WEIGHT[:2].copy(), WEIGHT[2:].copy()),
        {"num_groups": 1, "eps": 0.5, "activate_swish": False},
        (
            F.group_norm(T(IMAGE[:, :2]), 1, T(WEIGHT[:2]), T(WEIGHT[2:]), 0.5),
            IMAGE[:, :2].mean((1, 2, 3))[:, None],
            1 / np.sqrt(IMAGE[:, :2].var((1, 2, 3)) + 0.5)[:, None],
        ),
    ),
    "HardSigmoid": ((X,), {}, F.hardsigmoid(T(X))),
    "HardSigmoidGrad": ((DY, X), {}, slope(F.hardsigmoid, X, dy=DY)),
    "HardtanhGrad": (
        (X, DY),
        {"min_val": -0.5, "max_val": 0.25},
        slope(lambda x: F.hardtanh(x, -0.5, 0.25), X, dy=DY),
    ),
    "Im2col": ((IMAGE,), COLUMNS, unfolded(T(IMAGE))),
    "Index": ((X, OnHost([0, 1]), OnHost([3, 2]), PLACES), {}, X[:, PLACES]),
    "IsClose": ((X, X + np.float32([0, 0, 1, 1])), {"rtol": 1e-5, "atol": 1e-8}, [[1, 1, 0, 0]] * 3),
    "KLDiv": ((X, SHARES), {"reduction": "batchmean", "log_target": False}, diverging(T(X))),
    "KlDivLossGrad": ((ONE, X, SHARES), {"reduction": "batchmean", "log_target": False}, slope(diverging, X)),
    "L1LossGrad": ((ONE, X, DY), SUM, np.sign(X - DY)),
    "LpLoss": ((X, DY), MEAN | {"p": 1}, np.abs(X - DY).mean()),
    "LpNormReduceV2": ((X,), {"p": 3.0, "axes": (1,), "keepdim": True}, (np.abs(X) ** 3).sum(1, keepdims=True)),
    "LpNormUpdateV2": ((SHARES,), {"p": 3.0}, np.cbrt(SHARES)),
    "MatrixInverse": ((X[:, :3].copy(),), {"adjoint": False}, np.linalg.inv(X[:, :3])),
    "MaxPoolGradWithArgmaxV1": ((IMAGE, D_LARGEST, MASK), MAXIMA, slope(largest, IMAGE, dy=D_LARGEST)),
    "MaxPoolWithArgmaxV1": ((IMAGE,), MAXIMA, (largest(T(IMAGE)), MASK)),
    "MseLoss": ((X, DY), SUM, squared(T(X))),
    "MseLossGrad": ((X, DY, ONE), SUM, slope(squared, X)),
    "NLLLoss": ((X, TARGET, WEIGHT), MEAN | {"ignore_index": -100}, (weighed(T(X)), WEIGHT[TARGET].sum())),
    "NLLLossGrad": (
        (X, ONE, TARGET, WEIGHT, np.array(WEIGHT[TARGET].sum())),
        MEAN | {"ignore_index": -100},
        slope(weighed, X),
    ),
    "ReduceLogSumExp": ((X, OnHost([1])), {"keep_dims": True}, T(X).logsumexp(1, keepdim=True)),
    "ReduceStdV2Update": (
        (X, np.broadcast_to(X.mean(1, keepdims=True), X.shape).copy()),
        {"dim": (1,), "if_std": False, "correction": 2},
        T(X).var(1, correction=2),
    ),
    "ReduceStdWithMean": (
        (X, np.full_like(X, X.mean())),
        {"dim": (0, 1), "unbiased": False, "keepdim": True},
        [[X.std()]],
    ),
    "RmsNorm": (
        (X, WEIGHT),
        {"epsilon": 0.25},
        (F.rms_norm(T(X), (4,), T(WEIGHT), 0.25), 1 / np.sqrt((X * X).mean(1, keepdims=True) + 0.25)),
    ),
    "RmsNormGrad": (
        (DY, X, 1 / np.sqrt((X * X).mean(1, keepdims=True)), WEIGHT),
        {},
        tuple(gradients(lambda x, w: F.rms_norm(x, (4,), w, 0.0), DY, X, WEIGHT)),
    ),
    "Roll": ((X,), {"shifts": (1, -1), "dims": (0, 1)}, np.roll(X, (1, -1), (0, 1))),
    "SigmoidCrossEntropyWithLogitsGradV2": ((X, SHARES, ONE, SHARES, FOURS), MEAN, slope(crossed, X)),
    "SigmoidCrossEntropyWithLogitsV2": ((X, SHARES, SHARES, FOURS), MEAN, crossed(T(X))),
    "SiluGrad": ((DY, X), {}, slope(F.silu, X, dy=DY)),
    "SmoothL1LossGradV2": ((X, DY, ONE), MEAN | {"sigma": 0.25}, slope(smooth, X)),
    "SmoothL1LossV2": ((X, DY), MEAN | {"sigma": 0.25}, smooth(T(X))),
    "TanhGrad": ((np.tanh(X), DY), {}, slope(torch.tanh, X, dy=DY)),
    "TensorEqual": ((X, X), {}, [1]),
    "TopKV2": (
        (X, OnHost(np.int32([2]))),
        {"dim": 1, "largest": True, "sorted": True},
        (T(X).topk(2).values, T(X).topk(2).indices),
    ),
    "Triu": ((X,), {"diagonal": 1}, np.triu(X, 1)),
}
OTHERS = {"IndexPutV2", "InplaceIndexAdd", "MaskedSelect", "NonZero", "UniqueWithCountsAndSorting", "ViewCopy"}
DRAWINGS = {"StatelessRandomNormalV2": (-1.96, 0.0), "StatelessRandomUniformV2": (0.0, 0.5)}
TESTED = {*COMPILED, *OTHERS, *DRAWINGS}
NARROW = {"IsClose": [np.bool_], "TensorEqual": [np.bool_], "TopKV2": [np.float32, np.int32]}


def test_the_types_are_tested() -> None:
    assert compiled_types.TYPES.keys() == TESTED


@pytest.mark.parametrize("op_type", COMPILED)
def test_a_compiled_type(device: None, op_type: str) -> None:
    inputs, attributes, wanted = COMPILED[op_type]
    expected = [np.asarray(each) for each in (wanted if isinstance(wanted, tuple) else (wanted,))]
    types = NARROW.get(op_type, [each.dtype if each.dtype == np.uint16 else np.float32 for each in expected])
    outputs = [np.empty(each.shape, dtype) for each, dtype in zip(expected, types, strict=True)]
    assert call(op_type, inputs, outputs, attributes) == 0, recent_error()
    for out, each in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(out, each, rtol=2e-5, atol=2e-6)


def test_parts_of_an_input_are_replaced_and_summed(device: None) -> None:
    place, rows = np.array([1, 1]), X[:2].copy()
    sizes = OnHost([1]), OnHost([0])
    summed, replaced = X.copy(), X.copy()
    summed[1] += rows.sum(0)
    replaced[1] = rows[1]
    for accumulate, wanted in ((True, summed), (False, replaced)):
        found = updated("IndexPutV2", (X, rows, *sizes, place), {"accumulate": accumulate})
        np.testing.assert_allclose(found[0], wanted, rtol=1e-6)
    assert call("IndexPutV2", (X, rows, *sizes, place), [np.empty_like(X)]) == 161002
    assert "the memory of inputs[0]" in recent_error()
    column = OnHost([3]), OnHost([4]), OnHost(1)
    written = X.copy()
    written[:, 1] = DY[:, 1]
    np.testing.assert_array_equal(updated("ViewCopy", (X, *column, DY, *column))[0], written)
    inputs = X, place.astype(np.int32), rows, OnHost(np.float32(2))
    doubled = X.copy()
    doubled[1] += 2 * rows.sum(0)
    np.testing.assert_allclose(updated("InplaceIndexAdd", inputs, {"axis": 0})[0], doubled, rtol=1e-6)


def sized(op_type: str, inputs: Sequence[Any], rooms: Sequence[Any], attributes: dict[str, Any]) -> list[Any]:
    """Return the results of a call that shrinks the descriptions of its outputs."""
    attr = attributes_of(attributes)
    with described(inputs) as (read, read_at, _), described(rooms) as (written, written_at, places):
        status = cann.aclopCompileAndExecuteV2(
            op_type, len(read), read, read_at, len(written), written, written_at, attr, 0, 0, None, 0
        )
        assert status == 0, recent_error()
        found = []
        for desc, place, room in zip(written, places, rooms, strict=True):
            shape = [cann.aclGetTensorDescDim(desc, dim) for dim in range(cann.aclGetTensorDescNumDims(desc))]
            out = np.empty(shape, room.dtype)
            assert cann.aclrtMemcpy(out.ctypes.data, out.nbytes, place, out.nbytes, 2) == 0
            found.append(out)
    cann.aclopDestroyAttr(attr)
    return found


def test_outputs_get_the_shape_of_the_result(device: None) -> None:
    (chosen,) = sized("MaskedSelect", (X, X > 0), [np.empty(12, np.float32)], {})
    np.testing.assert_array_equal(chosen, X[X > 0])
    count = np.count_nonzero(X > 0)
    for transpose, room in ((False, (12, 2)), (False, (count, 2)), (True, (2, 12))):
        (places,) = sized("NonZero", (X > 0,), [np.empty(room, np.int64)], {"transpose": transpose})
        wanted = np.argwhere(X > 0)
        np.testing.assert_array_equal(places, wanted.T if transpose else wanted)
    values, rooms = np.array([5, 2, 5, 5]), [np.empty(n, np.int64) for n in (4, 4, 1)]
    flags = {"sorted": True, "return_inverse": True, "return_counts": False}
    distinct, inverse, _ = sized("UniqueWithCountsAndSorting", (values,), rooms, flags)
    np.testing.assert_array_equal(distinct, [2, 5])
    np.testing.assert_array_equal(distinct[inverse], values)


def test_windows_of_maxima_are_not_dilated(device: None) -> None:
    dilated = MAXIMA | {"dilation": (1, 2, 2, 1)}
    outputs = [np.empty_like(D_LARGEST), np.empty_like(MASK)]
    assert call("MaxPoolWithArgmaxV1", (IMAGE,), outputs, dilated) == 161002
    assert "dilation: expected only 1, got" in recent_error()


@pytest.mark.parametrize("op_type", DRAWINGS)
def test_random_numbers_follow_the_key(device: None, op_type: str) -> None:
    first, again, other = (np.empty(10_000, np.float32) for _ in range(3))
    for out, key in ((first, KEY), (again, KEY), (other, (OnHost(np.uint64([8])), *KEY[1:]))):
        assert call(op_type, (OnHost([10_000]), *key), [out]) == 0, recent_error()
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    low, middle = DRAWINGS[op_type]
    np.testing.assert_allclose(np.quantile(first, [0.025, 0.5]) - [0, middle], [low, 0], atol=0.1)
