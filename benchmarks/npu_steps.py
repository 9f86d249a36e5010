"""What a training step takes through torch_npu, beside PyTorch's on the CPU.

``aclnn torch-npu run -m benchmarks.npu_steps`` times the models of examples/torch_npu/training.py: batch to the device,
forward, loss, gradients, clipping, optimiser, and the loss back. Both devices take turns, ROUNDS times STEPS steps; a
round's time is the median of its steps, and what is printed the median of the rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import cycle
from statistics import median

import torch

from examples.torch_npu.training import MODELS

ROUNDS, STEPS = 5, 40


def stepper(name: str, device: str) -> Callable[[], float]:
    """Return a function that does the next step and returns its loss."""
    torch.manual_seed(0)
    model, optimizer, batches = MODELS[name](device)
    source = cycle(list(batches))

    def step() -> float:
        x, labels = next(source)
        loss = torch.nn.functional.cross_entropy(model(x.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss.item())

    return step


def step_ms(step: Callable[[], float], steps: int) -> float:
    """Return the median of so many steps, in milliseconds."""
    times = []
    for _ in range(steps):
        begin = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - begin)
    return median(times) / 1e6


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=[*MODELS], help=f"of {', '.join(MODELS)}; all by default")
    for name in parser.parse_args().models:
        steps = [stepper(name, device) for device in ("cpu", "npu")]
        for step in steps:
            step_ms(step, STEPS)  # compiles, fills caches
        cpu, npu = zip(*([step_ms(step, STEPS) for step in steps] for _ in range(ROUNDS)), strict=True)
        ratio = median(mine / theirs for mine, theirs in zip(npu, cpu, strict=True))
        print(f"{name}: cpu {median(cpu):.2f} ms, npu {median(npu):.2f} ms, {ratio:.1f} times")


if __name__ == "__main__":
    main()
