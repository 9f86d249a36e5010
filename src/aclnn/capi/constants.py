"""C enumerations and flags of the runtime and of the objects, by name and number."""

from __future__ import annotations

from enum import IntEnum

from aclnn.core.dtypes import DataType, Format
from aclnn.core.status import CODES, HcclResult
from aclnn.runtime import events, graphs


def _count(prefix: str, names: str, first: int = 0) -> dict[str, int]:
    return {prefix + name: number for number, name in enumerate(names.split(), first)}


#: Members of each enumeration.
ENUMS: dict[str, dict[str, int]] = {
    "aclrtMemMallocPolicy": _count(
        "ACL_MEM_MALLOC_",
        "HUGE_FIRST HUGE_ONLY NORMAL_ONLY HUGE_FIRST_P2P HUGE_ONLY_P2P NORMAL_ONLY_P2P HUGE1G_ONLY HUGE1G_ONLY_P2P",
    )
    | {
        "ACL_MEM_TYPE_LOW_BAND_WIDTH": 0x100,
        "ACL_MEM_TYPE_HIGH_BAND_WIDTH": 0x1000,
        "ACL_MEM_ACCESS_USER_SPACE_READONLY": 0x100000,
    },
    "aclrtMemcpyKind": _count(
        "ACL_MEMCPY_",
        "HOST_TO_HOST HOST_TO_DEVICE DEVICE_TO_HOST DEVICE_TO_DEVICE DEFAULT HOST_TO_BUF_TO_DEVICE "
        "INNER_DEVICE_TO_DEVICE INTER_DEVICE_TO_DEVICE",
    ),
    "aclrtRunMode": _count("ACL_", "DEVICE HOST"),
    "aclrtMemAttr": _count(
        "ACL_",
        "DDR_MEM HBM_MEM DDR_MEM_HUGE DDR_MEM_NORMAL HBM_MEM_HUGE HBM_MEM_NORMAL DDR_MEM_P2P_HUGE "
        "DDR_MEM_P2P_NORMAL HBM_MEM_P2P_HUGE HBM_MEM_P2P_NORMAL HBM_MEM_HUGE1G HBM_MEM_P2P_HUGE1G "
        "MEM_NORMAL MEM_HUGE MEM_HUGE1G MEM_P2P_NORMAL MEM_P2P_HUGE MEM_P2P_HUGE1G",
    ),
    "aclrtMemHandleType": _count("ACL_MEM_HANDLE_TYPE_", "NONE") | {"ACL_MEM_HANDLE_TYPE_POSIX": 2},
    "aclrtMemAllocationType": _count("ACL_MEM_ALLOCATION_TYPE_", "PINNED"),
    "aclrtMemLocationType": _count("ACL_MEM_LOCATION_TYPE_", "HOST DEVICE UNREGISTERED MANAGED HOST_NUMA"),
    "aclrtMallocAttrType": _count("ACL_RT_MEM_ATTR_", "RSV MODULE_ID DEVICE_ID VA_FLAG"),
    "aclrtHostRegisterType": {
        "ACL_HOST_REGISTER_MAPPED": 0,
        "ACL_HOST_REGISTER_IOMEMORY": 4,
        "ACL_HOST_REGISTER_READONLY": 8,
    },
    "aclrtMemGranularityOptions": _count("ACL_RT_MEM_ALLOC_GRANULARITY_", "MINIMUM RECOMMENDED")
    | {"ACL_RT_MEM_ALLOC_GRANULARITY_UNDEF": 0xFFFF},
    "aclrtEventStatus": _count("ACL_EVENT_STATUS_", "COMPLETE NOT_READY RESERVED"),
    # In the opposite order of aclrtEventStatus.
    "aclrtEventRecordedStatus": _count("ACL_EVENT_RECORDED_STATUS_", "NOT_READY COMPLETE"),
    "aclrtEventWaitStatus": _count("ACL_EVENT_WAIT_STATUS_", "COMPLETE NOT_READY")
    | {"ACL_EVENT_WAIT_STATUS_RESERVED": 0xFFFF},
    "aclrtStreamStatus": _count("ACL_STREAM_STATUS_", "COMPLETE NOT_READY") | {"ACL_STREAM_STATUS_RESERVED": 0xFFFF},
    "aclrtCmoType": _count("ACL_RT_CMO_TYPE_", "PREFETCH WRITEBACK INVALID FLUSH"),
    "aclrtCntNotifyRecordMode": _count("ACL_RT_CNT_NOTIFY_RECORD_", "SET_VALUE_MODE ADD_MODE BIT_OR_MODE")
    | {"ACL_RT_CNT_NOTIFY_RECORD_BIT_AND_MODE": 4},
    "aclrtCntNotifyWaitMode": _count(
        "ACL_RT_CNT_NOTIFY_WAIT_", "LESS_MODE EQUAL_MODE BIGGER_MODE BIGGER_OR_EQUAL_MODE EQUAL_WITH_BITMASK_MODE"
    ),
    "aclrtCallbackBlockType": _count("ACL_CALLBACK_", "NO_BLOCK BLOCK"),
    "aclRegisterCallbackType": _count(
        "ACL_REG_TYPE_",
        "ACL_MODEL ACL_OP_EXECUTOR ACL_OP_CBLAS ACL_OP_COMPILER ACL_TDT_CHANNEL ACL_TDT_QUEUE ACL_DVPP ACL_RETR",
    )
    | {"ACL_REG_TYPE_OTHER": 0xFFFF},
    "aclrtStreamAttr": _count(
        "ACL_STREAM_ATTR_", "FAILURE_MODE FLOAT_OVERFLOW_CHECK USER_CUSTOM_TAG CACHE_OP_INFO", first=1
    ),
    "aclrtStreamConfigAttr": _count("ACL_RT_STREAM_", "WORK_ADDR_PTR WORK_SIZE FLAG PRIORITY"),
    "aclrtReduceKind": _count("ACL_RT_MEMCPY_SDMA_AUTOMATIC_", "SUM MAX MIN EQUAL", 10),
    "aclmdlRICaptureMode": {f"ACL_MODEL_RI_CAPTURE_MODE_{mode.name}": mode.value for mode in graphs.Mode},
    "aclmdlRICaptureStatus": _count("ACL_MODEL_RI_CAPTURE_STATUS_", "NONE ACTIVE INVALIDATED"),
    "aclrtFloatOverflowMode": _count("ACL_RT_OVERFLOW_MODE_", "SATURATION INFNAN UNDEF"),
    "aclSysParamOpt": _count(
        "ACL_OPT_", "DETERMINISTIC ENABLE_DEBUG_KERNEL STRONG_CONSISTENCY ENABLE_KERNEL_EARLY_START"
    ),
    "aclDeviceInfo": {"ACL_DEVICE_INFO_UNDEFINED": -1}
    | _count("ACL_DEVICE_INFO_", "AI_CORE_NUM VECTOR_CORE_NUM L2_SIZE"),
    "aclrtDevAttr": {"ACL_DEV_ATTR_AICPU_CORE_NUM": 1}
    | _count("ACL_DEV_ATTR_", "AICORE_CORE_NUM CUBE_CORE_NUM", 101)
    | _count("ACL_DEV_ATTR_", "VECTOR_CORE_NUM WARP_SIZE MAX_THREAD_PER_VECTOR_CORE UBUF_PER_VECTOR_CORE", 201)
    | {"ACL_DEV_ATTR_LOCAL_MEM_PER_VECTOR_CORE": 204}
    | _count("ACL_DEV_ATTR_", "TOTAL_GLOBAL_MEM_SIZE L2_CACHE_SIZE", 301)
    | _count("ACL_DEV_ATTR_", "SMP_ID PHY_CHIP_ID SUPER_POD_DEVICE_ID SUPER_POD_SERVER_ID SUPER_POD_ID", 401)
    | _count("ACL_DEV_ATTR_", "CUST_OP_PRIVILEGE MAINBOARD_ID", 406)
    | {"ACL_DEV_ATTR_IS_VIRTUAL": 501, "ACL_DEV_ATTR_NPU_ARCH": 601},
    "aclrtDeviceStatus": _count("ACL_RT_DEVICE_STATUS_", "NORMAL ABNORMAL") | {"ACL_RT_DEVICE_STATUS_END": 0xFFFF},
    "aclrtErrorType": {"ACL_RT_NO_ERROR": 0}
    | _count("ACL_RT_ERROR_", "MEMORY L2 AICORE LINK L3_PORT", 1)
    | {"ACL_RT_ERROR_OTHERS": 0xFFFF},
    "aclrtAicoreErrorType": _count("ACL_RT_AICORE_ERROR_", "UNKNOWN SW HW_LOCAL"),
    "aclrtTsId": _count("ACL_TS_ID_", "AICORE AIVECTOR RESERVED"),
    "aclrtDevResLimitType": _count("ACL_RT_DEV_RES_", "CUBE_CORE VECTOR_CORE"),
    "aclCompileOpt": _count(
        "ACL_",
        "PRECISION_MODE AICORE_NUM AUTO_TUNE_MODE OP_SELECT_IMPL_MODE OPTYPELIST_FOR_IMPLMODE OP_DEBUG_LEVEL DEBUG_DIR "
        "OP_COMPILER_CACHE_MODE OP_COMPILER_CACHE_DIR OP_PERFORMANCE_MODE OP_JIT_COMPILE OP_DETERMINISTIC "
        "CUSTOMIZE_DTYPES OP_PRECISION_MODE ALLOW_HF32 PRECISION_MODE_V2 OP_DEBUG_OPTION",
    ),
    "aclCANNPackageName": _count("ACL_PKG_NAME_", "CANN RUNTIME COMPILER HCCL TOOLKIT OPP OPP_KERNEL DRIVER"),
    "aclrtLastErrLevel": {"ACL_RT_THREAD_LEVEL": 0},
    "aclLogLevel": _count("ACL_", "DEBUG INFO WARNING ERROR"),
    "aclMemType": _count("ACL_MEMTYPE_", "DEVICE HOST HOST_COMPILE_INDEPENDENT"),
    "aclopEngineType": _count("ACL_ENGINE_", "SYS AICORE VECTOR"),
    "aclopCompileType": _count("ACL_COMPILE_", "SYS UNREGISTERED"),
    "HcclResult": {name: int(member) for name, member in HcclResult.__members__.items()},
    "HcclReduceOp": _count("HCCL_REDUCE_", "SUM PROD MAX MIN"),
    "HcclDataType": _count(
        "HCCL_DATA_TYPE_", "INT8 INT16 INT32 FP16 FP32 INT64 UINT64 UINT8 UINT16 UINT32 FP64 BFP16 INT128"
    )
    | _count("HCCL_DATA_TYPE_", "HIF8 FP8E4M3 FP8E5M2 FP8E8M0", 14),
    "HcclSendRecvType": _count("HCCL_", "SEND RECV"),
    "aclDataType": {member.c_name: member.value for member in DataType},
    "aclFormat": {member.c_name: member.value for member in Format},
}

#: Bit flags for ``uint32_t`` arguments.
FLAGS: dict[str, int] = {
    "ACL_EVENT_SYNC": events.SYNC,
    "ACL_EVENT_CAPTURE_STREAM_PROGRESS": events.CAPTURE_STREAM_PROGRESS,
    "ACL_EVENT_TIME_LINE": events.TIME_LINE,
    "ACL_EVENT_DEVICE_USE_ONLY": events.DEVICE_USE_ONLY,
    "ACL_EVENT_EXTERNAL": events.EXTERNAL,
    "ACL_EVENT_IPC": events.IPC,
    "ACL_EVENT_RECORD_DEFAULT": 0,
    "ACL_EVENT_RECORD_EXTERNAL": 1,
    "ACL_EVENT_WAIT_DEFAULT": 0,
    "ACL_EVENT_WAIT_EXTERNAL": 1,
    "ACL_RT_MEM_TYPE_DEV": 0x2,
    "ACL_RT_MEM_TYPE_DVPP": 0x8,
    "ACL_RT_MEM_TYPE_RSVD": 0x10,
    "ACL_STREAM_FAST_LAUNCH": 0x1,
    "ACL_STREAM_FAST_SYNC": 0x2,
    "ACL_STREAM_PERSISTENT": 0x4,
    "ACL_STREAM_HUGE": 0x8,
    "ACL_STREAM_CPU_SCHEDULE": 0x10,
    "ACL_STREAM_DEVICE_USE_ONLY": 0x20,
    "ACL_HOST_REG_MAPPED": 0x2,
    "ACL_HOST_REG_IOMEMORY": 0x4,
    "ACL_HOST_REG_READONLY": 0x8,
    "ACL_HOST_REG_PINNED": 0x10000000,
    "ACL_NOTIFY_DEFAULT": 0x0,
    "ACL_NOTIFY_DEVICE_USE_ONLY": 0x1,
    "ACL_STREAM_WAIT_VALUE_GEQ": 0,
    "ACL_STREAM_WAIT_VALUE_EQ": 1,
    "ACL_STREAM_WAIT_VALUE_AND": 2,
    "ACL_STREAM_WAIT_VALUE_NOR": 3,
    "ACL_CONTINUE_ON_FAILURE": 0,
    "ACL_STOP_ON_FAILURE": 1,
}

#: Enumerations that exist elsewhere in the package.
OWN_TYPES: dict[str, type[IntEnum]] = {"aclDataType": DataType, "aclFormat": Format}
_COUNTED_TYPES: dict[str, type[IntEnum]] = {
    name: IntEnum(name, members, module=__name__)  # type: ignore[misc]  # their names come from the table
    for name, members in ENUMS.items()
    if name not in OWN_TYPES
}
#: Enumerations as Python classes.
ENUM_TYPES = OWN_TYPES | _COUNTED_TYPES

#: Every constant by its C name: enumerators, flags, statuses.
NAMES: dict[str, int] = (
    {name: ENUM_TYPES[enum](value) for enum, members in ENUMS.items() for name, value in members.items()}
    | FLAGS
    | CODES
)
