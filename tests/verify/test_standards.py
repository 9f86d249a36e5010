"""Each standard on hand-computed outputs just inside and just outside each of its limits."""

import math

import numpy as np
import pytest

from aclnn.verify.number_formats import FORMATS
from aclnn.verify.standards.measures import Block, Tally, Verdict
from aclnn.verify.standards.published import STANDARDS, cosine, ratio
from benchmarks.generators import commercial_l0, commercial_l1, mixed

TYPES = list(FORMATS)


def kind(dtype):
    return FORMATS[dtype].dtype.numpy.type


def array(values, dtype="float32"):
    return np.asarray(values, np.float64).astype(kind(dtype))


def outputs(count, dtype, golden, **changed):
    """Return ``count`` equal golden values and an output that differs at the first elements."""
    g = array(np.full(count, golden), dtype)
    a = g.copy()
    for value, times in changed.values():
        a[:times] = kind(dtype)(value)
        a = np.roll(a, times)
    return a, g


def compare(name, a, g, third=None):
    """Return a standard's outcome for whole arrays."""
    return STANDARDS[name].assess(STANDARDS[name].measure(Block(a, g, third)), FORMATS[str(g.dtype)])


def verdict(name, a, g, third=None):
    return compare(name, a, g, third).verdict


# Every number below is a sum of few powers of two, so that it is the same in all three types.
MIXED = {"float32": (10, 16), "float16": (9, 9), "bfloat16": (6, 6)}


@pytest.mark.parametrize("dtype", TYPES)
def test_mixed_has_a_tolerance_for_each_element(dtype):
    rtol, atol = MIXED[dtype]
    # At g = 0 the tolerance is atol, exactly representable; its upper neighbour is outside.
    inside = kind(dtype)(2.0**-atol)
    outside = np.nextafter(inside, kind(dtype)(1))
    for value, matched in ((inside, 1.0), (outside, 0.99), (-inside, 1.0), (-outside, 0.99)):
        a, g = outputs(100, dtype, 0.0, one=(value, 1))
        outcome = compare("mixed", a, g)
        assert outcome.figures[0].value == matched
        assert outcome.first == (None if matched == 1.0 else 1)
    # At g = 2^k it is atol + 2^(k - rtol): for float32 at g = 1 it lies between 2^-10 and 2^-10 + 2^-15.
    if dtype == "float32":
        for excess, matched in ((2.0**-16, 1.0), (2.0**-15, 0.99)):
            a, g = outputs(100, dtype, 1.0, one=(1 + 2.0**-rtol + excess, 1))
            assert compare("mixed", a, g).figures[0].value == matched


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("wrong", "expected"), [(10, Verdict.PASS), (11, Verdict.FAIL)])
def test_mixed_requires_a_matched_fraction(dtype, wrong, expected):
    off = {"float32": 2.0**-8, "float16": 2.0**-5, "bfloat16": 2.0**-2}[dtype]
    a, g = outputs(1000, dtype, 0.0, some=(off, wrong))
    assert verdict("mixed", a, g) is expected


@pytest.mark.parametrize(
    ("dtype", "golden", "inside", "outside"),
    [
        ("float32", 0.0, 0.0099, 0.0101),
        ("float16", 0.0, 0.0999, 0.1001),
        ("bfloat16", 0.0, 1.0, 1.0078125),
        ("bfloat16", 4.0, 5.0, 5.03125),
    ],
)
def test_mixed_limits_the_largest_error(dtype, golden, inside, outside):
    for value, expected in ((inside, Verdict.PASS), (outside, Verdict.FAIL)):
        a, g = outputs(1000, dtype, golden, one=(value, 1))
        outcome = compare("mixed", a, g)
        assert outcome.figures[0].value == 0.999
        assert outcome.verdict is expected


T = {"float32": 2.0**-13, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@pytest.mark.parametrize("dtype", TYPES)
def test_mere_passes_below_and_fails_above_its_limit(dtype):
    g = array([1.0, 1.0, 1.0, 1.0], dtype)
    for steps, expected in ((3, Verdict.PASS), (4, Verdict.FAIL)):
        # Each wrong element is off by just under T (|g| + 1e-7 makes RE smaller): 4 of 4 would be 1·T / 1.0000001.
        a = g.copy()
        a[:steps] = kind(dtype)(1 + T[dtype])
        outcome = compare("mere-mare", a, g)
        assert outcome.figures[0].value == pytest.approx(steps / 4 * T[dtype], rel=1e-6)
        assert outcome.figures[0].holds is (outcome.figures[0].value < T[dtype])
        if dtype == "float32":  # 4 steps: still below by the 1e-7; a little more is not
            a[0] = 1 + T[dtype] + 2.0**-20
            assert verdict("mere-mare", a, g) is expected


@pytest.mark.parametrize("dtype", TYPES)
def test_mare_passes_below_and_fails_above_its_limit(dtype):
    for factor, expected in ((10, Verdict.PASS), (11, Verdict.FAIL)):  # 10·T over 1.0000001 is just below 10·T
        a, g = outputs(1000, dtype, 1.0, one=(1 + factor * T[dtype], 1))
        outcome = compare("mere-mare", a, g)
        assert outcome.figures[0].holds
        assert outcome.verdict is expected
        assert outcome.worst == 1


def test_relative_error_has_its_constant():
    outcome = compare("mere-mare", array([1e-7]), array([0.0]))
    assert outcome.figures[1].value == pytest.approx(1.0, rel=1e-6)


LEVELS = {"commercial-L0": (10, 2, 2), "commercial-L1": (5, 1.5, 1.5), "commercial-L2": (2, 1.2, 1.2)}


@pytest.mark.parametrize("level", LEVELS)
def test_commercial_compares_ratios_with_the_reference(level):
    """The reference is off by 1 unit everywhere; the output by more units at one element, or at all."""
    mare, mere, rmse = LEVELS[level]
    g = array(np.ones(10_000))
    unit = 2.0**-20
    third = array(g + unit)

    def figures(a):
        return {figure.name: figure for figure in compare(level, a, g, third).figures}

    for factor, holds in ((mare - 0.125, True), (mare + 0.125, False)):
        a = g.copy()
        a[0] = 1 + factor * unit
        assert figures(a)["MARE ratio"].holds is holds
        assert figures(a)["MARE ratio"].value == pytest.approx(factor, rel=1e-6)
    inside, outside = {2: (1.875, 2.125), 1.5: (1.375, 1.625), 1.2: (1.125, 1.25)}[mere]
    for factor, holds in ((inside, True), (outside, False)):
        a = array(g + factor * unit)
        assert figures(a)["MERE ratio"].holds is holds
        assert figures(a)["RMSE ratio"].holds is holds
        assert figures(a)["RMSE ratio"].value == pytest.approx(factor, rel=1e-6)
    # RMSE apart from MERE: a tenth of the elements off by 4 units each, √(0.1·16) = 1.26; MERE 0.4.
    a = g.copy()
    a[::10] = 1 + 4 * unit
    assert figures(a)["RMSE ratio"].value == pytest.approx(math.sqrt(1.6), rel=1e-6)
    assert figures(a)["RMSE ratio"].holds is (rmse > 1.27)
    assert figures(a)["MERE ratio"].holds


SMALL = {"float32": (14, 30), "float16": (11, 16), "bfloat16": (8, 16)}


@pytest.mark.parametrize("dtype", TYPES)
def test_commercial_counts_small_values_separately(dtype):
    below, error = (2.0**-k for k in SMALL[dtype])
    inside_g = float(np.nextafter(kind(dtype)(below), kind(dtype)(0)))
    for golden, counted in ((inside_g, True), (below, False)):
        g = array(np.full(8, golden), dtype)
        third = g.copy()
        third[0] = kind(dtype)(golden + 2 * error) if dtype != "bfloat16" else kind(dtype)(golden * 1.25)
        for times, holds in ((2, True), (3, not counted)):
            a = g.copy()
            a[:times] = third[0]
            figures = {figure.name: figure for figure in compare("commercial-L0", a, g, third).figures}
            assert figures["small-value ratio"].value == (times if counted else 0)
            assert figures["small-value ratio"].holds is holds
    # Of an absolute error exactly at the limit nothing is counted; the next number is.
    g = array(np.zeros(4), dtype)
    for value, count in ((error, 0), (np.nextafter(kind(dtype)(error), kind(dtype)(1)), 1)):
        a = g.copy()
        a[0] = kind(dtype)(value)
        assert compare("commercial-L0", a, g, g).figures[3].value == count


def test_commercial_requires_equal_non_finite_values():
    inf, nan = math.inf, math.nan
    cases = [  # golden, third, test, wrong
        (inf, inf, inf, False), (inf, inf, 1.0, True), (inf, 1.0, 1.0, False), (inf, 1.0, inf, False),
        (inf, 1.0, 2.0, False), (nan, nan, nan, False), (nan, nan, 1.0, True), (nan, inf, nan, False),
        (1.0, inf, inf, False), (1.0, 1.0, inf, True), (1.0, 1.0, nan, True), (1.0, nan, 1.0, False),
        (inf, inf, -inf, True),
    ]  # fmt: skip
    for g, p, a, wrong in cases:
        outcome = compare("commercial-L2", array([a, 1.0]), array([g, 1.0]), array([p, 1.0]))
        assert outcome.figures[4].value == wrong, (g, p, a)
        assert outcome.verdict is (Verdict.FAIL if wrong else Verdict.PASS)


def test_a_ratio_with_a_zero_denominator_is_defined():
    assert ratio(0.0, 0.0) == 0.0
    assert ratio(1.0, 0.0) == math.inf
    assert ratio(3.0, 2.0) == 1.5


def test_classified_passes_with_mere_mare():
    a, g = outputs(1000, "float32", 1.0, one=(1 + 9 * 2.0**-13, 1))
    assert verdict("classified", a, g) is Verdict.PASS


CANCELLATION = {"float32": 2.0**-8, "float16": 2.0**-5, "bfloat16": 2.0**-3}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("klass", ["small", "cancellation", "normal"])
def test_classified_assigns_elements_to_classes(dtype, klass):
    small, border = 2.0 ** -SMALL[dtype][0], CANCELLATION[dtype]
    inside = {
        "small": (np.nextafter(kind(dtype)(small), kind(dtype)(0)), small / 2),
        "cancellation": (small, np.nextafter(kind(dtype)(border), kind(dtype)(0))),
        "normal": (border, 1.0),
    }[klass]
    for golden in inside:
        g = array(np.full(10, golden), dtype)
        native = g.copy()
        native[0] *= 2
        for times, expected in ((2, Verdict.PASS), (3, Verdict.FAIL)):
            a = g.copy()
            a[:times] *= 2
            outcome = compare("classified", a, g, native)
            assert outcome.verdict is expected, (golden, times)
            named = {figure.name: figure.value for figure in outcome.figures}
            assert named[f"{klass} points, ratio to native"] == times
    # Normal points that the native reference does not have fail at once; one or two small ones do not.
    g = array(np.full(10, inside[0]), dtype)
    a = g.copy()
    a[0] *= 2
    assert verdict("classified", a, g, g) is (Verdict.FAIL if klass == "normal" else Verdict.PASS)
    a[:3] = a[0]
    assert verdict("classified", a, g) is Verdict.UNDECIDED


def test_classified_points_are_beyond_ten_t():
    g = array(np.ones(1000))
    for factor, points in ((9.5, 0), (10.5, 2)):
        a = g.copy()
        a[:2] = 1 + factor * 2.0**-13
        a[2] = 2.0  # makes mere-mare fail, so that the classes decide
        named = {figure.name: figure.value for figure in compare("classified", a, g).figures}
        assert named["normal points beyond 10·T"] == points + 1


def test_classified_requires_matching_non_finite_values():
    g = array([1.0, np.nan, np.inf, FORMATS["float32"].largest])
    assert verdict("classified", g.copy(), g) is Verdict.PASS
    # A one-sided infinity counts as the largest value of the type.
    assert verdict("classified", array([1.0, np.nan, FORMATS["float32"].largest, np.inf]), g) is Verdict.PASS
    assert verdict("classified", array([np.inf, np.nan, np.inf, 1.0]), g, g) is Verdict.FAIL
    for wrong in ([np.nan, np.nan, np.inf, g[3]], [1.0, 1.0, np.inf, g[3]]):
        outcome = compare("classified", array(wrong), g, g)
        assert outcome.verdict is Verdict.FAIL
        assert outcome.figures[0].value == 1


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float16", 1e-3), ("bfloat16", 1e-3)])
def test_close_limits_the_number_of_wrong_elements(dtype, tolerance):
    count = round(10 / tolerance)
    off = {"float32": 2.0**-13, "float16": 2.0**-9, "bfloat16": 2.0**-7}[dtype]
    for wrong, expected in ((10, Verdict.PASS), (11, Verdict.FAIL)):
        a, g = outputs(count, dtype, 1.0, some=(1 + off, wrong))
        assert verdict("close", a, g) is expected
    # The relative tolerance of one element, between neighbours where the type has them.
    inside, outside = {
        "float32": (1 + 9.9e-5, 1 + 1.01e-4), "float16": (1 + 2.0**-10, 1 + 2.0**-9), "bfloat16": (1, 1 + 2.0**-7),
    }[dtype]  # fmt: skip
    for value, failing in ((inside, 0), (outside, 1)):
        a, g = outputs(4, dtype, 1.0, one=(value, 1))
        if dtype == "float16" and value == inside:  # 2^-10 = 9.8e-4 is inside 1e-3
            assert 2.0**-10 < 1e-3
        assert compare("close", a, g).figures[0].value == failing / 4
    # The absolute one.
    if dtype != "float16":
        for value, failing in ((0.99e-8, 0), (1.02e-8, 1)):
            a, g = outputs(4, dtype, 0.0, one=(value, 1))
            assert compare("close", a, g).figures[0].value == failing / 4


def test_single_limits_the_largest_error():
    for value, expected in ((0.00099, Verdict.PASS), (0.00101, Verdict.FAIL)):
        g = array(np.r_[1.0, np.full(99, 0.002)])
        a = g.copy()
        a[1:] += np.float32(value) * np.where(np.arange(99) % 2, 1, -1)
        assert verdict("msprobe-single", a, g) is expected


@pytest.mark.parametrize("dtype", TYPES)
def test_single_limits_shares_of_relative_errors(dtype):
    """Among 10,000 elements of 1, some have relative errors beyond 10^-k, and one an absolute error above 1e-3."""
    error_k, warning_k = (3, 4) if dtype == "float32" else (2, 3)
    count = 10**5
    beyond_error = 2.0**-9 if dtype == "float32" else 2.0**-6
    beyond_warning = 2.0**-12 if dtype == "float32" else {"float16": 2.0**-9, "bfloat16": 2.0**-7}[dtype]

    def verified(errors, warnings):
        g = array(np.ones(count), dtype)
        a = g.copy()
        a[:errors] = kind(dtype)(1 + beyond_error)
        a[errors : errors + warnings] = kind(dtype)(1 + beyond_warning)
        return compare("msprobe-single", a, g)

    error_limit, warning_limit = round(count * 10.0**-error_k), round(count * 10.0**-warning_k)
    assert verified(1, warning_limit - 2).verdict is Verdict.PASS
    assert verified(1, warning_limit - 1).verdict is Verdict.WARNING
    assert verified(error_limit - 1, 0).verdict is Verdict.WARNING
    assert verified(error_limit, 0).verdict is Verdict.FAIL


def test_single_requires_a_cosine_similarity():
    # cos of (1, t) with (1, 0) is 1/√(1 + t²): t = 0.14 gives 0.99034, t = 0.145 gives 0.98965.
    g = array([1000.0, 0.0])
    for t, similar in ((0.14, True), (0.145, False)):
        outcome = compare("msprobe-single", array([1000.0, 1000 * t]), g)
        assert outcome.figures[0].holds is similar
        assert outcome.figures[0].value == pytest.approx(1 / math.sqrt(1 + t * t), rel=1e-6)
    assert verdict("msprobe-single", array([-1e-4]), array([1e-4])) is Verdict.FAIL
    assert cosine(Tally({"aa": 0.0, "gg": 0.0, "ag": 0.0})) == 1.0
    assert cosine(Tally({"aa": 1.0, "gg": 0.0, "ag": 0.0})) == 0.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_ulp_limits_errors_of_16_bit_types(dtype):
    ulp = 2.0 ** (1 - FORMATS[dtype].digits)
    for wrong, expected in ((9, Verdict.PASS), (10, Verdict.FAIL)):
        a, g = outputs(10_000, dtype, 1.0, some=(1 + 2 * ulp, wrong))
        assert verdict("msprobe-ulp", a, g) is expected
    a, g = outputs(10_000, dtype, 1.0, all=(1 + ulp, 10_000))
    assert verdict("msprobe-ulp", a, g) is Verdict.PASS


def test_ulp_limits_errors_of_float32():
    ulp = 2.0**-23
    everywhere = array(np.ones(100))
    for off, share, expected in (
        (63, 100, Verdict.PASS),  # mean 63
        (64, 100, Verdict.FAIL),  # mean 64, all beyond 32
        (32, 100, Verdict.PASS),
        (100_000, 4, Verdict.PASS),  # mean 4,000 but only 4 % beyond 32
        (100_000, 5, Verdict.FAIL),
    ):
        a = everywhere.copy()
        a[:share] = 1 + off * ulp
        assert verdict("msprobe-ulp", a, everywhere) is expected, (off, share)


def test_bitwise_requires_equal_bits_and_any_nan():
    g = array([0.0, -0.0, np.nan, np.inf, 1.0])
    assert verdict("bitwise", g.copy(), g) is Verdict.PASS
    for at, value in ((0, -0.0), (1, 0.0), (3, -np.inf), (4, np.nextafter(np.float32(1), np.float32(2)))):
        a = g.copy()
        a[at] = value
        outcome = compare("bitwise", a, g)
        assert outcome.verdict is Verdict.FAIL
        assert (outcome.first, outcome.worst) == (at, at)


@pytest.mark.parametrize("name", [name for name, standard in STANDARDS.items() if name != "bitwise"])
@pytest.mark.parametrize("dtype", TYPES)
def test_not_finite_on_one_side_fails(name, dtype):
    g = array(np.linspace(0.5, 1, 500), dtype)
    third = array(np.linspace(0.5, 1, 500) * 1.01, dtype)
    agreed_g = g.copy()
    agreed_g[3:6] = kind(dtype)(np.inf), kind(dtype)(-np.inf), kind(dtype)(np.nan)
    third[3:6] = agreed_g[3:6]
    assert verdict(name, agreed_g.copy(), agreed_g, third) is Verdict.PASS
    a = agreed_g.copy()
    a[7:47] = kind(dtype)(np.nan)  # 8 %: more than any standard lets pass as outliers
    outcome = compare(name, a, agreed_g, third)
    assert outcome.verdict is Verdict.FAIL
    assert (outcome.first, outcome.worst) == (7, 7)


@pytest.mark.parametrize("name", STANDARDS)
def test_blocks_add_up(name):
    rng = np.random.default_rng(3)
    g = array(rng.normal(size=1000))
    a = array(g * (1 + 1e-3 * rng.normal(size=1000)))
    third = array(g * (1 + 1e-3 * rng.normal(size=1000)))
    standard = STANDARDS[name]
    whole = compare(name, a, g, third)
    tally = standard.measure(Block(a[:300], g[:300], third[:300], 0))
    tally.merge(standard.measure(Block(a[300:], g[300:], third[300:], 300)))
    parts = standard.assess(tally, FORMATS["float32"])
    assert (parts.verdict, parts.first, parts.worst) == (whole.verdict, whole.first, whole.worst)
    for one, other in zip(parts.figures, whole.figures, strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-12)


def test_an_empty_output_passes():
    empty = array([])
    for name in STANDARDS:
        assert verdict(name, empty, empty, empty) is Verdict.PASS


def test_generators_draw_the_specified_distributions():
    def kinds(generate, count):
        return [generate(seed, 20_000) for seed in range(count)]

    for values in kinds(mixed, 10)[::2] + kinds(commercial_l0, 10)[::2]:
        assert np.abs(values).max() <= 5
        assert np.abs(values.mean()) < 0.2
        assert values.std() == pytest.approx(10 / math.sqrt(12), rel=0.02)
    for values in kinds(mixed, 200)[1::2]:
        assert -5.1 <= values.mean() <= 5.1
        assert 0.09 <= values.std() <= 2.05
    wide = kinds(commercial_l0, 200)[1::2]
    assert max(abs(values.mean()) for values in wide) > 80
    assert all(abs(values.mean()) <= 101 and 0.9 <= values.std() <= 26 for values in wide)
    ten = kinds(commercial_l1, 10)
    assert np.abs(ten[0]).max() <= 0.001
    for values in ten[1:4]:
        assert 4.9 < np.abs(values).max() <= 5
    for values in ten[8:]:
        assert np.count_nonzero(np.abs(values) > 5) <= 20
        assert np.abs(values).max() > 1000
    assert np.count_nonzero(np.abs(commercial_l1(9, 7)) > 5) <= 1
    assert np.array_equal(mixed(3, 50), mixed(3, 50))
    assert not np.array_equal(mixed(3, 50), mixed(5, 50))
