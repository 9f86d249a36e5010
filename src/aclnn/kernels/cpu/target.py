"""The machine that kernels are compiled for: its instructions, cache and processors."""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path
from typing import Any

from aclnn.support import cgroups
from aclnn.support.env import SettingError

FLAVOURS = ("avx512", "avx2", "neon", "generic")


def _features(codegen: Any) -> tuple[str, set[str]]:
    triple, _, features = codegen.magic_tuple()
    return triple, {feature[1:] for feature in features.split(",") if feature.startswith("+")}


def _flavours(codegen: Any) -> tuple[str, ...]:
    """Return those of ``FLAVOURS`` that the target of a compilation has, the widest first."""
    triple, features = _features(codegen)
    if triple.startswith(("aarch64", "arm64")):
        return "neon", "generic"
    if "avx512f" in features:
        return "avx512", "avx2", "generic"
    return ("avx2", "generic") if "avx2" in features else ("generic",)


def requested(codegen: Any) -> str:
    """``ACLNN_VECTOR``: auto, or a flavour to be used instead of the widest, for tests.

    Raises:
        ValueError: another word, or a flavour that this processor lacks.
    """
    word = os.environ.get("ACLNN_VECTOR") or "auto"
    choices = "auto", *_flavours(codegen)
    if word not in choices:
        where = " on this processor" if word in FLAVOURS else ""
        raise SettingError(f"ACLNN_VECTOR: expected {', '.join(choices)}{where}, got {word!r}")
    return word


def flavour(context: Any) -> str:
    """The widest flavour that the target of a compilation has, or the requested one."""
    codegen = context.codegen()
    word = requested(codegen)
    return _flavours(codegen)[0] if word == "auto" else word


def has_wide_registers() -> bool:
    """True when kernels that are compiled now have registers of 512 bits."""
    return flavour(host()) == "avx512"


@cache
def host() -> Any:
    """Return what Numba compiles for, made while nothing is compiled.

    Compiling takes Numba's lock first and then that of this attribute, which takes Numba's lock when it is made.
    """
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import cpu_target  # takes time to import

    with global_compiler_lock:
        return cpu_target.target_context


def converts_half(context: Any) -> bool:
    """True when float16 is converted by instructions (F16C, or any AArch64) rather than by library calls."""
    triple, features = _features(context.codegen())
    return requested(context.codegen()) != "generic" and ("f16c" in features or triple.startswith(("aarch64", "arm64")))


def permutes_words(context: Any) -> bool:
    """True when one instruction puts sixteen bits anywhere in 512."""
    return flavour(context) == "avx512" and "avx512bw" in _features(context.codegen())[1]


def rounds_bfloat16(context: Any) -> bool:
    """True when an instruction rounds float32 to bfloat16, making zeros of numbers below the normal ones."""
    return flavour(context) == "avx512" and "avx512bf16" in _features(context.codegen())[1]


def gathers_fast(context: Any) -> bool:
    """True when one instruction loads sixteen numbers from anywhere sooner than sixteen do.

    Of the processors measured, Intel's with float16 arithmetic (docs/tuning.md).
    """
    return flavour(context) == "avx512" and "avx512fp16" in _features(context.codegen())[1]


DROP_PREFETCHES = ("znver1", "znver2", "znver3", "znver4")
"""Processors, as LLVM names them, that silently drop requests for the second-level cache while there are too many.

Measured on Zen 4; older ones are taken to be alike, Zen 5 is not (docs/tuning.md).
"""


def drops_prefetches(context: Any) -> bool:
    """True on the processors of ``DROP_PREFETCHES``."""
    return context.codegen().magic_tuple()[1] in DROP_PREFETCHES


def _largest_cache() -> int:
    """Bytes of the largest cache that the first processor reaches; 16 MiB where the system does not say."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            size = path.read_text().strip()
            sizes.append(int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}[size[-1:]])
        except (OSError, ValueError, KeyError):
            continue
    return max(sizes, default=16 << 20)


def processors() -> int:
    """Return the number of processors this process may run on; no more than its control group gives it the time of."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(count, math.ceil(cgroups.processors() or count)))


PROCESSOR_BYTES = 16 << 20
"""A processor's part of a cache that it shares, however large that is (docs/tuning.md)."""


def stream_bytes(largest_cache: int, count: int) -> int:
    """Return the least size of results written around the cache, from its size and the number of processors."""
    return max(4 << 20, min(largest_cache, PROCESSOR_BYTES * count) // 3)


STREAM_BYTES = stream_bytes(_largest_cache(), processors())
"""Results at least this large are written around the cache, which cannot hold them and two operands as well.

A machine's page in docs/benchmarks shows both sides of the switch; no result depends on it.
"""
