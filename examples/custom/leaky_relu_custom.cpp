// Calls an operator of one's own:
// ACLNN_OPERATORS=examples/custom/operators.py aclnn toolkit run examples/custom/leaky_relu_custom.cpp

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "acl/acl.h"
#include "aclnn_leaky_relu_custom.h"

static void require(const char *call, int status) {
    if (status != 0) {
        const char *why = aclGetRecentErrMsg();
        std::fprintf(stderr, "%s: status %d\n%s\n", call, status, why == nullptr ? "" : why);
        std::exit(EXIT_FAILURE);
    }
}

#define REQUIRE(call) require(#call, call)

int main() {
    const float x[] = {-8, -1, 0, 1, 8};
    const int64_t shape[] = {5}, strides[] = {1};
    void *memory = nullptr;
    aclrtStream stream = nullptr;
    REQUIRE(aclInit(nullptr));
    REQUIRE(aclrtSetDevice(0));
    REQUIRE(aclrtCreateStream(&stream));
    REQUIRE(aclrtMalloc(&memory, 2 * sizeof x, ACL_MEM_MALLOC_HUGE_FIRST));
    REQUIRE(aclrtMemcpy(memory, sizeof x, x, sizeof x, ACL_MEMCPY_HOST_TO_DEVICE));
    float *result = static_cast<float *>(memory) + 5;
    aclTensor *input = aclCreateTensor(shape, 1, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, shape, 1, memory);
    aclTensor *output = aclCreateTensor(shape, 1, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, shape, 1, result);

    uint64_t workspace_size = 0;
    aclOpExecutor *executor = nullptr;
    void *workspace = nullptr;
    REQUIRE(aclnnLeakyReluCustomGetWorkspaceSize(input, 0.25, output, &workspace_size, &executor));
    if (workspace_size > 0) {
        REQUIRE(aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    REQUIRE(aclnnLeakyReluCustom(workspace, workspace_size, executor, stream));
    REQUIRE(aclrtSynchronizeStream(stream));

    float y[5];
    REQUIRE(aclrtMemcpy(y, sizeof y, result, sizeof y, ACL_MEMCPY_DEVICE_TO_HOST));
    for (int i = 0; i < 5; ++i) {
        std::printf("%4.1f -> %5.2f\n", x[i], y[i]);
    }
    aclDestroyTensor(input);
    aclDestroyTensor(output);
    REQUIRE(aclrtFree(memory));
    if (workspace != nullptr) {
        REQUIRE(aclrtFree(workspace));
    }
    REQUIRE(aclrtDestroyStream(stream));
    REQUIRE(aclrtResetDevice(0));
    REQUIRE(aclFinalize());
    return 0;
}
