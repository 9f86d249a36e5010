"""Plain operators that programs call around activations and norms; NumPy computes them.

They have C functions and no Python functions of arrays: those are NumPy's own.
"""

from __future__ import annotations

from aclnn.core.operator import Operator
from aclnn.operators.library import (
    arithmetic,
    arrangement,
    attention,
    bitwise,
    comparison,
    conversion,
    convolution,
    counting,
    delta_rule,
    distinct,
    drawing,
    extremes,
    foreach,
    grouped,
    indexing,
    inference,
    joining,
    lookup,
    loss,
    matrix,
    optimizer,
    pairs,
    pointwise,
    pooling,
    quantization,
    quantized_norms,
    quantized_products,
    ranges,
    recurrent,
    reduction,
    rotary,
    running,
    selection,
    solving,
    sorting,
    unary,
    upsampling,
    weights,
)

#: Every operator declared in these modules.
LIBRARY_OPERATORS: tuple[Operator, ...] = tuple(
    operator
    for module in (
        arithmetic,
        conversion,
        reduction,
        extremes,
        running,
        unary,
        pairs,
        comparison,
        bitwise,
        selection,
        joining,
        pointwise,
        ranges,
        drawing,
        matrix,
        weights,
        grouped,
        solving,
        loss,
        lookup,
        indexing,
        sorting,
        distinct,
        counting,
        arrangement,
        foreach,
        optimizer,
        convolution,
        pooling,
        upsampling,
        recurrent,
        attention,
        delta_rule,
        inference,
        rotary,
        quantization,
        quantized_products,
        quantized_norms,
    )
    for operator in module.OPERATORS
)
