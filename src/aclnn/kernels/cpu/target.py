"""The machine that kernels are compiled for: instruction set, caches and processors."""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path
from typing import Any

from aclnn.support import cgroups
from aclnn.support.env import SettingError

FLAVOURS = ("avx512", "avx2", "neon", "generic")


@cache
def identity(codegen: Any) -> tuple[str, str, str]:
    """Return the triple, processor and features that code is generated for.

    Asks LLVM once: its answers are garbage after its destructors have run, when exit handlers may still plan.
    """
    triple, processor, features = codegen.magic_tuple()
    return triple, processor, features


def _features(codegen: Any) -> tuple[str, set[str]]:
    triple, _, features = identity(codegen)
    return triple, {feature[1:] for feature in features.split(",") if feature.startswith("+")}


@cache
def _flavours(codegen: Any) -> tuple[str, ...]:
    """Return the ``FLAVOURS`` that a compilation's target supports, widest first."""
    triple, features = _features(codegen)
    if triple.startswith(("aarch64", "arm64")):
        return "neon", "generic"
    if "avx512f" in features:
        return "avx512", "avx2", "generic"
    return ("avx2", "generic") if "avx2" in features else ("generic",)


def requested(codegen: Any) -> str:
    """Return ``ACLNN_VECTOR``: auto, or the flavour to use instead of the widest, for tests.

    Raises:
        ValueError: an unknown word, or a flavour that this processor lacks.
    """
    word = os.environ.get("ACLNN_VECTOR") or "auto"
    choices = "auto", *_flavours(codegen)
    if word not in choices:
        where = " on this processor" if word in FLAVOURS else ""
        raise SettingError(f"ACLNN_VECTOR: expected {', '.join(choices)}{where}, got {word!r}")
    return word


def flavour(context: Any) -> str:
    """Return the widest flavour that a compilation's target supports, or the requested one."""
    codegen = context.codegen()
    word = requested(codegen)
    return _flavours(codegen)[0] if word == "auto" else word


def has_wide_registers() -> bool:
    """Return True if kernels compiled now use registers of 512 bits."""
    return flavour(host()) == "avx512"


@cache
def host() -> Any:
    """Return Numba's code generator, created while nothing is compiled.

    Compilation takes Numba's lock and then this attribute's, whose creation takes Numba's lock.
    """
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import cpu_target  # slow import

    with global_compiler_lock:
        return cpu_target.target_context


def converts_half(context: Any) -> bool:
    """Return True if float16 is converted by instructions (F16C, or any AArch64) rather than by library calls."""
    triple, features = _features(context.codegen())
    return requested(context.codegen()) != "generic" and ("f16c" in features or triple.startswith(("aarch64", "arm64")))


def permutes_words(context: Any) -> bool:
    """Return True if one instruction permutes the 16-bit elements of 512 bits."""
    return flavour(context) == "avx512" and "avx512bw" in _features(context.codegen())[1]


def rounds_bfloat16(context: Any) -> bool:
    """Return True if an instruction rounds float32 to bfloat16, flushing subnormal numbers."""
    return flavour(context) == "avx512" and "avx512bf16" in _features(context.codegen())[1]


def gathers_fast(context: Any) -> bool:
    """Return True if one gather instruction loads sixteen numbers faster than sixteen loads.

    Among the processors measured, these are Intel's with float16 arithmetic (docs/tuning.md).
    """
    return flavour(context) == "avx512" and "avx512fp16" in _features(context.codegen())[1]


DROP_PREFETCHES = ("znver1", "znver2", "znver3", "znver4")
"""Processors, by LLVM name, that silently drop prefetches into the second-level cache if too many are pending.

Measured on Zen 4; older ones are assumed to be alike, Zen 5 does not (docs/tuning.md).
"""


def drops_prefetches(context: Any) -> bool:
    """Return True for the processors of ``DROP_PREFETCHES``."""
    return identity(context.codegen())[1] in DROP_PREFETCHES


def _largest_cache() -> int:
    """Return the size of the largest cache of the first processor; 16 MiB if the system does not report it."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            size = path.read_text().strip()
            sizes.append(int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}[size[-1:]])
        except (OSError, ValueError, KeyError):
            continue
    return max(sizes, default=16 << 20)


def processors() -> int:
    """Return the number of processors that this process may use, within its control group's limit."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(count, math.ceil(cgroups.processors() or count)))


PROCESSOR_BYTES = 16 << 20
"""Assumed share of a processor in a shared cache, however large (docs/tuning.md)."""


def stream_bytes(largest_cache: int, count: int) -> int:
    """Return the minimum size of results for non-temporal stores, given the cache size and number of processors."""
    return max(4 << 20, min(largest_cache, PROCESSOR_BYTES * count) // 3)


STREAM_BYTES = stream_bytes(_largest_cache(), processors())
"""Minimum size of results for non-temporal stores: the cache cannot hold them together with two operands.

A machine's page in docs/benchmarks shows both sides of this threshold; results do not depend on it.
"""
