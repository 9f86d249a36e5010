"""Mistakes that crash a device or corrupt its memory, and the errors that aclnn reports for them."""

import numpy as np

from aclnn import cann

cann.aclInit(None)
cann.aclrtSetDevice(0)
_, stream = cann.aclrtCreateStream()


def tensor(shape, address):
    """Create a contiguous tensor over the memory at an address."""
    return cann.aclCreateTensor(
        shape, len(shape), cann.ACL_FLOAT, None, 0, cann.ACL_FORMAT_ND, shape, len(shape), address
    )


def report(title, status):
    """Print the runtime's error about a mistake."""
    print(f"{title}: {status}")
    print(cann.aclGetRecentErrMsg().replace(", got", ",\n    got"))


_, memory = cann.aclrtMalloc(3 * 64 * 4, cann.ACL_MEM_MALLOC_HUGE_FIRST)
dy, x, dx = (tensor((8, 8), memory + 256 * i) for i in range(3))
phase_one, phase_two = cann.aclnnSiluBackwardGetWorkspaceSize, cann.aclnnSiluBackward

status, *_ = phase_one(dy, tensor((8, 9), memory), dx)
report("another shape", status)

status, *_ = phase_one(dy, None, dx)
report("a null pointer", status)

_, size, executor = phase_one(dy, x, tensor((8, 8), memory + 600))
report("a buffer that is too small", phase_two(0, size, executor, stream))

_, size, executor = phase_one(dy, x, dx)
phase_two(0, size, executor, stream)
report("an executor used twice", phase_two(0, size, executor, stream))

_, size, executor = phase_one(dy, x, dx)
cann.aclrtFree(memory)
report("memory that was freed", phase_two(0, size, executor, stream))

report("freed twice", cann.aclrtFree(memory))

host = np.zeros((8, 8), np.float32)
_, size, executor = phase_one(tensor((8, 8), host.ctypes.data), x, dx)
report("a host pointer for a device's", phase_two(0, size, executor, stream))

cann.aclFinalize()

# -> another shape: 161002
# -> aclnnSiluBackward: self: expected shape [8, 8] (that of gradInput),
# ->     got [8, 9] [161002]
# -> a null pointer: 161001
# -> aclnnSiluBackward: self: expected an object,
# ->     got null [161001]
# -> a buffer that is too small: 107000
# -> aclnnSiluBackward: gradInput: expected live memory,
# ->     got […) of 256 bytes, which reaches 88 bytes beyond device allocation … of 768 bytes [107000]
# -> an executor used twice: 161001
# -> aclnnSiluBackward: executor: expected a live Executor,
# ->     got …, which has run, was destroyed or never existed [161001]
# -> memory that was freed: 107000
# -> aclnnSiluBackward: gradOutput: expected live memory,
# ->     got […) of 256 bytes, which lies in the device allocation … of 768 bytes that was freed [107000]
# -> freed twice: 107000
# -> aclrtFree: devPtr: expected the address of a live device allocation,
# ->     got …, which lies in the device allocation … of 768 bytes that was freed [107000]
# -> a host pointer for a device's: 107000
# -> aclnnSiluBackward: gradOutput: expected live memory,
# ->     got […) of 256 bytes; nothing is allocated [107000]
