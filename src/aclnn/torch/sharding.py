"""DTensor rules: placements with which each operator runs on tensors that are distributed over processes.

Elementwise operators accept any sharding that all arguments share; gated ones and softmax any that leaves their
dimension whole. LayerNorm and RMSNorm accept any sharding of the rows, which the results share; the gradients of weight
and bias are partial sums. Other norms need whole tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from aclnn.core.checks import broadcast_shape
from aclnn.core.operator import Operator
from aclnn.operators import OPERATORS
from aclnn.torch.registration import LIBRARY, arguments_of, into_by_copying, is_functional, torch

# A rule: placements of the outputs and of the arguments; None for non-tensors and absent tensors.
Rule = tuple[list[Any], list[Any]]


def _elementwise(*arguments: Any) -> list[Rule]:
    from torch.distributed.tensor import Replicate, Shard

    shape = broadcast_shape(*(a.shape for a in arguments if _is_tensor(a))) or ()  # no sharding without a common shape

    def placement(argument: Any, dim: int) -> Any:
        if not _is_tensor(argument):
            return None
        own = dim - (len(shape) - len(argument.shape))
        return Shard(own) if own >= 0 and argument.shape[own] == shape[dim] else Replicate()

    whole: list[Rule] = [([Replicate()], [Replicate() if _is_tensor(a) else None for a in arguments])]
    return whole + [([Shard(dim)], [placement(a, dim) for a in arguments]) for dim in range(len(shape))]


def _along(*arguments: Any, outputs: int = 1) -> list[Rule]:
    """Return rules of operators along the dimension in the first attribute, which is not sharded."""
    from torch.distributed.tensor import Replicate, Shard

    tensors = [argument for argument in arguments if _is_tensor(argument)]
    dim = -1 if len(tensors) == len(arguments) else arguments[len(tensors)]
    rank = len(tensors[-1].shape)
    placements = [Replicate(), *(Shard(other) for other in range(rank) if other not in (dim, dim + rank))]
    return [([p] * outputs, [p if _is_tensor(argument) else None for argument in arguments]) for p in placements]


def _whole(*arguments: Any) -> list[Rule]:
    """Return rules of operators that need whole tensors, for instance to know a row's number."""
    from torch.distributed.tensor import Replicate

    return [([Replicate()], [Replicate() if _is_tensor(argument) else None for argument in arguments])]


def _prelu(*arguments: Any) -> list[Rule]:
    """Return rules for x and w, or dy, x and w: the weights' dimension is whole, their gradients are partial sums."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    *operands, x, _ = arguments
    rules: list[Rule] = [([Replicate()] * (1 + len(operands)), [Replicate()] * len(arguments))]
    for dim in range(len(x.shape)):
        if dim != 1:
            owns = [dim - (len(x.shape) - len(a.shape)) for a in operands]
            placed = [
                Shard(own) if own >= 0 and a.shape[own] == x.shape[dim] else Replicate()
                for a, own in zip(operands, owns, strict=True)
            ]
            rules.append(([Shard(dim), *[Partial()] * len(operands)], [*placed, Shard(dim), Replicate()]))
    return rules


def _layer_norm(x: Any, shape: Sequence[int], weight: Any = None, bias: Any = None, *rest: Any) -> list[Rule]:
    from torch.distributed.tensor import Replicate, Shard

    rules = []
    for rows in [Replicate(), *map(Shard, range(len(x.shape) - len(shape)))]:
        parameters = [None if parameter is None else Replicate() for parameter in (weight, bias)]
        rules.append(([rows] * 3, [rows, None, *parameters, *[None] * len(rest)]))
    return rules


def _layer_norm_backward(
    dy: Any,
    x: Any,
    shape: Sequence[int],
    mean: Any,
    rstd: Any,
    weight: Any = None,
    bias: Any = None,
    mask: Sequence[bool] = (True, True, True),
) -> list[Rule]:
    from torch.distributed.tensor import Partial, Replicate, Shard

    leading = tuple(x.shape[: len(x.shape) - len(shape)])
    # mean may have any shape with one element per row; it is sharded if its shape begins with the rows' dimensions.
    dims = range(len(leading)) if tuple(mean.shape[: len(leading)]) == leading else range(0)
    rules = []
    for rows in [Replicate(), *map(Shard, dims)]:
        sums = Replicate() if isinstance(rows, Replicate) else Partial()
        outputs = [placement if wanted else None for placement, wanted in zip((rows, sums, sums), mask, strict=True)]
        parameters = [None if parameter is None else Replicate() for parameter in (weight, bias)]
        rules.append((outputs, [rows, rows, None, rows, rows, *parameters, None]))
    return rules


def _rms_norm(x: Any, gamma: Any, *rest: Any) -> list[Rule]:
    from torch.distributed.tensor import Replicate, Shard

    rows = [Replicate(), *map(Shard, range(len(x.shape) - len(gamma.shape)))]
    return [([place] * 2, [place, Replicate(), *[None] * len(rest)]) for place in rows]


def _rms_norm_grad(dy: Any, x: Any, rstd: Any, gamma: Any) -> list[Rule]:
    from torch.distributed.tensor import Partial, Replicate, Shard

    # rstd's shape begins with the rows' dimensions, but may omit the last ones.
    dims = range(min(len(x.shape) - len(gamma.shape), len(rstd.shape)))
    whole: list[Rule] = [([Replicate()] * 2, [Replicate()] * 4)]
    return whole + [([rows, Partial()], [rows, rows, rows, Replicate()]) for rows in map(Shard, dims)]


def _norm(operator: Operator, *arguments: Any) -> list[Rule]:
    """Return the rule of the other norms: every process has all tensors whole."""
    from torch.distributed.tensor import Replicate

    given = dict(zip((p.name for p in arguments_of(operator)), arguments, strict=False))
    mask = given.get("outputMask", (True,) * len(operator.outputs))
    outputs = [Replicate() if wanted else None for wanted in mask]
    return [(outputs, [Replicate() if _is_tensor(argument) else None for argument in arguments])]


def _is_tensor(argument: Any) -> bool:
    return hasattr(argument, "shape")


_RULES: dict[str, Callable[..., list[Rule]]] = {
    "layer_norm": _layer_norm,
    "layer_norm_with_impl_mode": _layer_norm,
    "fast_layer_norm": _layer_norm,
    "layer_norm_backward": _layer_norm_backward,
    **dict.fromkeys(("swi_glu", "swi_glu_grad", "glu", "glu_backward"), _along),
    **dict.fromkeys(("ge_glu_backward", "ge_glu_v3_backward"), _along),
    **dict.fromkeys(("ge_glu", "ge_glu_v3"), partial(_along, outputs=2)),
    **dict.fromkeys(("softmax", "softmax_backward", "log_softmax", "log_softmax_backward"), _along),
    **dict.fromkeys(("clipped_swiglu", "clipped_swiglu_grad"), _whole),
    "prelu": _prelu,
    "prelu_backward": _prelu,
    "rms_norm": _rms_norm,
    "rms_norm_grad": _rms_norm_grad,
}


def _register(operator: Operator) -> None:
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
    from torch.distributed.tensor.experimental import register_sharding

    overload = getattr(torch.ops.aclnn, operator.name).default
    default = partial(_norm, operator) if "norm" in operator.name else _elementwise
    register_sharding(overload)(_RULES.get(operator.name, default))
    # DTensor caches rules by the arguments' sharding; the attributes (normalized_shape, output_mask) matter, too.
    first = next((place for place, p in enumerate(arguments_of(operator)) if not p.is_tensor), None)
    if first is not None:
        propagator = DTensor._op_dispatcher.sharding_propagator
        propagator.op_to_schema_info[overload] = RuntimeSchemaInfo(first, needs_pytree=True)


def _register_into(operator: Operator) -> None:
    """Register the writing overload: outputs keep their placements, and results are copied into them."""
    from torch.distributed.tensor import DTensor

    into = into_by_copying(operator)

    def rule(mode: Any, overload: Any, types: Any, arguments: Any = (), outs: Any = None) -> None:
        into(*arguments, **(outs or {}))

    torch.library.register_torch_dispatch(f"aclnn::{operator.name}.into", DTensor, rule, lib=LIBRARY)


if torch.distributed.is_available():
    for _operator in OPERATORS:
        if is_functional(_operator):
            _register(_operator)
        _register_into(_operator)
