/* See objects.h. A handle encodes a table slot and the slot's generation, so that stale handles are recognised. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "objects.h"

enum { MOST_DIMS = 32, MOST_PLACES = 1 << 20, PLACE_BITS = 20, STACK_BYTES = 1 << 16 };
enum { MOST_ANSWERS = 2048, BUCKETS = 4096, MOST_GONE = 64 };

/* Above the handles that Python issues, and as far from any address (see aclnn.runtime.handles). */
static const uint64_t FIRST = UINT64_C(0x5AC1000000000000) + (UINT64_C(1) << 55);
static const uint64_t MOST_USES = UINT64_C(1) << 31;
static const uint64_t HIGHEST_COUNT = 1 << 20;

/* Bytes of an element by data type; 0 for types that C leaves to Python. */
static const unsigned char itemsizes[] = ACLNN_ITEMSIZES;

struct answer {
    struct answer *next;
    const char *function;
    uint64_t hash, workspace_size;
    int64_t number; /* Python's number of the cached plan. */
    size_t users;
    size_t words, operands;
    int16_t operand[ACLNN_KEY_OPERANDS]; /* Index of the operand's tensor in the call, -1 for an absent one. */
    uint64_t word[];
};

struct aclnn_object {
    uintptr_t handle;
    int kind, dtype, format, itemsize;
    size_t users;   /* References: from the table, unless hidden, and from executors. */
    bool hidden;    /* Destroyed. */
    int64_t offset;
    uintptr_t address;
    struct answer *answer;
    uint64_t count, storage_count;
    int64_t values[];
};

struct place {
    struct aclnn_object *object;
    uint64_t uses;
    uint32_t next_free;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool live_here;
static struct place *places;
static uint32_t used, free_place, room; /* Slot 0 is unused: as a free slot it means none. */
static struct answer *buckets[BUCKETS], *ring[MOST_ANSWERS];
static size_t answers, oldest;
static int64_t gone[MOST_GONE]; /* Numbers of evicted answers of which Python has to be told. */
static size_t leaving;
static uint64_t era; /* Answers of earlier eras are out of date. */

void aclnn_objects_forked(void)
{
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

    lock = fresh;
    for (uint32_t at = 1; at < used; at++) {
        places[at].object = NULL;
        places[at].uses++;
    }
    memset(buckets, 0, sizeof buckets);
    answers = oldest = leaving = free_place = 0;
    live_here = false;
}

void aclnn_live_here(bool yes)
{
    pthread_mutex_lock(&lock);
    live_here = yes;
    pthread_mutex_unlock(&lock);
}

static struct aclnn_object *object_of(uintptr_t handle, bool even_hidden)
{
    const uint64_t given = (uint64_t)handle - FIRST, at = given >> 4 & (MOST_PLACES - 1);
    struct aclnn_object *object;

    if ((uint64_t)handle < FIRST || at >= used) {
        return NULL;
    }
    object = places[at].object;
    return object != NULL && object->handle == handle && (even_hidden || !object->hidden) ? object : NULL;
}

static bool find_place(uint32_t *at)
{
    if (free_place != 0) {
        *at = free_place;
        free_place = places[free_place].next_free;
        return true;
    }
    if (used == room) {
        const uint32_t larger = room == 0 ? 1024 : 2 * room;
        struct place *moved = larger > MOST_PLACES ? NULL : realloc(places, larger * sizeof *places);

        if (moved == NULL) {
            return false;
        }
        places = moved;
        room = larger;
        used = used == 0 ? 1 : used;
    }
    places[used].uses = 0;
    *at = used++;
    return true;
}

/* Enters an object with room for values, which stay zero; needs the lock. */
static struct aclnn_object *enter(int kind, uint64_t values)
{
    struct aclnn_object *object;
    uint32_t at;

    if (!live_here || values > HIGHEST_COUNT) {
        return NULL;
    }
    object = calloc(1, sizeof *object + values * sizeof *object->values);
    if (object == NULL || !find_place(&at)) {
        free(object);
        return NULL;
    }
    object->kind = kind;
    object->users = 1;
    object->handle = (uintptr_t)(FIRST + ((places[at].uses << PLACE_BITS | at) << 4));
    places[at].object = object;
    return object;
}

/* Drops a reference. */
static void drop(struct aclnn_object *object)
{
    const uint32_t at = (uint32_t)(((uint64_t)object->handle - FIRST) >> 4) & (MOST_PLACES - 1);

    if (--object->users != 0) {
        return;
    }
    places[at].object = NULL;
    if (++places[at].uses < MOST_USES) {
        places[at].next_free = free_place;
        free_place = at;
    }
    if (object->kind == ACLNN_EXECUTOR) {
        for (uint64_t i = 0; i < object->count; i++) {
            drop((struct aclnn_object *)(uintptr_t)object->values[i]);
        }
        object->answer->users--;
    }
    free(object);
}

static void hide(struct aclnn_object *object)
{
    object->hidden = true;
    drop(object);
}

static int itemsize_of(int dtype)
{
    return dtype >= 0 && (size_t)dtype < sizeof itemsizes ? itemsizes[dtype] : 0;
}

static bool contiguous(const int64_t *dims, uint64_t rank, int64_t *strides)
{
    int64_t step = 1;

    for (uint64_t at = rank; at-- > 0;) {
        strides[at] = step;
        if (at > 0 && __builtin_mul_overflow(step, dims[at], &step)) {
            return false;
        }
    }
    return true;
}

uintptr_t aclnn_create_tensor(const int64_t *dims, uint64_t rank, int dtype, const int64_t *strides, int64_t offset,
                              int format, const int64_t *storage, uint64_t storage_rank, void *address)
{
    const int itemsize = itemsize_of(dtype);
    int64_t packed[MOST_DIMS];
    struct aclnn_object *object;
    uintptr_t handle = 0;

    if (itemsize == 0 || rank > MOST_DIMS || storage_rank > MOST_DIMS || (dims == NULL && rank > 0)
        || (storage == NULL && storage_rank > 0) || (strides == NULL && !contiguous(dims, rank, packed))) {
        return 0;
    }
    pthread_mutex_lock(&lock);
    object = enter(ACLNN_TENSOR, 2 * rank + storage_rank);
    if (object != NULL) {
        object->dtype = dtype;
        object->format = format;
        object->itemsize = itemsize;
        object->offset = offset;
        object->address = (uintptr_t)address;
        object->count = rank;
        object->storage_count = storage_rank;
        for (uint64_t at = 0; at < rank; at++) {
            object->values[at] = dims[at];
            object->values[rank + at] = strides == NULL ? packed[at] : strides[at];
        }
        for (uint64_t at = 0; at < storage_rank; at++) {
            object->values[2 * rank + at] = storage[at];
        }
        handle = object->handle;
    }
    pthread_mutex_unlock(&lock);
    return handle;
}

uintptr_t aclnn_create_scalar(const void *value, int dtype)
{
    const int itemsize = itemsize_of(dtype);
    const char here = 0;
    struct aclnn_object *object;
    uintptr_t handle = 0;

    /* Only numbers on the caller's stack, the usual case; Python checks any other address. */
    if (itemsize == 0 || (ACLNN_SCALAR_TYPES >> dtype & 1) == 0 || (uintptr_t)value - (uintptr_t)&here > STACK_BYTES) {
        return 0;
    }
    pthread_mutex_lock(&lock);
    object = enter(ACLNN_SCALAR, 2);
    if (object != NULL) {
        object->dtype = dtype;
        object->itemsize = itemsize;
        object->count = 2;
        memcpy(object->values, value, (size_t)itemsize);
        handle = object->handle;
    }
    pthread_mutex_unlock(&lock);
    return handle;
}

static uintptr_t create_array(int kind, const void *values, uint64_t size)
{
    struct aclnn_object *object;
    uintptr_t handle = 0;

    size = values == NULL ? 0 : size;
    pthread_mutex_lock(&lock);
    object = enter(kind, size);
    if (object != NULL) {
        object->count = size;
        for (uint64_t at = 0; at < size; at++) {
            object->values[at] = kind == ACLNN_BOOLS ? ((const bool *)values)[at] : ((const int64_t *)values)[at];
        }
        handle = object->handle;
    }
    pthread_mutex_unlock(&lock);
    return handle;
}

uintptr_t aclnn_create_int_array(const int64_t *values, uint64_t size)
{
    return create_array(ACLNN_INTS, values, size);
}

uintptr_t aclnn_create_bool_array(const bool *values, uint64_t size)
{
    return create_array(ACLNN_BOOLS, values, size);
}

uintptr_t aclnn_create_tensor_list(const void *const *values, uint64_t size)
{
    return create_array(ACLNN_TENSORS, values, size);
}

uintptr_t aclnn_create_scalar_list(const void *const *values, uint64_t size)
{
    return create_array(ACLNN_SCALARS, values, size);
}

static bool destroy(const void *handle, int kind, int elements)
{
    struct aclnn_object *object, *element;
    bool whole;

    pthread_mutex_lock(&lock);
    object = object_of((uintptr_t)handle, false);
    whole = object != NULL && object->kind == kind;
    for (uint64_t at = 0; whole && elements != 0 && at < object->count; at++) {
        element = object_of((uintptr_t)object->values[at], false);
        whole = object->values[at] == 0 || (element != NULL && element->kind == elements);
    }
    if (whole) {
        for (uint64_t at = 0; elements != 0 && at < object->count; at++) {
            /* An element that is listed twice is destroyed once. */
            element = object_of((uintptr_t)object->values[at], false);
            if (element != NULL) {
                hide(element);
            }
        }
        hide(object);
    }
    pthread_mutex_unlock(&lock);
    return whole;
}

bool aclnn_destroy_tensor(const void *handle)
{
    return destroy(handle, ACLNN_TENSOR, 0);
}

bool aclnn_destroy_scalar(const void *handle)
{
    return destroy(handle, ACLNN_SCALAR, 0);
}

bool aclnn_destroy_int_array(const void *handle)
{
    return destroy(handle, ACLNN_INTS, 0);
}

bool aclnn_destroy_bool_array(const void *handle)
{
    return destroy(handle, ACLNN_BOOLS, 0);
}

bool aclnn_destroy_tensor_list(const void *handle)
{
    return destroy(handle, ACLNN_TENSORS, ACLNN_TENSOR);
}

bool aclnn_destroy_scalar_list(const void *handle)
{
    return destroy(handle, ACLNN_SCALARS, ACLNN_SCALAR);
}

void aclnn_key_begin(struct aclnn_key *key, const char *function)
{
    key->function = function;
    key->complete = true;
    key->tensors = 0;
    key->words = 1;
    pthread_mutex_lock(&lock);
    key->word[0] = era;
}

static void add(struct aclnn_key *key, const void *words, size_t count)
{
    if (count > ACLNN_KEY_WORDS - key->words) {
        key->complete = false;
        return;
    }
    memcpy(key->word + key->words, words, count * sizeof *key->word);
    key->words += count;
}

static void add_operand(struct aclnn_key *key, struct aclnn_object *object)
{
    if (key->tensors == ACLNN_KEY_TENSORS) {
        key->complete = false;
        return;
    }
    key->tensor[key->tensors++] = object;
}

static void add_object(struct aclnn_key *key, const void *handle, bool is_number)
{
    const uint64_t none[3] = {0};
    struct aclnn_object *object = object_of((uintptr_t)handle, false);
    uint64_t head[3];

    if (handle == NULL) {
        add(key, none, 3);
        return;
    }
    if (object == NULL || object->kind == ACLNN_EXECUTOR) {
        key->complete = false;
        return;
    }
    head[0] = (uint64_t)object->kind;
    head[1] = object->count;
    head[2] = (uint64_t)(uint32_t)object->dtype << 32 | (uint32_t)object->format;
    add(key, head, 3);
    switch (object->kind) {
    case ACLNN_TENSORS:
    case ACLNN_SCALARS:
        for (uint64_t at = 0; at < object->count && key->complete; at++) {
            add_object(key, (const void *)(uintptr_t)object->values[at], is_number);
        }
        break;
    case ACLNN_TENSOR:
        add(key, object->values, 2 * object->count);
        add_operand(key, object);
        break;
    default:
        if (is_number && object->itemsize <= (int)sizeof(uintptr_t)) {
            add_operand(key, object);
        } else {
            key->complete = key->complete && !is_number;
            add(key, object->values, object->count);
        }
    }
}

void aclnn_key_object(struct aclnn_key *key, const void *handle)
{
    add_object(key, handle, false);
}

void aclnn_key_number(struct aclnn_key *key, const void *handle)
{
    add_object(key, handle, true);
}

void aclnn_key_value(struct aclnn_key *key, const void *value, size_t nbytes)
{
    uint64_t word = 0;

    memcpy(&word, value, nbytes);
    add(key, &word, 1);
}

void aclnn_key_text(struct aclnn_key *key, const char *text)
{
    const uint64_t length = text == NULL ? UINT64_MAX : strlen(text);

    add(key, &length, 1);
    for (uint64_t at = 0; text != NULL && at < length && key->complete; at += 8) {
        aclnn_key_value(key, text + at, length - at < 8 ? length - at : 8);
    }
}

static uint64_t hash_of(const struct aclnn_key *key)
{
    uint64_t hash = (uint64_t)(uintptr_t)key->function;

    for (size_t at = 0; at < key->words; at++) {
        hash = (hash ^ key->word[at]) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    return hash;
}

static struct answer *answer_to(const struct aclnn_key *key, uint64_t hash)
{
    struct answer *found = buckets[hash % BUCKETS];

    while (found != NULL
           && (found->hash != hash || found->function != key->function || found->words != key->words
               || memcmp(found->word, key->word, key->words * sizeof *key->word) != 0)) {
        found = found->next;
    }
    return found;
}

bool aclnn_key_find(struct aclnn_key *key, uint64_t *workspace_size, void *executor)
{
    struct aclnn_object *object = NULL;
    struct answer *found;

    if (workspace_size != NULL && executor != NULL && key->complete) {
        found = answer_to(key, hash_of(key));
        object = found == NULL ? NULL : enter(ACLNN_EXECUTOR, key->tensors);
    }
    if (object != NULL) {
        object->answer = found;
        found->users++;
        object->count = key->tensors;
        for (size_t at = 0; at < key->tensors; at++) {
            key->tensor[at]->users++;
            object->values[at] = (int64_t)(uintptr_t)key->tensor[at];
        }
        *workspace_size = found->workspace_size;
        *(uintptr_t *)executor = object->handle;
    }
    pthread_mutex_unlock(&lock);
    return object != NULL;
}

/* Each kept answer reports one number, so the array overflows only if that many threads evict at once. */
static void note_gone(int64_t number)
{
    if (leaving < MOST_GONE) {
        gone[leaving++] = number;
    }
}

static int64_t take_gone(void)
{
    int64_t number;

    pthread_mutex_lock(&lock);
    number = leaving == 0 ? 0 : gone[--leaving];
    pthread_mutex_unlock(&lock);
    return number;
}

/* Evicts the oldest unreferenced answer from the ring, which is full; false if all are referenced. */
static bool make_room(void)
{
    struct answer *old, **link;

    for (size_t tries = 0; tries < MOST_ANSWERS && ring[oldest]->users != 0; tries++) {
        oldest = (oldest + 1) % MOST_ANSWERS;
    }
    old = ring[oldest];
    if (old->users != 0) {
        return false;
    }
    link = &buckets[old->hash % BUCKETS];
    while (*link != old) {
        link = &(*link)->next;
    }
    *link = old->next;
    note_gone(old->number);
    free(old);
    return true;
}

void aclnn_key_keep(const struct aclnn_key *key, const struct aclnn_entries *entries, uint64_t workspace_size,
                    const void *executor)
{
    int16_t operands[ACLNN_KEY_OPERANDS];
    size_t count = ACLNN_KEY_OPERANDS;
    const uint64_t hash = hash_of(key);
    struct answer *made;
    int64_t number;

    number = key->complete ? aclnn_asked(entries)->aclnn_keep((uintptr_t)executor, take_gone(), operands, &count) : 0;
    if (number == 0) {
        return;
    }
    made = malloc(sizeof *made + key->words * sizeof *made->word);
    if (made != NULL) {
        made->function = key->function;
        made->hash = hash;
        made->workspace_size = workspace_size;
        made->number = number;
        made->users = 0;
        made->words = key->words;
        made->operands = count;
        memcpy(made->operand, operands, count * sizeof *operands);
        memcpy(made->word, key->word, key->words * sizeof *key->word);
    }
    pthread_mutex_lock(&lock);
    if (made == NULL || (answers == MOST_ANSWERS && !make_room())) {
        note_gone(number);
        free(made);
    } else {
        made->next = buckets[hash % BUCKETS];
        buckets[hash % BUCKETS] = made;
        if (answers < MOST_ANSWERS) {
            ring[answers++] = made;
        } else {
            ring[oldest] = made;
            oldest = (oldest + 1) % MOST_ANSWERS;
        }
    }
    pthread_mutex_unlock(&lock);
}

void aclnn_forget_answers(void)
{
    pthread_mutex_lock(&lock);
    era++;
    pthread_mutex_unlock(&lock);
}

bool aclnn_take(uintptr_t handle, bool even_destroyed, struct aclnn_taken *taken)
{
    struct aclnn_object *object;
    uint64_t count;

    pthread_mutex_lock(&lock);
    object = object_of(handle, even_destroyed);
    count = object == NULL ? 0 : object->kind == ACLNN_TENSOR ? 2 * object->count : object->count;
    taken->values = object == NULL ? NULL : malloc((count + object->storage_count + 1) * sizeof *taken->values);
    if (taken->values != NULL) {
        taken->kind = object->kind;
        taken->destroyed = object->hidden;
        taken->dtype = object->dtype;
        taken->format = object->format;
        taken->offset = object->offset;
        taken->address = object->address;
        taken->count = object->count;
        taken->storage_count = object->storage_count;
        memcpy(taken->values, object->values, (count + object->storage_count) * sizeof *taken->values);
        object->hidden = true;
        if (object->kind == ACLNN_EXECUTOR) {
            /* It is freed by aclnn_drop: the executor may hold the last reference to its tensors. */
            taken->answer = object->answer->number;
            for (uint64_t at = 0; at < count; at++) {
                taken->values[at] = (int64_t)((struct aclnn_object *)(uintptr_t)object->values[at])->handle;
            }
        } else if (!taken->destroyed) {
            drop(object);
        }
    }
    pthread_mutex_unlock(&lock);
    return taken->values != NULL;
}

void aclnn_drop(uintptr_t executor)
{
    pthread_mutex_lock(&lock);
    drop(object_of(executor, true));
    pthread_mutex_unlock(&lock);
}

uintptr_t aclnn_user_of(uintptr_t tensor)
{
    struct aclnn_object *wanted, *object;
    uintptr_t found = 0;

    pthread_mutex_lock(&lock);
    wanted = object_of(tensor, true);
    for (uint32_t at = 1; wanted != NULL && found == 0 && at < used; at++) {
        object = places[at].object;
        if (object == NULL || object->hidden || object->kind != ACLNN_EXECUTOR) {
            continue;
        }
        for (uint64_t i = 0; i < object->count; i++) {
            found = (struct aclnn_object *)(uintptr_t)object->values[i] == wanted ? object->handle : found;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool aclnn_take_call(const void *executor, const char *function, struct aclnn_call *call)
{
    struct aclnn_object *object;
    bool found;

    pthread_mutex_lock(&lock);
    object = object_of((uintptr_t)executor, false);
    found = object != NULL && object->kind == ACLNN_EXECUTOR && strcmp(object->answer->function, function) == 0;
    if (found) {
        const struct answer *answer = object->answer;

        call->answer = answer->number;
        call->operands = answer->operands;
        for (size_t at = 0; at < answer->operands; at++) {
            uintptr_t *word = call->word + 2 * at;

            word[0] = word[1] = 0;
            if (answer->operand[at] >= 0) {
                const struct aclnn_object *operand =
                    (const struct aclnn_object *)(uintptr_t)object->values[answer->operand[at]];

                word[0] = operand->address;
                word[1] = operand->kind == ACLNN_SCALAR
                    ? (uintptr_t)operand->values[0]
                    : operand->address + (uintptr_t)(operand->offset * operand->itemsize);
            }
        }
        hide(object);
    }
    pthread_mutex_unlock(&lock);
    return found;
}
