// Eight threads, each with its own context and stream, and so many operators each (threads 10000): no wrong result.
#include "device.hpp"

#include <thread>

#include "aclnnop/aclnn_hardswish_backward.h"

namespace {

constexpr int kThreads = 8;
constexpr int64_t kSize = 24;
constexpr size_t kBytes = kSize * sizeof(float);

void work(int thread, int operators)
{
    aclrtContext context = nullptr;
    aclrtStream stream = nullptr;
    ok(aclrtCreateContext(&context, 0), "aclrtCreateContext");
    ok(aclrtCreateStream(&stream), "aclrtCreateStream");
    std::vector<float> dy(kSize), x(kSize, 4.0F), dx(kSize);
    void* addresses[3];
    aclTensor* tensors[3];
    const Shape shape{4, 6};
    for (int i = 0; i < 3; i++) {
        ok(aclrtMalloc(&addresses[i], kBytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
        tensors[i] = aclCreateTensor(shape.data(), 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape.data(), 2,
                                     addresses[i]);
        expect(tensors[i] != nullptr, "aclCreateTensor");
    }
    ok(aclrtMemcpy(addresses[1], kBytes, x.data(), kBytes, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
    for (int turn = 0; turn < operators; turn++) {
        const bool checked = turn % 16 == 0;
        if (checked) {
            std::fill(dy.begin(), dy.end(), static_cast<float>(thread * operators + turn));
            ok(aclrtMemcpy(addresses[0], kBytes, dy.data(), kBytes, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
            ok(aclrtMemset(addresses[2], kBytes, 0xFF, kBytes), "aclrtMemset");
        }
        uint64_t size = 0;
        aclOpExecutor* executor = nullptr;
        ok(aclnnHardswishBackwardGetWorkspaceSize(tensors[0], tensors[1], tensors[2], &size, &executor), "first phase");
        ok(aclnnHardswishBackward(nullptr, size, executor, stream), "second phase");
        if (checked) {
            ok(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
            ok(aclrtMemcpy(dx.data(), kBytes, addresses[2], kBytes, ACL_MEMCPY_DEVICE_TO_HOST), "aclrtMemcpy");
            expect(dx == dy, "thread " + std::to_string(thread) + ", operator " + std::to_string(turn));
        }
    }
    // This thread's rejections are its own.
    expect(aclrtFree(nullptr) == ACL_ERROR_INVALID_PARAM, "aclrtFree of null");
    const char* text = aclGetRecentErrMsg();
    expect(text != nullptr && std::strstr(text, "aclrtFree") == text && std::strchr(text, '\n') == nullptr,
           "one error text");
    for (int i = 0; i < 3; i++) {
        ok(aclDestroyTensor(tensors[i]), "aclDestroyTensor");
        ok(aclrtFree(addresses[i]), "aclrtFree");
    }
    ok(aclrtDestroyStream(stream), "aclrtDestroyStream");
    ok(aclrtDestroyContext(context), "aclrtDestroyContext");
}

}  // namespace

int main(int argc, char** argv)
{
    const int operators = argc > 1 ? std::atoi(argv[1]) : 10000;
    ok(aclInit(nullptr), "aclInit");
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; i++) {
        threads.emplace_back(work, i, operators);
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    ok(aclFinalize(), "aclFinalize");
    std::printf("%d operators\n", kThreads * operators);
    return 0;
}
