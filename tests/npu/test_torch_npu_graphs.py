"""Graphs of torch_npu with what it computes at once; test_torch_npu.py runs them by ``aclnn torch-npu run``."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

if "ASCEND_HOME_PATH" not in os.environ:
    pytest.skip("needs aclnn torch-npu run", allow_module_level=True)

if os.environ.get("TASK_QUEUE_ENABLE") == "2":
    pytest.skip("torch_npu captures nothing then", allow_module_level=True)

torch: Any = pytest.importorskip("torch")
torch_npu: Any = pytest.importorskip("torch_npu")

npu = torch.npu
F = torch.nn.functional

without_queue = pytest.mark.skipif(
    os.environ.get("TASK_QUEUE_ENABLE", "0") != "0", reason="torch_npu waits for its queue with Python's lock there"
)


def equal(got: Any, wanted: Any) -> bool:
    return bool(torch.equal(got.cpu(), wanted.cpu()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_graph_replays_read_the_current_values(dtype: Any) -> None:
    x, w = (torch.randn(16, 16).to("npu", dtype) for _ in range(2))
    graph = npu.NPUGraph()
    with npu.graph(graph):
        assert npu.is_current_stream_capturing()
        y = F.gelu(x @ w).softmax(-1)
    assert not npu.is_current_stream_capturing()
    for _ in range(2):
        x.copy_(torch.randn(16, 16))
        graph.replay()
        assert equal(y, F.gelu(x @ w).softmax(-1))
    graph.reset()


def test_a_graph_captures_several_streams() -> None:
    x, side, graph = torch.ones(4, 4, device="npu"), npu.Stream(), npu.NPUGraph()
    with npu.graph(graph):
        own = npu.current_stream()
        a = x + x
        side.wait_stream(own)
        with npu.stream(side):
            b = a * x
        own.wait_stream(side)
        y = a + b
    x.fill_(3)
    graph.replay()
    npu.synchronize()
    assert (y == 24).all()


def test_a_graph_captures_training_steps() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).npu()
    other = copy.deepcopy(model)
    x, y = torch.randn(5, 8).npu(), torch.randn(5, 4).npu()
    losses: list[list[float]] = []
    for network in (model, other):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)

        def step(network: Any = network, optimizer: Any = optimizer) -> Any:
            loss = F.mse_loss(network(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            return loss

        if network is other:
            losses.append([step().item() for _ in range(6)])
            continue
        first = step().item()
        graph = npu.NPUGraph()
        with npu.graph(graph):
            loss = step()
        losses.append([first])
        for _ in range(5):
            graph.replay()
            losses[0].append(loss.item())
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0]


def test_graphed_callables_have_gradients() -> None:
    layer = torch.nn.Linear(8, 4).npu()
    plain = copy.deepcopy(layer)
    graphed = npu.make_graphed_callables(layer, (torch.randn(5, 8, device="npu", requires_grad=True),))
    gradients = []
    values = torch.randn(5, 8)
    for call in (graphed, plain):
        x = values.npu().requires_grad_()
        call(x).square().sum().backward()
        gradients.append(x.grad)
    assert equal(*gradients)
    assert equal(layer.weight.grad, plain.weight.grad)


DRAWN: dict[str, Callable[[], Any]] = {
    "uniform": lambda: torch.rand(256, device="npu"),
    "normal": lambda: torch.randn(256, device="npu"),
    "random": lambda: torch.empty(256, device="npu").random_(0, 100),
    "multinomial": lambda: torch.multinomial(torch.arange(1.0, 9.0).npu(), 100, replacement=True),
    "dropout": lambda: F.dropout(torch.ones(16, 16, device="npu"), 0.5),
}


@pytest.mark.parametrize("name", DRAWN)
def test_graphs_draw_the_random_numbers_of_eager_execution(name: str) -> None:
    npu.manual_seed(42)
    if name == "multinomial":
        weights = torch.arange(1.0, 9.0).npu()
        draw: Callable[[], Any] = lambda: torch.multinomial(weights, 100, replacement=True)  # noqa: E731
    else:
        draw = DRAWN[name]
    expected = [draw() for _ in range(2)]
    graph = npu.NPUGraph()
    with npu.graph(graph):
        drawn = draw()
    npu.manual_seed(42)
    for each in expected:
        graph.replay()
        assert equal(drawn, each)


def test_pinned_memory_used_in_a_capture_is_kept() -> None:
    target, graph = torch.zeros(64, device="npu"), npu.NPUGraph()
    with npu.graph(graph):
        pinned = torch.full((64,), 7.0).pin_memory()
        target.copy_(pinned, non_blocking=True)
    address = pinned.data_ptr()
    del pinned
    assert address not in [torch.full((64,), -1.0).pin_memory().data_ptr() for _ in range(8)]
    graph.replay()
    npu.synchronize()
    assert (target == 7).all()


@without_queue
def test_graph_tasks_are_updated() -> None:
    x, y = torch.arange(4.0).npu(), torch.empty(4).npu()
    flag, other, graph = npu.ExternalEvent(), npu.Stream(), npu.NPUGraph()
    with npu.graph(graph):
        own = npu.current_stream()
        flag.wait(own)
        flag.reset(own)
        npu.graph_task_group_begin(own)
        torch.add(x, x, alpha=2, out=y)
        tasks = npu.graph_task_group_end(own)
    for factor in (5, 7):
        with npu.stream(other):
            npu.graph_task_update_begin(other, tasks)
            torch.add(x, x, alpha=factor, out=y)
            npu.graph_task_update_end(other)
            flag.record(other)
        graph.replay()
        npu.synchronize()
        assert equal(y, x * (1 + factor))


@without_queue
def test_graph_updates_replace_attention_lengths() -> None:
    attend = torch_npu.npu_fused_infer_attention_score
    query, key, value = (torch.randn(1, 4, n, 64).half().npu() for n in (1, 128, 128))
    options = {"num_heads": 4, "input_layout": "BNSD", "scale": 0.125}
    most = torch_npu._npu_fused_infer_attention_score_get_max_workspace(
        query, key, value, actual_seq_lengths_kv=[29], **options
    )
    graph, out = npu.NPUGraph(), (torch.empty_like(query), torch.empty(1, dtype=torch.float16).npu())
    with npu.graph(graph, auto_dispatch_capture=True):
        attend.out(query, key, value, workspace=most, actual_seq_lengths_kv=[29], out=out, **options)
    for length in (100, 128):
        graph.update(cpu_update_input=[{"actual_seq_lengths_kv": [length]}])
        graph.replay()
        expected, _ = attend(query, key, value, actual_seq_lengths_kv=[length], **options)
        assert equal(out[0], expected)


@without_queue
@pytest.mark.skipif("Ascend950" in npu.get_device_name(0), reason="torch_npu rejects npu_fusion_attention_v3 there")
def test_graph_updates_replace_attention_lengths_in_training() -> None:
    attend, options = torch_npu.npu_fusion_attention_v3, {"scale": 0.125}
    tensors = [torch.randn(12, 2, 64).half().npu() for _ in range(3)]

    def lengths(first: int) -> dict[str, Any]:
        return dict.fromkeys(("actual_seq_qlen", "actual_seq_kvlen"), torch.tensor([first, 12]))

    most = torch_npu._npu_fusion_attention_v3_get_max_workspace(*tensors, 2, "TND", **options, **lengths(4))
    eager = attend(*tensors, 2, "TND", **options, **lengths(4))
    backward = torch_npu._npu_fusion_attention_grad_v3_get_max_workspace(
        *tensors, torch.ones_like(eager[0]), 2, "TND", softmax_max=eager[1], softmax_sum=eager[2], softmax_in=eager[3],
        attention_in=eager[0], scale_value=0.125, seed=eager[4], offset=eager[5], **lengths(4)
    )  # fmt: skip
    assert most.dtype == backward.dtype == torch.uint8
    graph, out = npu.NPUGraph(), [torch.empty_like(each) for each in eager]
    out[3] = torch.empty_like(eager[1])
    with npu.graph(graph, auto_dispatch_capture=True):
        attend.out(*tensors, 2, "TND", workspace=most, out=out, **options, **lengths(4))
    for length in (7, 9):
        graph.update(cpu_update_input=[lengths(length)])
        graph.replay()
        assert equal(out[0], attend(*tensors, 2, "TND", **options, **lengths(length))[0])


@without_queue
def test_synchronization_within_a_capture_is_rejected() -> None:
    x, stream, graph = torch.ones(1, device="npu"), npu.Stream(), npu.NPUGraph()
    with npu.stream(stream):
        graph.capture_begin()
        with pytest.raises(RuntimeError, match=r"107027|107030"):
            (x + 1).item()
        y = x + 2
        graph.capture_end()
    graph.replay()
    npu.synchronize()
    assert y.item() == 3


@without_queue
def test_host_functions_are_called_in_each_replay(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    x, seen, graph, stream = torch.arange(3.0).npu(), [], npu.NPUGraph(), npu.Stream()
    npu._subscribe_report(stream)
    with npu.graph(graph, stream=stream):
        npu._launch_host_func(npu.current_stream(), seen.append, "here")
        torch_npu.print_npugraph_tensor(x, tensor_name="x")
        torch.ops.npu.save_npugraph_tensor(x, save_path=str(tmp_path / "x.pt"), overwrite=True)
    assert seen == []
    for value in (1, 2):
        x.fill_(value)
        graph.replay()
        npu.synchronize()
        assert len(seen) == value
    npu._unsubscribe_report(stream)
    graph.debug_dump(str(tmp_path / "graph.json"))
    assert len(json.loads((tmp_path / "graph.json").read_text())) >= 4


def test_a_graph_replays_a_whole_training_step() -> None:
    def train(steps: int, replays: int) -> Any:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(8, 16),
            torch.nn.GELU(),
            torch.nn.LayerNorm(16),
            torch.nn.Dropout(0.5),
            torch.nn.Linear(16, 4),
        ).npu()
        x, labels = torch.randn(32, 8).npu(), torch.randint(0, 4, (32,)).npu()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2, capturable=True)
        npu.manual_seed(7)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(model(x), labels).backward()
            optimizer.step()

        side = npu.Stream()
        with npu.stream(side):
            for _ in range(steps):
                step()
        npu.current_stream().wait_stream(side)
        if replays:
            graph = npu.NPUGraph()
            with npu.graph(graph):
                step()
            for _ in range(replays):
                graph.replay()
        npu.synchronize()
        return model[-1].weight

    assert equal(train(3, 4), train(7, 0))
