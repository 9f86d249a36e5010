"""Compile a kernel once per machine: for int64 arguments, usually without the GIL, cached on disk between processes.

Numba's own cache keeps one index file for all variants of a function, which concurrent processes that compile different
variants corrupt, and it identifies closures by the module's file and line only. Here each kernel is a file named after
everything that it depends on (see ``cache``).
"""

from __future__ import annotations

import gc
import hashlib
import inspect
import itertools
import mmap
import pickle
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from types import SimpleNamespace
from typing import Any, TypeVar, cast, overload

import llvmlite
import numba
from numba import extending
from numba.core import config, typed_passes, types, untyped_passes
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import _Cache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from aclnn import kernels
from aclnn.kernels.cpu import cache, target
from aclnn.kernels.locks import lock_across_forks

#: A compiled kernel: takes integers and usually returns nothing.
Kernel = Callable[..., Any]

_compiled: dict[tuple[str, tuple[object, ...]], Kernel] = {}
_addresses: dict[Kernel, int] = {}
_lock = lock_across_forks()
_stopped = False
# Memory taken by the first kernel with the required parts of Numba (160 MiB), and by any later one (up to 35 MiB).
_FIRST_BYTES, _NEXT_BYTES = 192 << 20, 64 << 20
#: Twice the recursion depth that Numba has needed; some callers leave too little of Python's limit of 1,000.
_FRAMES = 2000
_IDLE = (
    typed_passes.DumpParforDiagnostics,
    typed_passes.InlineOverloads,
    typed_passes.NopythonRewrites,
    untyped_passes.FindLiterallyCalls,
    untyped_passes.InlineClosureLikes,
    untyped_passes.InlineInlinables,
    untyped_passes.LiteralPropagationSubPipelinePass,
    untyped_passes.LiteralUnroll,
    untyped_passes.MakeFunctionToJitFunction,
    untyped_passes.RewriteDynamicRaises,
    untyped_passes.WithLifting,
)
"""Numba passes for constructs that kernels do not use: closures, arrays, ``with`` and ``raise``."""


class _Part(JITCodeLibrary):
    """Code of a function that kernels call: linked into the kernel's module, which is optimized and emitted once."""

    codegen = SimpleNamespace(set_env=lambda name, environment: None)

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


class _Compiler(Compiler):
    """Numba's compiler without passes that have no effect on kernels."""

    def define_pipelines(self) -> list[PassManager]:
        """Omit the passes without effect, which take a tenth of the time."""
        (pipeline,) = super().define_pipelines()
        kept = PassManager(pipeline.pipeline_name)
        for kind, description in pipeline.passes:
            if kind not in _IDLE:
                kept.add_pass(kind, description)
        kept.finalize()
        return [kept]


class _PartCompiler(_Compiler):
    """Compiler for functions that kernels call."""

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *others: Any) -> None:
        super().__init__(typingctx, targetctx, _Part(targetctx.codegen(), "part"), *others)


class KernelCache(_Cache):
    """Cache that Numba consults before compiling and updates afterwards."""

    def __init__(self, name: str, key: tuple[object, ...]) -> None:
        self._name, self._key = name, key

    @property
    def cache_path(self) -> str | None:
        """Directory of the files."""
        return str(cache.directory())

    def _full_key(self, sig: Any, codegen: Any) -> tuple[object, ...]:
        versions = (numba.__version__, llvmlite.__version__, sys.version, platform.machine())
        return (*self._key, str(sig), target.identity(codegen), versions, target.requested(codegen), config.OPT)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code compiled for these argument types; None if it must be compiled."""
        # Sufficient for machine code. What Numba needs to compile, such as SciPy's BLAS, takes four times as long.
        rtsys.initialize(target_context)
        contents = cache.read(self._name, self._full_key(sig, target_context.codegen()))
        if contents is not None:
            # Loading damaged or foreign contents can fail in any way: compile again.
            with suppress(Exception):
                found = CompileResult._rebuild(target_context, *pickle.loads(contents))
                notice.found += 1
                return found
        notice.begin()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store compiled code."""
        notice.end()
        lost = cache.write(self._name, self._full_key(sig, data.codegen), dumps(data._reduce()))
        if lost is not None:
            notice.lost.append(lost)

    def enable(self) -> None:
        """Do nothing: kernels are always cached, and files with other keys are never read."""

    disable = flush = enable


@contextmanager
def _symbols_of(name: str, key: tuple[object, ...]) -> Iterator[None]:
    """Make the symbols of functions compiled within this context unique to the kernel.

    Numba numbers functions from 1 in every process. Kernels compiled by two processes and loaded into a third would
    share symbols, and one would run the other's inner functions.
    """
    before = FunctionIdentity._unique_ids
    digest = hashlib.sha256(repr((name, key)).encode()).digest()
    FunctionIdentity._unique_ids = itertools.count(int.from_bytes(digest[:7], "big") << 8)
    try:
        yield
    finally:
        FunctionIdentity._unique_ids = before


def _once(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """Cache the signatures that Numba resolves for calls: it resolves each repeatedly until all types are stable."""
    found = dict[tuple[Any, ...], Any]()

    def resolved(function: Any, args: Any, kws: Any) -> Any:
        key = function, tuple(args), tuple(dict(kws).items())
        if found.get(key) is None:
            found[key] = resolve(function, args, kws)
        return found[key]

    return resolved


@contextmanager
def _compiling() -> Iterator[None]:
    """Compile even if NUMBA_DISABLE_JIT requests plain Python: vectors and addresses exist in compiled code only.

    Raises the recursion limit for deeply nested callers; disables garbage collection, which takes a fifth of the time,
    since nearly all objects of the compiler are still in use; and resolves calls with equal types once, which applies
    to 83 of 100. Numba's lock excludes other threads' compilations meanwhile.
    """
    with global_compiler_lock:
        config.reload_config()  # as the compiler would do later, undoing this
        before, config.DISABLE_JIT = config.DISABLE_JIT, 0
        limit, collects = sys.getrecursionlimit(), gc.isenabled()
        sys.setrecursionlimit(limit + _FRAMES)
        gc.disable()
        typing = cpu_target.typing_context
        resolve = typing.resolve_function_type
        typing.resolve_function_type = _once(resolve)
        try:
            yield
        finally:
            typing.resolve_function_type = resolve
            if collects:
                gc.enable()
            config.DISABLE_JIT = before
            if sys.getrecursionlimit() == limit + _FRAMES:  # unless another thread has changed it
                sys.setrecursionlimit(limit)


def _require_memory(name: str) -> None:
    """Raise an error if LLVM would run out of memory, which would end the process."""
    nbytes = _NEXT_BYTES if _compiled else _FIRST_BYTES
    try:
        mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        raise MemoryError(f"kernel {name}: expected {nbytes >> 20} MiB of free memory to compile it in") from None


def kernel(name: str, key: tuple[object, ...], make: Callable[[], Callable[..., Any]], nogil: bool = True) -> Kernel:
    """Return the compiled form of the function that ``make`` returns; all its parameters are int64.

    Args:
        name: file name in the cache.
        key: distinguishes kernels of the same name; its repr must be equal in every process. The source of this
            package, the versions of Numba and LLVM and the target are implied.
        make: called only if the process has not compiled or loaded this kernel yet.
        nogil: True to run without the GIL.

    Raises:
        RuntimeError: the process is ending, and LLVM with it.
        MemoryError: too little memory is left to compile or load the kernel.
    """
    found = _compiled.get((name, key))
    if found is not None:
        return found
    with _lock:
        if (name, key) not in _compiled:
            if _stopped:
                raise RuntimeError(f"kernel {name}: expected one that was loaded before the process began to end")
            _require_memory(name)
            _compiled[name, key] = _load(name, key, make(), nogil)
            if len(_compiled) == 1:
                for tell in kernels.when_compiler_is_up:
                    tell()
        return _compiled[name, key]


def _load(name: str, key: tuple[object, ...], function: Callable[..., Any], nogil: bool) -> Kernel:
    """Compile a kernel, or load it from the cache. What LLVM made for that is released on return."""
    signature = (types.int64,) * function.__code__.co_argcount
    with _compiling(), _symbols_of(name, key):
        # Division by zero follows IEEE 754 and gives 0 for integers: no branch that raises an exception.
        options = {"no_cfunc_wrapper": True, "error_model": "numpy", "pipeline_class": _Compiler}
        dispatcher = numba.njit(nogil=nogil, **options)(function)
        dispatcher._cache = KernelCache(name, key)
        dispatcher.compile(signature)
    # Calling the entry point takes half the time of the dispatcher, which would inspect the types again.
    result = dispatcher.overloads[signature]
    _addresses[result.entry_point] = result.library.get_pointer_to_function(result.fndesc.llvm_func_name)
    return cast(Kernel, result.entry_point)


def stop() -> None:
    """Stop compiling and loading kernels; return when none is in progress."""
    global _stopped
    with _lock:
        _stopped = True


def address_of(compiled: Kernel) -> int:
    """Return the address of a kernel's machine code, for ``structs.call_pointer``."""
    return _addresses[compiled]


F = TypeVar("F", bound=Callable[..., Any])


@overload
def register_jitable(function: F, /) -> F: ...
@overload
def register_jitable(*, forceinline: bool) -> Callable[[F], F]: ...


def register_jitable(function: Any = None, /, **options: bool) -> Any:
    """Register a function for compiled code as Numba does, but without optimizing, emitting or wrapping it on its own.

    These steps took half of a kernel's compilation time.
    """
    decorate = extending.register_jitable(no_cfunc_wrapper=True, pipeline_class=_PartCompiler, **options)
    return decorate if function is None else decorate(function)


def intrinsic(result: Any, *parameters: Any, doc: str | None = None) -> Callable[[Callable[..., Any]], Any]:
    """Make a function for compiled code from one that emits its instructions.

    Decorates ``emit(builder, *values)``, or ``emit(context, builder, *values)``, which returns the result's value, or
    nothing if ``result`` is ``types.void``. Numbers are converted to the parameters' types; vectors must match.
    A parameter may also be a class of types, or a tuple of alternatives.
    """

    def typed(*given: Any) -> Any:
        converted = list(map(_converted, given, parameters))
        return None if None in converted else result(*converted)

    return generic(typed, len(parameters), doc)


def generic(
    typed: Callable[..., Any], arity: int | None = None, doc: str | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """Make a function as ``intrinsic`` does, with a signature computed by ``typed`` from the argument types.

    ``typed`` returns None if there is no such signature. Arguments are converted to the signature's types.
    """
    count = len(inspect.signature(typed).parameters) if arity is None else arity

    def decorate(emit: Callable[..., Any]) -> Any:
        with_context = "context" in inspect.signature(emit).parameters

        def lower(context: Any, builder: Any, sig: Any, args: tuple[Any, ...]) -> Any:
            value = emit(context, builder, *args) if with_context else emit(builder, *args)
            return context.get_dummy_value() if value is None else value

        def typing(typingctx: Any, *given: Any) -> Any:
            found = typed(*given) if len(given) == count else None
            return None if found is None else (found, lower)

        names = ["typingctx", *map("value{}".format, range(count))]
        positional = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        typing.__name__, typing.__doc__ = emit.__name__, doc or emit.__doc__
        vars(typing)["__signature__"] = inspect.Signature(positional)  # Numba has no intrinsics with *given
        return extending.intrinsic(typing)

    return decorate


def _converted(given: Any, wanted: Any) -> Any:
    """Return the type to which an argument is converted for a parameter, None if that is impossible."""
    if isinstance(wanted, tuple):
        return next((kind for kind in (_converted(given, one) for one in wanted) if kind is not None), None)
    if isinstance(wanted, type):
        return given if isinstance(given, wanted) else None
    if isinstance(wanted, types.Integer):
        return wanted if isinstance(given, (types.Integer, types.Boolean)) else None
    fits = given == wanted or (isinstance(wanted, types.Number) and isinstance(given, types.Number))
    return wanted if fits else None


_PATIENCE_S = 1.0
"""Seconds of compilation in this process before a notice is printed."""


class Notice:
    """Notice on standard error, once per process. Its methods are called under Numba's compiler lock."""

    def __init__(self) -> None:
        self.wanted = True
        self.found = 0
        """Number of kernels found in the cache."""
        self.compiled = 0
        """Number of kernels compiled."""
        self.lost: list[str] = []
        """Reasons why kernels could not be cached."""
        self._depth = 0
        self._spent = self._begun = 0.0
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Mark the beginning of a compilation, which may be nested."""
        self._depth += 1
        if self._depth == 1:
            self._begun = perf_counter()
            if self.wanted and sys.stderr is not None and sys.stderr.isatty():
                self._timer = threading.Timer(max(0.0, _PATIENCE_S - self._spent), self._print_notice)
                self._timer.daemon = True
                self._timer.start()

    def end(self) -> None:
        """Mark the end of a compilation."""
        self.compiled += 1
        self._depth = max(0, self._depth - 1)
        if self._depth == 0:
            self._spent += perf_counter() - self._begun
            if self._timer is not None:
                self._timer.cancel()

    def _print_notice(self) -> None:
        self.wanted = False
        where = cache.directory()
        kept = "not kept, since no directory can be written" if where is None else f"kept in {where}"
        if sys.stderr is not None:
            sys.stderr.write(f"aclnn: compiling for this processor, {kept}; `aclnn warm` does so beforehand\n")
            sys.stderr.flush()


notice = Notice()
