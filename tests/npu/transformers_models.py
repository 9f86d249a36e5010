"""Models of Hugging Face's transformers, small and with random weights, on the CPU and through torch_npu.

``aclnn torch-npu run [--soc-name NAME] -m tests.npu.transformers_models [TYPE …]`` in an environment that
tests/npu/environment.py made, with transformers with it; half an hour for all types. Of each the results, the
loss, the gradients, the loss after a step of AdamW and what it generates, greedily and by two beams, are compared. Exit
status 1 where something differs or is rejected for no known reason.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import gc
import inspect
import itertools
import logging
import math
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

try:
    import transformers
    from transformers import PreTrainedConfig
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
except ImportError as error:
    sys.exit(
        f"{error}: pip install --no-deps transformers tokenizers huggingface_hub hf_xet httpx2 httpcore2 truststore "
        "anyio h11 regex tqdm safetensors scipy"
    )

#: Of a type's classes the first of these that there is.
TASKS = (
    *("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM", "IMAGE_TEXT_TO_TEXT", "SPEECH_SEQ_2_SEQ", "CTC"),
    *("IMAGE_CLASSIFICATION", "OBJECT_DETECTION", "SEMANTIC_SEGMENTATION", "UNIVERSAL_SEGMENTATION"),
    *("VIDEO_CLASSIFICATION", "AUDIO_CLASSIFICATION", "DEPTH_ESTIMATION", "TIME_SERIES_PREDICTION", "PRETRAINING"),
    *("SEQUENCE_CLASSIFICATION", "MULTIMODAL_LM", "TEXT_TO_SPECTROGRAM", "TEXT_TO_WAVEFORM"),
)
WIDTH, LAYERS, VOCABULARY, TOKENS, PICTURE, MELS = 96, 2, 256, 12, 64, 16
ROOM = 1e-4
"""Part of the largest element within which results agree."""
GELU_BY_TANH = "950" not in os.environ.get("ACLNN_SOC_NAME", "")
"""Atlas A2 approximates GELU by tanh: so does the CPU here, to be compared."""
LARGEST = 100_000_000
"""Parameters."""
#: Bounds of a configuration's numbers, by their names; the first that fits.
BOUNDS: tuple[tuple[str, float], ...] = (
    (r"num_feat_extract_layers|\w+_feature_layer|type_vocab_size|num_channels|\w*kernel_\w+|\w+_kernel", math.inf),
    (r".*vocab(ulary)?_size\w*|num_embeddings|codebook_size", VOCABULARY),
    (r"max_source_positions", 32),
    (r"n_?positions|max_(source|target|seq|position|len)\w*|max_sequence_length", 512),
    (r"num_kv_shared_layers|num_nextn_predict_layers", 0),
    (r"(\w+_)?(n|num)_?(\w+_)?layers?|layers|\w+_layers|depth|num_blocks|num_(encoder|decoder)_blocks", LAYERS),
    (r"(\w+_)?(qk_rope|rope)_head_dim|rotary_dim", 16),
    (r"(\w+_)?head_(dim|size)|d_kv|\w+_head_dim|dim_head", 16),
    (r"(\w+_)?num_key_value_heads|num_kv_heads", 2),
    (r"(\w+_)?heads?", 4),
    (r"(num|n)_(routed_|local_)?experts|moe_num_experts|num_local_experts", 4),
    (r"num_experts_per_tok|moe_k|topk_group|n_group|num_expert_group", 2),
    (r"image_size|resolution|input_resolution", PICTURE),
    (r"(\w+_)?(mel_bins|n_mels|num_mel_bins|mel_dim)", MELS),
    (r"sliding_window\w*|attention_window", 8),
    (r"num_queries|num_query_tokens|num_patches", 16),
    (
        r"(?!(patch|window|kernel|merge|group|chunk)_size)\w*(size|dim|width|units|rank|d_model|d_ff|n_embd|n_inner)",
        WIDTH,
    ),
    (r"\w*(channels|filters|hidden)|d_inner|upsample_groups", WIDTH),
)
#: What else a configuration needs, by the model's type.
NEEDED: dict[str, dict[str, Any]] = {
    "align_vision_model": {"hidden_dim": 640},
    "autoformer": {"prediction_length": 8, "num_time_features": 1},
    "bamba": {"attn_layer_indices": [1]},
    "blip-2": {"image_token_index": 220},
    "cohere_compass_text": {"layer_types": ["full_attention"] * LAYERS},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "donut-swin": {"window_size": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "efficientnet": {"hidden_dim": 2560},
    "esm": {"vocab_size": VOCABULARY, "pad_token_id": 1, "mask_token_id": 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "helium": {"head_dim": 24},
    "informer": {"prediction_length": 8, "num_time_features": 1},
    "instructblip": {"image_token_index": 220},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "mamba2": {"num_heads": 12, "n_groups": 1},
    "maskformer-swin": {"window_size": 2},
    "nemotron": {"num_key_value_heads": 2},
    "nemotron_h": {"n_groups": 1},
    "swin": {"window_size": 2},
    "swin2sr": {"window_size": 2},
    "swinv2": {"window_size": 2},
    "time_series_transformer": {"prediction_length": 8, "num_time_features": 1},
}
TOKEN = r"\w*_token(_id|_index)|\w+_token_idx"


#: Reasons for what differs or is rejected, by the model's type.
KNOWN = {
    "hiera": "rounding makes the larger of two that are 3e-8 apart the smaller, and a maximum's gradient goes to it",
    "mobilenet_v1": "rounding puts an element 5e-6 with ReLU6's bend on its other side",
    "mobilenet_v2": "rounding puts an element 2e-7 from ReLU6's bend on its other side",
}


def bounded(name: str, value: Any) -> Any:
    """Return a number of a configuration, made small; probabilities of dropout become 0."""
    if isinstance(value, float):
        return 0.0 if "drop" in name else value
    if isinstance(value, int) and not isinstance(value, bool):
        return min(value, next((most for pattern, most in BOUNDS if re.fullmatch(pattern, name)), math.inf))
    return value


def small(given: Any, tokens: dict[int, int] | None = None) -> Any:
    """Return a small configuration of the same class, whose parts share the numbers of special tokens."""
    if given.model_type == "timm_backbone":  # of another library
        return transformers.ResNetConfig(out_indices=[2, 3, 4], depths=[1] * 4, hidden_sizes=[32, 32, 64, WIDTH])
    tokens = {} if tokens is None else tokens
    chosen: dict[str, Any] = {}
    fields = {field.name: field.default for field in dataclasses.fields(given) if field.init}
    for name, default in fields.items():
        value = vars(given).get(name)
        if isinstance(value, PreTrainedConfig):
            chosen[name] = small(value, tokens)
        elif re.fullmatch(TOKEN, name):
            value = value[0] if isinstance(value, list) else value
            if isinstance(value, int) and value >= VOCABULARY - 40:
                chosen[name] = tokens.setdefault(value, VOCABULARY - 40 + len(tokens))
        elif default is not dataclasses.MISSING and (found := bounded(name, default)) != default:
            chosen[name] = found
    if "apply_spec_augment" in fields:
        chosen["apply_spec_augment"] = False
    if len(kinds := [*dict.fromkeys(vars(given).get("layer_types") or [])]) > 1:  # a layer of each
        chosen |= {"layer_types": kinds, "num_hidden_layers": len(kinds)}
    if "qk_rope_head_dim" in fields and "num_key_value_heads" in chosen:  # each head has keys of its own
        chosen["num_key_value_heads"] = 4
    rope = vars(given).get("rope_parameters")
    if isinstance(rope, dict) and ("mrope_section" in rope or re.search("vl|omni|glm", given.model_type)):
        half = int(chosen.get("head_dim", WIDTH // 4) * rope.get("partial_rotary_factor", 1.0)) // 2
        chosen["rope_parameters"] = {**rope, "mrope_section": [half - 2 * (half // 3), half // 3, half // 3]}
    return type(given)(**{**chosen, **NEEDED.get(given.model_type, {})})


def sought(config: Any, *names: str) -> Any:
    """Return the first of some attributes that a configuration or a part of it has."""
    for name in names:
        if isinstance(found := vars(config).get(name), (int, list, tuple)) and found:
            return found
    parts = [each for each in vars(config).values() if isinstance(each, PreTrainedConfig)]
    return next((found for part in parts if (found := sought(part, *names))), None)


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(3, 99, shape)


def picture(config: Any) -> tuple[int, int, int]:
    side = sought(config, "image_size") or PICTURE
    height, width = (side, side) if isinstance(side, int) else (side[0], side[-1])
    return sought(config, "num_channels", "in_channels", "in_chans") or 3, height, width


def patches(config: Any) -> torch.Tensor:
    side = sought(config, "patch_size")
    times = sought(config, "temporal_patch_size") or 1
    return torch.randn(32, 3 * times * side * side)


def boxes(*shape: int) -> torch.Tensor:
    return torch.cat((torch.randint(0, 40, (*shape, 2)), torch.randint(50, 90, (*shape, 2))), -1)


def objects(config: Any) -> list[dict[str, torch.Tensor]]:
    one = {"class_labels": torch.tensor([0, 1]), "masks": torch.ones(2, *picture(config)[1:])}
    return [{**one, "boxes": torch.rand(2, 4) / 2} for _ in range(2)]


#: What models take, by the argument's name: the forms among which there is one that a model takes.
INPUTS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "input_ids": (lambda c: ids(2, TOKENS), lambda c: ids(2, TOKENS, sought(c, "num_codebooks") or 2)),
    "qformer_input_ids": (lambda c: ids(2, 8),),
    "decoder_input_ids": (lambda c: ids(2, 8),),
    "attention_mask": (lambda c: torch.tensor([[1] * TOKENS, [1] * (TOKENS - 3) + [0] * 3]), lambda c: None),
    "bbox": (lambda c: boxes(2, TOKENS),),
    "pixel_values": (
        lambda c: torch.randn(2, *picture(c)),
        lambda c: torch.randn(2, sought(c, "num_frames") or 1, *picture(c)),
        patches,
    ),
    "pixel_values_videos": (lambda c: torch.randn(2, sought(c, "num_frames", "frames_per_clip") or 1, *picture(c)),),
    "image_sizes": (lambda c: torch.tensor([picture(c)[1:]] * 2),),
    "hidden_states": (patches,),
    "input_features_mask": (lambda c: torch.ones(2, 64, dtype=torch.long), lambda c: None),
    "image_grid_thw": (lambda c: torch.tensor([[1, 4, 4]] * 2),),
    "grid_thw": (lambda c: torch.tensor([[1, 4, 4]] * 2),),
    "input_features": (lambda c: torch.randn(2, MELS, 64), lambda c: torch.randn(2, 64, MELS)),
    "input_values": (
        lambda c: torch.randn(2, 3200),
        lambda c: torch.randn(2, 1, 3200),
        lambda c: torch.randn(2, sought(c, "max_length") or 64, MELS),
    ),
    "past_values": (lambda c: torch.randn(2, sought(c, "context_length") or 32, 1), lambda c: torch.randn(2, 15)),
    "past_time_features": (lambda c: torch.randn(2, 15, 1),),
    "past_observed_mask": (lambda c: torch.ones(2, 15), lambda c: None),
    "future_values": (lambda c: torch.randn(2, 8),),
    "future_time_features": (lambda c: torch.randn(2, 8, 1),),
    "labels": (
        lambda c: ids(2, TOKENS),
        lambda c: torch.tensor([0, 1]),
        lambda c: ids(2, 8),
        objects,
        lambda c: torch.randint(0, 2, (2, *picture(c)[1:])),
        lambda c: None,
    ),
}


class SameNumbers(TorchFunctionMode):
    """Draws the CPU's random numbers on every device."""

    NAMES = re.compile(
        r"(rand|randn|randint|randperm|bernoulli|multinomial|normal)(_like)?|(normal|uniform|exponential)_"
    )

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name == "gelu" and GELU_BY_TANH:
            kwargs = {**kwargs, "approximate": "tanh"}
        if not self.NAMES.fullmatch(name):
            return function(*args, **kwargs)
        there = [each.device for each in args if isinstance(each, torch.Tensor)]
        device = kwargs.pop("device", None) or (there[0] if there else "cpu")
        found = function(*(each.cpu() if isinstance(each, torch.Tensor) else each for each in args), **kwargs)
        return args[0].copy_(found) if name.endswith("_") else found.to(device)


def moved(value: Any, device: str) -> Any:
    return tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, value)


def tensors(found: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor)]


def loss_of(found: Any) -> torch.Tensor:
    """Return a model's loss, or a number computed from its results."""
    loss = found.get("loss") if hasattr(found, "get") else None
    if loss is not None and loss.requires_grad:
        return loss.sum()
    parts = [each.flatten().float() for each in tensors(found) if each.requires_grad and each.is_floating_point()]
    return sum((each * torch.arange(len(each), device=each.device).cos()).mean() for each in parts)


def with_pictures(model: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return text with as many image tokens as the model computes for a picture."""
    token = sought(model.config, "image_token_id", "image_token_index")
    if "input_ids" not in given or "pixel_values" not in given or token is None:
        return given
    expected = inspect.signature(model.get_image_features).parameters
    more = {name: value for name, value in given.items() if name in expected and name != "pixel_values"}
    found = model.get_image_features(given["pixel_values"], **more)
    found = found.pooler_output if hasattr(found, "pooler_output") else found
    count = sum(each.shape[:-1].numel() for each in (found if isinstance(found, (list, tuple)) else [found]))
    text = given["input_ids"]
    places = torch.full((len(text), count // len(text)), token)
    text = torch.cat((text[:, :4], places, text[:, 4:]), 1)
    as_text = {"input_ids": text, "labels": text, "attention_mask": torch.ones_like(text)}
    as_text = {name: value for name, value in as_text.items() if name in given}
    if "mm_token_type_ids" in inspect.signature(model.forward).parameters:
        as_text["mm_token_type_ids"] = (text == token).long()
    return {**given, **as_text}


def inputs(model: Any) -> dict[str, Any]:
    """Return a model's inputs, found by trial on the CPU."""
    names = inspect.signature(model.forward).parameters
    forms = {name: forms for name, forms in INPUTS.items() if name in names}
    if "input_ids" not in forms:
        forms.pop("attention_mask", None)
    if "pixel_values" in forms:
        forms.pop("pixel_values_videos", None)
    text = {name: forms for name, forms in forms.items() if not re.match("pixel|image|input_features", name)}
    errors: list[Exception] = []
    for some in (forms, text) if "input_ids" in forms else (forms,):
        for chosen in itertools.islice(itertools.product(*reversed(some.values())), 60):
            torch.manual_seed(1)
            try:
                made = {name: make(model.config) for name, make in zip(reversed(some), chosen, strict=True)}
                given = {name: value for name, value in made.items() if value is not None}
                with torch.no_grad():
                    given = with_pictures(model, given)
                    found = model(**given)
                if tensors(found):
                    return given
            except Exception as error:
                errors.append(error)
    texts = [*dict.fromkeys(f"{type(error).__name__}: {error}"[:200] for error in errors)]
    raise ValueError(" | ".join(texts[:4]) or "takes nothing known")


def class_of(name: str) -> str | None:
    """Return the class of models of a type to try."""
    mappings = [getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES") for task in TASKS]
    found = next((each[name] for each in (*mappings, modeling_auto.MODEL_MAPPING_NAMES) if name in each), None)
    return found if found is None or isinstance(found, str) else found[0]


def built(name: str) -> Any:
    """Build a small model of a type."""
    kind = getattr(transformers, class_of(name))
    config = small(CONFIG_MAPPING[name]())
    with torch.device("meta"):
        size = sum(each.numel() for each in kind(copy.deepcopy(config)).parameters())
    if size > LARGEST:
        raise ValueError(f"has {size:,} parameters")
    torch.manual_seed(0)
    model = kind(config).float().train()
    with torch.no_grad():  # routers begin with equal weights, whose experts are anyone's choice
        for each in model.parameters():
            if each.is_floating_point():
                each += 0.02 * torch.randn_like(each)
    return model


def trained(model: Any, given: dict[str, Any], device: str) -> dict[str, list[Any]]:
    """Return results, loss and gradients of a model, and its loss after a step."""
    model, given = copy.deepcopy(model).to(device), moved(given, device)
    step = torch.optim.AdamW(model.parameters(), 1e-3)
    transformers.set_seed(2)
    with SameNumbers():
        found = model(**given)
        loss = loss_of(found)
        loss.backward()
        results = {"results": tensors(found), "loss": [loss]}
        results["gradients"] = [None if each.grad is None else each.grad.clone() for each in model.parameters()]
        step.step()
        results["loss after a step"] = [loss_of(model(**given))]
    return tree_map(lambda leaf: leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf, results)


def generated(model: Any, given: dict[str, Any], device: str) -> dict[str, list[Any]]:
    """Return the tokens that a model generates."""
    model = copy.deepcopy(model).to(device).eval()
    given = {name: value for name, value in moved(given, device).items() if name not in ("labels", "decoder_input_ids")}
    model.generation_config.eos_token_id = None
    more = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    with SameNumbers():
        found = {beams: model.generate(**given, **more, num_beams=beams) for beams in (1, 2)}
    return {f"tokens of {beams} beams": [tensors(each)[0].cpu()] for beams, each in found.items()}


def autocast_loss(model: Any, given: dict[str, Any], device: str) -> float:
    with SameNumbers(), torch.autocast(device, torch.bfloat16):
        return loss_of(model.to(device)(**moved(given, device))).item()


def relative(one: Any, other: Any) -> float:
    """Return the largest error of a result, relative to its largest element."""
    if one is None or other is None or not one.numel():
        return 0.0
    return ((other.double() - one).abs().nan_to_num().max() / one.double().abs().max().clamp_min(1e-12)).item()


def difference(expected: dict[str, list[Any]], got: dict[str, list[Any]], exact: Any = None) -> str | None:
    """Describe differences; where exact results are known, those above ten times the CPU's errors."""
    for name, values in expected.items():
        own = 0.0 if exact is None else 10 * max(map(relative, values, exact[name]), default=0.0)
        numbers = [each for each in values if each is not None and each.is_floating_point() and each.numel()]
        floor = 1e-6 + 1e-5 * max((each.abs().max().item() for each in numbers), default=0.0)
        for number, (one, other) in enumerate(zip(values, got[name], strict=True)):
            if one is None or other is None:  # no gradient is one of zeros
                if one is not other and (one if other is None else other).count_nonzero():
                    return f"{name} {number}: there once"
            elif (one.shape, one.dtype) != (other.shape, other.dtype):
                return f"{name} {number}: {tuple(one.shape)} {one.dtype} and {tuple(other.shape)} {other.dtype}"
            elif one.numel():
                one, other = one.double(), other.double()
                largest = one[one.isfinite()].abs().max().item() if one.isfinite().any() else 0.0
                room = max(ROOM, own) * largest + floor
                if not torch.allclose(other, one, rtol=ROOM, atol=room, equal_nan=True):
                    return f"{name} {number}: by {(one - other).abs().nan_to_num().max().item():.3g} of {largest:.3g}"
    return None


def doubled(value: Any) -> Any:
    return tree_map(lambda leaf: leaf.double() if torch.is_tensor(leaf) and leaf.is_floating_point() else leaf, value)


def outcome(name: str, autocast: bool) -> tuple[str, str]:
    """Return whether a type's results agree, with its class and inputs, or the difference or error."""
    try:
        model = built(name)
        given = inputs(model)
        expected = trained(model, given, "cpu")
    except Exception as error:
        return "not made", f"{type(error).__name__} {error}"
    try:
        tokens = generated(model, given, "cpu") if model.can_generate() and not autocast else {}
    except Exception:  # not from what it is trained with
        tokens = {}
    label = f"{type(model).__name__}({', '.join(given)}){' generates' if tokens else ''}"
    try:
        if autocast:
            wanted, got = expected["loss"][0].item(), autocast_loss(model, given, "npu")
            agree = abs(wanted - got) <= 2.0**-5 * max(abs(wanted), 1.0)
            return "agrees" if agree else "differs", f"{label} loss {wanted:.4g} and {got:.4g}"
        found = trained(model, given, "npu")
        text = difference(expected, found)
        if text is not None:
            with contextlib.suppress(Exception):  # some compute in float32 only
                text = difference(expected, found, trained(copy.deepcopy(model).double(), doubled(given), "cpu"))
        text = text or (difference(tokens, generated(model, given, "npu")) if tokens else None)
    except Exception as error:
        return "rejected", f"{label} {type(error).__name__} {error}"
    return ("agrees", label) if text is None else ("differs", f"{label} {text}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", help="as model_type has them; none: all that have a class of their own")
    parser.add_argument("--autocast", action="store_true", help="only the loss, under autocast to bfloat16")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity(logging.CRITICAL)
    torch.set_num_threads(1)
    counts = Counter[str]()
    for name in chosen.types or filter(class_of, CONFIG_MAPPING.keys()):
        what, why = outcome(name, chosen.autocast)
        if what in ("differs", "rejected"):
            what += " for a reason" if name in KNOWN else " for none"
        counts[what] += 1
        print(f"{name}: {what} {' '.join(why.split())[:400]} {KNOWN.get(name, '')}", flush=True)
        gc.collect()
    print(f"{counts['agrees']} of {counts.total() - counts['not made']} models agree; {counts['not made']} not made")
    return 1 if any(what.endswith("for none") for what in counts) else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # no exit handlers of torch's
