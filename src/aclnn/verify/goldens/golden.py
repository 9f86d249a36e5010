"""``golden``: golden values of every output of an operator."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from aclnn.core.operator import ATTRIBUTES, Call, Operator
from aclnn.core.status import AclnnError
from aclnn.execution.error_messages import reworded_for_caller
from aclnn.execution.executor import check_arguments
from aclnn.operators import BY_NAME
from aclnn.typing import Array
from aclnn.verify.cases.arguments import arrays_of, attributes_of, call_of, left_alone, named_inputs, operator_named
from aclnn.verify.goldens import layer_norm as norm
from aclnn.verify.goldens.rows import source_of
from aclnn.verify.goldens.values import BLOCK_ELEMENTS, Golden, LayerNorm, Progress, joined, map_blocks
from aclnn.verify.number_formats import format_of

T = TypeVar("T")

_NORM = "layer_norm_backward"


def golden(
    operator: str, inputs: Mapping[str, Any], dtype: Any = None, progress: Progress | None = None, **attributes: Any
) -> dict[str, Golden]:
    """Return the golden values of every output of an operator.

    Args:
        operator: a name such as silu_backward.
        inputs: NumPy arrays or torch tensors by C or Python name: grad_output, self; for layer_norm_backward grad_out,
            input, mean, rstd and, if present, weight.
        dtype: data type of the outputs; by default the one that the operator infers.
        progress: called with the fraction done.
        attributes: the operator's attributes, by C or Python name (approximate, alpha …), None for the default;
            layer_norm_backward's normalized_shape defaults to the last dimension.

    Returns:
        A dict by output: grad_input (hardswish_backward: out), for layer_norm_backward also grad_weight and grad_bias,
        shaped like the outputs.

    Raises:
        ValueError: an operator without golden values, an unknown name, a name given twice, a missing input, or an error
            of the operator's checks.
        TypeError: an output type other than float32, float16 and bfloat16.
    """
    try:
        found = operator_named(operator)
        if found.name not in BY_NAME:
            text = "expected one whose outputs follow from its inputs (aclnn.verify.check verifies the others)"
            raise ValueError(f"operator: {text}, got {found.name!r}")
        given = arrays_of(named_inputs(found, inputs))
        attributes = {name: value for name, value in attributes.items() if value is not None}
        _expect_given(found, given)
        named = found.by_name(attributes.items(), ATTRIBUTES)
        if any(parameter.python_name == "output_mask" for parameter in found.attributes):
            named.setdefault("output_mask", (True,) * len(found.outputs))
        if found.name == _NORM:
            named.setdefault("normalized_shape", given["input"].shape[-1:])
        call = _checked(found, given, named)
        whole = _golden_norm if found.name == _NORM else _golden_of_formula
        return whole(call, given, dtype, progress)
    except AclnnError as error:
        raise ValueError(f"golden: {error.message}") from error
    except ValueError as error:
        raise ValueError(f"golden: {error}") from error


def _expect_given(operator: Operator, inputs: Mapping[str, Array]) -> None:
    names = [parameter.python_name for parameter in operator.inputs if not parameter.optional]
    missing = [name for name in names if name not in inputs]
    if missing:
        text = f"expected inputs {', '.join(names)}, got none for {', '.join(missing)}"
        raise ValueError(f"{operator.name}: {text}")


def _checked(operator: Operator, inputs: Mapping[str, Array], attributes: Mapping[str, Any]) -> Call:
    """Return the call after the operator's checks."""
    call = call_of(operator, inputs, attributes_of(operator, attributes))
    try:
        check_arguments(call)
    except AclnnError as error:
        raise reworded_for_caller(error, call, {p.name: p.python_name for p in operator.parameters}) from None
    return call


def _golden_of_formula(
    call: Call, inputs: Mapping[str, Array], dtype: Any, progress: Progress | None
) -> dict[str, Golden]:
    found = {}
    for parameter in call.operator.outputs:
        if call[parameter.name] is None or left_alone(call, parameter.name):
            continue
        shape, target = call[parameter.name].shape, np.dtype(dtype or call[parameter.name].dtype.numpy)
        whole = source_of(call, inputs, parameter.name, target)
        blocks = list(_counted(map_blocks(whole.block, whole.size, whole.step), whole.size, progress))
        found[parameter.python_name] = joined(blocks, shape, target)
    return found


def _golden_norm(call: Call, inputs: Mapping[str, Array], dtype: Any, progress: Progress | None) -> dict[str, Golden]:
    dy, x, mean, rstd = (inputs[name] for name in ("grad_out", "input", "mean", "rstd"))
    weight = inputs.get("weight")
    shape = call["normalizedShape"]
    whole = LayerNorm(dy, x, mean, rstd, weight, math.prod(shape))
    target = np.dtype(dtype or x.dtype)
    narrow = np.dtype(dtype or (x.dtype if weight is None else weight.dtype))
    step = max(1, BLOCK_ELEMENTS // max(1, whole.columns))

    def block(begin: int, end: int) -> tuple[Golden, Array, Array]:
        return whole.block(begin, end, format_of(target)), *whole.sums(begin, end)

    dw, db = np.zeros((4, whole.columns)), np.zeros((4, whole.columns))
    blocks = []
    for dx, dw_part, db_part in _counted(map_blocks(block, whole.rows, step), whole.size, progress):
        blocks.append(dx)
        norm.merge_sums(dw, dw_part)
        norm.merge_sums(db, db_part)
    return {
        "grad_input": joined(blocks, x.shape, target),
        "grad_weight": joined([whole.columns_golden(dw, format_of(narrow), False)], shape, narrow),
        "grad_bias": joined([whole.columns_golden(db, format_of(narrow), True)], shape, narrow),
    }


def _counted(blocks: Iterator[T], size: int, progress: Progress | None) -> Iterator[T]:
    done = 0
    for block in blocks:
        first = block[0] if isinstance(block, tuple) else block
        done += first.value.size if isinstance(first, Golden) else 0
        if progress is not None and size:
            progress(done / size)
        yield block
