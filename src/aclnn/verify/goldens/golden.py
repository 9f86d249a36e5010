"""``golden``: the golden values of every output of an operator."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from aclnn.core.operator import ATTRIBUTES, Operator
from aclnn.core.status import AclnnError
from aclnn.execution.arrays import in_callers_words
from aclnn.execution.executor import check_arguments
from aclnn.operators import BY_NAME
from aclnn.verify.cases.arguments import arrays_of, attributes_of, call_of, left_alone, operator_named
from aclnn.verify.goldens import layer_norm as norm
from aclnn.verify.goldens.rows import source_of
from aclnn.verify.goldens.values import BLOCK_ELEMENTS, Golden, LayerNorm, Progress, in_order, joined
from aclnn.verify.number_formats import format_of

Array = np.ndarray[Any, Any]
T = TypeVar("T")


def golden(
    operator: str,
    inputs: Mapping[str, Any],
    dtype: Any = None,
    progress: Progress | None = None,
    **attributes: Any,
) -> dict[str, Golden]:
    """Golden values of every output of an operator.

    Args:
        operator: a name such as silu_backward.
        inputs: NumPy arrays or torch tensors by C or Python name: grad_output, self; for layer_norm_backward grad_out,
            input, mean, rstd and, where there is one, weight.
        dtype: of the outputs; by default what the operator gives for these inputs.
        progress: called with the fraction done.
        attributes: of the operator, by C or Python name (approximate, alpha …), None for the default;
            layer_norm_backward's normalized_shape is by default the last dimension.

    Returns:
        By output: grad_input (hardswish_backward: out), for layer_norm_backward also grad_weight and grad_bias; shaped
        like the outputs.

    Raises:
        ValueError: another operator, an unknown name, a name twice, an input that is not there, or what the operator
            refuses.
        TypeError: outputs of another type than float32, float16 and bfloat16.
    """
    try:
        found = operator_named(operator)
        if found.name not in BY_NAME:
            text = "expected one whose outputs follow from its inputs (aclnn.verify.check judges the others)"
            raise ValueError(f"operator: {text}, got {found.name!r}")
        given = arrays_of(found, inputs)
        attributes = {name: value for name, value in attributes.items() if value is not None}
        if found.name == "layer_norm_backward":
            shape = found.by_name(attributes.items(), ATTRIBUTES).get("normalized_shape")
            return _golden_norm(given, dtype, progress, shape)
        return _golden_of_formula(found, given, dtype, progress, attributes)
    except AclnnError as error:
        raise ValueError(f"golden: {error.message}") from error
    except ValueError as error:
        raise ValueError(f"golden: {error}") from error


def _golden_of_formula(
    operator: Operator,
    inputs: Mapping[str, Array],
    dtype: Any,
    progress: Progress | None,
    attributes: Mapping[str, Any],
) -> dict[str, Golden]:
    _given(operator.name, inputs, *(p.python_name for p in operator.inputs if not p.optional))
    call = call_of(operator, inputs, attributes_of(operator, attributes))
    try:
        check_arguments(call)
    except AclnnError as error:
        raise in_callers_words(error, call, {p.name: p.python_name for p in operator.parameters}) from None
    found = {}
    for parameter in operator.outputs:
        if call[parameter.name] is None or left_alone(call, parameter.name):
            continue
        shape, target = call[parameter.name].shape, np.dtype(dtype or call[parameter.name].dtype.numpy)
        whole = source_of(call, inputs, parameter.name, target)
        blocks = list(_counted(in_order(whole.block, whole.size, whole.step), whole.size, progress))
        found[parameter.python_name] = joined(blocks, shape, target)
    return found


def _given(operator: str, inputs: Mapping[str, Array], *names: str) -> list[Array]:
    missing = [name for name in names if name not in inputs]
    if missing:
        raise ValueError(f"{operator}: expected inputs {', '.join(names)}, got none for {', '.join(missing)}")
    return [inputs[name] for name in names]


def _golden_norm(
    inputs: Mapping[str, Array], dtype: Any, progress: Progress | None, normalized_shape: Sequence[int] | None
) -> dict[str, Golden]:
    dy, x, mean, rstd = _given("layer_norm_backward", inputs, "grad_out", "input", "mean", "rstd")
    weight = inputs.get("weight")
    shape = tuple(x.shape[-1:] if normalized_shape is None else normalized_shape)
    _expect_norm_shapes(inputs, shape)
    whole = LayerNorm(dy, x, mean, rstd, weight, math.prod(shape))
    target = np.dtype(dtype or x.dtype)
    narrow = np.dtype(dtype or (x.dtype if weight is None else weight.dtype))
    step = max(1, BLOCK_ELEMENTS // max(1, whole.columns))

    def block(begin: int, end: int) -> tuple[Golden, Array, Array]:
        return whole.block(begin, end, format_of(target)), *whole.sums(begin, end)

    dw, db = np.zeros((4, whole.columns)), np.zeros((4, whole.columns))
    blocks = []
    for dx, dw_part, db_part in _counted(in_order(block, whole.rows, step), whole.size, progress):
        blocks.append(dx)
        norm.merge_sums(dw, dw_part)
        norm.merge_sums(db, db_part)
    return {
        "grad_input": joined(blocks, x.shape, target),
        "grad_weight": joined([whole.columns_golden(dw, format_of(narrow), False)], shape, narrow),
        "grad_bias": joined([whole.columns_golden(db, format_of(narrow), True)], shape, narrow),
    }


def _expect_norm_shapes(inputs: Mapping[str, Array], shape: tuple[int, ...]) -> None:
    """The compiled sums look at no bounds: what does not fit would be read from foreign memory."""
    whole = inputs["input"].shape
    split = len(whole) - len(shape)
    if not shape or split < 0 or whole[split:] != shape:
        text = f"expected the last dimensions of input's {list(whole)}, got {list(shape)}"
        raise ValueError(f"layer_norm_backward: normalized_shape: {text}")
    rows = math.prod(whole[:split])
    one_each = f"{rows} elements, one for each row"
    weight_fits = "weight" not in inputs or inputs["weight"].size == math.prod(shape)
    for name, fits, expected in (
        ("grad_out", inputs["grad_out"].shape == whole, f"shape {list(whole)}"),
        ("mean", inputs["mean"].size == rows, one_each),
        ("rstd", inputs["rstd"].size == rows, one_each),
        ("weight", weight_fits, f"shape {list(shape)}"),
    ):
        if not fits:
            raise ValueError(f"layer_norm_backward: {name}: expected {expected}, got {list(inputs[name].shape)}")


def _counted(blocks: Iterator[T], size: int, progress: Progress | None) -> Iterator[T]:
    done = 0
    for block in blocks:
        first = block[0] if isinstance(block, tuple) else block
        done += first.value.size if isinstance(first, Golden) else 0
        if progress is not None and size:
            progress(done / size)
        yield block
