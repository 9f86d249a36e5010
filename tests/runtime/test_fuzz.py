"""Random calls of the whole C interface with live, stale, null, foreign and extreme arguments: codes, never a crash."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from aclnn import cann
from aclnn.capi.prototype import CALLBACKS, FUNCTIONS, HANDLES, CFunction, CParameter, call_of
from aclnn.core.status import CODES, HcclResult
from tests.helpers.stand_in_plan import StandInPlan

COUNTS = [0, 1, 2, 4, 4, 4, 16, 64, 1000, 1 << 16, 2**63 - 1, 2**64 - 1]
NUMBERS = [0, 0, 0, 0, 1, 2, 3, 27, -1, -2, 5, 8, 9, 100, 2**31 - 1, -(2**31)]
SHAPES: list[Any] = [None, [], [0], [4], [4], [4], [2, 2], [3, -1], [1 << 40, 1 << 40], [1] * 9, [-(2**63)]]
UNSIGNED = ("uint32_t", "aclFloat16", "uint8_t")
NOT_HANDLES = [0, 0, 1, 0x5AC1_0000_0000_0000, 2**64 - 1]
# What most tensors are, so that operators find pairs that fit; the address stays random.
PLAIN: dict[str, Any] = {"viewDims": [4], "viewDimsNum": 1, "dataType": 0, "stride": None, "offset": 0}
SAY_WHAT_FAILED = ("aclrtGetLastError", "aclrtPeekAtLastError")
#: They wait for ranks that nobody is, or use what they read, or are told, of the host's memory.
WAIT = ("HcclCommInitRootInfo", "HcclCommInitRootInfoConfig", "aclrtMallocWithCfg", "aclrtMallocHostWithCfg")
WAIT += ("aclrtHostRegister", "aclrtHostRegisterV2")
WAIT += ("aclrtWaitAndResetNotify", "aclrtCntNotifyWaitWithTimeout", "aclrtValueWait")


def object_type(c_type: str) -> str | None:
    """Return a handle's object type, as ``aclTensor`` for ``const aclTensor*``; None if a type is no handle."""
    name = c_type.removeprefix("const ").rstrip("*")
    return name if name in HANDLES or ("*" in c_type and name.startswith("acl")) else None


class Fuzzer:
    """Calls functions with results of earlier calls; its host memory is its own, so that copies do no harm."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.host = np.zeros(1 << 17, np.uint8)
        self.handles: dict[str, list[int]] = defaultdict(list)
        self.addresses: list[int] = []
        self.statuses: Counter[tuple[str, int]] = Counter()

    def argument(self, parameter: CParameter) -> Any:
        pick, c_type = self.random.choice, parameter.c_type
        if "*" in parameter.element and parameter.counted_by is not None and object_type(parameter.element) is None:
            return pick([None, [0, self.host.ctypes.data]])
        if parameter.counted_by is not None:
            return pick(SHAPES) if "int64" in c_type else pick([None, [True, True, False], [0, 0, 0]])
        if parameter.is_buffer:
            return pick([0, self.host.ctypes.data])
        if parameter.element == "char":
            return pick([None, "none", "none", "tanh", "/nowhere"])
        if c_type == "bool":
            return pick([False, True])
        if c_type == "int8_t":
            return pick([-2, 0, 1, 127])
        if c_type in ("float", "double"):
            return pick([0.0, 1e-5, -1.0, float("nan"), float("inf")])
        if (kind := object_type(c_type)) is not None:
            return self.handle(kind)
        if c_type in CALLBACKS:
            return 0
        if "*" in c_type:
            return self.address()
        if parameter.name == "timeout" and c_type == "int32_t":
            return pick([1, 0, -2, 2])
        if c_type in ("uint64_t", "size_t"):
            return pick(COUNTS)
        number = pick(NUMBERS)
        return (
            number % {"uint32_t": 1 << 32, "aclFloat16": 1 << 16, "uint8_t": 1 << 8}[c_type]
            if c_type in UNSIGNED
            else number
        )

    def handle(self, kind: str) -> int:
        right, chance = self.handles[kind][-12:], self.random.random()
        if right and chance < 0.85:
            return self.random.choice(right)
        if chance < 0.95:
            return self.random.choice(NOT_HANDLES)
        return self.random.choice([handle for pool in self.handles.values() for handle in pool[-3:]] or NOT_HANDLES)

    def address(self) -> int:
        host = self.host.ctypes.data
        near = [address + 8 for address in self.addresses[-2:]]
        return self.random.choice([0, 64, 2**64 - 8, host, host + 512, *near, *2 * self.addresses[-12:]])

    def call(self, function: CFunction) -> None:
        arguments = {parameter.name: self.argument(parameter) for parameter in function.inputs}
        if function.name == "aclCreateTensor" and self.random.random() < 0.8:
            arguments |= PLAIN
        own = self.handles[f"{function.name}GetWorkspaceSize"][-4:]
        if own and self.random.random() < 0.8:
            arguments["executor"] = self.random.choice(own)
        for parameter in function.inputs:
            # C cannot say how long an array is, so a count never exceeds it here.
            if parameter.counted_by is not None and arguments[parameter.name] is not None:
                counted = arguments[parameter.counted_by]
                arguments[parameter.counted_by] = max(0, min(counted, len(arguments[parameter.name])))
        if "count" in arguments:
            # Host memory that the runtime does not know is trusted: no copy leaves this buffer.
            arguments["count"] = min(arguments["count"], 1 << 16)
        for name in {"width", "height", "dpitch", "spitch"} & arguments.keys():
            arguments[name] = min(arguments[name], 100)
        self.keep(function, call_of(function.name)(**arguments))

    def keep(self, function: CFunction, result: Any) -> None:
        if not function.returns_status:
            if (kind := object_type(function.returns)) is not None:
                self.handles[kind].append(result)
            return
        status, *outputs = result if isinstance(result, tuple) else (result,)
        self.statuses[function.name, status] += 1
        assert status in (list(HcclResult) if function.returns == "HcclResult" else CODES.values())
        if status:
            assert not any(outputs)
            text = cann.aclGetRecentErrMsg()
            assert text
            assert re.match(r"(acl|Hccl)\w+: .*expected", text, re.IGNORECASE), text
            return
        for parameter, output in zip(function.outputs, outputs, strict=True):
            if "Malloc" in function.name and parameter.c_type == "void**":
                self.addresses.append(output)
            elif (kind := object_type(parameter.element)) is not None:
                self.handles[kind].append(output)
                self.handles[function.name].append(output)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_random_calls_never_crash(fresh: None, without_kernels: None, seed: int) -> None:
    fuzzer = Fuzzer(seed)
    functions = [function for name, function in FUNCTIONS.items() if name not in (*SAY_WHAT_FAILED, *WAIT)]
    makers = [f for f in functions if re.search("Create|Malloc|WorkspaceSize", f.name)]
    users = [f for f in functions if f.name.startswith("aclnn") or "Executor" in f.name]
    gradients = [f for f in functions if re.search("(Gelu|Silu|Hardswish)Backward|CreateTensor$", f.name)]
    for step in range(60_000):
        if step % 50 == 0:
            assert cann.aclrtSetDevice(0) == 0
        pool = fuzzer.random.choice([functions, functions, makers, users, *[gradients] * 12])
        fuzzer.call(fuzzer.random.choice(pool))
    succeeded = {name for name, status in fuzzer.statuses if status == 0}
    rejected = {name for name, status in fuzzer.statuses if status}
    # Both outcomes of nearly everything came up, operators included.
    assert len(succeeded) > 80
    assert len(rejected) > 80
    assert StandInPlan.runs > 10
