"""Models of torchvision, timm and diffusers, on the CPU and through torch_npu.

``aclnn torch-npu run [--soc-name NAME] -m tests.npu.vision_models [--half] [NAME …]`` in an environment that
tests/npu/environment.py made, with ``PACKAGES`` added; half an hour for all. A step of training from the same weights:
outputs, gradients and what SGD makes of them. Exit status 1 where one differs or is rejected for no known reason.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import inspect
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch_npu  # noqa: F401  (it registers the device)
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils._pytree import tree_leaves, tree_map

PACKAGES = (
    "--no-deps torchvision==0.28.0 timm diffusers 'huggingface_hub<2' safetensors regex httpx httpcore h11 anyio "
    "sniffio tqdm importlib_metadata zipp requests urllib3"
)
"""With PyTorch's CPU build in place, which their own dependencies would replace."""
LARGEST, SECONDS = 62e6, 12.0
"""Parameters of a model that is tried, and how long a step may take on the CPU."""
ROOM, TIMES = 1e-3, 16
"""Part of a tensor's norm within which it agrees, or times as far from float64 as the CPU's own result."""
HALF_ROOM = 0.1
"""The first under autocast, where a rounding in another order is one of 256 parts in each layer."""
#: Words of the smallest variants' names, the smallest first.
SMALL = (
    "test_",
    "zepto",
    "atto",
    "femto",
    "pico",
    "nano",
    "xxs",
    "xxt",
    "_n0",
    "tiny",
    "mini",
    "_s0",
    "_b0",
    "_t",
    "small",
    "_s",
)
#: Reasons by a model's name, for what is rejected and what differs.
KNOWN = {
    r"FluxTransformer2DModel": "diffusers turns by float32 angles on an NPU, by float64 ones elsewhere",
    r"timm\.iformer\w*": "CANN's attention takes values of no more elements than keys",
    r"timm\.vitamin\w*": "torch_npu has no such memory format",
}


class Case(NamedTuple):
    """A model and inputs, of which it takes the first that it can, by name or, under "", as they are."""

    name: str
    make: Callable[[], nn.Module]
    inputs: tuple[Callable[[], dict[str, Any]], ...]


def image(*shape: int) -> dict[str, Any]:
    return {"": torch.randn(shape)}


def pair(*shape: int) -> dict[str, Any]:
    return {"image1": torch.randn(shape), "image2": torch.randn(shape), "num_flow_updates": 2}


def torchvision_cases() -> Iterator[Case]:
    models = importlib.import_module("torchvision.models")
    families: dict[str, str] = {}
    for kind in (models, models.segmentation, models.video, models.optical_flow):
        for name in sorted(models.list_models(kind), key=smallness):
            families.setdefault(models.get_model_builder(name).__module__, name)
    for module, name in sorted(families.items()):
        inputs = [partial(image, 2, 3, size, size) for size in (64, 128, 224, 299)]
        if ".video" in module:
            inputs = [partial(image, 1, 3, 8, 64, 64), partial(image, 1, 3, 16, 224, 224)]
        if ".optical_flow" in module:
            inputs = [partial(pair, 1, 3, 128, 128)]
        options = {"weights_backbone": None} if ".segmentation" in module else {}
        yield Case(name, partial(models.get_model, name, **options), tuple(inputs))


def smallness(name: str) -> tuple[Any, ...]:
    """Return a key that orders models of a family by the size in their names."""
    word = next((place for place, word in enumerate(SMALL) if word in name), len(SMALL))
    numbers = [int(each) for each in re.findall(r"\d+", name)]
    return word, numbers, len(name), name


def timm_cases() -> Iterator[Case]:
    timm = importlib.import_module("timm")
    for module in sorted(timm.list_modules()):
        names = sorted(timm.list_models(module=module), key=smallness)
        if names:
            own = timm.get_pretrained_cfg(names[0])
            inputs = [partial(image, 2, 3, size, size) for size in (64, 96, own.input_size[-1] if own else 224)]
            yield Case(f"timm.{names[0]}", partial(timm.create_model, names[0]), tuple(inputs))


class Denoising(nn.Module):
    """A few steps of a scheduler with a model that predicts noise."""

    def __init__(self, unet: nn.Module, scheduler: Any) -> None:
        super().__init__()
        self.unet, self.scheduler = unet, scheduler

    def forward(self, sample: torch.Tensor) -> torch.Tensor:
        scheduler = copy.deepcopy(self.scheduler)
        scheduler.set_timesteps(4, device=sample.device)
        takes = inspect.signature(scheduler.step).parameters
        noise = {"generator": torch.Generator().manual_seed(5)} if "generator" in takes else {}
        for moment in scheduler.timesteps:
            scaled = scheduler.scale_model_input(sample, moment) if hasattr(scheduler, "scale_model_input") else sample
            predicted = self.unet(scaled, moment.expand(len(sample))).sample
            sample = scheduler.step(predicted, moment, sample, **noise).prev_sample
        return sample


def denoising(diffusers: Any, scheduler: str) -> nn.Module:
    return Denoising(diffusers.UNet2DModel(**DIFFUSERS["UNet2DModel"][0]), getattr(diffusers, scheduler)())


ENDS = {"block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8}
CROSS = {**ENDS, "sample_size": 16, "cross_attention_dim": 32, "attention_head_dim": 8}
DOWN, UP = ("DownEncoderBlock2D",) * 2, ("UpDecoderBlock2D",) * 2
CODING = {**ENDS, "down_block_types": DOWN, "up_block_types": UP}
HEADS = {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 2}
IMAGES, TEXT = {"sample": (2, 3, 32, 32)}, {"encoder_hidden_states": (2, 7, 32)}
TOKENS = {"hidden_states": (2, 4, 8, 8), "timestep": 900}
PLANES = {**HEADS, "in_channels": 4, "sample_size": 8}
#: Of diffusers, each model with its configuration and its inputs: shapes, or a number below which an index is drawn.
DIFFUSERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "UNet2DModel": (
        {
            **ENDS,
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        },
        {"sample": (2, 3, 16, 16), "timestep": 900},
    ),
    "UNet2DConditionModel": (
        {**CROSS, "down_block_types": ("CrossAttnDownBlock2D",) * 2, "up_block_types": ("CrossAttnUpBlock2D",) * 2},
        {"sample": (2, 4, 16, 16), "timestep": 900, **TEXT},
    ),
    "UNet3DConditionModel": (
        {**CROSS, "down_block_types": ("CrossAttnDownBlock3D",) * 2, "up_block_types": ("CrossAttnUpBlock3D",) * 2},
        {"sample": (2, 4, 3, 16, 16), "timestep": 900, **TEXT},
    ),
    "AutoencoderKL": (CODING, IMAGES),
    "VQModel": (CODING, IMAGES),
    "AutoencoderTiny": ({f"{end}_block_out_channels": (16,) * 4 for end in ("encoder", "decoder")}, IMAGES),
    "DiTTransformer2DModel": ({**PLANES, "norm_num_groups": 4}, {**TOKENS, "class_labels": 1000}),
    "PixArtTransformer2DModel": (
        {**PLANES, "cross_attention_dim": 32, "caption_channels": 32, "use_additional_conditions": False},
        {**TOKENS, **TEXT, "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}},
    ),
    "SD3Transformer2DModel": (
        {
            **PLANES,
            "out_channels": 4,
            "joint_attention_dim": 32,
            "caption_projection_dim": 32,
            "pooled_projection_dim": 24,
        },
        {**TOKENS, **TEXT, "pooled_projections": (2, 24)},
    ),
    "FluxTransformer2DModel": (
        {
            **HEADS,
            "in_channels": 4,
            "joint_attention_dim": 32,
            "pooled_projection_dim": 24,
            "axes_dims_rope": (4, 4, 8),
        },
        {
            "hidden_states": (2, 16, 4),
            **TEXT,
            "pooled_projections": (2, 24),
            "timestep": 900,
            "img_ids": (16, 3),
            "txt_ids": (7, 3),
        },
    ),
    "CogVideoXTransformer3DModel": (
        {
            **HEADS,
            "in_channels": 4,
            "out_channels": 4,
            "text_embed_dim": 32,
            "sample_width": 8,
            "sample_height": 8,
            "sample_frames": 5,
            "max_text_seq_length": 7,
        },
        {"hidden_states": (2, 2, 4, 8, 8), **TEXT, "timestep": 900},
    ),
    "SanaTransformer2DModel": (
        {
            **PLANES,
            "out_channels": 4,
            "num_cross_attention_heads": 2,
            "cross_attention_head_dim": 16,
            "cross_attention_dim": 32,
            "caption_channels": 32,
        },
        {**TOKENS, **TEXT},
    ),
    "WanTransformer3DModel": (
        {**HEADS, "in_channels": 4, "out_channels": 4, "text_dim": 32, "freq_dim": 32, "ffn_dim": 32},
        {"hidden_states": (2, 4, 2, 8, 8), "timestep": 900, **TEXT},
    ),
}
SCHEDULERS = (
    "DDPM",
    "DDIM",
    "EulerDiscrete",
    "EulerAncestralDiscrete",
    "HeunDiscrete",
    "DPMSolverMultistep",
    "UniPCMultistep",
    "PNDM",
    "LMSDiscrete",
    "FlowMatchEulerDiscrete",
)


def drawn(shapes: dict[str, Any]) -> dict[str, Any]:
    """Draw random tensors for shapes, and two indices below each number; return anything else unchanged."""
    drawn = {tuple: torch.randn, int: lambda limit: torch.randint(limit, (2,))}
    return {name: drawn.get(type(shape), lambda given: given)(shape) for name, shape in shapes.items()}


def diffusers_cases() -> Iterator[Case]:
    diffusers = importlib.import_module("diffusers")
    for name, (options, inputs) in DIFFUSERS.items():
        yield Case(name, partial(getattr(diffusers, name), **options), (partial(drawn, inputs),))
    for name in SCHEDULERS:
        make = partial(denoising, diffusers, f"{name}Scheduler")
        yield Case(f"{name}Scheduler", make, (partial(image, 2, 3, 16, 16),))


def calm(model: nn.Module) -> nn.Module:
    """Disable all kinds of dropout."""
    for module in model.modules():
        for name, value in [*vars(module).items()]:
            if isinstance(value, float) and (name == "p" or "drop" in name):
                setattr(module, name, 0.0)
    return model.train()


def step(
    model: nn.Module, inputs: dict[str, Any], device: str, dtype: torch.dtype, half: bool
) -> list[list[torch.Tensor]]:
    """Return outputs, gradients, and parameters and buffers after a step, in float64 on the CPU."""

    def to(leaf: Any) -> Any:
        return leaf.to(device, dtype if leaf.is_floating_point() else None) if isinstance(leaf, torch.Tensor) else leaf

    for name, module in [*sys.modules.items()]:  # diffusers calls functions of torch_npu's where it is there
        if name.startswith("diffusers.") and "is_torch_npu_available" in vars(module):
            vars(module)["is_torch_npu_available"] = lambda: device == "npu"
    torch.manual_seed(7)
    model, inputs = copy.deepcopy(model).to(device, dtype), tree_map(to, inputs)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    scaler = torch.amp.GradScaler(device, init_scale=256.0, enabled=half)
    with torch.autocast(device, torch.bfloat16, enabled=half):
        found = model(inputs[""]) if "" in inputs else model(**inputs)
    found = vars(found) if is_dataclass(found) else found
    results = [leaf for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    numbers = torch.Generator().manual_seed(3)
    shares = [each.to(dtype) * torch.randn(each.shape, generator=numbers).to(device, dtype) for each in results]
    scaler.scale(sum(share.mean() for share in shares)).backward()
    scaler.unscale_(optimizer)
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    scaler.step(optimizer)
    groups = (results, gradients, [*model.parameters(), *model.buffers()])
    return [[each.detach().cpu().double() for each in group if each.is_floating_point()] for group in groups]


def distances(expected: list[list[torch.Tensor]], got: list[list[torch.Tensor]]) -> list[float]:
    """Return the largest distance of a tensor in each group, relative to its norm."""
    found = []
    for cpu, npu in zip(expected, got, strict=True):
        whole = max((each.norm().item() for each in cpu), default=0.0)
        parts = [((a - b).norm() / (a.norm() + 1e-2 * whole + 1e-30)).item() for a, b in zip(cpu, npu, strict=True)]
        found.append(max((part if part == part else float("inf") for part in parts), default=0.0))
    return found


def outcome(case: Case, half: bool, seed: int) -> str:
    """Describe how a model's step differs: "agrees", or why it was not tried."""
    torch.manual_seed(seed)
    try:
        model = calm(case.make())
        if (size := sum(parameter.numel() for parameter in model.parameters())) > LARGEST:
            return f"not tried: {size / 1e6:.0f} million parameters"
        began = time.perf_counter()
        inputs, expected = taken(case, model, half)
    except Exception as error:  # anything that is wrong on the CPU
        return f"not tried: {error}"
    if (took := time.perf_counter() - began) > SECONDS:
        return f"not tried: {took:.0f} s on the CPU"
    try:
        got = step(model, inputs, "npu", torch.float32, half)
    except Exception as error:
        return f"rejected: {error}"
    if max(distances(expected, got)) < (HALF_ROOM if half else ROOM):
        return "agrees"
    exact = step(model, inputs, "cpu", torch.float64, False)
    theirs, ours = distances(exact, expected), distances(exact, got)
    if all(actual < TIMES * other for actual, other in zip(ours, theirs, strict=True)):
        return "agrees"
    parts = zip(("outputs", "gradients", "parameters"), ours, theirs, strict=True)
    return "differs: " + ", ".join(f"{name} by {a:.1g} (the CPU by {b:.1g} from float64)" for name, a, b in parts)


def taken(case: Case, model: nn.Module, half: bool) -> tuple[dict[str, Any], list[list[torch.Tensor]]]:
    """Return the first inputs with which the CPU can take a step, and the results."""
    for make in case.inputs[:-1]:
        inputs = make()
        with contextlib.suppress(Exception):
            return inputs, step(model, inputs, "cpu", torch.float32, half)
    inputs = case.inputs[-1]()
    return inputs, step(model, inputs, "cpu", torch.float32, half)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", action="store_true", help="autocast to bfloat16, with GradScaler")
    parser.add_argument("names", nargs="*", help="what the models' names contain; none: all")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if "910B" in torch.npu.get_device_name(0):  # Atlas A2 approximates GELU by tanh: so do both
        exact = F.gelu
        F.gelu = lambda x, approximate="none": exact(x, approximate="tanh")
    for name in ("nms", "qnms"):  # without the library of its operators, which wants CUDA's PyTorch, their names do
        with contextlib.suppress(RuntimeError):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    counts = Counter[str]()
    for package in (torchvision_cases, timm_cases, diffusers_cases):
        try:
            cases = [*package()]
        except ImportError as error:
            print(f"{package.__name__.removesuffix('_cases')} is not there ({error}): pip install {PACKAGES}")
            continue
        for case in cases:
            if chosen.names and not any(name in case.name for name in chosen.names):
                continue
            began = time.perf_counter()
            text = outcome(case, chosen.half, 0)
            if text.startswith("differs"):  # an element may lie on either side of a kink: with other numbers none does
                text = outcome(case, chosen.half, 1)
            why = next((why for pattern, why in KNOWN.items() if re.fullmatch(pattern, case.name)), "")
            kind = text.partition(":")[0]
            counts[kind if kind in ("agrees", "not tried") or not why else "for a known reason"] += 1
            took, said = time.perf_counter() - began, " ".join(text.split())[:400]
            print(f"{case.name} ({took:.0f} s): {said}", why and f"({why})", flush=True)
    print(f"\n{counts['agrees']} of {counts.total() - counts['not tried']} models agree; {dict(counts)}")
    return 1 if counts["differs"] or counts["rejected"] else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # no exit handlers of torch's
