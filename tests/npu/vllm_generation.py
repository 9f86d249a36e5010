"""Tokens that vLLM generates through torch_npu, compared with those of transformers on the CPU.

Run with ``aclnn torch-npu run -m tests.npu.vllm_generation [--model qwen3] [--dtype bfloat16]``. The model is small and
has random weights; every sequence is generated greedily, in one batch with the others.
"""

from __future__ import annotations

import argparse
import os
import tempfile

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # one process: its output and errors are seen

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from vllm import LLM, SamplingParams

VOCABULARY, TOKENS = 256, 12
TIE = 0.05  # of the logits' standard deviation; types of 16 bits do not tell such tokens apart
PROMPTS = [5, 3, 40, 129]  # lengths; the last needs more than one page of keys


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama", help="a type of transformers, with Llama's options")
    parser.add_argument("--dtype", default="float16", choices=("float16", "bfloat16"))
    chosen = parser.parse_args()
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        chosen.model,
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=256,
        initializer_range=0.1,
        eos_token_id=None,
        architectures=[AutoModelForCausalLM._model_mapping[type(AutoConfig.for_model(chosen.model))].__name__],
    )
    model = AutoModelForCausalLM.from_config(config).to(getattr(torch, chosen.dtype))
    prompts = [torch.randint(VOCABULARY, (length,)).tolist() for length in PROMPTS]
    wanted = [
        model.generate(torch.tensor([each]), max_new_tokens=TOKENS, do_sample=False)[0, len(each) :].tolist()
        for each in prompts
    ]
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        server = LLM(
            folder,
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype=chosen.dtype,
            max_model_len=256,
            num_gpu_blocks_override=16,
            gpu_memory_utilization=0.1,
        )
    greedy = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False)
    results = server.generate([{"prompt_token_ids": each} for each in prompts], greedy)
    found = [list(each.outputs[0].token_ids) for each in results]
    same, gaps = 0, [0.0]
    for prompt, mine, cpus in zip(prompts, found, wanted, strict=True):
        first = next((at for at in range(TOKENS) if mine[at] != cpus[at]), TOKENS)
        same += first
        if first < TOKENS:
            logits = model.float()(torch.tensor([prompt + cpus[:first]])).logits[0, -1]
            gaps.append(abs(logits[cpus[first]] - logits[mine[first]]).item() / logits.std().item())
    print(
        f"{chosen.model}, {chosen.dtype}: {same} of {len(PROMPTS) * TOKENS} tokens are the CPU's until sequences part, "
        f"where logits in float32 differ by at most {max(gaps):.3f} of their standard deviation"
    )
    return int(max(gaps) > TIE)


if __name__ == "__main__":
    raise SystemExit(main())
