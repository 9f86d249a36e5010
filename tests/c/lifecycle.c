/* Start and stop again, device and context rules, memory exhaustion, error texts: a plain C11 program. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl/acl.h"
#include "aclnnop/aclnn_silu.h"

static int wrong;

#define EXPECT(condition)                                                \
    do {                                                                 \
        if (!(condition)) {                                              \
            printf("%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
            wrong = 1;                                                   \
        }                                                                \
    } while (0)

static void start_and_stop(void)
{
    uint64_t count = 7;

    EXPECT(aclFinalize() == ACL_SUCCESS);
    EXPECT(aclInit("/nonexistent/acl.json") == ACL_ERROR_INVALID_FILE);
    EXPECT(aclInit(NULL) == ACL_SUCCESS);
    EXPECT(aclInit("") == ACL_ERROR_REPEAT_INITIALIZE);
    EXPECT(aclFinalizeReference(&count) == ACL_SUCCESS && count == 1);
    EXPECT(aclFinalizeReference(NULL) == ACL_SUCCESS);
    EXPECT(aclFinalizeReference(&count) == ACL_ERROR_REPEAT_FINALIZE);
    EXPECT(aclFinalize() == ACL_ERROR_REPEAT_FINALIZE);
    for (int turn = 0; turn < 3; turn++) {
        EXPECT(aclInit(NULL) == ACL_SUCCESS);
        EXPECT(aclFinalize() == ACL_SUCCESS);
    }
    EXPECT(aclnnInit(NULL) == ACLNN_SUCCESS && aclnnFinalize() == ACLNN_SUCCESS);
}

static void *without_a_context(void *unused)
{
    void *p = NULL;
    aclrtStream stream = NULL;
    aclrtContext context = NULL;
    int32_t device = -1;

    (void)unused;
    EXPECT(aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_CONTEXT_NULL);
    EXPECT(aclrtCreateStream(&stream) == ACL_ERROR_RT_CONTEXT_NULL);
    EXPECT(aclrtGetDevice(&device) == ACL_ERROR_RT_CONTEXT_NULL);
    EXPECT(aclrtGetCurrentContext(&context) == ACL_ERROR_RT_CONTEXT_NULL);
    EXPECT(p == NULL && stream == NULL && device == -1 && context == NULL);
    return NULL;
}

static void devices_and_contexts(void)
{
    uint32_t count = 0;
    int32_t device = -1;
    aclrtRunMode mode = ACL_DEVICE;
    aclrtContext context = NULL, again = NULL, first = NULL;
    aclrtStream stream = NULL;
    pthread_t thread;

    EXPECT(aclrtGetDeviceCount(&count) == ACL_SUCCESS && count >= 1);
    EXPECT(aclrtGetDeviceCount(NULL) == ACL_ERROR_INVALID_PARAM);
    EXPECT(aclrtSetDevice((int32_t)count) == ACL_ERROR_RT_INVALID_DEVICEID);
    EXPECT(aclrtResetDevice(0) == ACL_ERROR_RT_CONTEXT_RELEASE_ERROR);
    EXPECT(aclrtSetDevice(0) == ACL_SUCCESS);
    EXPECT(aclrtGetDevice(&device) == ACL_SUCCESS && device == 0);
    EXPECT(aclrtGetRunMode(&mode) == ACL_SUCCESS && mode == ACL_HOST);
    EXPECT(aclrtGetCurrentContext(&first) == ACL_SUCCESS);
    EXPECT(aclrtCreateContext(&context, 0) == ACL_SUCCESS);
    EXPECT(aclrtGetCurrentContext(&again) == ACL_SUCCESS && again == context && again != first);
    EXPECT(aclrtCreateStream(&stream) == ACL_SUCCESS);
    EXPECT(aclrtSetCurrentContext(first) == ACL_SUCCESS);
    EXPECT(aclrtDestroyStream(stream) == ACL_ERROR_RT_STREAM_CONTEXT);
    EXPECT(aclrtDestroyContext(first) == ACL_ERROR_RT_CONTEXT_NULL);
    EXPECT(aclrtDestroyContext(context) == ACL_SUCCESS);
    EXPECT(aclrtSetCurrentContext(context) == ACL_ERROR_RT_PARAM_INVALID);
    EXPECT(aclrtSynchronizeDevice() == ACL_SUCCESS);
    pthread_create(&thread, NULL, without_a_context, NULL);
    pthread_join(thread, NULL);
    EXPECT(aclrtResetDevice(0) == ACL_SUCCESS);
}

static void memory(void)
{
    enum { BLOCK = 1 << 20, MOST = 4096 };
    static void *blocks[MOST];
    size_t before = 0, now = 0, total = 0;
    void *p = NULL;
    int taken = 0, status = ACL_SUCCESS;
    char bytes[64], back[64];

    EXPECT(aclrtSetDevice(0) == ACL_SUCCESS);
    EXPECT(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total) == ACL_SUCCESS && before <= total && total > 0);
    EXPECT(aclrtMalloc(NULL, 64, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_INVALID_PARAM);
    EXPECT(aclrtMalloc(&p, 0, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_INVALID_PARAM);
    EXPECT(aclrtMalloc(&p, SIZE_MAX, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_INVALID_PARAM);
    EXPECT(aclrtMalloc(&p, total + 1, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_RT_MEMORY_ALLOCATION && p == NULL);
    while (taken < MOST && status == ACL_SUCCESS) {
        status = aclrtMalloc(&blocks[taken], BLOCK, ACL_MEM_MALLOC_HUGE_FIRST);
        taken += status == ACL_SUCCESS;
    }
    EXPECT(status == ACL_ERROR_RT_MEMORY_ALLOCATION);
    EXPECT(strstr(aclGetRecentErrMsg(), "aclrtMalloc") != NULL);
    while (taken > 0) {
        EXPECT(aclrtFree(blocks[--taken]) == ACL_SUCCESS);
    }
    EXPECT(aclrtGetMemInfo(ACL_HBM_MEM, &now, &total) == ACL_SUCCESS && now == before);

    EXPECT(aclrtMalloc(&p, sizeof bytes, ACL_MEM_MALLOC_NORMAL_ONLY) == ACL_SUCCESS && (uintptr_t)p % 64 == 0);
    memset(bytes, 7, sizeof bytes);
    EXPECT(aclrtMemcpy(NULL, 0, NULL, 0, (aclrtMemcpyKind)99) == ACL_SUCCESS);
    EXPECT(aclrtMemcpy(p, 64, bytes, 64, (aclrtMemcpyKind)9) == ACL_ERROR_INVALID_PARAM);
    EXPECT(aclrtMemcpy(p, 32, bytes, 64, ACL_MEMCPY_HOST_TO_DEVICE) == ACL_ERROR_RT_PARAM_INVALID);
    EXPECT(aclrtMemcpy(p, 128, bytes, 128, ACL_MEMCPY_HOST_TO_DEVICE) == ACL_ERROR_RT_PARAM_INVALID);
    EXPECT(aclrtMemcpy(p, 64, bytes, 64, ACL_MEMCPY_DEVICE_TO_HOST) == ACL_SUCCESS);
    EXPECT(aclrtMemset(p, 64, 0x1FF, 32) == ACL_SUCCESS);
    EXPECT(aclrtMemcpy(back, 64, p, 64, ACL_MEMCPY_DEVICE_TO_HOST) == ACL_SUCCESS);
    EXPECT(back[31] == (char)0xFF && back[32] == 7);
    EXPECT(aclrtFree(p) == ACL_SUCCESS && aclrtFree(p) == ACL_ERROR_RT_PARAM_INVALID);
    EXPECT(aclrtMallocHost(&p, 64) == ACL_SUCCESS);
    memset(p, 1, 64);
    EXPECT(aclrtFreeHost(p) == ACL_SUCCESS && aclrtFreeHost(NULL) == ACL_ERROR_INVALID_PARAM);
    EXPECT(aclrtResetDevice(0) == ACL_SUCCESS);
}

static void error_texts(void)
{
    const int64_t shape[] = {2, 3}, other[] = {3, 2};
    aclTensor *self = aclCreateTensor(shape, 2, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, shape, 2, NULL);
    aclTensor *out = aclCreateTensor(other, 2, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, other, 2, NULL);
    uint64_t size = 5;
    aclOpExecutor *executor = NULL;
    const char *text;

    EXPECT(self != NULL && out != NULL);
    (void)aclGetRecentErrMsg();
    EXPECT(aclGetRecentErrMsg() == NULL);
    EXPECT(aclrtGetLastError(ACL_RT_THREAD_LEVEL) >= 0);
    EXPECT(aclnnSiluGetWorkspaceSize(self, out, &size, &executor) == ACLNN_ERR_PARAM_INVALID);
    EXPECT(size == 5 && executor == NULL);
    EXPECT(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL) == ACLNN_ERR_PARAM_INVALID);
    EXPECT(aclrtGetLastError(ACL_RT_THREAD_LEVEL) == ACLNN_ERR_PARAM_INVALID);
    EXPECT(aclrtGetLastError(ACL_RT_THREAD_LEVEL) == ACL_SUCCESS);
    EXPECT(aclrtGetLastError((aclrtLastErrLevel)1) == ACL_ERROR_INVALID_PARAM);
    (void)aclGetRecentErrMsg();
    EXPECT(aclnnSiluGetWorkspaceSize(NULL, out, &size, &executor) == ACLNN_ERR_PARAM_NULLPTR);
    EXPECT(aclnnSiluGetWorkspaceSize(self, out, &size, &executor) == ACLNN_ERR_PARAM_INVALID);
    text = aclGetRecentErrMsg();
    EXPECT(text != NULL && strstr(text, "aclnnSilu") == text);
    /* Newest first, one a line. */
    EXPECT(text != NULL && strstr(text, "[2, 3]") != NULL && strstr(text, "[2, 3]") < strstr(text, "null"));
    EXPECT(aclGetRecentErrMsg() == NULL);
    EXPECT(aclDestroyTensor(self) == ACLNN_SUCCESS && aclDestroyTensor(out) == ACLNN_SUCCESS);
}

static void helpers(void)
{
    int32_t major = 0, minor = 0, patch = 0;

    EXPECT(strcmp(aclrtGetSocName(), "Ascend910B2") == 0);
    EXPECT(aclrtGetSocName() == aclrtGetSocName());
    EXPECT(aclrtGetVersion(&major, &minor, &patch) == ACL_SUCCESS && major == 1 && minor == 17 && patch == 0);
    EXPECT(aclDataTypeSize(ACL_BF16) == 2 && aclDataTypeSize(ACL_STRING) == 0 && aclDataTypeSize((aclDataType)99) == 8);
    EXPECT(aclFloat16ToFloat(0x3C00) == 1.0F && aclFloat16ToFloat(0x7C00) == 65536.0F);
    EXPECT(aclFloat16ToFloat(0xFC00) == -65536.0F && aclFloat16ToFloat(0x7E00) == 98304.0F);
    EXPECT(aclFloatToFloat16(1.0F) == 0x3C00 && aclFloatToFloat16(1e9F) == 0x7BFF);
    EXPECT(aclFloatToFloat16(-1e9F) == 0xFBFF);
}

int main(void)
{
    start_and_stop();
    devices_and_contexts();
    memory();
    error_texts();
    helpers();
    puts(wrong ? "wrong" : "ok");
    return wrong;
}
