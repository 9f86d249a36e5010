"""Tests for a Python that has torch_npu; test_torch_npu.py runs them by ``aclnn torch-npu run -m pytest``."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if "ASCEND_HOME_PATH" not in os.environ:
    pytest.skip("needs aclnn torch-npu run", allow_module_level=True)

torch: Any = pytest.importorskip("torch")
torch_npu: Any = pytest.importorskip("torch_npu")

import aclnn  # noqa: E402
from aclnn.core.products import current_product  # noqa: E402

F = torch.nn.functional
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
#: Units in the last place.
EPS = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
SUBNORMAL = {torch.float32: 2.0**-149, torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133}
ON_950 = "950" in os.environ.get("ACLNN_SOC_NAME", "")

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def numpy_of(tensor: Any) -> Any:
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def bits(value: Any) -> bytes:
    return bytes(np.ascontiguousarray(numpy_of(value) if isinstance(value, torch.Tensor) else value).tobytes())


def sample(dtype: Any, *shape: int, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator) * 3).to(dtype)


def gelu_by_product(x: Any) -> Any:
    """On 910B2 torch_npu sends GELU to the operator that approximates it by tanh."""
    return F.gelu(x, approximate="none" if ON_950 else "tanh")


ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any, Any], Any], Any]] = {
    "silu": (F.silu, F.silu, aclnn.silu_backward, aclnn.silu),
    "gelu": (
        F.gelu,
        gelu_by_product,
        (lambda dy, x: aclnn.gelu_backward_v2(dy, x, "none")) if ON_950 else aclnn.gelu_backward,
        (lambda x: aclnn.gelu_v2(x, 0)) if ON_950 else aclnn.gelu,
    ),
    "gelu by tanh": (
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: F.gelu(x, approximate="tanh"),
        (lambda dy, x: aclnn.gelu_backward_v2(dy, x, "tanh")) if ON_950 else aclnn.gelu_backward,
        (lambda x: aclnn.gelu_v2(x, 1)) if ON_950 else aclnn.gelu,
    ),
    "hardswish": (F.hardswish, F.hardswish, aclnn.hardswish_backward_v2, aclnn.hardswish),
    "fast_gelu": (
        lambda x: torch_npu.fast_gelu(x),
        lambda x: x * torch.sigmoid(1.702 * x),
        aclnn.fast_gelu_backward,
        aclnn.fast_gelu,
    ),
}


@every_dtype
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_have_the_cpus_values_and_gradients(name: str, dtype: Any) -> None:
    ours, theirs, gradient, forward = ACTIVATIONS[name]
    x = sample(dtype, 33, 65).clamp(-4, 4)  # in its tails PyTorch's own GELU in float64 loses digits
    on_device = x.to("npu").requires_grad_()
    y = ours(on_device)
    y.sum().backward()
    exact = x.double().requires_grad_()
    expected = theirs(exact)
    expected.sum().backward()
    for got, want in ((y, expected), (on_device.grad, exact.grad)):
        error = (got.detach().cpu().double() - want.detach()).abs()
        assert (error <= EPS[dtype] * want.detach().abs() + SUBNORMAL[dtype]).all(), error.max()
    # The same bits as by the Python functions, which is to say the C functions.
    assert bits(y) == bits(forward(numpy_of(x)))
    assert bits(on_device.grad) == bits(gradient(np.ones_like(numpy_of(x)), numpy_of(x)))


@every_dtype
@pytest.mark.parametrize("affine", [True, False], ids=["with weight", "without"])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_layer_norm_has_the_cpus_value_and_gradients(dtype: Any, affine: bool, reduce: str) -> None:
    x, weight, bias = sample(dtype, 12, 40), sample(dtype, 40, seed=1), sample(dtype, 40, seed=2)
    results = []
    for device, kind in (("npu", dtype), ("cpu", torch.float64)):
        tensors = [t.to(kind).to(device).requires_grad_() for t in (x, weight, bias)]
        y = F.layer_norm(tensors[0], (40,), *(tensors[1:] if affine else (None, None)))
        getattr(y * sample(torch.float32, 12, 40, seed=3).to(y.dtype).to(device), reduce)().backward()
        results.append([y, *(t.grad for t in tensors if t.grad is not None)])
    assert len(results[0]) == len(results[1]) == (4 if affine else 2)
    for got, want in zip(*results, strict=True):
        assert got.dtype == dtype
        torch.testing.assert_close(
            got.detach().cpu().double(), want.detach(), rtol=8 * EPS[dtype], atol=12 * EPS[dtype]
        )


def test_device_properties_are_those_of_the_product() -> None:
    assert torch.npu.is_available()
    assert torch.npu.device_count() == 1
    torch.npu.set_device(0)
    properties = torch.npu.get_device_properties(0)
    assert properties.name == torch.npu.get_device_name(0)
    assert properties.name == os.environ.get("ACLNN_SOC_NAME", "Ascend910B2")
    assert properties.total_memory > 0
    assert torch.npu.current_device() == 0


@pytest.mark.parametrize(
    "dtype",
    [*DTYPES, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool],
    ids=str,
)
def test_copies_keep_every_data_type_and_layout(dtype: Any) -> None:
    x = (torch.arange(24).reshape(2, 3, 4) - (0 if dtype in (torch.uint8, torch.bool) else 11)).to(dtype)
    y = x.to("npu")
    for view in (
        lambda t: t,
        lambda t: t.transpose(0, 2),
        lambda t: t[:, 1:],
        lambda t: t[..., ::2],
        lambda t: t[0, 0, 0],
    ):
        assert torch.equal(view(y).contiguous().cpu(), view(x).contiguous())
        assert torch.equal(view(y).cpu(), view(x))
    z = torch.zeros(4, 3, 2, dtype=dtype, device="npu")
    z.copy_(y.transpose(0, 2))
    assert torch.equal(z.cpu(), x.transpose(0, 2))
    assert torch.equal(y.clone().cpu(), x)


@pytest.mark.parametrize("target", [torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.bool])
def test_conversions_on_the_device_match_the_cpu(target: Any) -> None:
    x = torch.tensor([-2.5, -1.0, 0.0, 0.5, 3.75, 100.0])
    assert torch.equal(x.to("npu").to(target).cpu(), x.to(target))


def test_streams_and_events_order_work() -> None:
    stream, begin, end = torch.npu.Stream(), *(torch.npu.Event(enable_timing=True) for _ in range(2))
    x = sample(torch.float32, 1 << 16).to("npu")
    with torch.npu.stream(stream):
        begin.record()
        y = F.silu(x)
        end.record()
    torch.npu.current_stream().wait_event(end)
    z = F.silu(y)
    torch.npu.synchronize()
    assert end.query()
    assert begin.elapsed_time(end) >= 0
    expected = F.silu(F.silu(x.cpu()))
    torch.testing.assert_close(z.cpu(), expected, rtol=1e-6, atol=1e-7)


def test_pinned_memory_is_copied_with_non_blocking() -> None:
    pinned = sample(torch.float32, 1000).pin_memory()
    assert pinned.is_pinned()
    device = pinned.to("npu", non_blocking=True)
    back = torch.empty(1000).pin_memory()
    back.copy_(device, non_blocking=True)
    torch.npu.synchronize()
    assert torch.equal(back, pinned)


def test_threads_compute_at_once() -> None:
    inputs = [sample(torch.float32, 500, seed=seed) for seed in range(4)]
    results: dict[int, Any] = {}

    def work(at: int) -> None:
        torch.npu.set_device(0)
        x = inputs[at].to("npu").requires_grad_()
        for _ in range(20):
            x.grad = None
            F.silu(x).sum().backward()
        results[at] = x.grad.cpu()

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for at, x in enumerate(inputs):
        assert bits(results[at]) == bits(aclnn.silu_backward(np.ones(500, np.float32), x.numpy()))


class _Numbers(torch.utils.data.Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return torch.full((8,), float(index))


def test_data_loader_workers_run_beside_the_device() -> None:
    F.silu(torch.ones(4, device="npu"))  # before the workers are forked
    loader = torch.utils.data.DataLoader(_Numbers(), batch_size=16, num_workers=2)
    total = sum(F.hardswish(batch.to("npu")).sum().item() for batch in loader)
    assert total == pytest.approx(sum(F.hardswish(torch.full((8,), float(i))).sum().item() for i in range(64)))


def test_autocast_selects_data_types() -> None:
    x = sample(torch.float32, 4, 8).to("npu").requires_grad_()
    with torch.autocast("npu", torch.bfloat16):
        y = F.layer_norm(F.silu(x), (8,))
    y.float().sum().backward()
    assert torch.isfinite(x.grad.cpu()).all()


def test_tensors_are_saved_and_loaded() -> None:
    x = sample(torch.bfloat16, 5, 5).to("npu")
    file = io.BytesIO()
    torch.save({"x": x}, file)
    file.seek(0)
    assert torch.equal(torch.load(file, map_location="cpu")["x"], x.cpu())
    file.seek(0)
    again = torch.load(file, map_location="npu:0")["x"]
    assert again.device.type == "npu"
    assert torch.equal(again.cpu(), x.cpu())


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1.0, -2.5, 1e-9, 3e8]),
        torch.tensor([[1.0, float("nan")], [float("inf"), 2.0]]),
        torch.arange(6).reshape(2, 3),
        torch.tensor([True, False]),
        torch.tensor([0.5, 2.0], dtype=torch.bfloat16),
        torch.tensor([0.5, 2.0], dtype=torch.float16),
        torch.tensor(2.5),
        torch.linspace(-1, 1, 2000),
        torch.zeros(0, 3),
    ],
    ids=lambda t: f"{t.dtype}-{list(t.shape)}",
)
def test_tensors_print_as_on_the_cpu(tensor: Any) -> None:
    shown = repr(tensor.to("npu"))
    assert "device='npu:0'" in shown
    assert "".join(shown.split()).replace(",device='npu:0'", "") == "".join(repr(tensor).split())


def test_plain_operators_match_the_cpu() -> None:
    x, y = sample(torch.float32, 3, 4), sample(torch.float32, 4, seed=1)
    a, b = x.to("npu"), y.to("npu")
    for function in (
        lambda x, y: x + y,
        lambda x, y: x - 2 * y,
        lambda x, y: x * y,
        lambda x, y: x / y,
        lambda x, y: x + 1.5,
        lambda x, y: x * 3,
        lambda x, y: x / 2,
        lambda x, y: x.sum(0),
        lambda x, y: x.mean(1, keepdim=True),
        lambda x, y: x.abs().max(),
        lambda x, y: x.min(),
        lambda x, y: x.ceil(),
        lambda x, y: torch.masked_select(x, x > 0),
        lambda x, y: torch.cat((x, 2 * x), 1),
        lambda x, y: (x != y) & (x < 1),
        lambda x, y: torch.zeros_like(x).fill_(2.5).add_(x).mul_(y).div_(3.0),
        lambda x, y: torch.add(x, y, alpha=0.5).sub_(y, alpha=2),
        lambda x, y: torch.ones_like(x) * torch.isfinite(x),
    ):
        torch.testing.assert_close(function(a, b).cpu(), function(x, y), rtol=1e-6, atol=1e-6)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "one_hot": lambda x: F.one_hot(x.argmax(1), 7),
    "angles": lambda x: torch.atan2(x.tan().asinh(), x.cosh()).add(torch.special.erfinv(x.sin() / 2)),
    "ranks": lambda x: x.median(1).values + x.kthvalue(2, 1).values + x.cummax(1).values[:, -1] + x.nansum(1),
    "order": lambda x: torch.searchsorted(x[0].sort().values, x[1]),
    "unique": lambda x: torch.unique(x.round(), return_counts=True)[1],
    "places": lambda x: x.index_fill(1, x.argmax(0)[:2], 2.0).take(x.argmax(0)),
    "masks": lambda x: x.masked_scatter(x > 0, x.flip(0)).nan_to_num(),
    "bags": lambda x: F.embedding_bag(x.argmax(0)[None].repeat(2, 1), x, mode="mean"),
    "windows": lambda x: F.fold(F.unfold(x[None, None], 2), (4, 6), 2),
    "nearest": lambda x: F.interpolate(x[None, None], scale_factor=1.7),
    "linear": lambda x: F.interpolate(x[None, None], (7, 5), mode="bilinear", align_corners=False),
    "maxima": lambda x: F.adaptive_max_pool2d(x[None], (3, 2)),
    "volumes": lambda x: F.avg_pool3d(F.max_pool3d(x.reshape(1, 2, 2, 6), 2, 1), 1),
    "histogram": lambda x: torch.histc(x, 5, -2, 2),
    "sums at places": lambda x: x.index_put((x.argmax(0) % 4, x.argmin(0)), x[0], accumulate=True).index_add(
        1, x.argmax(1), x[:, :4]
    ),
    "no dimension": lambda x: x.sum().flip(0) + x[:, :0].sum(),
    "spectra of parts": lambda x: torch.stft(
        x.reshape(2, 12), 8, 3, window=x.detach()[0].repeat(2)[:8], return_complex=True
    ).abs(),
}
if ON_950:  # elsewhere torch_npu calls some of them by their operators' names
    FUNCTIONS |= {
        "grids": lambda x: F.grid_sample(x[None, None], x.tanh().reshape(1, 3, 4, 2), align_corners=False),
        "volumes of grids": lambda x: F.grid_sample(
            x.reshape(1, 1, 2, 3, 4), x.tanh().reshape(1, 2, 2, 2, 3), "nearest", "border", align_corners=True
        ),
        "maxima put back": lambda x: F.max_unpool2d(*F.max_pool2d(x[None], 2, return_indices=True), 2),
        "sequences": lambda x: F.ctc_loss(
            x.reshape(6, 1, 4).log_softmax(2), torch.tensor([[1, 2]], device=x.device), (6,), (2,)
        ),
        "distances": lambda x: torch.cdist(x, x.cos(), 3.0).sum() + F.pdist(x).sum(),
        "norms": lambda x: torch.renorm(x, 2, 0, 1.0).renorm(1, 1, 0.5),
        "targets": lambda x: F.kl_div(x, x.softmax(1), reduction="batchmean"),
        "margins": lambda x: F.multilabel_margin_loss(x, x.argmax(1, keepdim=True).repeat(1, 6)),
        "slopes": lambda x: F.rrelu(x, 0.25, 0.25, training=True) + F.rrelu(x),
        "groups": lambda x: torch.channel_shuffle(x[None, :, :, None], 2),
    }
else:
    FUNCTIONS["slices"] = lambda x: x.unfold(1, 3, 2)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_and_their_gradients_match_the_cpu(name: str) -> None:
    results = []
    for device in ("npu", "cpu"):
        x = sample(torch.float32, 4, 6).to(device).requires_grad_()
        y = FUNCTIONS[name](x)
        if y.is_floating_point() and y.requires_grad:
            (y * y).sum().backward()
        results.append([each.detach().cpu() for each in (y, x.grad) if each is not None])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_profilers_record_the_host(tmp_path: Path) -> None:
    """The profilers load libraries that must exist."""
    x = sample(torch.float32, 8, 8).npu()
    with torch.profiler.profile() as profile:
        x @ x
    assert any(event.key == "aclnnMatmul" for event in profile.key_averages())
    handler = torch_npu.profiler.tensorboard_trace_handler(str(tmp_path))
    with torch_npu.profiler.profile(on_trace_ready=handler, profile_memory=True) as profile:
        x @ x
        profile.step()
    (folder,) = tmp_path.glob("*/ASCEND_PROFILER_OUTPUT")
    assert (folder / "memory_record.csv").is_file()
    names = {event["name"] for event in json.loads((folder / "trace_view.json").read_text())}
    assert {"aten::matmul", "aclnnMatmul"} & names
    place = torch.npu.mstx.range_start("a part")
    torch.npu.mstx.mark("a point")
    torch.npu.mstx.range_end(place)


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=["one", "four"])
@pytest.mark.parametrize("network", [torch.nn.LSTM, torch.nn.GRU], ids=["LSTM", "GRU"])
def test_recurrent_layers_and_their_gradients_match_the_cpu(network: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    weights, results = network(5, 4, batch_first=True, **options).state_dict(), []
    for device in ("npu", "cpu"):
        layer = network(5, 4, batch_first=True, **options)
        layer.load_state_dict(weights)
        layer = layer.to(device)
        x = sample(torch.float32, 3, 6, 5).to(device).requires_grad_()
        y, _ = layer(x)
        (y * y).sum().backward()
        results.append([each.detach().cpu() for each in (y, x.grad, *(p.grad for p in layer.parameters()))])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [{}, {"bidirectional": True}, {"num_layers": 2}, {"num_layers": 2, "bidirectional": True}],
    ids=["one", "two", "layers", "by_type"],
)
def test_packed_sequences_match_the_cpu(options: dict[str, Any]) -> None:
    """Packing is torch_npu's own, whose gradient loses part of the input's."""
    if ON_950 and options:
        pytest.skip("torch_npu calls it for one layer in one direction")
    torch.manual_seed(0)
    weights, results = torch.nn.LSTM(5, 4, **options).state_dict(), []
    for device in ("npu", "cpu"):
        layer = torch.nn.LSTM(5, 4, **options)
        layer.load_state_dict(weights)
        packed = torch.nn.utils.rnn.pack_padded_sequence(sample(torch.float32, 6, 3, 5).to(device), (6, 5, 3))
        found, last = layer.to(device)(packed)
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(found)
        if not ON_950:
            (y * y).sum().backward()
        results.append([each.detach().cpu() for each in (y, *last)])
        results[-1] += [p.grad.cpu() for p in layer.parameters() if p.grad is not None]
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(ON_950, reason="torch_npu calls these by their types on Atlas A2 alone")
class TestByType:
    """Functions that torch_npu calls by the operator's type."""

    def test_lstm_cell_matches_the_cpu(self) -> None:
        torch.manual_seed(0)
        cell, x, h, c = torch.nn.LSTMCell(5, 4), *(sample(torch.float32, 3, n, seed=n) for n in (5, 4, 6))
        results = []
        for device in ("cpu", "npu"):
            there = torch.nn.LSTMCell(5, 4).to(device)
            there.load_state_dict(cell.state_dict())
            found = there(x.to(device), (h.to(device), c[:, :4].to(device)))
            sum((each * each).sum() for each in found).backward()
            results.append([each.detach().cpu() for each in (*found, *(p.grad for p in there.parameters()))])
        for expected, got in zip(*results, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("number", [3, 29], ids=["NC1HWC0", "FRACTAL_NZ"])
    def test_tensors_in_private_formats_are_accepted(self, number: int) -> None:
        """Calls accept tensors in private formats."""
        x, y = sample(torch.float32, 2, 16, 8, 8), sample(torch.float32, 2, 16, 8, 8, seed=1)

        def found(x: Any, y: Any) -> list[Any]:
            dropped = torch.nn.functional.dropout(torch.ones_like(x), 0.25)
            means = [each.mean((2, 3)) for each in (x, (x - 0.5).clamp(-0.1, 0.1))]
            results = [x > y, x * y / 2, (x * x + 1).log2(), torch.where(x > y, x, y), torch.cat([x, y], 1), *means]
            return [*results, x.masked_fill(x > 0.5, 1.0), x @ y.transpose(2, 3), dropped.amax()]

        torch.npu.config.allow_internal_format = True
        try:
            there = [torch_npu.npu_format_cast(each.npu(), number) for each in (x, y)]
            assert torch_npu.get_npu_format(there[0]) == number
            got = [each.cpu() for each in found(*there)]
        finally:
            torch.npu.config.allow_internal_format = False  # as it is at first
        for each, expected in zip(got, found(x, y), strict=True):
            torch.testing.assert_close(each, expected, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("name", ["silu", "mish"])
    @every_dtype
    def test_npu_activations_and_their_gradients_have_aclnns_bits(self, name: str, dtype: Any) -> None:
        x, dy = sample(dtype, 4, 33), sample(dtype, 4, 33, seed=1)
        there = x.npu().requires_grad_()
        y = getattr(torch_npu, f"npu_{name}")(there)
        y.backward(dy.npu())
        assert bits(y) == bits(getattr(aclnn, name)(numpy_of(x)))
        assert bits(there.grad) == bits(getattr(aclnn, f"{name}_backward")(numpy_of(dy), numpy_of(x)))

    @pytest.mark.parametrize(
        "function",
        [
            lambda x: torch.rsub(x, x * 2),
            lambda x: torch.renorm(x, 1.5, 0, 2.0),
            lambda x: torch.cdist(x, x + 1),
            lambda x: torch.logspace(0, 3, 7, device=x.device),
            lambda x: torch_npu.npu_transpose(x, (1, 0)) if x.is_npu else x.T,
            lambda x: torch_npu.npu_slice(x, (1, 0), (2, 3)) if x.is_npu else x[1:3, :3],
            lambda x: torch_npu.npu_max(x, 1)[0] if x.is_npu else x.max(1)[0],
            lambda x: F.max_unpool3d(x[None, None], torch.arange(x.numel(), device=x.device).view(1, 1, *x.shape), 1),
        ],
    )
    def test_functions_without_gradients_match_the_cpu(self, function: Callable[[Any], Any]) -> None:
        x = sample(torch.float32, 4, 6)
        torch.testing.assert_close(function(x.npu()).cpu(), function(x))


def _causal(x: Any, value: float = 1) -> Any:
    return torch.full((x.shape[1], x.shape[1]), value, device=x.device).triu(1)


def _padded(x: Any) -> Any:
    """The causal mask of sequences whose first two tokens are padding, which attend to nothing."""
    return (_causal(x) == 0) & (torch.arange(x.shape[1], device=x.device) >= 2)


ATTENTIONS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda x: F.scaled_dot_product_attention(*_heads(x)),
    "causal": lambda x: F.scaled_dot_product_attention(*_heads(x), is_causal=True),
    "masked": lambda x: F.scaled_dot_product_attention(*_heads(x), attn_mask=_causal(x) == 0),
    "biased": lambda x: F.scaled_dot_product_attention(*_heads(x), attn_mask=_causal(x, -2.5)),
    "queries without keys": lambda x: F.scaled_dot_product_attention(*_heads(x), attn_mask=_padded(x)),
    "queries whose keys are infinitely far": lambda x: F.scaled_dot_product_attention(
        *_heads(x), attn_mask=torch.zeros_like(_padded(x), dtype=x.dtype).masked_fill(~_padded(x), -torch.inf)
    ),
    "groups": lambda x: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None].sin(), scale=0.3),
}


def _heads(x: Any) -> tuple[Any, Any, Any]:
    split = x.unflatten(-1, (2, 4)).transpose(1, 2)
    return split, split.cos(), split.sin()


@pytest.mark.parametrize("name", ATTENTIONS)
def test_fused_attention_and_its_gradients_match_the_cpu(name: str) -> None:
    results = []
    for device in ("npu", "cpu"):
        x = sample(torch.float32, 3, 6, 8).to(device).requires_grad_()
        y = ATTENTIONS[name](x)
        (y * y).sum().backward()
        results.append([y.detach().cpu(), x.grad.cpu()])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer", ["MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_transformer_layers_and_their_gradients_match_the_cpu(layer: str) -> None:
    """nn.MultiheadAttention without returned weights, and layers around it, compute."""
    torch.manual_seed(0)
    sizes = {"dropout": 0.0, "batch_first": True} | ({} if "Multihead" in layer else {"dim_feedforward": 16})
    weights, results = getattr(torch.nn, layer)(8, 2, **sizes).state_dict(), []
    for device in ("npu", "cpu"):
        made = getattr(torch.nn, layer)(8, 2, **sizes)
        made.load_state_dict(weights)
        made, x = made.to(device), (sample(torch.float32, 3, 6, 8) / 3).to(device).requires_grad_()
        if layer == "MultiheadAttention":
            y, _ = made(x, x, x, need_weights=False, attn_mask=_causal(x) != 0)
        else:
            y = made(x, x) if layer == "TransformerDecoderLayer" else made(x, src_mask=_causal(x) != 0)
        (y * y).sum().backward()
        results.append([each.detach().cpu() for each in (y, x.grad, *(p.grad for p in made.parameters()))])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def _of_sequences(ends: list[int], *tensors: Any) -> Any:
    """PyTorch's causal attention of each sequence, scaled by a half."""
    parts = []
    for begin, end in pairwise((0, *ends)):
        q, k, v = (each[begin:end].transpose(0, 1)[None] for each in tensors)
        parts.append(F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.5)[0].transpose(0, 1))
    return torch.cat(parts)


def _packed(ends: list[int]) -> dict[str, Any]:
    mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    return {"actual_seq_qlen": ends, "actual_seq_kvlen": ends, "atten_mask": mask.npu(), "sparse_mode": 3, "scale": 0.5}


@pytest.mark.parametrize("layout", ["", "TND"])
def test_fused_attention_takes_packed_sequences(layout: str) -> None:
    ends, x = [2, 6], sample(torch.float32, 6, 2, 4)
    given, leaves = ([each.to(device).requires_grad_() for each in (x, x.cos(), x.sin())] for device in ("npu", "cpu"))
    got = torch_npu.npu_fusion_attention(*given, 2, "TND", softmax_layout=layout, **_packed(ends))[0]
    expected = _of_sequences(ends, *leaves)
    got.backward(x.npu())
    expected.backward(x)
    for found, exact in zip(
        (got, *(each.grad for each in given)), (expected, *(each.grad for each in leaves)), strict=True
    ):
        torch.testing.assert_close(found.detach().cpu(), exact.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(ON_950, reason="rotary parts are not computed in aclnnFlashAttentionScoreV4, which is called there")
def test_fused_attention_takes_rotary_parts() -> None:
    ends, x = [2, 6], sample(torch.bfloat16, 6, 2, 24)
    given = [each.npu().requires_grad_() for each in (x[..., :16], x.cos()[..., :16], x.sin()[..., :16])]
    ropes = [each.npu().requires_grad_() for each in (x[..., 16:], x.cos()[..., 16:])]
    beside = dict(zip(("query_rope", "key_rope"), ropes, strict=True))
    got = torch_npu.npu_fusion_attention_v2(*given, 2, "TND", **beside, **_packed(ends))[0]
    leaves = [each.double().requires_grad_() for each in (x, x.cos(), x.sin()[..., :16])]
    expected = _of_sequences(ends, *leaves)
    gradient = x[..., :16].cos()
    got.backward(gradient.npu())
    expected.backward(gradient.double())
    found = [torch.cat((one.grad, rope.grad), -1) for one, rope in zip(given, ropes, strict=False)]
    for actual, exact in zip((got, *found, given[2].grad), (expected, *(each.grad for each in leaves)), strict=True):
        torch.testing.assert_close(actual.detach().cpu().double(), exact.detach(), rtol=2e-2, atol=2e-2)


def test_attention_dropout_is_repeatable_and_has_gradients() -> None:
    x, results = sample(torch.float32, 2, 2, 16, 8).npu(), []
    for _ in range(2):
        torch.manual_seed(3)
        v = x.sin().detach().requires_grad_()
        y = F.scaled_dot_product_attention(x, x, v, dropout_p=0.5)
        y.sum().backward()
        # Attention is linear in v.
        torch.testing.assert_close((v.grad * v).sum(), y.sum(), rtol=1e-4, atol=1e-4)
        results.append(y.detach().cpu())
    assert bits(results[0]) == bits(results[1])
    assert not torch.allclose(results[0], F.scaled_dot_product_attention(x, x, x.sin()).cpu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_indices_that_select_nothing(dtype: Any) -> None:
    """Empty indices select nothing, and not everything."""
    x = torch.arange(12).reshape(3, 4).to(dtype)
    for device in ("cpu", "npu"):
        given = x.to(device)
        none, one = torch.zeros(0, dtype=torch.int64, device=device), torch.tensor([1], device=device)
        masked = torch.zeros(3, dtype=torch.bool, device=device)
        assert given[given > 100].shape == given[:0].reshape(-1).shape == (0,)
        assert (given[none].shape, given[masked].shape, given[:, none].shape) == ((0, 4), (0, 4), (3, 0))
        assert (given[none, none].shape, given[none, one].shape) == ((0,), (0,))
        for index in (none, masked, (slice(None), none), (none, none)):
            given[index] = 5
        if dtype != torch.int64:  # of which an index that selects nothing is taken for one that is not there
            given[none, one] = 5
        given.index_put_((none,), torch.ones(4, dtype=dtype, device=device), accumulate=True)
        assert bits(given) == bits(x), device


def test_repeated_calls_use_their_own_scalars() -> None:
    x = sample(torch.float32, 5)
    on_npu = x.npu()
    for value in (0.5, -2.0, 3.0, 0.5):
        sums = torch.addcmul(on_npu, on_npu, on_npu, value=value)
        torch.testing.assert_close(sums.cpu(), torch.addcmul(x, x, x, value=value))
        scaled = torch._foreach_div([on_npu, on_npu], [value, value + 1])
        assert [bits(each) for each in scaled] == [bits(x / value), bits(x / (value + 1))]


def rounded(numbers: Any) -> Any:
    return numbers.round().clamp(-128, 127)


def by_rows(numbers: Any) -> tuple[Any, Any]:
    scales = (numbers.abs().amax(-1) / 127).float()
    return rounded(numbers / scales.double()[:, None]), scales


def same(results: Any, expected: Any) -> None:
    """Compare results; integers may differ by 1 if the unrounded number is near the middle of two."""
    for got, wanted in zip(results, expected, strict=True):
        if got.dtype == torch.int8:
            assert (got.cpu().int() - wanted.int()).abs().max() <= 1
            assert (got.cpu() != wanted.to(torch.int8)).double().mean() < 0.01
        else:
            torch.testing.assert_close(got.cpu().double(), wanted.double(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_quantize_and_dequantize_match_the_definition(dtype: Any) -> None:
    x, factors = sample(dtype, 4, 64), sample(dtype, 64, seed=1).abs() + 1
    numbers = x.double()
    same(torch_npu.npu_dynamic_quant(x.npu()), by_rows(numbers))
    same(torch_npu.npu_dynamic_quant(x.npu(), smooth_scales=factors.npu()), by_rows(numbers * factors.double()))
    ends = torch.tensor([1, 4], dtype=torch.int32)
    two = torch.stack([factors, factors * 2])
    grouped = torch_npu.npu_dynamic_quant(x.npu(), smooth_scales=two.npu(), group_index=ends.npu())
    same(grouped, by_rows(numbers * two[[0, 1, 1, 1]].double()))
    quantised = torch_npu.npu_quantize(x.npu(), factors.npu(), factors.npu(), torch.qint8, -1, False)
    same([quantised], [rounded(numbers * factors.double() + factors.double())])
    scale, zero = torch.full((64,), 0.5), torch.full((64,), 3, dtype=torch.int32)
    quantised = torch_npu.npu_quantize(x.npu(), scale.npu(), zero.npu(), torch.qint8, -1, True)
    same([quantised], [rounded(numbers / 0.5 + 3)])
    integers = torch.arange(-128, 128, dtype=torch.int8).reshape(4, 64)
    scale = scale.bfloat16() if dtype == torch.bfloat16 else scale
    back = torch_npu.npu_anti_quant(integers.npu(), scale.npu(), dst_dtype=dtype)
    assert bits(back) == bits((integers.double() / 2).to(dtype))


def test_quantized_matmuls_match_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randint(-128, 128, size, generator=generator, dtype=torch.int8) for size in ((4, 64), (64, 32)))
    columns, rows, bias = sample(torch.float32, 32).abs() / 1e3, sample(torch.float32, 4).abs(), torch.arange(32).int()
    exact = x.double() @ weight.double()

    def product(*operands: Any, **options: Any) -> Any:
        on_npu = {key: value.npu() if isinstance(value, torch.Tensor) else value for key, value in options.items()}
        return torch_npu.npu_quant_matmul(x.npu(), *(each.npu() for each in operands), **on_npu)

    assert bits(product(weight, columns, output_dtype=torch.int32)) == bits(exact.int())
    scaled = exact * columns.double()
    transposed = weight.t().contiguous().npu().t()
    for dtype in DTYPES[1:]:
        by_token = product(weight, columns, pertoken_scale=rows, output_dtype=dtype)
        same([by_token], [scaled * rows.double()[:, None]])
        turned = torch_npu.npu_quant_matmul(
            x.npu(), transposed, columns.npu(), pertoken_scale=rows.npu(), output_dtype=dtype
        )
        assert bits(turned) == bits(by_token)
    same([product(weight, columns, bias=bias, output_dtype=torch.float16)], [(exact + bias) * columns.double()])
    of_device = torch_npu.npu_trans_quant_param(columns.npu()).cpu()
    rounded_off = columns.view(torch.int32) & ~0x1FFF  # to 11 bits, as the device multiplies
    assert bits(of_device.int()) == bits(rounded_off)
    expected = rounded(exact * rounded_off.view(torch.float32).double())
    same([product(weight, of_device, output_dtype=torch.int8)], [expected])


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_norms_quantize_their_results(dtype: Any) -> None:
    x1, x2, gamma = sample(dtype, 4, 64), sample(dtype, 4, 64, seed=1), sample(dtype, 64, seed=2)
    total = x1.double() + x2.double()

    def norm(x: Any) -> Any:
        return x / (x * x).mean(-1, keepdim=True).add(1e-6).sqrt() * gamma.double()

    narrow = torch.bfloat16 if dtype == torch.bfloat16 else None
    scales, zeros = torch.full((64,), 0.25, dtype=narrow or torch.float32), torch.ones(64, dtype=narrow or torch.int32)
    y, _, summed = torch_npu.npu_add_rms_norm_quant(*(each.npu() for each in (x1, x2, gamma, scales, zeros)))
    same([y, summed], [rounded(norm(total) / 0.25 + 1), total])
    offset = torch.ones(1, dtype=torch.int8)
    y = torch_npu.npu_rms_norm_quant(*(each.npu() for each in (x1, gamma, gamma, scales[:1].to(dtype), offset)))
    same([y], [rounded((norm(x1.double()) + gamma.double()) / 0.25 + 1)])
    y, _, summed, found, _ = torch_npu.npu_add_rms_norm_dynamic_quant(x1.npu(), x2.npu(), gamma.npu())
    integers, expected = by_rows(norm(total))
    same([y, summed, found], [integers, total, expected])


def test_swiglu_quantizes_its_result() -> None:
    x, factors = sample(torch.float16, 4, 128), sample(torch.float32, 1, 64, seed=1).abs()
    first, second = x.double().chunk(2, -1)
    y = F.silu(first) * second * factors.double()
    got, found = torch_npu.npu_swiglu_quant(x.npu(), smooth_scales=factors.npu(), activate_left=True, quant_mode=1)
    integers, scales = by_rows(y)
    same([got, found], [integers, 1 / scales])
    numbers, weight, rows = (sample(torch.float32, 4, 128) * 100).int(), factors[0].repeat(2) / 50, torch.ones(4, 1)
    first, second = (numbers.double() * weight.double()).chunk(2, -1)
    counts = torch.tensor([4])
    got = torch_npu.npu_dequant_swiglu_quant(
        numbers.npu(),
        weight_scale=weight.reshape(1, -1).npu(),
        activation_scale=(rows if not ON_950 else rows[:, 0]).npu(),
        quant_scale=factors.npu(),
        group_index=counts.npu(),
        activate_left=True,
        quant_mode=1,
    )
    same(got, by_rows(F.silu(first) * second * factors.double()))


def test_a_leaf_that_is_used_twice_adds_its_gradients() -> None:
    x = sample(torch.float32, 50)
    grads = []
    for device in ("npu", "cpu"):
        leaf = x.to(device).requires_grad_()
        (F.silu(leaf).mean() + F.hardswish(leaf).sum()).backward()
        grads.append(leaf.grad.cpu())
    torch.testing.assert_close(*grads, rtol=1e-6, atol=1e-6)


def _wrong_context() -> None:
    torch.npu.set_device(5)


ERRORS: dict[str, tuple[Callable[[], Any], str]] = {
    "integers": (lambda: F.silu(torch.ones(3, dtype=torch.int32, device="npu")), "self: expected data type"),
    "double": (lambda: F.silu(torch.ones(3, dtype=torch.float64, device="npu")), "ACL_DOUBLE"),
    "nine dimensions": (lambda: F.gelu(torch.ones((1,) * 9, device="npu")), "at most 8"),
    "shapes that do not broadcast": (
        lambda: torch.ones(3, device="npu") + torch.ones(4, device="npu"),
        "must match|broadcast",
    ),
    "no such operator": (lambda: torch.npu._sleep(10), "aclnnSleep"),
    "no such device": (_wrong_context, "device|Device|invalid"),
    "two devices": (lambda: torch.ones(3, device="npu") + torch.ones(3), "device"),
    "too much memory": (lambda: torch.empty(1 << 50, device="npu"), "memory"),
    "integer layer_norm": (
        lambda: F.layer_norm(torch.ones(2, 3, dtype=torch.int32, device="npu"), (3,)),
        "data type|dtype|Expected|161002",
    ),
    "hardswish of double": (
        lambda: F.hardswish(torch.ones(3, dtype=torch.float64, device="npu")),
        "ACL_DOUBLE",
    ),
}


def _finish(function: Callable[[], Any]) -> None:
    function()
    torch.npu.synchronize()  # with a task queue the error comes here


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_python_exceptions_with_reasons(name: str) -> None:
    queue = os.environ.get("TASK_QUEUE_ENABLE", "0")
    by_name = name == "no such operator" and not ON_950  # which the queue's thread finds out
    if queue == "2" or (queue == "1" and by_name):
        pytest.skip("torch_npu runs nothing after a failed launch")
    function, text = ERRORS[name]
    with pytest.raises((RuntimeError, AssertionError, ValueError), match=text):
        _finish(function)
    assert F.silu(torch.ones(3, device="npu")).cpu()[0] == pytest.approx(0.7310586)


def test_the_product_is_the_one_asked_for() -> None:
    assert current_product().title.startswith("Ascend 950" if ON_950 else "Atlas A2")
