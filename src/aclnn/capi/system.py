"""aclrtSetSysParamOpt … aclsysGetVersionStr: system parameters, device capabilities, the claimed release of CANN."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence

from aclnn.capi.constants import ENUMS
from aclnn.capi.prototype import c_function, c_value_function
from aclnn.core import products
from aclnn.core.checks import shown
from aclnn.core.status import (
    ACL_ERROR_INVALID_FILE,
    ACL_ERROR_INVALID_PARAM,
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
    ACL_ERROR_RT_SYSPARAMOPT_NOT_SET,
    CODES,
    AclnnError,
)
from aclnn.runtime import devices, memory
from aclnn.support.process import PerProcess

_CANN_VERSION = "9.2.0"
VERSION_BYTES, PART_BYTES = 128, 64
_DRIVER = "driver"
#: Packages of a release, in the order of ``aclCANNPackageName``.
_PACKAGES = ("cann", "runtime", "compiler", "hccl", "toolkit", "opp", "opp_kernel", _DRIVER)
#: Packages of operators, which have names only.
_OPERATOR_PACKAGES = tuple(f"ops_{of}" for of in ("nn", "math", "cv", "transformer", "legacy"))
_JIT_COMPILE, _AUTO_TUNE_MODE, _DEBUG_OPTION = (
    ENUMS["aclCompileOpt"][f"ACL_{name}"] for name in ("OP_JIT_COMPILE", "AUTO_TUNE_MODE", "OP_DEBUG_OPTION")
)
_JIT_COMPILE_BYTES = 256
_PARAMETERS = tuple(ENUMS["aclSysParamOpt"].values())
#: All but ACL_OPT_ENABLE_KERNEL_EARLY_START, which is set for the process only.
_PARAMETERS_OF_CONTEXTS = _PARAMETERS[:-1]

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:[.-]?(alpha|beta|rc)\.?(\d*))?")
_BEFORE_RELEASE = {"alpha": 300, "beta": 200, "rc": 100}

_parameters = PerProcess[dict[int, int]](dict)
_compile_options = PerProcess[dict[int, str]](dict)


def _check_parameter(opt: int, known: Sequence[int] = _PARAMETERS) -> None:
    if opt not in known:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"opt: expected an aclSysParamOpt from 0 to {max(known)}, got {opt}")


@c_function("aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value)")
def aclrtSetSysParamOpt(opt: int, value: int) -> None:
    """Set a parameter of this process. Results are deterministic whatever its value."""
    _check_parameter(opt)
    _parameters.current[opt] = value


@c_function("aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t *value)")
def aclrtGetSysParamOpt(opt: int) -> int:
    """Return a parameter of this process, 0 by default."""
    _check_parameter(opt)
    return _parameters.current.get(opt, 0)


@c_function("aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value)")
def aclrtCtxSetSysParamOpt(opt: int, value: int) -> None:
    """Set a parameter of the current context."""
    _check_parameter(opt, _PARAMETERS_OF_CONTEXTS)
    devices.current().parameters[opt] = value


@c_function("aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t *value)")
def aclrtCtxGetSysParamOpt(opt: int) -> int:
    """Return a parameter of the current context; 107021 if it was never set."""
    _check_parameter(opt, _PARAMETERS_OF_CONTEXTS)
    value = devices.current().parameters.get(opt)
    if value is None:
        raise AclnnError(
            ACL_ERROR_RT_SYSPARAMOPT_NOT_SET, f"opt: expected one that aclrtCtxSetSysParamOpt has set, got {opt}"
        )
    return value


@c_function("aclError aclrtGetPrimaryCtxState(int32_t deviceId, uint32_t *flags, int32_t *active)")
def aclrtGetPrimaryCtxState(deviceId: int, flags: int | None = None) -> int:
    """Return 1 if the device's default context exists; ``flags`` must be null."""
    if flags:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"flags: expected null, got {flags:#x}")
    return int(devices.default_context_exists(deviceId))


def _expect_another(device: int, peer: int) -> None:
    if device == peer:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"peerDeviceId: expected another device than {device}, got that")


@c_function("aclError aclrtDeviceCanAccessPeer(int32_t *canAccessPeer, int32_t deviceId, int32_t peerDeviceId)")
def aclrtDeviceCanAccessPeer(deviceId: int, peerDeviceId: int) -> int:
    """Return 1: devices can access each other's memory."""
    _expect_another(deviceId, peerDeviceId)
    devices.numbered(deviceId, "deviceId")
    devices.numbered(peerDeviceId, "peerDeviceId")
    return 1


@c_function("aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags)")
def aclrtDeviceEnablePeerAccess(peerDeviceId: int, flags: int) -> None:
    """Do nothing: copies between devices always work."""
    if flags:
        raise AclnnError(CODES["ACL_ERROR_FEATURE_UNSUPPORTED"], f"flags: expected 0, got {flags}")
    _expect_another(devices.current().device.number, peerDeviceId)
    devices.numbered(peerDeviceId, "peerDeviceId")


@c_function("aclError aclrtDeviceDisablePeerAccess(int32_t peerDeviceId)")
def aclrtDeviceDisablePeerAccess(peerDeviceId: int) -> None:
    """Do nothing: copies between devices always work."""
    _expect_another(devices.current().device.number, peerDeviceId)
    devices.numbered(peerDeviceId, "peerDeviceId")


@c_function("aclError aclrtDeviceGetBareTgid(int32_t *pid)")
def aclrtDeviceGetBareTgid() -> int:
    """Return this process's ID."""
    return os.getpid()


@c_function("aclError aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t *value)")
def aclGetDeviceCapability(deviceId: int, deviceInfo: int) -> int:
    """Return the product's AI cores, vector cores or bytes of L2 cache; 207000 for unpublished values."""
    devices.numbered(deviceId, "deviceId")
    if deviceInfo not in range(3):
        raise AclnnError(
            ACL_ERROR_INVALID_PARAM, f"deviceInfo: expected an aclDeviceInfo from 0 to 2, got {deviceInfo}"
        )
    return published(deviceInfo, "deviceInfo")


def published(number: int, argument: str) -> int:
    """Return the product's value of an ``aclDeviceInfo``.

    Raises:
        AclnnError: 207000, it is not published.
    """
    name = products.soc_name()
    value = products.cores(name)[number]
    if value is None:
        raise AclnnError(
            ACL_ERROR_RT_FEATURE_NOT_SUPPORT, f"{argument}: expected one that is published for {name}, got {number}"
        )
    return value


@c_function("aclError aclSetCompileopt(aclCompileOpt opt, const char *value)")
def aclSetCompileopt(opt: int, value: str | None) -> None:
    """Set an option of the operator compiler, without effect."""
    if value is None:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, "value: expected a string, got null")
    if opt == _AUTO_TUNE_MODE:
        raise AclnnError(CODES["ACL_ERROR_FEATURE_UNSUPPORTED"], "opt: expected one in use, got ACL_AUTO_TUNE_MODE (2)")
    known = ENUMS["aclCompileOpt"].values()
    if opt not in known:
        raise AclnnError(
            CODES["ACL_ERROR_INTERNAL_ERROR"], f"opt: expected an aclCompileOpt from 0 to {max(known)}, got {opt}"
        )
    _compile_options.current[opt] = value


@c_value_function("size_t aclGetCompileoptSize(aclCompileOpt opt)")
def aclGetCompileoptSize(opt: int) -> int:
    """Return the bytes needed for an option's value, 0 if unset; 256 for ACL_OP_JIT_COMPILE."""
    value = _compile_options.current.get(opt)
    return _JIT_COMPILE_BYTES if opt == _JIT_COMPILE else len(os.fsencode(value)) + 1 if value else 0


@c_function("aclError aclGetCompileopt(aclCompileOpt opt, char *value, size_t length)", buffers=["value"])
def aclGetCompileopt(opt: int, value: int, length: int) -> None:
    """Write ``disable`` for ACL_OP_JIT_COMPILE, or the value set for ACL_OP_DEBUG_OPTION; 200001 for others."""
    memory.expect_address(value, "value")
    readable = {_JIT_COMPILE: "disable", _DEBUG_OPTION: _compile_options.current.get(_DEBUG_OPTION)}
    text = readable.get(opt)
    if text is None:
        raise AclnnError(
            CODES["ACL_ERROR_API_NOT_SUPPORT"],
            f"opt: expected ACL_OP_JIT_COMPILE ({_JIT_COMPILE}), or ACL_OP_DEBUG_OPTION ({_DEBUG_OPTION}) once it is "
            f"set, got {opt}",
        )
    data = os.fsencode(text) + b"\0"
    if length < len(data):
        raise AclnnError(CODES["ACL_ERROR_FAILURE"], f"length: expected at least {len(data)} bytes, got {length}")
    _write("value", value, data)


@c_function(
    "aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion *version)", buffers=["version"]
)
def aclsysGetCANNVersion(name: int, version: int) -> None:
    """Write the version of a package of the claimed release (ACLNN_CANN_VERSION)."""
    if name not in range(len(_PACKAGES)):
        raise AclnnError(
            ACL_ERROR_INVALID_PARAM, f"name: expected an aclCANNPackageName from 0 to {len(_PACKAGES) - 1}, got {name}"
        )
    text = _version_of(_PACKAGES[name], "name")
    parts = (text.split(".", 3) + [""] * 3)[:4]
    fields = [_padded(text, VERSION_BYTES), *(_padded(part, PART_BYTES) for part in parts), bytes(VERSION_BYTES)]
    _write("version", version, b"".join(fields))


@c_function("aclError aclsysGetVersionStr(char *pkgName, char *versionStr)", buffers=["versionStr"])
def aclsysGetVersionStr(pkgName: str | None, versionStr: int) -> None:
    """Write the version of a package of the claimed release (ACLNN_CANN_VERSION): at most 128 bytes."""
    _write("versionStr", versionStr, _padded(_version_of((pkgName or "").lower(), "pkgName"), VERSION_BYTES))


@c_function("aclError aclsysGetVersionNum(char *pkgName, int32_t *versionNum)")
def aclsysGetVersionNum(pkgName: str | None) -> int:
    """Return the version of a package as a number: 9.1.0 is 90100000, less 300 for alpha, 200 for beta, 100 for rc.

    The number of a pre-release is added to that. 500000 for a version of another form.
    """
    text = _version_of((pkgName or "").lower(), "pkgName")
    matched = _VERSION.fullmatch(text.lower())
    if matched is None:
        raise AclnnError(
            CODES["ACL_ERROR_INTERNAL_ERROR"], f"pkgName: expected a version such as 9.1.0 or 9.1.0.rc1, got {text!r}"
        )
    major, minor, patch, stage, stage_number = matched.groups()
    released = int(major) * 10_000_000 + int(minor) * 100_000 + int(patch) * 1000
    return released - _BEFORE_RELEASE.get(stage, 0) + int(stage_number or 0)


def _version_of(package: str, argument: str) -> str:
    known = [name for name in (*_PACKAGES, *_OPERATOR_PACKAGES) if name != _DRIVER]
    if package not in known:
        raise AclnnError(
            ACL_ERROR_INVALID_FILE, f"{argument}: expected one of {', '.join(known)}, got {shown(package)}"
        )
    return os.environ.get("ACLNN_CANN_VERSION") or _CANN_VERSION


def _padded(text: str, nbytes: int) -> bytes:
    return os.fsencode(text)[: nbytes - 1].ljust(nbytes, b"\0")


def _write(argument: str, address: int, data: bytes) -> None:
    if not address:
        raise AclnnError(ACL_ERROR_INVALID_PARAM, f"{argument}: expected an address for the result, got null")
    memory.check_range(address, len(data), argument)
    ctypes.memmove(address, data, len(data))
