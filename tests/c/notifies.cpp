// Notifies, notifies that count, and values in memory that streams wait for.
#include "device.hpp"

namespace {

constexpr aclrtStream kDefault = nullptr;

void flags(aclrtStream stream)
{
    aclrtNotify notify = nullptr;
    uint32_t first = 0, second = 0;
    ok(aclrtCreateNotify(&notify, ACL_NOTIFY_DEFAULT), "aclrtCreateNotify");
    ok(aclrtGetNotifyId(notify, &first), "aclrtGetNotifyId");
    ok(aclrtWaitAndResetNotify(notify, stream, 0), "aclrtWaitAndResetNotify");
    expect(aclrtSynchronizeStreamWithTimeout(stream, 10) == ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "a stream waits");
    ok(aclrtRecordNotify(notify, kDefault), "aclrtRecordNotify");
    ok(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
    ok(aclrtRecordNotify(notify, kDefault), "aclrtRecordNotify");
    ok(aclrtNotifyBatchReset(&notify, 1), "aclrtNotifyBatchReset");
    ok(aclrtWaitAndResetNotify(notify, stream, 0), "aclrtWaitAndResetNotify");
    expect(aclrtSynchronizeStreamWithTimeout(stream, 10) == ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "it was reset");
    ok(aclrtStreamAbort(stream), "aclrtStreamAbort");
    ok(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
    ok(aclrtDestroyNotify(notify), "aclrtDestroyNotify");
    expect(aclrtDestroyNotify(notify) == ACL_ERROR_RT_PARAM_INVALID, "a stale notify");
    ok(aclrtCreateNotify(&notify, ACL_NOTIFY_DEVICE_USE_ONLY), "aclrtCreateNotify");
    ok(aclrtGetNotifyId(notify, &second), "aclrtGetNotifyId");
    expect(first != second, "numbers");
    ok(aclrtDestroyNotify(notify), "aclrtDestroyNotify");
}

void counts(aclrtStream stream)
{
    aclrtCntNotify notify = nullptr;
    uint32_t number = 0;
    aclrtCntNotifyRecordInfo record = {ACL_RT_CNT_NOTIFY_RECORD_ADD_MODE, 2};
    aclrtCntNotifyWaitInfo wait = {ACL_RT_CNT_NOTIFY_WAIT_EQUAL_MODE, 4, 0, 1, {}};
    ok(aclrtCntNotifyCreate(&notify, 0), "aclrtCntNotifyCreate");
    ok(aclrtCntNotifyGetId(notify, &number), "aclrtCntNotifyGetId");
    ok(aclrtCntNotifyRecord(notify, kDefault, &record), "aclrtCntNotifyRecord");
    ok(aclrtCntNotifyWaitWithTimeout(notify, stream, &wait), "aclrtCntNotifyWaitWithTimeout");
    expect(aclrtSynchronizeStreamWithTimeout(stream, 10) == ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "2 is not 4");
    ok(aclrtCntNotifyRecord(notify, kDefault, &record), "aclrtCntNotifyRecord");
    ok(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
    ok(aclrtCntNotifyReset(notify, stream), "aclrtCntNotifyReset");
    ok(aclrtCntNotifyDestroy(notify), "aclrtCntNotifyDestroy");
}

void values(aclrtStream stream)
{
    void* address = nullptr;
    uint64_t back[2] = {};
    ok(aclrtMalloc(&address, 16, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    ok(aclrtMemset(address, 16, 0, 16), "aclrtMemset");
    ok(aclrtValueWait(address, 7, ACL_STREAM_WAIT_VALUE_EQ, stream), "aclrtValueWait");
    ok(aclrtValueWrite(static_cast<char*>(address) + 8, 9, 0, stream), "aclrtValueWrite");
    expect(aclrtSynchronizeStreamWithTimeout(stream, 10) == ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "a stream waits");
    ok(aclrtValueWrite(address, 7, 0, kDefault), "aclrtValueWrite");
    ok(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
    ok(aclrtMemcpy(back, 16, address, 16, ACL_MEMCPY_DEVICE_TO_HOST), "aclrtMemcpy");
    expect(back[0] == 7 && back[1] == 9, "values");
    ok(aclrtFree(address), "aclrtFree");
}

}  // namespace

int main()
{
    aclrtStream stream = nullptr;
    ok(aclInit(nullptr), "aclInit");
    ok(aclrtSetDevice(0), "aclrtSetDevice");
    ok(aclrtCreateStream(&stream), "aclrtCreateStream");
    flags(stream);
    counts(stream);
    values(stream);
    ok(aclrtDestroyStream(stream), "aclrtDestroyStream");
    ok(aclrtResetDevice(0), "aclrtResetDevice");
    ok(aclFinalize(), "aclFinalize");
    std::printf("ok\n");
    return 0;
}
