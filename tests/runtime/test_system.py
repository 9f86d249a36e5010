"""Settings, what a device has, and versions."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from aclnn import cann
from aclnn.capi import system
from aclnn.core import products
from aclnn.core.products import Product
from tests.helpers.fresh_runtime import recent_error


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system._parameters, "current", {})
    monkeypatch.setattr(system._compile_options, "current", {})
    monkeypatch.delenv("ACLNN_CANN_VERSION", raising=False)


def buffer(nbytes: int) -> tuple[int, ctypes.Array[ctypes.c_char]]:
    written = ctypes.create_string_buffer(b"\xff" * nbytes, nbytes)
    return ctypes.addressof(written), written


def test_system_parameters_are_0_until_set(device: None) -> None:
    for opt in cann.aclSysParamOpt:
        assert cann.aclrtGetSysParamOpt(opt) == (0, 0)
    for opt in range(3):
        assert cann.aclrtCtxGetSysParamOpt(opt) == (107021, 0)
        assert "has set" in recent_error()
    assert cann.aclrtSetSysParamOpt(cann.ACL_OPT_DETERMINISTIC, 1) == 0
    assert cann.aclrtCtxSetSysParamOpt(cann.ACL_OPT_STRONG_CONSISTENCY, -7) == 0
    assert cann.aclrtGetSysParamOpt(cann.ACL_OPT_DETERMINISTIC) == (0, 1)
    assert cann.aclrtGetSysParamOpt(cann.ACL_OPT_STRONG_CONSISTENCY) == (0, 0)
    assert cann.aclrtCtxGetSysParamOpt(cann.ACL_OPT_STRONG_CONSISTENCY) == (0, -7)
    assert cann.aclrtCreateContext(0)[0] == 0
    assert cann.aclrtCtxGetSysParamOpt(cann.ACL_OPT_STRONG_CONSISTENCY)[0] == 107021, "another context's"


@pytest.mark.parametrize("opt", [-1, 4])
def test_unknown_system_parameters_are_rejected(device: None, opt: int) -> None:
    assert cann.aclrtSetSysParamOpt(opt, 0) == cann.aclrtCtxSetSysParamOpt(opt, 0) == 100000
    assert cann.aclrtCtxGetSysParamOpt(opt) == cann.aclrtGetSysParamOpt(opt) == (100000, 0)
    assert f"opt: expected an aclSysParamOpt from 0 to 3, got {opt}" in recent_error()


def test_early_start_is_not_a_context_parameter(fresh: None) -> None:
    assert cann.aclrtCtxSetSysParamOpt(cann.ACL_OPT_ENABLE_KERNEL_EARLY_START, 1) == 100000
    assert cann.aclrtCtxGetSysParamOpt(cann.ACL_OPT_ENABLE_KERNEL_EARLY_START) == (100000, 0)
    assert cann.aclrtSetSysParamOpt(cann.ACL_OPT_ENABLE_KERNEL_EARLY_START, 1) == 0


def test_context_parameters_need_a_context(fresh: None) -> None:
    assert cann.aclrtCtxSetSysParamOpt(0, 1) == 107002
    assert cann.aclrtCtxGetSysParamOpt(0) == (107002, 0)
    assert cann.aclrtSetSysParamOpt(0, 1) == 0


def test_the_default_context_exists_while_a_device_is_in_use(fresh: None) -> None:
    assert cann.aclrtGetPrimaryCtxState(1) == (0, 0)
    assert cann.aclrtSetDevice(1) == 0
    assert cann.aclrtGetPrimaryCtxState(1) == (0, 1)
    assert cann.aclrtGetPrimaryCtxState(0) == (0, 0)
    assert cann.aclrtResetDevice(1) == 0
    assert cann.aclrtGetPrimaryCtxState(1) == (0, 0)
    assert cann.aclrtGetPrimaryCtxState(2) == (107001, 0)
    assert cann.aclrtGetPrimaryCtxState(0, buffer(4)[0]) == (100000, 0), "reserved"


def test_op_execute_timeout_is_accepted(fresh: None) -> None:
    assert cann.aclrtSetOpExecuteTimeOut(547) == 0


def test_peer_access_is_granted_between_devices(device: None) -> None:
    assert cann.aclrtDeviceCanAccessPeer(0, 1) == (0, 1)
    assert cann.aclrtDeviceCanAccessPeer(1, 1) == cann.aclrtDeviceCanAccessPeer(2, 2) == (100000, 0)
    assert cann.aclrtDeviceCanAccessPeer(0, 2) == (107001, 0)
    assert "peerDeviceId" in recent_error()
    assert cann.aclrtDeviceEnablePeerAccess(1, 0) == 0
    assert cann.aclrtDeviceEnablePeerAccess(1, 1) == 200006
    assert cann.aclrtDeviceEnablePeerAccess(0, 0) == 100000
    assert cann.aclrtDeviceEnablePeerAccess(2, 0) == 107001
    thread = threading.Thread(target=lambda: codes.append(cann.aclrtDeviceEnablePeerAccess(1, 0)))
    codes: list[int] = []
    thread.start()
    thread.join()
    assert codes == [107002]


def test_peers_are_disabled_as_they_are_enabled(device: None) -> None:
    assert cann.aclrtDeviceDisablePeerAccess(1) == 0
    assert cann.aclrtDeviceDisablePeerAccess(0) == 100000
    assert cann.aclrtDeviceDisablePeerAccess(2) == 107001


def test_the_process_id_is_reported(fresh: None) -> None:
    assert cann.aclrtDeviceGetBareTgid() == (0, os.getpid())


@pytest.mark.parametrize(
    ("soc_name", "numbers"),
    [
        ("Ascend910B2", (24, 48, 192 << 20)),
        ("Ascend910B3", (20, 40, 192 << 20)),
        ("Ascend910B4-1", (20, 40, 96 << 20)),
        ("Ascend910_9391", (24, 48, 192 << 20)),
        ("Ascend910_9362", (20, 40, 192 << 20)),
        ("Ascend950DT_9571", (28, 56, 128 << 20)),
        ("Ascend950PR_958b", (32, 64, 128 << 20)),
        ("Ascend950PR_9599", (36, 72, 128 << 20)),
        ("Ascend310B1", (1, 1, None)),
        ("Ascend910A", (None, None, None)),
    ],
)
def test_chip_properties_are_those_of_the_product(fresh: None, soc_name: str, numbers: tuple[int | None, ...]) -> None:
    products.set_soc_name(soc_name)
    for info, number in enumerate(numbers):
        assert cann.aclGetDeviceCapability(1, info) == ((0, number) if number is not None else (207000, 0))
    assert cann.aclGetDeviceCapability(2, 0) == (107001, 0)
    for info in (-1, 3):
        assert cann.aclGetDeviceCapability(0, info) == (100000, 0)


def test_every_modern_products_example_has_published_numbers() -> None:
    for product in products.A2_CLASS | products.CLASS_950:
        assert None not in products.cores(Product[product.name].example)


def test_compiler_options_are_checked(fresh: None) -> None:
    address, written = buffer(256)
    assert cann.aclSetCompileopt(cann.ACL_PRECISION_MODE, "allow_fp32_to_fp16") == 0
    assert cann.aclGetCompileoptSize(cann.ACL_PRECISION_MODE) == 19
    assert cann.aclGetCompileopt(cann.ACL_PRECISION_MODE, address, 19) == 200001
    assert cann.aclSetCompileopt(-1, None) == cann.aclGetCompileopt(-1, None, 8) == 100000
    assert cann.aclSetCompileopt(cann.ACL_AUTO_TUNE_MODE, "") == 200006
    for opt in (-1, 17):
        assert cann.aclSetCompileopt(opt, "") == 500000
        assert cann.aclGetCompileopt(opt, address, 256) == 200001
        assert cann.aclGetCompileoptSize(opt) == 0
    assert cann.aclGetCompileoptSize(cann.ACL_OP_DEBUG_OPTION) == 0
    assert cann.aclGetCompileopt(cann.ACL_OP_DEBUG_OPTION, address, 256) == 200001
    assert written.raw == b"\xff" * 256
    assert cann.aclSetCompileopt(cann.ACL_OP_DEBUG_OPTION, "oom") == 0
    assert cann.aclGetCompileoptSize(cann.ACL_OP_DEBUG_OPTION) == 4
    assert cann.aclGetCompileopt(cann.ACL_OP_DEBUG_OPTION, address, 4) == 0
    assert written.raw[:5] == b"oom\0\xff"


def test_jit_compilation_stays_disabled(fresh: None) -> None:
    address, written = buffer(256)
    assert cann.aclSetCompileopt(cann.ACL_OP_JIT_COMPILE, "enable") == 0
    assert cann.aclGetCompileoptSize(cann.ACL_OP_JIT_COMPILE) == 256
    assert cann.aclGetCompileopt(cann.ACL_OP_JIT_COMPILE, address, 256) == 0
    assert written.value == b"disable"
    assert cann.aclGetCompileopt(cann.ACL_OP_JIT_COMPILE, address, 6) == 500001
    assert "length: expected at least" in recent_error()


@pytest.mark.parametrize(
    ("claimed", "parts"), [(None, ("9", "2", "0", "")), ("8.5.0.alpha1", ("8", "5", "0", "alpha1"))]
)
def test_the_cann_version_is_configurable(
    monkeypatch: pytest.MonkeyPatch, claimed: str | None, parts: tuple[str, ...]
) -> None:
    if claimed is not None:
        monkeypatch.setenv("ACLNN_CANN_VERSION", claimed)
    address, written = buffer(512)
    assert cann.aclsysGetCANNVersion(cann.ACL_PKG_NAME_RUNTIME, address) == 0
    whole = ".".join(filter(None, parts))
    fields = [written.raw[0:128], *(written.raw[at : at + 64] for at in range(128, 384, 64)), written.raw[384:]]
    assert [field.rstrip(b"\0").decode() for field in fields] == [whole, *parts, ""]
    address, written = buffer(128)
    assert cann.aclsysGetVersionStr("CANN", address) == 0
    assert written.value.decode() == whole


def test_versions_of_missing_packages_are_errors() -> None:
    address, written = buffer(512)
    for name in (-1, 8):
        assert cann.aclsysGetCANNVersion(name, address) == 100000
    assert cann.aclsysGetCANNVersion(cann.ACL_PKG_NAME_DRIVER, address) == 100003
    assert cann.aclsysGetVersionStr("driver", address) == cann.aclsysGetVersionStr(None, address) == 100003
    assert cann.aclsysGetCANNVersion(0, None) == 100000
    assert written.raw == b"\xff" * 512


@pytest.mark.parametrize(
    "write",
    [
        lambda address: cann.aclGetCompileopt(cann.ACL_OP_JIT_COMPILE, address, 8),
        lambda address: cann.aclsysGetCANNVersion(cann.ACL_PKG_NAME_CANN, address),
        lambda address: cann.aclsysGetVersionStr("cann", address),
    ],
    ids=["option", "versions", "version"],
)
def test_nothing_is_written_outside_live_memory(device: None, write: Callable[[int], int]) -> None:
    assert write(0x10) == 107000
    assert "expected live memory, got [0x10" in recent_error()
    status, address = cann.aclrtMalloc(4, 0)
    assert status == 0
    assert write(address) == 107000
    assert "expected a range inside device allocation" in recent_error()
    assert cann.aclrtFree(address) == 0
    assert write(address) == 107000
    assert "was freed" in recent_error()


CHILD = """
import os
from aclnn import cann
cann.aclrtSetSysParamOpt(0, 1)
cann.aclSetCompileopt(cann.ACL_OP_DEBUG_OPTION, "oom")
child = os.fork()
if child == 0:
    print(cann.aclrtGetSysParamOpt(0), cann.aclGetCompileoptSize(cann.ACL_OP_DEBUG_OPTION), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_child_begins_without_settings() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    assert done.stdout == "(0, 0) 0\n"


def test_core_limits_are_kept(fresh: None) -> None:
    products.set_soc_name("Ascend910B2")
    cube, vector = cann.aclrtDevResLimitType
    assert cann.aclrtGetDeviceResLimit(0, cube) == (107002, 0)
    assert cann.aclrtSetDevice(0) == 0
    _, stream = cann.aclrtCreateStream()
    assert cann.aclrtGetDeviceResLimit(0, cube) == (0, 24)
    assert cann.aclrtGetStreamResLimit(stream, vector) == cann.aclrtGetResInCurrentThread(vector) == (0, 48)
    assert cann.aclrtSetDeviceResLimit(0, cube, 12) == cann.aclrtSetDeviceResLimit(0, vector, 20) == 0
    assert cann.aclrtSetStreamResLimit(stream, cube, 4) == 0
    assert [cann.aclrtGetStreamResLimit(stream, kind)[1] for kind in (cube, vector)] == [4, 20]
    assert cann.aclrtGetResInCurrentThread(cube) == cann.aclrtGetStreamResLimit(0, cube) == (0, 12)
    assert cann.aclrtUseStreamResInCurrentThread(stream) == cann.aclrtUnuseStreamResInCurrentThread(0) == 0
    assert cann.aclrtGetResInCurrentThread(cube) == (0, 4)
    assert cann.aclrtUnuseStreamResInCurrentThread(stream) == 0
    assert cann.aclrtGetResInCurrentThread(cube) == (0, 12)
    assert cann.aclrtResetStreamResLimit(stream) == 0
    assert cann.aclrtGetStreamResLimit(stream, cube) == (0, 12)
    assert cann.aclrtSetStreamResLimit(stream, cube, 25) == cann.aclrtSetDeviceResLimit(0, 2, 1) == 107000
    assert cann.aclrtResetDeviceResLimit(0) == 0
    assert cann.aclrtGetDeviceResLimit(0, cube) == (0, 24)
    assert cann.aclrtSetDeviceResLimit(0, cube, 12) == cann.aclrtResetDevice(0) == cann.aclrtSetDevice(0) == 0
    assert cann.aclrtGetDeviceResLimit(0, cube) == (0, 24)
