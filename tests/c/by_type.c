/* An operator by its type, as programs older than aclnn call it. */
#include <stdio.h>
#include "acl/acl.h"
#include "acl/acl_op_compiler.h"

int main(void)
{
    const int64_t dims[] = {4};
    const float x[] = {-2, -1, 1, 2};
    float y[4];
    void *in, *out;
    aclTensorDesc *desc = aclCreateTensorDesc(ACL_FLOAT, 1, dims, ACL_FORMAT_ND);
    aclopAttr *attr = aclopCreateAttr();

    aclInit(NULL);
    aclrtSetDevice(0);
    aclrtMalloc(&in, sizeof x, ACL_MEM_MALLOC_HUGE_FIRST);
    aclrtMalloc(&out, sizeof y, ACL_MEM_MALLOC_HUGE_FIRST);
    aclrtMemcpy(in, sizeof x, x, sizeof x, ACL_MEMCPY_HOST_TO_DEVICE);
    aclDataBuffer *read = aclCreateDataBuffer(in, sizeof x), *written = aclCreateDataBuffer(out, sizeof y);
    aclopSetAttrFloat(attr, "negative_slope", 0.5f);
    const aclTensorDesc *descs[] = {desc};
    const aclDataBuffer *reads[] = {read};
    printf("%d\n", aclopCompileAndExecute("LeakyRelu", 1, descs, reads, 1, descs, &written, attr, ACL_ENGINE_SYS,
        ACL_COMPILE_SYS, NULL, NULL));
    aclrtSynchronizeDevice();
    aclrtMemcpy(y, sizeof y, out, sizeof y, ACL_MEMCPY_DEVICE_TO_HOST);
    printf("%g %g %g %g\n", y[0], y[1], y[2], y[3]);
    aclopDestroyAttr(attr);
    aclDestroyDataBuffer(read);
    aclDestroyDataBuffer(written);
    aclDestroyTensorDesc(desc);
    return aclFinalize();
}
