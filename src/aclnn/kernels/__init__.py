"""Plans that compute. Kernels know layouts and addresses, but not operators, checks or the runtime.

Planning (phase one) sees layouts only and may be slow. A plan's run (phase two) sees addresses, and may be called
repeatedly and from several threads at once. A device's kernels are imported with its first plan.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

from aclnn.core.dtypes import DataType
from aclnn.core.tensor import ColumnsLayout, Layout
from aclnn.kernels.locks import lock_across_forks

#: Function of elements and numbers made of the functions of ``aclnn.formula``; returns a tuple for several results.
Formula = Callable[..., Any]


class Plan(Protocol):
    """All decisions about a call that do not depend on addresses."""

    workspace_bytes: int

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> Sequence[tuple[int, ...]] | None:
        """Compute the outputs; return their shapes if these depend on data.

        Returns the outputs' shapes if they depend on the inputs' values.
        An output may alias an input (same address and layout); if they overlap otherwise, the result is as if all
        inputs had been read before anything was written. ``workspace`` is 64-byte aligned, or 0 if none is needed.
        """


class Nothing:
    """Plan of a call with empty results."""

    workspace_bytes = 0

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``Plan``: do nothing."""


def identity(x: Any) -> Any:
    """Formula of copies and conversions."""
    return x


class Operand(NamedTuple):
    """A tensor, reshaped."""

    layout: Layout
    shape: tuple[int, ...]
    summed: bool = False
    """True for an output that receives results summed over the dimensions in which its extent is 1."""


class Headers(Protocol):
    """Recorded headers of NumPy arrays: type, data type, shape, strides, writeability."""

    def match(self, arrays: tuple[Any, ...]) -> tuple[int, ...]:
        """Return 0, each array's address (0 for None) and 1 if all headers match the recorded ones; else only zeros."""


_importing = lock_across_forks()

#: Called after the first kernel has been compiled or loaded, when LLVM has registered all of its destructors.
when_compiler_is_up: list[Callable[[], object]] = []


def _module(device: str, name: str) -> Any:
    # One import at a time: Numba's modules have circular imports, and a thread that enters such a circle at another
    # point gets a partially initialized module.
    with _importing:
        return import_module(f"aclnn.kernels.{device}.{name}")


def _planner(device: str, name: str, module: str) -> Callable[..., Plan]:
    """Return the planning function: from a module for the CPU, by name for GPUs."""
    found = getattr(_module("cuda", "plans"), name) if device == "cuda" else _module(device, module).plan
    return cast(Callable[..., Plan], found)


def compile_no_more() -> None:
    """Wait for running compilations and make later ones raise an error: the process is ending, and LLVM with it.

    Kernels that were compiled or loaded before keep working.
    """
    with _importing:
        jit = sys.modules.get("aclnn.kernels.cpu.jit")
    if jit is not None:
        jit.stop()


def bind(
    plan: Plan, inputs: Sequence[int], outputs: Sequence[int], workspace: int
) -> Callable[[], Sequence[tuple[int, ...]] | None]:
    """Return a function that runs a plan at these addresses any number of times, while the memory exists."""
    bound: Callable[[Sequence[int], Sequence[int]], Callable[[], Any]] | None = getattr(plan, "bind", None)
    return partial(plan.run, inputs, outputs, workspace) if bound is None else bound(inputs, outputs)


def headers(arrays: tuple[Any, ...]) -> Headers:
    """Record the current headers of these NumPy arrays; None stands for an absent one."""
    return cast(Headers, _module("cpu", "array_headers").Headers(arrays))


def elementwise(
    formula: Formula,
    inputs: tuple[Layout, ...],
    outputs: tuple[Layout, ...],
    numbers: tuple[float, ...] = (),
    device: str = "cpu",
) -> Plan:
    """Plan ``outputs = formula(*inputs, *numbers)``.

    All layouts have the same shape (zero strides express broadcasting); data types are any mix of float32, float16,
    bfloat16 and, on the CPU, float64. Results are computed in float64 and rounded once, unless the formula (or the
    derivative of a ``Gradient``, or a factor of a product) has a fitted version, which computes in float32.
    """
    return _planner(device, "elementwise", "elementwise.plans")(formula, inputs, outputs, numbers)


def reduction(
    formula: Formula,
    inputs: Sequence[Operand | float],
    outputs: Sequence[Operand | None],
    dims: tuple[int, ...],
    numbers: tuple[float, ...] = (),
) -> Plan:
    """Plan ``outputs = formula(*inputs, *numbers)`` over rows, whose elements extend along ``dims``.

    Args:
        formula: function of ``aclnn.formula``, including its row functions; computed in float64 and rounded once.
        inputs: tensors whose shapes broadcast to a common one, of any real data types; numbers become constants.
        outputs: one per result, of extent 1 along ``dims`` if the result is one per row; None if unwanted.
        dims: dimensions of the common shape along which a row's elements lie.
        numbers: the formula's last arguments.

    The plan's ``run`` takes addresses of tensors only.
    """
    return _planner("cpu", "reduction", "reductions.plans")(formula, inputs, outputs, dims, numbers)


def library(
    function: Callable[..., Any],
    inputs: Sequence[Layout | DataType | Any],
    outputs: Sequence[Layout],
    dtype: DataType | None = None,
    sized_by_result: bool = False,
    fills: bool = False,
) -> Plan:
    """Plan ``outputs = function(*inputs)``, computed by NumPy.

    Args:
        function: takes arrays, with 16-bit floating types as float32; returns an array, or a tuple of one per output.
        inputs: layouts of tensors; data types of scalars, whose bytes the plan takes as integers in place of addresses;
            constant numbers.
        outputs: layouts; results are converted to their data types and broadcast to their shapes.
        dtype: data type to which inputs and results are converted; None converts nothing.
        sized_by_result: True if each output takes its result's shape, stored in the leading elements of its memory.
        fills: True if the function accepts ``out``, an array for its only result, as ufuncs do.
    """
    plan = import_module("aclnn.kernels.numpy_plans").LibraryPlan
    return cast(Plan, plan(function, inputs, outputs, dtype, sized_by_result, fills))


def converting(plan: Plan, inputs: Sequence[Layout], dtypes: Sequence[DataType]) -> Plan:
    """Plan the conversion of inputs to these data types, for a plan made for contiguous inputs of them."""
    return cast(Plan, import_module("aclnn.kernels.numpy_plans").ConvertingPlan(plan, inputs, dtypes))


def matrices(
    make: Callable[[Any, Any], Plan],
    inputs: Sequence[ColumnsLayout],
    outputs: Sequence[ColumnsLayout],
    groups: Layout | None = None,
    clears: bool = False,
) -> Plan:
    """Plan for columns of matrices that all have the same number of rows.

    Args:
        make: makes a plan for layouts of inputs and outputs.
        inputs: columns; tensors that are not matrices in memory are copied.
        outputs: likewise.
        groups: group sizes, the plan's last input: only as many leading rows as their sum says are computed.
        clears: True if the remaining rows are set to zero; by default they keep their contents.
    """
    return cast(Plan, import_module("aclnn.kernels.layouts").Matrices(make, inputs, outputs, groups, clears))


def layer_norm(
    inputs: tuple[Layout | None, ...],
    outputs: tuple[Layout | None, ...],
    normalized_dims: int,
    eps: float,
    centred: bool = True,
) -> Plan:
    """Plan LayerNorm over M rows of N columns, or RMSNorm, on a GPU; the CPU computes them by formulas.

    Args:
        inputs: x (M, N), weight (N) or None for ones, bias (N) or None for zeros.
        outputs: out (M, N), mean (M), rstd (M), the last two None if unwanted. An output with more elements is filled
            partially.
        normalized_dims: how many trailing dimensions of x make up the N columns.
        eps: added to the variance of each row.
        centred: False for RMSNorm, which subtracts no mean (nor writes one) and adds no bias.

    Strides, data types and shapes are as free as in ``layer_norm_backward``. With N = 0 mean is 0 and rstd NaN.
    """
    return _planner("cuda", "layer_norm", "")(inputs, outputs, normalized_dims, eps, centred)


def layer_norm_backward(
    inputs: tuple[Layout | None, ...],
    outputs: tuple[Layout | None, ...],
    normalized_dims: int,
    device: str = "cpu",
    centred: bool = True,
) -> Plan:
    """Plan the gradients of LayerNorm over M rows of N columns, or those of RMSNorm.

    Args:
        inputs: dy (M, N), x (M, N), mean (M), rstd (M), weight (N) or None for ones.
        outputs: dx (M, N), dw (N), db (N), each None if unwanted.
        normalized_dims: number of trailing dimensions of x that make up the N columns.
        device: device whose kernels to use.
        centred: False for RMSNorm, which has no mean, and no Σ g in dx.

    Every tensor has its own strides and any of the three data types; tensors given as (M) or (N) may have any shape
    with that many elements.
    """
    return _planner(device, "layer_norm_backward", "norm.backward")(inputs, outputs, normalized_dims, centred)
