"""Plans that compute. Kernels know layouts and addresses; never operators, rules or the runtime.

Planning (phase one) sees layouts only and may be slow; a plan's run (phase two) sees addresses, may be called from
several threads at once, and repeatedly. A device's kernels are imported when the first plan asks for them.
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

#: A function of elements and numbers in the words of ``aclnn.formula``; a tuple for several results.
Formula = Callable[..., Any]


class Plan(Protocol):
    """Everything decided about one call but the addresses."""

    workspace_bytes: int

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> Sequence[tuple[int, ...]] | None:
        """Compute. Addresses are those of each view's first element, 0 for an absent tensor.

        Returns the outputs' shapes where they depend on data.

        An output may be an input (same address and layout); where they overlap otherwise the result is as if every
        input had been read before anything was written. ``workspace`` is 64-byte aligned, or 0 when none is needed.
        """


class Nothing:
    """The plan of empty results."""

    workspace_bytes = 0

    def run(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int) -> None:
        """See ``Plan``: there is nothing to do."""


def identity(x: Any) -> Any:
    """The formula of copies and conversions."""
    return x


class Operand(NamedTuple):
    """A tensor, in a shape of as many elements."""

    layout: Layout
    shape: tuple[int, ...]
    summed: bool = False
    """True for an output whose elements are sums of results over the dimensions in which the shape has extent 1."""


class Headers(Protocol):
    """The headers of NumPy arrays: type, data type, shape, strides, writeable or not."""

    def match(self, arrays: tuple[Any, ...]) -> tuple[int, ...]:
        """0, the address of each array (0 for None) and 1, if all say the same; only zeros if not."""


_importing = lock_across_forks()

#: Called when the process has compiled or loaded its first kernel: LLVM has registered all of its destructors then.
when_compiler_is_up: list[Callable[[], object]] = []


def _module(device: str, name: str) -> Any:
    # One import at a time: Numba's modules import one another in circles, and of two threads that enter such a circle
    # at different ends one gets a module that is half made.
    with _importing:
        return import_module(f"aclnn.kernels.{device}.{name}")


def _planner(device: str, name: str, module: str) -> Callable[..., Plan]:
    """Return the function that plans: of a module for the CPU, of this name for GPUs."""
    found = getattr(_module("cuda", "plans"), name) if device == "cuda" else _module(device, module).plan
    return cast(Callable[..., Plan], found)


def compile_no_more() -> None:
    """For the end of the process, which ends LLVM: wait for what is being compiled; from now on that raises.

    Kernels that were compiled or loaded before go on to run.
    """
    with _importing:
        jit = sys.modules.get("aclnn.kernels.cpu.jit")
    if jit is not None:
        jit.stop()


def bind(
    plan: Plan, inputs: Sequence[int], outputs: Sequence[int], workspace: int
) -> Callable[[], Sequence[tuple[int, ...]] | None]:
    """Return a function that runs a plan at these addresses, any number of times while their memory lives."""
    bound: Callable[[Sequence[int], Sequence[int]], Callable[[], Any]] | None = getattr(plan, "bind", None)
    return partial(plan.run, inputs, outputs, workspace) if bound is None else bound(inputs, outputs)


def headers(arrays: tuple[Any, ...]) -> Headers:
    """Return the headers that these NumPy arrays have now; None stands for an absent one."""
    return cast(Headers, _module("cpu", "array_headers").Headers(arrays))


def elementwise(
    formula: Formula,
    inputs: tuple[Layout, ...],
    outputs: tuple[Layout, ...],
    numbers: tuple[float, ...] = (),
    device: str = "cpu",
) -> Plan:
    """Plan ``outputs = formula(*inputs, *numbers)``.

    All layouts have the same shape (broadcasting is expressed by zero strides); data types are any mix of float32,
    float16, bfloat16 and, on the CPU, float64. A result is computed in float64 and rounded once, where the formula (or
    the derivative of a ``Gradient``, or a factor of a product) has no fitted version that computes in float32.
    """
    return _planner(device, "elementwise", "elementwise.plans")(formula, inputs, outputs, numbers)


def reduction(
    formula: Formula,
    inputs: Sequence[Operand | float],
    outputs: Sequence[Operand | None],
    dims: tuple[int, ...],
    numbers: tuple[float, ...] = (),
) -> Plan:
    """Plan ``outputs = formula(*inputs, *numbers)`` over rows, whose elements lie along ``dims``.

    Args:
        formula: in the words of ``aclnn.formula``, those of rows included; computed in float64, rounded once.
        inputs: of shapes that broadcast to a common one, of any real data types; numbers become constants.
        outputs: for each result; of extent 1 along ``dims`` where it is the row's, None where it is not wanted.
        dims: of the common shape.
        numbers: the formula's last arguments.

    The plan's ``run`` takes the addresses of the tensors only.
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
        function: takes arrays of float32 for 16-bit floating types; returns an array, or a tuple of one per output.
        inputs: layouts; data types of numbers, whose bytes the plan takes, as integers, where it takes addresses of
            tensors; numbers that stay what they are.
        outputs: to whose data types the results are converted, and to whose shapes they are broadcast.
        dtype: to which inputs are converted before and results after the computation; None keeps what they have.
        sized_by_result: each output takes the leading elements of its memory, and the shape of its result.
        fills: the function takes ``out``, an array for its only result, as ufuncs do.
    """
    plan = import_module("aclnn.kernels.numpy_plans").LibraryPlan
    return cast(Plan, plan(function, inputs, outputs, dtype, sized_by_result, fills))


def converting(plan: Plan, inputs: Sequence[Layout], dtypes: Sequence[DataType]) -> Plan:
    """Plan to convert each input to a data type, for a plan that was made for contiguous inputs of these."""
    return cast(Plan, import_module("aclnn.kernels.numpy_plans").ConvertingPlan(plan, inputs, dtypes))


def matrices(
    make: Callable[[Any, Any], Plan],
    inputs: Sequence[ColumnsLayout],
    outputs: Sequence[ColumnsLayout],
    groups: Layout | None = None,
    clears: bool = False,
) -> Plan:
    """Plan for columns of matrices, all with the same number of rows.

    Args:
        make: a plan for layouts of inputs and of outputs.
        inputs: of tensors that are no matrix in memory contiguous copies are taken.
        outputs: likewise.
        groups: integers, the plan's last input: only as many of the first rows as they add up to are computed.
        clears: the other rows become zeros; else they are left as they are.
    """
    return cast(Plan, import_module("aclnn.kernels.layouts").Matrices(make, inputs, outputs, groups, clears))


def layer_norm(
    inputs: tuple[Layout | None, ...],
    outputs: tuple[Layout | None, ...],
    normalized_dims: int,
    eps: float,
    centred: bool = True,
) -> Plan:
    """Plan LayerNorm over M rows of N columns, or RMSNorm, for a GPU: the CPU computes them by their formulas.

    Args:
        inputs: x (M, N), weight (N) or None for ones, bias (N) or None for zeros.
        outputs: out (M, N), mean (M), rstd (M), the last two None when they are not wanted. Of one with more elements
            the first are written.
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
        outputs: dx (M, N), dw (N), db (N), each None when it is not wanted.
        normalized_dims: how many trailing dimensions of x make up the N columns.
        device: whose kernels to use.
        centred: False for RMSNorm, which has no mean, and no Σ g in dx.

    Every tensor may have its own strides and its own of the three data types; those given as (M) or (N) may have any
    shape with that many elements.
    """
    return _planner(device, "layer_norm_backward", "norm.backward")(inputs, outputs, normalized_dims, centred)
