#ifndef ACLNN_STUBS_H
#define ACLNN_STUBS_H

#include <stdint.h>
#include <time.h>

#include "entries.h"
#include "objects.h"
#include "start.h"

/* What creators give out: no function looks into it. */
static char aclnn_block;

/* op_type: the operator that was asked for by its name, or NULL. */
static int aclnn_refuse(const char *function, const char *op_type, int code)
{
    const aclnn_mode callers = aclnn_take_mode();
    const struct aclnn_entries *entries = aclnn_entries();

    if (entries != NULL) {
        aclnn_asked(entries)->aclnn_note_refusal(function, op_type, code);
    }
    aclnn_give_mode_back(callers);
    return code;
}

/* FNV-1a. */
static uint64_t aclnn_hash(const char *text, size_t length)
{
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
    }
    return hash;
}

static uint64_t aclnn_nanoseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
