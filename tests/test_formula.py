"""The vocabulary of formulas: on Python's floats, on balls and on lanes, whose bits are the same everywhere."""

from __future__ import annotations

import hashlib
import math
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from aclnn import formula
from aclnn.formula import Gradient, row_max, row_mean, row_sum, where
from aclnn.kernels import fitted
from aclnn.kernels.cpu.elementwise.functions import WORDS
from aclnn.kernels.cpu.jit import kernel, register_jitable
from aclnn.kernels.cpu.simd.doubles import load_doubles, store_doubles
from aclnn.kernels.trace import REDUCTIONS, trace
from tests.helpers.instruction_sets import EVERY_OTHER_SET, digest_elsewhere
from tools.functions import fitted_function

EVERYWHERE = "d59528dc8164165c38433cdcb0e129297405b5d82c570c9a03f6007057c7214e"


RANGES = {
    "exp": (-700.0, 700.0),
    "expm1": (-40.0, 40.0),
    "log": (0.0, 1e6),
    "log1p": (-0.99, 1e6),
    "log1pexp": (-700.0, 700.0),
    "tanh": (-30.0, 30.0),
    "sigmoid": (-600.0, 600.0),
    "erf": (-7.0, 7.0),
    "erfc": (-6.0, 26.0),
    "sqrt": (0.0, 1e6),
    "absolute": (-9.0, 9.0),
}
"""The words of one variable, and where they are tried."""

SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-300, -1e-300, 1.0, -1.0, -2.0, 720.0, -720.0, 1e-45, 5e300]


def lanes(word: Any, *arguments: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a function of float64 lanes as one of arrays with a multiple of sixteen elements."""
    arity = len(arguments)
    function = register_jitable(trace(word, arity).function(WORDS))

    def loop(x: int, y: int, out: int, count: int) -> None:
        for at in range(0, 8 * count, 128):
            if arity == 1:
                store_doubles(out + at, function(load_doubles(x + at)))
            else:
                store_doubles(out + at, function(load_doubles(x + at), load_doubles(y + at)))

    x, y = arguments[0], arguments[-1]
    out = np.full_like(x, np.nan)
    run = kernel(f"word-{word.__name__}", (trace(word, arity).digest,), lambda: loop)
    run(x.ctypes.data, y.ctypes.data, out.ctypes.data, x.size)
    return out


def sample(name: str, count: int = 4096) -> np.ndarray[Any, Any]:
    """Draw numbers of all magnitudes in a function's range."""
    rng = np.random.default_rng(1)
    low, high = RANGES[name]
    even = rng.uniform(low, high, count // 2)
    # Not by np.exp2, whose bits depend on the processor.
    small = np.ldexp(rng.uniform(1, 2, count // 2), rng.integers(-60, 3, count // 2)) * rng.choice([-1, 1], count // 2)
    return np.concatenate([even, np.clip(np.abs(small) if low == 0 else small, low, high)])


def digest() -> str:
    """Return a digest of the bits of all functions."""
    found = hashlib.sha256()
    for name in RANGES:
        values = lanes(getattr(formula, name), sample(name))
        found.update(np.where(np.isnan(values), 0.0, values).tobytes())
    return found.hexdigest()


def test_every_word_has_a_meaning_on_lanes() -> None:
    words = {name for name, value in vars(formula).items() if callable(value) and value.__module__ == formula.__name__}
    others = {"Gradient", "Fitted", "fitted", "Constant", "decimal", "times", "_apply", "_arithmetic"}
    of_rows = {*REDUCTIONS, "row_mean"}
    assert words - others == {*RANGES, "where", "minimum", "maximum"} | of_rows
    assert all(name == word.__name__ for name, word in WORDS.items() if name not in ("sqrt", "where"))  # of lanes


@pytest.mark.parametrize("name", RANGES)
def test_lanes_are_within_2e_minus_13_of_the_exact_value(name: str) -> None:
    word, x = getattr(formula, name), sample(name)
    with ctx.workprec(300):
        for at, got in zip(x.tolist(), lanes(word, x).tolist(), strict=True):
            exact = word(arb(at))
            assert abs(arb(got) - exact) <= abs(exact) * 2e-13, at


@pytest.mark.parametrize("name", RANGES)
def test_special_numbers_give_on_lanes_what_they_give_on_floats(name: str) -> None:
    word, x = getattr(formula, name), np.array([*SPECIAL, 2.0, 3.0])
    for at, got in zip(x.tolist(), lanes(word, x).tolist(), strict=True):
        expected = word(at)
        if name == "log" and 0 < abs(at) < 1e-307:
            continue
        assert math.isnan(got) == math.isnan(expected), at
        assert math.isnan(expected) or math.isclose(got, expected, rel_tol=1e-12, abs_tol=1e-307), (at, got, expected)
        assert math.isnan(expected) or math.copysign(1, got) == math.copysign(1, expected), (at, got, expected)


@pytest.mark.parametrize("word", [formula.minimum, formula.maximum], ids=["minimum", "maximum"])
def test_the_smaller_and_the_larger_match_numpy(word: Any) -> None:
    x, y = (grid.reshape(-1) for grid in np.meshgrid(np.array([*SPECIAL, 2.0, 3.0]), np.array([*SPECIAL, 2.0, 3.0])))
    expected = getattr(np, word.__name__)(x, y)
    np.testing.assert_array_equal(lanes(word, x, y), expected)
    np.testing.assert_array_equal([word(*pair) for pair in zip(x.tolist(), y.tolist(), strict=True)], expected)


@given(st.floats(), st.sampled_from(sorted(RANGES)))
def test_no_word_raises_on_a_float(x: float, name: str) -> None:
    value = getattr(formula, name)(x)
    assert isinstance(value, float)
    assert math.isnan(value) or not math.isnan(x)


def test_the_logarithms_have_a_pole() -> None:
    assert formula.log(0.0) == formula.log1p(-1.0) == -math.inf
    assert math.isnan(formula.log(-1.0))
    assert math.isnan(formula.log1p(-2.0))
    assert math.isnan(formula.sqrt(-1.0))


def test_bits_match_every_processor() -> None:
    assert digest() == EVERYWHERE


@EVERY_OTHER_SET
def test_bits_are_the_same_with_other_instructions(elsewhere: dict[str, str]) -> None:
    assert digest_elsewhere("tests.test_formula", elsewhere) == EVERYWHERE


def _outer(x: float) -> float:
    return _inner(x) + 1.0


def _inner(x: float) -> float:
    return 2.0 * x


def test_digests_differ_if_functions_compute_different_values(monkeypatch: pytest.MonkeyPatch) -> None:
    before = trace(_outer, 1).digest, trace(Gradient(_outer), 2).digest
    assert len({*before, trace(_inner, 1).digest}) == 3
    assert trace(lambda y: 2.0 * y + 1, 1).digest == before[0]
    monkeypatch.setitem(globals(), "_inner", lambda x: 3.0 * x)
    trace.cache_clear()
    assert trace(_outer, 1).digest != before[0]
    assert trace(Gradient(_outer), 2).digest != before[1]


def test_a_digest_is_the_same_with_every_python() -> None:
    """Fitted versions are identified by their function's digest."""
    source = (
        "def formula(x0, x1):\n    t0 = x0 * x1\n    t1 = t0 < inf\n    t2 = where(t1, t0, -0.0)\n    return t2, t0\n"
    )
    program = trace(lambda dy, x: (where(dy * x < math.inf, dy * x, -0.0), dy * x), 2)
    assert program.source == source
    assert (program.arity, program.results) == (2, ("t2", "t0"))
    assert program.digest == hashlib.sha256(source.encode()).hexdigest()


@pytest.mark.parametrize("formula", [lambda x: x if x > 0 else -x, math.exp])
def test_functions_that_are_not_formulas_are_rejected_by_name(formula: Any) -> None:
    with pytest.raises(TypeError, match=f"formula {formula.__name__}: expected"):
        trace(formula, 1)


@pytest.mark.parametrize("name", sorted(name for _, name, _ in iter_modules(fitted.__path__)))
def test_fitted_versions_match_their_functions(name: str) -> None:
    function = fitted_function(name)
    module = fitted.module_of(function)
    assert module is not None
    assert trace(function, 1).digest == module.DIGEST, f"fit it anew: python -m tools.fit {name}"


def test_a_row_is_one_element_of_floats_and_a_reduction_of_a_program() -> None:
    def centred(x: Any) -> Any:
        return x - row_mean(x), row_max(x) + row_sum(x)

    assert centred(3.0) == (0.0, 6.0)
    source = (
        "def formula(x0):\n    t0 = row_sum(x0)\n    t1 = t0 / columns\n    t2 = x0 - t1\n"
        "    t3 = row_max(x0)\n    t4 = t3 + t0\n    return t2, t4\n"
    )
    assert trace(centred, 1).source == source
