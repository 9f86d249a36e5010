// Memory by attributes, copies of rows and of many ranges at once, and what devices, streams and events say.
#include "device.hpp"

#include "acl/acl_op_compiler.h"
#include "aclnnop/aclnn_silu.h"

namespace {

constexpr size_t kNone = ~size_t{0};

void* allocated_with_attributes()
{
    aclrtMallocAttribute attributes[2] = {};
    attributes[0].attr = ACL_RT_MEM_ATTR_MODULE_ID;
    attributes[0].value.moduleId = 33;
    attributes[1].attr = ACL_RT_MEM_ATTR_DEVICE_ID;
    attributes[1].value.deviceId = 0;
    aclrtMallocConfig config = {attributes, 2};
    void* address = nullptr;
    ok(aclrtMallocWithCfg(&address, 64, ACL_MEM_MALLOC_HUGE_FIRST, &config), "aclrtMallocWithCfg");
    attributes[1].value.deviceId = 5;
    void* none = nullptr;
    expect(aclrtMallocWithCfg(&none, 64, ACL_MEM_MALLOC_HUGE_FIRST, &config) == ACL_ERROR_RT_PARAM_INVALID
               && none == nullptr, "another device's number is rejected");
    return address;
}

void where_pointers_point(void* there)
{
    void *pinned = nullptr, *base = nullptr;
    size_t size = 0;
    aclrtPtrAttributes found = {};
    ok(aclrtMallocHostWithCfg(&pinned, 64, nullptr), "aclrtMallocHostWithCfg");
    ok(aclrtPointerGetAttributes(there, &found), "aclrtPointerGetAttributes");
    expect(found.location.type == ACL_MEM_LOCATION_TYPE_DEVICE && found.location.id == 0, "a device's");
    ok(aclrtPointerGetAttributes(pinned, &found), "aclrtPointerGetAttributes");
    expect(found.location.type == ACL_MEM_LOCATION_TYPE_HOST && found.pageSize > 0, "the host's");
    ok(aclrtPointerGetAttributes(&found, &found), "aclrtPointerGetAttributes");
    expect(found.location.type == ACL_MEM_LOCATION_TYPE_UNREGISTERED, "neither's");
    ok(aclrtMemGetAddressRange(static_cast<char*>(there) + 8, &base, &size), "aclrtMemGetAddressRange");
    expect(base == there && size == 64, "the range around an address");
    ok(aclrtFreeHostWithDevSync(pinned), "aclrtFreeHostWithDevSync");
}

void an_operator_on_the_hosts_memory()
{
    const int64_t dims[] = {2};
    float x[] = {0, 40}, y[] = {7, 7};
    void *read = nullptr, *written = nullptr;
    ok(aclrtHostRegister(x, sizeof x, ACL_HOST_REGISTER_MAPPED, &read), "aclrtHostRegister");
    ok(aclrtHostRegisterV2(y, sizeof y, ACL_HOST_REG_MAPPED | ACL_HOST_REG_PINNED), "aclrtHostRegisterV2");
    ok(aclrtHostGetDevicePointer(y, &written, 0), "aclrtHostGetDevicePointer");
    aclTensor* in = aclCreateTensor(dims, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims, 1, read);
    aclTensor* out = aclCreateTensor(dims, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims, 1, written);
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    ok(aclnnSiluGetWorkspaceSize(in, out, &size, &executor), "first phase");
    ok(aclnnSilu(nullptr, 0, executor, nullptr), "second phase");
    ok(aclrtSynchronizeDevice(), "aclrtSynchronizeDevice");
    expect(y[0] == 0 && y[1] == 40, "SiLU of the host's memory");
    for (void* registered : {static_cast<void*>(x), static_cast<void*>(y)}) {
        ok(aclrtHostUnregister(registered), "aclrtHostUnregister");
    }
    expect(aclrtHostUnregister(x) == ACL_ERROR_HOST_MEMORY_NOT_REGISTERED, "registered once");
    ok(aclDestroyTensor(in), "aclDestroyTensor");
    ok(aclDestroyTensor(out), "aclDestroyTensor");
}

void rows_and_words(void* there, aclrtStream stream)
{
    char matrix[3][8], back[3][4] = {};
    for (int i = 0; i < 24; i++) {
        matrix[i / 8][i % 8] = static_cast<char>(i);
    }
    ok(aclrtMemcpy2d(there, 4, matrix, 8, 4, 3, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy2d");
    ok(aclrtMemcpy2dAsync(back, 4, there, 4, 4, 3, ACL_MEMCPY_DEVICE_TO_HOST, stream), "aclrtMemcpy2dAsync");
    expect(back[2][3] == 19 && back[0][0] == 0, "rows");
    uint32_t words[2] = {};
    ok(aclrtMemsetD32(there, 64, 0xDEADBEEF, 1), "aclrtMemsetD32");
    ok(aclrtMemsetD32Async(static_cast<char*>(there) + 4, 60, 7, 1, stream), "aclrtMemsetD32Async");
    ok(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
    ok(aclrtMemcpyAsyncWithCondition(words, 8, there, 8, ACL_MEMCPY_DEVICE_TO_HOST, stream),
       "aclrtMemcpyAsyncWithCondition");
    expect(words[0] == 0xDEADBEEF && words[1] == 7, "words");
}

void batches(void* there, aclrtStream stream)
{
    char out[] = "from the host", back[16] = {};
    aclrtMemcpyBatchAttr attribute = {};
    attribute.dstLoc = {0, ACL_MEM_LOCATION_TYPE_DEVICE};
    attribute.srcLoc = {0, ACL_MEM_LOCATION_TYPE_HOST};
    void *to[] = {there, static_cast<char*>(there) + 4}, *from[] = {out, out + 4};
    size_t sizes[] = {4, sizeof out - 4}, first = 0, failed = 0;
    ok(aclrtMemcpyBatch(to, sizes, from, sizes, 2, &attribute, &first, 1, &failed), "aclrtMemcpyBatch");
    expect(failed == kNone, "nothing failed");
    expect(aclrtMemcpyBatch(from, sizes, to, sizes, 2, &attribute, &first, 1, &failed) == ACL_ERROR_RT_PARAM_INVALID
               && failed == 0, "the other way round is another attribute's");
    std::swap(attribute.dstLoc, attribute.srcLoc);
    void* into[] = {back, back + 4};
    ok(aclrtMemcpyBatchAsync(into, sizes, to, sizes, 2, &attribute, &first, 1, &failed, stream),
       "aclrtMemcpyBatchAsync");
    ok(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
    expect(std::strcmp(back, out) == 0, "there and back");
    std::memset(back, 0, sizeof back);
    ok(aclrtMemcpyBatchV2(into, sizes, to, sizes, 2, &attribute, &first, 1), "aclrtMemcpyBatchV2");
    expect(std::strcmp(back, out) == 0, "back again");
    std::memset(back, 0, sizeof back);
    ok(aclrtMemcpyBatchAsyncV2(into, sizes, to, sizes, 2, &attribute, &first, 1, stream), "aclrtMemcpyBatchAsyncV2");
    ok(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
    expect(std::strcmp(back, out) == 0, "back once more");
    ok(aclrtCmoAsync(there, 16, ACL_RT_CMO_TYPE_PREFETCH, stream), "aclrtCmoAsync");
}

void devices()
{
    aclrtUtilizationInfo rates = {};
    ok(aclrtGetDeviceUtilizationRate(0, &rates), "aclrtGetDeviceUtilizationRate");
    expect(rates.cubeUtilization == -1 && rates.memoryUtilization == -1, "not measured");
    aclrtErrorInfo fault;
    std::memset(&fault, 0xFF, sizeof fault);
    ok(aclrtGetErrorVerbose(0, &fault), "aclrtGetErrorVerbose");
    expect(fault.errorType == ACL_RT_NO_ERROR && fault.hasDetail == 0 && fault.tryRepair == 0, "no fault");
    aclrtDeviceStatus status = ACL_RT_DEVICE_STATUS_END;
    ok(aclrtQueryDeviceStatus(0, &status), "aclrtQueryDeviceStatus");
    expect(status == ACL_RT_DEVICE_STATUS_NORMAL, "a device in order");
    int64_t cores = 0;
    ok(aclrtGetDeviceInfo(0, ACL_DEV_ATTR_VECTOR_CORE_NUM, &cores), "aclrtGetDeviceInfo");
    expect(cores == 48, "vector cores");
    ok(aclrtSetTsDevice(ACL_TS_ID_AIVECTOR), "aclrtSetTsDevice");
    int32_t least = -1, active = -1;
    ok(aclrtDeviceGetStreamPriorityRange(&least, nullptr), "aclrtDeviceGetStreamPriorityRange");
    expect(least == 7, "the least priority");
    ok(aclrtGetPrimaryCtxState(0, nullptr, &active), "aclrtGetPrimaryCtxState");
    expect(active == 1, "a context");
    ok(aclrtSynchronizeDeviceWithTimeout(1000), "aclrtSynchronizeDeviceWithTimeout");
    expect(aclrtDeviceDisablePeerAccess(0) == ACL_ERROR_INVALID_PARAM, "a device is no peer of its own");
}

void streams_and_events(aclrtStream stream)
{
    uint32_t priority = 0, flags = 0, overflow = 7;
    int32_t id = -1;
    ok(aclrtStreamGetPriority(stream, &priority), "aclrtStreamGetPriority");
    ok(aclrtStreamGetFlags(stream, &flags), "aclrtStreamGetFlags");
    ok(aclrtStreamGetId(stream, &id), "aclrtStreamGetId");
    expect(priority == 2 && flags == ACL_STREAM_FAST_SYNC && id >= 0, "a stream as it was created");
    ok(aclrtSetStreamOverflowSwitch(stream, 1), "aclrtSetStreamOverflowSwitch");
    ok(aclrtGetStreamOverflowSwitch(stream, &overflow), "aclrtGetStreamOverflowSwitch");
    expect(overflow == 1, "a switch");
    ok(aclrtSetStreamFailureMode(stream, ACL_STOP_ON_FAILURE), "aclrtSetStreamFailureMode");
    expect(aclrtSetStreamFailureMode(stream, ACL_CONTINUE_ON_FAILURE) == ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
           "a stream stops for good");
    ok(aclrtStreamAbort(stream), "aclrtStreamAbort");
    aclrtStream first = nullptr;
    int32_t number = -1;
    ok(aclrtCtxGetCurrentDefaultStream(&first), "aclrtCtxGetCurrentDefaultStream");
    ok(aclrtStreamGetId(first, &number), "aclrtStreamGetId");
    expect(first != stream && number != id, "the default stream");
    expect(aclmdlRICaptureGetInfo(stream, nullptr, nullptr) == ACL_ERROR_INVALID_PARAM, "nothing is asked for");
    aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE;
    ok(aclmdlRICaptureGetInfo(stream, &status, nullptr), "aclmdlRICaptureGetInfo");
    expect(status == ACL_MODEL_RI_CAPTURE_STATUS_NONE, "no capture");
    aclrtEvent event = nullptr;
    uint64_t time = 0;
    ok(aclrtCreateEvent(&event), "aclrtCreateEvent");
    ok(aclrtRecordEvent(event, stream), "aclrtRecordEvent");
    ok(aclrtSynchronizeEvent(event), "aclrtSynchronizeEvent");
    ok(aclrtEventGetTimestamp(event, &time), "aclrtEventGetTimestamp");
    expect(time > 0, "a time");
    ok(aclrtDestroyEvent(event), "aclrtDestroyEvent");
}

void objects()
{
    const int64_t dims[] = {2, 3}, unknown[] = {-2};
    float number[2] = {1, 0};
    aclTensorDesc* desc = aclCreateTensorDesc(ACL_FLOAT, 2, dims, ACL_FORMAT_ND);
    expect(aclGetTensorDescDim(desc, 1) == 3 && aclGetTensorDescDim(desc, 2) == -1, "an extent");
    aclDestroyTensorDesc(desc);
    desc = aclCreateTensorDesc(ACL_FLOAT, 1, unknown, ACL_FORMAT_ND);
    expect(aclGetTensorDescNumDims(desc) == ACL_UNKNOWN_RANK, "an unknown rank");
    aclDestroyTensorDesc(desc);
    aclDataBuffer* buffer = aclCreateDataBuffer(number, sizeof number);
    expect(aclGetDataBufferSize(buffer) == 8, "a buffer's bytes");
    ok(aclDestroyDataBuffer(buffer), "aclDestroyDataBuffer");
    for (const aclDataType type : {ACL_STRING, ACL_FLOAT8_E4M3FN, ACL_DT_UNDEFINED, ACL_COMPLEX32}) {
        expect(aclCreateScalar(number, type) == nullptr, "no scalar of a type that they do not have");
    }
    expect(aclopCompileAndExecuteV2("None", 0, nullptr, nullptr, 0, nullptr, nullptr, nullptr, ACL_ENGINE_SYS,
                                    ACL_COMPILE_SYS, nullptr, nullptr) == ACL_ERROR_API_NOT_SUPPORT, "an unknown type");
    aclTensor* tensors[1] = {};
    ok(aclDumpOpTensors("Add", "add", tensors, 1, 0, nullptr), "aclDumpOpTensors");
    expect(aclDumpOpTensors("Add", "add", nullptr, 0, 0, nullptr) == ACLNN_ERR_PARAM_NULLPTR, "no tensors");
    ok(aclnnReselectStaticKernel(), "aclnnReselectStaticKernel");
}

}  // namespace

int main()
{
    aclrtStream stream = nullptr;
    ok(aclInit(nullptr), "aclInit");
    ok(aclrtSetDevice(0), "aclrtSetDevice");
    ok(aclrtCreateStreamWithConfig(&stream, 2, ACL_STREAM_FAST_SYNC), "aclrtCreateStreamWithConfig");
    void* const there = allocated_with_attributes();
    where_pointers_point(there);
    an_operator_on_the_hosts_memory();
    rows_and_words(there, stream);
    batches(there, stream);
    devices();
    streams_and_events(stream);
    objects();
    ok(aclrtFreeWithDevSync(there), "aclrtFreeWithDevSync");
    ok(aclrtDestroyStream(stream), "aclrtDestroyStream");
    ok(aclrtResetDevice(0), "aclrtResetDevice");
    ok(aclFinalize(), "aclFinalize");
    std::printf("ok\n");
    return 0;
}
