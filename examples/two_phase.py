"""The sample program of aclnnSiluBackward's document, line by line, with results for C's output parameters."""

import numpy as np

from aclnn.cann import (
    ACL_FLOAT,
    ACL_FORMAT_ND,
    ACL_MEM_MALLOC_HUGE_FIRST,
    ACL_MEMCPY_DEVICE_TO_HOST,
    ACL_MEMCPY_HOST_TO_DEVICE,
    aclCreateTensor,
    aclDestroyTensor,
    aclFinalize,
    aclGetRecentErrMsg,
    aclInit,
    aclnnSiluBackward,
    aclnnSiluBackwardGetWorkspaceSize,
    aclrtCreateStream,
    aclrtDestroyStream,
    aclrtFree,
    aclrtMalloc,
    aclrtMemcpy,
    aclrtResetDevice,
    aclrtSetDevice,
    aclrtSynchronizeStream,
)


def check(status):
    """Stop with the error message unless the status is 0."""
    if status:
        raise SystemExit(f"{status}: {aclGetRecentErrMsg()}")


def create_tensor(host):
    """Copy an array to device memory, and create a tensor over it."""
    status, address = aclrtMalloc(host.nbytes, ACL_MEM_MALLOC_HUGE_FIRST)
    check(status)
    check(aclrtMemcpy(address, host.nbytes, host.ctypes.data, host.nbytes, ACL_MEMCPY_HOST_TO_DEVICE))
    strides = [stride // host.itemsize for stride in host.strides]
    shape, rank = host.shape, host.ndim
    return address, aclCreateTensor(shape, rank, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, shape, rank, address)


check(aclInit(None))
check(aclrtSetDevice(0))
status, stream = aclrtCreateStream()
check(status)

ones = np.ones((2, 3), np.float32)
values = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
result = np.zeros((2, 3), np.float32)
grad_output_address, grad_output = create_tensor(ones)
self_address, self = create_tensor(values)
grad_input_address, grad_input = create_tensor(result)

status, workspace_size, executor = aclnnSiluBackwardGetWorkspaceSize(grad_output, self, grad_input)
check(status)
workspace = 0
if workspace_size > 0:
    status, workspace = aclrtMalloc(workspace_size, ACL_MEM_MALLOC_HUGE_FIRST)
    check(status)
check(aclnnSiluBackward(workspace, workspace_size, executor, stream))
check(aclrtSynchronizeStream(stream))

nbytes = result.nbytes
check(aclrtMemcpy(result.ctypes.data, nbytes, grad_input_address, nbytes, ACL_MEMCPY_DEVICE_TO_HOST))
for index, value in enumerate(result.ravel()):
    print(f"out result[{index}] is: {value:f}")

for tensor in (grad_output, self, grad_input):
    check(aclDestroyTensor(tensor))
for address in (grad_output_address, self_address, grad_input_address):
    check(aclrtFree(address))
if workspace_size > 0:
    check(aclrtFree(workspace))
check(aclrtDestroyStream(stream))
check(aclrtResetDevice(0))
check(aclFinalize())

# -> out result[0] is: 0.927671
# -> out result[1] is: 1.090784
# -> out result[2] is: 1.088104
# -> out result[3] is: 1.052665
# -> out result[4] is: 1.026547
# -> out result[5] is: 1.012326
