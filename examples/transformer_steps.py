"""Train a transformer block for two steps by C functions, called from Python, and compare with PyTorch.

Norms, softmax, GELU, the loss and all of their gradients are calls of ``aclnn.cann`` on device memory; NumPy computes
the matrix products and the update. The block is that of ``torch_norms.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn import cann

Array = np.ndarray[Any, Any]
Weights = dict[str, Array]

HEADS, RATE = 4, 0.1
EPS, LAYER_EPS = float(np.finfo(np.float32).eps), 1e-5


def expect(result: Any) -> Any:
    """Require status 0 and return the other results of a C function."""
    status, *values = result if isinstance(result, tuple) else (result,)
    if status:
        raise SystemExit(f"{status}: {cann.aclGetRecentErrMsg()}")
    return values[0] if len(values) == 1 else values


class Device:
    """A device with a stream, on which operators run one after the other."""

    def __enter__(self) -> Device:
        expect(cann.aclInit(None))
        expect(cann.aclrtSetDevice(0))
        self.stream = expect(cann.aclrtCreateStream())
        return self

    def __exit__(self, *exception: object) -> None:
        expect(cann.aclrtDestroyStream(self.stream))
        expect(cann.aclrtResetDevice(0))
        expect(cann.aclFinalize())

    def run(self, function: str, *arguments: Any) -> None:
        """Run both phases on device copies of the arrays, and copy them back; lists become arrays of int64 or bool."""
        handles, memory, releases = [], [], []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                address = expect(cann.aclrtMalloc(argument.nbytes, cann.ACL_MEM_MALLOC_HUGE_FIRST))
                memory.append((argument, address))
                self._copy(address, argument.ctypes.data, argument.nbytes, cann.ACL_MEMCPY_HOST_TO_DEVICE)
                shape, steps = argument.shape, [step // argument.itemsize for step in argument.strides]
                layout = shape, len(shape), cann.ACL_FLOAT, steps, 0, cann.ACL_FORMAT_ND, shape, len(shape)
                handles.append(cann.aclCreateTensor(*layout, address))
                releases.append((cann.aclDestroyTensor, handles[-1]))
            elif isinstance(argument, list):
                flags = isinstance(argument[0], bool)
                create = cann.aclCreateBoolArray if flags else cann.aclCreateIntArray
                handles.append(create(argument, len(argument)))
                releases.append((cann.aclDestroyBoolArray if flags else cann.aclDestroyIntArray, handles[-1]))
            else:
                handles.append(argument)
        size, executor = expect(getattr(cann, f"{function}GetWorkspaceSize")(*handles))
        workspace = expect(cann.aclrtMalloc(size, cann.ACL_MEM_MALLOC_HUGE_FIRST)) if size else 0
        expect(getattr(cann, function)(workspace, size, executor, self.stream))
        expect(cann.aclrtSynchronizeStream(self.stream))
        for array, address in memory:
            self._copy(array.ctypes.data, address, array.nbytes, cann.ACL_MEMCPY_DEVICE_TO_HOST)
            expect(cann.aclrtFree(address))
        if size:
            expect(cann.aclrtFree(workspace))
        for release, handle in releases:
            expect(release(handle))

    @staticmethod
    def _copy(to: int, source: int, nbytes: int, kind: int) -> None:
        expect(cann.aclrtMemcpy(to, nbytes, source, nbytes, kind))


def linear(x: Array, weights: Weights, name: str) -> Array:
    """Compute ``x·Wᵀ + b``."""
    product: Array = x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
    return product


def linear_backward(dy: Array, x: Array, weights: Weights, name: str, gradients: Weights) -> Array:
    """Return dx; store dW and db in ``gradients``."""
    rows = dy.reshape(-1, dy.shape[-1])
    gradients[f"{name}.weight"] = rows.T @ x.reshape(len(rows), -1)
    gradients[f"{name}.bias"] = rows.sum(0)
    dx: Array = dy @ weights[f"{name}.weight"]
    return dx


def rows_of(x: Array) -> Array:
    """Allocate an array with one number for each row."""
    return np.empty((*x.shape[:-1], 1), np.float32)


def step(device: Device, weights: Weights, images: Array, labels: Array) -> float:
    """Return the loss of a batch (N, 1, 8, 8), and take one step of gradient descent in place."""
    run, like = device.run, np.empty_like
    n, width = len(images), weights["places"].shape[1]
    patches = np.ascontiguousarray(images.reshape(n, 4, 2, 4, 2).transpose(0, 1, 3, 2, 4)).reshape(n, 16, 4)
    x1 = linear(patches, weights, "embed") + weights["places"]
    h1, rstd1 = like(x1), rows_of(x1)
    run("aclnnRmsNorm", x1, weights["norm1.weight"], EPS, h1, rstd1)
    parts = linear(h1, weights, "qkv").reshape(n, 16, 3, HEADS, -1).transpose(2, 0, 3, 1, 4)
    q, k, v = (np.ascontiguousarray(part) for part in parts)
    scale = np.float32(q.shape[-1] ** -0.5)
    scores = q @ k.swapaxes(-1, -2) * scale
    shares = like(scores)
    run("aclnnSoftmax", scores, -1, shares)
    joined = (shares @ v).swapaxes(1, 2).reshape(n, 16, width)
    x2 = x1 + linear(joined, weights, "join")
    h2, mean2, rstd2 = like(x2), rows_of(x2), rows_of(x2)
    affine = weights["norm2.weight"], weights["norm2.bias"]
    run("aclnnLayerNorm", x2, [width], *affine, LAYER_EPS, h2, mean2, rstd2)
    inner = linear(h2, weights, "mlp.0")
    active = like(inner)
    run("aclnnGeluV2", inner, 0, active)
    x3 = x2 + linear(active, weights, "mlp.2")
    h3, rstd3 = like(x3), rows_of(x3)
    run("aclnnRmsNorm", x3, weights["norm3.weight"], EPS, h3, rstd3)
    pooled = h3.mean(1)
    logits = linear(pooled, weights, "head")
    logs = like(logits)
    run("aclnnLogSoftmax", logits, -1, logs)
    loss = -float(logs[np.arange(n), labels].mean())

    found: Weights = {name: like(weights[name]) for name in weights if name.startswith("norm")}
    dlogs, dlogits = np.zeros_like(logs), like(logs)
    dlogs[np.arange(n), labels] = -1.0 / n
    run("aclnnLogSoftmaxBackward", dlogs, logs, -1, dlogits)
    dh3 = np.repeat(linear_backward(dlogits, pooled, weights, "head", found)[:, None] / np.float32(16.0), 16, 1)
    dx3 = like(x3)
    run("aclnnRmsNormGrad", dh3, x3, rstd3, weights["norm3.weight"], dx3, found["norm3.weight"])
    dactive = linear_backward(dx3, active, weights, "mlp.2", found)
    dinner = like(inner)
    run("aclnnGeluBackwardV2", dactive, inner, "none", dinner)
    dh2 = linear_backward(dinner, h2, weights, "mlp.0", found)
    dx2 = like(x2)
    gradients = dx2, found["norm2.weight"], found["norm2.bias"]
    run("aclnnLayerNormBackward", dh2, x2, [width], mean2, rstd2, *affine, [True] * 3, *gradients)
    dx2 += dx3
    djoined = linear_backward(dx2, joined, weights, "join", found).reshape(n, 16, HEADS, -1).swapaxes(1, 2)
    dshares, dscores = djoined @ v.swapaxes(-1, -2), like(scores)
    run("aclnnSoftmaxBackward", dshares, shares, -1, dscores)
    dparts = np.stack([dscores @ k * scale, dscores.swapaxes(-1, -2) @ q * scale, shares.swapaxes(-1, -2) @ djoined])
    dqkv = np.ascontiguousarray(dparts.transpose(1, 3, 0, 2, 4)).reshape(n, 16, 3 * width)
    dh1 = linear_backward(dqkv, h1, weights, "qkv", found)
    dx1 = like(x1)
    run("aclnnRmsNormGrad", dh1, x1, rstd1, weights["norm1.weight"], dx1, found["norm1.weight"])
    dx1 += dx2
    linear_backward(dx1, patches, weights, "embed", found)
    found["places"] = dx1.sum(0)
    for name, gradient in found.items():
        weights[name] -= np.float32(RATE) * gradient
    return loss


def main() -> None:
    """Print the losses of aclnn and of PyTorch."""
    import torch
    from torch_norms import Transformer

    torch.manual_seed(0)
    model, images, labels = Transformer(), torch.rand(64, 1, 8, 8), torch.randint(10, (64,))
    weights = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    with Device() as device:
        for number in (1, 2):
            ours = step(device, weights, images.numpy(), labels.numpy())
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {number}: loss {ours:.4f}, PyTorch's {loss.item():.4f}")
    largest = max(float(np.abs(weights[name] - tensor.numpy()).max()) for name, tensor in model.state_dict().items())
    print(f"weights within 1e-6 of PyTorch's: {largest < 1e-6}")


if __name__ == "__main__":
    main()

# -> step 1: loss 2.3…, PyTorch's 2.3…
# -> step 2: loss 2.2…, PyTorch's 2.2…
# -> weights within 1e-6 of PyTorch's: True
