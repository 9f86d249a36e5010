"""Golden values over rows against mpmath of 60 digits: an evaluation of the definitions that shares no code."""

import mpmath
import numpy as np
import pytest

import aclnn
from aclnn.core.products import set_soc_name
from aclnn.formula import exp, row_mean, sqrt
from aclnn.verify import check, golden
from aclnn.verify.cases.arguments import attributes_of, call_of, operator_named
from aclnn.verify.goldens.enclosures import Interval
from aclnn.verify.goldens.rows import source_of
from aclnn.verify.goldens.values import Function
from aclnn.verify.number_formats import FORMATS

ROWS, COLUMNS, EPS = 6, 37, 1e-5


def arrays(dtype, seed=3):
    """Return arguments whose x has rows that are constant, nearly constant, far from 0, and with a zero result."""
    rng = np.random.default_rng(seed)
    kind = FORMATS[dtype].dtype.numpy.type
    x = rng.normal(size=(ROWS, COLUMNS))
    x[1] = 3.0
    x[2] = 100.0 + 0.01 * x[2]
    x[3, :2] = 0.0
    x[4] *= 1e-4
    return x.astype(kind), rng.normal(size=COLUMNS).astype(kind), rng.normal(size=COLUMNS).astype(kind)


def exact(values):
    return [mpmath.mpf(float(value)) for value in np.asarray(values, np.float64).reshape(-1)]


def layer_norm_row(x, w, b, eps):
    mean = mpmath.fsum(x) / len(x)
    rstd = 1 / mpmath.sqrt(mpmath.fsum((v - mean) ** 2 for v in x) / len(x) + eps)
    return [(v - mean) * rstd * wj + bj for v, wj, bj in zip(x, w, b, strict=True)], mean, rstd


def rms_norm_row(x, w, eps):
    rstd = 1 / mpmath.sqrt(mpmath.fsum(v * v for v in x) / len(x) + eps)
    return [v * rstd * wj for v, wj in zip(x, w, strict=True)], rstd


def rms_norm_gradient_row(dy, x, rstd, w):
    normal, g = [v * rstd for v in x], [d * wj for d, wj in zip(dy, w, strict=True)]
    share = mpmath.fsum(a * b for a, b in zip(g, normal, strict=True)) / len(x)
    return [(a - n * share) * rstd for a, n in zip(g, normal, strict=True)], [
        d * n for d, n in zip(dy, normal, strict=True)
    ]


def expect_exact(found, values, dtype):
    """Check golden values: correctly rounded, and within 2**-8 ULP; for an exact 0, within float64's error."""
    target = FORMATS[dtype]
    for value, rounded, right in zip(
        found.value.reshape(-1).tolist(), found.rounded.reshape(-1).tolist(), values, strict=True
    ):
        nearest = float(right)
        if abs(nearest) < 1e-40:
            assert abs(value) < 1e-13
            continue
        assert abs(value - nearest) <= 2.0**-8 * target.ulp(np.array([nearest]))[0]
        assert rounded == target.round(np.array([nearest])).astype(np.float64)[0]


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(60):
        yield


@pytest.mark.parametrize("dtype", FORMATS)
def test_layer_norm_is_the_exact_result_rounded_once(dtype):
    x, w, b = arrays(dtype)
    found = golden("layer_norm", {"input": x, "weight": w, "bias": b}, normalized_shape=[COLUMNS], eps=EPS)
    rows = [layer_norm_row(exact(row), exact(w), exact(b), mpmath.mpf(EPS)) for row in x]
    expect_exact(found["out"], [value for row in rows for value in row[0]], dtype)
    expect_exact(found["mean"], [row[1] for row in rows], "float32")
    expect_exact(found["rstd"], [row[2] for row in rows], "float32")


def test_layer_norm_without_weight_and_bias_is_exact():
    x, _, _ = arrays("float32")
    found = golden("layer_norm", {"input": x.reshape(2, 3, COLUMNS)}, normalized_shape=[3, COLUMNS], eps=EPS)
    ones, zeros = exact(np.ones(3 * COLUMNS)), exact(np.zeros(3 * COLUMNS))
    rows = [layer_norm_row(exact(row), ones, zeros, mpmath.mpf(EPS)) for row in x.reshape(2, -1)]
    expect_exact(found["out"], [value for row in rows for value in row[0]], "float32")


def cancelling(rows):
    """Return LayerNorm's inputs and exact results, where cancellation with the bias exceeds float64's digits."""
    x = arrays("float32")[0][:1]
    weight = np.random.default_rng(4).normal(size=COLUMNS).astype(np.float32)
    normal = layer_norm_row(exact(x), exact(weight), [0] * COLUMNS, EPS)[0]
    bias = np.array([-float(v) for v in normal], np.float32)
    right = [float(np.float32(float(v + b))) for v, b in zip(normal, exact(bias), strict=True)]
    return {"input": np.repeat(x, rows, axis=0), "weight": weight, "bias": bias}, right


def test_elements_that_float64_leaves_undecided_are_settled_on_balls():
    inputs, right = cancelling(1)
    found = golden("layer_norm", inputs, normalized_shape=[COLUMNS], eps=EPS)["out"]
    assert found.rounded.reshape(-1).tolist() == right
    assert found.resolved > 0
    assert found.undecided == 0


def test_results_beyond_ball_arithmetic_are_reported_and_repeatable(monkeypatch):
    """Repeated questions get the same answer, and float64 values are never declared exact."""
    monkeypatch.setattr("aclnn.verify.goldens.rows._BALLS_AT_MOST", COLUMNS)
    inputs, right = cancelling(3)
    operator = operator_named("layer_norm")
    call = call_of(operator, inputs, attributes_of(operator, {"normalized_shape": [COLUMNS], "eps": EPS}))
    whole = source_of(call, inputs, "out", np.dtype(np.float32))
    first, again = whole.golden(slice(0, 3 * COLUMNS)), whole.golden(slice(0, 3 * COLUMNS))
    np.testing.assert_array_equal(again.value, first.value)
    np.testing.assert_array_equal(whole.golden(np.arange(0, 3 * COLUMNS, 5)).value, first.value[::5])
    assert (first.resolved, again.undecided) == (0, first.undecided)
    assert first.undecided > 2 * COLUMNS
    assert first.rounded[:COLUMNS].tolist() != right
    out = {"out": first.rounded.reshape(3, COLUMNS)}
    (output,) = check("layer_norm", inputs, out, normalized_shape=[COLUMNS], eps=EPS).data["cases"][0]["outputs"]
    assert output["golden"]["bound_ulp"] is None
    assert output["golden"]["undecided"] == first.undecided


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_mean_far_larger_than_the_spread_needs_no_balls(dtype):
    """3 × 131,073 elements around 10⁶ are decided without balls, which would not settle two of three rows."""
    x = (np.random.default_rng(5).normal(size=(3, COLUMNS)) + 2.0 ** FORMATS[dtype].digits / 16.0).astype(
        FORMATS[dtype].dtype.numpy
    )
    found = golden("layer_norm", {"input": x}, normalized_shape=[COLUMNS], eps=EPS)
    ones, zeros = exact(np.ones(COLUMNS)), exact(np.zeros(COLUMNS))
    rows = [layer_norm_row(exact(row), ones, zeros, mpmath.mpf(EPS)) for row in x]
    expect_exact(found["out"], [value for row in rows for value in row[0]], dtype)
    assert found["out"].resolved == 0


@pytest.mark.parametrize("dtype", FORMATS)
def test_rms_norm_and_its_gradients_are_exact(dtype):
    x, w, _ = arrays(dtype)
    found = golden("rms_norm", {"input": x, "weight": w}, eps=0.25)
    rows = [rms_norm_row(exact(row), exact(w), mpmath.mpf(0.25)) for row in x]
    expect_exact(found["out"], [value for row in rows for value in row[0]], dtype)
    expect_exact(found["rstd"], [row[1] for row in rows], "float32")
    dy = arrays(dtype, 4)[0]
    rstd = found["rstd"].rounded
    found = golden("rms_norm_grad", {"grad_out": dy, "input": x, "rstd": rstd, "weight": w})
    rows = [
        rms_norm_gradient_row(exact(d), exact(v), exact(r)[0], exact(w)) for d, v, r in zip(dy, x, rstd, strict=True)
    ]
    expect_exact(found["grad_input"], [value for row in rows for value in row[0]], dtype)
    sums = [mpmath.fsum(row[1][j] for row in rows) for j in range(COLUMNS)]
    expect_exact(found["grad_weight"], sums, "float32")


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_rows_along_any_dimension(dim):
    """Blocks and single elements agree, also for rows that are not contiguous."""
    x = np.random.default_rng(5).normal(size=(5, 6, 7)).astype(np.float32)
    call = call_of(operator_named("softmax"), {"self": x}, {"dim": dim})
    whole = source_of(call, {"self": x}, "out", x.dtype)
    rows = np.moveaxis(x, dim, 2)
    values = np.empty(rows.shape, object)
    for at in np.ndindex(rows.shape[:2]):
        powers = [mpmath.exp(value) for value in exact(rows[at])]
        values[at] = [power / mpmath.fsum(powers) for power in powers]
    values = np.moveaxis(values, 2, dim).reshape(-1).tolist()
    expect_exact(whole.block(0, x.size), values, "float32")
    some = np.array([190, 3, 77, 76])
    expect_exact(whole.golden(some), [values[i] for i in some], "float32")
    order = whole.row_by_row(np.arange(x.size))
    np.testing.assert_array_equal(order, np.moveaxis(np.arange(x.size).reshape(x.shape), dim, 2).reshape(-1))
    np.testing.assert_array_equal(whole.positions(order), np.arange(x.size))


def test_elements_of_many_rows_are_computed_some_rows_at_a_time():
    """A few wrong elements in each of 16,384 rows must not take 4 GB."""
    rng = np.random.default_rng(5)
    x, w = rng.normal(size=(3000, 128)).astype(np.float32), rng.normal(size=128).astype(np.float32)
    call = call_of(operator_named("rms_norm"), {"input": x, "weight": w}, {"eps": EPS})
    whole = source_of(call, {"input": x, "weight": w}, "yOut", x.dtype)
    some = np.sort(rng.choice(x.size, 5000, replace=False))
    assert max(operands["input"].size for _, _, operands, _ in whole.pieces(some)) <= 1 << 18
    every = slice(0, x.size)
    np.testing.assert_array_equal(whole.golden(some).value, whole.golden(every).value[some])
    np.testing.assert_array_equal(whole.sizes(some), whole.sizes(every)[some])
    for name, values in whole.operands(some).items():
        np.testing.assert_array_equal(values, whole.operands(every)[name][some])
    np.testing.assert_array_equal(whole.operands(some)["weight"], w[some % 128])


def test_inputs_of_unrequested_results_are_not_computed(monkeypatch):
    def failing(self):
        raise AssertionError("computed")

    def formula(x):
        return exp(x - row_mean(x)), 1.0 / sqrt(row_mean(x))

    monkeypatch.setattr(Interval, "exp", failing)
    x = np.arange(12.0).reshape(3, 4)
    found = Function(formula, result=1, results=2)(Interval(x, x))
    np.testing.assert_allclose(found.low[:, 0], 1.0 / np.sqrt(x.mean(axis=1)), rtol=1e-14)
    assert found.low.strides[-1] == found.high.strides[-1] == 0, "computed for each element of a row"
    with pytest.raises(AssertionError, match="computed"):
        Function(formula, result=0, results=2)(Interval(x, x))


def test_a_row_that_is_not_finite_follows_ieee_arithmetic():
    x, w, b = arrays("float32")
    x[0, 3], x[5, 0] = np.inf, np.nan
    found = golden("layer_norm", {"input": x, "weight": w, "bias": b}, normalized_shape=[COLUMNS], eps=EPS)
    assert np.isnan(found["out"].rounded[[0, 5]]).all()
    assert np.isfinite(found["out"].rounded[1:5]).all()
    np.testing.assert_array_equal(found["mean"].rounded.reshape(-1)[[0, 5]], [np.inf, np.nan])


def test_an_in_place_variant_is_verified_as_the_operator_that_it_is_a_variant_of():
    assert operator_named("inplace_sigmoid").name == "sigmoid"


EMPTY = {
    "layer_norm": ({"input": (3, 0), "weight": (0,), "bias": (0,)}, {"normalized_shape": [0]}),
    "add_layer_norm": ({"x1": (3, 0), "x2": (3, 0), "weight": (0,), "bias": (0,)}, {}),
    "group_norm": ({"input": (2, 4, 0)}, {"n": 2, "c": 4, "hxw": 0, "group": 2}),
    "group_norm_silu": ({"input": (2, 4, 0)}, {"group": 2}),
    "batch_norm": ({"input": (2, 4, 0)}, {"training": True}),
    "rms_norm_grad": ({"grad_out": (0, 5), "input": (0, 5), "rstd": (0, 1), "weight": (5,)}, {}),
}


@pytest.mark.parametrize("name", EMPTY)
def test_statistics_without_elements_are_the_operators(name):
    """Statistics of no elements, such as AddLayerNorm's mean and GroupNorm's rstd, equal the operators'."""
    set_soc_name("Ascend950DT_9571")
    shapes, attributes = EMPTY[name]
    inputs = {key: np.empty(shape, np.float32) for key, shape in shapes.items()}
    called = dict.fromkeys(p.python_name for p in operator_named(name).inputs) | inputs
    results = getattr(aclnn, name)(**called, **attributes)
    found = golden(name, inputs, **attributes)
    for got, expected in zip(results, found.values(), strict=True):
        np.testing.assert_array_equal(got, expected.rounded)
    assert check(name, inputs, results, **attributes).passed
