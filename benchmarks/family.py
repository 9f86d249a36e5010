"""The section family: every activation, with gradients and gated ones, taken from the operators' declarations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import aclnn
from aclnn import formula as words
from aclnn import operators
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Columns, Elementwise, Kind, Operator, Part, Reduction, Work
from aclnn.core.products import current_product
from aclnn.kernels.trace import trace
from aclnn.verify.cases.arguments import attributes_of, call_of
from aclnn.verify.goldens import values
from aclnn.verify.goldens.rows import source_of
from benchmarks.tensors import torch_of
from tools.works import works_of

Array = np.ndarray[Any, Any]

FURTHER: dict[str, dict[str, Any]] = {"swish": {"beta": 1.702}, "swish_backward": {"beta": 1.702}}
"""Attributes for an additional row of an operator."""
NUMBERS = {"min": -1.0}
"""Attributes without a default in the function or, for a gradient, in its forward function; others are 1."""
THEIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "gelu": ("gelu", {"approximate": "tanh"}),
    "gelu_backward": ("gelu_backward", {"approximate": "tanh"}),
    "gelu_v2 0": ("gelu", {"approximate": "none"}),
    "gelu_v2 1": ("gelu", {"approximate": "tanh"}),
    "gelu_backward_v2 none": ("gelu_backward", {"approximate": "none"}),
    "gelu_backward_v2 tanh": ("gelu_backward", {"approximate": "tanh"}),
    "hardswish_backward_v2": ("hardswish_backward", {}),
    "prelu_backward": ("_prelu_kernel_backward", {}),  # without the sum
}
"""PyTorch's operators with another name or other attributes than in aclnn."""
ROWS = 4096
"""Rows of the inputs of gated activations, whose halves divide each row."""


class Member(NamedTuple):
    """An operator of the family with its attributes."""

    operator: Operator
    attributes: dict[str, Any]
    label: str


def members(dtype: DataType) -> Iterator[Member]:
    """Yield the operators that compute a formula in a data type, without in-place variants of others."""
    for operator in operators.OPERATORS:
        if dtype not in operator.support.get(current_product(), ()):
            continue
        works = list(works_of(operator)) if operator.inputs else []
        if works and all(map(_is_of_elements, works)):
            for given in _settings(operator):
                further = FURTHER.get(operator.name, {})
                told = [
                    str(value)
                    for name, value in given.items()
                    if name == "approximate" or (name, value) in further.items()
                ]
                yield Member(operator, given, " ".join((operator.name, *told)))


def _is_of_elements(work: Work) -> bool:
    """Return true for a formula without operations over rows."""
    if not isinstance(work, Reduction):
        return isinstance(work, Elementwise)
    program = trace(work.formula, len(work.inputs) + len(work.numbers))
    return not any(map(program.takes_rows, range(len(program.results))))


def _settings(operator: Operator) -> Iterator[dict[str, Any]]:
    forward = operators.BY_NAME.get(operator.name.removesuffix("_backward"), operator)
    defaults = {
        name: known.default
        for one in (forward, operator)
        for name, known in operators.signature_of(one).parameters.items()
        if known.default is not known.empty
    }
    given: dict[str, Any] = {}
    for parameter in operator.attributes:
        name = parameter.python_name
        missing = False if parameter.kind is Kind.BOOL else NUMBERS.get(name, 1.0)
        given[name] = defaults.get(name, missing)
    mode = given.get("approximate")
    for choice in (None,) if mode is None else ("none", "tanh") if isinstance(mode, str) else (0, 1):
        yield given if choice is None else given | {"approximate": choice}
    if operator.name in FURTHER:
        yield given | FURTHER[operator.name]


def _shapes(operator: Operator, size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the inputs' shapes by Python name, without absent inputs."""
    work = next(works_of(operator))
    assert isinstance(work, (Elementwise, Reduction))
    named = (operand for operand in work.inputs if not isinstance(operand, float))
    operands = {operand if isinstance(operand, str) else operand.tensor: operand for operand in named}
    gated = any(isinstance(operand, Part | Columns) for operand in operands.values())
    for parameter in operator.inputs:
        operand = operands.get(parameter.name)
        if operand is None and parameter.optional:
            continue
        if parameter.name == "weight":  # one for all channels
            yield parameter.python_name, (1,)
        elif not gated:
            yield parameter.python_name, (size,)
        else:
            halved = isinstance(operand, str) or (
                isinstance(operand, Columns) and operand.begin == 0 == operand.end - 4
            )
            yield parameter.python_name, (ROWS, size // ROWS // 2 if halved else size // ROWS)


def arguments(member: Member, size: int, normal: Callable[[tuple[int, ...]], Array]) -> dict[str, Any]:
    """Return all arguments of the Python function but ``out``, by name, in its order."""
    arrays = {name: normal(shape) for name, shape in _shapes(member.operator, size)}
    given = arrays | member.attributes
    return {name: given.get(name) for name in operators.signature_of(member.operator).parameters if name != "out"}


def call(member: Member, given: dict[str, Any]) -> Call:
    """Return the call with these arguments."""
    arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
    return call_of(member.operator, arrays, attributes_of(member.operator, member.attributes))


def theirs(member: Member, given: dict[str, Any], out: Array) -> tuple[str, Callable[[], Any]]:
    """Return ``torch`` and PyTorch's operator, or ``composed`` and the formula in PyTorch's operators."""
    tensors = {key: torch_of(value) if isinstance(value, np.ndarray) else value for key, value in given.items()}
    name, packet, more = _packet(member)
    if packet is None:
        return "composed", _composed(member, given)
    positional = _positional(tensors)
    overload = packet.default
    if len(member.operator.outputs) == 1:
        for other in ("out", "grad_input"):
            if other in packet.overloads() and not name.endswith("_forward"):
                overload, more = getattr(packet, other), more | {other: torch_of(out)}
    return "torch", lambda: overload(*positional, **more)


def theirs_allocating(member: Member, tensors: dict[str, Any]) -> Callable[[], Any] | None:
    """Return PyTorch's operator, which allocates its results; None if PyTorch has none."""
    _, packet, more = _packet(member)
    return None if packet is None else partial(packet.default, *_positional(tensors), **more)


def _packet(member: Member) -> tuple[str, Any, dict[str, Any]]:
    """Return the name of PyTorch's operator, the operator if there is one, and additional arguments."""
    import torch

    name, more = THEIRS.get(member.label, (member.operator.name, {}))
    return name, getattr(torch.ops.aten, name, None), more


def _positional(tensors: dict[str, Any]) -> list[Any]:
    return [value for key, value in tensors.items() if value is not None and key != "approximate"]


def _composed(member: Member, given: dict[str, Any]) -> Callable[[], Any]:
    """Return the formula with each operation as an operator of PyTorch on whole tensors."""
    import torch

    work = member.operator.work(call(member, given))
    assert isinstance(work, Elementwise)

    def lifted(name: str) -> Callable[..., Any]:
        ours, on_tensors = getattr(words, name), getattr(torch, "abs" if name == "absolute" else name)
        return lambda x: on_tensors(x) if isinstance(x, torch.Tensor) else ours(x)

    def where(condition: Any, chosen: Any, otherwise: Any) -> Any:
        if isinstance(condition, torch.Tensor):
            return torch.where(condition, chosen, otherwise)
        return chosen if condition else otherwise

    names = ("exp", "expm1", "log", "log1p", "tanh", "erf", "erfc", "sqrt", "absolute")
    meanings = {name: lifted(name) for name in names} | {
        "where": where,
        "times": lambda x, y: x * y,
        "log1pexp": torch.nn.functional.softplus,
    }
    function = trace(work.formula, len(work.inputs) + len(work.numbers)).function(meanings)
    arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
    operands = [torch_of(values.operand_of(member.operator, arrays, operand)[1]) for operand in work.inputs]
    return lambda: function(*operands, *work.numbers)


def ours(member: Member, given: dict[str, Any], outs: list[Array]) -> Callable[[], Any]:
    """Return a call of the Python function that writes into arrays."""
    function, target = getattr(aclnn, member.operator.name), outs[0] if len(outs) == 1 else tuple(outs)
    positional = tuple(given.values())
    return lambda: function(*positional, out=target)


def assessed(member: Member, given: dict[str, Any], outs: list[Array]) -> str | None:
    """Describe an error in a sample of the results; None if there is none."""
    described, arrays = call(member, given), {k: v for k, v in given.items() if isinstance(v, np.ndarray)}
    for parameter, out in zip(member.operator.outputs, outs, strict=True):
        golden = source_of(described, arrays, parameter.name, out.dtype)
        pick = np.random.default_rng(2).integers(0, out.size, min(out.size, 1024))
        exact, got = golden.golden(pick), out.reshape(-1)[pick].astype(np.float64)
        allowed = 2.6 if out.dtype == np.float32 else 0.51
        if math.prod(out.shape) == 1:
            allowed = 1.0
        worst = float(np.max(np.abs(got - exact.value) / golden.target.ulp(exact.value)))
        if not worst <= allowed:
            return f"{parameter.python_name}: {worst:.3g} ULP, expected at most {allowed}"
    return None
