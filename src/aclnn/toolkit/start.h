#ifndef ACLNN_START_H
#define ACLNN_START_H

#include <stdbool.h>
#include <stddef.h>
#ifdef __SSE__
#include <xmmintrin.h>
#else
#include <fenv.h>
#endif

/* Python and its kernels need IEEE arithmetic, whatever the caller's mode: -ffast-math flushes subnormal numbers,
   fesetround and feenableexcept change other bits. fenv.h alone would do, but takes 0.2 us if there is an x87. */
#ifdef __SSE__
typedef unsigned int aclnn_mode;

static inline aclnn_mode aclnn_take_mode(void)
{
    const unsigned int callers = _mm_getcsr();

    _mm_setcsr(0x1F80);
    return callers;
}

static inline void aclnn_give_mode_back(aclnn_mode callers)
{
    _mm_setcsr(callers);
}
#else
typedef fenv_t aclnn_mode;

static inline aclnn_mode aclnn_take_mode(void)
{
    fenv_t callers;

    fegetenv(&callers);
    fesetenv(FE_DFL_ENV);
    return callers;
}

static inline void aclnn_give_mode_back(aclnn_mode callers)
{
    fesetenv(&callers);
}
#endif

struct aclnn_entries;

/* Exported by libaclnn_start.so: the entry points, or null if Python cannot serve them. */
const struct aclnn_entries *aclnn_entries(void);

/* Exported likewise: the interpreter of a Python program has ended. */
bool aclnn_ended(void);

/* Exported by bridge.so: starts Python if none runs; returns null and the reason on failure. */
typedef const struct aclnn_entries *(*aclnn_open)(char *reason, size_t size);

#endif
