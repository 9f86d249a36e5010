// A library for a Python program, with an object that is destroyed after Python's end; see test_embedding.py.
#include <cstdio>

#include "acl/acl.h"
#include "aclnnop/aclnn_silu.h"

namespace {

constexpr int64_t kSize = 16;

struct Session {
    aclrtContext context = nullptr;
    aclrtStream stream = nullptr;
    aclrtEvent event = nullptr;
    aclTensor* tensor = nullptr;
    void* memory = nullptr;
    void* host = nullptr;

    int open()
    {
        const int wrong = aclInit(nullptr) | aclrtSetDevice(0) | aclrtCreateContext(&context, 0)
            | aclrtCreateStream(&stream) | aclrtCreateEvent(&event)
            | aclrtMalloc(&memory, kSize * sizeof(float), ACL_MEM_MALLOC_HUGE_FIRST) | aclrtMallocHost(&host, 64);
        tensor = aclCreateTensor(&kSize, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &kSize, 1, memory);
        return wrong;
    }

    ~Session()
    {
        uint64_t size = 0;
        aclOpExecutor* executor = nullptr;

        std::printf("select and wait: %d\n", aclrtSetDevice(0) | aclrtSetCurrentContext(context)
            | aclrtSynchronizeStream(stream) | aclrtSynchronizeDevice());
        std::printf("compute: %d %d %d %d\n", aclnnSiluGetWorkspaceSize(tensor, tensor, &size, &executor),
            aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST), aclrtMemset(host, 64, 0, 64), aclInit(nullptr));
        std::printf("release: %d\n", aclDestroyTensor(tensor) | aclrtFree(memory) | aclrtFreeHost(host)
            | aclrtDestroyEvent(event) | aclrtDestroyStream(stream) | aclrtDestroyContext(context)
            | aclrtResetDevice(0) | aclFinalize());
        std::fflush(stdout);
    }
} session;

}  // namespace

extern "C" int begin() { return session.open(); }
