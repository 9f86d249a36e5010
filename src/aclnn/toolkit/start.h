#ifndef ACLNN_START_H
#define ACLNN_START_H

#include <stddef.h>

struct aclnn_entries;

/* What libaclnn_start.so exports: the entry points, or null when Python cannot serve them. */
const struct aclnn_entries *aclnn_entries(void);

/* What bridge.so exports: starts Python where none runs; null, with the reason, when that fails. */
typedef const struct aclnn_entries *(*aclnn_open)(char *reason, size_t size);

#endif
