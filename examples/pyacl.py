"""A program for pyACL, with ``from aclnn import acl`` instead of ``import acl``. Events time the operator."""

import numpy as np

from aclnn import acl, cann

acl.init()
acl.rt.set_device(0)
stream, ret = acl.rt.create_stream()

x = np.linspace(-3, 3, 1 << 20, dtype=np.float32)
addresses = []
for _ in range(3):
    address, ret = acl.rt.malloc(x.nbytes, cann.ACL_MEM_MALLOC_HUGE_FIRST)
    acl.rt.memcpy(address, x.nbytes, acl.util.numpy_contiguous_to_ptr(x), x.nbytes, cann.ACL_MEMCPY_HOST_TO_DEVICE)
    addresses.append(address)

tensors = [
    cann.aclCreateTensor(x.shape, 1, cann.ACL_FLOAT, None, 0, cann.ACL_FORMAT_ND, x.shape, 1, address)
    for address in addresses
]
status, size, executor = cann.aclnnHardswishBackwardGetWorkspaceSize(*tensors)
begin, ret = acl.rt.create_event()
end, ret = acl.rt.create_event()
acl.rt.record_event(begin, stream)
status = cann.aclnnHardswishBackward(0, size, executor, stream)
acl.rt.record_event(end, stream)
ret = acl.rt.synchronize_stream(stream)

milliseconds, ret = acl.rt.event_elapsed_time(begin, end)
result = np.empty_like(x)
acl.rt.memcpy(
    acl.util.numpy_contiguous_to_ptr(result), x.nbytes, addresses[2], x.nbytes, cann.ACL_MEMCPY_DEVICE_TO_HOST
)
print("status", status, "first", result[0], "last", result[-1], "took time", milliseconds > 0)
acl.finalize()

# -> status 0 first 1.5 last 4.5 took time True
