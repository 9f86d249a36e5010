#ifndef ACLNN_STUBS_H
#define ACLNN_STUBS_H

#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "entries.h"
#include "objects.h"
#include "start.h"

static const char aclnn_nothing;

/* code: 0 for a function that was looked up and not found. */
static int aclnn_record_error(const char *function, int code)
{
    const aclnn_mode callers = aclnn_take_mode();
    const struct aclnn_entries *entries = aclnn_entries();

    if (entries != NULL) {
        aclnn_asked(entries)->aclnn_note_error(function, code);
    }
    aclnn_give_mode_back(callers);
    return code;
}

/* torch_npu looks functions up by name, and reports missing ones in its log only. */
static void aclnn_logged(const char *format, va_list arguments)
{
    static const char not_found[] = "[PTA]:dlsym %s from ";
    const char *name;

    if (strncmp(format, not_found, sizeof not_found - 1) == 0) {
        name = va_arg(arguments, const char *);
        if (strncmp(name, "aclnn", 5) == 0) {
            aclnn_record_error(name, 0);
        }
    }
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
