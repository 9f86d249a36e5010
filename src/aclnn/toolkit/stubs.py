"""Functions without implementation, defined so that programs that refer to them load; C code answers their calls.

They are in no header: a program that needs them does not compile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from aclnn.capi.prototype import FUNCTIONS
from aclnn.core.status import ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACLNN_ERR_INNER_NULLPTR, CODES
from aclnn.toolkit.abi import Prototype

#: Kinds of answers. The error of a rejected status function is available from aclGetRecentErrMsg.
REJECTED, TAKEN, HASH, CLOCK = "rejected", "0, without effect", "a hash of the text", "nanoseconds of a clock"
PHASE_ONE = "as phase one, whose workspace is the same for all lengths"
NOTHING = "null"
SOMETHING = "an address at which there is nothing"
LOGGED = "nothing, but in a trace the functions that were not found"

_C_OF = {
    TAKEN: "0",
    NOTHING: "NULL",
    SOMETHING: "(void *)&aclnn_nothing",
    HASH: "aclnn_hash(hashInfo, length)",
    CLOCK: "aclnn_nanoseconds()",
    LOGGED: "({ va_list rest; va_start(rest, fmt); aclnn_logged(fmt, rest); va_end(rest); })",
}

_DRV_ERROR_NOT_SUPPORT, _MSPTI_ERROR_INNER = 65534, 999


@dataclass(frozen=True)
class Stub(Prototype):
    """A function without implementation."""

    answer: str
    """One of the kinds above."""

    @property
    def library(self) -> str:
        """Name of the library that defines the function."""
        if self.name.startswith("aclnn") or "HugeMem" in self.name:
            return "opapi"
        if self.name.startswith("Hccl"):
            return "hccl"
        return "runtime" if self.name.startswith("rt") else "ascendcl"

    @property
    def code(self) -> int:
        """Status that the function returns."""
        if self.name.startswith("hal"):
            return _DRV_ERROR_NOT_SUPPORT
        if self.name.startswith("mspti"):
            return _MSPTI_ERROR_INNER
        if self.library == "opapi":
            return ACLNN_ERR_INNER_NULLPTR
        is_lower = self.library == "runtime"
        return ACL_ERROR_RT_FEATURE_NOT_SUPPORT if is_lower else CODES["ACL_ERROR_API_NOT_SUPPORT"]

    @property
    def expression(self) -> str:
        """C expression that the function returns."""
        if self.answer == REJECTED:
            return f'aclnn_record_error("{self.name}", {self.code})'
        if self.answer == PHASE_ONE:
            return f"{self.name.replace('Max', '')}({', '.join(self.parameters)})"
        return _C_OF[self.answer]


def error_text(name: str) -> str:
    """Return the error text of a stub."""
    return f"{name}: expected a function that this toolkit implements, got one that it only declares"


def not_implemented(functions: Iterable[str]) -> tuple[Stub, ...]:
    """Return stubs of unknown operators' functions, callable with any arguments."""
    return tuple(Stub(f"aclnnStatus {function}(void)", REJECTED) for function in functions)


def _mindspore() -> tuple[Stub, ...]:
    """Return stubs for models and for host-device channels; MindSpore warns at each start if these are absent."""
    addresses = (
        "mdlCreateDataset mdlCreateDesc mdlCreateExecConfigHandle mdlGetDatasetBuffer mdlGetDatasetTensorDesc "
        "mdlGetInputNameByIndex mdlGetOutputNameByIndex profCreateStepInfo tdtCreateChannel "
        "tdtCreateChannelWithCapacity tdtCreateDataItem tdtCreateDataset tdtGetDataAddrFromItem tdtGetDataItem "
        "tdtGetDatasetName"
    )
    numbers = (
        "mdlGetDatasetNumBuffers mdlGetInputDataType mdlGetInputFormat mdlGetInputSizeByIndex mdlGetNumInputs "
        "mdlGetNumOutputs mdlGetOutputDataType mdlGetOutputFormat mdlGetOutputSizeByIndex profDestroyStepInfo "
        "rtGetDeviceIdFromExceptionInfo rtGetErrorCodeFromExceptionInfo rtGetStreamIdFromExceptionInfo "
        "rtGetTaskIdFromExceptionInfo rtGetThreadIdFromExceptionInfo tdtGetDataSizeFromItem tdtGetDataTypeFromItem "
        "tdtGetDatasetSize tdtGetDimNumFromItem tdtGetTensorTypeFromItem"
    )
    statuses = (
        "GenGraphAndDumpForOp mdlAddDatasetBuffer mdlBundleGetModelId mdlBundleLoadFromMem mdlBundleUnload "
        "mdlDestroyDataset mdlDestroyDesc mdlDestroyExecConfigHandle mdlExecute mdlExecuteV2 mdlGetCurOutputDims "
        "mdlGetDesc mdlGetDynamicBatch mdlGetDynamicHW mdlGetInputDims mdlGetInputDimsV2 mdlGetInputDynamicDims "
        "mdlGetInputDynamicGearCount mdlGetInputIndexByName mdlGetOutputDims mdlLoadFromMem mdlLoadFromMemWithMem "
        "mdlQuerySizeFromMem mdlSetDatasetTensorDesc mdlSetDynamicBatchSize mdlSetDynamicHWSize mdlSetExecConfigOpt "
        "mdlSetInputDynamicDims mdlUnload opSetAttrListDataType opSetAttrListString opSetCompileFlag opSetModelDir "
        "profGetStepTimestamp rtDeviceTaskAbort rtGetMemUceInfo rtMemUceRepair tdtAddDataItem tdtCleanChannel "
        "tdtDestroyChannel tdtDestroyDataItem tdtDestroyDataset tdtGetDimsFromItem tdtGetSliceInfoFromItem "
        "tdtQueryChannelSize tdtReceiveTensor tdtSendTensor tdtStopChannel"
    )
    return (
        *(Stub(f"void *acl{name}(void)", NOTHING) for name in addresses.split()),
        *(Stub(f"size_t acl{name}(void)", TAKEN) for name in numbers.split()),
        *(Stub(f"aclError acl{name}(void)", REJECTED) for name in statuses.split()),
        Stub("void *mstxMemHeapRegister(void)", NOTHING),
        *(Stub(f"int mstxMemRegions{name}(void)", TAKEN) for name in ("Register", "Unregister")),
    )


STUBS = (
    Stub(
        "void aclAppLog(int logLevel, const char *func, const char *file, uint32_t line, const char *fmt, ...)", LOGGED
    ),
    Stub("aclError aclmdlInitDump(void)", REJECTED),
    Stub("aclError aclmdlSetDump(const char *dumpCfgPath)", REJECTED),
    Stub("aclError aclmdlFinalizeDump(void)", REJECTED),
    # Memory shared between processes.
    Stub(
        "aclError aclrtMemExportToShareableHandle("
        "void *handle, int handleType, uint64_t flags, uint64_t *shareableHandle)",
        REJECTED,
    ),
    Stub(
        "aclError aclrtMemImportFromShareableHandle(uint64_t shareableHandle, int32_t deviceId, void **handle)",
        REJECTED,
    ),
    Stub("aclError aclrtMemSetPidToShareableHandle(uint64_t shareableHandle, int32_t *pid, size_t pidNum)", REJECTED),
    # Custom kernels.
    Stub(
        "aclError aclrtBinaryLoadFromData(const void *data, size_t length, const void *options, void **binHandle)",
        REJECTED,
    ),
    Stub("aclError aclrtBinaryGetFunction(void *binHandle, const char *kernelName, void **funcHandle)", REJECTED),
    Stub("aclError aclrtGetFunctionAddr(void *funcHandle, void **aicAddr, void **aivAddr)", REJECTED),
    Stub("rtError_t rtDevBinaryRegister(const void *bin, void **hdl)", REJECTED),
    Stub(
        "rtError_t rtFunctionRegister(void *binHandle, const void *stubFunc, const char *stubName, "
        "const void *kernelInfoExt, uint32_t funcMode)",
        REJECTED,
    ),
    Stub(
        "rtError_t rtKernelLaunch("
        "const void *stubFunc, uint32_t blockDim, void *args, uint32_t argsSize, void *smDesc, void *stm)",
        REJECTED,
    ),
    Stub("rtError_t rtGetC2cCtrlAddr(uint64_t *addr, uint32_t *len)", REJECTED),
    Stub("rtError_t rtDevBinaryUnRegister(void *hdl)", REJECTED),
    Stub("rtError_t rtLaunch(const void *stubFunc)", REJECTED),
    # Updates of a graph's tasks.
    *(
        Stub(function.prototype.replace("GetWorkspaceSize", "GetMaxWorkspaceSize"), PHASE_ONE)
        for name, function in FUNCTIONS.items()
        if re.fullmatch(
            r"aclnn(FusedInferAttentionScoreV[345]|FlashAttention(VarLenScore|UnpaddingScoreGrad)V5)GetWorkspaceSize",
            name,
        )
    ),
    # Memory for the descriptions of operators.
    Stub("int InitHugeMemThreadLocal(void *arg, bool sync)", TAKEN),
    Stub("void UnInitHugeMemThreadLocal(void *arg, bool sync)", TAKEN),
    Stub("void ReleaseHugeMem(void *arg, bool sync)", TAKEN),
    # Results are deterministic whatever the setting.
    Stub("HcclResult HcclSetConfig(int config, int32_t configValue)", TAKEN),
    # The driver's clock: without it, torch_npu's profiler uses the system's.
    Stub("int halGetAPIVersion(int *version)", REJECTED),
    Stub("int halGetDeviceInfo(uint32_t device, int32_t module, int32_t info, int64_t *value)", REJECTED),
    Stub("int halHostRegister(void *srcPtr, uint64_t size, uint32_t flag, uint32_t devid, void **dstPtr)", REJECTED),
    Stub("int halHostUnregister(void *srcPtr, uint32_t devid)", REJECTED),
    # A program's allocator for memory that operators by type need besides their tensors: they need none.
    Stub("void *aclrtAllocatorCreateDesc(void)", SOMETHING),
    Stub("aclError aclrtAllocatorDestroyDesc(void *allocatorDesc)", TAKEN),
    Stub("aclError aclrtAllocatorSetObjToDesc(void *allocatorDesc, void *allocator)", TAKEN),
    *(
        Stub(f"aclError aclrtAllocatorSet{what}FuncToDesc(void *allocatorDesc, void *func)", TAKEN)
        for what in ("Alloc", "Free", "AllocAdvise", "GetAddrFromBlock")
    ),
    Stub("aclError aclrtAllocatorRegister(void *stream, void *allocatorDesc)", TAKEN),
    Stub("aclError aclrtAllocatorUnregister(void *stream)", TAKEN),
    # Callback for failed tasks.
    Stub("aclError aclrtSetExceptionInfoCallback(void *callback)", TAKEN),
    *_mindspore(),
    # Device activities for PyTorch's own profiler, which works on the host without.
    *(
        Stub(f"int mspti{name}", REJECTED)
        for name in (
            "Subscribe(void **subscriber, void *callback, void *userdata)",
            "Unsubscribe(void *subscriber)",
            "ActivityRegisterCallbacks(void *requested, void *completed)",
            "ActivityEnable(int kind)",
            "ActivityDisable(int kind)",
            "ActivityIsEnabled(int kind)",
            "ActivityFlushAll(uint32_t flag)",
            "ActivityGetNextRecord(uint8_t *buffer, size_t validBufferSizeBytes, void **record)",
            "ActivityPushExternalCorrelationId(int kind, uint64_t id)",
            "ActivityPopExternalCorrelationId(int kind, uint64_t *lastId)",
        )
    ),
    # torch_npu's profiler works without these device measurements.
    Stub("aclError aclprofInit(const char *profilerResultPath, size_t length)", REJECTED),
    Stub("aclError aclprofFinalize(void)", REJECTED),
    Stub(
        "void *aclprofCreateConfig("
        "uint32_t *deviceIdList, uint32_t deviceNums, int aicoreMetrics, const void *events, uint64_t dataTypeConfig)",
        NOTHING,
    ),
    Stub("aclError aclprofDestroyConfig(const void *profilerConfig)", REJECTED),
    Stub("aclError aclprofSetConfig(int configType, const char *config, size_t configLength)", REJECTED),
    Stub("aclError aclprofGetSupportedFeatures(size_t *featuresSize, void **featuresData)", REJECTED),
    Stub("aclError aclprofGetSupportedFeaturesV2(size_t *featuresSize, void **featuresData)", REJECTED),
    Stub("aclError aclprofWarmup(const void *profilerConfig)", REJECTED),
    Stub("aclError aclprofStart(const void *profilerConfig)", REJECTED),
    Stub("aclError aclprofStop(const void *profilerConfig)", REJECTED),
    # Markers for tools.
    Stub("void mstxMarkA(const char *message, void *stream)", TAKEN),
    Stub("uint64_t mstxRangeStartA(const char *message, void *stream)", TAKEN),
    Stub("void mstxRangeEnd(uint64_t id)", TAKEN),
    Stub("void *mstxDomainCreateA(const char *name)", NOTHING),
    Stub("void mstxDomainDestroy(void *domain)", TAKEN),
    Stub("void mstxDomainMarkA(void *domain, const char *message, void *stream)", TAKEN),
    Stub("uint64_t mstxDomainRangeStartA(void *domain, const char *message, void *stream)", TAKEN),
    Stub("void mstxDomainRangeEnd(void *domain, uint64_t id)", TAKEN),
    # Reports of the profiler, which are discarded.
    Stub("int32_t MsprofRegisterCallback(uint32_t moduleId, void *handle)", TAKEN),
    Stub("int32_t MsprofReportApi(uint32_t agingFlag, const void *api)", TAKEN),
    Stub("int32_t MsprofReportCompactInfo(uint32_t agingFlag, const void *data, uint32_t length)", TAKEN),
    Stub("int32_t MsprofReportAdditionalInfo(uint32_t agingFlag, const void *data, uint32_t length)", TAKEN),
    Stub("uint64_t MsprofGetHashId(const char *hashInfo, size_t length)", HASH),
    Stub("uint64_t MsprofSysCycleTime(void)", CLOCK),
)
