"""Random sequences of calls through the C libraries: no crash, no hang, no status that is not documented.

    python -m tests.c.fuzz                     ten million calls, in processes of a quarter of a million
    python -m tests.c.fuzz --calls 10000       what the tests run
    python -m tests.c.fuzz --seed 7 --only     one process again, as a finding asks for
    python -m tests.c.fuzz --asan              under AddressSanitizer
    python -m tests.c.fuzz --operators norm    mostly operators whose names have that in them

Arguments are valid, null, stale, foreign, extreme. Pointers to host memory are always good ones and counts of arrays
never exceed them, for C cannot check those.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import mmap
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from aclnn.capi.prototype import FUNCTIONS, CFunction, CParameter
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Kind, Operator, Parameter
from aclnn.core.status import HcclResult
from aclnn.core.tensor import Scalar
from aclnn.operators import OPERATORS
from aclnn.operators.registry import C_OPERATORS
from aclnn.runtime import memory
from aclnn.toolkit import tree
from aclnn.toolkit.abi import number_type, parameter_type
from tests.cases import CASE_BY_NAME, CASES
from tests.cases.table import T, changed
from tests.helpers.toolkit_client import ctype, load

CALLS_A_PROCESS = 250_000
HANG_SECONDS = 300
WATCHED_CALLS = 500
MEMORY_BYTES = 1 << 26
HOST_BYTES = 1 << 20
MOST_BYTES = 1 << 16

#: The statuses that the documents give an implementation without an NPU.
ACLNN_STATUSES = frozenset({0, 161001, 161002, 361001, 561000, 561002, 561003, 561101, 561103})
HCCL_STATUSES = frozenset(HcclResult)
ACL_STATUSES = frozenset(
    {0, 100000, 100002, 100003, 100037, 200001, 200006, 500000, 500001}
    | {107000, 107001, 107002, 107003, 107006, 107011, 107012, 107015, 107016, 107021, *range(107023, 107034)}
    | {107036, 107037, 207000, 207001, 507000, 507007, 507046, 507047, 507911}
)

#: What the parameters of object types point to, by the function that makes one.
MAKERS = {
    "aclCreateTensor": "aclTensor",
    "aclCreateScalar": "aclScalar",
    "aclCreateIntArray": "aclIntArray",
    "aclCreateFloatArray": "aclFloatArray",
    "aclCreateBoolArray": "aclBoolArray",
    "aclCreateTensorList": "aclTensorList",
    "aclCreateScalarList": "aclScalarList",
}
#: Rare, for they end what everything else lives on, or wait.
RARE = {
    *("aclFinalize", "aclrtResetDevice", "aclrtResetDeviceForce", "aclrtDestroyContext", "aclFinalizeReference"),
    *("aclmdlRICaptureBegin", "aclrtSetStreamFailureMode", "aclrtSetStreamAttribute"),
}
#: They wait for ranks that nobody is, or use what they read, or are told, of the host's memory.
WAIT = {"HcclCommInitRootInfo", "HcclCommInitRootInfoConfig", "aclrtLaunchHostFunc", "aclrtLaunchCallback"}
WAIT |= {"aclInitCallbackRegister", "aclFinalizeCallbackRegister"}
WAIT |= {"aclrtMallocWithCfg", "aclrtMallocHostWithCfg", "aclrtMemcpyBatch", "aclrtMemcpyBatchAsync"}
WAIT |= {"aclrtMemcpyBatchV2", "aclrtMemcpyBatchAsyncV2"}
WAIT |= {"aclrtHostRegister", "aclrtHostRegisterV2"}
WAIT |= {"aclrtWaitAndResetNotify", "aclrtCntNotifyWaitWithTimeout", "aclrtValueWait"}
#: Norms and softmax.
ROWS = {case.name for case in CASES if re.search("norm|softmax", case.name)}
KEPT = 12
TEXTS = (None, b"", b"none", b"tanh", b"TANH", b"n\xffne", b"/nonexistent/acl.json", b"x" * 5000)
FORMATS = (2, 2, 2, 0, 1, 29, -1, 77)
DTYPES = (0, 0, 0, 0, 0, 1, 27, 3, 11, 17, -1, 28, 99)
EXTREMES = {
    "int": (0, 1, -1, 2**31 - 1, -(2**31)),
    "bool": (False, True),
    "uint16_t": (0, 1, 0x7C00, 0xFFFF),
    "int8_t": (0, 1, 2, 3, -1, 127, -128),
    "uint8_t": (0, 1, 2, 255),
    "int32_t": (0, 0, 1, -1, 2, 10, 2**31 - 1, -(2**31)),
    # Not 0x20: a stream waits for ever for an external event that was reset.
    "uint32_t": (0, 1, 2, 8, 0x10, 0x40, 2**32 - 1),
    "int64_t": (0, 1, 2, -1, 7, 2**40, 2**63 - 1, -(2**63)),
    "uint64_t": (0, 1, 64, 4096, 2**40, 2**63, 2**64 - 1),
    "size_t": (0, 1, 4, 64, 4096, MOST_BYTES, 2**40, 2**63, 2**64 - 1),
    "float": (0.0, 1.0, -1.0, float("inf"), float("nan"), 65504.0, 1e-8),
    "double": (1e-5, 0.0, -1.0, float("inf"), float("nan")),
}


class FindingError(AssertionError):
    """A violation that the fuzzer found."""


class Fuzzer:
    """The calls of one process; deterministic for a seed as far as addresses allow."""

    def __init__(self, root: Path, seed: int, note: mmap.mmap, mostly: str = "") -> None:
        self.lib = load(root)
        self.random = random.Random(seed)
        self.note = note
        self.calls = 0
        self.live: dict[str, list[int]] = {}
        self.stale: dict[str, list[int]] = {}
        self.host = ctypes.create_string_buffer(HOST_BYTES)
        self.scratch = (ctypes.c_uint64 * 64)()
        self.entries = {function.name: (function, getattr(self.lib, function.name)) for function in FUNCTIONS.values()}
        self.names = [name for name in self.entries if name not in RARE | WAIT]
        self.mostly = [operator for operator in C_OPERATORS if mostly and mostly in operator.name]
        self.canary = self.make_canary()

    def make_canary(self) -> int:
        """Allocate device memory that no other call may change."""
        address = ctypes.c_void_p()
        self.lib.aclInit(None)
        self.lib.aclrtSetDevice(0)
        assert self.lib.aclrtMalloc(ctypes.byref(address), 256, 0) == 0
        assert address.value is not None
        ctypes.memset(address.value, 0x5A, 256)  # not by a call: captures that others have left forbid some
        return address.value

    def check_canary(self) -> None:
        self.lib.aclrtSetDevice(0)
        back = ctypes.create_string_buffer(256)
        if self.lib.aclrtMemcpy(back, 256, self.canary, 256, 2) == 0 and back.raw != b"\x5a" * 256:
            raise FindingError("memory that belongs to somebody else was written")

    def call(self, name: str, *arguments: Any) -> Any:
        """Log and make a call; its status must be one that the documents list."""
        function, entry = self.entries[name]
        line = f"{self.calls} {name}{arguments!r}".encode("utf-8", "replace")[: len(self.note) - 1]
        self.note[: len(line) + 1] = line + b"\0"
        self.calls += 1
        result = entry(*arguments)
        if function.returns_status:
            known = {"aclnnStatus": ACLNN_STATUSES | ACL_STATUSES, "HcclResult": HCCL_STATUSES}.get(
                function.returns, ACL_STATUSES
            )
            if "LastError" in name:
                known = ACLNN_STATUSES | ACL_STATUSES
            if result not in known:
                raise FindingError(f"{name}{arguments!r} gave {result}, which is not documented")
        return result

    # Arguments

    def handle(self, kind: str) -> int | None:
        """Choose a handle: mostly a live object of the kind, else a stale or foreign one, null, or any number."""
        choice = self.random.random()
        pools = (
            (0.70, self.live.get(kind)),
            (0.80, self.stale.get(kind)),
            (0.88, self.live.get(self.random.choice(list(self.live))) if self.live else None),
        )
        for limit, pool in pools:
            if choice < limit and pool:
                return self.random.choice(pool)
        return self.random.choice((None, 8, 2**47, 2**64 - 16, ctypes.addressof(self.host)))

    def address(self) -> int | None:
        """Choose an address: of live device memory, inside, behind or freed; of valid host memory; null."""
        choice = self.random.random()
        live, stale = self.live.get("memory"), self.stale.get("memory")
        if choice < 0.55 and live:
            return self.random.choice(live)
        if choice < 0.65 and live:
            begin = self.random.choice(live)
            moved = begin + self.random.choice((1, 4, 60, 64, 512, 1 << 20))
            # What lies behind the device's addresses is host memory, and not ours.
            return moved if moved in memory._table.current.arenas else begin
        if choice < 0.75 and stale:
            return self.random.choice(stale)
        return self.random.choice((None, ctypes.addressof(self.host), ctypes.addressof(self.host) + 4096))

    def is_host(self, address: int | None) -> bool:
        begin = ctypes.addressof(self.host)
        return address is not None and begin <= address < begin + HOST_BYTES

    def number(self, parameter: CParameter) -> Any:
        name, c_type = parameter.name, parameter.c_type
        if c_type == "aclDataType":
            return self.random.choice(DTYPES)
        if c_type == "aclFormat":
            return self.random.choice(FORMATS)
        if name in ("size", "count", "destMax", "maxCount") and self.random.random() < 0.7:
            return self.random.choice((1, 4, 16, 64, 100, 4096, MOST_BYTES))
        return self.random.choice(EXTREMES[number_type(c_type)])

    def elements(self, parameter: CParameter) -> tuple[Any, int]:
        """Choose an array, or null, and a count within it."""
        if self.random.random() < 0.1:
            return None, self.random.choice((0, 1, 8, 2**63))
        count = self.random.choice((0, 1, 2, 2, 3, 4, 9))
        element = number_type(parameter.element)
        if element == "uintptr_t":
            values = [self.handle(parameter.element.replace("const", "").strip(" *")) for _ in range(count)]
        elif element == "int64_t":
            values = [self.random.choice((0, 1, 2, 3, 4, 4, 8)) for _ in range(count)]
            if count and self.random.random() < 0.1:
                values[0] = self.random.choice(EXTREMES["int64_t"])
        else:
            values = [self.random.choice(EXTREMES[element]) for _ in range(count)]
        declared = count if self.random.random() < 0.98 else 2**62
        return (ctype(element) * max(count, 1))(*values), declared

    def output(self) -> Any:
        return None if self.random.random() < 0.05 else ctypes.byref(self.scratch, 8 * self.random.randrange(8))

    def arguments(self, function: CFunction) -> list[Any]:
        values: dict[str, Any] = {}
        for parameter in function.parameters:
            if parameter.name in values:
                continue
            if parameter.is_output:
                values[parameter.name] = self.output()
            elif parameter.counted_by is not None:
                count = values.get(parameter.counted_by)
                values[parameter.name], declared = self.elements(parameter)
                if count is not None:
                    declared = min(count, declared, len(values[parameter.name] or range(2**62)))
                values[parameter.counted_by] = declared
            elif parameter.is_buffer:
                values[parameter.name] = self.random.choice((None, ctypes.addressof(self.host)))
            elif parameter.is_text:
                values[parameter.name] = self.random.choice(TEXTS)
            elif parameter_type(parameter) == "uintptr_t":
                values[parameter.name] = self.pointer(parameter)
            else:
                values[parameter.name] = self.number(parameter)
        self.spare_host_memory(values)
        return [values[parameter.name] for parameter in function.parameters]

    def pointer(self, parameter: CParameter) -> int | None:
        kind = parameter.c_type.replace("const", "").replace("*", "").strip()
        return self.address() if kind == "void" else self.handle(kind)

    def spare_host_memory(self, values: dict[str, Any]) -> None:
        """Keep copies and fills within host memory, and tensors small enough to compute."""
        pointers = [values[name] for name in ("dst", "src", "devPtr") if name in values]
        if "count" in values and pointers and all(map(self.is_host, pointers)):
            values["count"] = min(values["count"], MOST_BYTES)
        for name in {"width", "height", "dpitch", "spitch"} & values.keys():
            values[name] = min(values[name], 256)
        for pointer, count in (("data", "size"), ("dataBuffer", "length")):
            if count in values and self.is_host(values.get(pointer)):
                values[count] = min(values[count], MOST_BYTES)
        lengths = values.get("numValues")
        if isinstance(lengths, ctypes.Array):
            for at, length in enumerate(lengths):
                lengths[at] = min(length, 8)
        dims = values.get("viewDims")
        if dims is not None and "stride" in values:
            size = 1
            for extent in list(dims)[: min(values["viewDimsNum"], len(dims))]:
                size *= max(abs(extent), 1)
            if size > 1 << 14:
                values["stride"] = None

    # Steps

    def keep(self, kind: str, handle: int) -> None:
        pool = self.live.setdefault(kind, [])
        pool.append(handle)
        if len(pool) > 4 * KEPT:
            self.drop(kind, pool[0])

    def drop(self, kind: str, handle: int) -> None:
        pool = self.live.get(kind, [])
        if handle in pool:
            pool.remove(handle)
        stale = self.stale.setdefault(kind, [])
        stale.append(handle)
        del stale[:-KEPT]

    def any_call(self) -> None:
        rare = self.random.random() < 0.01
        name = self.random.choice(sorted(RARE) if rare else self.names)
        function, _ = self.entries[name]
        arguments = self.arguments(function)
        for at, parameter in enumerate(function.parameters):
            if parameter.is_output and arguments[at] is not None:
                arguments[at] = ctypes.byref(self.scratch, 8 * at)  # apart from one another
        if name.startswith("aclrtFree") and arguments[0] == self.canary:
            return
        result = self.call(name, *arguments)
        self.learn(function, arguments, result)

    def learn(self, function: CFunction, arguments: Sequence[Any], result: Any) -> None:
        """Record created objects as live, and destroyed ones as stale."""
        if function.name in MAKERS:
            if result:
                self.keep(MAKERS[function.name], result)
            return
        if not function.returns_status or result != 0:
            return
        for at, parameter in enumerate(function.parameters):
            kind = parameter.c_type.replace("const", "").replace("*", "").strip()
            made = self.scratch[at]
            # An address that a tensor was given may be host memory, or not its beginning.
            is_handle = kind != "void" and number_type(parameter.element) == "uintptr_t"
            kept = is_handle or function.name.startswith("aclrtMalloc")
            if parameter.is_output and arguments[at] is not None and made and kept:
                self.keep("memory" if kind == "void" else kind, made)
            if parameter.is_output and parameter.counted_by is not None and arguments[at] is not None:
                self.lib._ZdaPv(ctypes.c_void_p(made))
        if "Destroy" in function.name or "Free" in function.name:
            kind = function.parameters[0].c_type.replace("const", "").replace("*", "").strip()
            if arguments[0]:
                self.drop("memory" if kind == "void" else kind, arguments[0])

    def operator_call(self) -> None:
        """Make all steps of a consistent operator call, sometimes with one error."""
        operator = self.random.choice(self.mostly or self.random.choice((OPERATORS, C_OPERATORS)))
        shape = [self.random.choice((1, 2, 3, 8, 16)) for _ in range(self.random.randrange(1, 4))]
        if self.random.random() < 0.05:
            shape[0] = self.random.choice((0, 1000))
        # One data type for those whose kernels take long to compile.
        dtypes = (0, 0, 0, 1, 27) if operator in OPERATORS else (0, 1, 2, 3, 4, 6, 9, 11, 12, 16, 17, 27)
        dtype = 0 if operator.name in ROWS else self.random.choice(dtypes)
        arguments, made = self.fitting(operator, shape, dtype)
        if self.random.random() < 0.25:
            self.spoil(operator, arguments)
        self.scratch[0] = self.scratch[1] = 0
        status = self.call(
            f"{operator.function}GetWorkspaceSize",
            *arguments,
            ctypes.byref(self.scratch, 0),
            ctypes.byref(self.scratch, 8),
        )
        if status == 0:
            self.second_phase(operator, self.scratch[0], self.scratch[1])
        for kind, handle in made:
            if self.random.random() < 0.9:
                name = {"memory": "aclrtFree"}.get(kind, f"aclDestroy{kind.removeprefix('acl')}")
                self.call(name, handle)
                self.drop(kind, handle)
            else:
                self.keep(kind, handle)

    def fitting(self, operator: Operator, shape: list[int], dtype: int) -> tuple[list[Any], list[tuple[str, int]]]:
        made: list[tuple[str, int]] = []

        def tensor(dims: list[int], dtype: int, format: int) -> int:
            size = 16
            for extent in dims:
                size *= extent
            address = self.scratch_result("aclrtMalloc", size + 64, 0)
            if address:
                made.append(("memory", address))
            array = (ctypes.c_int64 * len(dims))(*dims)
            handle = self.call(
                "aclCreateTensor", array, len(dims), dtype, None, 0, format, array, len(dims), address or None
            )
            made.append(("aclTensor", handle))
            return int(handle)

        arguments: list[Any] = []
        for parameter, value in self.described(operator, shape, dtype):
            if isinstance(value, T):
                arguments.append(tensor([*value.shape], value.dtype, value.format))
            elif parameter.kind is Kind.INT_ARRAY and value is not None:
                handle = self.call("aclCreateIntArray", (ctypes.c_int64 * len(value))(*value), len(value))
                made.append(("aclIntArray", handle))
                arguments.append(handle)
            elif parameter.kind is Kind.BOOL_ARRAY and value is not None:
                least = 0.3 if self.mostly or "layer" in operator.name else 0.01  # each mask is a kernel of its own
                mask = [expected and self.random.random() > least for expected in value]
                handle = self.call("aclCreateBoolArray", (ctypes.c_bool * len(mask))(*mask), len(mask))
                made.append(("aclBoolArray", handle))
                arguments.append(handle)
            elif isinstance(value, Scalar):
                handle = self.call("aclCreateScalar", value.data, value.dtype)
                made.append(("aclScalar", handle))
                arguments.append(handle)
            else:
                arguments.append(value.encode() if isinstance(value, str) else value)
        return arguments, made

    def described(self, operator: Operator, shape: list[int], dtype: int) -> Iterator[tuple[Parameter, Any]]:
        """Arguments as the table of tests has them, of a library's operator something that may do."""
        case, pick = CASE_BY_NAME.get(operator.name), self.random.choice
        if case is not None:
            valid, split = case.call(DataType(dtype)), self.random.randrange(len(shape))
            # Kernels of rows differ by shape, too: few of those that no other test compiles.
            if operator.name not in ROWS or self.mostly or self.random.random() < 0.01:
                valid = changed(valid, case.shaped((*shape[:split],), (*shape[split:],)))
            yield from ((parameter, valid[parameter.name]) for parameter in operator.parameters)
            return
        along = [pick((-1, 0, 1))] if any(p.name == "dim" for p in operator.parameters) else shape[-1:]
        for parameter in operator.parameters:
            if parameter.is_tensor:
                yield parameter, T(DataType(dtype), (*shape,))
            elif parameter.kind is Kind.SCALAR:
                of = DataType(pick((dtype, 0, 9, 11, 12, 17)))
                yield parameter, Scalar(of, struct.pack("2d", 2.5, 0.0))
            else:
                others = {Kind.INT_ARRAY: along, Kind.BOOL_ARRAY: [True] * 3, Kind.DTYPE: dtype, Kind.DOUBLE: 1e-5}
                others[Kind.STRING] = pick(("none", "tanh"))
                yield parameter, others.get(parameter.kind, pick((0, 1)))

    def scratch_result(self, name: str, *rest: Any) -> int:
        self.scratch[2] = 0
        self.call(name, ctypes.byref(self.scratch, 16), *rest)
        return self.scratch[2]

    def spoil(self, operator: Operator, arguments: list[Any]) -> None:
        at = self.random.randrange(len(arguments))
        parameter = operator.parameters[at]
        if parameter.is_tensor:
            arguments[at] = self.handle("aclTensor")
        elif parameter.kind is Kind.SCALAR:
            arguments[at] = self.handle("aclScalar")
        elif parameter.kind in (Kind.INT_ARRAY, Kind.BOOL_ARRAY):
            arguments[at] = self.handle("aclIntArray")
        elif parameter.kind is Kind.STRING:
            arguments[at] = self.random.choice(TEXTS)
        elif parameter.kind is not Kind.DOUBLE:
            arguments[at] = self.random.choice(EXTREMES["int32_t"])

    def second_phase(self, operator: Operator, size: int, executor: int) -> None:
        other = self.random.choice(C_OPERATORS) if self.random.random() < 0.05 else operator
        if self.random.random() < 0.1:
            self.keep("aclOpExecutor", executor)
            return
        workspace = self.scratch_result("aclrtMalloc", size, 0) if size else 0
        stream = self.handle("aclrtStream")
        if self.random.random() < 0.1:
            self.call("aclSetAclOpExecutorRepeatable", executor)
        for _ in range(self.random.choice((1, 1, 1, 2))):
            self.call(other.function, workspace or None, size, executor, stream)
        self.drop("aclOpExecutor", executor)
        if self.random.random() < 0.3:
            self.call("aclrtSynchronizeStream", stream)
        if workspace:
            self.call("aclrtFree", workspace)

    def start_again(self) -> None:
        """Ensure a current context, whatever earlier calls have destroyed."""
        self.call("aclInit", None)
        self.call("aclrtSetDevice", 0)
        if len(self.live.get("aclrtStream", [])) < 2:
            stream = self.scratch_result("aclrtCreateStream")
            if stream:
                self.keep("aclrtStream", stream)
        for handle in self.live.get("memory", [])[KEPT:]:
            self.call("aclrtFree", handle)
            self.drop("memory", handle)

    def run(self, calls: int) -> None:
        watched = 0
        while self.calls < calls:
            if self.calls >= watched:
                faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
                watched = self.calls + WATCHED_CALLS
            if self.calls % 50 == 0 or self.random.random() < 0.01:
                self.start_again()
            if self.random.random() < (0.6 if self.mostly else 0.15):
                self.operator_call()
            else:
                self.any_call()
        self.check_canary()


def work(root: Path, seed: int, calls: int, mostly: str, note_path: str) -> None:
    """Make a process's calls: most one after the other, the last tenth from four threads at once."""
    faulthandler.enable()
    with open(note_path, "r+b") as file:
        note = mmap.mmap(file.fileno(), 4096)
    alone = Fuzzer(root, seed, note, mostly)
    alone.run(calls - calls // 10)
    together = [Fuzzer(root, seed * 4 + number, note, mostly) for number in range(4)]
    findings: list[BaseException] = []

    def guarded(run: Callable[[int], None]) -> None:
        try:
            run(calls // 40)
        except BaseException as error:
            findings.append(error)

    threads = [threading.Thread(target=guarded, args=(fuzzer.run,)) for fuzzer in together]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if findings:
        raise findings[0]
    print(alone.calls + sum(fuzzer.calls for fuzzer in together))


def sanitized(environment: dict[str, str]) -> dict[str, str]:
    """Return an environment with AddressSanitizer, without leak detection, as the interpreter leaks."""
    library = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    # delete[] is looked up through a library's handle, past the sanitizer's own, as clients do it.
    options = "detect_leaks=0:alloc_dealloc_mismatch=0:allocator_may_return_null=1"
    return environment | {"LD_PRELOAD": library.stdout.strip(), "ASAN_OPTIONS": options, "PYTHONMALLOC": "malloc"}


def one_process(root: Path, seed: int, calls: int, mostly: str, asan: bool) -> int:
    """Run a process to its end; return the calls that it made. Exit with the finding if there is one."""
    environment = os.environ | {"ACLNN_MEMORY_BYTES": str(MEMORY_BYTES), "ACLNN_DEVICE_COUNT": "2"}
    with tempfile.NamedTemporaryFile() as note:
        note.write(bytes(4096))
        note.flush()
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.c.fuzz",
                "--worker",
                str(root),
                note.name,
                "--seed",
                str(seed),
                "--calls",
                str(calls),
                "--operators",
                mostly,
            ],
            capture_output=True,
            text=True,
            errors="replace",
            env=sanitized(dict(environment)) if asan else environment,
            check=False,
        )
        last = Path(note.name).read_bytes().split(b"\0")[0].decode("utf-8", "replace")
    if done.returncode or done.stderr:
        chosen = f"--seed {seed} --calls {calls}" + f" --operators {mostly}" * bool(mostly)
        print(f"FINDING with {chosen} --only, exit status {done.returncode}\nlast call: {last}")
        print(done.stderr[-6000:])
        sys.exit(1)
    return int(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="store_true", help="one process, whatever the number of calls")
    parser.add_argument("--operators", default="", metavar="PART", help="mostly those with this in their names")
    parser.add_argument("--asan", action="store_true", help="under AddressSanitizer")
    parser.add_argument("--root", type=Path, help="the toolkit's tree; built if missing")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(Path(options.worker[0]), options.seed, options.calls, options.operators, options.worker[1])
        return
    root = options.root or tree.ensure()
    begin, made, seed = time.monotonic(), 0, options.seed
    while made < options.calls:
        calls = options.calls if options.only else min(CALLS_A_PROCESS, options.calls - made)
        made += one_process(root, seed, calls, options.operators, options.asan)
        print(f"{made} calls, seeds {options.seed} to {seed}, {time.monotonic() - begin:.0f} s", flush=True)
        seed += 1


if __name__ == "__main__":
    main()
