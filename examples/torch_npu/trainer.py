"""Train a small language model with Hugging Face's Trainer, on the CPU and on Huawei's torch_npu, and compare.

Run ``aclnn torch-npu run examples/torch_npu/trainer.py``, with transformers and accelerate installed. The script does
not depend on aclnn: Trainer selects the device itself.
"""

from __future__ import annotations

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

STEPS = 50


def train(use_cpu: bool) -> tuple[torch.device, list[float]]:
    """Train on arithmetic sequences of 24 numbers modulo 128; return the device and the loss of each step."""
    set_seed(0)
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=128, **shape, **heads))
    texts = (torch.arange(24) * torch.randint(1, 8, (512, 1)) + torch.randint(128, (512, 1))) % 128
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, use_cpu=use_cpu, max_steps=STEPS, per_device_train_batch_size=16, learning_rate=3e-3,
            warmup_steps=5, logging_steps=1, disable_tqdm=True, save_strategy="no", report_to="none",
        )  # fmt: skip
        trainer = Trainer(model, arguments, train_dataset=[{"input_ids": text, "labels": text} for text in texts])
        trainer.train()
    return arguments.device, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    torch.set_num_threads(1)
    (_, wanted), (device, losses) = train(use_cpu=True), train(use_cpu=False)
    for name, those in (("cpu", wanted), (str(device), losses)):
        print(f"{name}: loss {those[0]:.6f} to {those[-1]:.6f}")
    largest = max(abs(one - other) / one for one, other in zip(wanted, losses, strict=True))
    print(f"largest relative difference of {STEPS} losses {largest:.1e}")
