#ifndef ACLNN_OBJECTS_H
#define ACLNN_OBJECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "entries.h"

/* Tensors, scalars, arrays, lists and executors that live in C until Python asks for one, and phase one's answers.

   What is not plain, and every refusal, is Python's affair: these functions then give 0 or false, and whoever called
   them asks Python. */

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

/* What phase one's answer depends on: the operator and its arguments, without addresses and offsets; and the operands,
   tensors and numbers. */
struct aclnn_key {
    const char *function;
    bool complete;
    size_t words, tensors;
    struct aclnn_object *tensor[ACLNN_KEY_TENSORS];
    uint64_t word[ACLNN_KEY_WORDS];
};

/* Between the first and aclnn_key_find the objects are locked. */
void aclnn_key_begin(struct aclnn_key *key, const char *function);
void aclnn_key_object(struct aclnn_key *key, const void *handle);
/* A scalar or a list of them, whose values are the operator's operands and no part of the key. */
void aclnn_key_number(struct aclnn_key *key, const void *handle);
void aclnn_key_text(struct aclnn_key *key, const char *text);
void aclnn_key_value(struct aclnn_key *key, const void *value, size_t nbytes);

/* Gives the answer that is kept for these arguments, with a new executor; false if there is none. */
bool aclnn_key_find(struct aclnn_key *key, uint64_t *workspace_size, void *executor);
/* Keeps the answer that Python gave. */
void aclnn_key_keep(const struct aclnn_key *key, const struct aclnn_entries *entries, uint64_t workspace_size,
                    const void *executor);

/* What an executor runs: its answer's number, and of each operand the address and that of the first element, or 0 and
   a number's bytes. */
struct aclnn_call {
    int64_t answer;
    size_t operands;
    uintptr_t word[2 * ACLNN_KEY_OPERANDS];
};

/* Ends an executor of this function; false if none lives here. */
bool aclnn_take_call(const void *executor, const char *function, struct aclnn_call *call);

/* Python's part: what follows, up to its end, is also read by cffi. */

enum { ACLNN_TENSOR = 1, ACLNN_SCALAR, ACLNN_INTS, ACLNN_BOOLS, ACLNN_TENSORS, ACLNN_SCALARS, ACLNN_EXECUTOR };

/* An object on its way to Python. */
struct aclnn_taken {
    int kind;
    bool destroyed;
    int dtype, format;
    int64_t offset;
    uintptr_t address;
    /* An executor's answer. */
    int64_t answer;
    /* A tensor's dimensions, as many strides, and its storage's dimensions; a scalar's bytes in two words; an array's
       numbers; the handles of a list's elements or of an executor's tensors. */
    uint64_t count, storage_count;
    int64_t *values;
};

void aclnn_live_here(bool yes);
/* No answer that has been kept is given any more. */
void aclnn_forget_answers(void);
/* Hands an object over, if it lives here or is a tensor that an executor has; values are to be freed. */
bool aclnn_take(uintptr_t handle, bool even_destroyed, struct aclnn_taken *taken);
/* Ends an executor that was taken. */
void aclnn_drop(uintptr_t executor);
/* An executor that has this tensor, 0 if none has. */
uintptr_t aclnn_user_of(uintptr_t tensor);

/* The end of Python's part. */

/* The child of a fork has none. */
void aclnn_objects_forked(void);

/* What is called by these counts as waiting for Python until that begins. */
static inline const struct aclnn_entries *aclnn_asked(const struct aclnn_entries *entries)
{
    atomic_fetch_add_explicit(entries->aclnn_entered, 1, memory_order_relaxed);
    return entries;
}

#endif
