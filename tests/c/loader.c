/* Opens libraries at run time: loader LOCAL|GLOBAL path... ; every symbol must be found through every handle. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 8 };

int main(int argc, char **argv)
{
    static const char *const symbols[] = {"aclrtGetSocName", "aclCreateIntArray", "aclnnSiluBackward", "rtMalloc",
                                          "_ZdaPv"};
    void *handles[MOST];
    int count = 0;
    int (*init)(const char *);
    void *(*create)(const int64_t *, uint64_t);

    if (argc < 3) {
        return 2;
    }
    for (int i = 2; i < argc && count < MOST; i++) {
        handles[count] = dlopen(argv[i], RTLD_NOW | (strcmp(argv[1], "GLOBAL") == 0 ? RTLD_GLOBAL : RTLD_LOCAL));
        if (handles[count] == NULL) {
            printf("%s\n", dlerror());
            return 1;
        }
        count++;
    }
    for (int i = 0; i < count; i++) {
        for (size_t j = 0; j < sizeof symbols / sizeof *symbols; j++) {
            if (dlsym(handles[i], symbols[j]) == NULL) {
                printf("%s not found through %s\n", symbols[j], argv[i + 2]);
                return 1;
            }
        }
    }
    *(void **)&init = dlsym(handles[0], "aclInit");
    *(void **)&create = dlsym(handles[count - 1], "aclCreateIntArray");
    if (init(NULL) != 0 || create(NULL, 0) == NULL) {
        puts("calls failed");
        return 1;
    }
    puts("ok");
    return 0;
}
