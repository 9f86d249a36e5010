"""Compile a kernel once per machine: for int64 arguments, mostly without the GIL, kept on disk between processes.

Numba's own cache keeps one index file for all variants of a function, which processes that compile different variants
at the same time corrupt, and it names closures by the module's file and line only. Here each kernel is one file, named
after all that it depends on (see ``cache``).
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
from typing import Any, TypeVar, overload

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

#: A compiled kernel: integers in, as a rule nothing out.
Kernel = Callable[..., Any]

_compiled: dict[tuple[str, tuple[object, ...]], Kernel] = {}
_addresses: dict[Kernel, int] = {}
_lock = lock_across_forks()
_stopped = False
# What the first kernel takes with the parts of Numba that come with it (160 MiB), and any other (up to 35 MiB).
_FIRST_BYTES, _NEXT_BYTES = 192 << 20, 64 << 20
#: Twice the calls within one another that Numba has taken; Python's limit of 1,000 did not leave them to every caller.
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
"""Passes of Numba for what kernels lack: closures, arrays, ``with`` and ``raise``."""


class _Part(JITCodeLibrary):
    """The code of a function that kernels call: it goes into theirs, where all of it is optimized and emitted, once."""

    codegen = SimpleNamespace(set_env=lambda name, environment: None)

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


class _Compiler(Compiler):
    """Numba's compiler without passes that would change nothing in kernels."""

    def define_pipelines(self) -> list[PassManager]:
        """Leave out the idle passes, which take a tenth of the time."""
        (pipeline,) = super().define_pipelines()
        kept = PassManager(pipeline.pipeline_name)
        for kind, description in pipeline.passes:
            if kind not in _IDLE:
                kept.add_pass(kind, description)
        kept.finalize()
        return [kept]


class _PartCompiler(_Compiler):
    """The compiler for functions that kernels call."""

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *others: Any) -> None:
        super().__init__(typingctx, targetctx, _Part(targetctx.codegen(), "part"), *others)


class KernelCache(_Cache):
    """The cache that Numba asks before it compiles and tells afterwards."""

    def __init__(self, name: str, key: tuple[object, ...]) -> None:
        self._name, self._key = name, key

    @property
    def cache_path(self) -> str | None:
        """The directory of files."""
        return str(cache.directory())

    def _full_key(self, sig: Any, codegen: Any) -> tuple[object, ...]:
        versions = (numba.__version__, llvmlite.__version__, sys.version, platform.machine())
        return (*self._key, str(sig), codegen.magic_tuple(), versions, target.requested(codegen), config.OPT)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code compiled for these types of arguments; None when it must be compiled."""
        # All that machine code needs. What Numba needs to compile takes four times as long, SciPy's BLAS among it.
        rtsys.initialize(target_context)
        contents = cache.read(self._name, self._full_key(sig, target_context.codegen()))
        if contents is not None:
            # Damaged or foreign contents can fail anywhere: compile again.
            with suppress(Exception):
                found = CompileResult._rebuild(target_context, *pickle.loads(contents))
                notice.found += 1
                return found
        notice.begin()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled."""
        notice.end()
        lost = cache.write(self._name, self._full_key(sig, data.codegen), dumps(data._reduce()))
        if lost is not None:
            notice.lost.append(lost)

    def enable(self) -> None:
        """Do nothing: kernels are always kept, and files of other keys never read."""

    disable = flush = enable


@contextmanager
def _symbols_of(name: str, key: tuple[object, ...]) -> Iterator[None]:
    """Give the symbols of the functions that are compiled meanwhile numbers that no other kernel's have.

    Numba counts functions from 1 in every process. Kernels that two processes compiled, loaded into a third, would
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
    """Remember the signatures that Numba finds for calls: it looks for each, and again until no type changes."""
    found = dict[tuple[Any, ...], Any]()

    def resolved(function: Any, args: Any, kws: Any) -> Any:
        key = function, tuple(args), tuple(dict(kws).items())
        if found.get(key) is None:
            found[key] = resolve(function, args, kws)
        return found[key]

    return resolved


@contextmanager
def _compiling() -> Iterator[None]:
    """Compile where NUMBA_DISABLE_JIT asks for plain Python too: vectors and addresses exist in compiled code only.

    Also from deep within a program, whatever its limit of recursion; without garbage collections, which take a fifth of
    the time, as nearly all that the compiler makes is still in use; and without resolving a call of the same types
    again, as 83 of 100 are. Numba's lock keeps other threads' compilations out of that.
    """
    with global_compiler_lock:
        config.reload_config()  # as the compiler would do, undoing this
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
            if sys.getrecursionlimit() == limit + _FRAMES:  # else another thread's
                sys.setrecursionlimit(limit)


def _require_memory(name: str) -> None:
    """Refuse to begin where LLVM would run out of memory, which ends the process."""
    nbytes = _NEXT_BYTES if _compiled else _FIRST_BYTES
    try:
        mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        raise MemoryError(f"kernel {name}: expected {nbytes >> 20} MiB of free memory to compile it in") from None


def kernel(name: str, key: tuple[object, ...], make: Callable[[], Callable[..., Any]], nogil: bool = True) -> Kernel:
    """The compiled form of the function that ``make`` returns; all its parameters are int64.

    Args:
        name: what the file in the cache is called.
        key: what tells this kernel from others of the name; its repr must be the same in every process. The source of
            this package, the versions of Numba and LLVM and the target need not be mentioned.
        make: called only when the process has not compiled or loaded this kernel yet.
        nogil: whether it runs without the GIL.

    Raises:
        RuntimeError: the process is ending, and LLVM with it.
        MemoryError: there is too little to compile or load it in.
    """
    found = _compiled.get((name, key))
    if found is not None:
        return found
    with _lock:
        if (name, key) not in _compiled:
            if _stopped:
                raise RuntimeError(f"kernel {name}: expected one that was loaded before the process began to end")
            _require_memory(name)
            function = make()
            signature = (types.int64,) * function.__code__.co_argcount
            with _compiling(), _symbols_of(name, key):
                # Divisions by zero as IEEE 754 has them, of integers 0: no branch to raise an exception at each.
                options = {"no_cfunc_wrapper": True, "error_model": "numpy", "pipeline_class": _Compiler}
                dispatcher = numba.njit(nogil=nogil, **options)(function)
                dispatcher._cache = KernelCache(name, key)
                dispatcher.compile(signature)
            # The entry point takes half the time of the dispatcher's call, which would look at the types again.
            result = dispatcher.overloads[signature]
            _addresses[result.entry_point] = result.library.get_pointer_to_function(result.fndesc.llvm_func_name)
            _compiled[name, key] = result.entry_point
            if len(_compiled) == 1:
                for tell in kernels.when_compiler_is_up:
                    tell()
        return _compiled[name, key]


def stop() -> None:
    """Compile and load nothing any more; returns when nothing is."""
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
    """Numba's decorator, but a function is neither optimized nor emitted on its own, nor has it an entry for C.

    That took half of a kernel's compilation.
    """
    decorate = extending.register_jitable(no_cfunc_wrapper=True, pipeline_class=_PartCompiler, **options)
    return decorate if function is None else decorate(function)


def intrinsic(result: Any, *parameters: Any, doc: str | None = None) -> Callable[[Callable[..., Any]], Any]:
    """Make a function for compiled code of one that emits its instructions.

    Decorates ``emit(builder, *values)``, or ``emit(context, builder, *values)``, which returns the result's value, or
    nothing where ``result`` is ``types.void``. Numbers are converted to the parameters' types; vectors must have them.
    A parameter may also be a class of types, or a tuple of alternatives.
    """

    def typed(*given: Any) -> Any:
        converted = list(map(_converted, given, parameters))
        return None if None in converted else result(*converted)

    return generic(typed, len(parameters), doc)


def generic(
    typed: Callable[..., Any], arity: int | None = None, doc: str | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """Make a function as ``intrinsic`` does, whose signature ``typed`` makes of its arguments' types.

    That returns None where there is none. Arguments are converted to the signature's types.
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
    """The type to which an argument is converted for a parameter, None if it cannot be."""
    if isinstance(wanted, tuple):
        return next((kind for kind in (_converted(given, one) for one in wanted) if kind is not None), None)
    if isinstance(wanted, type):
        return given if isinstance(given, wanted) else None
    if isinstance(wanted, types.Integer):
        return wanted if isinstance(given, (types.Integer, types.Boolean)) else None
    fits = given == wanted or (isinstance(wanted, types.Number) and isinstance(given, types.Number))
    return wanted if fits else None


_PATIENCE_S = 1.0
"""Spent compiling in this process before it says so."""


class Notice:
    """A line on standard error, once a process. Its methods are called under Numba's compiler lock."""

    def __init__(self) -> None:
        self.wanted = True
        self.found = 0
        """Kernels that this process found in the cache."""
        self.compiled = 0
        """Kernels that it compiled."""
        self.lost: list[str] = []
        """Reasons why kernels could not be kept."""
        self._depth = 0
        self._spent = self._begun = 0.0
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Begin to compile a function, which may compile others first."""
        self._depth += 1
        if self._depth == 1:
            self._begun = perf_counter()
            if self.wanted and sys.stderr is not None and sys.stderr.isatty():
                self._timer = threading.Timer(max(0.0, _PATIENCE_S - self._spent), self._say)
                self._timer.daemon = True
                self._timer.start()

    def end(self) -> None:
        """Have compiled it."""
        self.compiled += 1
        self._depth = max(0, self._depth - 1)
        if self._depth == 0:
            self._spent += perf_counter() - self._begun
            if self._timer is not None:
                self._timer.cancel()

    def _say(self) -> None:
        self.wanted = False
        where = cache.directory()
        kept = "not kept, since no directory can be written" if where is None else f"kept in {where}"
        if sys.stderr is not None:
            sys.stderr.write(f"aclnn: compiling for this processor, {kept}; `aclnn warm` does so beforehand\n")
            sys.stderr.flush()


notice = Notice()
