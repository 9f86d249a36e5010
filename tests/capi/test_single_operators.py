"""Operators by type: every type against the ``aclnn`` function that it is, or against PyTorch; errors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import aclnn
from aclnn import cann
from aclnn.capi.op_types import TYPES
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import set_soc_name
from tests.helpers.fresh_runtime import MEMORY_BYTES, recent_error

Array = np.ndarray[Any, Any]
Attributes = dict[str, Any]
RNG = np.random.default_rng(7)
X = RNG.normal(size=(3, 4)).astype(np.float32)
DY = RNG.normal(size=(3, 4)).astype(np.float32)


class OnHost:
    """An input in host memory."""

    def __init__(self, values: Any, constant: bool = False) -> None:
        self.values, self.constant = np.asarray(values), constant


def attributes_of(values: Attributes) -> int:
    attr = cann.aclopCreateAttr()
    for name, value in values.items():
        match value:
            case bool():
                status = cann.aclopSetAttrBool(attr, name, value)
            case int():
                status = cann.aclopSetAttrInt(attr, name, value)
            case float():
                status = cann.aclopSetAttrFloat(attr, name, value)
            case str():
                status = cann.aclopSetAttrString(attr, name, value)
            case (float(), *_):
                status = cann.aclopSetAttrListFloat(attr, name, len(value), value)
            case _:
                status = cann.aclopSetAttrListInt(attr, name, len(value), value)
        assert status == 0
    return attr


@contextmanager
def described(arrays: Sequence[Any]) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """Return descriptions, buffers and device addresses for arrays."""
    descs, buffers, places = [], [], []
    for given in arrays:
        if given is None:
            descs.append(cann.aclCreateTensorDesc(D.DT_UNDEFINED, 0, None, -1))
            buffers.append(cann.aclCreateDataBuffer(0, 0))
            places.append(0)
            continue
        array = given.values if isinstance(given, OnHost) else given
        desc = cann.aclCreateTensorDesc(D.of_numpy(array.dtype), array.ndim, array.shape, cann.ACL_FORMAT_ND)
        address = array.ctypes.data
        if isinstance(given, OnHost):
            if given.constant:
                assert cann.aclSetTensorConst(desc, address, array.nbytes) == 0
                address = 0
            else:
                assert cann.aclSetTensorPlaceMent(desc, cann.ACL_MEMTYPE_HOST) == 0
            places.append(0)
        else:
            status, place = cann.aclrtMalloc(max(1, array.nbytes), 0)
            assert status == 0
            ctypes.memmove(place, np.ascontiguousarray(array).ctypes.data, array.nbytes)
            address = place
            places.append(place)
        descs.append(desc)
        buffers.append(cann.aclCreateDataBuffer(address, array.nbytes if address else 0))
    yield descs, buffers, places
    for desc, buffer, place in zip(descs, buffers, places, strict=True):
        cann.aclDestroyTensorDesc(desc)
        assert cann.aclDestroyDataBuffer(buffer) == 0
        if place:
            assert cann.aclrtFree(place) == 0


def call(op_type: str, inputs: Sequence[Any], outputs: Sequence[Array], attributes: Attributes | None = None) -> int:
    """Run an operator by its type, and copy results to the outputs, which are poisoned before (NaN, -1 or 255)."""
    for out in outputs:
        out.fill({"f": np.nan, "u": 255}.get(out.dtype.kind, -1))
    attr = attributes_of(attributes or {})
    with described(inputs) as (read, read_at, _), described(outputs) as (written, written_at, places):
        status: int = cann.aclopCompileAndExecute(
            op_type, len(read), read, read_at, len(written), written, written_at, attr, 0, 0, None, 0
        )
        assert cann.aclrtSynchronizeDevice() == 0
        for place, out in zip(places, outputs, strict=True):
            ctypes.memmove(out.ctypes.data, place, out.nbytes)
    cann.aclopDestroyAttr(attr)
    return status


SIGMOID = 1 / (1 + np.exp(-X))
SHIFTED = X.copy()
SHIFTED[0, 0] = 30.0
"""Beyond softplus' threshold."""
WEIGHT, BIAS = RNG.normal(size=(2, 4)).astype(np.float32)
SHARES = aclnn.softmax(X, 0)
ROW_SHARES = np.exp(X[None, None].astype(float) - X.max(-1, keepdims=True))
ROW_SHARES /= ROW_SHARES.sum(-1, keepdims=True)
#: Of each type: inputs, attributes, and the results that the Python function of another door gives.
CASES: dict[str, tuple[Sequence[Any], Attributes, Any]] = {
    "ArgMaxWithValue": ((X,), {"dimension": 1, "keep_dims": True}, (X.argmax(1)[:, None], X.max(1, keepdims=True))),
    "ArgMinWithValue": ((X,), {"dimension": 0}, (X.argmin(0), X.min(0))),
    "BroadcastTo": ((X[:, :1].copy(), OnHost([3, 5])), {}, np.broadcast_to(X[:, :1], (3, 5))),
    "Cast": ((X,), {"dst_type": 1}, X.astype(np.float16)),
    "ConfusionTransposeD": (
        (X,),
        {"perm": (1, 0), "shape": (2, 6), "transpose_first": True},
        X.T.reshape(2, 6),
    ),
    "Elu": ((X,), {"alpha": 0.5, "scale": 2.0, "input_scale": 1.5}, aclnn.elu(X, 0.5, 2.0, 1.5)),
    "EluGradV2": (
        (DY, X),
        {"alpha": 0.5, "scale": 2.0, "input_scale": 1.5, "is_result": False},
        aclnn.elu_backward(DY, 0.5, 2.0, 1.5, False, X),
    ),
    "FastGelu": ((X,), {}, aclnn.fast_gelu(X)),
    "FastGeluGrad": ((DY, X), {}, aclnn.fast_gelu_backward(DY, X)),
    "Fill": ((OnHost(np.array([3, 4])), OnHost(np.float32(2.5))), {}, np.full((3, 4), 2.5, np.float32)),
    "Gelu": ((X,), {}, aclnn.gelu(X)),
    "GeluGrad": ((DY, X, aclnn.gelu(X)), {}, aclnn.gelu_backward(DY, X)),
    "HardSwish": ((X,), {}, aclnn.hardswish(X)),
    "HardSwishGrad": ((DY, X), {}, aclnn.hardswish_backward(DY, X)),
    "Identity": ((X,), {}, X),
    # torch_npu's tests print 0.9805, in 16 bits, for boxes of two by two that are one.
    "Iou": (
        (np.float32([[1, 2, 3, 4], [5, 6, 7, 8]]), np.float32([[1, 2, 3, 4]])),
        {"mode": "iou", "eps": 0.01},
        np.float32([[4 / (2 * 2.01**2 - 4), 0]]),
    ),
    "LayerNormV3": (
        (X, WEIGHT, BIAS),
        {"begin_norm_axis": 1, "begin_params_axis": 1, "epsilon": 0.5},
        aclnn.layer_norm(X, (4,), WEIGHT, BIAS, float(np.float32(0.5))),
    ),
    "LeakyRelu": ((X,), {"negative_slope": 0.25}, aclnn.leaky_relu(X, 0.25)),
    "LeakyReluGrad": ((DY, X), {"negative_slope": 0.25}, aclnn.leaky_relu_backward(DY, X, 0.25)),
    "LogSigmoid": ((X,), {}, aclnn.log_sigmoid(X)),
    "LogSoftmaxGrad": ((DY, np.log(SHARES)), {"axis": (0,)}, aclnn.log_softmax_backward(DY, np.log(SHARES), 0)),
    "LogSoftmaxV2": ((X,), {"axes": (0,)}, aclnn.log_softmax(X, 0)),
    "Mish": ((X,), {}, aclnn.mish(X)),
    "MishGrad": ((DY, X), {}, aclnn.mish_backward(DY, X)),
    "Qr": ((np.diag([2.0, 3.0]).astype(np.float32),), {"full_matrices": True}, (np.eye(2), np.diag([2.0, 3.0]))),
    "Relu": ((X,), {}, np.maximum(X, 0)),
    "ReluGrad": ((DY, X), {}, np.where(X > 0, DY, 0)),
    "Renorm": (
        (X,),
        {"p": 1.0, "dim": 0, "maxnorm": 2.0},
        np.minimum(1, 2 / (np.abs(X.astype(float)).sum(1, keepdims=True) + 1e-7)).astype(np.float32),
    ),
    "Round": ((X,), {"decimals": 1}, np.round(X.astype(np.float64), 1).astype(np.float32)),
    "ScaledMaskedSoftmax": (
        (X[None, None], np.zeros((1, 1, *X.shape), np.bool_)),
        {"scale": 1.0, "fixed_triu_mask": False},
        ROW_SHARES.astype(np.float32),
    ),
    "ScaledMaskedSoftmaxGrad": (
        (DY[None, None], np.full((1, 1, *X.shape), 0.25, np.float32), np.zeros((1, 1, *X.shape), np.bool_)),
        {"scale": 1.0, "fixed_triu_mask": False},
        (DY[None, None] / 4.0 - DY[None, None].astype(float).sum(-1, keepdims=True) / 16.0).astype(np.float32),
    ),
    "ScatterElements": (
        (X, np.array([[1, 0]]), DY[:1, :2].copy()),
        {"axis": 1},
        np.concatenate((np.concatenate((DY[:1, 1::-1], X[:1, 2:]), 1), X[1:])),
    ),
    "Selu": ((X,), {}, aclnn.selu(X)),
    "SeluGrad": ((DY, aclnn.selu(X)), {}, aclnn.selu_backward(DY, aclnn.selu(X))),
    "Sigmoid": ((X,), {}, aclnn.sigmoid(X)),
    "SigmoidGrad": ((SIGMOID, DY), {}, aclnn.sigmoid_backward(DY, SIGMOID)),
    "Slice": ((X, OnHost([1, 0]), OnHost([2, -1])), {}, X[1:]),
    "SoftmaxGrad": ((SHARES, DY), {"axes": (0,)}, aclnn.softmax_backward(DY, SHARES, 0)),
    "SoftmaxV2": ((X,), {}, aclnn.softmax(X, -1)),
    "SoftplusV2": ((SHIFTED,), {"beta": 2.0, "threshold": 5.0}, aclnn.softplus(SHIFTED, 2.0, 5.0)),
    "SoftplusV2Grad": (
        (DY, SHIFTED),
        {"beta": 2.0, "threshold": 5.0},
        aclnn.softplus_backward(DY, SHIFTED, 2.0, 5.0),
    ),
    "Sub": ((X, DY), {}, X - DY),
    "Svd": (
        (np.diag([3.0, 2.0]).astype(np.float32),),
        {"full_matrices": False, "compute_uv": True},
        (np.array([3.0, 2.0]), np.eye(2), np.eye(2)),
    ),
    "Swish": ((X,), {"scale": 1.5}, aclnn.swish(X, 1.5)),
    "SwishGrad": ((DY, X, X), {"scale": 1.5}, aclnn.swish_backward(DY, X, 1.5)),
    "Transpose": ((X, OnHost([1, 0])), {}, X.T),
    "Cdist": (
        (np.array([[[0.0, 3.0], [1.0, 1.0]]], np.float32), np.array([[[4.0, 0.0], [1.0, 1.0]]], np.float32)),
        {"p": 2.0},
        np.array([[5.0, 0.0]], np.float32),
    ),
    "LogSpaceD": (
        (np.zeros(4, np.float32),),
        {"start": 0.0, "end": 3.0, "steps": 4, "base": 10.0},
        np.array([1, 10, 100, 1000], np.float32),
    ),
}


@pytest.mark.parametrize("op_type", CASES)
def test_operators_by_type_compute_the_function(device: None, op_type: str) -> None:
    inputs, attributes, expected = CASES[op_type]
    wanted = expected if isinstance(expected, tuple) else (expected,)
    narrow = {np.dtype(np.int64): np.int32, np.dtype(np.float64): np.float32}
    outputs = [np.empty(each.shape, narrow.get(each.dtype, each.dtype)) for each in wanted]
    assert call(op_type, inputs, outputs, attributes) == 0, recent_error()
    for out, each in zip(outputs, wanted, strict=True):
        np.testing.assert_array_equal(out, each)


IMAGE = RNG.normal(size=(1, 2, 3, 4)).astype(np.float32)
CORNERS = np.array([[[[-1, -1], [1, 1]]]], np.float32)
CASES |= {
    "GridSampler2D": (
        (IMAGE, CORNERS),
        {"interpolation_mode": "nearest", "padding_mode": "border", "align_corners": True},
        IMAGE[:, :, [0, -1], [0, -1]][:, :, None],
    ),
    "GridSampler3D": (
        (IMAGE[:, :, None], np.concatenate((CORNERS, [[[[0], [0]]]]), -1)[:, None].astype(np.float32)),
        {"align_corners": True},
        IMAGE[:, :, [0, -1], [0, -1]][:, :, None, None],
    ),
    "MultilabelMarginLoss": (
        (np.array([[0.5, 1.0]], np.float32), np.array([[1, -1]])),
        {"reduction": "sum"},
        (np.array(0.25, np.float32), np.array([[0, 1]], np.float32)),
    ),
    "Pdist": ((np.array([[0, 3], [4, 0], [0, 0]], np.float32),), {"p": 1.0}, np.array([7, 3, 4], np.float32)),
    "ShuffleChannel": ((IMAGE.reshape(1, 4, 6),), {"group": 2}, IMAGE.reshape(1, 4, 6)[:, [0, 2, 1, 3]]),
}

#: The digits that the documents of torch_npu print, for two anchors.
ANCHORS = np.array([[1, 2, 3, 4], [3, 4, 5, 6]], np.float32)
#: Two boxes in columns, of which the second share half of their areas, and a box next to them.
COLUMNS, OTHERS = (
    np.array([[0, 0], [0, 0], [2, 2], [2, 2]], np.float32),
    np.array([[0, 1], [0, 0], [2, 3], [2, 2]], np.float32),
)
CASES |= {
    "Add": ((X, DY), {}, X + DY),
    # Centres (1, 3) and, beyond the grid, (7, 9).
    "AnchorResponseFlags": (
        (np.float32([[0, 2, 2, 4], [6, 8, 8, 10]]),),
        {"featmap_size": (3, 2), "strides": (2, 2), "num_base_anchors": 2},
        np.array([0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1], np.uint8),
    ),
    "BatchMatMul": (
        (np.array([[[1, 2], [3, 4]]], np.float32), np.array([[[1, 0], [1, 1]]], np.float32)),
        {"adj_x1": True, "adj_x2": False},
        np.array([[[4, 3], [6, 4]]], np.float32),
    ),
    "BoundingBoxDecode": (
        (ANCHORS, np.array([[5, 6, 7, 8], [7, 8, 9, 6]], np.float32)),
        {"means": (0.0,) * 4, "stds": (1.0,) * 4, "max_shape": (10, 10), "wh_ratio_clip": 0.1},
        np.array([[2.5, 6.5, 9, 9], [9, 9, 9, 9]], np.float32),
    ),
    "BoundingBoxEncode": (
        (ANCHORS, np.array([[5, 5, 7, 7], [6, 7, 8, 9]], np.float32)),
        {"means": (0.0,) * 4, "stds": (0.5, 0.5, 1.0, 1.0)},
        np.array([[8 / 3, 2, 0, 0], [2, 2, 0, 0]], np.float32),
    ),
    # Boxes of one shape, whose distance is 1 of a diagonal of sqrt(13).
    "CIoU": (
        (COLUMNS, OTHERS),
        {"trans": False, "is_cross": False, "mode": "iou", "atan_sub_flag": True},
        (np.array([[1, 1 / 3 - 1 / 13]], np.float32), np.zeros((1, 2), np.float32)),
    ),
    "DIoU": ((COLUMNS, OTHERS), {"is_cross": False}, np.array([[1, 1 / 3 - 1 / 13]], np.float32)),
    "GIoU": (
        (COLUMNS[:, :1], OTHERS + np.float32([[0], [0], [0], [2]])),
        {"is_cross": True, "mode": "iou"},
        np.array([[0.5], [2 / 10 - 2 / 12]], np.float32),
    ),
    "NonMaxSuppressionV4": (
        (
            np.array([[0, 0, 2, 2], [2, 2, 0, 0.5], [5, 5, 6, 6], [8, 8, 9, 9]], np.float32),
            np.array([0.5, 0.9, 0.6, 0.1], np.float32),
            *(np.array(3, np.int32), np.array(0.5, np.float32), np.array(0.2, np.float32)),
        ),
        {"pad_to_max_output_size": False},
        (np.array([1, 2, 0], np.int32), np.array(2, np.int32)),
    ),
    "OneHotD": (
        (np.array([[1, 3]], np.int32), np.float32([5]), np.float32([2])),
        {"depth": 3, "axis": 0},
        np.array([[[2, 2]], [[5, 2]], [[2, 2]]], np.float32),
    ),
    "ROIAlign": (
        (np.arange(1, 37, dtype=np.float32).reshape(1, 1, 6, 6), np.array([[0, -2, -2, 22, 22]], np.float32)),
        {"spatial_scale": 0.25, "pooled_height": 3, "pooled_width": 3, "sample_num": 2, "roi_end_mode": 0},
        np.array([[[[4.5, 6.5, 8.5], [16.5, 18.5, 20.5], [28.5, 30.5, 32.5]]]], np.float32),
    ),
    "ROIAlignGrad": (
        (np.ones((1, 1, 3, 3), np.float32), np.array([[0, -2, -2, 22, 22]], np.float32)),
        {
            "xdiff_shape": (1, 1, 6, 6),
            "pooled_width": 3,
            "pooled_height": 3,
            "spatial_scale": 0.25,
            "sample_num": 2,
            "roi_end_mode": 3,
        },
        np.outer(*[[0.75, 0.5, 0.5, 0.5, 0.5, 0.25]] * 2).astype(np.float32)[None, None],
    ),
    "SoftmaxCrossEntropyWithLogits": (
        (np.zeros((1, 2), np.float32), np.array([[1, 0]], np.float32)),
        {},
        (np.log(np.float32([2])), np.array([[-0.5, 0.5]], np.float32)),
    ),
}
# The second is too far away, and has no width.
CASES["YoloBoxesEncode"] = (
    (np.float32([[0, 0, 2, 4], [0, 0, 2, 4]]), np.float32([[1, 0, 3, 2], [9, 2, 9, 6]]), np.array([4, 4], np.int32)),
    {"performance_mode": "high_precision"},
    np.float32([[0.75, 0.25, 0, np.log(0.5)], [1 - 1e-6, 1 - 1e-6, np.log(1e-6), 0]]),
)

TORCH = {"CTCLossV2", "CTCLossV2Grad", "GridSampler2DGrad", "GridSampler3DGrad"}
TORCH |= {"ApplyAdamW", "CdistGrad", "DynamicRNN", "DynamicRNNGrad", "DynamicRNNV2", "DynamicRNNV2Grad"}

INSIDE = (np.abs(X) % 1 * 0.9 + 0.05).astype(np.float32)
NUMBER, LARGER = OnHost(np.float32(0.25)), OnHost(np.float32(0.75))
OF_ONE = (
    "Abs Acos Asin Atan Ceil Cos Cosh Erf Erfc Expm1 Floor IsFinite Log1p Neg Reciprocal Rsqrt Sign Sin "
    "Sinh Sqrt Square Tan Tanh Trunc"
)
OF_TWO = {
    "Atan2": "atan2",
    "Equal": "eq",
    "FloorDiv": "floor_divide",
    "FloorMod": "remainder",
    "Greater": "gt",
    "GreaterEqual": "ge",
    "Less": "lt",
    "LessEqual": "le",
    "LogicalAnd": "logical_and",
    "LogicalOr": "logical_or",
    "Maximum": "maximum",
    "Minimum": "minimum",
    "Mod": "fmod",
    "Mul": "mul",
    "NotEqual": "ne",
    "Pow": "pow",
    "RealDiv": "div",
}
OF_LOGARITHMS = {"base": 2.0, "scale": 0.5, "shift": 1.0}
ALONG: Attributes = {"keep_dims": True}
Formula = Callable[..., Any]
#: What torch_npu calls for tensors in private formats: inputs, attributes, and a function of PyTorch's tensors.
PRIVATE: dict[str, tuple[Sequence[Any], Attributes, Formula | str]] = {
    **{name: ((INSIDE,), {}, name.lower()) for name in OF_ONE.split()},
    **{name: ((INSIDE, np.abs(DY)), {}, function) for name, function in OF_TWO.items()},
    "Addcdiv": ((X, DY, INSIDE, NUMBER), {}, lambda x, y, z, _: x.addcdiv(y, z, value=0.25)),
    "Addcmul": ((X, DY, INSIDE, NUMBER), {}, lambda x, y, z, _: x.addcmul(y, z, value=0.25)),
    "AxpyV2": ((X, DY, NUMBER), {}, lambda x, y, _: x + 0.25 * y),
    "ClipByValue": ((X, NUMBER, LARGER), {}, lambda x, *_: x.clamp(0.25, 0.75)),
    "ClipByValueV2": ((X, NUMBER, LARGER), {}, lambda x, *_: x.clamp(0.25, 0.75)),
    "ConcatD": ((X, DY, X), {"concat_dim": 1, "N": 3}, lambda x, y, z: x.new_tensor(np.hstack([x, y, z]))),
    "Cumsum": ((X, OnHost(np.int32(1))), {}, lambda x, _: x.cumsum(1)),
    "Exp": ((X,), OF_LOGARITHMS, lambda x: (x * 0.5 + 1).exp2()),
    "GatherElements": ((X, np.array([[2, 0, 1, 1]])), {"dim": 0}, lambda x, at: x.gather(0, at)),
    "Invert": ((np.array([1, -2], np.int32),), {}, "bitwise_not"),
    "Lerp": ((X, DY, INSIDE), {}, "lerp"),
    "Log": ((INSIDE,), OF_LOGARITHMS, lambda x: (x * 0.5 + 1).log2()),
    "LogicalNot": ((X > 0,), {}, "logical_not"),
    "MaskedFill": ((X, X > 0, NUMBER), {}, lambda x, mask, _: x.masked_fill(mask, 0.25)),
    "MatMul": ((X, DY), {"transpose_x1": True, "transpose_x2": False}, lambda x, y: x.T @ y),
    "Pack": ((X, DY), {"axis": 1, "N": 2}, lambda x, y: x.new_tensor(np.stack([x, y], 1))),
    "ReduceAll": ((X > -1, OnHost([1])), {}, lambda x, _: x.all(1)),
    "ReduceAny": ((X > 1, OnHost([0])), ALONG, lambda x, _: x.any(0, True)),
    "ReduceMax": ((X, OnHost([0, 1])), {}, lambda x, _: x.amax()),
    "ReduceMean": ((X, OnHost([-1])), ALONG, lambda x, _: x.mean(1, True)),
    "ReduceMeanD": ((X,), {"axes": (0,), **ALONG}, lambda x: x.mean(0, True)),
    "ReduceMin": ((X, OnHost([0])), {}, lambda x, _: x.amin(0)),
    "ReduceSum": ((X, OnHost([0])), {}, lambda x, _: x.sum(0)),
    "ReverseV2": ((X, OnHost([0, 1])), {}, lambda x, _: x.flip(0, 1)),
    "Select": ((X > 0, X, DY), {}, "where"),
    "Tile": ((X, OnHost([2, 1, 3])), {}, lambda x, _: x.repeat(2, 1, 3)),
    "Tril": ((X,), {"diagonal": 1}, lambda x: x.tril(1)),
    "ZerosLike": ((X,), {}, "zeros_like"),
}
TORCH |= {*PRIVATE, "ApplyAdamD", "MaskedFillRange", "DropOutDoMask", "StatelessDropOutGenMask"}


def test_every_type_is_tested() -> None:
    from tests.capi import test_array_types, test_compiled_types, test_layer_types

    others = (test_array_types, test_compiled_types, test_layer_types)
    assert CASES.keys() | TORCH | {name for module in others for name in module.TESTED} == TYPES.keys()


@pytest.mark.parametrize("op_type", PRIVATE)
def test_types_for_private_formats_take_ordinary_ones(device: None, op_type: str) -> None:
    """Types that usually take private formats compute with ordinary ones, too."""
    torch = pytest.importorskip("torch")
    inputs, attributes, formula = PRIVATE[op_type]
    given = [torch.tensor(each.values if isinstance(each, OnHost) else each) for each in inputs]
    expected = (getattr(torch, formula) if isinstance(formula, str) else formula)(*given).numpy()
    out = np.empty(expected.shape, expected.dtype)
    assert call(op_type, inputs, [out], attributes) == 0, recent_error()
    np.testing.assert_allclose(out, expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("nesterov", [False, True])
def test_adam_by_type_takes_pytorchs_steps(device: None, nesterov: bool) -> None:
    """Compare with PyTorch's Adam; steps with Nesterov's look-ahead, unlike NAdam's, with the definition."""
    torch = pytest.importorskip("torch")
    parameter = torch.tensor(X.astype(float), requires_grad=True)
    optimizer = torch.optim.Adam([parameter], lr=0.25, betas=(0.5, 0.75), eps=0.125)
    state = [X.copy(), np.zeros_like(X), np.zeros_like(X)]
    for step, gradient in enumerate((DY, X), 1):
        before, parameter.grad = parameter.detach().clone(), torch.tensor(gradient.astype(float))
        optimizer.step()
        # Added to the root here, which PyTorch divides before.
        epsilon = 0.125 * np.sqrt(1 - 0.75**step)
        numbers = [np.float32(each) for each in (0.5**step, 0.75**step, 0.25, 0.5, 0.75, epsilon)]
        inputs = (*state, *map(OnHost, numbers), gradient)
        outputs = [np.empty_like(X) for _ in range(3)]
        assert call("ApplyAdamD", inputs, outputs, {"use_locking": False, "use_nesterov": nesterov}) == 0, (
            recent_error()
        )
        found = optimizer.state[parameter]
        expected, m, v = (each.detach().numpy() for each in (parameter, found["exp_avg"], found["exp_avg_sq"]))
        if nesterov:
            expected = before.numpy() + (expected - before.numpy()) * (0.5 * m + 0.5 * gradient) / m
        for got, each in zip(outputs, (expected, m, v), strict=True):
            np.testing.assert_allclose(got, each, rtol=1e-5, atol=1e-6)
        state = [expected.astype(np.float32), m.astype(np.float32), v.astype(np.float32)]
        with torch.no_grad():
            parameter.copy_(torch.tensor(expected))


CUBE = np.arange(24, dtype=np.int32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("axis", "filled"), [(0, np.s_[0:1]), (1, np.s_[:, 0:1]), (2, [np.s_[0, :, 0:1], np.s_[1, :, 2:4]])]
)
def test_masked_fill_range_fills_each_sample(device: None, axis: int, filled: Any) -> None:
    """Each sample has its own range along the last axis, as in torch_npu's test."""
    start, end = np.array([[0, 2], [1, 0]], np.int32), np.array([[1, 9], [1, 0]], np.int32)
    if axis < 2:
        start, end = start[:, :1], end[:, :1]
    expected, out = CUBE.copy(), np.empty_like(CUBE)
    for part in filled if isinstance(filled, list) else [filled]:
        expected[part] = -1
    inputs = (CUBE, start, end, np.array([-1, -2], np.int32))
    assert call("MaskedFillRange", inputs, [out], {"axis": axis}) == 0, recent_error()
    np.testing.assert_array_equal(out, expected)
    assert call("MaskedFillRange", (CUBE[:1].copy(), *inputs[1:]), [out[:1].copy()], {"axis": 5}) == 161002


def test_dropout_by_type_takes_the_probability_as_an_input(device: None) -> None:
    """The probability to keep an element is an input."""
    mask, out, x = np.empty(128, np.uint8), np.empty(1000, np.float32), np.ones(1000, np.float32)
    stays = OnHost(np.float32(0.25))
    inputs = (OnHost([1000]), stays, OnHost(np.int32(3)), OnHost(np.int32(0)), OnHost([0, 8]))
    assert call("StatelessDropOutGenMask", inputs, [mask]) == 0, recent_error()
    assert call("DropOutDoMask", (x, mask, stays), [out]) == 0, recent_error()
    kept = np.unpackbits(mask, bitorder="little")[:1000]
    np.testing.assert_array_equal(out, 4.0 * kept)
    assert 200 < kept.sum() < 300
    again = np.empty_like(mask)
    assert call("StatelessDropOutGenMask", (*inputs[:4], OnHost([0, 16])), [again]) == 0
    assert (again != mask).any()


@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, 2.0, 3.0, np.inf])
def test_cdist_by_type_and_its_gradient_match_pytorch(device: None, p: float) -> None:
    torch = pytest.importorskip("torch")
    first, second = (torch.tensor(RNG.normal(size=(n, 4)), requires_grad=True) for n in (3, 5))
    dy = RNG.normal(size=(3, 5))
    distances = torch.cdist(first, second, p)
    distances.backward(torch.tensor(dy))
    x1, x2, grad = (np.broadcast_to(each, (3, 5, 4)).astype(np.float32) for each in (
        first.detach().numpy()[:, None], second.detach().numpy(), dy[..., None]
    ))  # fmt: skip
    y, dx = np.empty((3, 5), np.float32), np.empty((3, 4), np.float32)
    assert call("Cdist", (x1, x2), [y], {"p": p}) == 0
    np.testing.assert_allclose(y, distances.detach().numpy(), rtol=1e-6)
    whole = np.broadcast_to(y[..., None], (3, 5, 4)).copy()
    assert call("CdistGrad", (grad, x1, x2, whole), [dx], {"p": p}) == 0
    np.testing.assert_allclose(dx, first.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rank", [2, 3])
def test_grid_sampler_gradients_by_type_match_pytorch(device: None, rank: int) -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(1, 2, *(3, 4, 5)[:rank], requires_grad=True)
    grid = (torch.rand(1, *(2, 3, 2)[:rank], rank) * 1.6 - 0.8).requires_grad_()
    y = torch.nn.functional.grid_sample(x, grid, align_corners=False, padding_mode="reflection")
    dy = torch.randn_like(y)
    y.backward(dy)
    outputs = [np.empty(each.shape, np.float32) for each in (x, grid)]
    attributes = {"interpolation_mode": "bilinear", "padding_mode": "reflection", "align_corners": False}
    inputs = [each.detach().numpy() for each in (dy, x, grid)]
    assert call(f"GridSampler{rank}DGrad", inputs, outputs, attributes) == 0, recent_error()
    for out, each in zip(outputs, (x, grid), strict=True):
        np.testing.assert_allclose(out, each.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_ctc_loss_by_type_and_its_gradient_match_pytorch(device: None) -> None:
    torch = pytest.importorskip("torch")
    given = torch.randn(6, 2, 4).log_softmax(-1).requires_grad_()
    targets, lengths, sizes = np.array([[1, 2, 2], [3, 1, 0]]), OnHost([6, 5]), OnHost([3, 2])
    loss = torch.nn.functional.ctc_loss(given, *map(torch.tensor, (targets, [6, 5], [3, 2])), reduction="none")
    loss.backward(dy := torch.randn(2))
    x, outputs = given.detach().numpy(), [np.empty(2, np.float32), np.empty((2, 6, 8), np.float32)]
    assert call("CTCLossV2", (x, targets, lengths, sizes), outputs, {"blank": 0}) == 0, recent_error()
    np.testing.assert_allclose(outputs[0], loss.detach().numpy(), rtol=1e-5)
    dx, inputs = np.empty_like(x), (dy.numpy(), x, targets, lengths, sizes, *outputs)
    assert call("CTCLossV2Grad", inputs, [dx], {"blank": 0}) == 0, recent_error()
    np.testing.assert_allclose(dx, given.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("order", ["ifjo", "ijfo", "ifco"])
@pytest.mark.parametrize("separate", [False, True])
def test_lstm_by_type_and_its_gradient_match_pytorch(device: None, order: str, separate: bool) -> None:
    torch = pytest.importorskip("torch")
    time, batch, taken, hidden = 3, 5, 4, 2
    lstm = torch.nn.LSTM(taken, hidden)
    x, h, c = (torch.randn(*shape, requires_grad=True) for shape in ((time, batch, taken), *((1, batch, hidden),) * 2))
    y, (h_end, c_end) = lstm(x, (h, c))
    dy, dh, dc = torch.randn_like(y), torch.randn_like(h_end), torch.randn_like(c_end)
    wanted = torch.autograd.grad((y, h_end, c_end), (*lstm.parameters(), x, h, c), (dy, dh, dc))

    def by_column(rows: Any) -> Array:
        gates = dict(zip("ifjo", np.split(rows.detach().numpy().T, 4, -1), strict=True))
        return np.ascontiguousarray(np.concatenate([gates[gate.replace("c", "j")] for gate in order], -1))

    of_input, of_state, first, second = map(by_column, lstm.parameters())
    given = [tensor.detach().numpy() for tensor in (x, h, c)]
    matrices = [of_input, of_state] if separate else [np.concatenate((of_input, of_state))]
    kind, attributes = "DynamicRNNV2" if separate else "DynamicRNN", {"gate_order": order}
    kept = [np.empty((time, batch, hidden), np.float32) for _ in range(8)]
    assert call(kind, (given[0], *matrices, first + second, None, *given[1:]), kept, attributes) == 0
    np.testing.assert_allclose(kept[0], y.detach().numpy(), rtol=1e-5, atol=1e-6)

    bias = [] if separate else [first + second]
    arriving = [each.numpy() for each in (dy, dh, dc)]
    inputs = (given[0], *matrices, *bias, kept[0], *given[1:], *kept[1:3], *arriving, *kept[3:])
    shapes = [*(each.shape for each in (*matrices, first)), *(each.shape for each in given)]
    gradients = [np.empty(shape, np.float32) for shape in shapes]
    assert call(f"{kind}Grad", inputs, gradients, attributes) == 0
    dw_input, dw_state, db = map(by_column, wanted[:3])
    expected = [*([dw_input, dw_state] if separate else [np.concatenate((dw_input, dw_state))]), db]
    expected += [each.numpy() for each in wanted[4:]]
    for got, each in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(got, each, rtol=1e-4, atol=1e-5)


def test_lstm_by_type_without_a_bias_matches_pytorch(device: None) -> None:
    """torch_npu calls this type for cells without a bias."""
    random = np.random.default_rng(5)
    x, of_input, of_state, h, c = (
        random.normal(size=shape).astype(np.float32) for shape in ((3, 5, 4), (4, 8), (2, 8), (1, 5, 2), (1, 5, 2))
    )
    found = []
    for bias in (None, np.zeros(8, np.float32)):
        kept = [np.empty((3, 5, 2), np.float32) for _ in range(8)]
        assert call("DynamicRNNV2", (x, of_input, of_state, bias, None, h, c), kept, {"gate_order": "ifjo"}) == 0
        found.append(kept)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("direction", ["UNIDIRECTIONAL", "REDIRECTIONAL"])
def test_lstm_by_type_obeys_direction_and_sequence_mask(device: None, direction: str) -> None:
    """The direction and the mask of sequences are obeyed."""
    torch = pytest.importorskip("torch")
    lengths, taken, hidden, flipped = (3, 2, 1), 4, 2, (0,) if direction == "REDIRECTIONAL" else ()
    lstm = torch.nn.LSTM(taken, hidden)
    x, h, c = (torch.randn(*shape, requires_grad=True) for shape in ((3, 3, taken), *((1, 3, hidden),) * 2))
    found = []
    for at, length in enumerate(lengths):
        y, _ = lstm(x[:length, at].flip(flipped), (h[:, at], c[:, at]))
        found.append(torch.nn.functional.pad(y.flip(flipped), (0, 0, 0, 3 - length)))
    expected = torch.stack(found, 1)
    dy = torch.randn_like(expected)
    gradients = torch.autograd.grad(expected, (*lstm.parameters(), x, h, c), dy)
    given = [tensor.detach().numpy() for tensor in (x, h, c)]
    matrices = [np.ascontiguousarray(each.detach().numpy().T) for each in lstm.parameters()]
    weights, bias, zeros = np.concatenate(matrices[:2]), matrices[2] + matrices[3], np.zeros((1, 3, hidden), np.float32)
    mask = np.repeat((np.arange(3)[:, None] < lengths)[..., None], hidden, 2).astype(np.float32)
    attributes, kept = {"gate_order": "ifjo", "direction": direction}, [np.empty_like(mask) for _ in range(8)]
    assert call("DynamicRNN", (given[0], weights, bias, mask, *given[1:]), kept, attributes) == 0, recent_error()
    np.testing.assert_allclose(kept[0], expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    inputs = (given[0], weights, bias, kept[0], *given[1:], *kept[1:3], dy.numpy(), zeros, zeros, *kept[3:], mask)
    outputs = [np.empty_like(each) for each in (weights, bias, *given)]
    assert call("DynamicRNNGrad", inputs, outputs, attributes) == 0, recent_error()
    of_input, of_state, of_bias, _, *others = (each.numpy() for each in gradients)
    for got, want in zip(outputs, (np.concatenate((of_input.T, of_state.T)), of_bias, *others), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("mode", "wanted"), [(0, 1.5), (1, 1.5), (2, 0.5), (3, 0.5)])
def test_roi_end_mode_extends_or_shifts_rectangles(device: None, mode: int, wanted: float) -> None:
    """Only in the latter modes is a rectangle without size a point."""
    ramp, out = np.float32([[[[0, 1, 2, 3]] * 4]]), np.empty((1, 1, 1, 1), np.float32)
    attributes = {"spatial_scale": 0.5, "pooled_height": 1, "pooled_width": 1, "sample_num": 1, "roi_end_mode": mode}
    assert call("ROIAlign", (ramp, np.float32([[0, 2, 2, 2, 2]])), [out], attributes) == 0, recent_error()
    assert out.item() == wanted


def test_input_values_may_be_constants_of_the_description(device: None) -> None:
    out = np.empty((4, 3), np.float32)
    assert call("Transpose", (X, OnHost([1, 0], constant=True)), [out]) == 0
    np.testing.assert_array_equal(out, X.T)


#: From 0 to 6 in each row.
ROWS = np.tile(np.arange(7, dtype=np.float32), (3, 1))


@pytest.mark.parametrize(
    ("soc", "mode", "pooling", "end", "expected"),
    [
        ("Ascend910B1", 0, "avg", 4, 3),
        ("Ascend910B1", 0, "avg", 2, 2.5),
        ("Ascend910B1", 1, "avg", 4, 3.5),
        ("Ascend910B1", 1, "max", 4, 4.25),
        ("Ascend950PR_9589", 1, "avg", 4, 4),
        ("Ascend910B1", 2, "avg", 4, 2.5),
        ("Ascend910B1", 2, "avg", 3, 2),
        ("Ascend910B1", 3, "max", 4, 3),
    ],
)
def test_roi_align_by_type_obeys_roi_end_mode_and_pool_mode(
    device: None, soc: str, mode: int, pooling: str, end: int, expected: float
) -> None:
    """A rectangle from 2 on, with two points in a bin; in modes 0 and 1 sides are at least a pixel."""
    out, roi = np.empty((1, 1, 1, 1), np.float32), np.array([[0, 2, 0, end, 0]], np.float32)
    attributes = {"spatial_scale": 1.0, "pooled_height": 1, "pooled_width": 1, "roi_end_mode": mode}
    set_soc_name(soc)
    assert call("ROIAlign", (ROWS[None, None], roi), [out], attributes | {"pool_mode": pooling}) == 0, recent_error()
    assert out.item() == expected


@pytest.mark.parametrize(("kind", "expected"), [("GIoU", 1), ("DIoU", 0)])
def test_iou_by_type_of_boxes_without_area(device: None, kind: str, expected: float) -> None:
    box, out = np.ones((4, 1), np.float32), np.empty((1, 1), np.float32)
    assert call(kind, (box, box), [out], {"is_cross": False}) == 0, recent_error()
    assert out.item() == expected


def test_ciou_clamps_the_ratio_of_sides(device: None) -> None:
    """A box of width 1 and height 1e-5, whose ratio is clamped to 10^4, and a square."""
    boxes = [np.array([[0], [0], [1], [end]], np.float32) for end in (1e-5, 1)]
    outputs = [np.empty((1, 1), np.float32) for _ in range(2)]
    assert call("CIoU", boxes, outputs, {"is_cross": False}) == 0, recent_error()
    assert outputs[1].item() == np.float32(np.arctan(1) - np.arctan(1e4))


def test_multilabel_margin_loss_by_type_defaults_to_the_mean(device: None) -> None:
    out, marks = np.empty((), np.float32), np.empty((2, 2), np.float32)
    x, target = np.array([[0.5, 1.0], [0.5, 0.5]], np.float32), np.array([[1, -1], [0, -1]])
    assert call("MultilabelMarginLoss", (x, target), [out, marks]) == 0, recent_error()
    assert out == np.float32(0.375)


def test_confusion_transpose_by_type_may_reshape_first(device: None) -> None:
    out = np.empty((6, 2), np.float32)
    attributes = {"perm": (1, 0), "shape": (2, 6), "transpose_first": False}
    assert call("ConfusionTransposeD", (X,), [out], attributes) == 0
    np.testing.assert_array_equal(out, X.reshape(2, 6).T)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "code", "text"),
    [
        ("Sine", (X,), {}, 200001, "opType: expected a type of the list in docs/c-functions.md, got Sine"),
        ("", (X,), {}, 200001, "opType: expected a type of the list in docs/c-functions.md, got "),
        ("Swish", (None,), {}, 161001, "Swish: aclnnSwish: self: expected an object, got null"),
        ("AxpyV2", (X, X, X), {}, 161002, "inputs[2]: expected one number in host memory, got none"),
        (
            "AxpyV2",
            (X, X, OnHost([0.0, 1.0])),
            {},
            161002,
            "inputs[2]: expected one number in host memory, got 2",
        ),
        ("Cumsum", (X, OnHost([0, 1])), {}, 161002, "Cumsum: inputs[1]: expected one integer, got [0, 1]"),
        ("BatchMatMul", (X, X, X), {"adj_x1": True}, 161002, "bias: expected null, got a tensor"),
        ("Swish", (), {}, 161001, "Swish: aclnnSwish: self: expected an object, got null"),
        ("Swish", (X.astype(np.int32),), {}, 161002, "Swish: aclnnSwish: self: expected data type"),
        ("Swish", (X,), {"scale": "1"}, 161002, "Swish: scale: expected a value such as 1.0, got '1'"),
        ("Transpose", (X, np.array([1, 0])), {}, 161002, "inputs[1]: expected values in host memory"),
        ("Transpose", (X, OnHost([1, 1])), {}, 161002, "perm: expected each of 2 dimensions once, got [1, 1]"),
        ("Transpose", (None, OnHost([1, 0])), {}, 161002, "inputs[0]: expected a tensor, got none"),
        ("Slice", (X, OnHost([2, 0]), OnHost([2, 2])), {}, 161002, "expected offsets and sizes inside [3, 4]"),
        ("SoftmaxV2", (X,), {"axes": (0, 1)}, 161002, "axes: expected one dimension, got [0, 1]"),
        (
            "ScatterElements",
            (X, np.array([[1, 0]]), X),
            {"reduction": "max"},
            161002,
            "reduction: expected none, add or mul, got max",
        ),
        ("LayerNormV3", (X, WEIGHT, BIAS), {"begin_norm_axis": 0.5}, 161002, "begin_norm_axis: expected a value such"),
        ("ArgMaxWithValue", (X,), {"dimension": 1.5}, 161002, "dimension: expected a value such as 0, got 1.5"),
        ("ScatterElements", (X, X, X), {"axis": float("inf")}, 161002, "axis: expected a value such as 0, got inf"),
        ("ArgMaxWithValue", (X,), {}, 161002, "dimension: expected a value such as 0, got None"),
        ("Renorm", (X,), {"p": 1.0, "dim": 0}, 161002, "maxnorm: expected a value such as 1.0, got None"),
        (
            "ConfusionTransposeD",
            (X,),
            {"perm": (1, 0), "shape": (3, 4)},
            161002,
            "transpose_first: expected a value such",
        ),
        ("OneHotD", (np.int64([1]), *np.float32([[5], [2]])), {"depth": 3}, 161002, "x: expected data type"),
        ("SoftmaxV2", (X,), {"axes": (0.5,)}, 161002, "axes: expected a value such as (-1,), got (0.5,)"),
        (
            "ConfusionTransposeD",
            (X,),
            {"perm": (1, 0), "shape": (4, 6), "transpose_first": False},
            161002,
            "shape: expected one of 12 elements",
        ),
        (
            "ConfusionTransposeD",
            (X,),
            {"perm": (1, 0), "shape": (-3, -4), "transpose_first": False},
            161002,
            "shape: expected one of 12 elements",
        ),
        (
            "ConfusionTransposeD",
            (X[:2].copy(),),
            {"perm": (1, 0), "shape": (), "transpose_first": True},
            161002,
            "shape: expected one of 12 elements, got [4, 2]",
        ),
        ("DynamicRNN", (X, X, X, None, X, X), {}, 161001, "DynamicRNN: output_h: expected an object, got null"),
    ],
)
def test_errors_of_operators_by_type_name_the_argument(
    device: None, op_type: str, inputs: Sequence[Any], attributes: Attributes, code: int, text: str
) -> None:
    assert call(op_type, inputs, [np.empty((3, 4), np.float32)], attributes) == code
    found = recent_error()
    assert found.startswith("aclopCompileAndExecute: ")
    assert text in found


def test_freed_memory_of_an_operator_by_type_is_named(device: None) -> None:
    with described([X]) as (read, read_at, _), described([X]) as (written, written_at, places):
        status, gone = cann.aclrtMalloc(X.nbytes, 0)
        assert status == 0
        assert cann.aclrtFree(gone) == 0
        assert cann.aclUpdateDataBuffer(read_at[0], gone, X.nbytes) == 0
        arguments = ("Swish", 1, read, read_at, 1, written, written_at, 0, 0)
        assert cann.aclopExecuteV2(*arguments) == 107000
        assert "Swish: aclnnSwish: self: expected live memory" in recent_error()
        assert places


def test_missing_arrays_and_short_buffers_are_rejected(device: None) -> None:
    with described([X, OnHost([1, 0])]) as (read, read_at, _), described([X]) as (written, written_at, _):
        rest = (1, written, written_at, 0, 0)
        assert cann.aclopExecuteV2("Transpose", 2, None, read_at, *rest) == 100000
        assert "inputDesc: expected it and inputs, got one and null" in recent_error()
        assert cann.aclUpdateDataBuffer(read_at[1], cann.aclGetDataBufferAddr(read_at[1]), 15) == 0
        assert cann.aclopExecuteV2("Transpose", 2, read, read_at, *rest) == 100000
        assert "inputs[1]: expected 16 bytes, got 15" in recent_error()
        unknown = cann.aclCreateTensorDesc(D.FLOAT, 2, [-1, 4], cann.ACL_FORMAT_ND)
        assert cann.aclopExecuteV2("Swish", 1, [unknown], read_at, *rest) == 100000
        assert "inputDesc[0]: expected extents of at least 0, got [-1, 4]" in recent_error()


def test_a_call_is_checked_before_its_type_is_looked_up(device: None) -> None:
    """CANN's tests also expect arguments to be checked first: compile types, arrays, empty outputs."""
    for function in (cann.aclopCompileAndExecute, cann.aclopCompileAndExecuteV2):
        with described([X]) as (read, read_at, _), described([X]) as (written, written_at, _):
            tensors: tuple[Any, ...] = (1, read, read_at, 1, written, written_at, 0, 0)
            assert function("None", *tensors, 3, None, 0) == 200001
            assert "compileFlag: expected 0 or 1, got 3" in recent_error()
            assert function("Relu", *tensors, cann.ACL_COMPILE_UNREGISTERED, None, 0) == 100000
            assert function("Relu", *tensors, cann.ACL_COMPILE_UNREGISTERED, "path", 0) == 0
            assert function(None, *tensors, 0, None, 0) == 100000
            assert function("None", *tensors, 0, None, 0) == 200001
            assert cann.aclUpdateDataBuffer(read_at[0], 0, 1024) == 0
            assert function("None", *tensors, 0, None, 0) == 100000
            assert "inputs[0]: expected 1024 bytes at an address, got null" in recent_error()
        with described([X]) as (read, read_at, _), described([X[:0]]) as (written, written_at, _):
            assert function("None", 1, read, read_at, 1, written, written_at, 0, 0, 0, None, 0) == 0


@pytest.mark.parametrize("short", ["input", "output"])
def test_a_buffer_shorter_than_its_tensor_is_rejected(device: None, short: str) -> None:
    with described([X]) as (read, read_at, places), described([X]) as (written, written_at, _):
        (buffer,) = read_at if short == "input" else written_at
        assert cann.aclUpdateDataBuffer(buffer, places[0], 4) == 0
        assert cann.aclopExecuteV2("Relu", 1, read, read_at, 1, written, written_at, 0, 0) == 100000
        assert f"{short}s[0]: expected 48 bytes, got 4" in recent_error()


@pytest.mark.parametrize("address", [0, 0x10])
def test_empty_tensors_need_no_buffer(device: None, address: int) -> None:
    inputs, outputs = [np.array(7, np.float32), OnHost(np.array([], np.int32))], [np.array(0, np.float32)]
    with described(inputs) as (read, read_at, _), described(outputs) as (written, written_at, places):
        assert cann.aclUpdateDataBuffer(read_at[1], address, 0) == 0
        assert cann.aclopExecuteV2("Transpose", 2, read, read_at, 1, written, written_at, 0, 0) == 0
        assert cann.aclrtSynchronizeDevice() == 0
        assert ctypes.c_float.from_address(places[0]).value == 7


def test_integer_attributes_may_be_floats(device: None) -> None:
    out = np.empty((3, 4), np.float32)
    assert call("SoftmaxV2", (X,), [out], {"axes": (0.0,)}) == 0
    np.testing.assert_array_equal(out, SHARES)


def test_missing_input_values_are_rejected(device: None) -> None:
    attr = cann.aclopCreateAttr()
    assert cann.aclopSetAttrString(attr, "text", None) == cann.ACL_ERROR_INVALID_PARAM
    assert "attrValue: expected a string, got null" in recent_error()
    assert cann.aclopSetAttrListInt(attr, "empty", 0, None) == 0
    assert cann.aclopSetAttrListListInt(attr, "empty", 0, None, None) == 0
    assert cann.aclopSetAttrListInt(attr, "axes", 2, None) == cann.ACL_ERROR_INVALID_PARAM
    assert "values: expected 2, got null" in recent_error()
    assert cann.aclopSetAttrListListInt(attr, "axes", 2, None, [0, 0]) == cann.ACL_ERROR_INVALID_PARAM
    assert "numValues: expected 2, got null" in recent_error()
    assert cann.aclopSetAttrListListInt(attr, "axes", 2, [0, 0], None) == cann.ACL_ERROR_INVALID_PARAM
    assert "values: expected 2, got null" in recent_error()
    assert cann.aclopSetAttrListListInt(attr, "lists", 1, [0], [None]) == 0
    assert cann.aclopSetAttrListListInt(attr, "lists", 1, [2], [None]) == cann.ACL_ERROR_INVALID_PARAM
    assert "values: expected 2 numbers, got null" in recent_error()
    cann.aclopDestroyAttr(attr)


def test_a_call_frees_its_memory(device: None) -> None:
    before = cann.aclrtGetMemInfo(cann.ACL_HBM_MEM)
    for _ in range(3):
        assert call("Transpose", (X, OnHost([1, 0])), [np.empty((4, 3), np.float32)]) == 0
        assert call("Transpose", (X, OnHost([1, 1])), [np.empty((4, 3), np.float32)]) == 161002
    assert cann.aclrtGetMemInfo(cann.ACL_HBM_MEM) == before
    assert before[2] == MEMORY_BYTES


def test_tensor_descriptions_return_their_properties() -> None:
    desc = cann.aclCreateTensorDesc(D.FLOAT16, 3, [2, 3, 4], cann.ACL_FORMAT_NCHW)
    assert cann.aclGetTensorDescType(desc) == D.FLOAT16
    assert cann.aclGetTensorDescFormat(desc) == cann.ACL_FORMAT_NCHW
    assert cann.aclGetTensorDescElementCount(desc) == 24
    assert cann.aclGetTensorDescSize(desc) == 48
    assert cann.aclGetTensorDescNumDims(desc) == 3
    assert cann.aclGetTensorDescDimV2(desc, 2) == (0, 4)
    assert [cann.aclGetTensorDescDim(desc, index) for index in (0, 2, 3)] == [2, 4, -1]
    assert cann.aclGetTensorDescDimV2(desc, 3) == (100000, 0)
    assert "index: expected less than the 3 dimensions, got 3" in recent_error()
    cann.aclSetTensorDescName(desc, "x")
    assert cann.aclGetTensorDescName(desc) == "x"
    cann.aclDestroyTensorDesc(desc)
    cann.aclDestroyTensorDesc(0)
    assert cann.aclGetTensorDescNumDims(desc) == 0
    assert "aclGetTensorDescNumDims: desc: expected a live TensorDesc" in recent_error()
    assert cann.aclGetTensorDescDim(desc, 0) == -1
    assert cann.aclCreateTensorDesc(D.FLOAT16, -1, None, cann.ACL_FORMAT_ND) == 0
    unknown = cann.aclCreateTensorDesc(D.BOOL, 1, [-2], cann.ACL_FORMAT_ND)
    assert cann.aclGetTensorDescNumDims(unknown) == 0xFFFFFFFFFFFFFFFE
    buffer = cann.aclCreateDataBuffer(64, 1 << 32 | 5)
    assert cann.aclGetDataBufferSize(buffer) == 5
    assert cann.aclUpdateDataBuffer(buffer, 64, 8) == 0
    assert (cann.aclGetDataBufferAddr(buffer), cann.aclGetDataBufferSizeV2(buffer)) == (64, 8)
    assert cann.aclDestroyDataBuffer(buffer) == 0
    assert cann.aclDestroyDataBuffer(buffer) == 100000


def test_a_size_that_no_number_of_c_holds_is_rejected() -> None:
    desc = cann.aclCreateTensorDesc(D.FLOAT, 2, [1 << 31, 1 << 32], cann.ACL_FORMAT_ND)
    assert cann.aclGetTensorDescElementCount(desc) == 1 << 63
    assert cann.aclGetTensorDescSize(desc) == 0
    assert f"desc: expected a size below 2^64, got {1 << 65} [100000]" in recent_error()
    cann.aclDestroyTensorDesc(desc)
    desc = cann.aclCreateTensorDesc(D.FLOAT, 2, [1 << 40, 1 << 40], cann.ACL_FORMAT_ND)
    assert cann.aclGetTensorDescElementCount(desc) == 0
    assert f"desc: expected a size below 2^64, got {1 << 80} [100000]" in recent_error()
    cann.aclDestroyTensorDesc(desc)
