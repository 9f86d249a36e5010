"""C headers: each function of the table, each enumeration and each status is declared once."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from aclnn.capi.collectives import CONFIG_MAGIC, NAME_BYTES, ROOT_INFO_BYTES
from aclnn.capi.constants import ENUMS, FLAGS
from aclnn.capi.prototype import CALLBACKS, FUNCTIONS, HANDLES, CFunction
from aclnn.capi.single_operators import UNKNOWN_RANK
from aclnn.capi.system import PART_BYTES, VERSION_BYTES
from aclnn.core.operator import PHASE_ONE, Operator
from aclnn.core.status import CODES
from aclnn.operators.registry import C_OPERATORS
from aclnn.toolkit.rt_aliases import ALIASES

BASE, RUNTIME, ACL = "acl/acl_base.h", "acl/acl_rt.h", "acl/acl.h"
OP, OP_COMPILER = "acl/acl_op.h", "acl/acl_op_compiler.h"
META, ACLNN = "aclnn/acl_meta.h", "aclnn/aclnn_base.h"
LOWER_RUNTIME = "runtime/rt.h"
HCCL, HCCL_TYPES = "hccl/hccl.h", "hccl/hccl_types.h"
#: Headers that include every operator's header: the vendor has one header per field, and all operators share a folder.
OF_A_FIELD = tuple(f"aclnnop/aclnn_ops_{field}.h" for field in ("nn", "math", "cv", "transformer"))

#: Other headers included by samples: files of this package, by their paths in the include folder.
_OF_SAMPLES = {"aclnn/opdev/fp16_t.h": "fp16_t.h", "securec.h": "securec.h"}

#: Functions whose header does not follow from the prefix of their names.
_EXCEPTIONS = {
    RUNTIME: (
        *("aclInit", "aclFinalize", "aclFinalizeReference", "aclGetRecentErrMsg"),
        *("aclInitCallbackRegister", "aclInitCallbackUnRegister"),
        *("aclFinalizeCallbackRegister", "aclFinalizeCallbackUnRegister"),
        *("aclGetDeviceCapability", "aclsysGetCANNVersion", "aclsysGetVersionStr"),
        "aclsysGetVersionNum",
    ),
    OP_COMPILER: (
        *("aclSetCompileopt", "aclGetCompileoptSize", "aclGetCompileopt"),
        *("aclopCompileAndExecute", "aclopCompileAndExecuteV2"),
    ),
    BASE: (
        *("aclDataTypeSize", "aclFloat16ToFloat", "aclFloatToFloat16"),
        *("aclSetTensorFormat", "aclSetTensorShape", "aclSetTensorPlaceMent", "aclSetTensorConst"),
    ),
    ACLNN: ("aclnnInit", "aclnnFinalize"),
    "aclnnop/aclnn_npu_format_cast.h": ("aclnnNpuFormatCastCalculateSizeAndFormat",),
    "aclnnop/aclnn_trans_quant_param.h": ("aclnnTransQuantParam",),
    "aclnnop/aclnn_trans_matmul_weight.h": ("aclnnCalculateMatmulWeightSize", "aclnnCalculateMatmulWeightSizeV2"),
}
_ENUMS_ELSEWHERE = {
    BASE: ("aclDataType", "aclFormat", "aclLogLevel", "aclMemType"),
    OP: ("aclopEngineType", "aclopCompileType"),
    HCCL_TYPES: ("HcclResult", "HcclReduceOp", "HcclDataType", "HcclSendRecvType"),
}
_OPERATOR_HEADERS = {
    name: f"aclnnop/{operator.header}" for operator in C_OPERATORS for name in (operator.function, operator.phase_one)
}
_BASE_OBJECTS, _OP_OBJECTS = ("aclTensorDesc", "aclDataBuffer"), ("aclopAttr",)

_OBJECT = re.compile(r"\b(acl(?:Tensor|Scalar|IntArray|FloatArray|BoolArray|TensorList|ScalarList|OpExecutor))\b")


def header_of(function: CFunction) -> str:
    """Return the header that declares a function, as a program includes it."""
    for header, names in _EXCEPTIONS.items():
        if function.name in names:
            return header
    if any(name.removeprefix("acl") in function.name for name in _BASE_OBJECTS):
        return BASE
    by_prefix = {"aclop": OP, "aclrt": RUNTIME, "aclmdlRI": RUNTIME, "Hccl": HCCL}
    prefix = re.match("aclop|aclrt|aclmdlRI|Hccl|", function.name)
    return _OPERATOR_HEADERS.get(function.name) or by_prefix.get(prefix[0] if prefix else "", META)


def by_header() -> dict[str, list[CFunction]]:
    """Return the functions declared by each header."""
    found: dict[str, list[CFunction]] = {}
    for function in FUNCTIONS.values():
        found.setdefault(header_of(function), []).append(function)
    return found


def texts() -> dict[str, str]:
    """Return every header's text by its path in the include folder."""
    functions = by_header()
    written: dict[str, Callable[[list[CFunction]], str]] = {
        BASE: _base,
        RUNTIME: _runtime,
        OP: _op,
        OP_COMPILER: _op_compiler,
        META: _meta,
        ACLNN: _aclnn,
        HCCL: _hccl,
        HCCL_TYPES: _hccl_types,
    }
    result = {header: _file(header, write(functions.get(header, []))) for header, write in written.items()}
    result[LOWER_RUNTIME] = _file(LOWER_RUNTIME, _lower_runtime())
    result["acl/acl_mdl.h"] = _file("acl/acl_mdl.h", _includes(BASE))
    result[ACL] = _file(ACL, _includes(RUNTIME, OP, "acl/acl_mdl.h"))
    for header, name in _OF_SAMPLES.items():
        result[header] = (Path(__file__).parent / name).read_text(encoding="utf-8")
    described = {operator.function: operator for operator in C_OPERATORS}
    for header, declared in functions.items():
        if header.startswith("aclnnop/"):
            result[header] = _file(header, _operators(declared, described))
    operators = [header for header in result if header.startswith("aclnnop/")]
    return result | {header: _file(header, _includes(*operators)) for header in OF_A_FIELD}


def _file(header: str, body: str) -> str:
    guard = re.sub(r"\W", "_", f"ACLNN_TOOLKIT_{header}").upper()
    return f"#ifndef {guard}\n#define {guard}\n\n{body}\n#endif\n"


def _includes(*headers: str) -> str:
    lines = (f"#include <{header}>" if header.startswith("std") else f'#include "{header}"' for header in headers)
    return "\n".join(lines) + "\n"


def _declarations(functions: Iterable[CFunction], describe: Callable[[CFunction], str] = lambda function: "") -> str:
    declared = "\n".join(f"{describe(function)}{declaration(function)};" for function in functions)
    return _extern_c(declared)


def _extern_c(declared: str) -> str:
    return f'#ifdef __cplusplus\nextern "C" {{\n#endif\n\n{declared}\n\n#ifdef __cplusplus\n}}\n#endif\n'


def declaration(function: CFunction) -> str:
    """Return a function's prototype in C11, without the semicolon."""
    return re.sub(r"\(\s*\)$", "(void)", function.prototype)


def _comment(text: str) -> str:
    lines = textwrap.wrap(text.replace("*/", "* /"), 110, break_long_words=False)
    return "/* " + "\n   ".join(lines) + " */\n"


def _described(function: CFunction) -> str:
    summary = (function.implementation.__doc__ or "").strip().split("\n\n")[0]
    return _comment(" ".join(summary.split())) if summary else ""


def _enumeration(name: str, members: Mapping[str, int]) -> str:
    lines = "".join(f"    {member} = {value},\n" for member, value in members.items()).removesuffix(",\n")
    return f"typedef enum {{\n{lines}\n}} {name};\n"


def _enumerations(names: Iterable[str]) -> str:
    return "\n".join(_enumeration(name, ENUMS[name]) for name in names)


def _opaque(names: Iterable[str]) -> str:
    return "".join(f"typedef struct {name} {name};\n" for name in names)


def _codes(names: Iterable[str], c_type: str) -> str:
    return "".join(f"static const {c_type} {name} = {CODES[name]};\n" for name in names)


def _is_operator_status(name: str) -> bool:
    return name.startswith("ACLNN_") or name == "OK"


def _base(functions: list[CFunction]) -> str:
    handles = "".join(f"typedef void *{name};\n" for name in HANDLES if name.startswith("acl"))
    statuses = _codes((name for name in CODES if not _is_operator_status(name)), "aclError")
    return "\n".join(
        [
            _includes("stdbool.h", "stddef.h", "stdint.h"),
            f"typedef int aclError;\ntypedef uint16_t aclFloat16;\n{handles}{_opaque(_BASE_OBJECTS)}",
            statuses,
            f"#define ACL_UNKNOWN_RANK 0x{UNKNOWN_RANK:X}U\n",
            _enumerations(_ENUMS_ELSEWHERE[BASE]),
            _declarations(functions, _described),
        ]
    )


def _runtime(functions: list[CFunction]) -> str:
    elsewhere = {*itertools.chain(*_ENUMS_ELSEWHERE.values())}
    enumerations = _enumerations(name for name in ENUMS if name not in elsewhere)
    callbacks = "".join(f"typedef {declared};\n" for declared in CALLBACKS.values())
    flags = "".join(f"#define {name} 0x{value:08X}U\n" for name, value in FLAGS.items())
    return "\n".join(
        [
            _includes(BASE),
            enumerations,
            flags,
            callbacks,
            _STRUCTURES,
            _PACKAGE_VERSION,
            _declarations(functions, _described),
        ]
    )


_STRUCTURES = """\
typedef struct aclrtMemLocation {
    uint32_t id;
    aclrtMemLocationType type;
} aclrtMemLocation;

typedef struct aclrtPhysicalMemProp {
    aclrtMemHandleType handleType;
    aclrtMemAllocationType allocationType;
    aclrtMemAttr memAttr;
    aclrtMemLocation location;
    uint64_t reserve;
} aclrtPhysicalMemProp;

typedef union {
    uint16_t moduleId;
    uint32_t deviceId;
    uint32_t vaFlag;
    uint8_t rsv[8];
} aclrtMallocAttrValue;

typedef struct {
    aclrtMallocAttrType attr;
    aclrtMallocAttrValue value;
} aclrtMallocAttribute;

typedef struct {
    aclrtMallocAttribute *attrs;
    size_t numAttrs;
} aclrtMallocConfig;

typedef struct aclrtPtrAttributes {
    aclrtMemLocation location;
    uint32_t pageSize;
    uint32_t rsv[4];
} aclrtPtrAttributes;

typedef struct {
    aclrtMemLocation dstLoc;
    aclrtMemLocation srcLoc;
    uint8_t rsv[16];
} aclrtMemcpyBatchAttr;

typedef struct {
    aclrtCntNotifyRecordMode mode;
    uint32_t value;
} aclrtCntNotifyRecordInfo;

typedef struct {
    aclrtCntNotifyWaitMode mode;
    uint32_t value;
    uint32_t timeout;
    uint8_t isClear;
    uint8_t rsv[3];
} aclrtCntNotifyWaitInfo;

typedef struct aclrtStreamConfigHandle aclrtStreamConfigHandle;

typedef struct aclrtUuid {
    char bytes[16];
} aclrtUuid;

typedef struct aclrtUtilizationExtendInfo aclrtUtilizationExtendInfo;

typedef struct aclrtUtilizationInfo {
    int32_t cubeUtilization;
    int32_t vectorUtilization;
    int32_t aicpuUtilization;
    int32_t memoryUtilization;
    aclrtUtilizationExtendInfo *utilizationExtend;
} aclrtUtilizationInfo;

#define UCE_INFO_RESERVED_SIZE 14
#define ACL_RT_MEM_UCE_INFO_MAX_NUM 20

typedef struct aclrtMemUceInfo {
    void *addr;
    size_t len;
    size_t reserved[UCE_INFO_RESERVED_SIZE];
} aclrtMemUceInfo;

typedef struct {
    size_t arraySize;
    aclrtMemUceInfo memUceInfoArray[ACL_RT_MEM_UCE_INFO_MAX_NUM];
} aclrtMemUceInfoArray;

typedef union aclrtErrorInfoDetail {
    aclrtMemUceInfoArray uceInfo;
    aclrtAicoreErrorType aicoreErrType;
} aclrtErrorInfoDetail;

typedef struct aclrtErrorInfo {
    uint8_t tryRepair;
    uint8_t hasDetail;
    uint8_t reserved[2];
    aclrtErrorType errorType;
    aclrtErrorInfoDetail detail;
} aclrtErrorInfo;

typedef union {
    uint64_t failureMode;
    uint32_t overflowSwitch;
    uint32_t userCustomTag;
    uint32_t cacheOpInfoSwitch;
    uint32_t reserve[4];
} aclrtStreamAttrValue;
"""

_PACKAGE_VERSION = f"""\
#define ACL_PKG_VERSION_MAX_SIZE {VERSION_BYTES}
#define ACL_PKG_VERSION_PARTS_MAX_SIZE {PART_BYTES}

typedef struct aclCANNPackageVersion {{
    char version[ACL_PKG_VERSION_MAX_SIZE];
    char majorVersion[ACL_PKG_VERSION_PARTS_MAX_SIZE];
    char minorVersion[ACL_PKG_VERSION_PARTS_MAX_SIZE];
    char releaseVersion[ACL_PKG_VERSION_PARTS_MAX_SIZE];
    char patchVersion[ACL_PKG_VERSION_PARTS_MAX_SIZE];
    char reserved[ACL_PKG_VERSION_MAX_SIZE];
}} aclCANNPackageVersion;
"""


def _op(functions: list[CFunction]) -> str:
    declared = _opaque(_OP_OBJECTS), _enumerations(_ENUMS_ELSEWHERE[OP]), _declarations(functions, _described)
    return "\n".join([_includes(BASE), *declared])


def _op_compiler(functions: list[CFunction]) -> str:
    return _includes(RUNTIME, OP) + "\n" + _declarations(functions, _described)


def _meta(functions: list[CFunction]) -> str:
    objects = sorted({name for function in FUNCTIONS.values() for name in _OBJECT.findall(function.prototype)})
    statuses = _codes(filter(_is_operator_status, CODES), "aclnnStatus")
    return "\n".join(
        [
            _includes(BASE),
            f"typedef int32_t aclnnStatus;\n{_opaque(objects)}",
            statuses,
            _declarations(functions, _described),
        ]
    )


def _aclnn(functions: list[CFunction]) -> str:
    return _includes(META) + "\n" + _declarations(functions, _described)


def _hccl(functions: list[CFunction]) -> str:
    return "\n".join([_includes(ACL, HCCL_TYPES), _declarations(functions, _described), _HCCL_CONFIG_INIT])


def _hccl_types(functions: list[CFunction]) -> str:
    return "\n".join([_includes("stdint.h"), _enumerations(_ENUMS_ELSEWHERE[HCCL_TYPES]), _HCCL_OBJECTS])


_HCCL_OBJECTS = f"""\
typedef void *HcclComm;

#define HCCL_ROOT_INFO_BYTES {ROOT_INFO_BYTES}
#define COMM_NAME_MAX_LENGTH {NAME_BYTES}
#define UDI_MAX_LENGTH 128
#define HCCL_COMM_CONFIG_INFO_BYTES 24
#define HCCL_COMM_CONFIG_MAGIC_WORD 0x{CONFIG_MAGIC:X}U
#define HCCL_COMM_CONFIG_VERSION 2U
#define HCCL_COMM_BUFFSIZE_CONFIG_NOT_SET 0xFFFFFFFFU
#define HCCL_COMM_DETERMINISTIC_CONFIG_NOT_SET 0xFFFFFFFFU

typedef struct HcclRootInfoDef {{
    char internal[HCCL_ROOT_INFO_BYTES];
}} HcclRootInfo;

typedef struct HcclCommConfigDef {{
    char reserved[HCCL_COMM_CONFIG_INFO_BYTES];
    uint32_t hcclBufferSize;
    uint32_t hcclDeterministic;
    char hcclCommName[COMM_NAME_MAX_LENGTH];
    char hcclUdi[UDI_MAX_LENGTH];
}} HcclCommConfig;

typedef struct HcclSendRecvItemDef {{
    HcclSendRecvType sendRecvType;
    void *buf;
    uint64_t count;
    HcclDataType dataType;
    uint32_t remoteRank;
}} HcclSendRecvItem;
"""

_HCCL_CONFIG_INIT = """\
/* Sets every field to leave the choice to HCCL. */
static inline void HcclCommConfigInit(HcclCommConfig *config)
{
    typedef struct {
        uint64_t size;
        uint32_t magic, version;
        uint64_t reserved;
    } configInfo;
    configInfo *info = (configInfo *)config;

    info->size = sizeof *config;
    info->magic = HCCL_COMM_CONFIG_MAGIC_WORD;
    info->version = HCCL_COMM_CONFIG_VERSION;
    info->reserved = 0;
    config->hcclBufferSize = HCCL_COMM_BUFFSIZE_CONFIG_NOT_SET;
    config->hcclDeterministic = HCCL_COMM_DETERMINISTIC_CONFIG_NOT_SET;
    config->hcclCommName[0] = config->hcclUdi[0] = 0;
}
"""


def _lower_runtime() -> str:
    declared = "\n".join(f"{forward.prototype};" for forward in ALIASES)
    return "\n".join([_includes("stdint.h"), "typedef int32_t rtError_t;\n", _extern_c(declared)])


def _operators(functions: list[CFunction], operators: Mapping[str, Operator]) -> str:

    def describe(function: CFunction) -> str:
        name = function.name.removesuffix(PHASE_ONE)
        if name not in operators:
            return _described(function)
        return _about(operators[name]) if name != function.name else "/* Queues the computation of the executor. */\n"

    return _includes(ACLNN) + "\n" + _declarations(functions, describe)


def _about(operator: Operator) -> str:
    parameters = "; ".join(f"{parameter.name}: {parameter.meaning}" for parameter in operator.parameters)
    return _comment(operator.summary) + _comment(operator.formula) + _comment(parameters)
