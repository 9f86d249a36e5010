/* The part compiled against Python's headers: starts an interpreter that ignores environment variables. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config.h"
#include "entries.h"
#include "objects.h"
#include "start.h"

/* Calls made by C, and those begun by Python; compared by ``watch``. */
static atomic_ulong entered, begun;

enum { PATIENCE_S = 10 };

static void aclnn_begun(void)
{
    atomic_fetch_add_explicit(&begun, 1, memory_order_relaxed);
}

/* Python's lock cannot be awaited with a timeout, so this thread, which never takes it, checks that calls progress. */
static void *watch(void *unused)
{
    unsigned long last = 0;
    int seconds = 0;

    (void)unused;
    for (;;) {
        const unsigned long now = atomic_load_explicit(&begun, memory_order_relaxed);

        if (now != last || now == atomic_load_explicit(&entered, memory_order_relaxed)) {
            last = now;
            seconds = 0;
        } else if (++seconds == PATIENCE_S) {
            fprintf(stderr, "aclnn: a call has waited %d s for Python's lock, which another thread holds. torch_npu waits "
                    "for its launch thread with the lock held, in torch.npu.empty_cache for one: set "
                    "TASK_QUEUE_ENABLE=0.\n", PATIENCE_S);
        }
        sleep(1);
    }
    return NULL;
}

static void aclnn_watch(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, watch, NULL) == 0) {
        pthread_detach(thread);
    }
}

/* Memory that a C++ program frees with delete[]. */
void *_Znam(size_t size);

static void *aclnn_new_array(size_t size)
{
    return _Znam(size);
}

/* The process in which this library started an interpreter, which is never finalized; 0 in a Python program. */
static pid_t ours;

void py_leave(void);

/* Not in a forked child, which lacks the threads, nor when a signal handler exits during a call. */
static void leave(void)
{
    if (getpid() == ours && !PyGILState_Check()) {
        const aclnn_mode callers = aclnn_take_mode();

        py_leave();
        aclnn_give_mode_back(callers);
    }
}

/* The exit handler registered last runs first, before the destructors of all libraries loaded so far. */
static void aclnn_leave_first(void)
{
    if (ours != 0) {
        atexit(leave);
    }
}

static int set(PyConfig *config, wchar_t **field, const char *value, const char **error)
{
    PyStatus status = PyConfig_SetBytesString(config, field, value);

    *error = status.err_msg;
    return !PyStatus_Exception(status);
}

static int start_python(const char **error)
{
    PyPreConfig before;
    PyConfig config;
    PyStatus status;
    int started = 0;

    PyPreConfig_InitIsolatedConfig(&before);
    before.utf8_mode = 1;
    status = Py_PreInitialize(&before);
    *error = status.err_msg;
    if (PyStatus_Exception(status)) {
        return 0;
    }
    PyConfig_InitIsolatedConfig(&config);
    if (set(&config, &config.program_name, ACLNN_PYTHON, error)
        && set(&config, &config.executable, ACLNN_PYTHON, error)) {
        status = Py_InitializeFromConfig(&config);
        *error = status.err_msg;
        started = !PyStatus_Exception(status);
    }
    PyConfig_Clear(&config);
    return started;
}

static void describe_exception(char *reason, size_t size)
{
    PyObject *type, *value, *traceback, *text;
    const char *words;

    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    text = value == NULL ? NULL : PyObject_Str(value);
    words = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    snprintf(reason, size, "%s: %s", type == NULL ? "no exception" : ((PyTypeObject *)type)->tp_name,
             words == NULL ? "" : words);
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

/* Imports everything that may fail for an external reason, so that cffi's own start cannot fail. */
static int import_server(char *reason, size_t size)
{
    PyObject *globals = PyDict_New();
    PyObject *result = NULL;

    if (globals != NULL && PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0) {
        result = PyRun_String(ACLNN_IMPORT_SERVER, Py_file_input, globals, globals);
    }
    if (result == NULL) {
        describe_exception(reason, size);
    }
    Py_XDECREF(result);
    Py_XDECREF(globals);
    return result != NULL;
}

static int cffi_start_python(void);
static const struct aclnn_entries aclnn_table;

/* Before Python 3.12, cffi uses this type's version tag as a lock and aborts unless it is 0; any attribute look-up on a
   capsule, as in NumPy and PyTorch, sets it. Keep the interpreter lock until cffi has started. */
static void forget_version_of_capsules(void)
{
#if PY_VERSION_HEX < 0x030C0000
    PyType_Modified(&PyCapsule_Type);
    PyCapsule_Type.tp_version_tag = 0;
#endif
}

__attribute__((visibility("default")))
const struct aclnn_entries *aclnn_bridge_open(char *reason, size_t size)
{
    const char *error = NULL;
    PyGILState_STATE state;
    int imported, attached = 0;

    if (!Py_IsInitialized()) {
        if (!start_python(&error)) {
            snprintf(reason, size, "%s", error == NULL ? "no reason given" : error);
            return NULL;
        }
        PyEval_SaveThread();
        ours = getpid();
    }
    state = PyGILState_Ensure();
    imported = import_server(reason, size);
    if (imported) {
        forget_version_of_capsules();
        attached = cffi_start_python() == 0;
    }
    PyGILState_Release(state);
    if (!imported) {
        return NULL;
    }
    if (!attached) {
        snprintf(reason, size, "the entry points could not be attached");
        return NULL;
    }
    return &aclnn_table;
}
