/* A C program that reaches the interpreter in different ways; see test_toolkit_embedding.py. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "acl/acl.h"
#include "aclnnop/aclnn_hardswish_backward.h"

enum { COUNT = 8, THREADS = 8 };

static aclTensor *vector_of(void *address)
{
    const int64_t shape[] = {COUNT};
    const int64_t strides[] = {1};

    return aclCreateTensor(shape, 1, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, shape, 1, address);
}

/* Computes dx = dy at x = 4 on a stream of its own; 0 when every status and every value is right. */
static int compute(void)
{
    float x[COUNT], dy[COUNT], dx[COUNT] = {0};
    void *buffers[3], *workspace = NULL;
    aclTensor *tensors[3];
    uint64_t workspace_size = 0;
    aclOpExecutor *executor = NULL;
    aclrtStream stream = NULL;
    int wrong = 0;

    for (int i = 0; i < COUNT; i++) {
        x[i] = 4.0F;
        dy[i] = (float)i;
    }
    wrong |= aclrtSetDevice(0) | aclrtCreateStream(&stream);
    for (int i = 0; i < 3; i++) {
        wrong |= aclrtMalloc(&buffers[i], sizeof x, ACL_MEM_MALLOC_HUGE_FIRST);
        tensors[i] = vector_of(buffers[i]);
    }
    wrong |= aclrtMemcpy(buffers[0], sizeof dy, dy, sizeof dy, ACL_MEMCPY_HOST_TO_DEVICE);
    wrong |= aclrtMemcpy(buffers[1], sizeof x, x, sizeof x, ACL_MEMCPY_HOST_TO_DEVICE);
    wrong |= aclnnHardswishBackwardGetWorkspaceSize(tensors[0], tensors[1], tensors[2], &workspace_size, &executor);
    if (workspace_size > 0) {
        wrong |= aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST);
    }
    wrong |= aclnnHardswishBackward(workspace, workspace_size, executor, stream);
    wrong |= aclrtSynchronizeStream(stream);
    wrong |= aclrtMemcpy(dx, sizeof dx, buffers[2], sizeof dx, ACL_MEMCPY_DEVICE_TO_HOST);
    for (int i = 0; i < 3; i++) {
        wrong |= aclDestroyTensor(tensors[i]) | aclrtFree(buffers[i]);
    }
    if (workspace != NULL) {
        wrong |= aclrtFree(workspace);
    }
    wrong |= aclrtDestroyStream(stream) | aclrtResetDevice(0);
    return wrong == 0 ? memcmp(dx, dy, sizeof dx) : wrong;
}

static void *compute_in_thread(void *result)
{
    *(int *)result = compute();
    return NULL;
}

static int in_threads(void)
{
    pthread_t threads[THREADS];
    int results[THREADS], wrong = 0;

    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, compute_in_thread, &results[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        wrong |= results[i];
    }
    return wrong;
}

static int in_child(void)
{
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        _exit(compute() == 0 ? 0 : 1);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int failed_in_child(void)
{
    int status = -1;
    pid_t child;

    if (compute() != 0) {
        return 1;
    }
    child = fork();
    if (child == 0) {
        void *p;
        _exit(aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST) == ACL_ERROR_INTERNAL_ERROR
              && aclCreateIntArray(NULL, 0) == NULL && aclnnInit(NULL) == ACLNN_ERR_INNER ? 0 : 1);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) + compute() : 128;
}

/* Children of all moments of another thread's first call: each gets an answer, whichever. */
static int forked_meanwhile(void)
{
    enum { CHILDREN = 40, PAUSE_US = 5000, PATIENCE_S = 20 };
    pthread_t thread;
    int result = -1, wrong = 0;

    pthread_create(&thread, NULL, compute_in_thread, &result);
    for (int i = 0; i < CHILDREN; i++) {
        int status = -1;
        pid_t child = fork();

        if (child == 0) {
            void *p;
            alarm(PATIENCE_S);
            aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST);
            _exit(0);
        }
        waitpid(child, &status, 0);
        wrong |= status;
        usleep(PAUSE_US);
    }
    pthread_join(thread, NULL);
    return wrong | result;
}

static void *left;

static void clean_up(void)
{
    int wrong = aclrtFree(left) | aclrtResetDevice(0) | aclFinalize();

    printf("cleaned up: %d\n", wrong);
    fflush(stdout);
}

/* The device is reset and the runtime ended by an exit handler, memory freed there too. */
static int cleaned_up_at_exit(void)
{
    int wrong = aclInit(NULL) | aclrtSetDevice(0) | aclrtMalloc(&left, 64, ACL_MEM_MALLOC_HUGE_FIRST);

    atexit(clean_up);
    return wrong | compute();
}

/* What every call answers, so that a test sees the statuses where Python cannot start. */
static int statuses(void)
{
    void *p = NULL;
    uint64_t n = 0;
    aclOpExecutor *executor = NULL;
    const char *soc;

    printf("aclInit %d\n", aclInit(NULL));
    printf("aclrtMalloc %d\n", aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    printf("aclnnInit %d\n", aclnnInit(NULL));
    printf("first phase %d\n", aclnnHardswishBackwardGetWorkspaceSize(NULL, NULL, NULL, &n, &executor));
    printf("second phase %d\n", aclnnHardswishBackward(NULL, 0, executor, NULL));
    printf("tensor %d\n", vector_of(NULL) != NULL);
    soc = aclrtGetSocName();
    printf("soc %s\n", soc == NULL ? "null" : soc);
    return 0;
}

int main(int argc, char **argv)
{
    const struct {
        const char *name;
        int (*run)(void);
    } ways[] = {{"compute", compute}, {"threads", in_threads}, {"fork", in_child}, {"fork-after", failed_in_child},
                {"fork-during", forked_meanwhile}, {"exit", cleaned_up_at_exit}, {"statuses", statuses}};

    for (size_t i = 0; argc > 1 && i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(argv[1], ways[i].name) == 0) {
            int wrong = ways[i].run();

            printf("%s: %d\n", argv[1], wrong);
            return wrong == 0 ? 0 : 1;
        }
    }
    return 2;
}
