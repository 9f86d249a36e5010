#ifndef ACLNN_OBJECTS_H
#define ACLNN_OBJECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "entries.h"

/* Tensors, scalars, arrays, lists and executors that live in C until Python asks for them, and cached answers of phase
   one.

   Python handles all special cases and errors: these functions then return 0 or false, and the caller asks Python. */

uintptr_t aclnn_create_tensor(const int64_t *dims, uint64_t rank, int dtype, const int64_t *strides, int64_t offset,
                              int format, const int64_t *storage, uint64_t storage_rank, void *address);
uintptr_t aclnn_create_scalar(const void *value, int dtype);
uintptr_t aclnn_create_int_array(const int64_t *values, uint64_t size);
uintptr_t aclnn_create_bool_array(const bool *values, uint64_t size);
uintptr_t aclnn_create_tensor_list(const void *const *values, uint64_t size);
uintptr_t aclnn_create_scalar_list(const void *const *values, uint64_t size);

/* True if the object lived in C and has been destroyed. */
bool aclnn_destroy_tensor(const void *handle);
bool aclnn_destroy_scalar(const void *handle);
bool aclnn_destroy_int_array(const void *handle);
bool aclnn_destroy_bool_array(const void *handle);
bool aclnn_destroy_tensor_list(const void *handle);
bool aclnn_destroy_scalar_list(const void *handle);

enum { ACLNN_KEY_WORDS = 2048, ACLNN_KEY_TENSORS = 256, ACLNN_KEY_OPERANDS = 256 };

struct aclnn_object;

/* Cache key of an answer of phase one: the operator and its arguments, without addresses and offsets. Also collects the
   operands, tensors and numbers. */
struct aclnn_key {
    const char *function;
    bool complete;
    size_t words, tensors;
    struct aclnn_object *tensor[ACLNN_KEY_TENSORS];
    uint64_t word[ACLNN_KEY_WORDS];
};

/* The objects are locked from aclnn_key_begin to aclnn_key_find. */
void aclnn_key_begin(struct aclnn_key *key, const char *function);
void aclnn_key_object(struct aclnn_key *key, const void *handle);
/* A scalar or a list of scalars whose values are operands and not part of the key. */
void aclnn_key_number(struct aclnn_key *key, const void *handle);
void aclnn_key_text(struct aclnn_key *key, const char *text);
void aclnn_key_value(struct aclnn_key *key, const void *value, size_t nbytes);

/* Returns the cached answer for these arguments, with a new executor; false if there is none. */
bool aclnn_key_find(struct aclnn_key *key, uint64_t *workspace_size, void *executor);
/* Caches Python's answer. */
void aclnn_key_keep(const struct aclnn_key *key, const struct aclnn_entries *entries, uint64_t workspace_size,
                    const void *executor);

/* Input of an executor's run: the number of its answer and two words per operand: a tensor's address and that of its
   first element, or 0 and a number's bytes. */
struct aclnn_call {
    int64_t answer;
    size_t operands;
    uintptr_t word[2 * ACLNN_KEY_OPERANDS];
};

/* Removes an executor of this function; false if none lives here. */
bool aclnn_take_call(const void *executor, const char *function, struct aclnn_call *call);

/* Python's part: what follows, up to its end, is also parsed by cffi. */

enum { ACLNN_TENSOR = 1, ACLNN_SCALAR, ACLNN_INTS, ACLNN_BOOLS, ACLNN_TENSORS, ACLNN_SCALARS, ACLNN_EXECUTOR };

/* An object moved to Python. */
struct aclnn_taken {
    int kind;
    bool destroyed;
    int dtype, format;
    int64_t offset;
    uintptr_t address;
    /* Number of an executor's answer. */
    int64_t answer;
    /* A tensor's dimensions, strides and storage dimensions; a scalar's bytes in two words; an array's numbers; the
       handles of a list's elements or of an executor's tensors. */
    uint64_t count, storage_count;
    int64_t *values;
};

void aclnn_live_here(bool yes);
/* Invalidates all cached answers. */
void aclnn_forget_answers(void);
/* Moves an object to the caller, which frees the values; false unless it lives here or an executor refers to it. */
bool aclnn_take(uintptr_t handle, bool even_destroyed, struct aclnn_taken *taken);
/* Frees an executor that was moved. */
void aclnn_drop(uintptr_t executor);
/* Returns an executor that refers to this tensor, 0 if there is none. */
uintptr_t aclnn_user_of(uintptr_t tensor);

/* The end of Python's part. */

/* Forgets all objects in the child of a fork. */
void aclnn_objects_forked(void);

/* Access to an entry that is about to be called: the call counts as waiting for Python until it begins. */
static inline const struct aclnn_entries *aclnn_asked(const struct aclnn_entries *entries)
{
    atomic_fetch_add_explicit(entries->aclnn_entered, 1, memory_order_relaxed);
    return entries;
}

#endif
