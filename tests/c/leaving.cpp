// Leaves with work queued whose kernels are still being loaded: "leaving WAY", see test_toolkit_embedding.py.
#include "device.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include "aclnnop/aclnn_hardswish_backward.h"
#include "aclnnop/aclnn_silu.h"

namespace {

constexpr int64_t kSize = 1 << 20;  // more than one thread takes alone: threads that share have kernels of their own
constexpr size_t kBytes = kSize * sizeof(float);
constexpr int kStreams = 3;

std::string way;
void* x;
void* dx[kStreams];

aclTensor* tensor_at(void* address)
{
    return aclCreateTensor(&kSize, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &kSize, 1, address);
}

// Queues dx = x at x = 4 on streams of their own.
void enqueue()
{
    const std::vector<float> fours(kSize, 4.0F);
    ok(aclrtMalloc(&x, kBytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    ok(aclrtMemcpy(x, kBytes, fours.data(), kBytes, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
    for (void*& result : dx) {
        aclrtStream stream = nullptr;
        uint64_t size = 0;
        aclOpExecutor* executor = nullptr;
        ok(aclrtCreateStream(&stream), "aclrtCreateStream");
        ok(aclrtMalloc(&result, kBytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
        ok(aclnnHardswishBackwardGetWorkspaceSize(tensor_at(x), tensor_at(x), tensor_at(result), &size, &executor),
           "first phase");
        ok(aclnnHardswishBackward(nullptr, size, executor, stream), "second phase");
    }
}

void look()
{
    std::vector<float> found(kSize);
    ok(aclrtSynchronizeDevice(), "aclrtSynchronizeDevice");
    for (void* result : dx) {
        ok(aclrtMemcpy(found.data(), kBytes, result, kBytes, ACL_MEMCPY_DEVICE_TO_HOST), "aclrtMemcpy");
        expect(found == std::vector<float>(kSize, 4.0F), "results");
    }
    ok(aclrtResetDevice(0), "aclrtResetDevice");
    ok(aclFinalize(), "aclFinalize");
    std::puts("looked");
}

// An operator that has not run before, when what compiles has ended.
void begin_anew()
{
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    const int status = aclnnSiluGetWorkspaceSize(tensor_at(x), tensor_at(dx[0]), &size, &executor);
    std::printf("rejected with %d\n", status);
}

struct Session {
    ~Session()
    {
        if (way == "object") {
            look();
        }
    }
} session;

int child_leaves()
{
    int status = -1;
    ok(aclrtSynchronizeDevice(), "aclrtSynchronizeDevice");
    if (fork() == 0) {
        alarm(20);
        std::exit(0);
    }
    wait(&status);
    return status;
}

}  // namespace

int main(int, char** argv)
{
    way = argv[1];
    if (way == "handler") {
        std::atexit(look);
    } else if (way == "new operator") {
        std::atexit(begin_anew);
    }
    ok(aclInit(nullptr), "aclInit");
    ok(aclrtSetDevice(0), "aclrtSetDevice");
    enqueue();
    if (way == "later handler") {
        std::atexit(look);
    }
    return way == "child" ? child_leaves() : 0;
}
