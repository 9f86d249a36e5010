/* To be preloaded: whoever looks for Python before it is there gets the answer only when it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *(*look_up)(void *, const char *);

void *dlsym(void *handle, const char *name)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    static _Atomic int somebody;
    static _Thread_local int first;
    look_up real = NULL;
    void *found;

    for (int i = 0; real == NULL && i < 3; i++) {
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    }
    if (real == NULL) {
        abort();
    }
    found = real(handle, name);
    /* The first thread starts Python, but not before the others have looked too; they hear that there is none, after
       the first has found it. */
    if (found == NULL && strcmp(name, "Py_IsInitialized") == 0) {
        first = first || somebody++ == 0;
        usleep(first ? 300000 : 1500000);
    }
    return found;
}
