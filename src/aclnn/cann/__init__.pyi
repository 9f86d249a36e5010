"""Every name of aclnn.cann, made from the declarations by `python -m aclnn.docs stub > src/aclnn/cann/__init__.pyi`."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from aclnn.dtypes import DataType, Format

aclDataType = DataType
aclFormat = Format

class aclrtMemMallocPolicy(IntEnum):
    """The enumeration ``aclrtMemMallocPolicy``."""

    ACL_MEM_MALLOC_HUGE_FIRST = 0
    ACL_MEM_MALLOC_HUGE_ONLY = 1
    ACL_MEM_MALLOC_NORMAL_ONLY = 2
    ACL_MEM_MALLOC_HUGE_FIRST_P2P = 3
    ACL_MEM_MALLOC_HUGE_ONLY_P2P = 4
    ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5
    ACL_MEM_MALLOC_HUGE1G_ONLY = 6
    ACL_MEM_MALLOC_HUGE1G_ONLY_P2P = 7
    ACL_MEM_TYPE_LOW_BAND_WIDTH = 256
    ACL_MEM_TYPE_HIGH_BAND_WIDTH = 4096
    ACL_MEM_ACCESS_USER_SPACE_READONLY = 1048576

class aclrtMemcpyKind(IntEnum):
    """The enumeration ``aclrtMemcpyKind``."""

    ACL_MEMCPY_HOST_TO_HOST = 0
    ACL_MEMCPY_HOST_TO_DEVICE = 1
    ACL_MEMCPY_DEVICE_TO_HOST = 2
    ACL_MEMCPY_DEVICE_TO_DEVICE = 3
    ACL_MEMCPY_DEFAULT = 4
    ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE = 5
    ACL_MEMCPY_INNER_DEVICE_TO_DEVICE = 6
    ACL_MEMCPY_INTER_DEVICE_TO_DEVICE = 7

class aclrtRunMode(IntEnum):
    """The enumeration ``aclrtRunMode``."""

    ACL_DEVICE = 0
    ACL_HOST = 1

class aclrtMemAttr(IntEnum):
    """The enumeration ``aclrtMemAttr``."""

    ACL_DDR_MEM = 0
    ACL_HBM_MEM = 1
    ACL_DDR_MEM_HUGE = 2
    ACL_DDR_MEM_NORMAL = 3
    ACL_HBM_MEM_HUGE = 4
    ACL_HBM_MEM_NORMAL = 5
    ACL_DDR_MEM_P2P_HUGE = 6
    ACL_DDR_MEM_P2P_NORMAL = 7
    ACL_HBM_MEM_P2P_HUGE = 8
    ACL_HBM_MEM_P2P_NORMAL = 9
    ACL_HBM_MEM_HUGE1G = 10
    ACL_HBM_MEM_P2P_HUGE1G = 11
    ACL_MEM_NORMAL = 12
    ACL_MEM_HUGE = 13
    ACL_MEM_HUGE1G = 14
    ACL_MEM_P2P_NORMAL = 15
    ACL_MEM_P2P_HUGE = 16
    ACL_MEM_P2P_HUGE1G = 17

class aclrtEventStatus(IntEnum):
    """The enumeration ``aclrtEventStatus``."""

    ACL_EVENT_STATUS_COMPLETE = 0
    ACL_EVENT_STATUS_NOT_READY = 1
    ACL_EVENT_STATUS_RESERVED = 2

class aclrtEventRecordedStatus(IntEnum):
    """The enumeration ``aclrtEventRecordedStatus``."""

    ACL_EVENT_RECORDED_STATUS_NOT_READY = 0
    ACL_EVENT_RECORDED_STATUS_COMPLETE = 1

class aclrtEventWaitStatus(IntEnum):
    """The enumeration ``aclrtEventWaitStatus``."""

    ACL_EVENT_WAIT_STATUS_COMPLETE = 0
    ACL_EVENT_WAIT_STATUS_NOT_READY = 1
    ACL_EVENT_WAIT_STATUS_RESERVED = 65535

class aclrtStreamStatus(IntEnum):
    """The enumeration ``aclrtStreamStatus``."""

    ACL_STREAM_STATUS_COMPLETE = 0
    ACL_STREAM_STATUS_NOT_READY = 1
    ACL_STREAM_STATUS_RESERVED = 65535

class aclrtFloatOverflowMode(IntEnum):
    """The enumeration ``aclrtFloatOverflowMode``."""

    ACL_RT_OVERFLOW_MODE_SATURATION = 0
    ACL_RT_OVERFLOW_MODE_INFNAN = 1
    ACL_RT_OVERFLOW_MODE_UNDEF = 2

class aclSysParamOpt(IntEnum):
    """The enumeration ``aclSysParamOpt``."""

    ACL_OPT_DETERMINISTIC = 0
    ACL_OPT_ENABLE_DEBUG_KERNEL = 1
    ACL_OPT_STRONG_CONSISTENCY = 2
    ACL_OPT_ENABLE_KERNEL_EARLY_START = 3

class aclDeviceInfo(IntEnum):
    """The enumeration ``aclDeviceInfo``."""

    ACL_DEVICE_INFO_UNDEFINED = -1
    ACL_DEVICE_INFO_AI_CORE_NUM = 0
    ACL_DEVICE_INFO_VECTOR_CORE_NUM = 1
    ACL_DEVICE_INFO_L2_SIZE = 2

class aclCompileOpt(IntEnum):
    """The enumeration ``aclCompileOpt``."""

    ACL_PRECISION_MODE = 0
    ACL_AICORE_NUM = 1
    ACL_AUTO_TUNE_MODE = 2
    ACL_OP_SELECT_IMPL_MODE = 3
    ACL_OPTYPELIST_FOR_IMPLMODE = 4
    ACL_OP_DEBUG_LEVEL = 5
    ACL_DEBUG_DIR = 6
    ACL_OP_COMPILER_CACHE_MODE = 7
    ACL_OP_COMPILER_CACHE_DIR = 8
    ACL_OP_PERFORMANCE_MODE = 9
    ACL_OP_JIT_COMPILE = 10
    ACL_OP_DETERMINISTIC = 11
    ACL_CUSTOMIZE_DTYPES = 12
    ACL_OP_PRECISION_MODE = 13
    ACL_ALLOW_HF32 = 14
    ACL_PRECISION_MODE_V2 = 15
    ACL_OP_DEBUG_OPTION = 16

class aclCANNPackageName(IntEnum):
    """The enumeration ``aclCANNPackageName``."""

    ACL_PKG_NAME_CANN = 0
    ACL_PKG_NAME_RUNTIME = 1
    ACL_PKG_NAME_COMPILER = 2
    ACL_PKG_NAME_HCCL = 3
    ACL_PKG_NAME_TOOLKIT = 4
    ACL_PKG_NAME_OPP = 5
    ACL_PKG_NAME_OPP_KERNEL = 6
    ACL_PKG_NAME_DRIVER = 7

class aclrtLastErrLevel(IntEnum):
    """The enumeration ``aclrtLastErrLevel``."""

    ACL_RT_THREAD_LEVEL = 0

class aclLogLevel(IntEnum):
    """The enumeration ``aclLogLevel``."""

    ACL_DEBUG = 0
    ACL_INFO = 1
    ACL_WARNING = 2
    ACL_ERROR = 3

class aclMemType(IntEnum):
    """The enumeration ``aclMemType``."""

    ACL_MEMTYPE_DEVICE = 0
    ACL_MEMTYPE_HOST = 1

ACL_MEM_MALLOC_HUGE_FIRST: Final = aclrtMemMallocPolicy.ACL_MEM_MALLOC_HUGE_FIRST
ACL_MEM_MALLOC_HUGE_ONLY: Final = aclrtMemMallocPolicy.ACL_MEM_MALLOC_HUGE_ONLY
ACL_MEM_MALLOC_NORMAL_ONLY: Final = aclrtMemMallocPolicy.ACL_MEM_MALLOC_NORMAL_ONLY
ACL_MEM_MALLOC_HUGE_FIRST_P2P: Final = aclrtMemMallocPolicy.ACL_MEM_MALLOC_HUGE_FIRST_P2P
ACL_MEM_MALLOC_HUGE_ONLY_P2P: Final = aclrtMemMallocPolicy.ACL_MEM_MALLOC_HUGE_ONLY_P2P
ACL_MEM_MALLOC_NORMAL_ONLY_P2P: Final = aclrtMemMallocPolicy.ACL_MEM_MALLOC_NORMAL_ONLY_P2P
ACL_MEM_MALLOC_HUGE1G_ONLY: Final = aclrtMemMallocPolicy.ACL_MEM_MALLOC_HUGE1G_ONLY
ACL_MEM_MALLOC_HUGE1G_ONLY_P2P: Final = aclrtMemMallocPolicy.ACL_MEM_MALLOC_HUGE1G_ONLY_P2P
ACL_MEM_TYPE_LOW_BAND_WIDTH: Final = aclrtMemMallocPolicy.ACL_MEM_TYPE_LOW_BAND_WIDTH
ACL_MEM_TYPE_HIGH_BAND_WIDTH: Final = aclrtMemMallocPolicy.ACL_MEM_TYPE_HIGH_BAND_WIDTH
ACL_MEM_ACCESS_USER_SPACE_READONLY: Final = aclrtMemMallocPolicy.ACL_MEM_ACCESS_USER_SPACE_READONLY
ACL_MEMCPY_HOST_TO_HOST: Final = aclrtMemcpyKind.ACL_MEMCPY_HOST_TO_HOST
ACL_MEMCPY_HOST_TO_DEVICE: Final = aclrtMemcpyKind.ACL_MEMCPY_HOST_TO_DEVICE
ACL_MEMCPY_DEVICE_TO_HOST: Final = aclrtMemcpyKind.ACL_MEMCPY_DEVICE_TO_HOST
ACL_MEMCPY_DEVICE_TO_DEVICE: Final = aclrtMemcpyKind.ACL_MEMCPY_DEVICE_TO_DEVICE
ACL_MEMCPY_DEFAULT: Final = aclrtMemcpyKind.ACL_MEMCPY_DEFAULT
ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE: Final = aclrtMemcpyKind.ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE
ACL_MEMCPY_INNER_DEVICE_TO_DEVICE: Final = aclrtMemcpyKind.ACL_MEMCPY_INNER_DEVICE_TO_DEVICE
ACL_MEMCPY_INTER_DEVICE_TO_DEVICE: Final = aclrtMemcpyKind.ACL_MEMCPY_INTER_DEVICE_TO_DEVICE
ACL_DEVICE: Final = aclrtRunMode.ACL_DEVICE
ACL_HOST: Final = aclrtRunMode.ACL_HOST
ACL_DDR_MEM: Final = aclrtMemAttr.ACL_DDR_MEM
ACL_HBM_MEM: Final = aclrtMemAttr.ACL_HBM_MEM
ACL_DDR_MEM_HUGE: Final = aclrtMemAttr.ACL_DDR_MEM_HUGE
ACL_DDR_MEM_NORMAL: Final = aclrtMemAttr.ACL_DDR_MEM_NORMAL
ACL_HBM_MEM_HUGE: Final = aclrtMemAttr.ACL_HBM_MEM_HUGE
ACL_HBM_MEM_NORMAL: Final = aclrtMemAttr.ACL_HBM_MEM_NORMAL
ACL_DDR_MEM_P2P_HUGE: Final = aclrtMemAttr.ACL_DDR_MEM_P2P_HUGE
ACL_DDR_MEM_P2P_NORMAL: Final = aclrtMemAttr.ACL_DDR_MEM_P2P_NORMAL
ACL_HBM_MEM_P2P_HUGE: Final = aclrtMemAttr.ACL_HBM_MEM_P2P_HUGE
ACL_HBM_MEM_P2P_NORMAL: Final = aclrtMemAttr.ACL_HBM_MEM_P2P_NORMAL
ACL_HBM_MEM_HUGE1G: Final = aclrtMemAttr.ACL_HBM_MEM_HUGE1G
ACL_HBM_MEM_P2P_HUGE1G: Final = aclrtMemAttr.ACL_HBM_MEM_P2P_HUGE1G
ACL_MEM_NORMAL: Final = aclrtMemAttr.ACL_MEM_NORMAL
ACL_MEM_HUGE: Final = aclrtMemAttr.ACL_MEM_HUGE
ACL_MEM_HUGE1G: Final = aclrtMemAttr.ACL_MEM_HUGE1G
ACL_MEM_P2P_NORMAL: Final = aclrtMemAttr.ACL_MEM_P2P_NORMAL
ACL_MEM_P2P_HUGE: Final = aclrtMemAttr.ACL_MEM_P2P_HUGE
ACL_MEM_P2P_HUGE1G: Final = aclrtMemAttr.ACL_MEM_P2P_HUGE1G
ACL_EVENT_STATUS_COMPLETE: Final = aclrtEventStatus.ACL_EVENT_STATUS_COMPLETE
ACL_EVENT_STATUS_NOT_READY: Final = aclrtEventStatus.ACL_EVENT_STATUS_NOT_READY
ACL_EVENT_STATUS_RESERVED: Final = aclrtEventStatus.ACL_EVENT_STATUS_RESERVED
ACL_EVENT_RECORDED_STATUS_NOT_READY: Final = aclrtEventRecordedStatus.ACL_EVENT_RECORDED_STATUS_NOT_READY
ACL_EVENT_RECORDED_STATUS_COMPLETE: Final = aclrtEventRecordedStatus.ACL_EVENT_RECORDED_STATUS_COMPLETE
ACL_EVENT_WAIT_STATUS_COMPLETE: Final = aclrtEventWaitStatus.ACL_EVENT_WAIT_STATUS_COMPLETE
ACL_EVENT_WAIT_STATUS_NOT_READY: Final = aclrtEventWaitStatus.ACL_EVENT_WAIT_STATUS_NOT_READY
ACL_EVENT_WAIT_STATUS_RESERVED: Final = aclrtEventWaitStatus.ACL_EVENT_WAIT_STATUS_RESERVED
ACL_STREAM_STATUS_COMPLETE: Final = aclrtStreamStatus.ACL_STREAM_STATUS_COMPLETE
ACL_STREAM_STATUS_NOT_READY: Final = aclrtStreamStatus.ACL_STREAM_STATUS_NOT_READY
ACL_STREAM_STATUS_RESERVED: Final = aclrtStreamStatus.ACL_STREAM_STATUS_RESERVED
ACL_RT_OVERFLOW_MODE_SATURATION: Final = aclrtFloatOverflowMode.ACL_RT_OVERFLOW_MODE_SATURATION
ACL_RT_OVERFLOW_MODE_INFNAN: Final = aclrtFloatOverflowMode.ACL_RT_OVERFLOW_MODE_INFNAN
ACL_RT_OVERFLOW_MODE_UNDEF: Final = aclrtFloatOverflowMode.ACL_RT_OVERFLOW_MODE_UNDEF
ACL_OPT_DETERMINISTIC: Final = aclSysParamOpt.ACL_OPT_DETERMINISTIC
ACL_OPT_ENABLE_DEBUG_KERNEL: Final = aclSysParamOpt.ACL_OPT_ENABLE_DEBUG_KERNEL
ACL_OPT_STRONG_CONSISTENCY: Final = aclSysParamOpt.ACL_OPT_STRONG_CONSISTENCY
ACL_OPT_ENABLE_KERNEL_EARLY_START: Final = aclSysParamOpt.ACL_OPT_ENABLE_KERNEL_EARLY_START
ACL_DEVICE_INFO_UNDEFINED: Final = aclDeviceInfo.ACL_DEVICE_INFO_UNDEFINED
ACL_DEVICE_INFO_AI_CORE_NUM: Final = aclDeviceInfo.ACL_DEVICE_INFO_AI_CORE_NUM
ACL_DEVICE_INFO_VECTOR_CORE_NUM: Final = aclDeviceInfo.ACL_DEVICE_INFO_VECTOR_CORE_NUM
ACL_DEVICE_INFO_L2_SIZE: Final = aclDeviceInfo.ACL_DEVICE_INFO_L2_SIZE
ACL_PRECISION_MODE: Final = aclCompileOpt.ACL_PRECISION_MODE
ACL_AICORE_NUM: Final = aclCompileOpt.ACL_AICORE_NUM
ACL_AUTO_TUNE_MODE: Final = aclCompileOpt.ACL_AUTO_TUNE_MODE
ACL_OP_SELECT_IMPL_MODE: Final = aclCompileOpt.ACL_OP_SELECT_IMPL_MODE
ACL_OPTYPELIST_FOR_IMPLMODE: Final = aclCompileOpt.ACL_OPTYPELIST_FOR_IMPLMODE
ACL_OP_DEBUG_LEVEL: Final = aclCompileOpt.ACL_OP_DEBUG_LEVEL
ACL_DEBUG_DIR: Final = aclCompileOpt.ACL_DEBUG_DIR
ACL_OP_COMPILER_CACHE_MODE: Final = aclCompileOpt.ACL_OP_COMPILER_CACHE_MODE
ACL_OP_COMPILER_CACHE_DIR: Final = aclCompileOpt.ACL_OP_COMPILER_CACHE_DIR
ACL_OP_PERFORMANCE_MODE: Final = aclCompileOpt.ACL_OP_PERFORMANCE_MODE
ACL_OP_JIT_COMPILE: Final = aclCompileOpt.ACL_OP_JIT_COMPILE
ACL_OP_DETERMINISTIC: Final = aclCompileOpt.ACL_OP_DETERMINISTIC
ACL_CUSTOMIZE_DTYPES: Final = aclCompileOpt.ACL_CUSTOMIZE_DTYPES
ACL_OP_PRECISION_MODE: Final = aclCompileOpt.ACL_OP_PRECISION_MODE
ACL_ALLOW_HF32: Final = aclCompileOpt.ACL_ALLOW_HF32
ACL_PRECISION_MODE_V2: Final = aclCompileOpt.ACL_PRECISION_MODE_V2
ACL_OP_DEBUG_OPTION: Final = aclCompileOpt.ACL_OP_DEBUG_OPTION
ACL_PKG_NAME_CANN: Final = aclCANNPackageName.ACL_PKG_NAME_CANN
ACL_PKG_NAME_RUNTIME: Final = aclCANNPackageName.ACL_PKG_NAME_RUNTIME
ACL_PKG_NAME_COMPILER: Final = aclCANNPackageName.ACL_PKG_NAME_COMPILER
ACL_PKG_NAME_HCCL: Final = aclCANNPackageName.ACL_PKG_NAME_HCCL
ACL_PKG_NAME_TOOLKIT: Final = aclCANNPackageName.ACL_PKG_NAME_TOOLKIT
ACL_PKG_NAME_OPP: Final = aclCANNPackageName.ACL_PKG_NAME_OPP
ACL_PKG_NAME_OPP_KERNEL: Final = aclCANNPackageName.ACL_PKG_NAME_OPP_KERNEL
ACL_PKG_NAME_DRIVER: Final = aclCANNPackageName.ACL_PKG_NAME_DRIVER
ACL_RT_THREAD_LEVEL: Final = aclrtLastErrLevel.ACL_RT_THREAD_LEVEL
ACL_DEBUG: Final = aclLogLevel.ACL_DEBUG
ACL_INFO: Final = aclLogLevel.ACL_INFO
ACL_WARNING: Final = aclLogLevel.ACL_WARNING
ACL_ERROR: Final = aclLogLevel.ACL_ERROR
ACL_MEMTYPE_DEVICE: Final = aclMemType.ACL_MEMTYPE_DEVICE
ACL_MEMTYPE_HOST: Final = aclMemType.ACL_MEMTYPE_HOST
ACL_DT_UNDEFINED: Final = aclDataType.DT_UNDEFINED
ACL_FLOAT: Final = aclDataType.FLOAT
ACL_FLOAT16: Final = aclDataType.FLOAT16
ACL_INT8: Final = aclDataType.INT8
ACL_INT32: Final = aclDataType.INT32
ACL_UINT8: Final = aclDataType.UINT8
ACL_INT16: Final = aclDataType.INT16
ACL_UINT16: Final = aclDataType.UINT16
ACL_UINT32: Final = aclDataType.UINT32
ACL_INT64: Final = aclDataType.INT64
ACL_UINT64: Final = aclDataType.UINT64
ACL_DOUBLE: Final = aclDataType.DOUBLE
ACL_BOOL: Final = aclDataType.BOOL
ACL_STRING: Final = aclDataType.STRING
ACL_COMPLEX64: Final = aclDataType.COMPLEX64
ACL_COMPLEX128: Final = aclDataType.COMPLEX128
ACL_BF16: Final = aclDataType.BF16
ACL_INT4: Final = aclDataType.INT4
ACL_UINT1: Final = aclDataType.UINT1
ACL_COMPLEX32: Final = aclDataType.COMPLEX32
ACL_HIFLOAT8: Final = aclDataType.HIFLOAT8
ACL_FLOAT8_E5M2: Final = aclDataType.FLOAT8_E5M2
ACL_FLOAT8_E4M3FN: Final = aclDataType.FLOAT8_E4M3FN
ACL_FLOAT8_E8M0: Final = aclDataType.FLOAT8_E8M0
ACL_FLOAT6_E3M2: Final = aclDataType.FLOAT6_E3M2
ACL_FLOAT6_E2M3: Final = aclDataType.FLOAT6_E2M3
ACL_FLOAT4_E2M1: Final = aclDataType.FLOAT4_E2M1
ACL_FLOAT4_E1M2: Final = aclDataType.FLOAT4_E1M2
ACL_FORMAT_UNDEFINED: Final = aclFormat.FORMAT_UNDEFINED
ACL_FORMAT_NCHW: Final = aclFormat.FORMAT_NCHW
ACL_FORMAT_NHWC: Final = aclFormat.FORMAT_NHWC
ACL_FORMAT_ND: Final = aclFormat.FORMAT_ND
ACL_FORMAT_NC1HWC0: Final = aclFormat.FORMAT_NC1HWC0
ACL_FORMAT_FRACTAL_Z: Final = aclFormat.FORMAT_FRACTAL_Z
ACL_FORMAT_NC1HWC0_C04: Final = aclFormat.FORMAT_NC1HWC0_C04
ACL_FORMAT_HWCN: Final = aclFormat.FORMAT_HWCN
ACL_FORMAT_NDHWC: Final = aclFormat.FORMAT_NDHWC
ACL_FORMAT_FRACTAL_NZ: Final = aclFormat.FORMAT_FRACTAL_NZ
ACL_FORMAT_NCDHW: Final = aclFormat.FORMAT_NCDHW
ACL_FORMAT_NDC1HWC0: Final = aclFormat.FORMAT_NDC1HWC0
ACL_FRACTAL_Z_3D: Final = aclFormat.FRACTAL_Z_3D
ACL_FORMAT_NC: Final = aclFormat.FORMAT_NC
ACL_FORMAT_NCL: Final = aclFormat.FORMAT_NCL
ACL_FORMAT_FRACTAL_NZ_C0_16: Final = aclFormat.FORMAT_FRACTAL_NZ_C0_16
ACL_FORMAT_FRACTAL_NZ_C0_32: Final = aclFormat.FORMAT_FRACTAL_NZ_C0_32
ACL_FORMAT_FRACTAL_NZ_C0_2: Final = aclFormat.FORMAT_FRACTAL_NZ_C0_2
ACL_FORMAT_FRACTAL_NZ_C0_4: Final = aclFormat.FORMAT_FRACTAL_NZ_C0_4
ACL_FORMAT_FRACTAL_NZ_C0_8: Final = aclFormat.FORMAT_FRACTAL_NZ_C0_8
ACL_EVENT_SYNC: Final = 1
ACL_EVENT_CAPTURE_STREAM_PROGRESS: Final = 2
ACL_EVENT_TIME_LINE: Final = 8
ACL_EVENT_DEVICE_USE_ONLY: Final = 16
ACL_EVENT_EXTERNAL: Final = 32
ACL_EVENT_IPC: Final = 64
ACL_STREAM_FAST_LAUNCH: Final = 1
ACL_STREAM_FAST_SYNC: Final = 2
ACL_STREAM_PERSISTENT: Final = 4
ACL_STREAM_HUGE: Final = 8
ACL_STREAM_CPU_SCHEDULE: Final = 16
ACL_STREAM_DEVICE_USE_ONLY: Final = 32
ACL_SUCCESS: Final = 0
ACL_ERROR_NONE: Final = 0
ACLNN_SUCCESS: Final = 0
OK: Final = 0
ACLNN_ERR_PARAM_NULLPTR: Final = 161001
ACLNN_ERR_PARAM_INVALID: Final = 161002
ACLNN_ERR_RUNTIME_ERROR: Final = 361001
ACLNN_ERR_INNER: Final = 561000
ACLNN_ERR_INNER_INFERSHAPE_ERROR: Final = 561001
ACLNN_ERR_INNER_TILING_ERROR: Final = 561002
ACLNN_ERR_INNER_FIND_KERNEL_ERROR: Final = 561003
ACLNN_ERR_INNER_CREATE_EXECUTOR: Final = 561101
ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR: Final = 561102
ACLNN_ERR_INNER_NULLPTR: Final = 561103
ACLNN_ERR_INNER_WRONG_ATTR_INFO_SIZE: Final = 561104
ACLNN_ERR_INNER_KEY_CONFLICT: Final = 561105
ACLNN_ERR_INNER_INVALID_IMPL_MODE: Final = 561106
ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND: Final = 561107
ACLNN_ERR_INNER_LOAD_JSON_FAILED: Final = 561108
ACLNN_ERR_INNER_JSON_VALUE_NOT_FOUND: Final = 561109
ACLNN_ERR_INNER_JSON_FORMAT_INVALID: Final = 561110
ACLNN_ERR_INNER_JSON_DTYPE_INVALID: Final = 561111
ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND: Final = 561112
ACLNN_ERR_INNER_OP_FILE_INVALID: Final = 561113
ACLNN_ERR_INNER_ATTR_NUM_OUT_OF_BOUND: Final = 561114
ACLNN_ERR_INNER_ATTR_LEN_NOT_ENOUGH: Final = 561115
ACLNN_ERR_INNER_INPUT_NUM_IN_JSON_TOO_LARGE: Final = 561116
ACLNN_ERR_INNER_INPUT_JSON_IS_NULL: Final = 561117
ACLNN_ERR_INNER_STATIC_WORKSPACE_INVALID: Final = 561118
ACLNN_ERR_INNER_STATIC_BLOCK_DIM_INVALID: Final = 561119
ACL_ERROR_INVALID_PARAM: Final = 100000
ACL_ERROR_UNINITIALIZE: Final = 100001
ACL_ERROR_REPEAT_INITIALIZE: Final = 100002
ACL_ERROR_INVALID_FILE: Final = 100003
ACL_ERROR_WRITE_FILE: Final = 100004
ACL_ERROR_INVALID_FILE_SIZE: Final = 100005
ACL_ERROR_PARSE_FILE: Final = 100006
ACL_ERROR_FILE_MISSING_ATTR: Final = 100007
ACL_ERROR_FILE_ATTR_INVALID: Final = 100008
ACL_ERROR_INVALID_DUMP_CONFIG: Final = 100009
ACL_ERROR_INVALID_PROFILING_CONFIG: Final = 100010
ACL_ERROR_INVALID_MODEL_ID: Final = 100011
ACL_ERROR_DESERIALIZE_MODEL: Final = 100012
ACL_ERROR_PARSE_MODEL: Final = 100013
ACL_ERROR_READ_MODEL_FAILURE: Final = 100014
ACL_ERROR_MODEL_SIZE_INVALID: Final = 100015
ACL_ERROR_MODEL_MISSING_ATTR: Final = 100016
ACL_ERROR_MODEL_INPUT_NOT_MATCH: Final = 100017
ACL_ERROR_MODEL_OUTPUT_NOT_MATCH: Final = 100018
ACL_ERROR_MODEL_NOT_DYNAMIC: Final = 100019
ACL_ERROR_OP_TYPE_NOT_MATCH: Final = 100020
ACL_ERROR_OP_INPUT_NOT_MATCH: Final = 100021
ACL_ERROR_OP_OUTPUT_NOT_MATCH: Final = 100022
ACL_ERROR_OP_ATTR_NOT_MATCH: Final = 100023
ACL_ERROR_OP_NOT_FOUND: Final = 100024
ACL_ERROR_OP_LOAD_FAILED: Final = 100025
ACL_ERROR_UNSUPPORTED_DATA_TYPE: Final = 100026
ACL_ERROR_FORMAT_NOT_MATCH: Final = 100027
ACL_ERROR_BIN_SELECTOR_NOT_REGISTERED: Final = 100028
ACL_ERROR_KERNEL_NOT_FOUND: Final = 100029
ACL_ERROR_BIN_SELECTOR_ALREADY_REGISTERED: Final = 100030
ACL_ERROR_KERNEL_ALREADY_REGISTERED: Final = 100031
ACL_ERROR_INVALID_QUEUE_ID: Final = 100032
ACL_ERROR_REPEAT_SUBSCRIBE: Final = 100033
ACL_ERROR_STREAM_NOT_SUBSCRIBE: Final = 100034
ACL_ERROR_THREAD_NOT_SUBSCRIBE: Final = 100035
ACL_ERROR_WAIT_CALLBACK_TIMEOUT: Final = 100036
ACL_ERROR_REPEAT_FINALIZE: Final = 100037
ACL_ERROR_NOT_STATIC_AIPP: Final = 100038
ACL_ERROR_COMPILING_STUB_MODE: Final = 100039
ACL_ERROR_GROUP_NOT_SET: Final = 100040
ACL_ERROR_GROUP_NOT_CREATE: Final = 100041
ACL_ERROR_PROF_ALREADY_RUN: Final = 100042
ACL_ERROR_PROF_NOT_RUN: Final = 100043
ACL_ERROR_DUMP_ALREADY_RUN: Final = 100044
ACL_ERROR_DUMP_NOT_RUN: Final = 100045
ACL_ERROR_PROF_REPEAT_SUBSCRIBE: Final = 148046
ACL_ERROR_PROF_API_CONFLICT: Final = 148047
ACL_ERROR_INVALID_MAX_OPQUEUE_NUM_CONFIG: Final = 148048
ACL_ERROR_INVALID_OPP_PATH: Final = 148049
ACL_ERROR_OP_UNSUPPORTED_DYNAMIC: Final = 148050
ACL_ERROR_RELATIVE_RESOURCE_NOT_CLEARED: Final = 148051
ACL_ERROR_UNSUPPORTED_JPEG: Final = 148052
ACL_ERROR_INVALID_BUNDLE_MODEL_ID: Final = 148053
ACL_ERROR_BAD_ALLOC: Final = 200000
ACL_ERROR_API_NOT_SUPPORT: Final = 200001
ACL_ERROR_INVALID_DEVICE: Final = 200002
ACL_ERROR_MEMORY_ADDRESS_UNALIGNED: Final = 200003
ACL_ERROR_RESOURCE_NOT_MATCH: Final = 200004
ACL_ERROR_INVALID_RESOURCE_HANDLE: Final = 200005
ACL_ERROR_FEATURE_UNSUPPORTED: Final = 200006
ACL_ERROR_PROF_MODULES_UNSUPPORTED: Final = 200007
ACL_ERROR_STORAGE_OVER_LIMIT: Final = 300000
ACL_ERROR_INTERNAL_ERROR: Final = 500000
ACL_ERROR_FAILURE: Final = 500001
ACL_ERROR_GE_FAILURE: Final = 500002
ACL_ERROR_RT_FAILURE: Final = 500003
ACL_ERROR_DRV_FAILURE: Final = 500004
ACL_ERROR_PROFILING_FAILURE: Final = 500005
ACL_ERROR_STREAM_CAPTURE_CONFLICT: Final = 107032
ACL_ERROR_STREAM_TASK_GROUP_STATUS: Final = 107033
ACL_ERROR_STREAM_TASK_GROUP_INTR: Final = 107034
ACL_ERROR_SNAPSHOT_LOCK_TIMEOUT: Final = 507905
ACL_ERROR_SNAPSHOT_LOCK_FAILED: Final = 507906
ACL_ERROR_SNAPSHOT_UNLOCK_FAILED: Final = 507907
ACL_ERROR_SNAPSHOT_BACKUP_FAILED: Final = 507908
ACL_ERROR_SNAPSHOT_RESTORE_FAILED: Final = 507909
ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED: Final = 507910
ACL_ERROR_HOST_MEMORY_NOT_REGISTERED: Final = 507911
ACL_ERROR_SNAPSHOT_CALLBACK_FAILED: Final = 507912
ACL_ERROR_SNAPSHOT_REGISTER_CALLBACK_FAILED: Final = 507913
ACL_ERROR_RT_PARAM_INVALID: Final = 107000
ACL_ERROR_RT_INVALID_DEVICEID: Final = 107001
ACL_ERROR_RT_CONTEXT_NULL: Final = 107002
ACL_ERROR_RT_STREAM_CONTEXT: Final = 107003
ACL_ERROR_RT_MODEL_CONTEXT: Final = 107004
ACL_ERROR_RT_STREAM_MODEL: Final = 107005
ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID: Final = 107006
ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL: Final = 107007
ACL_ERROR_RT_ADDR_UNALIGNED: Final = 107008
ACL_ERROR_RT_FILE_OPEN: Final = 107009
ACL_ERROR_RT_FILE_WRITE: Final = 107010
ACL_ERROR_RT_STREAM_SUBSCRIBE: Final = 107011
ACL_ERROR_RT_THREAD_SUBSCRIBE: Final = 107012
ACL_ERROR_RT_GROUP_NOT_SET: Final = 107013
ACL_ERROR_RT_GROUP_NOT_CREATE: Final = 107014
ACL_ERROR_RT_STREAM_NO_CB_REG: Final = 107015
ACL_ERROR_RT_INVALID_MEMORY_TYPE: Final = 107016
ACL_ERROR_RT_INVALID_HANDLE: Final = 107017
ACL_ERROR_RT_INVALID_MALLOC_TYPE: Final = 107018
ACL_ERROR_RT_WAIT_TIMEOUT: Final = 107019
ACL_ERROR_RT_TASK_TIMEOUT: Final = 107020
ACL_ERROR_RT_SYSPARAMOPT_NOT_SET: Final = 107021
ACL_ERROR_RT_DEVICE_TASK_ABORT: Final = 107022
ACL_ERROR_RT_STREAM_ABORT: Final = 107023
ACL_ERROR_RT_CAPTURE_DEPENDENCY: Final = 107024
ACL_ERROR_RT_STREAM_UNJOINED: Final = 107025
ACL_ERROR_RT_MODEL_CAPTURED: Final = 107026
ACL_ERROR_RT_STREAM_CAPTURED: Final = 107027
ACL_ERROR_RT_EVENT_CAPTURED: Final = 107028
ACL_ERROR_RT_STREAM_NOT_CAPTURED: Final = 107029
ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT: Final = 107030
ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT: Final = 107031
ACL_ERROR_RT_TASK_ABORT_STOP: Final = 107035
ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED: Final = 107036
ACL_ERROR_RT_MODEL_RUNNING: Final = 107037
ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD: Final = 107038
ACL_ERROR_RT_INSUFFICIENT_INPUT_ARRAY: Final = 107039
ACL_ERROR_RT_MODEL_UPDATE_FAILED: Final = 107040
ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC: Final = 107041
ACL_ERROR_RT_SYMBOL_NOT_FOUND: Final = 107042
ACL_ERROR_RT_INVALID_SYMBOL: Final = 107043
ACL_ERROR_RT_INVALID_DEVICE_FUNCTION: Final = 107044
ACL_ERROR_RT_SUB_ACLGRAPH_IS_CAPTURING: Final = 107045
ACL_ERROR_RT_FEATURE_NOT_SUPPORT: Final = 207000
ACL_ERROR_RT_MEMORY_ALLOCATION: Final = 207001
ACL_ERROR_RT_MEMORY_FREE: Final = 207002
ACL_ERROR_RT_AICORE_OVER_FLOW: Final = 207003
ACL_ERROR_RT_NO_DEVICE: Final = 207004
ACL_ERROR_RT_RESOURCE_ALLOC_FAIL: Final = 207005
ACL_ERROR_RT_NO_PERMISSION: Final = 207006
ACL_ERROR_RT_NO_EVENT_RESOURCE: Final = 207007
ACL_ERROR_RT_NO_STREAM_RESOURCE: Final = 207008
ACL_ERROR_RT_NO_NOTIFY_RESOURCE: Final = 207009
ACL_ERROR_RT_NO_MODEL_RESOURCE: Final = 207010
ACL_ERROR_RT_NO_CDQ_RESOURCE: Final = 207011
ACL_ERROR_RT_OVER_LIMIT: Final = 207012
ACL_ERROR_RT_QUEUE_EMPTY: Final = 207013
ACL_ERROR_RT_QUEUE_FULL: Final = 207014
ACL_ERROR_RT_REPEATED_INIT: Final = 207015
ACL_ERROR_RT_AIVEC_OVER_FLOW: Final = 207016
ACL_ERROR_RT_OVER_FLOW: Final = 207017
ACL_ERROR_RT_DEVICE_OOM: Final = 207018
ACL_ERROR_RT_FEATURE_NOT_SUPPORT_UPDATE_OP: Final = 207019
ACL_ERROR_RT_TIMEOUT: Final = 207020
ACL_ERROR_RT_LINK_TYPE_NOT_SUPPORTED: Final = 207021
ACL_ERROR_RT_INTERNAL_ERROR: Final = 507000
ACL_ERROR_RT_TS_ERROR: Final = 507001
ACL_ERROR_RT_STREAM_TASK_FULL: Final = 507002
ACL_ERROR_RT_STREAM_TASK_EMPTY: Final = 507003
ACL_ERROR_RT_STREAM_NOT_COMPLETE: Final = 507004
ACL_ERROR_RT_END_OF_SEQUENCE: Final = 507005
ACL_ERROR_RT_EVENT_NOT_COMPLETE: Final = 507006
ACL_ERROR_RT_CONTEXT_RELEASE_ERROR: Final = 507007
ACL_ERROR_RT_SOC_VERSION: Final = 507008
ACL_ERROR_RT_TASK_TYPE_NOT_SUPPORT: Final = 507009
ACL_ERROR_RT_LOST_HEARTBEAT: Final = 507010
ACL_ERROR_RT_MODEL_EXECUTE: Final = 507011
ACL_ERROR_RT_REPORT_TIMEOUT: Final = 507012
ACL_ERROR_RT_SYS_DMA: Final = 507013
ACL_ERROR_RT_AICORE_TIMEOUT: Final = 507014
ACL_ERROR_RT_AICORE_EXCEPTION: Final = 507015
ACL_ERROR_RT_AICORE_TRAP_EXCEPTION: Final = 507016
ACL_ERROR_RT_AICPU_TIMEOUT: Final = 507017
ACL_ERROR_RT_AICPU_EXCEPTION: Final = 507018
ACL_ERROR_RT_AICPU_DATADUMP_RSP_ERR: Final = 507019
ACL_ERROR_RT_AICPU_MODEL_RSP_ERR: Final = 507020
ACL_ERROR_RT_PROFILING_ERROR: Final = 507021
ACL_ERROR_RT_IPC_ERROR: Final = 507022
ACL_ERROR_RT_MODEL_ABORT_NORMAL: Final = 507023
ACL_ERROR_RT_KERNEL_UNREGISTERING: Final = 507024
ACL_ERROR_RT_RINGBUFFER_NOT_INIT: Final = 507025
ACL_ERROR_RT_RINGBUFFER_NO_DATA: Final = 507026
ACL_ERROR_RT_KERNEL_LOOKUP: Final = 507027
ACL_ERROR_RT_KERNEL_DUPLICATE: Final = 507028
ACL_ERROR_RT_DEBUG_REGISTER_FAIL: Final = 507029
ACL_ERROR_RT_DEBUG_UNREGISTER_FAIL: Final = 507030
ACL_ERROR_RT_LABEL_CONTEXT: Final = 507031
ACL_ERROR_RT_PROGRAM_USE_OUT: Final = 507032
ACL_ERROR_RT_DEV_SETUP_ERROR: Final = 507033
ACL_ERROR_RT_VECTOR_CORE_TIMEOUT: Final = 507034
ACL_ERROR_RT_VECTOR_CORE_EXCEPTION: Final = 507035
ACL_ERROR_RT_VECTOR_CORE_TRAP_EXCEPTION: Final = 507036
ACL_ERROR_RT_CDQ_BATCH_ABNORMAL: Final = 507037
ACL_ERROR_RT_DIE_MODE_CHANGE_ERROR: Final = 507038
ACL_ERROR_RT_DIE_SET_ERROR: Final = 507039
ACL_ERROR_RT_INVALID_DIEID: Final = 507040
ACL_ERROR_RT_DIE_MODE_NOT_SET: Final = 507041
ACL_ERROR_RT_AICORE_TRAP_READ_OVERFLOW: Final = 507042
ACL_ERROR_RT_AICORE_TRAP_WRITE_OVERFLOW: Final = 507043
ACL_ERROR_RT_VECTOR_CORE_TRAP_READ_OVERFLOW: Final = 507044
ACL_ERROR_RT_VECTOR_CORE_TRAP_WRITE_OVERFLOW: Final = 507045
ACL_ERROR_RT_STREAM_SYNC_TIMEOUT: Final = 507046
ACL_ERROR_RT_EVENT_SYNC_TIMEOUT: Final = 507047
ACL_ERROR_RT_FFTS_PLUS_TIMEOUT: Final = 507048
ACL_ERROR_RT_FFTS_PLUS_EXCEPTION: Final = 507049
ACL_ERROR_RT_FFTS_PLUS_TRAP_EXCEPTION: Final = 507050
ACL_ERROR_RT_SEND_MSG: Final = 507051
ACL_ERROR_RT_COPY_DATA: Final = 507052
ACL_ERROR_RT_DEVICE_MEM_ERROR: Final = 507053
ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR: Final = 507054
ACL_ERROR_RT_SUSPECT_DEVICE_MEM_ERROR: Final = 507055
ACL_ERROR_RT_LINK_ERROR: Final = 507056
ACL_ERROR_RT_SUSPECT_REMOTE_ERROR: Final = 507057
ACL_ERROR_RT_DRV_INTERNAL_ERROR: Final = 507899
ACL_ERROR_RT_AICPU_INTERNAL_ERROR: Final = 507900
ACL_ERROR_RT_SOCKET_CLOSE: Final = 507901
ACL_ERROR_RT_AICPU_INFO_LOAD_RSP_ERR: Final = 507902
ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED: Final = 507903
ACL_ERROR_RT_COMM_OP_RETRY_FAIL: Final = 507904
ACL_ERROR_RT_L3_PORT_ERROR: Final = 507914
ACL_ERROR_RT_CCU_TIMEOUT: Final = 507915
ACL_ERROR_RT_CCU_EXCEPTION: Final = 507916
ACLNN_ERR_INNER_KEY_CONFILICT: Final = 561105

def aclCreateTensor(
    viewDims: Sequence[int] | None,
    viewDimsNum: int,
    dataType: int,
    stride: Sequence[int] | None,
    offset: int,
    format: int,
    storageDims: Sequence[int] | None,
    storageDimsNum: int,
    tensorData: int | None,
) -> int:
    """A view of memory that somebody else owns. Nothing is judged here but missing dimensions."""

def aclInitTensor(
    tensor: int | None,
    viewDims: Sequence[int] | None,
    viewDimsNum: int,
    dataType: int,
    stride: Sequence[int] | None,
    offset: int,
    format: int,
    storageDims: Sequence[int] | None,
    storageDimsNum: int,
    tensorDataAddr: int | None,
) -> int:
    """Describe a tensor anew; dimensions and address that are not given stay."""

def aclDestroyTensor(tensor: int | None) -> int:
    """Release the description; the memory stays."""

def aclGetViewShape(tensor: int | None) -> tuple[int, list[int], int]:
    """The view's dimensions, and how many.

    Returns ``(ret, viewDims, viewDimsNum)``.
    """

def aclGetViewStrides(tensor: int | None) -> tuple[int, list[int], int]:
    """The view's strides in elements, and how many.

    Returns ``(ret, stridesValue, stridesNum)``.
    """

def aclGetStorageShape(tensor: int | None) -> tuple[int, list[int], int]:
    """The storage's dimensions, and how many.

    Returns ``(ret, storageDims, storageDimsNum)``.
    """

def aclGetViewOffset(tensor: int | None) -> tuple[int, int]:
    """Elements from the storage's beginning to the view's first.

    Returns ``(ret, offset)``.
    """

def aclGetFormat(tensor: int | None) -> tuple[int, int]:
    """The view's format label.

    Returns ``(ret, format)``.
    """

def aclGetDataType(tensor: int | None) -> tuple[int, int]:
    """The elements' type.

    Returns ``(ret, dataType)``.
    """

def aclGetRawTensorAddr(tensor: int | None) -> tuple[int, int]:
    """The storage's beginning; the offset is not added.

    Returns ``(ret, addr)``.
    """

def aclSetRawTensorAddr(tensor: int | None, addr: int | None) -> int:
    """Let the storage begin elsewhere."""

def aclCreateScalar(value: int | None, dataType: int) -> int:
    """A copy of the value at that host address."""

def aclDestroyScalar(scalar: int | None) -> int:
    """Release a scalar."""

def aclCreateIntArray(value: Sequence[int] | None, size: int) -> int:
    """A copy of the values; null or size 0 gives an empty array."""

def aclCreateFloatArray(value: Sequence[float] | None, size: int) -> int:
    """A copy of the values; null or size 0 gives an empty array."""

def aclCreateBoolArray(value: Sequence[int] | None, size: int) -> int:
    """A copy of the values; null or size 0 gives an empty array."""

def aclDestroyIntArray(array: int | None) -> int:
    """Release an array."""

def aclDestroyFloatArray(array: int | None) -> int:
    """Release an array."""

def aclDestroyBoolArray(array: int | None) -> int:
    """Release an array."""

def aclGetIntArraySize(array: int | None) -> tuple[int, int]:
    """Number of elements.

    Returns ``(ret, size)``.
    """

def aclGetFloatArraySize(array: int | None) -> tuple[int, int]:
    """Number of elements.

    Returns ``(ret, size)``.
    """

def aclGetBoolArraySize(array: int | None) -> tuple[int, int]:
    """Number of elements.

    Returns ``(ret, size)``.
    """

def aclCreateTensorList(value: Sequence[int | None] | None, size: int) -> int:
    """A list that takes over the tensors; null or size 0 gives an empty one."""

def aclCreateScalarList(value: Sequence[int | None] | None, size: int) -> int:
    """A list that takes over the scalars; null or size 0 gives an empty one."""

def aclDestroyTensorList(array: int | None) -> int:
    """Release a list and every tensor in it."""

def aclDestroyScalarList(array: int | None) -> int:
    """Release a list and every scalar in it."""

def aclGetTensorListSize(tensorList: int | None) -> tuple[int, int]:
    """Number of tensors.

    Returns ``(ret, size)``.
    """

def aclGetScalarListSize(scalarList: int | None) -> tuple[int, int]:
    """Number of scalars.

    Returns ``(ret, size)``.
    """

def aclSetAclOpExecutorRepeatable(executor: int | None) -> int:
    """Let an executor run any number of times, until it is destroyed."""

def aclDestroyAclOpExecutor(executor: int | None) -> int:
    """Release an executor."""

def aclSetInputTensorAddr(executor: int | None, index: int, tensor: int | None, addr: int | None) -> int:
    """Let a tensor of the executor begin at another address; any index will do."""

def aclSetDynamicInputTensorAddr(
    executor: int | None, irIndex: int, relativeIndex: int, tensors: int | None, addr: int | None
) -> int:
    """Let one tensor of a list begin at another address."""

def aclSetOutputTensorAddr(executor: int | None, index: int, tensor: int | None, addr: int | None) -> int:
    """Let a tensor of the executor begin at another address; any index will do."""

def aclSetDynamicOutputTensorAddr(
    executor: int | None, irIndex: int, relativeIndex: int, tensors: int | None, addr: int | None
) -> int:
    """Let one tensor of a list begin at another address."""

def aclSetTensorAddr(executor: int | None, index: int, tensor: int | None, addr: int | None) -> int:
    """Let a tensor of the executor begin at another address; any index will do."""

def aclSetDynamicTensorAddr(
    executor: int | None, irIndex: int, relativeIndex: int, tensors: int | None, addr: int | None
) -> int:
    """Let one tensor of a list begin at another address."""

def AclSetInputTensorAddr(executor: int | None, index: int, tensor: int | None, addr: int | None) -> int:
    """Let a tensor of the executor begin at another address; any index will do."""

def AclSetDynamicInputTensorAddr(
    executor: int | None, irIndex: int, relativeIndex: int, tensors: int | None, addr: int | None
) -> int:
    """Let one tensor of a list begin at another address."""

def AclSetOutputTensorAddr(executor: int | None, index: int, tensor: int | None, addr: int | None) -> int:
    """Let a tensor of the executor begin at another address; any index will do."""

def AclSetDynamicOutputTensorAddr(
    executor: int | None, irIndex: int, relativeIndex: int, tensors: int | None, addr: int | None
) -> int:
    """Let one tensor of a list begin at another address."""

def AclSetTensorAddr(executor: int | None, index: int, tensor: int | None, addr: int | None) -> int:
    """Let a tensor of the executor begin at another address; any index will do."""

def AclSetDynamicTensorAddr(
    executor: int | None, irIndex: int, relativeIndex: int, tensors: int | None, addr: int | None
) -> int:
    """Let one tensor of a list begin at another address."""

def aclrtMalloc(size: int, policy: int = 0) -> tuple[int, int]:
    """Device memory with undefined contents; its address is a multiple of 64 at least.

    Returns ``(ret, devPtr)``.
    """

def aclrtMallocAlign32(size: int, policy: int = 0) -> tuple[int, int]:
    """The same; only 32 bytes may be lost to rounding.

    Returns ``(ret, devPtr)``.
    """

def aclrtMallocCached(size: int, policy: int = 0) -> tuple[int, int]:
    """The same; host and device see one another's writes at once here.

    Returns ``(ret, devPtr)``.
    """

def aclrtMemFlush(devPtr: int | None, size: int) -> int:
    """Make the host's writes visible to the device: they are."""

def aclrtMemInvalidate(devPtr: int | None, size: int) -> int:
    """Make the device's writes visible to the host: they are."""

def aclrtFree(devPtr: int | None) -> int:
    """Free device memory without waiting; work that is queued keeps what it uses."""

def aclrtMallocHost(size: int) -> tuple[int, int]:
    """Pinned host memory, 64-byte aligned.

    Returns ``(ret, hostPtr)``.
    """

def aclrtFreeHost(hostPtr: int | None) -> int:
    """Free pinned host memory."""

def aclrtMemcpy(dst: int | None, destMax: int, src: int | None, count: int, kind: int) -> int:
    """Copy, and return when done; overlapping ranges as if through a temporary."""

def aclrtMemcpyAsync(dst: int | None, destMax: int, src: int | None, count: int, kind: int, stream: int | None) -> int:
    """Copy in the stream's order."""

def aclrtMemset(devPtr: int | None, maxCount: int, value: int, count: int) -> int:
    """Set every byte to the low 8 bits of the value."""

def aclrtMemsetAsync(devPtr: int | None, maxCount: int, value: int, count: int, stream: int | None) -> int:
    """The same in the stream's order."""

def aclrtGetMemInfo(attr: int) -> tuple[int, int, int]:
    """Free and total bytes of the current device's memory of that kind; 0 and 0 where it has none.

    Returns ``(ret, free, total)``.
    """

def aclnnCeluGetWorkspaceSize(self: int | None, alpha: int | None, out: int | None) -> tuple[int, int, int]:
    """Continuously differentiable exponential linear unit.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnCelu(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Continuously differentiable exponential linear unit.

    Phase two: queues the work.
    """

def aclnnInplaceCeluGetWorkspaceSize(selfRef: int | None, alpha: int | None) -> tuple[int, int, int]:
    """Continuously differentiable exponential linear unit, its result written back into its argument.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceCelu(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Continuously differentiable exponential linear unit, its result written back into its argument.

    Phase two: queues the work.
    """

def aclnnEluGetWorkspaceSize(
    self: int | None, alpha: int | None, scale: int | None, inputScale: int | None, out: int | None
) -> tuple[int, int, int]:
    """Exponential linear unit.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnElu(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Exponential linear unit.

    Phase two: queues the work.
    """

def aclnnEluBackwardGetWorkspaceSize(
    gradOutput: int | None,
    alpha: int | None,
    scale: int | None,
    inputScale: int | None,
    isResult: int,
    selfOrResult: int | None,
    gradInput: int | None,
) -> tuple[int, int, int]:
    """Gradient of the exponential linear unit, by its argument or by its result.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnEluBackward(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gradient of the exponential linear unit, by its argument or by its result.

    Phase two: queues the work.
    """

def aclnnInplaceEluGetWorkspaceSize(
    selfRef: int | None, alpha: int | None, scale: int | None, inputScale: int | None
) -> tuple[int, int, int]:
    """Exponential linear unit, its result written back into its argument.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceElu(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Exponential linear unit, its result written back into its argument.

    Phase two: queues the work.
    """

def aclnnFastGeluGetWorkspaceSize(self: int | None, out: int | None) -> tuple[int, int, int]:
    """FastGelu: x times the logistic function of 1.702 x.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnFastGelu(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """FastGelu: x times the logistic function of 1.702 x.

    Phase two: queues the work.
    """

def aclnnFastGeluBackwardGetWorkspaceSize(
    gradOutput: int | None, self: int | None, gradInput: int | None
) -> tuple[int, int, int]:
    """Gradient of FastGelu with respect to its input.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnFastGeluBackward(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gradient of FastGelu with respect to its input.

    Phase two: queues the work.
    """

def aclnnGeluGetWorkspaceSize(self: int | None, out: int | None) -> tuple[int, int, int]:
    """Gelu, approximated by tanh.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnGelu(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gelu, approximated by tanh.

    Phase two: queues the work.
    """

def aclnnGeluBackwardGetWorkspaceSize(
    gradOutput: int | None, self: int | None, gradInput: int | None
) -> tuple[int, int, int]:
    """Gradient of Gelu approximated by tanh, with broadcasting and type promotion.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnGeluBackward(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gradient of Gelu approximated by tanh, with broadcasting and type promotion.

    Phase two: queues the work.
    """

def aclnnGeluBackwardV2GetWorkspaceSize(
    gradOutput: int | None, self: int | None, approximate: str | bytes | None, gradInput: int | None
) -> tuple[int, int, int]:
    """Gradient of Gelu with respect to its input, with broadcasting and type promotion.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnGeluBackwardV2(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gradient of Gelu with respect to its input, with broadcasting and type promotion.

    Phase two: queues the work.
    """

def aclnnGeluV2GetWorkspaceSize(x: int | None, approximate: int, y: int | None) -> tuple[int, int, int]:
    """Gelu, exact or approximated by tanh.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnGeluV2(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gelu, exact or approximated by tanh.

    Phase two: queues the work.
    """

def aclnnHardsigmoidGetWorkspaceSize(self: int | None, out: int | None) -> tuple[int, int, int]:
    """Piecewise linear logistic function.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnHardsigmoid(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Piecewise linear logistic function.

    Phase two: queues the work.
    """

def aclnnHardsigmoidBackwardGetWorkspaceSize(
    gradOutput: int | None, self: int | None, out: int | None
) -> tuple[int, int, int]:
    """Gradient of the piecewise linear logistic function, with type promotion.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnHardsigmoidBackward(
    workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None
) -> int:
    """Gradient of the piecewise linear logistic function, with type promotion.

    Phase two: queues the work.
    """

def aclnnInplaceHardsigmoidGetWorkspaceSize(self: int | None) -> tuple[int, int, int]:
    """Piecewise linear logistic function, its result written back into its argument.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceHardsigmoid(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Piecewise linear logistic function, its result written back into its argument.

    Phase two: queues the work.
    """

def aclnnHardswishGetWorkspaceSize(self: int | None, out: int | None) -> tuple[int, int, int]:
    """Hardswish: x clipped off below -3, x (x + 3) / 6 up to 3, x above.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnHardswish(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Hardswish: x clipped off below -3, x (x + 3) / 6 up to 3, x above.

    Phase two: queues the work.
    """

def aclnnHardswishBackwardGetWorkspaceSize(
    gradOutput: int | None, self: int | None, out: int | None
) -> tuple[int, int, int]:
    """Gradient of Hardswish with respect to its input.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnHardswishBackward(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gradient of Hardswish with respect to its input.

    Phase two: queues the work.
    """

def aclnnHardswishBackwardV2GetWorkspaceSize(
    gradOutput: int | None, self: int | None, out: int | None
) -> tuple[int, int, int]:
    """Gradient of Hardswish with respect to its input, 0 and 1 at -3 and 3.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnHardswishBackwardV2(
    workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None
) -> int:
    """Gradient of Hardswish with respect to its input, 0 and 1 at -3 and 3.

    Phase two: queues the work.
    """

def aclnnInplaceHardswishGetWorkspaceSize(self: int | None) -> tuple[int, int, int]:
    """Hardswish, its result written back into its argument.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceHardswish(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Hardswish, its result written back into its argument.

    Phase two: queues the work.
    """

def aclnnHardtanhBackwardGetWorkspaceSize(
    gradOutput: int | None, self: int | None, min: int | None, max: int | None, out: int | None
) -> tuple[int, int, int]:
    """Gradient of the clamp between two bounds with respect to its input.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnHardtanhBackward(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gradient of the clamp between two bounds with respect to its input.

    Phase two: queues the work.
    """

def aclnnFastLayerNormGetWorkspaceSize(
    input: int | None,
    normalizedShape: int | None,
    weightOptional: int | None,
    biasOptional: int | None,
    eps: float,
    out: int | None,
    meanOutOptional: int | None,
    rstdOutOptional: int | None,
) -> tuple[int, int, int]:
    """LayerNorm whose sums a device may take in another order; computed like the others here.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnFastLayerNorm(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """LayerNorm whose sums a device may take in another order; computed like the others here.

    Phase two: queues the work.
    """

def aclnnLayerNormGetWorkspaceSize(
    input: int | None,
    normalizedShape: int | None,
    weightOptional: int | None,
    biasOptional: int | None,
    eps: float,
    out: int | None,
    meanOutOptional: int | None,
    rstdOutOptional: int | None,
) -> tuple[int, int, int]:
    """LayerNorm over the trailing dimensions, with the mean and reciprocal standard deviation of each row.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnLayerNorm(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """LayerNorm over the trailing dimensions, with the mean and reciprocal standard deviation of each row.

    Phase two: queues the work.
    """

def aclnnLayerNormBackwardGetWorkspaceSize(
    gradOut: int | None,
    input: int | None,
    normalizedShape: int | None,
    mean: int | None,
    rstd: int | None,
    weightOptional: int | None,
    biasOptional: int | None,
    outputMask: int | None,
    gradInputOut: int | None,
    gradWeightOut: int | None,
    gradBiasOut: int | None,
) -> tuple[int, int, int]:
    """Gradients of LayerNorm for its input, weight and bias, each switched by a mask.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnLayerNormBackward(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gradients of LayerNorm for its input, weight and bias, each switched by a mask.

    Phase two: queues the work.
    """

def aclnnLayerNormWithImplModeGetWorkspaceSize(
    input: int | None,
    normalizedShape: int | None,
    weightOptional: int | None,
    biasOptional: int | None,
    eps: float,
    out: int | None,
    meanOutOptional: int | None,
    rstdOutOptional: int | None,
    implMode: int,
) -> tuple[int, int, int]:
    """LayerNorm with a choice of precision; every mode computes alike here.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnLayerNormWithImplMode(
    workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None
) -> int:
    """LayerNorm with a choice of precision; every mode computes alike here.

    Phase two: queues the work.
    """

def aclnnInplaceLeakyReluGetWorkspaceSize(selfRef: int | None, negativeSlope: int | None) -> tuple[int, int, int]:
    """Rectified linear unit with a slope for negative arguments, its result written back into its argument.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceLeakyRelu(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Rectified linear unit with a slope for negative arguments, its result written back into its argument.

    Phase two: queues the work.
    """

def aclnnLeakyReluGetWorkspaceSize(
    self: int | None, negativeSlope: int | None, out: int | None
) -> tuple[int, int, int]:
    """Rectified linear unit with a slope for negative arguments.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnLeakyRelu(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Rectified linear unit with a slope for negative arguments.

    Phase two: queues the work.
    """

def aclnnLeakyReluBackwardGetWorkspaceSize(
    gradOutput: int | None, self: int | None, negativeSlope: int | None, selfIsResult: int, out: int | None
) -> tuple[int, int, int]:
    """Gradient of the leaky rectified linear unit, with broadcasting and type promotion.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnLeakyReluBackward(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gradient of the leaky rectified linear unit, with broadcasting and type promotion.

    Phase two: queues the work.
    """

def aclnnLogSigmoidGetWorkspaceSize(self: int | None, out: int | None) -> tuple[int, int, int]:
    """Logarithm of the logistic function.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnLogSigmoid(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Logarithm of the logistic function.

    Phase two: queues the work.
    """

def aclnnLogSigmoidBackwardGetWorkspaceSize(
    gradOutput: int | None, self: int | None, buffer: int | None, gradInput: int | None
) -> tuple[int, int, int]:
    """Gradient of the logarithm of the logistic function with respect to its input.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnLogSigmoidBackward(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gradient of the logarithm of the logistic function with respect to its input.

    Phase two: queues the work.
    """

def aclnnLogSigmoidForwardGetWorkspaceSize(
    self: int | None, out: int | None, buffer: int | None
) -> tuple[int, int, int]:
    """Logarithm of the logistic function, with a buffer that is not used.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnLogSigmoidForward(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Logarithm of the logistic function, with a buffer that is not used.

    Phase two: queues the work.
    """

def aclnnInplaceMishGetWorkspaceSize(selfRef: int | None) -> tuple[int, int, int]:
    """Mish, its result written back into its argument.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceMish(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Mish, its result written back into its argument.

    Phase two: queues the work.
    """

def aclnnMishGetWorkspaceSize(self: int | None, out: int | None) -> tuple[int, int, int]:
    """Mish: x times the hyperbolic tangent of Softplus.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnMish(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Mish: x times the hyperbolic tangent of Softplus.

    Phase two: queues the work.
    """

def aclnnMishBackwardGetWorkspaceSize(
    gradOutput: int | None, self: int | None, gradInput: int | None
) -> tuple[int, int, int]:
    """Gradient of Mish with respect to its input, with broadcasting and type promotion.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnMishBackward(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gradient of Mish with respect to its input, with broadcasting and type promotion.

    Phase two: queues the work.
    """

def aclnnRmsNormGetWorkspaceSize(
    x: int | None, gamma: int | None, epsilon: float, yOut: int | None, rstdOut: int | None
) -> tuple[int, int, int]:
    """RMSNorm over the trailing dimensions, with the reciprocal root mean square of each row.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnRmsNorm(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """RMSNorm over the trailing dimensions, with the reciprocal root mean square of each row.

    Phase two: queues the work.
    """

def aclnnRmsNormGradGetWorkspaceSize(
    dy: int | None, x: int | None, rstd: int | None, gamma: int | None, dxOut: int | None, dgammaOut: int | None
) -> tuple[int, int, int]:
    """Gradients of RMSNorm for its input and weight.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnRmsNormGrad(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gradients of RMSNorm for its input and weight.

    Phase two: queues the work.
    """

def aclnnInplaceSigmoidGetWorkspaceSize(selfRef: int | None) -> tuple[int, int, int]:
    """The logistic function, its result written back into its argument.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceSigmoid(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """The logistic function, its result written back into its argument.

    Phase two: queues the work.
    """

def aclnnSigmoidGetWorkspaceSize(self: int | None, out: int | None) -> tuple[int, int, int]:
    """The logistic function.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnSigmoid(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """The logistic function.

    Phase two: queues the work.
    """

def aclnnSigmoidBackwardGetWorkspaceSize(
    gradOutput: int | None, output: int | None, gradInput: int | None
) -> tuple[int, int, int]:
    """Gradient of the logistic function by its result, with broadcasting and type promotion.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnSigmoidBackward(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gradient of the logistic function by its result, with broadcasting and type promotion.

    Phase two: queues the work.
    """

def aclnnSiluGetWorkspaceSize(self: int | None, out: int | None) -> tuple[int, int, int]:
    """Silu (Swish with beta 1): x times its logistic function.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnSilu(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Silu (Swish with beta 1): x times its logistic function.

    Phase two: queues the work.
    """

def aclnnSiluBackwardGetWorkspaceSize(
    gradOutput: int | None, self: int | None, gradInput: int | None
) -> tuple[int, int, int]:
    """Gradient of Silu (Swish with beta 1) with respect to its input.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnSiluBackward(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gradient of Silu (Swish with beta 1) with respect to its input.

    Phase two: queues the work.
    """

def aclnnSoftplusGetWorkspaceSize(
    self: int | None, beta: int | None, threshold: int | None, out: int | None
) -> tuple[int, int, int]:
    """Softplus, linear above a threshold.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnSoftplus(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Softplus, linear above a threshold.

    Phase two: queues the work.
    """

def aclnnSoftplusBackwardGetWorkspaceSize(
    gradOutput: int | None, self: int | None, beta: int | None, threshold: int | None, gradInput: int | None
) -> tuple[int, int, int]:
    """Gradient of Softplus with respect to its input.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnSoftplusBackward(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gradient of Softplus with respect to its input.

    Phase two: queues the work.
    """

def aclnnSwiGluGetWorkspaceSize(x: int | None, dim: int, out: int | None) -> tuple[int, int, int]:
    """SwiGLU: Silu of the first half along a dimension times the second half.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnSwiGlu(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """SwiGLU: Silu of the first half along a dimension times the second half.

    Phase two: queues the work.
    """

def aclnnSwiGluGradGetWorkspaceSize(
    yGrad: int | None, x: int | None, dim: int, out: int | None
) -> tuple[int, int, int]:
    """Gradient of SwiGLU with respect to its input.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnSwiGluGrad(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gradient of SwiGLU with respect to its input.

    Phase two: queues the work.
    """

def aclnnSwishGetWorkspaceSize(self: int | None, betaOptional: int | None, out: int | None) -> tuple[int, int, int]:
    """Swish: x times the logistic function of beta x.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnSwish(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Swish: x times the logistic function of beta x.

    Phase two: queues the work.
    """

def aclnnSwishBackwardGetWorkspaceSize(
    gradOutput: int | None, self: int | None, betaOptional: int | None, gradInput: int | None
) -> tuple[int, int, int]:
    """Gradient of Swish with respect to its input.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnSwishBackward(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gradient of Swish with respect to its input.

    Phase two: queues the work.
    """

def aclnnInplaceReluGetWorkspaceSize(selfRef: int | None) -> tuple[int, int, int]:
    """Rectified linear unit, its result written back into its argument.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceRelu(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Rectified linear unit, its result written back into its argument.

    Phase two: queues the work.
    """

def aclnnInplaceThresholdGetWorkspaceSize(
    selfRef: int | None, threshold: int | None, value: int | None
) -> tuple[int, int, int]:
    """A number written over what is not above a threshold.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceThreshold(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """A number written over what is not above a threshold.

    Phase two: queues the work.
    """

def aclnnReluGetWorkspaceSize(self: int | None, out: int | None) -> tuple[int, int, int]:
    """Rectified linear unit.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnRelu(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Rectified linear unit.

    Phase two: queues the work.
    """

def aclnnThresholdGetWorkspaceSize(
    self: int | None, threshold: int | None, value: int | None, out: int | None
) -> tuple[int, int, int]:
    """A number instead of what is not above a threshold.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnThreshold(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """A number instead of what is not above a threshold.

    Phase two: queues the work.
    """

def aclnnThresholdBackwardGetWorkspaceSize(
    gradOutput: int | None, self: int | None, threshold: int | None, out: int | None
) -> tuple[int, int, int]:
    """Gradient of ReLU and Threshold with respect to their input, with broadcasting.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnThresholdBackward(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Gradient of ReLU and Threshold with respect to their input, with broadcasting.

    Phase two: queues the work.
    """

def aclnnAddGetWorkspaceSize(
    self: int | None, other: int | None, alpha: int | None, out: int | None
) -> tuple[int, int, int]:
    """Add two tensors.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnAdd(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Add two tensors.

    Phase two: queues the work.
    """

def aclnnInplaceAddGetWorkspaceSize(selfRef: int | None, other: int | None, alpha: int | None) -> tuple[int, int, int]:
    """Add two tensors, into the first.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceAdd(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Add two tensors, into the first.

    Phase two: queues the work.
    """

def aclnnAddsGetWorkspaceSize(
    self: int | None, other: int | None, alpha: int | None, out: int | None
) -> tuple[int, int, int]:
    """Add a tensor and a scalar.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnAdds(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Add a tensor and a scalar.

    Phase two: queues the work.
    """

def aclnnInplaceAddsGetWorkspaceSize(selfRef: int | None, other: int | None, alpha: int | None) -> tuple[int, int, int]:
    """Add a tensor and a scalar, into the tensor.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceAdds(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Add a tensor and a scalar, into the tensor.

    Phase two: queues the work.
    """

def aclnnSubGetWorkspaceSize(
    self: int | None, other: int | None, alpha: int | None, out: int | None
) -> tuple[int, int, int]:
    """Subtract two tensors.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnSub(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Subtract two tensors.

    Phase two: queues the work.
    """

def aclnnInplaceSubGetWorkspaceSize(selfRef: int | None, other: int | None, alpha: int | None) -> tuple[int, int, int]:
    """Subtract two tensors, into the first.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceSub(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Subtract two tensors, into the first.

    Phase two: queues the work.
    """

def aclnnSubsGetWorkspaceSize(
    self: int | None, other: int | None, alpha: int | None, out: int | None
) -> tuple[int, int, int]:
    """Subtract a tensor and a scalar.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnSubs(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Subtract a tensor and a scalar.

    Phase two: queues the work.
    """

def aclnnInplaceSubsGetWorkspaceSize(selfRef: int | None, other: int | None, alpha: int | None) -> tuple[int, int, int]:
    """Subtract a tensor and a scalar, into the tensor.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceSubs(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Subtract a tensor and a scalar, into the tensor.

    Phase two: queues the work.
    """

def aclnnMulGetWorkspaceSize(self: int | None, other: int | None, out: int | None) -> tuple[int, int, int]:
    """Multiply two tensors.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnMul(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Multiply two tensors.

    Phase two: queues the work.
    """

def aclnnInplaceMulGetWorkspaceSize(selfRef: int | None, other: int | None) -> tuple[int, int, int]:
    """Multiply two tensors, into the first.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceMul(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Multiply two tensors, into the first.

    Phase two: queues the work.
    """

def aclnnMulsGetWorkspaceSize(self: int | None, other: int | None, out: int | None) -> tuple[int, int, int]:
    """Multiply a tensor by a scalar.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnMuls(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Multiply a tensor by a scalar.

    Phase two: queues the work.
    """

def aclnnInplaceMulsGetWorkspaceSize(selfRef: int | None, other: int | None) -> tuple[int, int, int]:
    """Multiply a tensor by a scalar, into the tensor.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceMuls(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Multiply a tensor by a scalar, into the tensor.

    Phase two: queues the work.
    """

def aclnnDivGetWorkspaceSize(self: int | None, other: int | None, out: int | None) -> tuple[int, int, int]:
    """Divide two tensors; integers as float32.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnDiv(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Divide two tensors; integers as float32.

    Phase two: queues the work.
    """

def aclnnInplaceDivGetWorkspaceSize(selfRef: int | None, other: int | None) -> tuple[int, int, int]:
    """Divide two tensors, into the first.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceDiv(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Divide two tensors, into the first.

    Phase two: queues the work.
    """

def aclnnDivsGetWorkspaceSize(self: int | None, other: int | None, out: int | None) -> tuple[int, int, int]:
    """Divide a tensor by a scalar; integers as float32.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnDivs(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Divide a tensor by a scalar; integers as float32.

    Phase two: queues the work.
    """

def aclnnInplaceDivsGetWorkspaceSize(selfRef: int | None, other: int | None) -> tuple[int, int, int]:
    """Divide a tensor by a scalar, into the tensor.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceDivs(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Divide a tensor by a scalar, into the tensor.

    Phase two: queues the work.
    """

def aclnnCastGetWorkspaceSize(self: int | None, dtype: int, out: int | None) -> tuple[int, int, int]:
    """Convert a tensor to another data type.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnCast(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Convert a tensor to another data type.

    Phase two: queues the work.
    """

def aclnnInplaceCopyGetWorkspaceSize(selfRef: int | None, src: int | None) -> tuple[int, int, int]:
    """Copy a tensor into another, of any data type and strides.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceCopy(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Copy a tensor into another, of any data type and strides.

    Phase two: queues the work.
    """

def aclnnInplaceFillScalarGetWorkspaceSize(selfRef: int | None, value: int | None) -> tuple[int, int, int]:
    """Fill a tensor with a number.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceFillScalar(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Fill a tensor with a number.

    Phase two: queues the work.
    """

def aclnnInplaceOneGetWorkspaceSize(selfRef: int | None) -> tuple[int, int, int]:
    """Fill a tensor with ones.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceOne(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Fill a tensor with ones.

    Phase two: queues the work.
    """

def aclnnInplaceZeroGetWorkspaceSize(selfRef: int | None) -> tuple[int, int, int]:
    """Fill a tensor with zeros.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnInplaceZero(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Fill a tensor with zeros.

    Phase two: queues the work.
    """

def aclnnReduceSumGetWorkspaceSize(
    self: int | None, dims: int | None, keepDims: int, dtype: int, out: int | None
) -> tuple[int, int, int]:
    """Sum over some dimensions.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnReduceSum(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Sum over some dimensions.

    Phase two: queues the work.
    """

def aclnnMeanGetWorkspaceSize(
    self: int | None, dim: int | None, keepDim: int, dtype: int, out: int | None
) -> tuple[int, int, int]:
    """Mean over some dimensions.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnMean(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Mean over some dimensions.

    Phase two: queues the work.
    """

def aclnnMinGetWorkspaceSize(self: int | None, out: int | None) -> tuple[int, int, int]:
    """Least element.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnMin(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Least element.

    Phase two: queues the work.
    """

def aclnnMaxGetWorkspaceSize(self: int | None, out: int | None) -> tuple[int, int, int]:
    """Greatest element.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnMax(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Greatest element.

    Phase two: queues the work.
    """

def aclnnAbsGetWorkspaceSize(self: int | None, out: int | None) -> tuple[int, int, int]:
    """Absolute value.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnAbs(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Absolute value.

    Phase two: queues the work.
    """

def aclnnCeilGetWorkspaceSize(self: int | None, out: int | None) -> tuple[int, int, int]:
    """Round up to an integer.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnCeil(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Round up to an integer.

    Phase two: queues the work.
    """

def aclnnNeTensorGetWorkspaceSize(self: int | None, other: int | None, out: int | None) -> tuple[int, int, int]:
    """Compare two tensors: not equal.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnNeTensor(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Compare two tensors: not equal.

    Phase two: queues the work.
    """

def aclnnNeScalarGetWorkspaceSize(self: int | None, other: int | None, out: int | None) -> tuple[int, int, int]:
    """Compare a tensor with a number: not equal.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnNeScalar(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Compare a tensor with a number: not equal.

    Phase two: queues the work.
    """

def aclnnGtScalarGetWorkspaceSize(self: int | None, other: int | None, out: int | None) -> tuple[int, int, int]:
    """Compare a tensor with a number: greater.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnGtScalar(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Compare a tensor with a number: greater.

    Phase two: queues the work.
    """

def aclnnLtScalarGetWorkspaceSize(self: int | None, other: int | None, out: int | None) -> tuple[int, int, int]:
    """Compare a tensor with a number: less.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnLtScalar(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Compare a tensor with a number: less.

    Phase two: queues the work.
    """

def aclnnIsFiniteGetWorkspaceSize(self: int | None, out: int | None) -> tuple[int, int, int]:
    """Tell finite numbers from others.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnIsFinite(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Tell finite numbers from others.

    Phase two: queues the work.
    """

def aclnnBitwiseAndTensorGetWorkspaceSize(self: int | None, other: int | None, out: int | None) -> tuple[int, int, int]:
    """And of the bits of two tensors.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnBitwiseAndTensor(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """And of the bits of two tensors.

    Phase two: queues the work.
    """

def aclnnBitwiseAndScalarGetWorkspaceSize(self: int | None, other: int | None, out: int | None) -> tuple[int, int, int]:
    """And of the bits of a tensor and a number.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnBitwiseAndScalar(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """And of the bits of a tensor and a number.

    Phase two: queues the work.
    """

def aclnnMaskedSelectGetWorkspaceSize(self: int | None, mask: int | None, out: int | None) -> tuple[int, int, int]:
    """Select the elements where a mask is true; the view of out takes their number.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnMaskedSelect(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Select the elements where a mask is true; the view of out takes their number.

    Phase two: queues the work.
    """

def aclnnCatGetWorkspaceSize(tensors: int | None, dim: int, out: int | None) -> tuple[int, int, int]:
    """Join tensors along a dimension.

    Phase one: judges the arguments; the workspace's bytes, and an executor.

    Returns ``(ret, workspaceSize, executor)``.
    """

def aclnnCat(workspace: int | None, workspaceSize: int, executor: int | None, stream: int | None) -> int:
    """Join tensors along a dimension.

    Phase two: queues the work.
    """

def aclInit(configPath: str | bytes | None = None) -> int:
    """Start; counted. 100002 when that was done before, which callers may ignore; 507008 for an unknown product."""

def aclFinalize() -> int:
    """Stop, however often it was started."""

def aclFinalizeReference() -> tuple[int, int]:
    """Undo one aclInit; how many remain.

    Returns ``(ret, refCount)``.
    """

def aclnnInit(configPath: str | bytes | None = None) -> int:
    """Nothing to start: operators work without it."""

def aclnnFinalize() -> int:
    """Nothing to stop."""

def aclrtGetDeviceCount() -> tuple[int, int]:
    """Devices that there are (ACLNN_DEVICE_COUNT, 1 by default).

    Returns ``(ret, count)``.
    """

def aclrtSetDevice(deviceId: int) -> int:
    """Use a device; its default context becomes this thread's current one. 507008 for an unknown product."""

def aclrtResetDevice(deviceId: int) -> int:
    """Undo one aclrtSetDevice; the last one waits for the default context's work and releases it."""

def aclrtResetDeviceForce(deviceId: int) -> int:
    """The same, whatever the count."""

def aclrtGetDevice() -> tuple[int, int]:
    """The current context's device.

    Returns ``(ret, deviceId)``.
    """

def aclrtGetRunMode() -> tuple[int, int]:
    """ACL_HOST: this process is on the host's side.

    Returns ``(ret, runMode)``.
    """

def aclrtSynchronizeDevice() -> int:
    """Wait for every stream of the current device."""

def aclrtGetSocName() -> str | None:
    """The product in force, such as Ascend910B2."""

def aclrtGetVersion() -> tuple[int, int, int, int]:
    """The interface's version.

    Returns ``(ret, majorVersion, minorVersion, patchVersion)``.
    """

def aclrtSetDeviceSatMode(mode: int) -> int:
    """Ask for infinities and NaNs (1, what there is); saturation (0) is refused with 207000."""

def aclrtGetDeviceSatMode() -> tuple[int, int]:
    """ACL_RT_OVERFLOW_MODE_INFNAN.

    Returns ``(ret, mode)``.
    """

def aclrtCreateContext(deviceId: int) -> tuple[int, int]:
    """A new context, current for this thread.

    Returns ``(ret, context)``.
    """

def aclrtDestroyContext(context: int | None) -> int:
    """Wait for a context's work and release it with its streams."""

def aclrtSetCurrentContext(context: int | None) -> int:
    """Make a context current for this thread."""

def aclrtGetCurrentContext() -> tuple[int, int]:
    """This thread's current context.

    Returns ``(ret, context)``.
    """

def aclrtCreateStream() -> tuple[int, int]:
    """A new stream of the current context.

    Returns ``(ret, stream)``.
    """

def aclrtCreateStreamWithConfig(priority: int, flag: int) -> tuple[int, int]:
    """The same, with hints.

    Returns ``(ret, stream)``.
    """

def aclrtDestroyStream(stream: int | None) -> int:
    """Wait for a stream's work and release it."""

def aclrtDestroyStreamForce(stream: int | None) -> int:
    """Drop what the stream has not begun, and release it."""

def aclrtSynchronizeStream(stream: int | None) -> int:
    """Wait for a stream's work (null: the default stream's)."""

def aclrtSynchronizeStreamWithTimeout(stream: int | None, timeout: int) -> int:
    """The same, for at most so many milliseconds; -1 for ever."""

def aclrtStreamQuery(stream: int | None) -> tuple[int, int]:
    """Whether a stream's work is done: ACL_STREAM_STATUS_COMPLETE or NOT_READY.

    Returns ``(ret, status)``.
    """

def aclrtCreateEvent() -> tuple[int, int]:
    """An event that carries a time.

    Returns ``(ret, event)``.
    """

def aclrtCreateEventWithFlag(flag: int) -> tuple[int, int]:
    """An event with these flags.

    Returns ``(ret, event)``.
    """

def aclrtCreateEventExWithFlag(flag: int) -> tuple[int, int]:
    """An event with these flags that counts as complete until it is recorded.

    Returns ``(ret, event)``.
    """

def aclrtDestroyEvent(event: int | None) -> int:
    """Release an event; streams that it holds up still wait for its record."""

def aclrtRecordEvent(event: int | None, stream: int | None) -> int:
    """Mark the stream's work so far."""

def aclrtStreamWaitEvent(stream: int | None, event: int | None) -> int:
    """Let the stream's next work wait for what the event marks."""

def aclrtResetEvent(event: int | None, stream: int | None) -> int:
    """Forget the record when the stream comes here."""

def aclrtSynchronizeEvent(event: int | None) -> int:
    """Wait for what the event marks."""

def aclrtSynchronizeEventWithTimeout(event: int | None, timeout: int) -> int:
    """The same, for at most so many milliseconds; -1 for ever."""

def aclrtQueryEventStatus(event: int | None) -> tuple[int, int]:
    """ACL_EVENT_RECORDED_STATUS_COMPLETE (1) or NOT_READY (0).

    Returns ``(ret, status)``.
    """

def aclrtQueryEvent(event: int | None) -> tuple[int, int]:
    """ACL_EVENT_STATUS_COMPLETE (0) or NOT_READY (1): the older call, with the numbers the other way round.

    Returns ``(ret, status)``.
    """

def aclrtEventElapsedTime(startEvent: int | None, endEvent: int | None) -> tuple[int, float]:
    """Milliseconds between two records, negative in the other order.

    Returns ``(ret, ms)``.
    """

def aclGetRecentErrMsg() -> str | None:
    """Texts of this thread's refusals since the last call, newest first; None when there are none."""

def aclrtGetLastError(level: int) -> int:
    """This thread's last code, which is forgotten."""

def aclrtPeekAtLastError(level: int) -> int:
    """This thread's last code, which is kept."""

def aclDataTypeSize(dataType: int) -> int:
    """Bytes of one element, 8 for types that the interface does not know."""

def aclFloat16ToFloat(value: int) -> float:
    """The number that 16 bits stand for; exponent 31 is not special, so +inf gives 65536 and NaN 98304."""

def aclFloatToFloat16(value: float) -> int:
    """The nearest 16-bit float, ties to even; beyond its range ±65504, which NaN gives too (positive)."""

def aclrtSetSysParamOpt(opt: int, value: int) -> int:
    """Keep a parameter of this process. Computations are deterministic with any."""

def aclrtGetSysParamOpt(opt: int) -> tuple[int, int]:
    """A parameter of this process as it was set, 0 at first.

    Returns ``(ret, value)``.
    """

def aclrtCtxSetSysParamOpt(opt: int, value: int) -> int:
    """Keep a parameter of the current context."""

def aclrtCtxGetSysParamOpt(opt: int) -> tuple[int, int]:
    """A parameter of the current context; 107021 before it was set.

    Returns ``(ret, value)``.
    """

def aclrtSetOpExecuteTimeOut(timeout: int) -> int:
    """Take a limit in seconds for each task, without effect: no task is ever ended."""

def aclrtGetPrimaryCtxState(deviceId: int) -> tuple[int, int, int]:
    """Flags (0), and 1 if the device's default context exists.

    Returns ``(ret, flags, active)``.
    """

def aclrtDeviceCanAccessPeer(deviceId: int, peerDeviceId: int) -> tuple[int, int]:
    """1 for two devices, between which copies work; 0 for a device and itself.

    Returns ``(ret, canAccessPeer)``.
    """

def aclrtDeviceEnablePeerAccess(peerDeviceId: int, flags: int) -> int:
    """Nothing to enable: copies between devices always work."""

def aclrtDeviceGetBareTgid() -> tuple[int, int]:
    """This process's number.

    Returns ``(ret, pid)``.
    """

def aclGetDeviceCapability(deviceId: int, deviceInfo: int) -> tuple[int, int]:
    """AI cores, vector cores or bytes of the second-level cache of the product; 207000 where none are published.

    Returns ``(ret, value)``.
    """

def aclSetCompileopt(opt: int, value: str | bytes | None) -> int:
    """Keep an option of the operators' compiler, without effect: there is none."""

def aclGetCompileoptSize(opt: int) -> int:
    """Bytes that aclGetCompileopt writes."""

def aclGetCompileopt(opt: int, value: str | bytes | None, length: int) -> int:
    """Write an option as it was set; at first ``disable`` for ACL_OP_JIT_COMPILE, else nothing."""

def aclsysGetCANNVersion(name: int, version: int | None) -> int:
    """Write the version of a package of the claimed release (ACLNN_CANN_VERSION)."""

def aclsysGetVersionStr(pkgName: str | bytes | None, versionStr: str | bytes | None) -> int:
    """Write the version of a package of the claimed release (ACLNN_CANN_VERSION): at most 128 bytes."""
