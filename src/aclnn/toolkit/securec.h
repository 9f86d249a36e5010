#ifndef ACLNN_TOOLKIT_SECUREC_H
#define ACLNN_TOOLKIT_SECUREC_H

/* Bounded copies that samples call; a copy that does not fit fails with an error number. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef int errno_t;

#ifndef EOK
#define EOK 0
#endif
#define SECUREC_MEM_MAX_LEN 0x7FFFFFFFUL

#define ACLNN_SECUREC_EINVAL 22
#define ACLNN_SECUREC_ERANGE 34
#define ACLNN_SECUREC_RESET 128
#define ACLNN_SECUREC_OVERLAP 54

static inline errno_t aclnn_securec_fail(void *dest, size_t room, errno_t why)
{
    (void)memset(dest, 0, room);
    return why | ACLNN_SECUREC_RESET;
}

static inline errno_t memmove_s(void *dest, size_t destMax, const void *src, size_t count)
{
    if (destMax == 0 || destMax > SECUREC_MEM_MAX_LEN) {
        return ACLNN_SECUREC_ERANGE;
    }
    if (dest == NULL) {
        return ACLNN_SECUREC_EINVAL;
    }
    if (src == NULL) {
        return (errno_t)aclnn_securec_fail(dest, destMax, ACLNN_SECUREC_EINVAL);
    }
    if (count > destMax) {
        return (errno_t)aclnn_securec_fail(dest, destMax, ACLNN_SECUREC_ERANGE);
    }
    (void)memmove(dest, src, count);
    return EOK;
}

static inline errno_t memcpy_s(void *dest, size_t destMax, const void *src, size_t count)
{
    const uintptr_t to = (uintptr_t)dest, from = (uintptr_t)src;
    if (dest != NULL && src != NULL && destMax != 0 && destMax <= SECUREC_MEM_MAX_LEN && count <= destMax && to != from &&
        (to < from ? from - to : to - from) < count) {
        return (errno_t)aclnn_securec_fail(dest, destMax, ACLNN_SECUREC_OVERLAP);
    }
    return (errno_t)memmove_s(dest, destMax, src, count);
}

static inline errno_t memset_s(void *dest, size_t destMax, int c, size_t count)
{
    if (destMax == 0 || destMax > SECUREC_MEM_MAX_LEN) {
        return ACLNN_SECUREC_ERANGE;
    }
    if (dest == NULL) {
        return ACLNN_SECUREC_EINVAL;
    }
    (void)memset(dest, c, count < destMax ? count : destMax);
    return count > destMax ? (ACLNN_SECUREC_ERANGE | ACLNN_SECUREC_RESET) : EOK;
}

static inline errno_t strncpy_s(char *strDest, size_t destMax, const char *strSrc, size_t count)
{
    size_t length = 0;
    if (destMax == 0 || destMax > SECUREC_MEM_MAX_LEN) {
        return ACLNN_SECUREC_ERANGE;
    }
    if (strDest == NULL) {
        return ACLNN_SECUREC_EINVAL;
    }
    if (strSrc == NULL) {
        return (errno_t)aclnn_securec_fail(strDest, 1, ACLNN_SECUREC_EINVAL);
    }
    while (length < count && strSrc[length] != '\0') {
        length++;
    }
    if (length >= destMax) {
        return (errno_t)aclnn_securec_fail(strDest, 1, ACLNN_SECUREC_ERANGE);
    }
    (void)memmove(strDest, strSrc, length);
    strDest[length] = '\0';
    return EOK;
}

static inline errno_t strcpy_s(char *strDest, size_t destMax, const char *strSrc)
{
    return (errno_t)strncpy_s(strDest, destMax, strSrc, SECUREC_MEM_MAX_LEN);
}

#endif
