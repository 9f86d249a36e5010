/* Two processes add their buffers up: the first tells the second by a pipe where they meet. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "acl/acl.h"
#include "hccl/hccl.h"

#define CHECK(call)                                                                 \
    do {                                                                            \
        int result = (call);                                                        \
        if (result != 0) {                                                          \
            fprintf(stderr, "%s: %d %s\n", #call, result, aclGetRecentErrMsg());    \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

enum { COUNT = 1000 };

int main(void)
{
    int ends[2], status = 0;
    if (pipe(ends) != 0) {
        return 1;
    }
    const pid_t child = fork();
    const uint32_t rank = child == 0;
    HcclRootInfo root;
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));
    if (rank == 0) {
        CHECK(HcclGetRootInfo(&root));
        CHECK(write(ends[1], &root, sizeof root) != sizeof root);
    } else {
        CHECK(read(ends[0], &root, sizeof root) != sizeof root);
    }
    HcclCommConfig config;
    HcclCommConfigInit(&config);
    strcpy(config.hcclCommName, "pair");
    HcclComm comm;
    CHECK(HcclCommInitRootInfoConfig(2, &root, rank, &config, &comm));
    char name[COMM_NAME_MAX_LENGTH];
    CHECK(HcclGetCommName(comm, name));

    aclrtStream stream;
    CHECK(aclrtCreateStream(&stream));
    float values[COUNT];
    for (int i = 0; i < COUNT; i++) {
        values[i] = (float)(i * (int)(rank + 1));
    }
    void *buffer;
    CHECK(aclrtMalloc(&buffer, sizeof values, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemcpy(buffer, sizeof values, values, sizeof values, ACL_MEMCPY_HOST_TO_DEVICE));
    CHECK(HcclAllReduce(buffer, buffer, COUNT, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream));
    HcclSendRecvItem items[] = {
        {HCCL_SEND, buffer, 1, HCCL_DATA_TYPE_FP32, 1 - rank},
        {HCCL_RECV, buffer, 1, HCCL_DATA_TYPE_FP32, 1 - rank},
    };
    CHECK(HcclBatchSendRecv(items, 2, comm, stream));
    CHECK(aclrtSynchronizeStream(stream));
    CHECK(aclrtMemcpy(values, sizeof values, buffer, sizeof values, ACL_MEMCPY_DEVICE_TO_HOST));
    for (int i = 0; i < COUNT; i++) {
        CHECK(values[i] != (float)(3 * i));
    }
    CHECK(HcclAllReduce(NULL, buffer, COUNT, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream) != HCCL_E_PTR);
    CHECK(HcclCommDestroy(comm));
    CHECK(aclFinalize());
    if (rank == 1) {
        return 0;
    }
    wait(&status);
    printf("%s: %s\n", name, status == 0 ? "both ranks have the sum" : "the other rank failed");
    return status != 0;
}
