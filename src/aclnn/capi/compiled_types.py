"""Types that torch_npu calls after ``torch.npu.set_compile_mode(jit_compile=True)``, when it calls few functions.

Inputs, outputs and attributes are those of CANN's definition of the type, in its order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aclnn.capi.typed_calls import (
    ByType,
    Given,
    Value,
    attribute,
    choice,
    copied,
    function_call,
    image,
    invalid,
    on_host,
    operator_call,
    required,
    reshaped,
    scalar,
    view_of,
)
from aclnn.core.tensor import Tensor
from aclnn.operators.library.by_type import arrays

#: Values of the attribute ``reduction`` of losses, in the order of the functions' numbers.
_REDUCTIONS = ("none", "mean", "sum", "batchmean")


def _strided_view(given: Given, first: int = 0) -> Tensor:
    """Return the view that sizes, strides and an offset behind input ``first`` describe."""
    sizes, strides, (offset,) = (given.integers(first + place) for place in (1, 2, 3))
    return view_of(given.tensor(first), sizes, strides, offset)


def _indices(first: int) -> Value:
    """Pass the indices from input ``first`` on; input 1 or 2, ``indexed_sizes``, states the dimensions they are for."""

    def indices(given: Given) -> tuple[Tensor | None, ...]:
        is_indexed = given.integers(1 if first == 3 else 2)
        if sum(map(bool, is_indexed)) != len(given.inputs) - first:
            raise invalid(f"indexed_sizes: expected {len(given.inputs) - first} dimensions, got {list(is_indexed)}")
        places = iter(range(first, len(given.inputs)))
        return tuple(given.tensor(next(places)) if each else None for each in is_indexed)

    return indices


def _in_place(given: Given) -> Tensor:
    """Return the output, which must be the first input's memory."""
    if given.output().address != given.tensor().address:
        raise invalid("outputs[0]: expected the memory of inputs[0], got other memory")
    return given.output()


def _drawn(function: str, **numbers: Value) -> ByType:
    """Fill with random numbers; the inputs are the shape, a key, a counter and an algorithm."""
    return function_call(
        function,
        "",
        "selfRef",
        seed=lambda given: given.integers(1)[0] % 2**63,
        offset=lambda given: sum(given.integers(2)) % 2**63,
        **numbers,
    )


def _pooled(given: Given) -> dict[str, Any]:
    if not given.attribute("data_format", "NCHW").startswith("NC"):
        raise invalid(f"data_format: expected NCHW, got {given.attribute('data_format', 'NCHW')}")
    pads = given.attribute("pads", (0, 0, 0, 0))
    if pads[::2] != pads[1::2]:
        raise invalid(f"pads: expected as many before as after, got {list(pads)}")
    return {
        "kernelSize": given.attribute("ksize", (1,), required=True)[2:],
        "stride": given.attribute("strides", (1,), required=True)[2:],
        "padding": pads[::2],
        "ceilMode": given.attribute("ceil_mode", False),
        "countIncludePad": not given.attribute("exclusive", True),
        "divisorOverride": given.attribute("divisor_override", 0),
        "cubeMathType": 0,
    }


def _averaging(function: str, tensors: Callable[[Given], dict[str, Tensor]]) -> ByType:
    call = function_call(function)

    def arguments(given: Given) -> dict[str, Any]:
        found = {name: image(tensor) for name, tensor in tensors(given).items()} | _pooled(given)
        return {parameter.name: found[parameter.name] for parameter in call.operator.parameters}

    return ByType(call.operator, arguments)


def _planes(tensor: Tensor) -> Tensor:
    """Return a tensor as channels of an image; torch_npu omits the dimension of a single image in some tensors."""
    return reshaped(tensor, (1, math.prod(tensor.shape[:-2]), *tensor.shape[-2:]))


def _loss(function: str, inputs: str, **others: Value) -> ByType:
    """Call a loss, or its gradient, with the reduction."""
    return function_call(function, inputs, "out", reduction=choice("reduction", _REDUCTIONS, 1), **others)


_BETA: dict[str, Value] = {"beta": attribute("sigma", 1.0)}
_IGNORED: dict[str, Value] = {"ignoreIndex": attribute("ignore_index", -100)}
_LOGARITHMS: dict[str, Value] = {"logTarget": attribute("log_target", False)}
_ONES = (1, 1, 1, 1)
_MAXIMA: dict[str, Value] = {
    "ksize": required("ksize", _ONES),
    "strides": required("strides", _ONES),
    "pads": required("pads", _ONES),
    "dilation": attribute("dilation", _ONES),
}
_NORM: dict[str, Value] = {
    "p": attribute("p", 2.0),
    "axes": attribute("axes", ()),
    "keepdim": attribute("keepdim", False),
}


_DEVIATION: dict[str, Value] = {
    "axes": attribute("dim", ()),
    "keepdim": attribute("keepdim", False),
    "correction": lambda given: given.attribute("correction", int(given.attribute("unbiased", True))),
}


def _columns(given: Given) -> Tensor:
    """Return the columns with a single dimension for channels and elements of the kernel."""
    images, *rows, windows = given.tensor().shape
    return reshaped(given.tensor(), (images, math.prod(rows), windows))


def _window(name: str) -> Value:
    return lambda given: given.attribute(name, (1, 1), required=True)


TYPES: dict[str, ByType] = {
    "AdaptiveAvgPool2d": function_call(
        "aclnnAdaptiveAvgPool2d",
        self=lambda given: image(given.tensor()),
        outputSize=required("output_size", (1, 1)),
        out=lambda given: image(given.output()),
    ),
    "AdaptiveAvgPool2dGrad": function_call(
        "aclnnAdaptiveAvgPool2dBackward",
        gradOutput=lambda given: image(given.tensor()),
        self=lambda given: image(given.output()),
        out=lambda given: image(given.output()),
    ),
    "AsStrided": copied(_strided_view),
    "AvgPoolV2": _averaging("aclnnAvgPool2d", lambda given: {"self": given.tensor(), "out": given.output()}),
    "AvgPoolV2Grad": _averaging(
        "aclnnAvgPool2dBackward",
        lambda given: {
            "gradOutput": given.tensor(1),
            **dict.fromkeys(("self", "gradInput"), reshaped(given.output(), given.integers(0))),
        },
    ),
    "BinaryCrossEntropy": _loss("aclnnBinaryCrossEntropy", "self target weightOptional"),
    "BinaryCrossEntropyGrad": _loss("aclnnBinaryCrossEntropyBackward", "self target gradOutput weightOptional"),
    "Bincount": function_call(
        "aclnnBincount", "self", weights=lambda given: given.tensor(2), minlength=lambda given: given.integers(1)[0]
    ),
    "Col2im": function_call(
        "aclnnIm2colBackward",
        "",
        gradOutput=_columns,
        inputSize=lambda given: given.integers(1),
        kernelSize=_window("kernel_size"),
        dilation=_window("dilation"),
        padding=_window("padding"),
        stride=_window("stride"),
        out=lambda given: image(given.output()),
    ),
    "Dot": function_call("aclnnDot", "self tensor"),
    "EmbeddingDenseGrad": function_call(
        "aclnnEmbeddingDenseBackward",
        "grad indices",
        numWeights=required("num_weights", 0),
        paddingIdx=lambda given: given.attribute("padding_idx", -1) % 2**64,
        scaleGradByFreq=attribute("scale_grad_by_freq", False),
    ),
    "Eye": function_call("aclnnEye", "", n=attribute("num_rows", 0), m=attribute("num_columns", 0)),
    "GroupNormSwish": function_call(
        "aclnnGroupNormSwish",
        "x gamma beta",
        "yOut meanOut rstdOut",
        numGroups=attribute("num_groups", 0),
        dataFormatOptional=attribute("data_format", "NCHW"),
        eps=attribute("eps", 1e-5),
        activateSwish=attribute("activate_swish", True),
        swishScale=attribute("swish_scale", 1.0),
    ),
    "HardSigmoid": function_call("aclnnHardsigmoid"),
    "HardSigmoidGrad": function_call("aclnnHardsigmoidBackward", "gradOutput self"),
    "HardtanhGrad": function_call(
        "aclnnHardtanhBackward", "self gradOutput", min=scalar("min_val", -1.0), max=scalar("max_val", 1.0)
    ),
    "Im2col": function_call(
        "aclnnIm2col",
        self=lambda given: image(given.tensor()),
        kernelSize=_window("ksizes"),
        dilation=attribute("dilations", (1, 1)),
        padding=lambda given: given.attribute("pads", (0, 0, 0, 0))[::2],
        stride=attribute("strides", (1, 1)),
    ),
    "Index": function_call("aclnnIndex", indices=_indices(3)),
    "IndexPutV2": function_call(
        "aclnnIndexPutImpl",
        "",
        "",
        selfRef=_in_place,
        indices=_indices(4),
        values=lambda given: given.tensor(1),
        accumulate=attribute("accumulate", False),
        unsafe=lambda given: False,
    ),
    "InplaceIndexAdd": function_call(
        "aclnnIndexAdd",
        "self index source",
        dim=attribute("axis", 0),
        alpha=on_host(3),
    ),
    "IsClose": function_call(
        "aclnnIsClose",
        "self other",
        rtol=attribute("rtol", 1e-5),
        atol=attribute("atol", 1e-8),
        equal_nan=attribute("equal_nan", False),
    ),
    "KLDiv": _loss("aclnnKlDiv", "self target", **_LOGARITHMS),
    "KlDivLossGrad": _loss("aclnnKlDivBackward", "gradOutput self target", **_LOGARITHMS),
    "L1LossGrad": _loss("aclnnL1LossBackward", "gradOutput self target"),
    "LpLoss": _loss("aclnnL1Loss", "self target"),
    "LpNormReduceV2": operator_call(arrays.LP_NORM_REDUCE, "x", "y", **_NORM),
    "LpNormUpdateV2": operator_call(arrays.LP_NORM_UPDATE, "x", "y", p=_NORM["p"]),
    "MaskedSelect": function_call("aclnnMaskedSelect", "self mask"),
    "MatrixInverse": function_call("aclnnInverse"),
    "MaxPoolGradWithArgmaxV1": operator_call(
        arrays.MAX_POOL_WITH_MASK_GRAD,
        "x grad argmax",
        "",
        x=lambda given: _planes(given.tensor()),
        grad=lambda given: _planes(given.tensor(1)),
        count=lambda given: given.tensor(1).shape[-2:],
        y=lambda given: _planes(given.output()),
        **_MAXIMA,
    ),
    "MaxPoolWithArgmaxV1": operator_call(
        arrays.MAX_POOL_WITH_MASK,
        "",
        "y argmax",
        x=lambda given: _planes(given.tensor()),
        count=lambda given: given.output().shape[-2:],
        y=lambda given: _planes(given.output()),
        **_MAXIMA,
    ),
    "MseLoss": _loss("aclnnMseLoss", "self target"),
    "MseLossGrad": _loss("aclnnMseLossBackward", "self target gradOutput"),
    "NLLLoss": function_call(
        "aclnnNLLLoss",
        "self target weight",
        "out totalWeightOut",
        reduction=choice("reduction", _REDUCTIONS, 1),
        **_IGNORED,
    ),
    "NLLLossGrad": _loss("aclnnNLLLossBackward", "self gradOutput target weight totalWeight", **_IGNORED),
    "NonZero": operator_call(arrays.NON_ZERO, "x", "y", transpose=attribute("transpose", False)),
    "ReduceLogSumExp": function_call(
        "aclnnLogSumExp", dim=lambda given: given.integers(1), keepDim=attribute("keep_dims", False)
    ),
    "ReduceStdV2Update": operator_call(
        arrays.REDUCE_STD_UPDATE, "x mean", "y", **_DEVIATION, if_std=attribute("if_std", False)
    ),
    "ReduceStdWithMean": operator_call(
        arrays.REDUCE_STD_UPDATE, "x mean", "y", **_DEVIATION, if_std=lambda given: True
    ),
    "RmsNorm": function_call("aclnnRmsNorm", "x gamma", "yOut rstdOut", epsilon=attribute("epsilon", 1e-6)),
    "RmsNormGrad": function_call("aclnnRmsNormGrad", "dy x rstd gamma", "dxOut dgammaOut"),
    "Roll": function_call("aclnnRoll", shifts=attribute("shifts", ()), dims=attribute("dims", ())),
    "SiluGrad": function_call("aclnnSiluBackward", "gradOutput self", "gradInput"),
    "SigmoidCrossEntropyWithLogitsGradV2": _loss(
        "aclnnBinaryCrossEntropyWithLogitsBackward", "self target gradOutput weightOptional posWeightOptional"
    ),
    "SigmoidCrossEntropyWithLogitsV2": _loss(
        "aclnnBinaryCrossEntropyWithLogits", "self target weightOptional posWeightOptional"
    ),
    "SmoothL1LossGradV2": _loss("aclnnSmoothL1LossBackward", "self target gradOutput", **_BETA),
    "SmoothL1LossV2": _loss("aclnnSmoothL1Loss", "self target", **_BETA),
    "StatelessRandomNormalV2": _drawn("aclnnInplaceNormal", mean=lambda given: 0.0, std=lambda given: 1.0),
    "StatelessRandomUniformV2": _drawn("aclnnInplaceUniform", low=lambda given: 0.0, high=lambda given: 1.0),
    "TanhGrad": function_call("aclnnTanhBackward", "output gradOutput", "gradInput"),
    "TensorEqual": function_call("aclnnEqual", "self other"),
    "TopKV2": operator_call(
        arrays.TOP_K,
        "x",
        "values indices",
        k=lambda given: given.integers(1)[0],
        dim=attribute("dim", -1),
        largest=attribute("largest", True),
    ),
    "Triu": function_call("aclnnTriu", diagonal=attribute("diagonal", 0)),
    "UniqueWithCountsAndSorting": operator_call(
        arrays.UNIQUE,
        "x",
        "y inverse counts",
        return_inverse=attribute("return_inverse", False),
        return_counts=attribute("return_counts", False),
    ),
    "ViewCopy": copied(lambda given: _strided_view(given, 4), _strided_view),
}
