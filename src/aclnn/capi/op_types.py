"""Operators by their types in CANN's graphs (Sub, Swish), which ``aclopCompileAndExecute`` accepts.

Most types map to an ``aclnn`` function. Inputs, outputs and attributes are those of CANN's definition of the type, in
its order; further inputs, which only CANN's kernels use, are ignored.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.checks import listing
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Kind, Operator
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID, AclnnError
from aclnn.core.tensor import Scalar, Tensor, contiguous_strides
from aclnn.operators.library.by_type import arrays as of_array_types
from aclnn.operators.library.by_type import boxes as of_box_types
from aclnn.operators.library.by_type import general as of_types
from aclnn.operators.library.by_type import layers as of_layer_types
from aclnn.operators.library.by_type import optimizers as of_optimizer_types
from aclnn.operators.library.training import recurrent
from aclnn.operators.registry import BY_FUNCTION
from aclnn.support.process import PerProcess


class Given(NamedTuple):
    """Tensors and attributes of a call."""

    inputs: Sequence[Tensor | None]
    outputs: Sequence[Tensor | None]
    attributes: Mapping[str, Any]
    values: Sequence[np.ndarray[Any, Any] | None]
    """Values of inputs in host memory; None for those on the device."""

    def tensor(self, place: int = 0) -> Tensor:
        """Return a required input.

        Raises:
            AclnnError: it is missing.
        """
        found = self.inputs[place] if place < len(self.inputs) else None
        if found is None:
            raise _invalid(f"inputs[{place}]: expected a tensor, got none")
        return found

    def output(self) -> Tensor:
        """Return the first output.

        Raises:
            AclnnError: there is none.
        """
        found = self.outputs[0] if self.outputs else None
        if found is None:
            raise _invalid("outputs[0]: expected a tensor, got none")
        return found

    def integers(self, place: int) -> tuple[int, ...]:
        """Return the values of an input that determines a shape.

        Raises:
            AclnnError: they are not in host memory.
        """
        found = self.values[place] if place < len(self.values) else None
        if found is None:
            raise _invalid(f"inputs[{place}]: expected values in host memory, got a tensor on the device, or none")
        return tuple(map(int, found.reshape(-1)))

    def attribute(self, name: str, default: Any, *, required: bool = False) -> Any:
        """Return an attribute as the default's type, from any number of equal value; an empty list counts as integers.

        Raises:
            AclnnError: it has another type or value, or is required and missing.
        """
        found = self.attributes.get(name, None if required else default)
        converted = _converted(found, default)
        if converted is None:
            raise _invalid(f"{name}: expected a value such as {default!r}, got {found!r}")
        return converted


def _converted(found: Any, default: Any) -> Any:
    """Convert a value to the default's type; return None if the types are incompatible."""
    is_number = isinstance(found, (bool, int, float))
    match default:
        case bool() | float():
            return type(default)(found) if is_number else None
        case int():
            return int(found) if is_number and float(found).is_integer() else None
        case tuple() if isinstance(found, tuple):
            converted = tuple(_converted(each, default[0] if default else 0) for each in found)
            return None if None in converted else converted
    return found if isinstance(found, type(default)) else None


class ByType(NamedTuple):
    """An operator, and a function from a call by type to the operator's arguments."""

    operator: Operator
    arguments: Callable[[Given], dict[str, Any]]


Value = Callable[[Given], Any]


def _invalid(text: str) -> AclnnError:
    return AclnnError(ACLNN_ERR_PARAM_INVALID, text)


def _attribute(name: str, default: Any) -> Value:
    return lambda given: given.attribute(name, default)


def _required(name: str, example: Any) -> Value:
    return lambda given: given.attribute(name, example, required=True)


def _only(name: str) -> Value:
    """Return the single dimension of a list attribute, by default the last dimension."""

    def dim(given: Given) -> int:
        dims = given.attribute(name, (-1,))
        if len(dims) != 1:
            raise _invalid(f"{name}: expected one dimension, got {list(dims)}")
        return dims[0]  # type: ignore[no-any-return]  # as the default's

    return dim


def _number(name: str, default: float) -> Value:
    """Pass an attribute as a scalar."""
    return lambda given: Scalar(D.FLOAT, D.FLOAT.encode(given.attribute(name, default)))


def _constant(value: int) -> Value:
    return lambda given: Scalar(D.INT64, D.INT64.encode(value))


def _on_host(place: int) -> Value:
    """Pass a one-element input in host memory as a scalar."""

    def number(given: Given) -> Scalar:
        found = given.values[place] if place < len(given.values) else None
        if found is None or found.size != 1:
            got = "none" if found is None else found.size
            raise _invalid(f"inputs[{place}]: expected one number in host memory, got {got}")
        return Scalar(given.tensor(place).dtype, found.tobytes())

    return number


def _choice(name: str, words: Sequence[str], default: int = 0) -> Value:
    """Pass the index of a string attribute among its possible values."""

    def choose(given: Given) -> int:
        found = given.attribute(name, words[default])
        if found not in words:
            raise _invalid(f"{name}: expected {listing(words)}, got {found}")
        return words.index(found)

    return choose


def _named(names: str, tensors: Sequence[Tensor | None]) -> dict[str, Tensor | None]:
    """Name tensors by position; missing ones are None."""
    return dict.fromkeys(names.split()) | dict(zip(names.split(), tensors, strict=False))


def _operator(operator: Operator, inputs: str, outputs: str, **others: Value) -> ByType:
    """Call an operator; ``inputs`` and ``outputs`` name its parameters in the order of the type."""

    def arguments(given: Given) -> dict[str, Any]:
        tensors = _named(inputs, given.inputs) | _named(outputs, given.outputs)
        found = tensors | {name: value(given) for name, value in others.items()}
        return {parameter.name: found.get(parameter.name) for parameter in operator.parameters}

    return ByType(operator, arguments)


def _function(function: str, inputs: str = "self", outputs: str = "out", **others: Value) -> ByType:
    """Call an ``aclnn`` function as ``_operator`` calls an operator."""
    return _operator(BY_FUNCTION[function], inputs, outputs, **others)


def _copied(
    source: Callable[[Given], Tensor] = Given.tensor, target: Callable[[Given], Tensor] = Given.output
) -> ByType:
    """Copy, by default the first input to the first output."""
    return ByType(BY_FUNCTION["aclnnInplaceCopy"], lambda given: {"selfRef": target(given), "src": source(given)})


def _view(tensor: Tensor, shape: Sequence[int], strides: Sequence[int] | None = None, offset: int = 0) -> Tensor:
    steps = contiguous_strides(shape) if strides is None else strides
    return Tensor(tensor.dtype, shape, steps, offset, tensor.format, tensor.storage_shape, tensor.address)


def _reshaped(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    if min(shape, default=0) < 0 or math.prod(shape) != tensor.size:
        raise _invalid(f"shape: expected one of {tensor.size} elements, got {list(shape)}")
    return _view(tensor, shape)


def _permuted(tensor: Tensor, dims: Sequence[int]) -> Tensor:
    if sorted(dims) != [*range(len(tensor.shape))]:
        raise _invalid(f"perm: expected each of {len(tensor.shape)} dimensions once, got {list(dims)}")
    return _view(tensor, [tensor.shape[dim] for dim in dims], [tensor.strides[dim] for dim in dims])


def _sliced(given: Given) -> Tensor:
    x, offsets, sizes = given.tensor(), given.integers(1), given.integers(2)
    rest = [extent - offset for extent, offset in zip(x.shape, offsets, strict=False)]
    shape = [left if size == -1 else size for left, size in zip(rest, sizes, strict=False)]
    fits = len(shape) == len(x.shape) and all(0 <= n <= m for n, m in zip(shape, rest, strict=True))
    if not fits or min(offsets, default=0) < 0:
        raise _invalid(f"expected offsets and sizes inside {list(x.shape)}, got {list(offsets)}, {list(sizes)}")
    return _view(x, shape, x.strides, sum(map(math.prod, zip(offsets, x.strides, strict=True))))


_transposes_first = _required("transpose_first", False)


def _transposed(given: Given) -> Tensor:
    """Return the first input of ConfusionTransposeD, transposed before or after reshaping."""
    x = given.tensor()
    perm, shape = (given.attribute(name, (), required=True) for name in ("perm", "shape"))
    return _permuted(x if _transposes_first(given) else _reshaped(x, shape), perm)


def _as_transposed(given: Given) -> Tensor:
    """Return the output viewed in the shape of the transposed input."""
    y = given.output()
    return _reshaped(y, _transposed(given).shape) if _transposes_first(given) else y


def _recurrent(operator: Operator, inputs: str = "") -> ByType:
    """Call an operator of ``recurrent``; ``inputs`` is needed if the type's input order differs."""
    read, written = (" ".join(p.name for p in of) for of in (operator.inputs, operator.outputs))
    call = _operator(
        operator,
        inputs or read,
        written,
        gate_order=_attribute("gate_order", "ijfo"),
        direction=_attribute("direction", "UNIDIRECTIONAL"),
    )

    def arguments(given: Given) -> dict[str, Any]:
        found = call.arguments(given)
        for name in ("x", "h", "c", "dx"):  # a single step may come without the time dimension
            tensor = found.get(name)
            if tensor is not None and len(tensor.shape) == 2:
                found[name] = _view(tensor, (1, *tensor.shape))
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
            raise _invalid("bias: expected null, got a tensor")
        factors = []
        for place, flag in enumerate(flags):
            factor = given.tensor(place)
            *batch, rows, columns = range(len(factor.shape))
            factors.append(_permuted(factor, (*batch, columns, rows)) if given.attribute(flag, False) else factor)
        names = [p.name for p in operator.parameters]
        return dict(zip(names, (*factors, given.output(), 0), strict=True))

    return ByType(operator, arguments)


def _reduced(function: str, dim: str, keep: str, **others: Value) -> ByType:
    """Reduce along the dimensions held by the second input."""
    values = {dim: _integers, keep: _attribute("keep_dims", False)} | others
    return _operator(BY_FUNCTION[function], "self", "out", **values)


def _integers(given: Given) -> tuple[int, ...]:
    return given.integers(1)


def _only_integer(place: int) -> Value:
    """The only integer of an input in the host's memory."""

    def integer(given: Given) -> int:
        found = given.integers(place)
        if len(found) != 1:
            raise _invalid(f"inputs[{place}]: expected one integer, got {list(found)}")
        return found[0]

    return integer


def _real(given: Given, place: int) -> float:
    return float(_on_host(place)(given).value)


def _type_of_output(given: Given) -> D:
    return given.output().dtype


def _joined(function: str, dim: str) -> ByType:
    """Concatenate all inputs."""
    return _function(
        function, "", tensors=lambda given: tuple(map(given.tensor, range(len(given.inputs)))), dim=_attribute(dim, 0)
    )


def _limited(function: str = "aclnnClamp") -> ByType:
    return _function(function, clipValueMin=_on_host(1), clipValueMax=_on_host(2))


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
    return _operator(
        operator,
        inputs,
        outputs,
        interpolationMode=_choice("interpolation_mode", ("bilinear", "nearest", "bicubic")),
        paddingMode=_choice("padding_mode", ("zeros", "border", "reflection")),
        alignCorners=_attribute("align_corners", False),
        **masks,
    )


def _both(given: Given) -> tuple[bool, bool]:
    return True, True


def _ctc(function: str, inputs: str, outputs: str, lengths: int) -> ByType:
    """Call a CTC function; ``lengths`` is the index of the first of two inputs of lengths, read on the host."""
    return _function(
        function,
        inputs,
        outputs,
        inputLengths=lambda given: given.integers(lengths),
        targetLengths=lambda given: given.integers(lengths + 1),
        blank=_attribute("blank", 0),
        zeroInfinity=_attribute("zero_infinity", False),
    )


def _overlap(operator: Operator, **others: Value) -> ByType:
    outputs = " ".join(p.name for p in operator.outputs)
    return _operator(
        operator,
        "bboxes gtboxes",
        outputs,
        trans=_attribute("trans", False),
        is_cross=_attribute("is_cross", True),
        mode=_attribute("mode", "iou"),
        **others,
    )


def _of_channels(given: Given, rank: int) -> int:
    """Return the channel dimension according to ``data_format``."""
    found = given.attribute("data_format", "NHWC")
    return 1 if found.startswith("NC") else rank - 1


def _channels_first(given: Given) -> None:
    found = given.attribute("data_format", "NHWC")
    if not found.startswith("NC"):
        raise _invalid(f"data_format: expected NCHW or NCDHW, got {found}")


def _bias_added(given: Given) -> dict[str, Any]:
    x, bias = given.tensor(0), given.tensor(1)
    shape = [1] * len(x.shape)
    shape[_of_channels(given, len(shape))] = -1
    along = _reshaped(bias, [bias.size if extent < 0 else extent for extent in shape])
    return {"self": x, "other": along, "alpha": _constant(1)(given), "out": given.output()}


def _all_but_channels(given: Given) -> tuple[int, ...]:
    rank = len(given.tensor().shape)
    return tuple(dim for dim in range(rank) if dim != _of_channels(given, rank))


def _image(tensor: Tensor) -> Tensor:
    """Return the tensor in the format of its rank, as convolutions and pooling require."""
    of_rank = Format.of_rank(len(tensor.shape))
    label = tensor.format if of_rank is Format.FORMAT_ND else of_rank
    return Tensor(tensor.dtype, tensor.shape, tensor.strides, 0, label, tensor.storage_shape, tensor.address)


def _convolution_numbers(given: Given, rank: int) -> dict[str, Any]:
    """Return the arguments common to convolutions; attributes include the first two dimensions, except the padding."""
    _channels_first(given)
    ones = (1,) * (rank + 2)
    pads = given.attribute("pads", (0,), required=True)
    if rank != 2 and len(pads) == 2 * rank:
        if pads[::2] != pads[1::2]:
            raise _invalid(f"pads: expected as many before as after, got {list(pads)}")
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
    x, weight = _image(given.tensor(0)), _image(given.tensor(1))
    bias = given.inputs[2] if len(given.inputs) > 2 else None
    numbers = _convolution_numbers(given, len(x.shape) - 2)
    return {"input": x, "weight": weight, "bias": bias, "output": _image(given.output())} | numbers


def _convolution_gradient(wanted: str) -> Callable[[Given], dict[str, Any]]:
    """Return the arguments for one of a convolution's gradients; it takes the place of the corresponding operand."""

    def arguments(given: Given) -> dict[str, Any]:
        gradient, dy = _image(given.output()), _image(given.tensor(2))
        is_input = wanted == "gradInput"
        x, weight = (gradient, _image(given.tensor(1))) if is_input else (_image(given.tensor(0)), gradient)
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
            raise _invalid(f"{name}: expected 0, got {given.attribute(name, 0)}")
    begin, end, step = (given.integers(at + place) for place in range(3))
    if not len(begin) == len(end) == len(step) <= len(shape) or 0 in step:
        raise _invalid(f"expected bounds of {len(shape)} dimensions and steps other than 0, got {begin}, {end}, {step}")
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
    return _view(x, count, strides, sum(map(math.prod, zip(first, x.strides, strict=True))))


def _strided_gradient(given: Given) -> dict[str, Any]:
    shape = given.integers(0)
    first, count, step = _bounds(given, shape, 1)
    names = {"shape": shape, "first": first, "count": count, "step": step}
    return {"dy": _reshaped(given.tensor(4), count), **names, "y": given.output()}


def _gathered(given: Given) -> dict[str, Any]:
    x, places = given.tensor(0), given.tensor(1)
    (axis,) = given.integers(2)
    if given.attribute("batch_dims", 0):
        raise _invalid(f"batch_dims: expected 0, got {given.attribute('batch_dims', 0)}")
    dim = axis % max(1, len(x.shape))
    out = _reshaped(given.output(), (*x.shape[:dim], places.size, *x.shape[dim + 1 :]))
    return {"self": x, "dim": dim, "index": _reshaped(places, (places.size,)), "out": out}


def _unstacked(given: Given) -> dict[str, Any]:
    x = given.tensor()
    dim = given.attribute("axis", 0) % len(x.shape)
    outs = [each for each in given.outputs if each is not None]
    parts = tuple(_reshaped(each, (*x.shape[:dim], 1, *x.shape[dim + 1 :])) for each in outs)
    return {"self": x, "splitSections": 1, "dim": dim, "out": parts}


def _layer(operator: Operator, **others: Value) -> ByType:
    """Call an operator of ``of_layer_types``, whose parameters are in the type's order."""
    read, written = (" ".join(p.name for p in of) for of in (operator.inputs, operator.outputs))
    return _operator(operator, read, written, **others)


def _as_input(given: Given) -> Tensor:
    """Return the output in the first input's shape; MindSpore adds two dimensions to that of 2-D inputs."""
    return _reshaped(given.output(), given.tensor().shape)


_EPSILON = {"epsilon": _attribute("epsilon", 1e-4)}


_WINDOWS = {
    "ksize": _required("ksize", (1,)),
    "strides": _required("strides", (1,)),
    "padding": _required("padding", "SAME"),
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
    return _operator(operator, read, "", **written, **others)


_MOVED = {"means": _attribute("means", (0.0,) * 4), "stds": _attribute("stds", (1.0,) * 4)}

_OF_LOGARITHMS = {
    "base": _attribute("base", -1.0),
    "scale": _attribute("scale", 1.0),
    "shift": _attribute("shift", 0.0),
}

_RUNNING = {
    "axis": _only_integer(1),
    "exclusive": _attribute("exclusive", False),
    "reverse": _attribute("reverse", False),
}
_NORM = {
    "axes": _attribute("axes", ()),
    "keepdim": _attribute("keepdim", False),
    "epsilon": _attribute("epsilon", 1e-12),
}
_RESIZED = {
    "size": _integers,
    "align_corners": _attribute("align_corners", False),
    "half_pixel_centers": _attribute("half_pixel_centers", False),
}


def _stepping(operator: Operator, **others: Value) -> ByType:
    """Call an operator of ``of_optimizer_types``, which writes to the inputs that its outputs are named after."""
    places = {p.name: place for place, p in enumerate(operator.inputs)}
    return _updating(operator, {p.name: places[p.name.removesuffix("_out")] for p in operator.outputs}, **others)


def _mirrored(given: Given) -> str:
    return str(given.attribute("mode", "REFLECT", required=True)).lower()


def _fill(given: Given) -> Tensor:
    """What lies outside; without it, as where elements of the input do, any number."""
    value = given.inputs[2] if len(given.inputs) > 2 else None
    return _view(given.tensor(), (1,)) if value is None else value


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
    # Activations and norms.
    "Elu": _function(
        "aclnnElu",
        alpha=_number("alpha", 1.0),
        scale=_number("scale", 1.0),
        inputScale=_number("input_scale", 1.0),
    ),
    "EluGradV2": _function(
        "aclnnEluBackward",
        "gradOutput selfOrResult",
        "gradInput",
        alpha=_number("alpha", 1.0),
        scale=_number("scale", 1.0),
        inputScale=_number("input_scale", 1.0),
        isResult=_attribute("is_result", False),
    ),
    "FastGelu": _function("aclnnFastGelu"),
    "FastGeluGrad": _function("aclnnFastGeluBackward", "gradOutput self", "gradInput"),
    "Gelu": _function("aclnnGelu"),
    "GeluGrad": _function("aclnnGeluBackward", "gradOutput self", "gradInput"),
    "HardSwish": _function("aclnnHardswish"),
    "HardSwishGrad": _function("aclnnHardswishBackward", "gradOutput self"),
    "LayerNormV3": _function(
        "aclnnLayerNorm",
        "input weightOptional biasOptional",
        "out meanOutOptional rstdOutOptional",
        normalizedShape=lambda given: given.tensor().shape[given.attribute("begin_norm_axis", 0) :],
        eps=_attribute("epsilon", 1e-5),
    ),
    "LeakyRelu": _function("aclnnLeakyRelu", negativeSlope=_number("negative_slope", 0.0)),
    "LeakyReluGrad": _function(
        "aclnnLeakyReluBackward",
        "gradOutput self",
        negativeSlope=_number("negative_slope", 0.0),
        selfIsResult=lambda given: False,
    ),
    "LogSigmoid": _function("aclnnLogSigmoid"),
    "LogSoftmaxGrad": _function("aclnnLogSoftmaxBackward", "gradOutput output", dim=_only("axis")),
    "LogSoftmaxV2": _function("aclnnLogSoftmax", dim=_only("axes")),
    "Mish": _function("aclnnMish"),
    "MishGrad": _function("aclnnMishBackward", "gradOutput self", "gradInput"),
    "Relu": _function("aclnnRelu"),
    "ReluGrad": _function("aclnnThresholdBackward", "gradOutput self", threshold=_constant(0)),
    "Selu": _function("aclnnSelu"),
    "SeluGrad": _function("aclnnSeluBackward", "gradOutput result", "gradInput"),
    "Sigmoid": _function("aclnnSigmoid"),
    "SigmoidGrad": _function("aclnnSigmoidBackward", "output gradOutput", "gradInput"),
    "SoftmaxGrad": _function("aclnnSoftmaxBackward", "output gradOutput", dim=_only("axes")),
    "SoftmaxV2": _function("aclnnSoftmax", dim=_only("axes")),
    "SoftplusV2": _function("aclnnSoftplus", beta=_number("beta", 1.0), threshold=_number("threshold", 20.0)),
    "SoftplusV2Grad": _function(
        "aclnnSoftplusBackward",
        "gradOutput self",
        "gradInput",
        beta=_number("beta", 1.0),
        threshold=_number("threshold", 20.0),
    ),
    "Swish": _function("aclnnSwish", betaOptional=_number("scale", 1.0)),
    "SwishGrad": _function("aclnnSwishBackward", "gradOutput self", "gradInput", betaOptional=_number("scale", 1.0)),
    # Types that torch_npu calls for tensors in private formats.
    **{name: _function(f"aclnn{name}") for name in _OF_ONE.split()},
    **{name: _function(f"aclnn{function}", "self other") for name, function in _OF_TWO.items()},
    "Addcdiv": _layer(of_array_types.ADDCDIV),
    "Addcmul": _layer(of_array_types.ADDCMUL),
    "AxpyV2": _function("aclnnAdd", "self other", alpha=_on_host(2)),
    "ClipByValue": _limited(),
    "ClipByValueV2": _limited(),
    "ConcatD": _joined("aclnnCat", "concat_dim"),
    "Cumsum": _layer(of_array_types.CUM_SUM, **_RUNNING),
    "DropOutDoMask": _layer(of_layer_types.DROP_OUT_DO_MASK),
    "Exp": _operator(of_types.EXP, "x", "y", **_OF_LOGARITHMS),
    "GatherElements": _function("aclnnGather", "self index", dim=_attribute("dim", 0)),
    "Invert": _function("aclnnBitwiseNot"),
    "Lerp": _function("aclnnLerp", "self end weight"),
    "Log": _operator(of_types.LOG, "x", "y", **_OF_LOGARITHMS),
    "MaskedFill": _function("aclnnSWhere", "other condition self"),
    "MatMul": _product("transpose_x1", "transpose_x2"),
    "Pack": _joined("aclnnStack", "axis"),
    "Pow": _function("aclnnPowTensorTensor", "self exponent"),
    "ReduceAll": _reduced("aclnnAll", "dim", "keepdim"),
    "ReduceAny": _reduced("aclnnAny", "dim", "keepdim"),
    "ReduceMax": _reduced("aclnnAmax", "dim", "keepDim"),
    "ReduceMean": _reduced("aclnnMean", "dim", "keepDim", dtype=_type_of_output),
    "ReduceMeanD": _function(
        "aclnnMean", dim=_attribute("axes", ()), keepDim=_attribute("keep_dims", False), dtype=_type_of_output
    ),
    "ReduceMin": _reduced("aclnnAmin", "dim", "keepDim"),
    "ReduceSum": _reduced("aclnnReduceSum", "dims", "keepDims", dtype=_type_of_output),
    "ReverseV2": _function("aclnnFlip", dims=_integers),
    "Select": _function("aclnnSWhere", "condition self other"),
    "Square": ByType(
        BY_FUNCTION["aclnnMul"],
        lambda given: {"self": given.tensor(), "other": given.tensor(), "out": given.output()},
    ),
    "StatelessDropOutGenMask": _function(
        "aclnnDropoutGenMaskV2",
        "",
        shape=lambda given: given.integers(0),
        prob=lambda given: 1 - _real(given, 1),
        seed=lambda given: int(_real(given, 2)),
        offset=lambda given: given.integers(4)[-1],
        probDataType=lambda given: given.tensor(1).dtype,
    ),
    "Tile": _function("aclnnRepeat", repeats=_integers),
    "Tril": _function("aclnnTril", diagonal=_attribute("diagonal", 0)),
    "ZerosLike": _function("aclnnInplaceZero", "", "selfRef"),
    # MindSpore's layers.
    "AddN": _operator(
        of_layer_types.ADD_N, "", "y", x=lambda given: tuple(map(given.tensor, range(len(given.inputs))))
    ),
    **dict.fromkeys(
        ("AdaptiveAvgPool2D", "CustAdaptiveAvgPool2D"),
        _by_name(
            "aclnnAdaptiveAvgPool2d",
            lambda given: {
                "self": _image(given.tensor()),
                "outputSize": given.attribute("output_size", (), required=True),
                "out": _image(given.output()),
            },
        ),
    ),
    "AdamApplyOneWithDecayAssign": _updating(
        of_layer_types.ADAM_WITH_DECAY, {f"output{place}": place for place in (1, 2, 3)}
    ),
    "ApplyAdagradD": _updating(of_layer_types.APPLY_ADAGRAD, {"var_out": 0, "accum_out": 1}),
    "ApplyRMSProp": _updating(of_layer_types.APPLY_RMS_PROP, {"var_out": 0, "ms_out": 1, "mom_out": 2}),
    "ApplyAdam": _updating(
        of_types.APPLY_ADAM,
        {"var_out": 0, "m_out": 1, "v_out": 2},
        use_nesterov=_attribute("use_nesterov", False),
    ),
    "ApplyMomentum": _updating(
        of_layer_types.APPLY_MOMENTUM,
        {"var_out": 0, "accum_out": 1},
        use_nesterov=_attribute("use_nesterov", False),
    ),
    **{
        f"Assign{name}": _function(f"aclnnInplace{name}", "selfRef other", "", alpha=_constant(1))
        for name in ("Add", "Sub")
    },
    "AvgPool": _windowed(of_layer_types.AVG_POOL),
    "AvgPoolGrad": _operator(
        of_layer_types.AVG_POOL_GRAD,
        "",
        "y",
        input_grad=lambda given: given.tensor(1),
        orig_input_shape=lambda given: given.integers(0),
        **_WINDOWS,
    ),
    "BiasAdd": _by_name("aclnnAdd", _bias_added),
    "BiasAddGrad": _function(
        "aclnnReduceSum", dims=_all_but_channels, keepDims=lambda given: False, dtype=_type_of_output
    ),
    "BNInfer": _layer(of_layer_types.BN_INFER, y=_as_input, **_EPSILON),
    "BNInferGrad": _layer(of_layer_types.BN_INFER_GRAD, x_backprop=_as_input, **_EPSILON),
    "BNTrainingReduce": _layer(of_layer_types.BN_TRAINING_REDUCE),
    "BNTrainingReduceGrad": _layer(of_layer_types.BN_TRAINING_REDUCE_GRAD, y=_as_input, **_EPSILON),
    "BNTrainingUpdate": _layer(
        of_layer_types.BN_TRAINING_UPDATE, y=_as_input, factor=_required("factor", 1.0), **_EPSILON
    ),
    "BNTrainingUpdateGrad": _layer(of_layer_types.BN_TRAINING_UPDATE_GRAD, **_EPSILON),
    **dict.fromkeys(("Conv2D", "Conv3D"), _by_name("aclnnConvolution", _convolution)),
    **{
        f"Conv{rank}DBackprop{of}": _by_name("aclnnConvolutionBackward", _convolution_gradient(wanted))
        for rank in (2, 3)
        for of, wanted in (("Input", "gradInput"), ("Filter", "gradWeight"))
    },
    "EluGrad": _function(
        "aclnnEluBackward",
        "gradOutput selfOrResult",
        "gradInput",
        **dict.fromkeys(("alpha", "scale", "inputScale"), _constant(1)),
        isResult=lambda given: True,
    ),
    "LayerNorm": _layer(
        of_layer_types.LAYER_NORM,
        begin_norm_axis=_attribute("begin_norm_axis", 0),
        epsilon=_attribute("epsilon", 1e-7),
    ),
    "LayerNormGrad": _layer(of_layer_types.LAYER_NORM_GRAD),
    "MaxPool": _windowed(of_layer_types.MAX_POOL),
    "MaxPoolGrad": _windowed(of_layer_types.MAX_POOL_GRAD),
    "GatherV2": _by_name("aclnnIndexSelect", _gathered),
    "DropOutGenMask": _operator(
        of_layer_types.DROP_OUT_GEN_MASK,
        "shape prob",
        "y",
        count=lambda given: math.prod(given.integers(0)),
        **_DRAWN,
    ),
    "OneHot": _operator(
        of_types.ONE_HOT_OF_DEPTH,
        "x depth on_value off_value",
        "y",
        depth=lambda given: given.integers(1)[0],
        axis=_attribute("axis", -1),
    ),
    "OnesLike": _function("aclnnInplaceOne", "", "selfRef"),
    "RandomStandardNormal": _function(
        "aclnnInplaceNormal", "", "selfRef", mean=lambda given: 0.0, std=lambda given: 1.0, **_DRAWN
    ),
    "SGD": _updating(
        of_layer_types.SGD,
        {"parameters_out": 0, "accum_out": 3, "stat_out": 5},
        dampening=_attribute("dampening", 0.0),
        weight_decay=_attribute("weight_decay", 0.0),
        nesterov=_attribute("nesterov", False),
    ),
    "Softplus": _function("aclnnSoftplus", beta=_constant(1), threshold=_constant(20)),
    "SoftplusGrad": _function(
        "aclnnSoftplusBackward", "gradOutput self", "gradInput", beta=_constant(1), threshold=_constant(20)
    ),
    "StridedSlice": _copied(_strided, lambda given: _reshaped(given.output(), _strided(given).shape)),
    "StridedSliceGrad": ByType(of_layer_types.STRIDED_SLICE_GRAD, _strided_gradient),
    "UnsortedSegmentSum": _operator(
        of_layer_types.UNSORTED_SEGMENT_SUM, "x segment_ids", "y", num_segments=lambda given: given.integers(2)[0]
    ),
    "Unpack": _by_name("aclnnSplitTensor", _unstacked),
    # Arrays of MindSpore's.
    **{name: _layer(operator) for name, operator in of_array_types.SINGLES.items()},
    **{name: _layer(operator) for name, operator in of_array_types.PAIRS.items()},
    **{name: _updating(operator, {"var_out": 0}) for name, operator in of_array_types.SCATTERED.items()},
    **{name: _layer(operator) for name, operator in of_array_types.TENSOR_SCATTERED.items()},
    **{
        name: _function(f"aclnn{name[:6]}", dim=_only_integer(1), keepdim=lambda given: False)
        for name in ("ArgMaxV2", "ArgMin")
    },
    "ApplyAdadeltaD": _stepping(of_optimizer_types.ADA_DELTA),
    "ApplyAdaMaxD": _stepping(of_optimizer_types.ADA_MAX),
    "ApplyAdagradV2D": _stepping(of_optimizer_types.ADA_GRAD_V2, epsilon=_required("epsilon", 0.0)),
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
            "gradOutput": _image(given.tensor()),
            "self": _image(given.output()),
            "out": _image(given.output()),
        },
    ),
    "Complex": _function("aclnnComplex", "real imag"),
    "Concat": _function(
        "aclnnCat",
        "",
        tensors=lambda given: tuple(map(given.tensor, range(1, len(given.inputs)))),
        dim=_only_integer(0),
    ),
    **{
        name: _function(f"aclnn{name}", "self", "valuesOut indicesOut", dim=_required("axis", 0))
        for name in ("Cummax", "Cummin")
    },
    "Cumprod": _layer(of_array_types.CUM_PROD, **_RUNNING),
    "CumulativeLogsumexp": _layer(of_array_types.CUM_LOG_SUM_EXP, **_RUNNING),
    "Diag": _layer(of_array_types.DIAG),
    "IsInf": _layer(of_array_types.IS_INF),
    "IsNan": _layer(of_array_types.IS_NAN),
    "L2Loss": _layer(of_array_types.L2_LOSS),
    "L2Normalize": _layer(of_array_types.L2_NORMALIZE, axis=_attribute("axis", ()), eps=_attribute("eps", 1e-4)),
    "L2NormalizeGrad": _layer(of_array_types.L2_NORMALIZE_GRAD, dim=_attribute("dim", ()), eps=_attribute("eps", 1e-4)),
    "LinSpace": _operator(of_array_types.LIN_SPACE, "start stop", "output", num=_only_integer(2)),
    "LpNorm": _layer(of_array_types.LP_NORM, p=_attribute("p", 2), **_NORM),
    "LpNormV2": _layer(of_array_types.LP_NORM_V2, p=_attribute("p", 2.0), **_NORM),
    "MatrixDiagV3": ByType(of_array_types.MATRIX_DIAG, _matrix_diagonal),
    "MatrixSetDiagV3": _layer(of_array_types.MATRIX_SET_DIAG, align=_attribute("align", "RIGHT_LEFT")),
    **{
        name: _operator(operator, "x", "y", paddings=_integers, mode=_mirrored)
        for name, operator in (("MirrorPad", of_array_types.PAD), ("MirrorPadGrad", of_array_types.PAD_GRAD))
    },
    "Pad": _operator(of_array_types.PAD, "x", "y", paddings=_integers, mode=lambda given: "constant"),
    "PadV3Grad": _operator(of_array_types.PAD_GRAD, "x", "y", paddings=_integers, mode=_attribute("mode", "reflect")),
    "PadV3": _operator(
        of_array_types.PAD_WITH_VALUE,
        "x",
        "y",
        constant_values=_fill,
        paddings=_integers,
        mode=_attribute("mode", "constant"),
    ),
    "RandomUniform": _function(
        "aclnnInplaceUniform", "", "selfRef", low=lambda given: 0.0, high=lambda given: 1.0, **_DRAWN
    ),
    "Range": _layer(of_array_types.RANGE, count=lambda given: given.output().size),
    "ReduceProd": _operator(
        of_array_types.REDUCE_PROD, "x", "y", axes=_integers, keepdim=_attribute("keep_dims", False)
    ),
    "ReduceStd": _layer(
        of_array_types.REDUCE_STD,
        axes=_attribute("dim", ()),
        unbiased=_attribute("unbiased", True),
        keepdim=_attribute("keepdim", False),
    ),
    "Relu6": _function("aclnnHardtanh", clipValueMin=_constant(0), clipValueMax=_constant(6)),
    "Relu6Grad": _function("aclnnHardtanhBackward", "gradOutput self", min=_constant(0), max=_constant(6)),
    "ResizeBilinearV2": _operator(of_array_types.RESIZE_BILINEAR, "x", "y", **_RESIZED),
    "ResizeBilinearV2Grad": _operator(
        of_array_types.RESIZE_BILINEAR_GRAD, "x", "y", **_RESIZED | {"size": lambda given: given.tensor(1).shape[2:]}
    ),
    "ResizeNearestNeighborV2": _operator(of_array_types.RESIZE_NEAREST, "x", "y", **_RESIZED),
    "ResizeNearestNeighborV2Grad": _operator(of_array_types.RESIZE_NEAREST_GRAD, "x", "y", **_RESIZED),
    "SigmoidCrossEntropyWithLogits": _layer(of_array_types.SIGMOID_CROSS_ENTROPY),
    "SigmoidCrossEntropyWithLogitsGrad": _layer(of_array_types.SIGMOID_CROSS_ENTROPY_GRAD),
    "Sort": _layer(of_array_types.SORT, axis=_attribute("axis", -1), descending=_attribute("descending", False)),
    "SparseSoftmaxCrossEntropyWithLogits": _layer(of_array_types.SPARSE_CROSS_ENTROPY),
    "SqrtGrad": _layer(of_array_types.SQRT_GRAD),
    # Copies.
    "Assign": _copied(lambda given: given.tensor(1)),
    "BroadcastTo": _copied(),
    "Cast": _function("aclnnCast", dtype=lambda given: given.output().dtype),
    "ConfusionTransposeD": _copied(_transposed, _as_transposed),
    "Fill": _function("aclnnInplaceFillTensor", "dims value", "selfRef"),
    "Identity": _copied(),
    "Slice": _copied(_sliced),
    "TensorMove": _copied(),
    "Transpose": _copied(lambda given: _permuted(given.tensor(), given.integers(1))),
    # Other types called by torch_npu.
    "ApplyAdamD": _operator(
        of_types.APPLY_ADAM,
        "var m v beta1_power beta2_power lr beta1 beta2 epsilon grad",
        "var_out m_out v_out",
        use_nesterov=_attribute("use_nesterov", False),
    ),
    "ApplyAdamW": _operator(
        of_types.APPLY_ADAM_W,
        "varRef mRef vRef beta1Power beta2Power lr weightDecay beta1 beta2 eps grad maxGradNormOptional",
        "varRef mRef vRef",
        amsgrad=_attribute("amsgrad", False),
        maximize=_attribute("maximize", False),
    ),
    "AnchorResponseFlags": _operator(
        of_box_types.RESPONSE_FLAGS,
        "gt_bboxes",
        "flags",
        featmap_size=_required("featmap_size", ()),
        strides=_required("strides", ()),
        num_base_anchors=_required("num_base_anchors", 0),
    ),
    "ArgMaxWithValue": _function(
        "aclnnMaxDim", "self", "indices out", dim=_required("dimension", 0), keepdim=_attribute("keep_dims", False)
    ),
    "ArgMinWithValue": _function(
        "aclnnMinDim", "self", "indices out", dim=_required("dimension", 0), keepdim=_attribute("keep_dims", False)
    ),
    "Add": _function("aclnnAdd", "self other", alpha=_constant(1)),
    "BatchMatMul": _product("adj_x1", "adj_x2"),
    "BoundingBoxDecode": _operator(
        of_box_types.DECODE,
        "rois deltas",
        "bboxes",
        max_shape=_attribute("max_shape", ()),
        wh_ratio_clip=_attribute("wh_ratio_clip", 0.016),
        **_MOVED,
    ),
    "BoundingBoxEncode": _operator(of_box_types.ENCODE, "anchor_box ground_truth_box", "delats", **_MOVED),
    "CIoU": _overlap(of_box_types.CIOU, atan_sub_flag=_attribute("atan_sub_flag", False)),
    "Cdist": _operator(of_types.CDIST, "x1 x2", "y", p=_attribute("p", 2.0)),
    "CdistGrad": _operator(of_types.CDIST_GRAD, "grad x1 x2 cdist", "y", p=_attribute("p", 2.0)),
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
    "Iou": _operator(
        of_box_types.IOU,
        "bboxes gtboxes",
        "overlap",
        mode=_attribute("mode", "iou"),
        eps=_attribute("eps", 1.0),
        aligned=_attribute("aligned", False),
    ),
    "LogSpaceD": _operator(
        of_types.LOG_SPACE,
        "assist",
        "y",
        start=_required("start", 0.0),
        end=_required("end", 0.0),
        steps=_attribute("steps", 100),
        base=_attribute("base", 10.0),
    ),
    "MaskedFillRange": _operator(of_types.MASKED_FILL_RANGE, "x start end value", "y", axis=_attribute("axis", -1)),
    "MultilabelMarginLoss": _function(
        "aclnnMultilabelMarginLoss",
        "self target",
        "out isTarget",
        reduction=_choice("reduction", ("none", "mean", "sum"), default=1),
    ),
    "NonMaxSuppressionV4": _operator(
        of_box_types.SUPPRESSION,
        "boxes scores max_output_size iou_threshold score_threshold",
        "selected_indices valid_outputs",
        pad_to_max_output_size=_attribute("pad_to_max_output_size", False),
    ),
    "OneHotD": _operator(
        of_types.ONE_HOT, "x on_value off_value", "y", depth=_required("depth", 0), axis=_attribute("axis", -1)
    ),
    "Pdist": _function("aclnnPdist", p=_attribute("p", 2.0)),
    "Qr": _function("aclnnLinalgQr", outputs="Q R", mode=lambda given: int(given.attribute("full_matrices", False))),
    "ROIAlign": _operator(
        of_box_types.ROI_ALIGN,
        "features rois",
        "y",
        spatial_scale=_required("spatial_scale", 1.0),
        pooled_height=_required("pooled_height", 1),
        pooled_width=_required("pooled_width", 1),
        sample_num=_attribute("sample_num", 2),
        roi_end_mode=_attribute("roi_end_mode", 1),
        pool_mode=_attribute("pool_mode", "avg"),
    ),
    "ROIAlignGrad": _operator(
        of_box_types.ROI_ALIGN_GRAD,
        "ydiff rois",
        "xdiff",
        xdiff_shape=_required("xdiff_shape", ()),
        pooled_width=_required("pooled_width", 1),
        pooled_height=_required("pooled_height", 1),
        spatial_scale=_required("spatial_scale", 1.0),
        sample_num=_attribute("sample_num", 2),
        roi_end_mode=_attribute("roi_end_mode", 1),
    ),
    "Renorm": _operator(
        of_types.RENORM,
        "self",
        "y",
        p=_required("p", 2.0),
        dim=_required("dim", 0),
        maxnorm=_required("maxnorm", 1.0),
    ),
    "Round": _function("aclnnRoundDecimals", decimals=_attribute("decimals", 0)),
    "ScaledMaskedSoftmax": _function(
        "aclnnScaledMaskedSoftmax",
        "x mask",
        "y",
        scale=_attribute("scale", 1.0),
        fixTriuMask=_attribute("fixed_triu_mask", False),
    ),
    "ScaledMaskedSoftmaxGrad": _function(
        "aclnnScaledMaskedSoftmaxBackward",
        "gradOutput y mask",
        scale=_attribute("scale", 1.0),
        fixTriuMask=_attribute("fixed_triu_mask", False),
    ),
    "ScatterElements": _function(
        "aclnnScatter",
        "self index src",
        dim=_attribute("axis", 0),
        reduce=_choice("reduction", ("none", "add", "mul")),
    ),
    "SoftmaxCrossEntropyWithLogits": _function(
        "aclnnSoftmaxCrossEntropyWithLogits", "features labels", "loss backprop"
    ),
    "Svd": _function(
        "aclnnSvd",
        "input",
        "sigma u v",
        fullMatrices=_attribute("full_matrices", False),
        computeUV=_attribute("compute_uv", True),
    ),
    "ShuffleChannel": _function("aclnnChannelShuffle", groups=_attribute("group", 1)),
    "Sub": _function("aclnnSub", "self other", alpha=_constant(1)),
    "YoloBoxesEncode": _operator(of_box_types.YOLO_ENCODE, "anchor_boxes gt_bboxes stride", "encoded_bboxes"),
}
