"""Operators by their types in CANN's graphs (Sub, Swish), which ``aclopCompileAndExecute`` accepts.

Most types map to an ``aclnn`` function. Inputs, outputs and attributes are those of CANN's definition of the type, in
its order; further inputs, which only CANN's kernels use, are ignored.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from aclnn.capi import compiled_types
from aclnn.capi.typed_calls import (
    ByType,
    Given,
    Value,
    attribute,
    choice,
    constant,
    copied,
    function_call,
    image,
    integers,
    invalid,
    on_host,
    only_dim,
    only_integer,
    operator_call,
    permuted,
    real,
    required,
    reshaped,
    scalar,
    view_of,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Kind, Operator
from aclnn.core.tensor import Tensor
from aclnn.operators.library.by_type import arrays as of_array_types
from aclnn.operators.library.by_type import boxes as of_box_types
from aclnn.operators.library.by_type import general as of_types
from aclnn.operators.library.by_type import layers as of_layer_types
from aclnn.operators.library.by_type import optimizers as of_optimizer_types
from aclnn.operators.library.training import recurrent
from aclnn.operators.registry import BY_FUNCTION
from aclnn.support.process import PerProcess


def _sliced(given: Given) -> Tensor:
    x, offsets, sizes = given.tensor(), given.integers(1), given.integers(2)
    rest = [extent - offset for extent, offset in zip(x.shape, offsets, strict=False)]
    shape = [left if size == -1 else size for left, size in zip(rest, sizes, strict=False)]
    fits = len(shape) == len(x.shape) and all(0 <= n <= m for n, m in zip(shape, rest, strict=True))
    if not fits or min(offsets, default=0) < 0:
        raise invalid(f"expected offsets and sizes inside {list(x.shape)}, got {list(offsets)}, {list(sizes)}")
    return view_of(x, shape, x.strides, sum(map(math.prod, zip(offsets, x.strides, strict=True))))


_transposes_first = required("transpose_first", False)


def _transposed(given: Given) -> Tensor:
    """Return the first input of ConfusionTransposeD, transposed before or after reshaping."""
    x = given.tensor()
    perm, shape = (given.attribute(name, (), required=True) for name in ("perm", "shape"))
    return permuted(x if _transposes_first(given) else reshaped(x, shape), perm)


def _as_transposed(given: Given) -> Tensor:
    """Return the output viewed in the shape of the transposed input."""
    y = given.output()
    return reshaped(y, _transposed(given).shape) if _transposes_first(given) else y


def _recurrent(operator: Operator, inputs: str = "") -> ByType:
    """Call an operator of ``recurrent``; ``inputs`` is needed if the type's input order differs."""
    read, written = (" ".join(p.name for p in of) for of in (operator.inputs, operator.outputs))
    call = operator_call(
        operator,
        inputs or read,
        written,
        gate_order=attribute("gate_order", "ijfo"),
        direction=attribute("direction", "UNIDIRECTIONAL"),
    )

    def arguments(given: Given) -> dict[str, Any]:
        found = call.arguments(given)
        for name in ("x", "h", "c", "dx"):  # a single step may come without the time dimension
            tensor = found.get(name)
            if tensor is not None and len(tensor.shape) == 2:
                found[name] = view_of(tensor, (1, *tensor.shape))
        mask = found["seq_length"]
        if mask is not None and not mask.shape:  # torch_npu's placeholder for an absent tensor
            found["seq_length"] = None
        return found

    return ByType(operator, arguments)


def _product(*flags: str) -> ByType:
    """Multiply matrices, each of which an attribute may transpose."""
    operator = BY_FUNCTION["aclnnMatmul"]

    def arguments(given: Given) -> dict[str, Any]:
        if any(given.inputs[2:]):
            raise invalid("bias: expected null, got a tensor")
        names = [p.name for p in operator.parameters]
        return dict(zip(names, (*_factors(given, flags), given.output(), 0), strict=True))

    return ByType(operator, arguments)


def _factors(given: Given, flags: Sequence[str]) -> Iterator[Tensor]:
    for place, flag in enumerate(flags):
        factor = given.tensor(place)
        *batch, rows, columns = range(len(factor.shape))
        yield permuted(factor, (*batch, columns, rows)) if given.attribute(flag, False) else factor


def _sum_with_bias(given: Given) -> dict[str, Any]:
    bias = given.inputs[2] if len(given.inputs) > 2 else None
    mat1, mat2 = _factors(given, ("transpose_x1", "transpose_x2"))
    return {
        "self": bias or given.output(),
        "mat1": mat1,
        "mat2": mat2,
        "beta": constant(int(bias is not None))(given),
        "alpha": constant(1)(given),
        "out": given.output(),
        "cubeMathType": 0,
    }


def _reduced(function: str, dim: str, keep: str, **others: Value) -> ByType:
    """Reduce along the dimensions held by the second input."""
    values = {dim: integers, keep: attribute("keep_dims", False)} | others
    return operator_call(BY_FUNCTION[function], "self", "out", **values)


def _type_of_output(given: Given) -> D:
    return given.output().dtype


def _joined(function: str, dim: str) -> ByType:
    """Concatenate all inputs."""
    return function_call(
        function, "", tensors=lambda given: tuple(map(given.tensor, range(len(given.inputs)))), dim=attribute(dim, 0)
    )


_OF_ONE = (
    "Abs Acos Asin Atan Ceil Cos Cosh Erf Erfc Expm1 Floor IsFinite Log1p LogicalNot Neg Reciprocal Rsqrt Sign Sin "
    "Sinh Sqrt Tan Tanh Trunc"
)
_OF_TWO = {
    "Atan2": "Atan2",
    "Equal": "EqTensor",
    "FloorDiv": "FloorDivide",
    "FloorMod": "RemainderTensorTensor",
    "Greater": "GtTensor",
    "GreaterEqual": "GeTensor",
    "Less": "LtTensor",
    "LessEqual": "LeTensor",
    "LogicalAnd": "LogicalAnd",
    "LogicalOr": "LogicalOr",
    "Maximum": "Maximum",
    "Minimum": "Minimum",
    "Mod": "FmodTensor",
    "Mul": "Mul",
    "NotEqual": "NeTensor",
    "RealDiv": "Div",
}


def _grid(function: str, inputs: str = "input grid", outputs: str = "out") -> ByType:
    operator = BY_FUNCTION[function]
    masks = {p.name: _both for p in operator.parameters if p.kind is Kind.BOOL_ARRAY}
    return operator_call(
        operator,
        inputs,
        outputs,
        interpolationMode=choice("interpolation_mode", ("bilinear", "nearest", "bicubic")),
        paddingMode=choice("padding_mode", ("zeros", "border", "reflection")),
        alignCorners=attribute("align_corners", False),
        **masks,
    )


def _both(given: Given) -> tuple[bool, bool]:
    return True, True


def _ctc(function: str, inputs: str, outputs: str, lengths: int) -> ByType:
    """Call a CTC function; ``lengths`` is the index of the first of two inputs of lengths, read on the host."""
    return function_call(
        function,
        inputs,
        outputs,
        inputLengths=lambda given: given.integers(lengths),
        targetLengths=lambda given: given.integers(lengths + 1),
        blank=attribute("blank", 0),
        zeroInfinity=attribute("zero_infinity", False),
    )


def _overlap(operator: Operator, **others: Value) -> ByType:
    outputs = " ".join(p.name for p in operator.outputs)
    return operator_call(
        operator,
        "bboxes gtboxes",
        outputs,
        trans=attribute("trans", False),
        is_cross=attribute("is_cross", True),
        mode=attribute("mode", "iou"),
        **others,
    )


def _of_channels(given: Given, rank: int) -> int:
    """Return the channel dimension according to ``data_format``."""
    found = given.attribute("data_format", "NHWC")
    return 1 if found.startswith("NC") else rank - 1


def _channels_first(given: Given) -> None:
    found = given.attribute("data_format", "NHWC")
    if not found.startswith("NC"):
        raise invalid(f"data_format: expected NCHW or NCDHW, got {found}")


def _bias_added(given: Given) -> dict[str, Any]:
    x, bias = given.tensor(0), given.tensor(1)
    shape = [1] * len(x.shape)
    shape[_of_channels(given, len(shape))] = -1
    along = reshaped(bias, [bias.size if extent < 0 else extent for extent in shape])
    return {"self": x, "other": along, "alpha": constant(1)(given), "out": given.output()}


def _all_but_channels(given: Given) -> tuple[int, ...]:
    rank = len(given.tensor().shape)
    return tuple(dim for dim in range(rank) if dim != _of_channels(given, rank))


def _convolution_numbers(given: Given, rank: int) -> dict[str, Any]:
    """Return the arguments common to convolutions; attributes include the first two dimensions, except the padding."""
    _channels_first(given)
    ones = (1,) * (rank + 2)
    pads = given.attribute("pads", (0,), required=True)
    if rank != 2 and len(pads) == 2 * rank:
        if pads[::2] != pads[1::2]:
            raise invalid(f"pads: expected as many before as after, got {list(pads)}")
        pads = pads[::2]
    return {
        "stride": given.attribute("strides", (1,), required=True)[2:],
        "padding": pads,
        "dilation": given.attribute("dilations", ones)[2:],
        "transposed": False,
        "outputPadding": (0,) * rank,
        "groups": given.attribute("groups", 1),
        "cubeMathType": 0,
    }


def _convolution(given: Given) -> dict[str, Any]:
    x, weight = image(given.tensor(0)), image(given.tensor(1))
    bias = given.inputs[2] if len(given.inputs) > 2 else None
    numbers = _convolution_numbers(given, len(x.shape) - 2)
    return {"input": x, "weight": weight, "bias": bias, "output": image(given.output())} | numbers


def _transposed_convolution(given: Given) -> dict[str, Any]:
    x, weight = image(given.tensor(1)), image(given.tensor(2))
    bias = given.inputs[3] if len(given.inputs) > 3 else None
    numbers = _convolution_numbers(given, len(x.shape) - 2)
    before, behind = numbers["padding"][::2], numbers["padding"][1::2]
    if before != behind:
        raise invalid(f"pads: expected as many before as after, got {list(numbers['padding'])}")
    return (
        {"input": x, "weight": weight, "bias": bias, "output": image(given.output())}
        | numbers
        | {
            "padding": before,
            "transposed": True,
            "outputPadding": given.attribute("output_padding", (0,) * len(x.shape))[2:],
        }
    )


def _convolution_gradient(wanted: str) -> Callable[[Given], dict[str, Any]]:
    """Return the arguments for one of a convolution's gradients; it takes the place of the corresponding operand."""

    def arguments(given: Given) -> dict[str, Any]:
        gradient, dy = image(given.output()), image(given.tensor(2))
        is_input = wanted == "gradInput"
        x, weight = (gradient, image(given.tensor(1))) if is_input else (image(given.tensor(0)), gradient)
        return {
            "gradOutput": dy,
            "input": x,
            "weight": weight,
            "biasSizes": (dy.shape[1],),
            "outputMask": (is_input, not is_input, False),
            **dict.fromkeys(("gradInput", "gradWeight", "gradBias")),
            wanted: gradient,
        } | _convolution_numbers(given, len(dy.shape) - 2)

    return arguments


def _by_name(function: str, arguments: Callable[[Given], dict[str, Any]]) -> ByType:
    """Call an ``aclnn`` function with named arguments."""
    operator = BY_FUNCTION[function]

    def ordered(given: Given) -> dict[str, Any]:
        found = arguments(given)
        return {parameter.name: found[parameter.name] for parameter in operator.parameters}

    return ByType(operator, ordered)


def _bounds(given: Given, shape: Sequence[int], at: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the starts, counts and steps of a strided slice, whose bounds are the inputs from ``at`` on."""
    for name in ("ellipsis_mask", "new_axis_mask"):
        if given.attribute(name, 0):
            raise invalid(f"{name}: expected 0, got {given.attribute(name, 0)}")
    begin, end, step = (given.integers(at + place) for place in range(3))
    if not len(begin) == len(end) == len(step) <= len(shape) or 0 in step:
        raise invalid(f"expected bounds of {len(shape)} dimensions and steps other than 0, got {begin}, {end}, {step}")
    masks = [given.attribute(f"{name}_mask", 0) for name in ("begin", "end", "shrink_axis")]
    ranges = [range(extent) for extent in shape]
    for dim, bounds in enumerate(zip(begin, end, step, strict=True)):
        begins, ends, shrinks = (mask >> dim & 1 for mask in masks)
        first, last = None if begins else bounds[0], None if ends else bounds[1]
        if shrinks:
            place = bounds[0] % shape[dim] if shape[dim] else 0
            first, last = place, place + 1
        ranges[dim] = ranges[dim][slice(first, last, 1 if shrinks else bounds[2])]
    firsts = (each.start if len(each) else 0 for each in ranges)
    return tuple(firsts), tuple(map(len, ranges)), tuple(each.step for each in ranges)


def _strided(given: Given) -> Tensor:
    x = given.tensor()
    first, count, step = _bounds(given, x.shape, 1)
    strides = [stride * each for stride, each in zip(x.strides, step, strict=True)]
    return view_of(x, count, strides, sum(map(math.prod, zip(first, x.strides, strict=True))))


def _strided_gradient(given: Given) -> dict[str, Any]:
    shape = given.integers(0)
    first, count, step = _bounds(given, shape, 1)
    names = {"shape": shape, "first": first, "count": count, "step": step}
    return {"dy": reshaped(given.tensor(4), count), **names, "y": given.output()}


def _gathered(given: Given) -> dict[str, Any]:
    x, places = given.tensor(0), given.tensor(1)
    (axis,) = given.integers(2)
    if given.attribute("batch_dims", 0):
        raise invalid(f"batch_dims: expected 0, got {given.attribute('batch_dims', 0)}")
    dim = axis % max(1, len(x.shape))
    out = reshaped(given.output(), (*x.shape[:dim], places.size, *x.shape[dim + 1 :]))
    return {"self": x, "dim": dim, "index": reshaped(places, (places.size,)), "out": out}


def _unstacked(given: Given) -> dict[str, Any]:
    x = given.tensor()
    dim = given.attribute("axis", 0) % len(x.shape)
    outs = [each for each in given.outputs if each is not None]
    parts = tuple(reshaped(each, (*x.shape[:dim], 1, *x.shape[dim + 1 :])) for each in outs)
    return {"self": x, "splitSections": 1, "dim": dim, "out": parts}


def _layer(operator: Operator, **others: Value) -> ByType:
    """Call an operator of ``of_layer_types``, whose parameters are in the type's order."""
    read, written = (" ".join(p.name for p in of) for of in (operator.inputs, operator.outputs))
    return operator_call(operator, read, written, **others)


def _as_input(given: Given) -> Tensor:
    """Return the output in the first input's shape; MindSpore adds two dimensions to that of 2-D inputs."""
    return reshaped(given.output(), given.tensor().shape)


_EPSILON = {"epsilon": attribute("epsilon", 1e-4)}


_WINDOWS = {
    "ksize": required("ksize", (1,)),
    "strides": required("strides", (1,)),
    "padding": required("padding", "SAME"),
}


def _windowed(operator: Operator, **others: Value) -> ByType:
    """Call an operator of windows; its attributes include the first two dimensions."""
    call = _layer(operator, **_WINDOWS, **others)

    def arguments(given: Given) -> dict[str, Any]:
        _channels_first(given)
        return call.arguments(given)

    return ByType(operator, arguments)


# Random types whose seed is an attribute draw different numbers in each call.
_DRAWINGS = PerProcess[Iterator[int]](itertools.count)


_DRAWN: dict[str, Value] = {
    "seed": lambda given: given.attribute("seed", 0) ^ given.attribute("seed2", 0) << 32,
    "offset": lambda given: next(_DRAWINGS.current),
}


def _updating(operator: Operator, outputs: Mapping[str, int], **others: Value) -> ByType:
    """Call an operator with parameters in the type's order that updates inputs, whose indices are given."""
    read = " ".join(p.name for p in operator.inputs)
    written = {name: functools.partial(Given.tensor, place=place) for name, place in outputs.items()}
    return operator_call(operator, read, "", **written, **others)


_MOVED = {"means": attribute("means", (0.0,) * 4), "stds": attribute("stds", (1.0,) * 4)}

_OF_LOGARITHMS = {"base": attribute("base", -1.0), "scale": attribute("scale", 1.0), "shift": attribute("shift", 0.0)}

_RUNNING = {"axis": only_integer(1), "exclusive": attribute("exclusive", False), "reverse": attribute("reverse", False)}
_NORM = {"axes": attribute("axes", ()), "keepdim": attribute("keepdim", False), "epsilon": attribute("epsilon", 1e-12)}
_RESIZED = {
    "size": integers,
    "align_corners": attribute("align_corners", False),
    "half_pixel_centers": attribute("half_pixel_centers", False),
}


def _stepping(operator: Operator, **others: Value) -> ByType:
    """Call an operator of ``of_optimizer_types``, which writes to the inputs that its outputs are named after."""
    places = {p.name: place for place, p in enumerate(operator.inputs)}
    return _updating(operator, {p.name: places[p.name.removesuffix("_out")] for p in operator.outputs}, **others)


def _mirrored(given: Given) -> str:
    return str(given.attribute("mode", "REFLECT", required=True)).lower()


def _fill(given: Given) -> Tensor:
    """Return the value for places outside; any number where none is given."""
    value = given.inputs[2] if len(given.inputs) > 2 else None
    return view_of(given.tensor(), (1,)) if value is None else value


def _matrix_diagonal(given: Given) -> dict[str, Any]:
    return {
        "x": given.tensor(0),
        "k": given.tensor(1),
        "padding_value": given.tensor(4),
        "align": given.attribute("align", "RIGHT_LEFT"),
        "shape": given.output().shape,
        "y": given.output(),
    }


TYPES: dict[str, ByType] = {
    **compiled_types.TYPES,
    # Activations and norms.
    "Elu": function_call(
        "aclnnElu", alpha=scalar("alpha", 1.0), scale=scalar("scale", 1.0), inputScale=scalar("input_scale", 1.0)
    ),
    "EluGradV2": function_call(
        "aclnnEluBackward",
        "gradOutput selfOrResult",
        "gradInput",
        alpha=scalar("alpha", 1.0),
        scale=scalar("scale", 1.0),
        inputScale=scalar("input_scale", 1.0),
        isResult=attribute("is_result", False),
    ),
    "FastGelu": function_call("aclnnFastGelu"),
    "FastGeluGrad": function_call("aclnnFastGeluBackward", "gradOutput self", "gradInput"),
    "Gelu": function_call("aclnnGelu"),
    "GeluGrad": function_call("aclnnGeluBackward", "gradOutput self", "gradInput"),
    "HardSwish": function_call("aclnnHardswish"),
    "HardSwishGrad": function_call("aclnnHardswishBackward", "gradOutput self"),
    "LayerNormV3": function_call(
        "aclnnLayerNorm",
        "input weightOptional biasOptional",
        "out meanOutOptional rstdOutOptional",
        normalizedShape=lambda given: given.tensor().shape[given.attribute("begin_norm_axis", 0) :],
        eps=attribute("epsilon", 1e-5),
    ),
    "LeakyRelu": function_call("aclnnLeakyRelu", negativeSlope=scalar("negative_slope", 0.0)),
    "LeakyReluGrad": function_call(
        "aclnnLeakyReluBackward",
        "gradOutput self",
        negativeSlope=scalar("negative_slope", 0.0),
        selfIsResult=lambda given: False,
    ),
    "LogSigmoid": function_call("aclnnLogSigmoid"),
    "LogSoftmaxGrad": function_call("aclnnLogSoftmaxBackward", "gradOutput output", dim=only_dim("axis")),
    "LogSoftmaxV2": function_call("aclnnLogSoftmax", dim=only_dim("axes")),
    "Mish": function_call("aclnnMish"),
    "MishGrad": function_call("aclnnMishBackward", "gradOutput self", "gradInput"),
    "Relu": function_call("aclnnRelu"),
    "ReluGrad": function_call("aclnnThresholdBackward", "gradOutput self", threshold=constant(0)),
    "Selu": function_call("aclnnSelu"),
    "SeluGrad": function_call("aclnnSeluBackward", "gradOutput result", "gradInput"),
    "Sigmoid": function_call("aclnnSigmoid"),
    "SigmoidGrad": function_call("aclnnSigmoidBackward", "output gradOutput", "gradInput"),
    "SoftmaxGrad": function_call("aclnnSoftmaxBackward", "output gradOutput", dim=only_dim("axes")),
    "SoftmaxV2": function_call("aclnnSoftmax", dim=only_dim("axes")),
    "SoftplusV2": function_call("aclnnSoftplus", beta=scalar("beta", 1.0), threshold=scalar("threshold", 20.0)),
    "SoftplusV2Grad": function_call(
        "aclnnSoftplusBackward",
        "gradOutput self",
        "gradInput",
        beta=scalar("beta", 1.0),
        threshold=scalar("threshold", 20.0),
    ),
    "Swish": function_call("aclnnSwish", betaOptional=scalar("scale", 1.0)),
    "SwishGrad": function_call("aclnnSwishBackward", "gradOutput self", "gradInput", betaOptional=scalar("scale", 1.0)),
    # Types that torch_npu calls for tensors in private formats.
    **{name: function_call(f"aclnn{name}") for name in _OF_ONE.split()},
    **{name: function_call(f"aclnn{function}", "self other") for name, function in _OF_TWO.items()},
    "Addcdiv": _layer(of_array_types.ADDCDIV),
    "Addcmul": _layer(of_array_types.ADDCMUL),
    "AxpyV2": function_call("aclnnAdd", "self other", alpha=on_host(2)),
    **dict.fromkeys(
        ("ClipByValue", "ClipByValueV2"), function_call("aclnnClampTensor", "self clipValueMin clipValueMax")
    ),
    "ConcatD": _joined("aclnnCat", "concat_dim"),
    "Cumsum": _layer(of_array_types.CUM_SUM, **_RUNNING),
    "DropOutDoMask": _layer(of_layer_types.DROP_OUT_DO_MASK),
    "Exp": operator_call(of_types.EXP, "x", "y", **_OF_LOGARITHMS),
    "GatherElements": function_call("aclnnGather", "self index", dim=attribute("dim", 0)),
    "Invert": function_call("aclnnBitwiseNot"),
    "Lerp": function_call("aclnnLerp", "self end weight"),
    "Log": operator_call(of_types.LOG, "x", "y", **_OF_LOGARITHMS),
    "MaskedFill": function_call("aclnnSWhere", "other condition self"),
    "MatMul": _by_name("aclnnAddmm", _sum_with_bias),
    "Pack": _joined("aclnnStack", "axis"),
    "Pow": function_call("aclnnPowTensorTensor", "self exponent"),
    "ReduceAll": _reduced("aclnnAll", "dim", "keepdim"),
    "ReduceAny": _reduced("aclnnAny", "dim", "keepdim"),
    "ReduceMax": _reduced("aclnnAmax", "dim", "keepDim"),
    "ReduceMean": _reduced("aclnnMean", "dim", "keepDim", dtype=_type_of_output),
    "ReduceMeanD": function_call(
        "aclnnMean", dim=attribute("axes", ()), keepDim=attribute("keep_dims", False), dtype=_type_of_output
    ),
    "ReduceMin": _reduced("aclnnAmin", "dim", "keepDim"),
    "ReduceSum": _reduced("aclnnReduceSum", "dims", "keepDims", dtype=_type_of_output),
    "ReverseV2": function_call("aclnnFlip", dims=integers),
    "Select": function_call("aclnnSWhere", "condition self other"),
    "Square": ByType(
        BY_FUNCTION["aclnnMul"], lambda given: {"self": given.tensor(), "other": given.tensor(), "out": given.output()}
    ),
    "StatelessDropOutGenMask": function_call(
        "aclnnDropoutGenMaskV2",
        "",
        shape=lambda given: given.integers(0),
        prob=lambda given: 1 - real(given, 1),
        seed=lambda given: int(real(given, 2)),
        offset=lambda given: given.integers(4)[-1],
        probDataType=lambda given: given.tensor(1).dtype,
    ),
    "Tile": function_call("aclnnRepeat", repeats=integers),
    "Tril": function_call("aclnnTril", diagonal=attribute("diagonal", 0)),
    "ZerosLike": function_call("aclnnInplaceZero", "", "selfRef"),
    # MindSpore's layers.
    "AddN": operator_call(
        of_layer_types.ADD_N, "", "y", x=lambda given: tuple(map(given.tensor, range(len(given.inputs))))
    ),
    **dict.fromkeys(
        ("AdaptiveAvgPool2D", "CustAdaptiveAvgPool2D"),
        _by_name(
            "aclnnAdaptiveAvgPool2d",
            lambda given: {
                "self": image(given.tensor()),
                "outputSize": given.attribute("output_size", (), required=True),
                "out": image(given.output()),
            },
        ),
    ),
    "AdamApplyOneWithDecayAssign": _updating(
        of_layer_types.ADAM_WITH_DECAY, {f"output{place}": place for place in (1, 2, 3)}
    ),
    "ApplyAdagradD": _updating(of_layer_types.APPLY_ADAGRAD, {"var_out": 0, "accum_out": 1}),
    "ApplyRMSProp": _updating(of_layer_types.APPLY_RMS_PROP, {"var_out": 0, "ms_out": 1, "mom_out": 2}),
    "ApplyAdam": _updating(
        of_types.APPLY_ADAM, {"var_out": 0, "m_out": 1, "v_out": 2}, use_nesterov=attribute("use_nesterov", False)
    ),
    "ApplyMomentum": _updating(
        of_layer_types.APPLY_MOMENTUM, {"var_out": 0, "accum_out": 1}, use_nesterov=attribute("use_nesterov", False)
    ),
    **{
        f"Assign{name}": function_call(f"aclnnInplace{name}", "selfRef other", "", alpha=constant(1))
        for name in ("Add", "Sub")
    },
    "AvgPool": _windowed(of_layer_types.AVG_POOL),
    "AvgPoolGrad": operator_call(
        of_layer_types.AVG_POOL_GRAD,
        "",
        "y",
        input_grad=lambda given: given.tensor(1),
        orig_input_shape=lambda given: given.integers(0),
        **_WINDOWS,
    ),
    "BiasAdd": _by_name("aclnnAdd", _bias_added),
    "BiasAddGrad": function_call(
        "aclnnReduceSum", dims=_all_but_channels, keepDims=lambda given: False, dtype=_type_of_output
    ),
    "BNInfer": _layer(of_layer_types.BN_INFER, y=_as_input, **_EPSILON),
    "BNInferGrad": _layer(of_layer_types.BN_INFER_GRAD, x_backprop=_as_input, **_EPSILON),
    "BNTrainingReduce": _layer(of_layer_types.BN_TRAINING_REDUCE),
    "BNTrainingReduceGrad": _layer(of_layer_types.BN_TRAINING_REDUCE_GRAD, y=_as_input, **_EPSILON),
    "BNTrainingUpdate": _layer(
        of_layer_types.BN_TRAINING_UPDATE, y=_as_input, factor=required("factor", 1.0), **_EPSILON
    ),
    "BNTrainingUpdateGrad": _layer(of_layer_types.BN_TRAINING_UPDATE_GRAD, **_EPSILON),
    **dict.fromkeys(("Conv2D", "Conv3D"), _by_name("aclnnConvolution", _convolution)),
    "Conv2DTranspose": _by_name("aclnnConvolution", _transposed_convolution),
    **{
        f"Conv{rank}DBackprop{of}": _by_name("aclnnConvolutionBackward", _convolution_gradient(wanted))
        for rank in (2, 3)
        for of, wanted in (("Input", "gradInput"), ("Filter", "gradWeight"))
    },
    "EluGrad": function_call(
        "aclnnEluBackward",
        "gradOutput selfOrResult",
        "gradInput",
        **dict.fromkeys(("alpha", "scale", "inputScale"), constant(1)),
        isResult=lambda given: True,
    ),
    "LayerNorm": _layer(
        of_layer_types.LAYER_NORM, begin_norm_axis=attribute("begin_norm_axis", 0), epsilon=attribute("epsilon", 1e-7)
    ),
    "LayerNormGrad": _layer(of_layer_types.LAYER_NORM_GRAD),
    "MaxPool": _windowed(of_layer_types.MAX_POOL),
    "MaxPoolGrad": _windowed(of_layer_types.MAX_POOL_GRAD),
    "GatherV2": _by_name("aclnnIndexSelect", _gathered),
    "DropOutGenMask": operator_call(
        of_layer_types.DROP_OUT_GEN_MASK, "shape prob", "y", count=lambda given: math.prod(given.integers(0)), **_DRAWN
    ),
    "OneHot": operator_call(
        of_types.ONE_HOT_OF_DEPTH,
        "x depth on_value off_value",
        "y",
        depth=lambda given: given.integers(1)[0],
        axis=attribute("axis", -1),
    ),
    "OnesLike": function_call("aclnnInplaceOne", "", "selfRef"),
    "RandomStandardNormal": function_call(
        "aclnnInplaceNormal", "", "selfRef", mean=lambda given: 0.0, std=lambda given: 1.0, **_DRAWN
    ),
    "SGD": _updating(
        of_layer_types.SGD,
        {"parameters_out": 0, "accum_out": 3, "stat_out": 5},
        dampening=attribute("dampening", 0.0),
        weight_decay=attribute("weight_decay", 0.0),
        nesterov=attribute("nesterov", False),
    ),
    "Softplus": function_call("aclnnSoftplus", beta=constant(1), threshold=constant(20)),
    "SoftplusGrad": function_call(
        "aclnnSoftplusBackward", "gradOutput self", "gradInput", beta=constant(1), threshold=constant(20)
    ),
    "StridedSlice": copied(_strided, lambda given: reshaped(given.output(), _strided(given).shape)),
    "StridedSliceGrad": ByType(of_layer_types.STRIDED_SLICE_GRAD, _strided_gradient),
    "UnsortedSegmentSum": operator_call(
        of_layer_types.UNSORTED_SEGMENT_SUM, "x segment_ids", "y", num_segments=lambda given: given.integers(2)[0]
    ),
    "Unpack": _by_name("aclnnSplitTensor", _unstacked),
    # Arrays of MindSpore's.
    **{name: _layer(operator) for name, operator in of_array_types.SINGLES.items()},
    **{name: _layer(operator) for name, operator in of_array_types.PAIRS.items()},
    **{name: _updating(operator, {"var_out": 0}) for name, operator in of_array_types.SCATTERED.items()},
    **{name: _layer(operator) for name, operator in of_array_types.TENSOR_SCATTERED.items()},
    **{
        name: function_call(f"aclnn{name[:6]}", dim=only_integer(1), keepdim=lambda given: False)
        for name in ("ArgMaxV2", "ArgMin")
    },
    "ApplyAdadeltaD": _stepping(of_optimizer_types.ADA_DELTA),
    "ApplyAdaMaxD": _stepping(of_optimizer_types.ADA_MAX),
    "ApplyAdagradV2D": _stepping(of_optimizer_types.ADA_GRAD_V2, epsilon=required("epsilon", 0.0)),
    "ApplyAdamWithAmsgradV2": _stepping(of_optimizer_types.AMSGRAD),
    "ApplyCenteredRMSProp": _stepping(of_optimizer_types.CENTERED_RMS_PROP),
    "ApplyFtrl": _stepping(of_optimizer_types.FTRL),
    "ApplyProximalAdagradD": _stepping(of_optimizer_types.PROXIMAL_ADA_GRAD),
    "LambApplyOptimizerAssign": _updating(
        of_optimizer_types.LAMB, {"inputv_out": 1, "inputm_out": 2}, output0=Given.output
    ),
    "LambApplyWeightAssign": _stepping(of_optimizer_types.LAMB_WEIGHTS),
    "CustAdaptiveAvgPool2DGrad": _by_name(
        "aclnnAdaptiveAvgPool2dBackward",
        lambda given: {
            "gradOutput": image(given.tensor()),
            "self": image(given.output()),
            "out": image(given.output()),
        },
    ),
    "Complex": function_call("aclnnComplex", "real imag"),
    "Concat": function_call(
        "aclnnCat", "", tensors=lambda given: tuple(map(given.tensor, range(1, len(given.inputs)))), dim=only_integer(0)
    ),
    **{
        name: function_call(f"aclnn{name}", "self", "valuesOut indicesOut", dim=required("axis", 0))
        for name in ("Cummax", "Cummin")
    },
    "Cumprod": _layer(of_array_types.CUM_PROD, **_RUNNING),
    "CumulativeLogsumexp": _layer(of_array_types.CUM_LOG_SUM_EXP, **_RUNNING),
    "Diag": _layer(of_array_types.DIAG),
    "IsInf": _layer(of_array_types.IS_INF),
    "IsNan": _layer(of_array_types.IS_NAN),
    "L2Loss": _layer(of_array_types.L2_LOSS),
    "L2Normalize": _layer(of_array_types.L2_NORMALIZE, axis=attribute("axis", ()), eps=attribute("eps", 1e-4)),
    "L2NormalizeGrad": _layer(of_array_types.L2_NORMALIZE_GRAD, dim=attribute("dim", ()), eps=attribute("eps", 1e-4)),
    "LinSpace": operator_call(of_array_types.LIN_SPACE, "start stop", "output", num=only_integer(2)),
    "LpNorm": _layer(of_array_types.LP_NORM, p=attribute("p", 2), **_NORM),
    "LpNormV2": _layer(of_array_types.LP_NORM_V2, p=attribute("p", 2.0), **_NORM),
    "MatrixDiagV3": ByType(of_array_types.MATRIX_DIAG, _matrix_diagonal),
    "MatrixSetDiagV3": _layer(of_array_types.MATRIX_SET_DIAG, align=attribute("align", "RIGHT_LEFT")),
    **{
        name: operator_call(operator, "x", "y", paddings=integers, mode=_mirrored)
        for name, operator in (("MirrorPad", of_array_types.PAD), ("MirrorPadGrad", of_array_types.PAD_GRAD))
    },
    "Pad": operator_call(of_array_types.PAD, "x", "y", paddings=integers, mode=lambda given: "constant"),
    "PadV3Grad": operator_call(of_array_types.PAD_GRAD, "x", "y", paddings=integers, mode=attribute("mode", "reflect")),
    "PadV3": operator_call(
        of_array_types.PAD_WITH_VALUE,
        "x",
        "y",
        constant_values=_fill,
        paddings=integers,
        mode=attribute("mode", "constant"),
    ),
    "RandomUniform": function_call(
        "aclnnInplaceUniform", "", "selfRef", low=lambda given: 0.0, high=lambda given: 1.0, **_DRAWN
    ),
    "Range": _layer(of_array_types.RANGE, count=lambda given: given.output().size),
    "ReduceProd": operator_call(
        of_array_types.REDUCE_PROD, "x", "y", axes=integers, keepdim=attribute("keep_dims", False)
    ),
    "ReduceStd": _layer(
        of_array_types.REDUCE_STD,
        axes=attribute("dim", ()),
        unbiased=attribute("unbiased", True),
        keepdim=attribute("keepdim", False),
    ),
    "Relu6": function_call("aclnnHardtanh", clipValueMin=constant(0), clipValueMax=constant(6)),
    "Relu6Grad": function_call("aclnnHardtanhBackward", "gradOutput self", min=constant(0), max=constant(6)),
    "ResizeBilinearV2": operator_call(of_array_types.RESIZE_BILINEAR, "x", "y", **_RESIZED),
    "ResizeBilinearV2Grad": operator_call(
        of_array_types.RESIZE_BILINEAR_GRAD, "x", "y", **_RESIZED | {"size": lambda given: given.tensor(1).shape[2:]}
    ),
    "ResizeNearestNeighborV2": operator_call(of_array_types.RESIZE_NEAREST, "x", "y", **_RESIZED),
    "ResizeNearestNeighborV2Grad": operator_call(of_array_types.RESIZE_NEAREST_GRAD, "x", "y", **_RESIZED),
    "SigmoidCrossEntropyWithLogits": _layer(of_array_types.SIGMOID_CROSS_ENTROPY),
    "SigmoidCrossEntropyWithLogitsGrad": _layer(of_array_types.SIGMOID_CROSS_ENTROPY_GRAD),
    "Sort": _layer(of_array_types.SORT, axis=attribute("axis", -1), descending=attribute("descending", False)),
    "SparseSoftmaxCrossEntropyWithLogits": _layer(of_array_types.SPARSE_CROSS_ENTROPY),
    "SqrtGrad": _layer(of_array_types.SQRT_GRAD),
    # Copies.
    "Assign": copied(lambda given: given.tensor(1)),
    "BroadcastTo": copied(),
    "Cast": function_call("aclnnCast", dtype=lambda given: given.output().dtype),
    "ConfusionTransposeD": copied(_transposed, _as_transposed),
    "Fill": function_call("aclnnInplaceFillTensor", "dims value", "selfRef"),
    "Identity": copied(),
    "Slice": copied(_sliced),
    "TensorMove": copied(),
    "Transpose": copied(lambda given: permuted(given.tensor(), given.integers(1))),
    # Other types called by torch_npu.
    "ApplyAdamD": operator_call(
        of_types.APPLY_ADAM,
        "var m v beta1_power beta2_power lr beta1 beta2 epsilon grad",
        "var_out m_out v_out",
        use_nesterov=attribute("use_nesterov", False),
    ),
    "ApplyAdamW": operator_call(
        of_types.APPLY_ADAM_W,
        "varRef mRef vRef beta1Power beta2Power lr weightDecay beta1 beta2 eps grad maxGradNormOptional",
        "varRef mRef vRef",
        amsgrad=attribute("amsgrad", False),
        maximize=attribute("maximize", False),
    ),
    "AnchorResponseFlags": operator_call(
        of_box_types.RESPONSE_FLAGS,
        "gt_bboxes",
        "flags",
        featmap_size=required("featmap_size", ()),
        strides=required("strides", ()),
        num_base_anchors=required("num_base_anchors", 0),
    ),
    "ArgMaxWithValue": function_call(
        "aclnnMaxDim", "self", "indices out", dim=required("dimension", 0), keepdim=attribute("keep_dims", False)
    ),
    "ArgMinWithValue": function_call(
        "aclnnMinDim", "self", "indices out", dim=required("dimension", 0), keepdim=attribute("keep_dims", False)
    ),
    "Add": function_call("aclnnAdd", "self other", alpha=constant(1)),
    "BatchMatMul": _product("adj_x1", "adj_x2"),
    "BoundingBoxDecode": operator_call(
        of_box_types.DECODE,
        "rois deltas",
        "bboxes",
        max_shape=attribute("max_shape", ()),
        wh_ratio_clip=attribute("wh_ratio_clip", 0.016),
        **_MOVED,
    ),
    "BoundingBoxEncode": operator_call(of_box_types.ENCODE, "anchor_box ground_truth_box", "delats", **_MOVED),
    "CIoU": _overlap(of_box_types.CIOU, atan_sub_flag=attribute("atan_sub_flag", False)),
    "Cdist": operator_call(of_types.CDIST, "x1 x2", "y", p=attribute("p", 2.0)),
    "CdistGrad": operator_call(of_types.CDIST_GRAD, "grad x1 x2 cdist", "y", p=attribute("p", 2.0)),
    "CTCLossV2": _ctc("aclnnCtcLoss", "logProbs targets", "negLogLikelihoodOut logAlphaOut", 2),
    "CTCLossV2Grad": _ctc(
        "aclnnCtcLossBackward",
        "gradOut logProbs targets inputLengths targetLengths negLogLikelihood logAlpha",
        "out",
        3,
    ),
    "DIoU": _overlap(of_box_types.DIOU),
    "DynamicRNN": _recurrent(recurrent.DYNAMIC_RNN, "x w b seq_length init_h init_c"),
    "DynamicRNNGrad": _recurrent(recurrent.DYNAMIC_RNN_GRAD),
    "DynamicRNNV2": _recurrent(recurrent.DYNAMIC_RNN_V2, "x weight_input weight_hidden b seq_length init_h init_c"),
    "DynamicRNNV2Grad": _recurrent(recurrent.DYNAMIC_RNN_V2_GRAD),
    "GIoU": _overlap(of_box_types.GIOU),
    "GridSampler2D": _grid("aclnnGridSampler2D"),
    "GridSampler2DGrad": _grid("aclnnGridSampler2DBackward", "gradOutput input grid", "inputGrad gridGrad"),
    "GridSampler3D": _grid("aclnnGridSampler3D"),
    "GridSampler3DGrad": _grid("aclnnGridSampler3DBackward", "gradOutput input grid", "inputGrad gridGrad"),
    "Iou": operator_call(
        of_box_types.IOU,
        "bboxes gtboxes",
        "overlap",
        mode=attribute("mode", "iou"),
        eps=attribute("eps", 1.0),
        aligned=attribute("aligned", False),
    ),
    "LogSpaceD": operator_call(
        of_types.LOG_SPACE,
        "assist",
        "y",
        start=required("start", 0.0),
        end=required("end", 0.0),
        steps=attribute("steps", 100),
        base=attribute("base", 10.0),
    ),
    "MaskedFillRange": operator_call(of_types.MASKED_FILL_RANGE, "x start end value", "y", axis=attribute("axis", -1)),
    "MultilabelMarginLoss": function_call(
        "aclnnMultilabelMarginLoss",
        "self target",
        "out isTarget",
        reduction=choice("reduction", ("none", "mean", "sum"), default=1),
    ),
    "NonMaxSuppressionV4": operator_call(
        of_box_types.SUPPRESSION,
        "boxes scores max_output_size iou_threshold score_threshold",
        "selected_indices valid_outputs",
        pad_to_max_output_size=attribute("pad_to_max_output_size", False),
    ),
    "OneHotD": operator_call(
        of_types.ONE_HOT, "x on_value off_value", "y", depth=required("depth", 0), axis=attribute("axis", -1)
    ),
    "Pdist": function_call("aclnnPdist", p=attribute("p", 2.0)),
    "Qr": function_call(
        "aclnnLinalgQr", outputs="Q R", mode=lambda given: int(given.attribute("full_matrices", False))
    ),
    "ROIAlign": operator_call(
        of_box_types.ROI_ALIGN,
        "features rois",
        "y",
        spatial_scale=required("spatial_scale", 1.0),
        pooled_height=required("pooled_height", 1),
        pooled_width=required("pooled_width", 1),
        sample_num=attribute("sample_num", 2),
        roi_end_mode=attribute("roi_end_mode", 1),
        pool_mode=attribute("pool_mode", "avg"),
    ),
    "ROIAlignGrad": operator_call(
        of_box_types.ROI_ALIGN_GRAD,
        "ydiff rois",
        "xdiff",
        xdiff_shape=required("xdiff_shape", ()),
        pooled_width=required("pooled_width", 1),
        pooled_height=required("pooled_height", 1),
        spatial_scale=required("spatial_scale", 1.0),
        sample_num=attribute("sample_num", 2),
        roi_end_mode=attribute("roi_end_mode", 1),
    ),
    "Renorm": operator_call(
        of_types.RENORM, "self", "y", p=required("p", 2.0), dim=required("dim", 0), maxnorm=required("maxnorm", 1.0)
    ),
    "Round": function_call("aclnnRoundDecimals", decimals=attribute("decimals", 0)),
    "ScaledMaskedSoftmax": function_call(
        "aclnnScaledMaskedSoftmax",
        "x mask",
        "y",
        scale=attribute("scale", 1.0),
        fixTriuMask=attribute("fixed_triu_mask", False),
    ),
    "ScaledMaskedSoftmaxGrad": function_call(
        "aclnnScaledMaskedSoftmaxBackward",
        "gradOutput y mask",
        scale=attribute("scale", 1.0),
        fixTriuMask=attribute("fixed_triu_mask", False),
    ),
    "ScatterElements": function_call(
        "aclnnScatter", "self index src", dim=attribute("axis", 0), reduce=choice("reduction", ("none", "add", "mul"))
    ),
    "SoftmaxCrossEntropyWithLogits": function_call(
        "aclnnSoftmaxCrossEntropyWithLogits", "features labels", "loss backprop"
    ),
    "Svd": function_call(
        "aclnnSvd",
        "input",
        "sigma u v",
        fullMatrices=attribute("full_matrices", False),
        computeUV=attribute("compute_uv", True),
    ),
    "ShuffleChannel": function_call("aclnnChannelShuffle", groups=attribute("group", 1)),
    "Sub": function_call("aclnnSub", "self other", alpha=constant(1)),
    "YoloBoxesEncode": operator_call(of_box_types.YOLO_ENCODE, "anchor_boxes gt_bboxes stride", "encoded_bboxes"),
}
