/* "modes MODE": a digest of results computed by a program in that floating-point mode; see test_toolkit_programs.py. */
#define _GNU_SOURCE
#include <fenv.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include "acl/acl.h"
#include "aclnnop/aclnn_silu_backward.h"

enum { PATTERNS = 1 << 16 };

/* As a program starts that is linked with -ffast-math. */
static void flush_subnormals(void)
{
#if defined(__SSE__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    __asm__ volatile("msr fpcr, %0" : : "r"(mode | 1 << 24));
#endif
}

static int flushes(void)
{
    volatile float least = 0x1p-126F;

    return least / 2 == 0;
}

/* dx of dy = 1 for x of every 16-bit pattern, or every so many of them; 0 when every status is 0. */
static int print_digest(aclDataType type, int64_t step)
{
    static uint32_t wide[PATTERNS];
    static uint16_t half[PATTERNS];
    const int64_t count = PATTERNS / step;
    const size_t bytes = (size_t)count * (type == ACL_FLOAT ? 4 : 2);
    void *data = type == ACL_FLOAT ? (void *)wide : (void *)half, *buffers[3];
    aclTensor *tensors[3];
    uint64_t size = 0, digest = 0;
    aclOpExecutor *executor = NULL;
    int wrong = 0;

    for (int i = 0; i < 3; i++) {
        for (int64_t at = 0; at < count; at++) {
            wide[at] = i == 0 ? 0x3F800000 : (uint32_t)(at * step) << 16;
            half[at] = i == 0 ? 0x3C00 : (uint16_t)(at * step);
        }
        wrong |= aclrtMalloc(&buffers[i], bytes, ACL_MEM_MALLOC_HUGE_FIRST);
        wrong |= aclrtMemcpy(buffers[i], bytes, data, bytes, ACL_MEMCPY_HOST_TO_DEVICE);
        tensors[i] = aclCreateTensor(&count, 1, type, NULL, 0, ACL_FORMAT_ND, &count, 1, buffers[i]);
    }
    wrong |= aclnnSiluBackwardGetWorkspaceSize(tensors[0], tensors[1], tensors[2], &size, &executor);
    wrong |= aclnnSiluBackward(NULL, size, executor, NULL) | aclrtSynchronizeStream(NULL);
    wrong |= aclrtMemcpy(data, bytes, buffers[2], bytes, ACL_MEMCPY_DEVICE_TO_HOST);
    for (int64_t at = 0; at < count; at++) {
        digest = (digest ^ (type == ACL_FLOAT ? wide[at] : half[at])) * 0x100000001B3U;
    }
    printf("%016llx\n", (unsigned long long)digest);
    return wrong;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    int rounding, flushed, wrong;

    if (strcmp(mode, "flush") == 0) {
        flush_subnormals();
    } else if (strcmp(mode, "toward zero") == 0) {
        fesetround(FE_TOWARDZERO);
    } else if (strcmp(mode, "trap") == 0) {
        feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
    }
    rounding = fegetround();
    flushed = flushes();
    wrong = aclInit(NULL) | aclrtSetDevice(0);
    for (int64_t step = 1; step <= 64; step *= 64) {
        wrong |= print_digest(ACL_FLOAT, step) | print_digest(ACL_FLOAT16, step);
    }
    wrong |= fegetround() != rounding || flushes() != flushed || fetestexcept(FE_DIVBYZERO | FE_OVERFLOW) != 0;
    printf("%d\n", wrong);
    return wrong != 0;
}
