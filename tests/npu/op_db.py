"""PyTorch's own samples of each of its operators and layers, on the CPU and through torch_npu.

``aclnn torch-npu run [--soc-name NAME] -m tests.npu.op_db [OPERATOR …]`` in an environment that
tests/npu/environment.py made; ten minutes for all of them. What differs or is rejected is listed with its reason, first
what has none: exit status 1 where there is any.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch_npu  # noqa: F401  (it registers the device)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_leaves, tree_map

DTYPES = (
    *(torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool),
)
SAMPLES = 60
"""Maximum number of samples of an operator in a data type."""
#: Part of the largest element within which results agree: sums of rounded numbers have other orders.
ROOM = {torch.float16: 2.0**-8, torch.bfloat16: 2.0**-5, torch.float32: 2.0**-13, torch.float64: 2.0**-40}

#: Operators whose results are random numbers, memory as it is, or places of equal elements: shapes and types count.
ANY_VALUES = re.compile(
    r"(nn\.functional\.)?(alpha_|feature_alpha_|native_)?dropout[23]?d?(\.with_train)?|bernoulli|cauchy|empty\w*|argsort|"
    r"exponential|geometric|log_normal|multinomial|new_empty\w*|normal\S*|rand\w*|uniform|"
    r"nn\.functional\.(fractional_max_pool[23]d|rrelu)"
)
#: Operators whose second result is the place of one of several equal elements.
PLACES = re.compile(r"kthvalue|max_reduction\S*|median|min_reduction\S*|mode|msort|nanmedian|sort|topk")

#: Reasons for what is rejected, by the error's text.
REJECTED = {
    r"expected data type|expected a data type": "CANN documents other data types",
    r"aclnn(Addbmm|Gather|UnfoldGrad): \w+: expected [\w ]+ dimensions?": "CANN documents other shapes",
    r"broadcast of self and shiftBits": "CANN documents other shapes",
    r"expected a product with a kernel": "CANN documents the function for other products",
    r"memory_format|contiguous memory format|preserve_format is supported": "torch_npu has no such memory format",
    r"(logspace|Renorm) only support": "torch_npu takes float32 and float16",
    r"tensor_indices_or_sections to be on cpu": "PyTorch wants this argument on the CPU",
    r"cannot reshape tensor of 0 elements": "torch_npu multiplies no empty matrices of these shapes",
    r"eps: expected a number above 0": "CANN documents eps above 0",
    r"Expected a proper Tensor but got None": "torch_npu keeps nothing for gradients of layers in evaluation",
    r"DynamicRNN: w: expected shape|aclnnLSTM: params: expected \d+ tensors": "CANN's LSTM has no projections",
    r"lstm_cell do not have aclnn implementation": "torch_npu has no function for it on this product",
    r"elements of kernels beyond it": "CANN pads transposed volumes no further than their kernels reach",
    r"dilation: expected only 1": "CANN dilates windows of maxima on Ascend 950 only",
    r"is not differentiable with respect to": "torch_npu has no gradient for this argument",
}
#: Reasons by the operator's name, for what is rejected and what differs.
KNOWN = {
    r"(c?double|float_power|to)$": "torch_npu computes in float32 where float64 is asked for",
    r"\S*native_batch_norm\S*|native_layer_norm": "torch_npu keeps statistics of 16-bit tensors in float32",
    r"nn\.(functional\.)?gelu|nn\.Transformer\w*": "Atlas A2 approximates GELU by tanh",
    r"nn\.(functional\.)?(adaptive_?)?max_?pool\dd": "Atlas A2 has a mask for places, others int32",
    r"nn\.functional\.binary_cross_entropy_with_logits": "torch_npu gives no gradient of the target",
    r"nn\.KLDivLoss": "targets below 0 count for nothing",
    r"native_dropout_backward": "torch_npu's mask has bits",
    r"nn\.functional\.soft_margin_loss": "PyTorch's CPU overflows in float16",
    r"nn\.functional\.grid_sample|grid_sampler_\dd": "places between elements are rounded in other types",
    r"histc|linspace|_upsample_bilinear2d_aa": "places between integers are rounded in other types",
    r"cov|corrcoef": "rounding of what cancels",
    r"sinc|svd_lowrank|nn\.functional\.(normalize|\w+_norm|linear_cross_entropy\S*)": "rounding of what cancels",
    r"sparse\S*": "torch_npu has no sparse tensors",
}


class Layer:
    """A layer of ``torch.nn``, whose parameters a sample's first argument holds, as an operator of op_db."""

    variant_test_name, supports_autograd = "", True

    def __init__(self, info: Any) -> None:
        self.name, self._info = info.name, info

    def supported_dtypes(self, device: str) -> tuple[torch.dtype, ...]:
        return () if "Lazy" in self.name else (torch.float32,)

    def sample_inputs(self, device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[SampleInput]:
        for training in (True, False):
            make, facts = self._info.module_inputs_func, {"device": device, "dtype": dtype, "training": training}
            for given in make(self._info, requires_grad=requires_grad, **facts):
                built, called = given.constructor_input, given.forward_input
                if called is not None:
                    layer = self._info.module_cls(*built.args, **built.kwargs).to(device, dtype).train(training)
                    state = {**dict(layer.named_parameters()), **dict(layer.named_buffers())}
                    yield SampleInput(state, args=(layer, *called.args), kwargs=called.kwargs)

    def __call__(self, state: Mapping[str, Any], layer: Any, *args: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(layer, state, args, kwargs)


def moved(value: Any, device: str) -> Any:
    """Copy arguments to a device, which they also name."""

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().clone().to(device).requires_grad_(leaf.requires_grad)
        return torch.device(device) if isinstance(leaf, torch.device) else device if leaf == "cpu" else leaf

    return tree_map(move, value)


def computed(op: Any, sample: Any, device: str, gradients: bool) -> tuple[list[Any], list[Any]]:
    """Return an operator's results for a sample, and the gradients of its inputs."""
    given = moved((sample.input, sample.args, sample.kwargs), device)
    torch.manual_seed(1)
    found = op(given[0], *given[1], **given[2])
    if sample.output_process_fn_grad is not None:
        found = sample.output_process_fn_grad(found)
    results = [leaf for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor)]
    expected = [each for each in results if each.requires_grad and each.is_floating_point()] if gradients else []
    if not expected:
        return results, []
    taken = [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    numbers = torch.Generator().manual_seed(3)
    arriving = [torch.randn(each.shape, generator=numbers).to(each.dtype).to(device) for each in expected]
    return results, list(torch.autograd.grad(expected, taken, arriving, allow_unused=True))


def difference(expected: Any, got: Any, values: bool) -> str | None:
    """Describe how a result differs; None if it does not."""
    if expected is None or got is None:  # no gradient is one of zeros
        there = got if expected is None else expected
        return None if there is None or not there.count_nonzero() else "a gradient is there once"
    if (expected.shape, expected.dtype) != (got.shape, got.dtype):
        return f"{tuple(expected.shape)} {expected.dtype} and {tuple(got.shape)} {got.dtype}"
    if not values or not expected.numel():
        return None
    expected, got = expected.detach(), got.detach().cpu()
    if expected.dtype == torch.uint64:  # which PyTorch hardly computes
        expected, got = expected.view(torch.int64), got.view(torch.int64)
    if expected.is_complex():
        expected, got = torch.view_as_real(expected.resolve_conj()), torch.view_as_real(got.resolve_conj())
    size = expected.abs().double() if expected.dtype != torch.bool else expected.double()
    largest = size[size.isfinite()].max().item() if size.isfinite().any() else 0.0
    room = ROOM.get(expected.dtype, 0.0)
    if torch.allclose(got.double(), expected.double(), rtol=room, atol=room * largest, equal_nan=True):
        return None
    return f"values differ by {(got.double() - expected.double()).abs().max().item():.3g}"


def drops(name: str, sample: Any) -> bool:
    """Return true if attention drops some of its shares."""
    shares = sample.args[9] if name.endswith("multi_head_attention_forward") else sample.kwargs.get("dropout_p", 0)
    return bool(shares)


def outcomes(op: Any, name: str, dtype: torch.dtype) -> Iterator[str | None]:
    """Yield, for each sample that the CPU accepts, a description of the difference or error; None if results agree."""
    gradients = dtype == torch.float32 and op.supports_autograd
    for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=gradients)):
        if number == SAMPLES:
            return
        try:
            expected = computed(op, sample, "cpu", gradients)
        except Exception:
            continue
        try:
            got = computed(op, sample, "npu", gradients)
        except RuntimeError as error:
            yield f"rejected: {error}"
            continue
        results = [*zip(*expected[:1], *got[:1], strict=False), *zip(*expected[1:], *got[1:], strict=False)]
        exact = not (ANY_VALUES.fullmatch(name) or drops(name, sample))
        first = results[:1] if PLACES.fullmatch(name) else results
        yield next((text for pair in first if (text := difference(*pair, exact))), None)


def reason(name: str, text: str) -> str:
    """Return the known reason for an outcome, or an empty text."""
    by_text = [why for pattern, why in REJECTED.items() if text.startswith("rejected") and re.search(pattern, text)]
    return [*by_text, *(why for pattern, why in KNOWN.items() if re.fullmatch(pattern, name, re.I)), ""][0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*", help="names as in op_db and module_db; none: all")
    chosen = set(parser.parse_args().operators)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    counts, found = Counter[str](), defaultdict[str, dict[tuple[str, str], str]](dict)
    for op in (*op_db, *map(Layer, module_db)):
        name = ".".join(filter(None, (op.name, op.variant_test_name)))
        if chosen and op.name not in chosen:
            continue
        for dtype in DTYPES:
            if dtype not in op.supported_dtypes("cpu"):
                continue
            try:
                listed = [*outcomes(op, name, dtype)]
            except RuntimeError as error:  # sparse samples cannot be made
                listed = [f"rejected: {error}"]
            for text in listed:
                why = "" if text is None else reason(name, text)
                counts["agree" if text is None else why or "no reason"] += 1
                if text is not None:
                    found[why].setdefault((name, str(dtype).removeprefix("torch.")), text)
        if sys.stderr.isatty():
            print(f"\r{name:60}", end="", file=sys.stderr)
    for why in sorted(found):
        names = defaultdict[str, list[str]](list)
        for (name, dtype), text in found[why].items():
            names[name].append(dtype)
            if not why:
                print(f"{name} {dtype}: {' '.join(text.split())[:400]}")
        print(f"\n{why or 'no reason'}: {counts[why or 'no reason']} samples of")
        print("   ", "; ".join(f"{name} ({', '.join(dtypes)})" for name, dtypes in names.items()))
    print(f"\n{counts['agree']} of {sum(counts.values())} samples agree")
    return 1 if "" in found else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # no exit handlers of torch's
