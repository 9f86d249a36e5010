"""The vector type: the same bits from every instruction set, exact conversions, machine code for other machines."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache
from typing import Any

import ml_dtypes
import numba
import numpy as np
import pytest

from aclnn.kernels.cpu import target
from aclnn.kernels.cpu.simd import memory, tables, vector
from tests.helpers.instruction_sets import EVERY_OTHER_SET, python

pytestmark = pytest.mark.slow

EVERYWHERE = "c88e69b110c083608b603ad4d53ff5d944c66f50477c5167d04955bbbb916d58"
"""Digest of the float32 gradients and forwards, equal on x86-64 and AArch64 (emulated).

It changes with a coefficient. 16-bit results also depend on the C library's functions.
"""


@cache
def digest(*arguments: str, **environment: str) -> str:
    return python("-m", "tests.helpers.vector_digest", *arguments, **environment).strip()


def test_float32_results_have_the_same_bits_on_every_machine() -> None:
    assert digest("9973", "float32") == EVERYWHERE


@EVERY_OTHER_SET
@pytest.mark.parametrize(
    "formula",
    [
        ["silu_derivative", "log_sigmoid_formula", "swi_glu_gradient"],
        pytest.param([], marks=pytest.mark.long),
    ],
    ids=["some", "every"],
)
def test_every_instruction_set_gives_the_same_bits(formula: list[str], elsewhere: dict[str, str]) -> None:
    assert digest("99991", *formula, **elsewhere) == digest("99991", *formula)


@pytest.mark.parametrize(
    ("flavour", "rejection"),
    [
        ("mmx", "ACLNN_VECTOR: expected auto, "),
        ("avx2" if platform.machine() in ("aarch64", "arm64") else "neon", "generic on this processor, got"),
    ],
)
def test_an_instruction_set_that_this_processor_lacks_is_rejected(flavour: str, rejection: str) -> None:
    """LLVM itself would abort the process when it selects another processor's instructions."""
    program = "import aclnn, numpy as np; aclnn.hardswish_backward(*np.ones((2, 1), np.float32))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | {"ACLNN_VECTOR": flavour}
    )
    assert done.returncode == 1
    assert rejection in done.stderr
    assert done.stderr.endswith(f"got {flavour!r}\n")


def test_a_large_cache_of_a_server_does_not_keep_large_results_out_of_memory() -> None:
    """Two processors get a small share of a server's 260 MiB: ordinary stores of 64 MiB took half as long again."""
    two, all_ = (target.stream_bytes(260 << 20, count) for count in (2, 64))
    assert two == target.stream_bytes(32 << 20, 2) < 16 << 20
    assert 64 << 20 < all_ < 130 << 20
    assert target.stream_bytes(1 << 20, 1) == 4 << 20


AVX512 = "+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx2,+fma,+f16c"


@cache
def counts(*machine: str) -> dict[str, dict[str, int]]:
    lines = python("-m", "tests.helpers.machine_code", *machine).splitlines()
    return {
        name: {mnemonic: int(count) for mnemonic, _, count in (word.partition("=") for word in words)}
        for name, *words in map(str.split, lines)
    }


def test_machine_code_for_aarch64() -> None:
    """Cross-compiled code has fused multiply-adds, table look-ups, half precision and paired non-temporal stores."""
    code = counts("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon")
    assert code["contiguous"]["fmla"] > 50
    assert code["contiguous"]["tbl"] >= 9 * 4
    assert code["contiguous"]["stnp"] > 0
    assert code["contiguous"]["prfm"] > 0
    assert code["table"]["fcvtl"] > 0
    assert "tbl" in code["exact"]


def test_machine_code_for_avx512() -> None:
    """Cross-compiled code has 512-bit registers, one permutation for each look-up, and scalar loads for tables."""
    code = counts("x86_64-unknown-linux-gnu", "skylake-avx512", AVX512)
    assert code["contiguous"]["zmm"] > 100
    assert code["contiguous"]["vpermps"] + code["contiguous"].get("vpermi2ps", 0) >= 9
    assert code["contiguous"]["vmovntps"] > 0
    assert code["table"]["vcvtph2ps"] > 0
    assert "vgatherdps" not in code["table"]


@pytest.mark.parametrize(("processor", "features"), [("skylake-avx512", AVX512), ("znver3", "+avx2,+fma,+f16c")])
def test_large_results_go_around_the_cache(processor: str, features: str) -> None:
    """LLVM may merge bfloat16's truncation with the store, which is then no longer non-temporal."""
    code = counts("x86_64-unknown-linux-gnu", processor, features)
    for kernel in ("contiguous", "table", "bfloat16"):
        assert sum(count for mnemonic, count in code[kernel].items() if mnemonic.startswith("vmovnt")) > 0


@pytest.mark.parametrize(
    ("processor", "features", "into", "not_into"),
    [
        ("skylake-avx512", AVX512, "prefetcht0", "prefetcht1"),
        pytest.param("haswell", "+avx2,+fma,+f16c", "prefetcht0", "prefetcht1", marks=pytest.mark.long),
        ("znver3", "+avx2,+fma,+f16c", "prefetcht1", "prefetcht0"),
        pytest.param("znver5", "+avx2,+fma,+f16c", "prefetcht0", "prefetcht1", marks=pytest.mark.long),
    ],
)
def test_memory_is_asked_for_into_the_first_level_where_no_request_is_dropped(
    processor: str, features: str, into: str, not_into: str
) -> None:
    """Only the instructions show which prefetch was chosen; results do not depend on it."""
    code = counts("x86_64-unknown-linux-gnu", processor, features)
    for kernel in ("contiguous", "near_float16", "near_bfloat16"):
        assert code[kernel].get(into, 0) > 0
        assert code[kernel].get(not_into, 0) == 0


def test_bfloat16_is_widened_by_one_permutation() -> None:
    """LLVM would replace the permutation by a widening and a shift if it recognized it."""
    assert counts("x86_64-unknown-linux-gnu", "skylake-avx512", AVX512)["bfloat16"]["vpermw"] > 0


@pytest.mark.parametrize("bfloat16", ["", pytest.param(",+avx512bf16", marks=pytest.mark.long)], ids=["", "avx512bf16"])
def test_wide_vectors_go_around_the_cache(bfloat16: str) -> None:
    """LLVM 22 has no non-temporal store for 512 bits of float16 or bfloat16, and would use ordinary ones."""
    code = counts("x86_64-unknown-linux-gnu", "skylake-avx512", AVX512 + bfloat16)
    for kernel in ("near_float16", "near_bfloat16"):  # two are those of single vectors
        assert sum(count for mnemonic, count in code[kernel].items() if mnemonic.startswith("vmovnt")) >= 4


KINDS = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def convert(kind: str, source: Any, result: Any, widen: bool) -> Any:
    load = getattr(memory, f"load_{kind if widen else 'float32'}")
    store = getattr(memory, f"store_{'float32' if widen else kind}")
    sizes = (2, 4) if widen else (4, 2)
    before, after = sizes

    @numba.njit
    def loop(start: int, to: int, count: int) -> None:
        for i in range(0, count, 16):
            store(to + i * after, load(start + i * before))

    loop(source.ctypes.data, result.ctypes.data, source.size)
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_widening_is_exact(kind: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(KINDS[kind])
    got = convert(kind, every, np.empty(every.size, np.float32), widen=True)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, every.astype(np.float32))
    assert (np.signbit(got) == np.signbit(every)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_narrowing_rounds_ties_to_even(kind: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(KINDS[kind]).astype(np.float32)
    every = every[~np.isnan(every)]
    ordered = np.sort(every[np.isfinite(every)])
    middles = ((ordered[1:].astype(np.float64) + ordered[:-1]) / 2).astype(np.float32)
    values = np.concatenate(
        [every, middles, np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, -middles)]
    )
    values = np.concatenate([values, [65519.99, 65520.0, 3.4e38, np.inf, np.nan, -np.nan]]).astype(np.float32)
    values = np.resize(values, -(-values.size // 16) * 16)
    got = convert(kind, values, np.empty(values.size, KINDS[kind]), widen=False)
    with np.errstate(over="ignore"):
        want = values.astype(KINDS[kind])
    np.testing.assert_array_equal(np.isnan(got), np.isnan(values))
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(got[numbers].view(np.uint16), want[numbers].view(np.uint16))


def test_generic_conversions_match_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "converts_half", lambda context: False)
    test_widening_is_exact("float16")
    test_narrowing_rounds_ties_to_even("float16")


def test_a_total_is_the_tree_of_halves() -> None:
    @numba.njit
    def total(address: int) -> float:
        return vector.total(memory.load_float32(address))

    rng = np.random.default_rng(0)
    for _ in range(50):
        values = (rng.normal(size=16) * 10.0 ** rng.integers(-6, 7, 16)).astype(np.float32)
        want = values
        while want.size > 1:
            want = want[: want.size // 2] + want[want.size // 2 :]
        assert total(values.ctypes.data) == want[0]


@pytest.mark.parametrize("kind", ["float32", *KINDS])
def test_parts_touch_only_their_lanes(kind: str) -> None:
    load, store = getattr(memory, f"load_{kind}_part"), getattr(memory, f"store_{kind}_part")

    @numba.njit
    def copy(source: int, to: int, count: int) -> None:
        store(to, load(source, count) + 1.0, count)

    dtype = KINDS.get(kind, np.dtype(np.float32))
    for count in range(17):
        source, to = np.arange(16).astype(dtype), np.full(20, 99).astype(dtype)
        copy(source.ctypes.data, to.ctypes.data, count)
        np.testing.assert_array_equal(to[:count].astype(float), np.arange(count) + 1.0)
        assert (to[count:].astype(float) == 99).all()


CHOICE = """
import numba, numpy as np
from aclnn.kernels.cpu.simd import memory

@numba.njit
def pack(source, places):
    values = memory.load_float32(source)
    chosen = values > 0.0
    memory.store_places(places, 7, chosen)
    return memory.count_lanes(chosen)

rng = np.random.default_rng(0)
for _ in range(200):
    values = np.where(rng.random(16) < rng.random(), 1, -1).astype(np.float32) * np.arange(1, 17, dtype=np.float32)
    places = np.full(20, 99, np.int32)
    count, want = pack(values.ctypes.data, places.ctypes.data), 7 + np.flatnonzero(values > 0)
    assert count == want.size and (places[:count] == want).all() and (places[16:] == 99).all()
"""


def test_positions_of_selected_lanes() -> None:
    python("-c", CHOICE)


@EVERY_OTHER_SET
def test_positions_of_selected_lanes_without_avx512(elsewhere: dict[str, str]) -> None:
    python("-c", CHOICE, **elsewhere)


def test_tables_have_8_16_or_32_entries() -> None:
    with pytest.raises(ValueError, match="table: entries: expected 8, 16 or 32, got 3"):
        tables.table(1.0, 2.0, 3.0)
