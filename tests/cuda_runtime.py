"""The C API, run as a program with ACLNN_DEVICE=cuda: on a GPU, or on one that is stood in for, kernels interpreted."""

from __future__ import annotations

import ctypes
import gc
import itertools
import sys
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from aclnn import cann, handles
from aclnn.kernels.sixteen_bit import evaluate
from aclnn.operators import BY_NAME
from aclnn.runtime import cuda, memory
from aclnn.runtime.streams import Stream

STAND_IN: Any = None
if not torch.cuda.is_available():
    import cuda_stand_in
    import triton_hardware  # noqa: F401

    STAND_IN = cuda.torch = cuda_stand_in.Torch()

TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
FLOAT, FLOAT16, BF16 = 0, 1, 27
COMPLETE, NOT_READY = 0, 1


def good(result: Any) -> Any:
    """What a call returned beside its status, which must be 0."""
    status, *values = result if isinstance(result, tuple) else (result,)
    assert status == 0, (status, cann.aclGetRecentErrMsg())
    return values[0] if len(values) == 1 else values


def refused(result: Any, code: int, text: str) -> None:
    status = result[0] if isinstance(result, tuple) else result
    message = cann.aclGetRecentErrMsg() or ""
    assert status == code, (status, message)
    assert text in message, message


def address(array: Any) -> int:
    return int(array.ctypes.data)


def stored(array: Any) -> int:
    """New device memory with the array's bytes."""
    place: int = good(cann.aclrtMalloc(max(array.nbytes, 1)))
    good(cann.aclrtMemcpy(place, array.nbytes, address(array), array.nbytes, TO_DEVICE))
    return place


def loaded(place: int, like: Any) -> Any:
    """A copy of device memory with the array's shape and type."""
    result = np.empty_like(like)
    good(cann.aclrtMemcpy(address(result), result.nbytes, place, result.nbytes, TO_HOST))
    return result


def bits_of(values: Any, dtype: int) -> Any:
    """Float32 numbers as the type's bytes, in an array of their own."""
    if dtype == BF16:
        return (torch.from_numpy(np.ascontiguousarray(values)).bfloat16().view(torch.int16)).numpy()
    return np.ascontiguousarray(values, np.float16 if dtype == FLOAT16 else np.float32)


def wide(array: Any, dtype: int) -> Any:
    """The numbers as float64."""
    return torch.from_numpy(array).view(torch.bfloat16).double().numpy() if dtype == BF16 else array.astype(np.float64)


def tensor(array: Any, dtype: int, place: int) -> int:
    shape = list(array.shape)
    return good((0, cann.aclCreateTensor(shape, len(shape), dtype, None, 0, 2, shape, len(shape), place)))


def run(name: str, arguments: Iterable[Any], stream: int) -> None:
    """Both phases; the workspace is released as soon as the work is queued."""
    function = BY_NAME[name].function
    nbytes, executor = good(cann.CALLS[f"{function}GetWorkspaceSize"](*arguments))
    workspace = good(cann.aclrtMalloc(nbytes)) if nbytes else 0
    good(cann.CALLS[function](workspace, nbytes, executor, stream))
    if workspace:
        good(cann.aclrtFree(workspace))


SLOPES = {
    "fast_gelu_backward": ("fast_gelu_slope", ()),
    "silu_backward": ("silu_slope", ()),
    "hardswish_backward": ("hardswish_slope", ()),
    "gelu_backward_v2": ("gelu_erf_slope", ("none",)),
}
VALUES = {
    "fast_gelu": ("fast_gelu_value", ()),
    "silu": ("silu_value", ()),
    "hardswish": ("hardswish_value", ()),
    "gelu": ("gelu_tanh_value", ()),
    "gelu_v2": ("gelu_erf_value", (0,)),
}
MODULES = [sys.modules[f"aclnn.operators.{name}"] for name in ("fast_gelu", "gelu", "hardswish", "silu")]
FORMULAS = {name: value for module in MODULES for name, value in vars(module).items()}


def check_elementwise() -> None:
    """Every activation, forwards and backwards, in every data type."""
    stream = good(cann.aclrtCreateStream())
    generator = np.random.default_rng(0)
    for (name, (formula, attributes)), dtype in itertools.product((SLOPES | VALUES).items(), (FLOAT, FLOAT16, BF16)):
        x = bits_of(4.0 * generator.normal(size=(7, 33)).astype(np.float32), dtype)
        dy = bits_of(np.ones((7, 33), np.float32), dtype)
        out = bits_of(np.full((7, 33), np.nan, np.float32), dtype)
        inputs = (dy, x) if name in SLOPES else (x,)
        places = [stored(array) for array in (*inputs, out)]
        *given, result = (tensor(array, dtype, place) for array, place in zip((*inputs, out), places, strict=True))
        run(name, (*given, *attributes, result), stream)
        good(cann.aclrtSynchronizeStream(stream))
        exact = evaluate(FORMULAS[formula], wide(x, dtype).reshape(-1)).reshape(x.shape)
        eps = {FLOAT: 2.0**-23, FLOAT16: 2.0**-11, BF16: 2.0**-8}[dtype]
        np.testing.assert_allclose(wide(loaded(places[-1], out), dtype), exact, rtol=2 * eps, atol=1e-6, err_msg=name)
        for place in places:
            good(cann.aclrtFree(place))
    good(cann.aclrtDestroyStream(stream))


def check_layer_norm() -> None:
    """Forwards, then backwards with the statistics that it left on the device, every output mask."""
    generator = np.random.default_rng(1)
    x, dy = generator.normal(size=(2, 9, 40)).astype(np.float32)
    weight, bias = generator.normal(size=(2, 40)).astype(np.float32)
    rows, shape = np.empty((9, 1), np.float32), cann.aclCreateIntArray([40], 1)
    places = {
        name: stored(np.full_like(array, np.nan) if name in ("out", "mean", "rstd", "dx", "dw", "db") else array)
        for name, array in {
            "x": x, "dy": dy, "weight": weight, "bias": bias, "out": x, "mean": rows, "rstd": rows,
            "dx": x, "dw": weight, "db": bias,
        }.items()
    }  # fmt: skip
    arrays = dict.fromkeys(("x", "dy", "out", "dx"), x) | dict.fromkeys(("mean", "rstd"), rows)
    t = {name: tensor(arrays.get(name, weight), FLOAT, place) for name, place in places.items()}
    run("layer_norm", (t["x"], shape, t["weight"], t["bias"], 1e-5, t["out"], t["mean"], t["rstd"]), 0)
    good(cann.aclrtSynchronizeStream(0))
    wide_x, g = x.astype(np.float64), dy.astype(np.float64)
    mean, rstd = wide_x.mean(1, keepdims=True), 1.0 / np.sqrt(wide_x.var(1, keepdims=True) + 1e-5)
    hat = (wide_x - mean) * rstd
    for name, exact in (("out", hat * weight + bias), ("mean", mean), ("rstd", rstd)):
        np.testing.assert_allclose(loaded(places[name], exact.astype(np.float32)), exact, rtol=1e-5, atol=1e-5)
    h = g * weight
    dx = (h - h.mean(1, keepdims=True) - hat * (h * hat).mean(1, keepdims=True)) * rstd
    exacts = {"dx": dx, "dw": (g * hat).sum(0), "db": g.sum(0)}
    for mask in itertools.product([False, True], repeat=3):
        for name in exacts:
            like = arrays.get(name, weight)
            good(cann.aclrtMemset(places[name], like.nbytes, 0xFF, like.nbytes))
        outs = [t[name] if wanted else 0 for name, wanted in zip(exacts, mask, strict=True)]
        inputs = [t[name] for name in ("dy", "x")] + [shape] + [t[name] for name in ("mean", "rstd", "weight", "bias")]
        run("layer_norm_backward", (*inputs, cann.aclCreateBoolArray(mask, 3), *outs), 0)
        good(cann.aclrtSynchronizeDevice())
        for (name, exact), wanted in zip(exacts.items(), mask, strict=True):
            got = loaded(places[name], exact.astype(np.float32))
            if wanted:
                np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-5, err_msg=name)
            else:
                assert np.isnan(got).all(), name
    for place in places.values():
        good(cann.aclrtFree(place))


def check_copies() -> None:
    """Every direction, at once and on a stream, from pageable and page-locked memory; refusals."""
    stream = good(cann.aclrtCreateStream())
    data, nbytes = np.arange(64, dtype=np.int32), 256
    first, second = (good(cann.aclrtMalloc(nbytes)) for _ in range(2))
    pinned = good(cann.aclrtMallocHost(nbytes))
    good(cann.aclrtMemcpy(pinned, nbytes, address(data), nbytes, 0))
    good(cann.aclrtMemcpyAsync(first, nbytes, pinned, nbytes, TO_DEVICE, stream))
    good(cann.aclrtMemcpyAsync(second, nbytes, first, nbytes, ON_DEVICE, stream))
    back = np.zeros_like(data)
    good(cann.aclrtMemcpyAsync(address(back), nbytes, second, nbytes, TO_HOST, stream))
    assert np.array_equal(back, data), "unknown host memory is written when the call returns"
    good(cann.aclrtMemcpy(first + 8, nbytes - 8, first, nbytes - 8, ON_DEVICE))
    assert np.array_equal(loaded(first, data), np.concatenate([data[:2], data[:-2]])), "as if through a temporary"
    good(cann.aclrtMemsetAsync(second, nbytes, 0x7F, nbytes, stream))
    good(cann.aclrtMemsetAsync(pinned, nbytes, 0x11, 128, stream))
    good(cann.aclrtMemcpyAsync(pinned + 128, 128, second, 128, TO_HOST, stream))
    good(cann.aclrtSynchronizeStream(stream))
    assert ctypes.string_at(pinned, nbytes) == b"\x11" * 128 + b"\x7f" * 128
    refused(cann.aclrtMemcpy(first, nbytes, second, nbytes + 1, ON_DEVICE), 107000, "destMax")
    refused(cann.aclrtMemcpy(first + 1, nbytes, second, nbytes, ON_DEVICE), 107000, "reaches 1 bytes beyond")
    refused(cann.aclrtMemcpyAsync(address(back), nbytes, pinned, nbytes, 0, stream), 207000, "HOST_TO_HOST")
    for place in (first, second):
        good(cann.aclrtFree(place))
    good(cann.aclrtFreeHost(pinned))
    for stale in (first, second + 8, pinned):
        refused(cann.aclrtMemcpy(stale, 8, address(data), 8, TO_DEVICE), 107000, "was freed")
        refused(cann.aclrtMemset(stale, 8, 0, 8), 107000, "was freed")
    refused(cann.aclrtFree(first), 107000, "was freed")
    good(cann.aclrtDestroyStream(stream))


def check_events() -> None:
    one, two = (good(cann.aclrtCreateStream()) for _ in range(2))
    begin, end, unused = (good(cann.aclrtCreateEvent()) for _ in range(3))
    place = good(cann.aclrtMalloc(1 << 20))
    good(cann.aclrtRecordEvent(begin, one))
    good(cann.aclrtMemsetAsync(place, 1 << 20, 1, 1 << 20, one))
    good(cann.aclrtRecordEvent(end, one))
    if STAND_IN:
        assert good(cann.aclrtQueryEventStatus(end)) == 0
        assert good(cann.aclrtStreamQuery(one)) == NOT_READY
        refused(cann.aclrtEventElapsedTime(begin, end), 107006, "has not finished")
        refused(cann.aclrtSynchronizeEventWithTimeout(end, 1), 507047, "1 ms")
        refused(cann.aclrtSynchronizeStreamWithTimeout(one, 1), 507046, "1 ms")
    good(cann.aclrtStreamWaitEvent(two, end))
    good(cann.aclrtMemsetAsync(place, 1 << 20, 2, 1 << 20, two))
    good(cann.aclrtSynchronizeStream(two))
    assert good(cann.aclrtQueryEventStatus(end)) == 1, "two waited for it"
    assert good(cann.aclrtEventElapsedTime(begin, end)) >= 0.0
    assert (loaded(place, np.empty(1 << 20, np.uint8)) == 2).all()
    good(cann.aclrtSynchronizeEvent(end))
    good(cann.aclrtSynchronizeStream(one))
    good(cann.aclrtSynchronizeStreamWithTimeout(one, 1000))
    assert good(cann.aclrtStreamQuery(one)) == COMPLETE
    good(cann.aclrtResetEvent(end, one))
    assert good(cann.aclrtQueryEventStatus(end)) == 0
    refused(cann.aclrtStreamWaitEvent(two, unused), 107000, "was recorded")
    for event in (begin, end, unused):
        good(cann.aclrtDestroyEvent(event))
    for stream in (one, two):
        good(cann.aclrtDestroyStream(stream))
    good(cann.aclrtFree(place))


def check_lifetimes() -> None:
    """Memory freed while in use is kept; failures are found by whoever waits; nothing is left over."""
    handle = good(cann.aclrtCreateStream())
    stream = handles.find(handle, Stream)
    assert stream is not None
    place = good(cann.aclrtMalloc(1 << 16))
    allocation = memory.find(place)
    kept = weakref.ref(allocation._keep._tensor)  # type: ignore[union-attr]  # it is on the GPU
    del allocation
    good(cann.aclrtMemsetAsync(place, 1 << 16, 3, 1 << 16, handle))
    good(cann.aclrtFree(place))
    gc.collect()
    assert not STAND_IN or kept() is not None, "freed while the GPU was using it"
    good(cann.aclrtSynchronizeStream(handle))
    gc.collect()
    assert kept() is None
    seen: list[int] = []
    stream.enqueue(lambda: (stream.enqueue(lambda: seen.append(1)), seen.append(2)))
    stream.enqueue(lambda: 1 // 0)
    stream.enqueue(lambda: seen.append(3))
    refused(cann.aclrtSynchronizeStream(handle), 507000, "ZeroDivisionError")
    assert seen == [1, 2, 3]
    stream.enqueue(lambda: seen.append(4))
    good(cann.aclrtDestroyStreamForce(handle))
    assert seen[-1] == 4
    assert stream.idle()
    refused(cann.aclrtMemsetAsync(place, 1, 3, 1, handle), 107000, "destroyed")
    refused(cann.aclrtMalloc(1 << 50), 207001, "free of the device's")
    if STAND_IN:
        STAND_IN.room = 1000
        refused(cann.aclrtMalloc(1001), 207001, "free of the device's")
        STAND_IN.room = cuda_stand_in.MEMORY_BYTES
    free, total = good(cann.aclrtGetMemInfo(1))
    assert free == total == memory.backend().memory_bytes()


def check_refusals() -> None:
    """Phase two judges addresses: memory of the host, freed memory, a range too short."""
    x = np.ones(16, np.float32)
    place, out = stored(x), good(cann.aclrtMalloc(64))
    text = "expected live memory"
    for source, result in ((address(x), out), (place, address(x)), (place + 32, out), (place, out + 4)):
        _, executor = good(cann.aclnnSiluGetWorkspaceSize(tensor(x, FLOAT, source), tensor(x, FLOAT, result)))
        refused(cann.aclnnSilu(0, 0, executor, 0), 107000, text)
    good(cann.aclrtFree(place))
    _, executor = good(cann.aclnnSiluGetWorkspaceSize(tensor(x, FLOAT, place), tensor(x, FLOAT, out)))
    refused(cann.aclnnSilu(0, 0, executor, 0), 107000, "was freed")
    good(cann.aclrtFree(out))


CHECKS = {name.removeprefix("check_"): value for name, value in dict(globals()).items() if name.startswith("check_")}


if __name__ == "__main__":
    good(cann.aclrtSetDevice(0))
    for name in sys.argv[1:] or CHECKS:
        CHECKS[name]()
        print(name, flush=True)
    good(cann.aclrtResetDevice(0))
