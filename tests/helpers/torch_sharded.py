"""Program of each process in torch/test_sharding: sharded against whole tensors, two parallel trainings against one."""

from __future__ import annotations

import copy
import itertools
import os
import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import aclnn.torch

A = torch.ops.aclnn


def seeded(*shape: int, seed: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def whole(value: Any) -> Any:
    return value.full_tensor() if isinstance(value, DTensor) else value


def check_elementwise(mesh: Any) -> None:
    dy, x = seeded(8, 4, 12, seed=1), seeded(8, 4, 12, seed=2)
    for placement in (Shard(0), Shard(1), Shard(2), Replicate()):
        parts = [distribute_tensor(tensor, mesh, [placement]) for tensor in (dy, x)]
        for name in ("silu_backward", "fast_gelu_backward", "hardswish_backward", "gelu_backward_v2"):
            got = getattr(A, name)(*parts)
            assert got.placements == (placement,), (name, got.placements)
            assert torch.equal(whole(got), getattr(A, name)(dy, x)), name
        for name in ("silu", "fast_gelu", "hardswish", "gelu", "gelu_v2"):
            got = getattr(A, name)(parts[1])
            assert got.placements == (placement,), (name, got.placements)
            assert torch.equal(whole(got), getattr(A, name)(x)), name
    narrow = x[:, :1]
    parts = [distribute_tensor(tensor, mesh, [Shard(0)]) for tensor in (dy, narrow)]
    assert torch.equal(whole(A.gelu_backward_v2(*parts, "tanh")), A.gelu_backward_v2(dy, narrow, "tanh"))


def check_halves(mesh: Any) -> None:
    x, dy = seeded(8, 4, 12, seed=1), seeded(8, 4, 6, seed=2)
    for dim in (-1, 2):
        for placement in (Shard(0), Shard(1), Shard(2), Replicate()):
            x_, dy_ = (distribute_tensor(tensor, mesh, [placement]) for tensor in (x, dy))
            assert torch.equal(whole(A.swi_glu(x_, dim)), A.swi_glu(x, dim))
            assert torch.equal(whole(A.swi_glu_grad(dy_, x_, dim)), A.swi_glu_grad(dy, x, dim))
    # Another dimension over the same tensor must not reuse the rule made for the first.
    assert torch.equal(whole(A.swi_glu(distribute_tensor(x, mesh, [Shard(0)]), 0)), A.swi_glu(x, 0))


def check_single_extents(meshes: list[Any]) -> None:
    """Check that a replicated dimension of extent 1 is not declared sharded, or a sum would count it per process."""
    for mesh, shape in itertools.product(meshes, [(1,), (1, 8), (1, 4, 8), (4, 1, 8)]):
        dy, x, choices = seeded(*shape, seed=1), seeded(*shape, seed=2), (Replicate(), *map(Shard, range(len(shape))))
        for placements in itertools.product(choices, repeat=mesh.ndim):
            dy_, x_ = (distribute_tensor(tensor, mesh, placements) for tensor in (dy, x))
            for name in ("silu", "gelu_v2", "silu_backward", "gelu_backward_v2"):
                given, whole_ = ((dy_, x_), (dy, x)) if "backward" in name else ((x_,), (x,))
                got = getattr(A, name)(*given)
                if set(placements) == {Replicate()}:
                    assert got.placements == placements, (name, shape, got.placements)
                torch.testing.assert_close(whole(got.sum()), getattr(A, name)(*whole_).sum())


def check_second_derivatives(mesh: Any) -> None:
    """Check second derivatives; PyTorch's hardswish_backward, which Hardswish's once used, has no sharding rule."""
    x = seeded(8, 4, seed=3) * 4

    def twice(name: str, x: Any) -> Any:
        (first,) = torch.autograd.grad(getattr(A, name)(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    for name in ("silu", "fast_gelu", "hardswish", "gelu", "gelu_v2"):
        spread = distribute_tensor(x, mesh, [Shard(0)]).requires_grad_()
        torch.testing.assert_close(whole(twice(name, spread)), twice(name, x.clone().requires_grad_()))


def check_outputs_given(mesh: Any) -> None:
    """Check that ``out=`` and in-place calls keep the placements of the written tensor."""
    x, weight = seeded(8, 4, 12, seed=1), seeded(12, seed=2)
    for placement, other in itertools.product((Shard(0), Shard(2), Replicate()), repeat=2):
        x_, out, rows = (distribute_tensor(t.clone(), mesh, [p]) for t, p in ((x, placement), (x, other), (x, other)))
        assert A.silu.out(x_, out=out) is out
        weight_ = distribute_tensor(weight, mesh, [Replicate()])
        mean, rstd = (distribute_tensor(torch.empty(8, 4, 1), mesh, [Replicate()]) for _ in range(2))
        A.layer_norm.out(x_, [12], weight_, out=rows, mean=mean, rstd=rstd)
        assert out.placements == rows.placements == (other,)
        assert torch.equal(whole(out), A.silu(x))
        for actual, expected in zip((rows, mean, rstd), A.layer_norm(x, [12], weight), strict=True):
            assert torch.equal(whole(actual), expected)
        assert A.inplace_hardswish(x_) is x_
        assert x_.placements == (placement,)
        assert torch.equal(whole(x_), A.hardswish(x))
        with pytest.raises(RuntimeError, match="out: expected shape"):
            A.silu.out(x_, out=distribute_tensor(torch.empty(4, 12), mesh, [Replicate()]))


def check_layer_norm(mesh: Any) -> None:
    x, dy, weight, bias = (seeded(*shape, seed=i) for i, shape in enumerate([(8, 4, 12)] * 2 + [(12,)] * 2))
    out, mean, rstd = A.layer_norm(x, [12], weight, bias)
    for placement in (Shard(0), Shard(1), Shard(2), Replicate()):
        dx_, dy_ = (distribute_tensor(tensor, mesh, [placement]) for tensor in (x, dy))
        parameters = [distribute_tensor(tensor, mesh, [Replicate()]) for tensor in (weight, bias)]
        got = A.layer_norm(dx_, [12], *parameters)
        for actual, other in zip(got, (out, mean, rstd), strict=True):
            assert torch.equal(whole(actual), other)
        rows = placement if placement in (Shard(0), Shard(1)) else Replicate()
        statistics = [distribute_tensor(tensor, mesh, [rows]) for tensor in (mean, rstd)]
        for mask in itertools.product([False, True], repeat=3):
            expected = A.layer_norm_backward(dy, x, [12], mean, rstd, weight, bias, list(mask))
            shares = A.layer_norm_backward(dy_, dx_, [12], *statistics, *parameters, list(mask))
            for actual, other, wanted in zip(shares, expected, mask, strict=True):
                assert (actual is None) == (not wanted)
                if wanted:
                    torch.testing.assert_close(whole(actual), other)
    # Another normalised shape over the same tensors must not reuse the rule made for the first.
    got = A.layer_norm(distribute_tensor(x, mesh, [Shard(1)]), [4, 12])
    assert torch.equal(whole(got[0]), A.layer_norm(x, [4, 12])[0])


def check_rms_norm(mesh: Any) -> None:
    x, dy, weight = (seeded(*shape, seed=i) for i, shape in enumerate([(8, 4, 12)] * 2 + [(12,)]))
    out, rstd = A.rms_norm(x, weight)
    gradients = A.rms_norm_grad(dy, x, rstd, weight)
    for placement in (Shard(0), Shard(1), Shard(2), Replicate()):
        x_, dy_ = (distribute_tensor(tensor, mesh, [placement]) for tensor in (x, dy))
        weight_ = distribute_tensor(weight, mesh, [Replicate()])
        for actual, other in zip(A.rms_norm(x_, weight_), (out, rstd), strict=True):
            assert torch.equal(whole(actual), other)
        rows = placement if placement in (Shard(0), Shard(1)) else Replicate()
        shares = A.rms_norm_grad(dy_, x_, distribute_tensor(rstd, mesh, [rows]), weight_)
        for actual, other in zip(shares, gradients, strict=True):
            torch.testing.assert_close(whole(actual), other)


class Block(torch.nn.Module):
    """A transformer block over (batch, tokens, 16)."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = torch.nn.LayerNorm(16), torch.nn.LayerNorm(16)
        self.mix = torch.nn.MultiheadAttention(16, 2, batch_first=True)
        self.up, self.act, self.down = torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16)

    def forward(self, x: Any) -> Any:
        y = self.before(x)
        x = x + self.mix(y, y, y, need_weights=False)[0]
        return x + self.down(self.act(self.up(self.after(x))))


def losses(model: Any, batch: Any, share: slice) -> list[float]:
    """Return mean losses over all processes in four steps, each process training on its share of the batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(4):
        loss = model(batch[share]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = whole(loss.detach()).clone()
        dist.all_reduce(total)
        found.append(float(total) / dist.get_world_size())
    return found


def check_training(mesh: Any, rank: int, world: int) -> None:
    torch.manual_seed(0)
    model, batch = aclnn.torch.patch(Block()), seeded(8, 6, 16, seed=9)
    alone = losses(copy.deepcopy(model), batch, slice(None))
    per = len(batch) // world
    spread = losses(fully_shard(copy.deepcopy(model), mesh=mesh), batch, slice(rank * per, (rank + 1) * per))
    torch.testing.assert_close(spread, alone, rtol=1e-5, atol=1e-6)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    split = losses(parallelize_module(copy.deepcopy(model), mesh, plan), batch, slice(None))
    torch.testing.assert_close(split, alone, rtol=1e-5, atol=1e-6)


def main(rank: int, world: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    check_elementwise(mesh)
    check_halves(mesh)
    check_single_extents([mesh, *([init_device_mesh("cpu", (2, world // 2))] if world > 2 else [])])
    check_second_derivatives(mesh)
    check_outputs_given(mesh)
    check_layer_norm(mesh)
    check_rms_norm(mesh)
    check_training(mesh, rank, world)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    print("all checked", flush=True)
    # Skip the interpreter's shutdown: once in dozens of runs gloo's threads outlive it and abort the process.
    os._exit(0)
