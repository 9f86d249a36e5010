"""Short trainings by libraries that run on PyTorch, on the CPU and through torch_npu.

``aclnn torch-npu run [--soc-name NAME] -m tests.npu.libraries [NAME …]`` in an environment that
tests/npu/environment.py made, with ``PACKAGES`` added; what is not installed is left out. Losses, gradients and results
from the same weights and data are compared. Exit status 1 where one differs or is rejected.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch_npu  # noqa: F401  (it registers the device)
from torch import nn
from torch.nn import functional as F  # noqa: N812

PACKAGES = (
    "--no-deps e3nn opt_einsum opt_einsum_fx fair-esm kornia kornia_rs monai openai-whisper tiktoken regex "
    "more_itertools tqdm open_clip_torch ftfy wcwidth timm huggingface_hub safetensors torchdiffeq scipy torchmetrics "
    "lightning-utilities"
)
"""``open_clip_torch`` wants PyTorch's CPU build of torchvision too."""
ROOM, ROOM_OF_GELU = 1e-5, 5e-3
"""Part of a tensor's largest element within which it agrees; where Atlas A2 has GELU by tanh."""


def trained(device: str, network: nn.Module, data: Sequence[torch.Tensor], loss: Callable[..., Any]) -> list[Any]:
    """The losses of three steps of AdamW, and the gradients of the first."""
    network, data = network.to(device).train(), [each.to(device) for each in data]
    adam, found = torch.optim.AdamW(network.parameters(), 1e-3), []
    for step in range(3):
        adam.zero_grad()
        value = loss(network, *data)
        value.backward()
        if step == 0:
            found += [torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])]
        adam.step()
        found.append(value.detach())
    return found


def of_e3nn(device: str) -> list[Any]:
    from e3nn import o3

    kind = o3.Irreps("8x0e+4x1o+2x2e")
    product = o3.FullyConnectedTensorProduct(kind, "1x0e+1x1o+1x2e", kind)
    harmonics = o3.spherical_harmonics([0, 1, 2, 3], torch.randn(10, 3).to(device), True)
    data = torch.randn(20, kind.dim), torch.randn(20, 9)
    return [harmonics, *trained(device, product, data, lambda net, x, y: net(x, y).square().mean())]


def of_esm(device: str) -> list[Any]:
    from esm.data import Alphabet
    from esm.model.esm2 import ESM2

    letters = Alphabet.from_architecture("ESM-1b")
    tokens = letters.get_batch_converter()([("", "MKTVRQERLKSIVRILERSK"), ("", "KALTARQQEVFDLIRD<mask>ISQTG")])[2]
    network = ESM2(num_layers=2, embed_dim=40, attention_heads=4, alphabet=letters)
    losses = trained(
        device, network, [tokens], lambda net, x: F.cross_entropy(net(x)["logits"].flatten(0, 1), x.flatten())
    )
    with torch.no_grad():
        return [*losses, network.eval()(tokens.to(device), return_contacts=True)["contacts"]]


def of_kornia(device: str) -> list[Any]:
    from kornia import color, enhance, feature, filters, geometry, morphology

    images = torch.rand(2, 3, 32, 40).to(device)
    turned = geometry.rotate(images, torch.tensor([30.0, 10.0]).to(device))
    return [
        color.lab_to_rgb(color.rgb_to_lab(turned)),
        enhance.equalize_clahe(images),
        feature.harris_response(images),
        filters.bilateral_blur(filters.median_blur(images, (3, 3)), (3, 3), 0.1, (1.5, 1.5)),
        morphology.opening(images, torch.ones(3, 3).to(device)),
    ]


def of_monai(device: str) -> list[Any]:
    from monai.inferers import sliding_window_inference
    from monai.losses import DiceCELoss
    from monai.metrics import HausdorffDistanceMetric
    from monai.networks.nets import UNet

    expected = DiceCELoss(to_onehot_y=True, softmax=True)
    network = UNet(3, 1, 3, (8, 16, 32), (2, 2), num_res_units=1)
    volumes, classes = torch.randn(1, 1, 32, 32, 32), torch.randint(3, (1, 1, 32, 32, 32))
    losses = trained(device, network, (volumes, classes), lambda net, x, y: expected(net(x), y))
    with torch.no_grad():
        whole = sliding_window_inference(volumes.to(device), (24,) * 3, 2, network.eval(), mode="gaussian")
    masks = (F.one_hot(each[:, 0], 3).movedim(-1, 1).to(device) for each in (classes, classes.flip(2)))
    return [*losses, whole, HausdorffDistanceMetric()(*masks)]


def of_open_clip(device: str) -> list[Any]:
    from open_clip import CLIP
    from open_clip.loss import ClipLoss

    image = {"layers": 2, "width": 64, "head_width": 16, "patch_size": 8, "image_size": 32}
    text = {"context_length": 16, "vocab_size": 100, "width": 64, "heads": 4, "layers": 2}
    tokens = torch.randint(1, 99, (6, 16))
    tokens[:, -1] = 99
    expected = ClipLoss()
    data = torch.randn(6, 3, 32, 32), tokens
    return trained(device, CLIP(32, image, text), data, lambda net, x, y: expected(*net(x, y)))


def of_torchdiffeq(device: str) -> list[Any]:
    from torchdiffeq import odeint_adjoint

    class Slope(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

        def forward(self, at: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.inner(y**3)

    def loss(slope: nn.Module, first: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        return (odeint_adjoint(slope, first, times, method="rk4") - 1).abs().mean()

    return trained(device, Slope(), (torch.tensor([[2.0, 0.0], [1.0, 1.0]]), torch.linspace(0, 1, 7)), loss)


def of_torchmetrics(device: str) -> list[Any]:
    from torchmetrics import audio, classification, image, regression, retrieval

    scores, classes = torch.randn(60, 5).softmax(1).to(device), torch.randint(5, (60,)).to(device)
    first, second = torch.rand(2, 60).to(device)
    relevant, queries = torch.randint(2, (60,)).to(device), torch.randint(6, (60,)).to(device)
    images = torch.rand(2, 3, 48, 48).to(device)
    found = [
        *(getattr(classification, f"Multiclass{name}")(5).to(device)(scores, classes) for name in _OF_CLASSES),
        *(getattr(regression, name)().to(device)(first, second) for name in _OF_NUMBERS),
        image.StructuralSimilarityIndexMeasure(data_range=1.0).to(device)(images, images * 0.8 + 0.1),
        audio.SignalDistortionRatio(filter_length=8).to(device)(first, second),
        retrieval.RetrievalNormalizedDCG().to(device)(first, relevant, indexes=queries),
    ]
    return [*found, *classification.BinaryROC().to(device)(first, relevant)]


_OF_CLASSES = (
    "Accuracy",
    "AUROC",
    "AveragePrecision",
    "CalibrationError",
    "ConfusionMatrix",
    "F1Score",
    "JaccardIndex",
)
_OF_NUMBERS = ("R2Score", "PearsonCorrCoef", "SpearmanCorrCoef", "KendallRankCorrCoef", "MeanAbsolutePercentageError")


def of_whisper(device: str) -> list[Any]:
    import whisper

    sizes = {"n_audio_ctx": 1500, "n_audio_state": 64, "n_audio_head": 4, "n_audio_layer": 2, "n_vocab": 51865}
    texts = {"n_text_ctx": 448, "n_text_state": 64, "n_text_head": 4, "n_text_layer": 2}
    network = whisper.model.Whisper(whisper.model.ModelDimensions(n_mels=80, **sizes, **texts))
    nn.init.normal_(network.decoder.positional_embedding, std=0.1)
    sound, tokens = torch.randn(64000), torch.randint(50000, (1, 20))
    spectrum = whisper.log_mel_spectrogram(sound.to(device))
    padded = whisper.pad_or_trim(whisper.log_mel_spectrogram(sound), 3000)[None]

    def loss(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(net(x, y)[0, :-1], y[0, 1:])

    losses = trained(device, network, (padded, tokens), loss)
    options = whisper.DecodingOptions(fp16=False, language="en", sample_len=20)
    text = network.eval().decode(padded[0].to(device), options)
    return [spectrum, *losses, torch.tensor(text.tokens), torch.tensor(text.avg_logprob)]


LIBRARIES = {
    each.__name__.removeprefix("of_"): each
    for each in (of_e3nn, of_esm, of_kornia, of_monai, of_open_clip, of_torchdiffeq, of_torchmetrics, of_whisper)
}
#: Those whose models have GELU.
WITH_GELU = ("open_clip", "whisper")


def distance(wanted: torch.Tensor, got: torch.Tensor) -> float:
    """Return the largest difference, relative to the largest element."""
    wanted, got = wanted.detach().cpu().double(), got.detach().cpu().double()
    finite = wanted.isfinite()
    if wanted.shape != got.shape or not torch.equal(finite, got.isfinite()):
        return float("inf")
    return ((wanted - got)[finite].abs().max() / wanted[finite].abs().max().clamp_min(1e-30)).item()


def outcome(name: str) -> str:
    """Say how a library's results differ; "agrees" within the room."""
    results = []
    for device in ("cpu", "npu"):
        torch.manual_seed(0)
        try:
            results.append(LIBRARIES[name](device))
        except ImportError as error:
            return f"left out: {error}"
        except Exception as error:
            return f"rejected: {device}: {error}"
    largest = max(map(distance, *results))
    by_tanh = name in WITH_GELU and "950" not in torch.npu.get_device_name(0)
    return f"{'agrees' if largest < (ROOM_OF_GELU if by_tanh else ROOM) else 'differs'}: by {largest:.1e}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="libraries; none: all")
    chosen = parser.parse_args().names or LIBRARIES
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    counts = Counter[str]()
    for name in chosen:
        text = outcome(name)
        counts[text.partition(":")[0]] += 1
        print(f"{name}: {' '.join(text.split())[:300]}", flush=True)
    print(f"{counts['agrees']} of {counts.total()} libraries agree; pip install {PACKAGES}")
    return 1 if counts["differs"] or counts["rejected"] else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # no exit handlers of torch's
