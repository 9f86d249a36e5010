"""How functions are compiled that only kernels call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, overload

from numba import extending
from numba.core import types

from aclnn.kernels.cpu.structs import Pointer

F = TypeVar("F", bound=Callable[..., Any])


@overload
def register_jitable(function: F, /) -> F: ...
@overload
def register_jitable(*, forceinline: bool) -> Callable[[F], F]: ...


def register_jitable(function: Any = None, /, **options: bool) -> Any:
    """Numba's decorator, but without entries for C: making them took a fifth of a kernel's compilation."""
    decorate = extending.register_jitable(no_cfunc_wrapper=True, **options)
    return decorate if function is None else decorate(function)


#: A parameter of an intrinsic: an address, an int64 or a pointer (see ``structs``).
ADDRESS = types.Opaque("address")


def intrinsic(result: Any, *parameters: Any, doc: str | None = None) -> Callable[[Callable[..., Any]], Any]:
    """Make a function for compiled code of one that emits its instructions.

    Decorates ``emit(builder, *values)``, or ``emit(context, builder, *values)``, which returns the result's value, or
    nothing where ``result`` is ``types.void``. Numbers are converted to the parameters' types; vectors must have them.
    The value of an ``ADDRESS`` is an integer or a pointer of LLVM.
    """

    def decorate(emit: Callable[..., Any]) -> Any:
        with_context = "context" in inspect.signature(emit).parameters

        def lower(context: Any, builder: Any, sig: Any, args: tuple[Any, ...]) -> Any:
            value = emit(context, builder, *args) if with_context else emit(builder, *args)
            return context.get_dummy_value() if value is None else value

        def typing(typingctx: Any, *given: Any) -> Any:
            if len(given) != len(parameters) or not all(map(_converts, given, parameters)):
                return None
            return result(*map(_converted, given, parameters)), lower

        names = ["typingctx", *map("value{}".format, range(len(parameters)))]
        positional = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        typing.__name__, typing.__doc__ = emit.__name__, doc or emit.__doc__
        vars(typing)["__signature__"] = inspect.Signature(positional)  # Numba has no intrinsics with *given
        return extending.intrinsic(typing)

    return decorate


def _converted(given: Any, wanted: Any) -> Any:
    if wanted is ADDRESS:
        return given if isinstance(given, Pointer) else types.int64
    return wanted


def _converts(given: Any, wanted: Any) -> bool:
    if wanted is ADDRESS:
        return isinstance(given, (Pointer, types.Integer))
    if isinstance(wanted, types.Integer):
        return isinstance(given, (types.Integer, types.Boolean))
    return given == wanted or (isinstance(wanted, types.Number) and isinstance(given, types.Number))
