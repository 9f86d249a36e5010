"""Time training steps through torch_npu and with PyTorch on the CPU.

``aclnn torch-npu run -m benchmarks.npu_steps`` times the models of examples/torch_npu/training.py: batch to the device,
forward, loss, gradients, clipping, optimiser, and the loss back. Both devices take turns for ROUNDS rounds of STEPS
steps. A round's time is the median of its steps; the program prints the median of the rounds, as elapsed time and as
CPU time, which other programs disturb less.
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
    """Return a function that takes the next step and returns its loss."""
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


def step_ms(step: Callable[[], float], steps: int = STEPS) -> tuple[float, float]:
    """Return the medians of elapsed and CPU time over some steps, in milliseconds."""
    elapsed, spent = [], []
    for _ in range(steps):
        began, had = time.perf_counter_ns(), time.process_time_ns()
        step()
        elapsed.append(time.perf_counter_ns() - began)
        spent.append(time.process_time_ns() - had)
    return median(elapsed) / 1e6, median(spent) / 1e6


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=[*MODELS], help=f"of {', '.join(MODELS)}; all by default")
    parser.add_argument("--threads", type=int, help="of PyTorch's operators")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    for name in given.models:
        steps = [stepper(name, device) for device in ("cpu", "npu")]
        for step in steps:
            step_ms(step)  # compile and fill caches
        rounds = [[step_ms(step) for step in steps] for _ in range(ROUNDS)]
        for at, title in enumerate(("elapsed", "processors")):
            cpu, npu = (median(times[device][at] for times in rounds) for device in (0, 1))
            ratio = median(on_npu[at] / on_cpu[at] for on_cpu, on_npu in rounds)
            print(f"{name}, {title}: cpu {cpu:.2f} ms, npu {npu:.2f} ms, {ratio:.1f} times")


if __name__ == "__main__":
    main()
