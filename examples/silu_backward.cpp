// The gradient of SiLU by the two-phase calls, from C++: aclnn toolkit run examples/silu_backward.cpp

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_silu_backward.h"

static void require(const char *call, int status) {
    if (status != 0) {
        const char *why = aclGetRecentErrMsg();
        std::fprintf(stderr, "%s: status %d\n%s\n", call, status, why == nullptr ? "" : why);
        std::exit(EXIT_FAILURE);
    }
}

#define REQUIRE(call) require(#call, call)

// A float32 tensor on the device, with the values given.
struct DeviceTensor {
    void *memory = nullptr;
    aclTensor *tensor = nullptr;

    explicit DeviceTensor(const std::vector<float> &values) {
        const size_t bytes = values.size() * sizeof(float);
        const int64_t shape[] = {static_cast<int64_t>(values.size())}, strides[] = {1};
        REQUIRE(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
        REQUIRE(aclrtMemcpy(memory, bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));
        tensor = aclCreateTensor(shape, 1, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, shape, 1, memory);
    }

    ~DeviceTensor() {
        aclDestroyTensor(tensor);
        aclrtFree(memory);
    }

    DeviceTensor(const DeviceTensor &) = delete;
    DeviceTensor &operator=(const DeviceTensor &) = delete;
};

static void print_gradient(aclrtStream stream) {
    const std::vector<float> x = {-8, -1, 0, 1, 8};
    const DeviceTensor dy(std::vector<float>(x.size(), 1.0f)), self(x), dx(std::vector<float>(x.size()));

    uint64_t workspace_size = 0;
    aclOpExecutor *executor = nullptr;
    REQUIRE(aclnnSiluBackwardGetWorkspaceSize(dy.tensor, self.tensor, dx.tensor, &workspace_size, &executor));
    void *workspace = nullptr;
    if (workspace_size > 0) {
        REQUIRE(aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    REQUIRE(aclnnSiluBackward(workspace, workspace_size, executor, stream));
    REQUIRE(aclrtSynchronizeStream(stream));

    std::vector<float> gradient(x.size());
    const size_t bytes = gradient.size() * sizeof(float);
    REQUIRE(aclrtMemcpy(gradient.data(), bytes, dx.memory, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    for (size_t i = 0; i < x.size(); ++i) {
        std::printf("%4.1f -> %9.6f\n", x[i], gradient[i]);
    }
    if (workspace != nullptr) {
        aclrtFree(workspace);
    }
}

int main() {
    aclrtStream stream = nullptr;
    REQUIRE(aclInit(nullptr));
    REQUIRE(aclrtSetDevice(0));
    REQUIRE(aclrtCreateStream(&stream));
    std::printf("on %s\n", aclrtGetSocName());
    print_gradient(stream);
    REQUIRE(aclrtDestroyStream(stream));
    REQUIRE(aclrtResetDevice(0));
    REQUIRE(aclFinalize());
    return 0;
}
