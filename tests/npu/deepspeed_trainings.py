"""Trainings by DeepSpeed on torch_npu and HCCL, with the same ones by plain PyTorch on the CPU, on each rank.

``aclnn torch-npu run -m torch.distributed.run --nproc-per-node 2 -m tests.npu.deepspeed_trainings [PART OF A NAME …]``
in an environment that tests/npu/environment.py made, with DeepSpeed with it: fails where the two differ. The first
training that leaves its optimizer to the CPU compiles DeepSpeed's CPUAdam, which takes a minute or more.
"""

from __future__ import annotations

import copy
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed as dist
from torch import nn

try:
    import deepspeed
    from deepspeed.pipe import PipelineModule
except ImportError as error:
    sys.exit(
        f"{error}: TORCH_DEVICE_BACKEND_AUTOLOAD=0 pip install --no-deps --no-build-isolation deepspeed; pip install "
        "einops hjson msgpack ninja psutil py-cpuinfo pydantic tqdm"
    )

TOKENS, WIDTH, LENGTH, SAMPLES = 29, 16, 12, 4
STEPS, RATE, DECAY = 6, 0.01, 0.01
#: Largest relative difference of a loss. In 16 bits each layer rounds, here and there at other places.
ROOM = {torch.float32: 1e-6, torch.bfloat16: 2e-3, torch.float16: 2e-4}
DTYPES = tuple(ROOM)


def network() -> nn.Sequential:
    """A small language model, the same on every rank."""
    torch.manual_seed(0)
    layers = [
        nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, activation=nn.SiLU(), batch_first=True, bias=False)
        for _ in range(2)
    ]
    return nn.Sequential(nn.Embedding(TOKENS, WIDTH), *layers, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TOKENS))


def batch(number: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens, every second of which follows from the one before, and the tokens behind them."""
    tokens = torch.randint(TOKENS, (SAMPLES, LENGTH + 1), generator=torch.Generator().manual_seed(100 * number + rank))
    tokens[:, 1::2] = (3 * tokens[:, :-1:2] + 1) % TOKENS
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(found.float().flatten(0, 1), wanted.flatten())


def plain(
    dtype: torch.dtype, ranks: int, parts: int = 1, clip: float = 0.0, steps_before: int = 0, first: int = 0
) -> list[float]:
    """Losses of PyTorch's AdamW on float32 weights, with gradients of a model of another type.

    Args:
        dtype: the model's.
        ranks: whose batches make up a step.
        parts: batches of each rank in a step.
        clip: the norm to which gradients are clipped; 0 leaves them.
        steps_before: steps with gradients of zeros.
        first: the first step's number, which says what its batches are.
    """
    weights = network()
    model = copy.deepcopy(weights).to(dtype)
    optimizer = torch.optim.AdamW(weights.parameters(), RATE, weight_decay=DECAY)
    for _ in range(steps_before):
        for parameter in weights.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    losses = []
    for step in range(first, first + STEPS):
        optimizer.zero_grad()
        losses.append(0.0)
        for inputs, targets in (batch(step * parts + part, rank) for part in range(parts) for rank in range(ranks)):
            loss = loss_of(model(inputs), targets) / (ranks * parts)
            losses[-1] += loss.item()
            gradients = torch.autograd.grad(loss, [*model.parameters()])
            for parameter, gradient in zip(weights.parameters(), gradients, strict=True):
                parameter.grad = gradient.float() + (0 if parameter.grad is None else parameter.grad)
        if clip:
            nn.utils.clip_grad_norm_(weights.parameters(), clip)
        optimizer.step()
        with torch.no_grad():
            for ours, theirs in zip(model.parameters(), weights.parameters(), strict=True):
                ours.copy_(theirs)
    return losses


def engine(stage: int, dtype: torch.dtype = torch.float32, model: Any = None, zero: Any = None, **more: Any) -> Any:
    """DeepSpeed's engine for a ZeRO stage; ``zero`` and what follows are entries of its configuration."""
    model = model or network()
    names = {torch.bfloat16: "bf16", torch.float16: "fp16"}
    config = {
        "train_micro_batch_size_per_gpu": SAMPLES,
        "optimizer": {"type": "AdamW", "params": {"lr": RATE, "weight_decay": DECAY}},
        "zero_optimization": {"stage": stage, **(zero or {})},
        **({names[dtype]: {"enabled": True}} if dtype in names else {}),
        **({"fp16": {"enabled": True, "initial_scale_power": 8}} if dtype == torch.float16 else {}),
        **more,
    }
    return deepspeed.initialize(model=model, model_parameters=[*model.parameters()], config=config)[0]


def train(made: Any, parts: int = 1, first: int = 0, steps: int = STEPS) -> list[float]:
    """Losses of an engine, as means of all ranks."""
    losses = []
    for step in range(first, first + steps):
        mean = torch.zeros((), device=made.device)
        for part in range(parts):
            inputs, targets = (each.to(made.device) for each in batch(step * parts + part, dist.get_rank()))
            loss = loss_of(made(inputs), targets)
            made.backward(loss)
            made.step()
            mean += loss.detach().float() / (dist.get_world_size() * parts)
        deepspeed.comm.all_reduce(mean)
        losses.append(mean.item())
    return losses


def expect_close(losses: list[float], wanted: list[float], dtype: torch.dtype) -> None:
    largest = max(abs(one - other) / other for one, other in zip(losses, wanted, strict=True))
    assert largest <= ROOM[dtype], f"by {largest:.1e}: {losses}, plain: {wanted}"
    assert losses[-1] < 0.95 * losses[0]


def trains(stage: int, dtype: torch.dtype = torch.float32, **more: Any) -> Callable[[], None]:
    """A training of a ZeRO stage."""

    def run() -> None:
        parts, clip = more.get("gradient_accumulation_steps", 1), more.get("gradient_clipping", 0.0)
        # Without ZeRO, DeepSpeed's optimizer for 16 bits makes its moments by such a step.
        before = int(stage == 0 and dtype != torch.float32)
        losses = train(engine(stage, dtype, **more), parts)
        expect_close(losses, plain(dtype, dist.get_world_size(), parts, clip, before), dtype)

    return run


def overflows(stage: int) -> Callable[[], None]:
    """A training whose loss is scaled too much at first: steps are left out until it fits."""

    def run() -> None:
        made = engine(stage, torch.float16, fp16={"enabled": True, "initial_scale_power": 24, "hysteresis": 1})
        losses = train(made, steps=10 + STEPS)
        left_out = made.skipped_steps
        assert 4 <= left_out <= 10
        assert made.optimizer.loss_scale == 2.0 ** (24 - left_out)
        expected = plain(torch.float16, dist.get_world_size(), first=left_out)
        expect_close(losses[left_out : left_out + STEPS], expected, torch.float16)

    return run


def goes_on(stage: int, dtype: torch.dtype) -> Callable[[], None]:
    """A training that goes on from a checkpoint, with the same bits."""

    def run() -> None:
        name = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(name)
        made = engine(stage, dtype)
        train(made, steps=2)
        made.save_checkpoint(name[0])
        wanted = train(made, first=2, steps=2)
        other = network()
        for parameter in other.parameters():
            nn.init.normal_(parameter)
        made = engine(stage, dtype, other)
        made.load_checkpoint(name[0])
        losses = train(made, first=2, steps=2)
        assert losses == wanted, f"{losses}, before: {wanted}"

    return run


def pipes(dtype: torch.dtype) -> Callable[[], None]:
    """A training with the layers divided among the ranks, which all see the batches of one."""

    def run() -> None:
        model = PipelineModule([*network()], num_stages=dist.get_world_size(), loss_fn=loss_of)
        stage = int(dtype == torch.bfloat16)
        made = engine(stage, dtype, model, gradient_accumulation_steps=4, gradient_clipping=1.0)
        batches = (batch(number, 0) for number in range(4 * STEPS))
        losses = [made.train_batch(batches).item() for _ in range(STEPS)]
        expect_close(losses, plain(dtype, 1, 4, 1.0, steps_before=int(dtype == torch.float16)), dtype)

    return run


class Checkpointed(nn.Module):
    """The network with two layers whose results are computed once more for the gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = network()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        first, *middle, norm, last = self.layers
        found = first(tokens)
        for layer in middle:
            found = deepspeed.checkpointing.checkpoint(layer, found)
        return last(norm(found))


def recomputes() -> None:
    made = engine(1, model=Checkpointed(), activation_checkpointing={"cpu_checkpointing": True})
    deepspeed.checkpointing.configure(None, deepspeed_config=made.config)
    expect_close(train(made), plain(torch.float32, dist.get_world_size()), torch.float32)


TO_CPU = {"device": "cpu", "pin_memory": True}
SMALL = {
    "overlap_comm": True,
    "reduce_bucket_size": 500,
    "stage3_prefetch_bucket_size": 300,
    "stage3_param_persistence_threshold": 10,
    "sub_group_size": 1000,
}
TRAININGS: dict[str, Callable[[], None]] = {
    **{f"stage {stage} {dtype}": trains(stage, dtype) for stage in range(4) for dtype in DTYPES},
    **{
        f"stage {stage} clipped": trains(stage, gradient_accumulation_steps=2, gradient_clipping=0.5)
        for stage in range(4)
    },
    **{f"stage {stage} in small parts": trains(stage, zero=SMALL) for stage in (2, 3)},
    **{
        f"stage {stage} with the optimizer on the CPU": trains(stage, dtype, zero={"offload_optimizer": TO_CPU})
        for stage, dtype in ((1, torch.bfloat16), (2, torch.float32), (3, torch.bfloat16))
    },
    "stage 3 on the CPU": trains(3, torch.bfloat16, zero={"offload_optimizer": TO_CPU, "offload_param": TO_CPU}),
    **{f"stage {stage} with overflows": overflows(stage) for stage in (1, 2, 3)},
    **{f"checkpoint of stage {stage} {dtype}": goes_on(stage, dtype) for stage in range(4) for dtype in DTYPES[:2]},
    "activation checkpointing": recomputes,
    # Last: DeepSpeed keeps a pipeline's groups, with which it makes no other engine.
    **{f"pipeline {dtype}": pipes(dtype) for dtype in DTYPES},
}


def main() -> None:
    """Compare on this rank."""
    warnings.filterwarnings("ignore")
    deepspeed.utils.logger.setLevel(logging.ERROR)
    torch.set_num_threads(1)
    deepspeed.init_distributed()
    rank, size = dist.get_rank(), dist.get_world_size()
    chosen = {name: run for name, run in TRAININGS.items() if any(part in name for part in sys.argv[1:] or [""])}
    for name, run in chosen.items():
        try:
            run()
        except (RuntimeError, AssertionError) as error:
            raise RuntimeError(f"rank {rank}: {name}") from error
        if rank == 0:
            print(f"{name}: agrees", flush=True)
    print(f"rank {rank} of {size}: {len(chosen)} trainings", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
