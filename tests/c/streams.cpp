// Asynchronous work on several streams, ordered by events, with everything that phase one keeps already destroyed.
#include "device.hpp"

#include "aclnnop/aclnn_hardswish_backward.h"

namespace {

constexpr int64_t kSize = 1 << 16;
constexpr size_t kBytes = kSize * sizeof(float);
constexpr int kStreams = 4;

void* device_buffer(const std::vector<float>& values)
{
    void* address = nullptr;
    ok(aclrtMalloc(&address, kBytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    ok(aclrtMemcpy(address, kBytes, values.data(), kBytes, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
    return address;
}

// Queues out = dy * slope(x) with tensors that are gone when this returns.
void enqueue(void* dy, void* x, void* out, aclrtStream stream)
{
    const Shape shape{kSize};
    aclTensor* tensors[3];
    void* const addresses[3] = {dy, x, out};
    for (int i = 0; i < 3; i++) {
        tensors[i] = aclCreateTensor(shape.data(), 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape.data(), 1,
                                     addresses[i]);
    }
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    ok(aclnnHardswishBackwardGetWorkspaceSize(tensors[0], tensors[1], tensors[2], &size, &executor), "first phase");
    expect(size == 0, "no workspace is needed");
    ok(aclnnHardswishBackward(nullptr, 0, executor, stream), "second phase");
    for (aclTensor* tensor : tensors) {
        ok(aclDestroyTensor(tensor), "aclDestroyTensor");
    }
}

std::vector<float> fetch(void* address)
{
    std::vector<float> values(kSize);
    ok(aclrtMemcpy(values.data(), kBytes, address, kBytes, ACL_MEMCPY_DEVICE_TO_HOST), "aclrtMemcpy");
    return values;
}

}  // namespace

int main()
{
    ok(aclInit(nullptr), "aclInit");
    ok(aclrtSetDevice(0), "aclrtSetDevice");
    aclrtStream streams[kStreams];
    aclrtEvent done[kStreams], began;
    std::vector<float> x(kSize), ones(kSize, 1.0F);
    for (int64_t i = 0; i < kSize; i++) {
        x[static_cast<size_t>(i)] = static_cast<float>(i % 7) - 3.0F;
    }
    void* const slopes = device_buffer(x);
    void* values = device_buffer(ones);
    ok(aclrtCreateEventWithFlag(&began, ACL_EVENT_TIME_LINE), "aclrtCreateEventWithFlag");
    for (int i = 0; i < kStreams; i++) {
        ok(aclrtCreateStream(&streams[i]), "aclrtCreateStream");
        ok(aclrtCreateEvent(&done[i]), "aclrtCreateEvent");
    }

    // A chain through all streams, eight times: each link reads what the one before it, on another stream, wrote.
    ok(aclrtRecordEvent(began, streams[0]), "aclrtRecordEvent");
    constexpr int kLinks = 8;
    for (int link = 0; link < kLinks; link++) {
        const aclrtStream stream = streams[link % kStreams];
        if (link > 0) {
            ok(aclrtStreamWaitEvent(stream, done[(link - 1) % kStreams]), "aclrtStreamWaitEvent");
        }
        enqueue(values, slopes, values, stream);
        ok(aclrtRecordEvent(done[link % kStreams], stream), "aclrtRecordEvent");
    }
    ok(aclrtSynchronizeEvent(done[(kLinks - 1) % kStreams]), "aclrtSynchronizeEvent");
    const std::vector<float> result = fetch(values);
    for (size_t i = 0; i < result.size(); i++) {
        float expected = 1.0F;
        for (int link = 0; link < kLinks; link++) {
            expected *= x[i] / 3.0F + 0.5F;
        }
        expect(std::fabs(result[i] - expected) <= 1e-5F * std::fabs(expected) + 1e-30F, "a chain over streams");
    }
    float ms = -1.0F;
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    ok(aclrtQueryEventStatus(done[0], &status), "aclrtQueryEventStatus");
    expect(status == ACL_EVENT_RECORDED_STATUS_COMPLETE, "the event is complete");
    ok(aclrtEventElapsedTime(&ms, began, done[(kLinks - 1) % kStreams]), "aclrtEventElapsedTime");
    expect(ms > 0.0F, "time passes");

    // Buffers that are freed while their work is queued are kept until it is done.
    for (int i = 0; i < 16; i++) {
        void* out = device_buffer(ones);
        enqueue(slopes, slopes, out, streams[i % kStreams]);
        ok(aclrtFree(out), "aclrtFree of a buffer in use");
    }
    ok(aclrtSynchronizeDevice(), "aclrtSynchronizeDevice");

    // Copies and fills take their turn too.
    std::vector<float> back(kSize);
    ok(aclrtMemsetAsync(values, kBytes, 0, kBytes, streams[1]), "aclrtMemsetAsync");
    ok(aclrtMemcpyAsync(back.data(), kBytes, values, kBytes, ACL_MEMCPY_DEVICE_TO_HOST, streams[1]), "async copy");
    ok(aclrtSynchronizeStreamWithTimeout(streams[1], 10000), "aclrtSynchronizeStreamWithTimeout");
    expect(back == std::vector<float>(kSize, 0.0F), "filled, then copied");
    expect(aclrtSynchronizeStreamWithTimeout(streams[1], 0) == ACL_ERROR_RT_PARAM_INVALID, "no time at all");

    for (int i = 0; i < kStreams; i++) {
        ok(aclrtDestroyEvent(done[i]), "aclrtDestroyEvent");
        ok(aclrtDestroyStream(streams[i]), "aclrtDestroyStream");
        expect(aclrtDestroyStream(streams[i]) != ACL_SUCCESS, "a stream destroyed twice");
    }
    ok(aclrtDestroyEvent(began), "aclrtDestroyEvent");
    ok(aclrtFree(values), "aclrtFree");
    ok(aclrtFree(slopes), "aclrtFree");
    ok(aclrtResetDevice(0), "aclrtResetDevice");
    ok(aclFinalize(), "aclFinalize");
    std::puts("ok");
    return 0;
}
