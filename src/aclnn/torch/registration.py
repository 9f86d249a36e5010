"""torch.ops.aclnn.<operator>: every operator as an ordinary PyTorch operator, registered from its declaration.

One loop over OPERATORS defines each schema, the kernels for CPU and CUDA, the behaviour on fake tensors, and the
``out=`` overload. Import ``aclnn.torch``, which adds gradients, batching and sharding.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from aclnn import operators
from aclnn.core.checks import broadcast_shape
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Kind, Operator, Parameter
from aclnn.core.products import current_product
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID, AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.attributes import attribute
from aclnn.execution.executor import Selector, prepare_layouts, run_checks
from aclnn.kernels import Plan
from aclnn.operators import OPERATORS
from aclnn.support import optional
from aclnn.support.bounded import BoundedCache, as_key

OLDEST_TORCH = (2, 8)

torch: Any = optional.import_or_raise("torch", "torch")
if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST_TORCH:
    raise optional.MissingExtraError(
        f"expected torch {'.'.join(map(str, OLDEST_TORCH))} or newer, got {torch.__version__}: "
        + optional.install_command("torch")
    )

_SCHEMA_TYPES = {
    Kind.INPUT: "Tensor",
    Kind.INT_ARRAY: "SymInt[]",
    Kind.BOOL_ARRAY: "bool[]",
    Kind.STRING: "str",
    Kind.SCALAR: "Scalar",
    Kind.BOOL: "bool",
    Kind.DOUBLE: "float",
    Kind.INT64: "int",
    Kind.INT32: "int",
}

LIBRARY = torch.library.Library("aclnn", "DEF")

_Tensor = torch.Tensor
compute_elementwise_output_strides = torch._prims_common.compute_elementwise_output_strides
forward_ad = torch.autograd.forward_ad
_DTYPES: dict[Any, DataType] = {
    getattr(torch, member.torch_name): member
    for member in DataType
    if member.torch_name is not None and hasattr(torch, member.torch_name)
}
_TORCH_DTYPES = {member: dtype for dtype, member in _DTYPES.items()}


def is_functional(operator: Operator) -> bool:
    """Return True if the operator creates its outputs; one without inputs works in place."""
    return bool(operator.inputs)


def arguments_of(operator: Operator) -> tuple[Parameter, ...]:
    """Return the torch operator's positional arguments in order; the output of an in-place operator precedes them."""
    return tuple(p for p in operator.parameters if p.kind is not Kind.OUTPUT)


def schema(operator: Operator) -> str:
    """Return the operator's schema, such as ``silu_backward(Tensor grad_output, Tensor self) -> Tensor``."""
    if not is_functional(operator):
        return f"{operator.name}({_written_schema(operator)}) -> Tensor(a!)"
    returns = ", ".join(["Tensor"] * len(operator.outputs))
    return f"{operator.name}({_arguments_schema(operator)}) -> {_tuple(returns, operator)}"


def out_schema(operator: Operator) -> str:
    """Return the schema of the ``out`` overload, with one keyword-only tensor per output, which it returns."""
    returns = ", ".join(f"Tensor({letter}!)" for letter in _letters(operator))
    return f"{operator.name}.out({_written_schema(operator)}) -> {_tuple(returns, operator)}"


def into_schema(operator: Operator) -> str:
    """Return the schema of the ``into`` overload, which writes the same tensors and returns nothing."""
    return f"{operator.name}.into({_written_schema(operator)}) -> ()"


def _written_schema(operator: Operator) -> str:
    outputs, given = _outputs_schema(operator), _arguments_schema(operator)
    return f"{given}, *, {outputs}" if is_functional(operator) else ", ".join(filter(None, (outputs, given)))


def _letters(operator: Operator) -> str:
    return "abcdef"[: len(operator.outputs)]


def _updated(operator: Operator) -> list[Parameter]:
    """Return the inputs that the operator also writes."""
    return [p for p in operator.inputs if p.updated]


def _tuple(returns: str, operator: Operator) -> str:
    return returns if len(operator.outputs) == 1 else f"({returns})"


def out_names(operator: Operator) -> list[str]:
    """Return the keywords of the ``out`` overload, one per output."""
    outputs = operator.outputs
    return [p.python_name for p in outputs] if len(outputs) > 1 or not is_functional(operator) else ["out"]


def _outputs_schema(operator: Operator) -> str:
    names = zip(_letters(operator), out_names(operator), strict=True)
    return ", ".join(f"Tensor({letter}!) {name}" for letter, name in names)


def _arguments_schema(operator: Operator) -> str:
    defaults = operators.signature_of(operator).parameters
    written = {p.name: f"Tensor({letter}!)" for letter, p in zip("uvw", _updated(operator), strict=False)}
    return ", ".join(
        _argument_schema(p, defaults[p.python_name].default, written.get(p.name, _SCHEMA_TYPES.get(p.kind, "")))
        for p in arguments_of(operator)
    )


def _argument_schema(parameter: Parameter, default: Any, schema_type: str) -> str:
    text = f"{schema_type}{'?' if parameter.optional else ''} {parameter.python_name}"
    if default is inspect.Parameter.empty:
        return text
    return f"{text}={list(default) if isinstance(default, tuple) else repr(default)}".replace("'", '"')


class _Recipe(NamedTuple):
    """A validated call, for which only memory and addresses have to be determined."""

    plan: Plan | None
    inputs: Selector
    outputs: Selector
    fresh: tuple[Callable[[], Any] | None, ...]
    """Allocators of the results; None for a masked-out result."""
    workspace: Callable[[], Any] | None


Arguments = Sequence[Any]
Outs = Sequence[Any] | None
#: Runs an operator on its arguments; writes the tensors of ``outs``, or new ones if that is None.
Evaluate = Callable[[Arguments, Outs], Sequence[Any]]


def evaluator(operator: Operator, device: str) -> Evaluate:
    """Return a function that runs the operator on tensors of one device type."""
    # Checks and planning take 0.1 to 0.6 ms; equal calls share them.
    recipes: BoundedCache[tuple[Any, ...], _Recipe] = BoundedCache()
    has_scalars = any(p.kind is Kind.SCALAR for p in operator.attributes)

    def evaluate(arguments: Arguments, outs: Outs, devices: Any = None) -> Sequence[Any]:
        """Run the operator; ``devices`` are the tensors' device numbers, if the device type has several devices."""
        if has_scalars:  # compared by their bytes: 0.0 and -0.0 differ, and so do 1 and 1 + 0j
            arguments = _with_scalars(operator, arguments)
        key = [current_product(), devices]
        addresses = [0]
        for argument in arguments if outs is None else (*arguments, *outs):
            if isinstance(argument, _Tensor):
                key += argument.shape, argument.stride(), argument.dtype
                addresses.append(argument.data_ptr())
            else:
                key.append(tuple(argument) if isinstance(argument, list) else as_key(argument))
                addresses.append(0)
        described = tuple(key)
        recipe = recipes.get(described)
        if recipe is None:
            recipe = _prepare(operator, device, arguments, outs)
            recipes[described] = recipe
        plan, inputs, outputs, fresh, workspace = recipe
        if outs is None:
            outs = []
            for make in fresh:
                made = make and make()
                outs.append(made)
                addresses.append(0 if made is None else made.data_ptr())
        if plan is not None:
            scratch = workspace and workspace()
            plan.run(inputs(addresses), outputs(addresses), 0 if scratch is None else scratch.data_ptr())
        return outs

    return evaluate


def _with_scalars(operator: Operator, arguments: Arguments) -> Arguments:
    return [
        attribute(operator, parameter, argument) if parameter.kind is Kind.SCALAR else argument
        for parameter, argument in zip(arguments_of(operator), arguments, strict=True)
    ]


def _cpu(operator: Operator) -> Evaluate:
    """Evaluate on the CPU, where the dispatcher guarantees that all tensors are."""
    return evaluator(operator, "cpu")


def _cuda(operator: Operator) -> Evaluate:
    """Evaluate on the GPU that holds the first GPU tensor."""
    evaluate: Any = evaluator(operator, "cuda")

    def evaluate_cuda(arguments: Arguments, outs: Outs) -> Any:
        devices = tuple([a.get_device() for a in (*arguments, *(outs or ())) if isinstance(a, _Tensor)])
        where = next(device for device in devices if device >= 0)  # -1 is the CPU
        if where == torch.cuda.current_device():
            return evaluate(arguments, outs, devices)
        with torch.cuda.device(where):
            return evaluate(arguments, outs, devices)

    return evaluate_cuda


def _device_of(operator: Operator, arguments: Arguments, outs: Outs) -> Any:
    """Return the device that all tensors are on."""
    parameters = (*arguments_of(operator), *(() if outs is None else operator.outputs))
    given = [
        (parameter, argument)
        for parameter, argument in zip(parameters, (*arguments, *(outs or ())), strict=True)
        if isinstance(argument, torch.Tensor)
    ]
    where = given[0][1].device
    for parameter, tensor in given:
        if tensor.device != where:
            raise AclnnError(
                ACLNN_ERR_PARAM_INVALID,
                f"{operator.function}: {parameter.name}: expected all tensors to be on the same device, {where} "
                f"(that of {given[0][0].name}), got one on {tensor.device}",
            )
    return where


def _prepare(operator: Operator, device: str, arguments: Arguments, outs: Outs) -> _Recipe:
    where = _device_of(operator, arguments, outs)
    call, fresh = _describe_call(operator, arguments, outs)
    prepared = prepare_layouts(operator, call.arguments, call.product, device)
    names = [p.name for p in (*arguments_of(operator), *operator.outputs)]
    size = prepared.workspace_bytes
    return _Recipe(
        prepared.plan,
        *prepared.address_selectors(names),
        tuple(spec and _maker(where, *spec, prepared.leaves) for spec in fresh),
        _maker(where, (size,), (1,), torch.uint8) if size else None,
    )


def _maker(device: Any, shape: Any, strides: Any, dtype: Any, zeros: bool = False) -> Callable[[], Any]:
    """Return an allocator of dense tensors: ``empty_like`` of a model without memory is the fastest way."""
    model = torch.empty_strided(shape, strides, dtype=dtype, device=device)
    model.untyped_storage().resize_(0)
    return partial(torch.zeros_like if zeros else torch.empty_like, model)


def _describe_call(
    operator: Operator, arguments: Arguments, outs: Outs
) -> tuple[Call, tuple[tuple[Any, Any, Any] | None, ...]]:
    """Return the call with arguments by C name, and the outputs to allocate if no ``outs`` are given."""
    given: dict[str, Any] = {
        parameter.name: _view(operator, parameter.name, argument)
        for parameter, argument in zip(arguments_of(operator), arguments, strict=True)
    }
    call = Call(operator, given, current_product())
    if outs is not None:
        views = (_view(operator, p.name, out) for p, out in zip(operator.outputs, outs, strict=True))
        given.update(zip((p.name for p in operator.outputs), views, strict=True))
        return call, ()
    inferred: Mapping[str, tuple[DataType, Any]] = operator.infer(call)
    alike = _elementwise_arguments(operator, arguments)
    fresh = tuple(_fresh(inferred[p.name], alike) if p.name in inferred else None for p in operator.outputs)
    for parameter, spec in zip(operator.outputs, fresh, strict=True):
        given[parameter.name] = None if spec is None else Tensor(_DTYPES[spec[2]], spec[0], spec[1])
    return call, fresh


def _view(operator: Operator, name: str, argument: Any) -> Any:
    if not isinstance(argument, torch.Tensor):
        return tuple(argument) if isinstance(argument, list) else argument
    dtype = _DTYPES.get(argument.dtype)
    if dtype is None or argument.layout is not torch.strided:
        got = f"{str(argument.layout).removeprefix('torch.')} {str(argument.dtype).removeprefix('torch.')}"
        raise AclnnError(
            ACLNN_ERR_PARAM_INVALID,
            f"{operator.function}: {name}: expected a strided float32, float16 or bfloat16 tensor, got {got}",
        )
    return Tensor(dtype, tuple(argument.shape), tuple(argument.stride()))


def _fresh(inferred: tuple[DataType, Any], alike: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Return shape, strides and data type of a result: dense, with dimensions in PyTorch's order for a sum.

    The tensors ``alike`` that broadcast to the result's shape determine the order; without any it is row-major.
    """
    dtype, shape = inferred
    views = [a if a.shape == shape else a.expand(shape) for a in alike if broadcast_shape(a.shape, shape) == shape]
    # The contiguity of a symbolic shape may be unknown, which PyTorch's function supports.
    symbolic = any(isinstance(extent, torch.SymInt) for extent in shape)
    if not views or (not symbolic and all(view.is_contiguous() for view in views)):
        strides = torch.empty(shape, device="meta").stride()
    else:
        strides = compute_elementwise_output_strides(*views)
    return shape, strides, _TORCH_DTYPES[dtype]


def _elementwise_arguments(operator: Operator, arguments: Arguments) -> list[Any]:
    """Return the tensors that determine the results' strides; none for LayerNorm, as in PyTorch."""
    normalises = any(p.name == "normalizedShape" for p in operator.attributes)
    return [] if normalises else [a for a in arguments if isinstance(a, torch.Tensor)]


def _fake(operator: Operator, arguments: Arguments, outs: Outs) -> Sequence[Any]:
    """Check the arguments' descriptions only, and return results without memory."""
    where = _device_of(operator, arguments, outs)
    call, fresh = _describe_call(operator, _with_scalars(operator, arguments), outs)
    run_checks(call)
    if outs is not None:
        return outs
    return [spec and torch.empty_strided(spec[0], spec[1], dtype=spec[2], device=where) for spec in fresh]


def _unwrap(results: Sequence[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


def _functional(evaluate: Evaluate, operator: Operator) -> Callable[..., Any]:
    """Return the functional overload's kernel. The dispatcher omits trailing arguments that equal their defaults."""
    defaults = default_arguments(operator)
    count = len(defaults)

    def kernel(*arguments: Any) -> Any:
        if len(arguments) < count:
            arguments += defaults[len(arguments) :]
        return _unwrap(evaluate(arguments, None))

    return _counted(kernel, operator) if _updated(operator) else kernel


def _counted(kernel: Callable[..., Any], operator: Operator) -> Callable[..., Any]:
    """Tell autograd that a kernel changes some of its arguments."""
    places = [place for place, p in enumerate(arguments_of(operator)) if p.updated]
    increment_version = torch.autograd.graph.increment_version

    def counting(*arguments: Any, **outs: Any) -> Any:
        results = kernel(*arguments, **outs)
        for place in places:
            tensor = arguments[place] if place < len(arguments) else None
            if tensor is not None and not tensor.is_inference():
                increment_version(tensor)
        return results

    return counting


def _into(evaluate: Evaluate, operator: Operator) -> Callable[..., None]:
    """Return the kernel that writes tensors given by keyword, or by position for an in-place operator."""
    defaults, names, functional = default_arguments(operator), out_names(operator), is_functional(operator)
    count = len(names)
    increment_version = torch.autograd.graph.increment_version

    def kernel(*arguments: Any, **outs: Any) -> None:
        if functional:
            written: Sequence[Any] = [outs[name] for name in names]
        else:
            written, arguments = arguments[:count], arguments[count:]
        arguments += defaults[len(arguments) :]
        versioned = [tensor for tensor in written if not tensor.is_inference()]
        if len(versioned) < len(written) and not torch.is_inference_mode_enabled():
            _reject_inference_tensors(operator, written)
        evaluate(arguments, written)
        for tensor in versioned:
            increment_version(tensor)

    return _counted(kernel, operator) if _updated(operator) else kernel


def _reject_inference_tensors(operator: Operator, written: Sequence[Any]) -> None:
    name = next(name for name, tensor in zip(out_names(operator), written, strict=True) if tensor.is_inference())
    raise RuntimeError(
        f"{operator.name}(): {name}: expected inference mode, or a tensor made outside of it, "
        "got an inference tensor outside of inference mode"
    )


def into_by_copying(operator: Operator) -> Callable[..., None]:
    """Return ``_into`` for tensors whose elements differ from their memory (lazy conjugation, say): it uses copies."""
    call = getattr(torch.ops.aclnn, operator.name.removeprefix("inplace_"))

    def evaluate(arguments: Arguments, outs: Outs) -> Sequence[Any]:
        assert outs is not None
        _fake(operator, arguments, outs)
        results = call(*(arguments if is_functional(operator) else (*outs, *arguments)))
        for out, result in zip(outs, results if isinstance(results, tuple) else [results], strict=True):
            if result is not None:
                out.copy_(result)
        return outs

    return _into(evaluate, operator)


def _returning(operator: Operator, into: Callable[..., None]) -> Callable[..., Any]:
    """Return a kernel that calls the overload without results, and returns the written tensors."""
    direct = Direct(f"{operator.name}.into", torch._C._after_autograd_keyset)
    names, functional = out_names(operator), is_functional(operator)

    def composite(keyset: Any, *arguments: Any, **outs: Any) -> Any:
        # Not through the dispatcher again, which would take as long as all the rest of a small call.
        found = direct[keyset.raw_repr()]
        if found is None or (torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments, **outs)):
            found = into
        reject_tangents(operator.name, (*arguments, *outs.values()))
        found(*arguments, **outs)
        return _unwrap([outs[name] for name in names]) if functional else arguments[0]

    return composite


def default_arguments(operator: Operator) -> tuple[Any, ...]:
    """Return the default of every argument, None for those without one."""
    parameters = operators.signature_of(operator).parameters
    values = (parameters[p.python_name].default for p in arguments_of(operator))
    return tuple(None if value is inspect.Parameter.empty else value for value in values)


def reject_tangents(name: str, tensors: Iterable[Any]) -> None:
    """Reject forward-mode differentiation, which would silently drop the tangents."""
    if forward_ad._current_level < 0:
        return
    for tensor in tensors:
        if isinstance(tensor, _Tensor) and forward_ad.unpack_dual(tensor).tangent is not None:
            raise NotImplementedError(f"{name}(): forward-mode differentiation is not supported; reverse mode is")


def no_gradient(operator: Operator, overload: Any) -> Callable[..., Any]:
    """Reject writes into memory through which a gradient would have to flow; else continue below autograd."""

    def kernel(keyset: Any, *arguments: Any, **outs: Any) -> Any:
        reject_tangents(operator.name, (*arguments, *outs.values()))
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments, **outs):
            raise RuntimeError(
                f"{operator.name}(): functions with out=... arguments and in-place ones don't support automatic "
                "differentiation, but one of the arguments requires grad."
            )
        with torch._C._AutoDispatchBelowAutograd():
            return overload.redispatch(keyset & torch._C._after_autograd_keyset, *arguments, **outs)

    return kernel


class Direct(dict[int, Callable[..., Any] | None]):
    """Maps a raw dispatch key set to the kernel that the dispatcher would call for its keys in ``mask``.

    None for a kernel of another library. Going through the dispatcher takes 2 µs.
    """

    def __init__(self, name: str, mask: Any) -> None:
        self._kernels = {key: kernel for (overload, key), kernel in KERNELS.items() if overload == name}
        self._mask = mask

    def __missing__(self, number: int) -> Callable[..., Any] | None:
        keyset = torch._C.DispatchKeySet.from_raw_repr(number) & self._mask
        self[number] = found = self._kernels.get(keyset.highestPriorityTypeId())
        return found


def _define(operator: Operator) -> None:
    # Kernels accept any strides, so Inductor need not copy.
    tags = [torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout]
    LIBRARY.define(schema(operator), tags=tags)
    returning = operator.name
    if is_functional(operator):
        _implement(operator.name, operator, _functional)
        returning = f"{operator.name}.out"
        LIBRARY.define(out_schema(operator), tags=tags)
    # torch.compile functionalises an operator that writes and returns nothing. For one that returns what it writes,
    # Inductor (2.13) treats the result as new memory, and reuses the argument's while the result is in use.
    LIBRARY.define(into_schema(operator), tags=tags)
    _implement(f"{operator.name}.into", operator, _into)
    into = getattr(torch.ops.aclnn, operator.name).into
    LIBRARY.impl(f"{operator.name}.into", no_gradient(operator, into), "Autograd", with_keyset=True)
    LIBRARY.impl(f"{operator.name}.into", into_by_copying(operator), "Negative")
    LIBRARY.impl(returning, _returning(operator, into), "CompositeImplicitAutograd", with_keyset=True)


def _implement(name: str, operator: Operator, wrap: Callable[..., Callable[..., Any]]) -> None:
    for key, evaluate in (("CPU", _cpu(operator)), ("CUDA", _cuda(operator))):
        kernel = wrap(evaluate, operator)
        LIBRARY.impl(name, kernel, key)
        KERNELS[name, getattr(torch._C.DispatchKey, key)] = kernel
    torch.library.register_fake(f"aclnn::{name}", wrap(partial(_fake, operator), operator), lib=LIBRARY)


#: Kernels registered above, by schema name and dispatch key.
KERNELS: dict[tuple[str, Any], Callable[..., Any]] = {}

for _operator in sorted(OPERATORS, key=lambda operator: not operator.inputs):  # in-place operators use the others
    _define(_operator)
