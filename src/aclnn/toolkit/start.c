/* Finds or starts the Python of this process, once, and returns its entry points.

   This library accesses Python through dlopen only: if Python cannot start, a program still does, and every call
   returns an error status. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "entries.h"
#include "objects.h"
#include "start.h"

enum { PATH_BYTES = PATH_MAX + 32, REASON_BYTES = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(const struct aclnn_entries *) entries;
static atomic_int failed;
static atomic_int ours; /* This library has started the interpreter, or is about to. */
static bool in_python; /* This library was loaded by a Python program. */
static int (*python_is_initialized)(void);
static char folder[PATH_MAX] = ".";

static bool python_runs(void)
{
    int (*is_initialized)(void) = NULL;

    /* Not the global variable of that name, which another thread may be setting. */
    *(void **)&is_initialized = dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    return is_initialized != NULL && is_initialized();
}

bool aclnn_ended(void)
{
    return (in_python || atomic_load(&entries) != NULL) && !python_runs();
}

static void forked(void)
{
    /* The child has no interpreter threads, and perhaps a lock that one of them held. */
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    int working = 0;

    lock = fresh;
    aclnn_objects_forked();
    if (atomic_load(&ours)) {
        atomic_store(&entries, NULL);
        atomic_compare_exchange_strong(&failed, &working, 2);
    }
}

/* At load time: a relative path is valid only until the program changes its working folder, and another thread may
   fork during the first call. */
__attribute__((constructor)) static void prepare(void)
{
    Dl_info self;
    char *slash;

    if (dladdr((void *)&lock, &self) != 0 && realpath(self.dli_fname, folder) != NULL
        && (slash = strrchr(folder, '/')) != NULL) {
        *slash = '\0';
    }
    in_python = python_runs();
    pthread_atfork(NULL, NULL, forked);
}

static const struct aclnn_entries *fail(const char *format, ...)
{
    char line[2 * REASON_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (char *c = line; *c != '\0'; c++) {
        if (*c == '\n') {
            *c = ' ';
        }
    }
    fprintf(stderr, "aclnn: %s\n", line);
    atomic_store(&failed, 1);
    return NULL;
}

/* Makes Python's symbols visible to all libraries of the process: extension modules do not name libpython. */
static int find_python(void)
{
    const char *(*version)(void);

    if (dlsym(RTLD_DEFAULT, "Py_IsInitialized") == NULL && dlopen(ACLNN_LIBPYTHON, RTLD_NOW | RTLD_GLOBAL) == NULL) {
        fail("Python could not be loaded: %s. Run 'aclnn toolkit build' again.", dlerror());
        return 0;
    }
    *(void **)&python_is_initialized = dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    *(void **)&version = dlsym(RTLD_DEFAULT, "Py_GetVersion");
    if (strncmp(version(), ACLNN_PYTHON_VERSION ".", sizeof ACLNN_PYTHON_VERSION) != 0) {
        fail("the toolkit was built for Python " ACLNN_PYTHON_VERSION ", this process has Python %.16s. "
             "Run 'aclnn toolkit build' with that Python.", version());
        return 0;
    }
    return 1;
}

static const struct aclnn_entries *open_bridge(void)
{
    char path[PATH_BYTES];
    char reason[REASON_BYTES] = "";
    void *bridge;
    aclnn_open open_entries;
    const struct aclnn_entries *found;

    snprintf(path, sizeof path, "%s/bridge.so", folder);
    bridge = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (bridge == NULL) {
        return fail("%s. Run 'aclnn toolkit build' again.", dlerror());
    }
    *(void **)&open_entries = dlsym(bridge, "aclnn_bridge_open");
    found = open_entries(reason, sizeof reason);
    if (found == NULL) {
        return fail("Python could not start: %s. Correct that, or run 'aclnn toolkit build' again.", reason);
    }
    atomic_store_explicit(&entries, found, memory_order_release);
    return found;
}

static const struct aclnn_entries *start(void)
{
    const struct aclnn_entries *found;
    const bool runs = python_runs();
    int (*holds_lock)(void) = NULL;
    void *(*save)(void) = NULL;
    void (*restore)(void *) = NULL;
    void *thread = NULL;

    if (atomic_load(&failed) != 0) {
        if (atomic_load(&failed) == 2) {
            return fail("this process was forked after the first aclnn call; fork before it.");
        }
        return NULL;
    }
    if (aclnn_ended()) {
        return NULL;
    }
    if (runs) {
        /* The starting thread needs the interpreter lock, so release it while waiting for that thread. */
        *(void **)&holds_lock = dlsym(RTLD_DEFAULT, "PyGILState_Check");
        *(void **)&save = dlsym(RTLD_DEFAULT, "PyEval_SaveThread");
        *(void **)&restore = dlsym(RTLD_DEFAULT, "PyEval_RestoreThread");
        if (holds_lock()) {
            thread = save();
        }
    }
    pthread_mutex_lock(&lock);
    found = atomic_load_explicit(&entries, memory_order_acquire);
    if (found == NULL && atomic_load(&failed) == 0) {
        atomic_store(&ours, !runs);
        found = find_python() ? open_bridge() : NULL;
    }
    pthread_mutex_unlock(&lock);
    if (thread != NULL) {
        restore(thread);
    }
    return found;
}

const struct aclnn_entries *aclnn_entries(void)
{
    const struct aclnn_entries *found = atomic_load_explicit(&entries, memory_order_acquire);

    if (found == NULL) {
        found = start();
    } else if (!python_is_initialized()) {
        /* Exit handlers and destructors may still call after the interpreter of a Python program has ended. */
        found = NULL;
    }
    return found;
}
