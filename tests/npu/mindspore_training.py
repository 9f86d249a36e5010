"""MindSpore's layers, operators and trainings on the toolkit, compared with its own CPU device.

In an environment with MindSpore (docs/mindspore.md):

    python -m tests.npu.mindspore_training

runs itself once on each device, and compares.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

#: Of a tensor's largest element.
TOLERANCE = 1e-4
#: MindSpore computes LSTM in float16 on Ascend; the gradient of LayerNorm by type adds 1e-12 to variances, not 1e-5.
WIDER = {"operator nn.LSTM with gradients": 2e-3, "operator nn.TransformerEncoderLayer with gradients": 1e-3}
STEPS = 20
DEVICES = ("CPU", "Ascend")
_OF_ONE = "abs neg exp sin cos tanh erf sigmoid square ceil floor sign isfinite"
_OF_POSITIVE = "log log1p sqrt rsqrt reciprocal"
_OF_TWO = "add sub mul div maximum minimum greater less"
_ALONG = "sum mean prod cumsum"
_ACTIVATIONS = "ReLU GELU SiLU Tanh Sigmoid Softmax LogSoftmax LeakyReLU ELU HSwish Mish"


def _drawn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _operators() -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any] | None]]:
    """Yield names, functions of MindSpore, and substitutes where the CPU device lacks them."""
    import mindspore as ms
    from mindspore import mint, nn, ops
    from scipy import special

    functional = mint.nn.functional
    a, b, c, d = (_drawn(*shape, seed=seed) for seed, shape in enumerate(((6, 8), (6, 8), (8, 5), (2, 3, 8, 8))))
    numbers = np.array([3, 0, 7, 1, 2, 2])
    p = np.abs(a) + np.float32(0.5)
    x, other, y, image, positive = map(ms.Tensor, (a, b, c, d, p))
    labels, classes = ms.Tensor(numbers), ms.Tensor(numbers.astype(np.int32))
    shares = special.softmax(a, -1)
    scale, slope = 1.0507009873554805, 1.6732632423543772

    for name in _OF_ONE.split():
        yield name, lambda name=name: getattr(mint, name)(x), None
    for name in _OF_POSITIVE.split():
        yield name, lambda name=name: getattr(mint, name)(positive), None
    for name in _OF_TWO.split():
        yield name, lambda name=name: getattr(mint, name)(x, other), None
    yield "atan2", lambda: mint.atan2(x, other), lambda: np.arctan2(a, b)
    for name in _ALONG.split():
        yield name, lambda name=name: getattr(mint, name)(x, 1), lambda name=name: getattr(np, name)(a, 1)
    activations: dict[str, Callable[[], Any]] = {
        "gelu": lambda: a * special.ndtr(a),
        "silu": lambda: a * special.expit(a),
        "relu": lambda: np.maximum(a, 0),
        "softplus": lambda: np.logaddexp(a, 0),
        "elu": lambda: np.where(a > 0, a, np.expm1(a)),
        "leaky_relu": lambda: np.where(a > 0, a, np.float32(0.01) * a),
        "hardswish": lambda: a * np.clip(a + 3, 0, 6) / 6,
        "mish": lambda: a * np.tanh(np.logaddexp(a, 0)),
        "logsigmoid": lambda: -np.logaddexp(-a, 0),
        "selu": lambda: scale * np.where(a > 0, a, slope * np.expm1(a)),
    }
    for name, reference in activations.items():
        yield name, lambda name=name: getattr(functional, name)(x), reference
    yield "softmax", lambda: functional.softmax(x, -1), lambda: shares
    yield "log_softmax", lambda: functional.log_softmax(x, -1), lambda: np.log(shares)
    yield "matmul", lambda: mint.matmul(x, y), lambda: a @ c
    yield "ops.matmul", lambda: ops.matmul(x, y), None
    yield "bmm", lambda: mint.bmm(image[0], image[1]), lambda: d[0] @ d[1]
    yield "einsum", lambda: mint.einsum("ij,kj->ik", x, other), lambda: a @ b.T
    yield "max", lambda: mint.max(x, 1), lambda: (a.max(1), a.argmax(1))
    yield "argmax", lambda: mint.argmax(x, 1), lambda: a.argmax(1)
    yield "topk", lambda: mint.topk(x, 3), lambda: (-np.sort(-a)[:, :3], np.argsort(-a)[:, :3])
    yield "sort", lambda: mint.sort(x), lambda: (np.sort(a), np.argsort(a))
    yield "var", lambda: mint.var(x, 1), lambda: a.var(1, ddof=1)
    yield "std", lambda: mint.std(x, 1), lambda: a.std(1, ddof=1)
    yield "norm", lambda: mint.norm(x), lambda: np.linalg.norm(a)
    yield "where", lambda: mint.where(x > 0, x, other), lambda: np.where(a > 0, a, b)
    yield "clamp", lambda: mint.clamp(x, -0.5, 0.5), lambda: a.clip(-0.5, 0.5)
    yield "pow", lambda: mint.pow(positive, 1.5), lambda: p**1.5
    yield "concat", lambda: mint.concat((x, other), 1), lambda: np.concatenate((a, b), 1)
    yield "stack", lambda: mint.stack((x, other)), lambda: np.stack((a, b))
    yield "split", lambda: mint.split(x, 2, 1), lambda: tuple(np.split(a, 4, 1))
    yield "permute", lambda: mint.permute(image, (0, 2, 3, 1)).contiguous(), lambda: d.transpose(0, 2, 3, 1)
    yield "flip", lambda: mint.flip(x, (1,)), lambda: a[:, ::-1]
    yield "tile", lambda: mint.tile(x, (2, 1)), lambda: np.tile(a, (2, 1))
    yield "gather", lambda: mint.gather(x, 1, labels.reshape(6, 1)), lambda: a[range(6), numbers][:, None]
    yield "index_select", lambda: mint.index_select(x, 0, labels[3:]), lambda: a[numbers[3:]]
    yield "masked_select", lambda: mint.masked_select(x, x > 0), lambda: a[a > 0]
    yield "nonzero", lambda: mint.nonzero(x > 0), lambda: np.argwhere(a > 0)
    yield "tril", lambda: mint.tril(x), lambda: np.tril(a)
    yield "one_hot", lambda: functional.one_hot(labels, 8), lambda: np.eye(8)[numbers]
    yield "linspace", lambda: mint.linspace(0, 1, 5), lambda: np.linspace(0, 1, 5)
    yield "arange", lambda: mint.arange(0, 7, 2), lambda: np.arange(0, 7, 2)
    yield "float16", lambda: x.astype(ms.float16), lambda: a.astype(np.float16)
    yield "slices", lambda: x[1:5:2, ::3].contiguous(), lambda: a[1:5:2, ::3]
    logarithms = np.log(shares)[range(6), numbers]
    yield "cross_entropy", lambda: functional.cross_entropy(x, labels), lambda: -logarithms.mean()
    yield "ops.cross_entropy", lambda: ops.cross_entropy(x, classes), None
    yield "mse_loss", lambda: functional.mse_loss(x, other), lambda: ((a - b) ** 2).mean()
    yield "smooth_l1_loss", lambda: functional.smooth_l1_loss(x, other), None
    yield "nn.L1Loss", lambda: nn.L1Loss()(x, other), None
    yield "nn.BCEWithLogitsLoss", lambda: nn.BCEWithLogitsLoss()(x, mint.sigmoid(other)), None
    yield "pad", lambda: functional.pad(x, (1, 2)), lambda: np.pad(a, ((0, 0), (1, 2)))
    rows = ms.Tensor(np.array([[4], [0]]))
    for name, of in {
        "addcdiv": lambda: ops.addcdiv(x, other, positive, 0.5),
        "argmax": lambda: ops.argmax(x, 1),
        "cummin": lambda: ops.cummin(x, 1),
        "cumprod": lambda: ops.cumprod(x, 1),
        "diag": lambda: ops.diag(x[0]),
        "interpolate": lambda: ops.interpolate(image, size=(11, 5), mode="bilinear"),
        "L2Normalize": lambda: ops.L2Normalize()(x),
        "norm": lambda: ops.norm(x, 2, 1),
        "pad, circular": lambda: ops.pad(image, [1, 2, 0, 3], "circular"),
        "scatter_nd_add": lambda: ops.scatter_nd_add(ms.Parameter(x), rows, other[:2]),
        "sort": lambda: ops.sort(x, 1, True),
        "tensor_scatter_max": lambda: ops.tensor_scatter_max(x, rows, other[:2]),
    }.items():
        yield f"ops.{name}", of, None
    yield "mint.diag", lambda: mint.diag(x, 1), lambda: np.diag(a, 1)

    def layer(make: Callable[[], Any], *inputs: Any) -> Callable[[], Any]:
        """Return a layer's result and the gradients of its first input and its weights, which NumPy draws."""

        def results() -> Any:
            made = make()
            for place, parameter in enumerate(made.trainable_params()):
                parameter.set_data(ms.Tensor(0.3 * _drawn(*parameter.shape, seed=place + 2)))
            made.set_train()
            differentiated = 0 if inputs[0].dtype == ms.float32 else None
            weights = ms.ParameterTuple(made.trainable_params()) or None

            def loss(*given: Any) -> Any:
                found = made(*given)
                found = found[0] if isinstance(found, tuple) else found
                return (found * ms.Tensor(_drawn(*found.shape, seed=9))).sum(), found

            gradients, found = ms.grad(loss, differentiated, weights, has_aux=True)(*inputs)
            return found, gradients

        return results

    sequence, tokens = ms.Tensor(_drawn(5, 2, 8)), ms.Tensor(np.array([[1, 4, 4], [0, 9, 2]], np.int32))
    line, volume = ms.Tensor(_drawn(2, 3, 9)), ms.Tensor(_drawn(1, 3, 4, 5, 6))
    padded = {"pad_mode": "pad", "padding": 1, "has_bias": True}
    for name, make, *inputs in (
        ("Dense", lambda: nn.Dense(8, 5), x),
        ("LayerNorm", lambda: nn.LayerNorm((8,)), x),
        ("BatchNorm1d", lambda: nn.BatchNorm1d(8), x),
        ("BatchNorm2d", lambda: nn.BatchNorm2d(3), image),
        ("GroupNorm", lambda: nn.GroupNorm(3, 3), image),
        ("Conv1d", lambda: nn.Conv1d(3, 4, 3), line),
        ("Conv2d", lambda: nn.Conv2d(3, 4, 3), image),
        ("Conv2d, strided", lambda: nn.Conv2d(3, 4, 3, 2, **padded, dilation=2), image),
        ("Conv2d, depthwise", lambda: nn.Conv2d(3, 3, 3, group=3), image),
        ("Conv2dTranspose", lambda: nn.Conv2dTranspose(3, 4, 3, 2), image),
        ("Conv3d", lambda: nn.Conv3d(3, 4, 3, pad_mode="valid"), volume),
        ("MaxPool2d", lambda: nn.MaxPool2d(3, 2, "same"), image),
        ("AvgPool2d", lambda: nn.AvgPool2d(2, 2), image),
        ("AdaptiveAvgPool2d", lambda: nn.AdaptiveAvgPool2d((3, 2)), image),
        ("ReflectionPad2d", lambda: nn.ReflectionPad2d((1, 2, 0, 3)), image),
        ("ReLU6", nn.ReLU6, image),
        ("Embedding", lambda: nn.Embedding(10, 6), tokens),
        ("LSTM", lambda: nn.LSTM(8, 16), sequence),
        ("RNN", lambda: nn.RNN(8, 16), sequence),
        ("MultiheadAttention", lambda: nn.MultiheadAttention(8, 2), sequence, sequence, sequence),
        ("TransformerEncoderLayer", lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), sequence),
        *((name, getattr(nn, name), x) for name in _ACTIVATIONS.split()),
    ):
        yield f"nn.{name} with gradients", layer(make, *inputs), None
    for name, make, same, given in (
        ("Linear", lambda: mint.nn.Linear(8, 5), lambda: nn.Dense(8, 5), x),
        ("LayerNorm", lambda: mint.nn.LayerNorm(8), lambda: nn.LayerNorm((8,), epsilon=1e-5), x),
        ("Conv2d", lambda: mint.nn.Conv2d(3, 4, 3, 2, 1), lambda: nn.Conv2d(3, 4, 3, 2, **padded), image),
        ("BatchNorm2d", lambda: mint.nn.BatchNorm2d(3), lambda: nn.BatchNorm2d(3, eps=1e-5), image),
        ("MaxPool2d", lambda: mint.nn.MaxPool2d(2), lambda: nn.MaxPool2d(2, 2), image),
        ("AvgPool2d", lambda: mint.nn.AvgPool2d(2), lambda: nn.AvgPool2d(2, 2), image),
        ("GroupNorm", lambda: mint.nn.GroupNorm(3, 3), lambda: nn.GroupNorm(3, 3), image),
        ("Embedding", lambda: mint.nn.Embedding(10, 6), lambda: nn.Embedding(10, 6), tokens),
    ):
        yield f"mint.nn.{name} with gradients", layer(make, given), layer(same, given)


def _trainings() -> Iterator[tuple[str, Callable[[], Any], None]]:
    """Yield names, and functions that return the losses of training steps."""
    import mindspore as ms
    from mindspore import mint, nn, ops

    def train(network: Any, make: Callable[[Any], Any], loss_of: Any, inputs: Any, targets: Any, **options: Any) -> Any:
        for place, parameter in enumerate(network.trainable_params()):
            drawn = _drawn(*parameter.shape, seed=place) / np.sqrt(np.prod(parameter.shape[1:]))
            drawn *= len(parameter.shape) > 1
            if "gamma" not in parameter.name:
                parameter.set_data(ms.Tensor(drawn.astype(np.float32)))
        network.set_train()
        optimizer = make(network.trainable_params())
        inputs, targets = ms.Tensor(inputs), ms.Tensor(targets)

        def forward(given: Any, wanted: Any) -> Any:
            return loss_of(network(given), wanted)

        if options:
            forward = ms.jit(forward, **options)
        step = ms.value_and_grad(forward, None, optimizer.parameters)
        losses = []
        for _ in range(STEPS):
            loss, gradients = step(inputs, targets)
            optimizer(gradients)
            losses.append(float(loss.asnumpy()))
        return np.array(losses)

    def perceptron() -> Any:
        return nn.SequentialCell(nn.Dense(16, 32), nn.ReLU(), nn.Dense(32, 32), nn.GELU(), nn.Dense(32, 4))

    class Small(nn.Cell):  # type: ignore[misc]
        """A convolutional network with BatchNorm and a residual block."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
            self.second, self.other = nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)
            self.relu, self.pool, self.flatten = nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten()
            self.mean, self.last = nn.AvgPool2d(2, 2), nn.Dense(8 * 2 * 2, 4)

        def construct(self, x: Any) -> Any:
            x = self.pool(self.relu(self.norm(self.first(x))))
            x = self.relu(x + self.other(self.second(x)))
            return self.last(self.flatten(self.mean(x)))

    class Language(nn.Cell):  # type: ignore[misc]
        """Two layers of a transformer over tokens."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(20, 16)
            layers = (nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in range(2))
            self.layers, self.norm, self.last = nn.SequentialCell(*layers), nn.LayerNorm((16,)), nn.Dense(16, 20)

        def construct(self, x: Any) -> Any:
            return self.last(self.norm(self.layers(self.embedding(x)))).reshape(-1, 20)

    drawn = np.random.default_rng(5)
    rows, pictures = _drawn(64, 16), _drawn(16, 3, 8, 8)
    classes, few = (drawn.integers(0, 4, count).astype(np.int32) for count in (64, 16))
    tokens = drawn.integers(0, 20, (8, 12)).astype(np.int32)
    following = np.roll(tokens, -1, 1).reshape(-1)
    softmax = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")

    def of(make: Callable[[], Any], *given: Any, **options: Any) -> Callable[[], Any]:
        return lambda: train(make(), *given, **options)

    optimizers = {
        "SGD with momentum": lambda p: nn.SGD(p, 0.05, 0.9, weight_decay=1e-3),
        "Momentum": lambda p: nn.Momentum(p, 0.05, 0.9),
        "Adam": lambda p: nn.Adam(p, 0.01),
        "AdamWeightDecay": lambda p: nn.AdamWeightDecay(p, 0.01),
        "RMSProp": lambda p: nn.RMSProp(p, 0.003),
        "Adagrad": lambda p: nn.Adagrad(p, learning_rate=0.05),
        "Adadelta": lambda p: nn.Adadelta(p, 1.0),
        "AdaMax": lambda p: nn.AdaMax(p, 0.01),
        "Adam with AMSGrad": lambda p: nn.Adam(p, 0.01, use_amsgrad=True),
        "centred RMSProp": lambda p: nn.RMSProp(p, 0.003, centered=True),
        "FTRL": lambda p: nn.FTRL(p, learning_rate=0.05),
        "ProximalAdagrad": lambda p: nn.ProximalAdagrad(p, learning_rate=0.05),
        "mint's AdamW": lambda p: mint.optim.AdamW(p, 0.01, weight_decay=0.01),
    }
    for name, make in optimizers.items():
        yield f"MLP, {name}", of(perceptron, make, softmax, rows, classes), None
    momentum = optimizers["Momentum"]
    yield "MLP, jit", of(perceptron, optimizers["Adam"], ops.cross_entropy, rows, classes, jit_level="O0"), None
    yield "CNN with BatchNorm", of(Small, momentum, softmax, pictures, few), None
    yield "CNN with BatchNorm, jit", of(Small, momentum, ops.cross_entropy, pictures, few, jit_level="O0"), None
    decayed = lambda p: nn.AdamWeightDecay(p, 0.005)  # noqa: E731
    yield "transformer", of(Language, decayed, ops.cross_entropy, tokens, following), None


def _arrays(found: Any) -> list[Any]:
    if isinstance(found, (tuple, list)):
        return [array for each in found for array in _arrays(each)]
    return [np.asarray(found.asnumpy() if hasattr(found, "asnumpy") else found)]


def _run(device: str, folder: Path) -> None:
    """Write all results, and the errors of functions that fail."""
    import mindspore as ms

    ms.set_device(device)
    ms.set_context(mode=ms.PYNATIVE_MODE)
    errors = {}
    for kind, listed in (("operator", _operators()), ("training", _trainings())):
        for name, function, reference in listed:
            try:
                found = (reference if reference and device == "CPU" else function)()
                np.savez(folder / f"{device} {kind} {name}.npz", *_arrays(found))
            except Exception as error:  # MindSpore's own are of any class
                errors[f"{kind} {name}"] = " ".join(str(error).replace("-" * 10, "").split())[:200]
    (folder / f"{device}.json").write_text(json.dumps(errors))


def _difference(first: Path, second: Path) -> float:
    """Return the largest difference, relative to each tensor's largest element."""
    worst = 0.0
    with np.load(first) as one, np.load(second) as two:
        for name in one.files:
            expected, got = (each[name].astype(np.float64) for each in (one, two))
            if expected.shape != got.shape:
                return float("inf")
            if expected.size:
                worst = max(worst, float(np.abs(expected - got).max() / max(1e-3, np.abs(expected).max())))
    return worst


def main() -> int:
    """Compare the devices; return 1 if results that both compute differ."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for device in DEVICES:
            subprocess.run([sys.executable, "-m", __spec__.name, device, name], check=True)
        cpu, npu = (json.loads((folder / f"{device}.json").read_text()) for device in DEVICES)
        agree, differ = [], []
        for file in sorted(folder.glob("Ascend *.npz")):
            what = file.stem.removeprefix("Ascend ")
            reference = folder / f"CPU {what}.npz"
            if not reference.exists():
                print(f"{what}: CPU: {cpu[what]}")
                continue
            difference = _difference(reference, file)
            (agree if difference <= WIDER.get(what, TOLERANCE) else differ).append(what)
            if what.startswith("training"):
                with np.load(reference) as expected, np.load(file) as got:
                    (losses,), (others,) = expected.values(), got.values()
                print(
                    f"{what}: CPU {losses[0]:.6f} to {losses[-1]:.6f}, Ascend {others[0]:.6f} to {others[-1]:.6f}, "
                    f"largest relative difference {np.abs(others / losses - 1).max():.1e}"
                )
            elif difference > TOLERANCE:
                print(f"{what}: differs by {difference:.1e}")
        for what, text in npu.items():
            print(f"{what}: Ascend: {text}{' (and so the CPU)' if what in cpu else ''}")
        print(f"{len(agree)} agree, {len(differ)} differ, {len(npu)} fail on Ascend")
    return int(bool(differ or npu.keys() - cpu.keys()))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _run(sys.argv[1], Path(sys.argv[2]))
    else:
        sys.exit(main())
