/* What calls cost, in microseconds: the least of many batches. See cost.py. */
#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "acl/acl.h"
#include "aclnnop/aclnn_silu_backward.h"

enum { BATCHES = 200, BATCH = 100, LARGE_TURNS = 15 };

static aclTensor *tensors[3];
static aclrtStream stream;

static double now_us(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void check(int status)
{
    if (status != 0) {
        printf("status %d: %s\n", status, aclGetRecentErrMsg());
        exit(1);
    }
}

static void get_device(void)
{
    int32_t device;

    check(aclrtGetDevice(&device));
}

static void malloc_and_free(void)
{
    void *p;

    check(aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    check(aclrtFree(p));
}

static void create_and_destroy_tensor(void)
{
    static const int64_t shape[] = {4, 2}, strides[] = {2, 1};

    check(aclDestroyTensor(aclCreateTensor(shape, 2, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, shape, 2, NULL)));
}

static void both_phases(void)
{
    uint64_t size;
    aclOpExecutor *executor;

    check(aclnnSiluBackwardGetWorkspaceSize(tensors[0], tensors[1], tensors[2], &size, &executor));
    check(aclnnSiluBackward(NULL, 0, executor, stream));
}

static void both_phases_and_wait(void)
{
    both_phases();
    check(aclrtSynchronizeStream(stream));
}

static void measure(const char *name, void (*call)(void), int batches, int batch)
{
    double least = 1e30;

    call();
    for (int i = 0; i < batches; i++) {
        const double begin = now_us();

        for (int j = 0; j < batch; j++) {
            call();
        }
        const double spent = (now_us() - begin) / batch;

        least = spent < least ? spent : least;
    }
    printf("%s\t%.3f\n", name, least);
    fflush(stdout);
}

static void make_tensors(int64_t size)
{
    const size_t bytes = (size_t)size * sizeof(float);

    for (int i = 0; i < 3; i++) {
        void *address;

        check(aclrtMalloc(&address, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
        check(aclrtMemset(address, bytes, 0x3C, bytes));
        tensors[i] = aclCreateTensor(&size, 1, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, &size, 1, address);
    }
}

int main(void)
{
    const double begin = now_us();

    check(aclInit(NULL));
    check(aclrtSetDevice(0));
    check(aclrtCreateStream(&stream));
    printf("start, runtime only\t%.0f\n", now_us() - begin);
    make_tensors(16);
    both_phases_and_wait();
    printf("start and first operator\t%.0f\n", now_us() - begin);
    measure("aclrtGetDevice", get_device, BATCHES, BATCH);
    measure("aclrtMalloc, aclrtFree", malloc_and_free, BATCHES, BATCH);
    measure("aclCreateTensor, aclDestroyTensor", create_and_destroy_tensor, BATCHES, BATCH);
    measure("aclnnSiluBackward, both phases, 16 elements", both_phases, BATCHES, BATCH);
    make_tensors(1 << 24);
    measure("aclnnSiluBackward, 16777216 elements", both_phases_and_wait, LARGE_TURNS, 1);
    return 0;
}
