"""Each known fault, planted on at least 10⁵ elements, is named; sound outputs have no cause."""

import math

import ml_dtypes
import numpy as np
import pytest

import aclnn
from aclnn.verify.cases.case import make_case
from aclnn.verify.diagnosis import evidence
from aclnn.verify.diagnosis.diagnose import diagnose
from aclnn.verify.goldens.values import golden
from aclnn.verify.implementations import implementations, literal
from aclnn.verify.number_formats import FORMATS
from aclnn.verify.standards.evaluate import evaluate

ROWS, COLUMNS = 320, 330
SIZE = ROWS * COLUMNS
TYPES = ["float32", "float16", "bfloat16"]
SHORT_AND_LONG = ["float32", pytest.param("float16", marks=pytest.mark.long), "bfloat16"]


def numpy_type(name):
    return FORMATS[name].dtype.numpy.type


def inputs_of(dtype, low=-5.0, high=5.0, seed=1, ones=False):
    rng = np.random.default_rng(seed)
    x = rng.uniform(low, high, (ROWS, COLUMNS)).astype(numpy_type(dtype))
    dy = np.ones_like(x) if ones else rng.normal(size=(ROWS, COLUMNS)).astype(numpy_type(dtype))
    return {"grad_output": dy, "self": x}


def exact(operator, inputs, **attributes):
    (found,) = golden(operator, inputs, **attributes).values()
    return found


def causes(operator, inputs, actual, **attributes):
    case = make_case(operator, inputs, actual, attributes=attributes)
    return {measured.name: diagnose(measured) for measured in evaluate(case, [])}


def only(operator, inputs, actual, **attributes):
    assert next(iter(inputs.values())).size >= 100_000
    (found,) = causes(operator, inputs, actual, **attributes).values()
    assert found, "no cause was named"
    return found[0]


def in_float32(inputs, formula):
    """A literal formula with every step in float32, rounded once to the inputs' type."""
    dy, x = (inputs[name].astype(np.float32) for name in ("grad_output", "self"))
    with np.errstate(all="ignore"):
        result = dy * formula(x)
    assert result.dtype == np.float32
    return result.astype(inputs["self"].dtype)


def in_own_type(inputs, formula):
    """A literal formula with every step rounded to the inputs' type."""
    with np.errstate(all="ignore"):
        result = inputs["grad_output"] * formula(inputs["self"])
    assert result.dtype == inputs["self"].dtype
    return result


def silu(x):
    s = 1 / (1 + np.exp(-x))
    return s * (1 + x * (1 - s))


def fast_gelu(x):
    v = x * x.dtype.type(-1.702)
    s = 1 / (np.exp(v) + 1)
    return ((s - 1) * v + 1) * s


erf = np.frompyfunc(math.erf, 1, 1)


def gelu_erf(x):
    kind = x.dtype.type
    phi = kind(0.3989422804) * np.exp(kind(-0.5) * x * x)
    return kind(0.5) * (1 + erf((x * kind(math.sqrt(0.5))).astype(np.float64)).astype(x.dtype)) + x * phi


def gelu_tanh(x):
    kind = x.dtype.type
    root = kind(math.sqrt(2 / math.pi))
    t = np.tanh(root * (x + kind(0.044715) * x * x * x))
    return kind(0.5) * (1 + t) + kind(0.5) * x * (1 - t * t) * root * (1 + kind(3 * 0.044715) * x * x)


NAIVE = {
    ("silu_backward", None): silu,
    ("fast_gelu_backward", None): fast_gelu,
    ("gelu_backward_v2", "none"): gelu_erf,
    ("gelu_backward_v2", "tanh"): gelu_tanh,
}
IDS = [" ".join(filter(None, key)) for key in NAIVE]


def attributes_of(mode):
    return {} if mode is None else {"approximate": mode}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("operator", "mode"), [*NAIVE, ("hardswish_backward", None)])
def test_the_golden_itself_has_no_cause(operator, mode, dtype):
    inputs = inputs_of(dtype, -12, 12)
    actual = exact(operator, inputs, **attributes_of(mode)).rounded
    (found,) = causes(operator, inputs, actual, **attributes_of(mode)).values()
    assert found == []


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("operator", "mode"), NAIVE, ids=IDS)
def test_cancellation_at_the_derivatives_zero(operator, mode, dtype):
    zero = {"silu_backward": -1.2784645, "fast_gelu_backward": -0.7511543, "gelu_backward_v2": -0.752}[operator]
    inputs = inputs_of(dtype, zero - 0.2, zero + 0.2)
    # In 16-bit types float32 intermediates are good enough; the fault occurs when everything is 16 bits wide.
    plant = in_float32 if dtype == "float32" else in_own_type
    cause = only(operator, inputs, plant(inputs, NAIVE[operator, mode]), **attributes_of(mode))
    assert cause.name == "cancellation-at-zero"
    assert cause.share > 0.9
    assert ("float32" if dtype == "float32" else dtype) in cause.text


def test_cancellation_at_the_zero_is_named_on_common_data():
    for operator in ("silu_backward", "fast_gelu_backward"):
        inputs = inputs_of("float32")
        assert only(operator, inputs, in_float32(inputs, NAIVE[operator, None])).name == "cancellation-at-zero"


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode", ["none", "tanh"])
def test_one_plus_erf_tail(mode, dtype):
    formula = NAIVE["gelu_backward_v2", mode]
    inputs = inputs_of(dtype, *{"float32": (-5, 5), "float16": (-5, -2), "bfloat16": (-9, 2)}[dtype])
    if dtype == "float16":  # float32 intermediates are enough for it
        cause = only("gelu_backward_v2", inputs, in_own_type(inputs, formula), approximate=mode)
    else:
        cause = only("gelu_backward_v2", inputs, in_float32(inputs, formula), approximate=mode)
    assert cause.name == "one-plus-erf"
    assert ("erf" if mode == "none" else "tanh") in cause.text


def overflowing(dtype):
    """How to compute so that the naive exp overflows in a type's range, and x around the place."""
    if dtype == "float16":
        return in_own_type, {"silu": (-14, 0), "fast": (-8.5, 0)}
    return in_float32, {"silu": (-100, -60), "fast": (-60, -40)}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("operator", ["silu_backward", "fast_gelu_backward"])
def test_overflow_of_exp(operator, dtype):
    plant, ranges = overflowing(dtype)
    inputs = inputs_of(dtype, *ranges[operator[:4]])
    actual = plant(inputs, NAIVE[operator, None])
    if dtype == "float16":  # leave only the overflow of the faults that 16-bit intermediates have
        beyond = actual == 0
        actual = np.where(beyond, actual, exact(operator, inputs).rounded)
    cause = only(operator, inputs, actual)
    assert cause.name == "overflow"
    assert f"exceeds the largest {'float16' if dtype == 'float16' else 'float32'}" in cause.text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_overflow_of_a_power_gives_nan(dtype):
    inputs = inputs_of(dtype)
    wide = np.sign(inputs["self"].astype(np.float64)) * 10 ** (6 * np.abs(inputs["self"].astype(np.float64)))
    inputs["self"] = wide.astype(numpy_type(dtype))
    cause = only("gelu_backward_v2", inputs, in_float32(inputs, gelu_tanh), approximate="tanh")
    assert cause.name == "overflow"
    assert "x² exceeds the largest float32, and the result becomes NaN" in cause.text


@pytest.mark.parametrize("dtype", TYPES)
def test_flush_to_zero(dtype):
    low = {"float32": -104.0, "bfloat16": -97.0, "float16": -16.5}[dtype]
    inputs = inputs_of(dtype, low, low + 18)
    actual = exact("silu_backward", inputs).rounded.copy()
    actual[np.abs(actual.astype(np.float64)) < FORMATS[dtype].smallest_normal] = 0
    cause = only("silu_backward", inputs, actual)
    assert cause.name == "flush-to-zero"
    assert cause.share > 0.99


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode", ["none", "tanh"])
@pytest.mark.parametrize("naive", [False, True])
def test_wrong_mode(mode, dtype, naive):
    other = {"none": "tanh", "tanh": "none"}[mode]
    inputs = inputs_of(dtype)
    if naive:
        actual = in_float32(inputs, NAIVE["gelu_backward_v2", other])
    else:
        actual = exact("gelu_backward_v2", inputs, approximate=other).rounded
    cause = only("gelu_backward_v2", inputs, actual, approximate=mode)
    assert cause.name == "wrong-mode"
    assert f'"{mode}" was asked for' in cause.text


@pytest.mark.parametrize("dtype", TYPES)
def test_hardswish_edge_rule(dtype):
    inputs = inputs_of(dtype)
    inputs["self"].reshape(-1)[::97] = 3
    inputs["self"].reshape(-1)[50::97] = -3
    actual = exact("hardswish_backward", inputs).rounded.copy()
    actual[inputs["self"] == 3] = inputs["grad_output"][inputs["self"] == 3]
    actual[inputs["self"] == -3] = 0
    assert only("hardswish_backward", inputs, actual).name == "hardswish-edge"


def directed(value, dtype, direction):
    """Exact values rounded in a direction, by way of the neighbours of the nearest."""
    target = FORMATS[dtype]
    nearest = target.round(value)
    back = nearest.astype(np.float64)
    up, down = (np.nextafter(nearest, numpy_type(dtype)(end)) for end in (np.inf, -np.inf))
    ceiling = np.where(back < value, up, nearest)
    floor = np.where(back > value, down, nearest)
    return {
        "toward zero": np.where(value > 0, floor, ceiling),
        "away from zero": np.where(value > 0, ceiling, floor),
        "toward +inf": ceiling,
        "toward -inf": floor,
    }[direction].astype(numpy_type(dtype))


@pytest.mark.parametrize("direction", ["toward zero", "away from zero", "toward +inf", "toward -inf"])
@pytest.mark.parametrize("dtype", TYPES)
def test_directed_rounding(dtype, direction):
    inputs = inputs_of(dtype)
    value = exact("silu_backward", inputs).value
    cause = only("silu_backward", inputs, directed(value, dtype, direction))
    assert cause.name == "rounding"
    assert direction in cause.text


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_truncated_float32_results(dtype):
    """What a kernel does that keeps the upper half of its float32 result."""
    inputs = inputs_of(dtype)
    wide = in_float32({name: a.astype(np.float32) for name, a in inputs.items()}, silu)
    cause = only("silu_backward", inputs, directed(wide.astype(np.float64), dtype, "toward zero"))
    assert cause.name == "rounding"
    assert "toward zero" in cause.text


@pytest.mark.parametrize("dtype", TYPES)
def test_ties_away_from_zero(dtype):
    digits = FORMATS[dtype].digits
    rng = np.random.default_rng(5)
    # hardswish at x = 0 halves dy; odd subnormals are ties.
    unit = 2.0 ** (FORMATS[dtype].least_exponent - digits + 1)
    dy = (rng.integers(1, 2 ** (digits - 1), SIZE) * unit).astype(numpy_type(dtype))
    inputs = {"grad_output": dy, "self": np.zeros(SIZE, numpy_type(dtype))}
    value = exact("hardswish_backward", inputs).value
    actual = (np.floor(value / unit + 0.5) * unit).astype(numpy_type(dtype))
    cause = only("hardswish_backward", inputs, actual)
    assert cause.name == "rounding"
    assert "ties are rounded away from zero" in cause.text


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("what", ["result", "self", "grad_output"])
def test_shifted_data(what, dtype):
    inputs = inputs_of(dtype)
    moved = dict(inputs)
    if what == "result":
        actual = np.roll(exact("silu_backward", inputs).rounded, 17)
    else:
        moved[what] = np.roll(inputs[what].reshape(-1), -330).reshape(ROWS, COLUMNS)
        actual = exact("silu_backward", moved).rounded
    cause = only("silu_backward", inputs, actual)
    assert cause.name == "moved-data"
    wanted = {"result": "the result is shifted by 17", "self": "self alone is shifted by -330"}
    assert wanted.get(what, "grad_output alone is shifted by -330") in cause.text


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("what", ["result", "self", "grad_output"])
def test_transposed_data(what, dtype):
    inputs = inputs_of(dtype)

    def turned(array):
        return np.ascontiguousarray(array.T).reshape(array.shape)

    if what == "result":
        actual = turned(exact("gelu_backward_v2", inputs, approximate="none").rounded)
    else:
        actual = exact("gelu_backward_v2", {**inputs, what: turned(inputs[what])}, approximate="none").rounded
    cause = only("gelu_backward_v2", inputs, actual, approximate="none")
    assert cause.name == "moved-data"
    assert "transposed" in cause.text


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("side", "edge", "constant"), [(1, 3.0, 1.0), (-1, -3.0, 0.0)])
def test_constant_beyond_an_x(dtype, side, edge, constant):
    inputs = inputs_of(dtype)
    actual = exact("silu_backward", inputs).rounded.copy()
    beyond = side * inputs["self"].astype(np.float64) > side * edge
    actual[beyond] = inputs["grad_output"][beyond] * numpy_type(dtype)(constant)
    cause = only("silu_backward", inputs, actual)
    assert cause.name == "constant-at-edge"
    assert f"constant {constant:g}" in cause.text
    assert cause.share > 0.9


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("place", ["end", "beginning", "last 10", "first 10"])
def test_constant_at_an_edge_of_the_buffer(dtype, place):
    inputs = inputs_of(dtype)
    actual = exact("silu_backward", inputs).rounded.copy()
    parts = {"end": np.s_[-2:], "beginning": np.s_[:3], "last 10": np.s_[:, -10:], "first 10": np.s_[:, :10]}
    actual[parts[place]] = np.nan if place == "end" else 0
    cause = only("silu_backward", inputs, actual)
    assert cause.name == "constant-at-edge"
    assert place in cause.text


def wide_inputs():
    rng = np.random.default_rng(0)
    shape = 256, 1024
    x, dy = (2 * rng.normal(size=shape)).astype(np.float32), rng.normal(size=shape).astype(np.float32)
    return {"grad_output": dy, "self": x}


@pytest.mark.parametrize("value", [0.0, np.nan])
@pytest.mark.parametrize("count", [1, 5, 4096])
def test_an_unwritten_end_of_a_noisy_output(count, value):
    """The noise at the derivative's zero hid it: cancellation alone was named, and single elements never."""
    inputs = wide_inputs()
    actual = in_float32(inputs, silu)
    actual.reshape(-1)[-count:] = value
    first, second = next(iter(causes("silu_backward", inputs, actual).values()))
    assert first.name == "constant-at-edge"
    many = "the element at the end of the buffer is" if count == 1 else f"the {count} elements at the end of the buffer"
    assert first.text.startswith(many)
    assert second.name == "cancellation-at-zero"


def test_an_unwritten_end_far_from_the_worst_element(monkeypatch):
    """Of a large output only what lies around the worst element was looked at."""
    monkeypatch.setattr(evidence, "_MOST_ELEMENTS", 1 << 16)
    inputs = wide_inputs()
    inputs["self"][0, 0] = -1.2784645  # the derivative's zero, where one element is off by most units
    actual = in_float32(inputs, silu)
    actual[0, 0] = 1
    actual.reshape(-1)[-100:] = 0
    found = next(iter(causes("silu_backward", inputs, actual).values()))
    assert [cause.name for cause in found] == ["constant-at-edge", "cancellation-at-zero"]


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize(
    ("tiles", "columns", "text"),
    [
        ([3, 9, 17], slice(None), "24576 elements in 3 tiles of 8192 are all 0"),
        (slice(None, None, 2), slice(None), "131072 elements in 16 tiles of 8192 are all 0"),
        (slice(None), slice(-40, None), "1280 elements in 32 tiles of 40 are all 0"),
    ],
)
def test_unwritten_tiles_inside_the_buffer(tiles, columns, text, noisy):
    """No cause was known."""
    inputs = wide_inputs()
    actual = in_float32(inputs, silu) if noisy else exact("silu_backward", inputs).rounded.copy()
    actual.reshape(32, -1)[tiles, columns] = 0
    cause = only("silu_backward", inputs, actual)
    assert cause.name == "constant-at-edge"
    assert text in cause.text


@pytest.mark.parametrize("what", ["result", "self"])
@pytest.mark.parametrize("mode", ["none", "tanh"])
def test_noisy_data_that_is_transposed(mode, what):
    """What the literal formula loses in the tail hid that it was moved."""
    inputs = wide_inputs()

    def turned(array):
        return np.ascontiguousarray(array.T).reshape(array.shape)

    if what == "result":
        actual = turned(in_float32(inputs, NAIVE["gelu_backward_v2", mode]))
    else:
        actual = in_float32({**inputs, "self": turned(inputs["self"])}, NAIVE["gelu_backward_v2", mode])
    cause = only("gelu_backward_v2", inputs, actual, approximate=mode)
    assert (cause.name, "transposed" in cause.text) == ("moved-data", True)


FORWARD = {
    "silu_backward": aclnn.silu,
    "fast_gelu_backward": aclnn.fast_gelu,
    "hardswish_backward": aclnn.hardswish,
}
OTHER_OPERATIONS = {
    "wrong sign": lambda f, dy, x: -f(dy, x),
    "left out": lambda f, dy, x: f(np.ones_like(x), x),
    "exchanged": lambda f, dy, x: f(x, dy),
    "self is taken for": lambda f, dy, x: f(x, x),
    "for self too": lambda f, dy, x: f(dy, dy),
    "grad_output itself": lambda f, dy, x: dy.copy(),
}


@pytest.mark.parametrize("dtype", SHORT_AND_LONG)
@pytest.mark.parametrize("text", [*OTHER_OPERATIONS, "not its gradient"])
@pytest.mark.parametrize(("operator", "mode"), [*NAIVE, ("hardswish_backward", None)])
def test_another_operation_than_the_gradient(operator, mode, text, dtype):
    """Mostly no cause was known; grad_output itself was called constant beyond some x."""
    inputs, given = inputs_of(dtype), attributes_of(mode)

    def literally(dy, x):
        return literal(operator)(grad_output=dy, self=x, **given)

    if text in OTHER_OPERATIONS:
        actual = OTHER_OPERATIONS[text](literally, inputs["grad_output"], inputs["self"])
    elif mode is None:
        actual = FORWARD[operator](inputs["self"])
    else:
        actual = aclnn.gelu_v2(inputs["self"], ["none", "tanh"].index(mode))
    cause = only(operator, inputs, actual, **given)
    assert cause.name in ("wrong-input", "wrong-operation")
    assert text in cause.text
    assert cause.structural


def test_a_saturation_by_x_is_no_matter_of_the_buffer():
    """Also where x is sorted, so that the elements struck are the first ones."""
    inputs = wide_inputs()
    inputs["self"] = np.sort(inputs["self"], axis=None).reshape(inputs["self"].shape)
    actual = exact("silu_backward", inputs).rounded.copy()
    actual[inputs["self"] < -3] = 0
    cause = only("silu_backward", inputs, actual)
    assert cause.name == "constant-at-edge"
    assert "for x < -3" in cause.text


def norm_inputs(dtype, rows=2048, columns=64, statistics=np.float32, offset=3.0):
    rng = np.random.default_rng(3)
    x = (rng.normal(size=(rows, columns)) + offset).astype(numpy_type(dtype))
    wide = x.astype(np.float64)
    return {
        "grad_out": (rng.normal(size=(rows, columns)) + 0.5).astype(numpy_type(dtype)),
        "input": x,
        "mean": wide.mean(1, keepdims=True).astype(statistics),
        "rstd": (1 / np.sqrt(wide.var(1, keepdims=True) + 1e-5)).astype(statistics),
        "weight": rng.normal(size=columns).astype(np.float32),
    }


def inputs_in_order(inputs):
    """As layer_norm_backward takes them, up to rstd."""
    return inputs["grad_out"], inputs["input"], inputs["input"].shape[1:], inputs["mean"], inputs["rstd"]


@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
@pytest.mark.parametrize("dtype", SHORT_AND_LONG)
def test_statistics_kept_in_16_bits(dtype, narrow):
    inputs = norm_inputs(dtype)
    moved = dict(inputs)
    for name in ("mean", "rstd"):
        moved[name] = inputs[name].astype(numpy_type(narrow)).astype(np.float32)
    wrong = golden("layer_norm_backward", moved)
    outputs = {name: wrong[name].rounded for name in ("grad_input", "grad_weight")}
    found = causes("layer_norm_backward", inputs, outputs, normalized_shape=(64,))
    names = {name: [cause.name for cause in named] for name, named in found.items()}
    assert names["grad_weight"] == ["narrow-statistics"]
    # In bfloat16 half of dx's errors from float16 statistics drown in its own rounding.
    assert names["grad_input"] == ["narrow-statistics"]
    assert narrow in found["grad_weight"][0].text


@pytest.mark.parametrize("order", ["rows", "halves", "threads"])
@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
@pytest.mark.parametrize("dtype", SHORT_AND_LONG)
def test_sums_kept_in_16_bits(dtype, narrow, order):
    inputs = norm_inputs(dtype)
    kind = numpy_type(narrow)
    dy, x, mean, rstd = (inputs[name].astype(np.float64) for name in ("grad_out", "input", "mean", "rstd"))
    terms = {"grad_weight": dy * (x - mean) * rstd, "grad_bias": dy}
    outputs = {"grad_input": golden("layer_norm_backward", inputs)["grad_input"].rounded}
    for name, parts in terms.items():
        rows = parts.astype(kind)
        if order == "rows":
            total = np.zeros(64, kind)
            for row in rows:
                total = (total + row).astype(kind)
        elif order == "threads":  # each of two keeps its own sum; those are added in float32
            parts = np.zeros((2, 64), kind)
            for number, row in enumerate(rows):
                parts[number % 2] = (parts[number % 2] + row).astype(kind)
            total = parts.astype(np.float32).sum(0)
        else:
            while len(rows) > 1:
                rows = (rows[::2] + rows[1::2]).astype(kind)
            total = rows[0]
        outputs[name] = total.astype(np.float32)
    found = causes("layer_norm_backward", inputs, outputs, normalized_shape=(64,))
    assert found["grad_input"] == []
    if order == "rows":
        assert [cause.name for cause in found["grad_weight"]] == ["narrow-sums"]
        assert [cause.name for cause in found["grad_bias"]] == ["narrow-sums"]
        assert narrow in found["grad_weight"][0].text
    else:  # db's values are short, so that its halves are often exact
        assert [cause.name for cause in found["grad_weight"]] == ["narrow-sums"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("rows", "blank"), [(256, 4), (96, 1)])
def test_unwritten_last_rows_of_layer_norm(dtype, rows, blank):
    """In float32 the noise of its sums hid them."""
    inputs = norm_inputs(dtype, rows, 768, offset=0.3)
    del inputs["weight"]
    dx = np.array(aclnn.layer_norm_backward(*inputs_in_order(inputs), None, None, (True, False, False))[0])
    dx[-blank:] = 0
    found = causes("layer_norm_backward", inputs, {"grad_input": dx}, normalized_shape=(768,))["grad_input"]
    assert found[0].name == "constant-at-edge"
    assert f"the {768 * blank} elements at the end of the buffer are all 0" in found[0].text


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan])
def test_an_output_that_is_one_number_is_called_so(value):
    """It was called a sum in bfloat16 (LayerNorm), and constant from some x on (activations)."""
    shown = "NaN" if np.isnan(value) else f"{value:g}"
    inputs = norm_inputs("float32", rows=64, columns=2048)
    outputs = {name: np.full(2048, value, np.float32) for name in ("grad_weight", "grad_bias")}
    for found in causes("layer_norm_backward", inputs, outputs, normalized_shape=(2048,)).values():
        assert [(cause.name, cause.text) for cause in found] == [("constant", f"the whole output is {shown}")]
    inputs = inputs_of("float32")
    found = only("silu_backward", inputs, np.full_like(inputs["self"], value))
    assert (found.name, found.text, found.share) == ("constant", f"the whole output is {shown}", 1.0)


@pytest.mark.parametrize("factor", [1.01, 0.99])
@pytest.mark.parametrize(("rows", "columns"), [(64, 2048), (256, 256)])
def test_a_multiple_of_the_sums_is_no_matter_of_their_precision(factor, rows, columns):
    inputs = norm_inputs("float32", rows, columns)
    right = golden("layer_norm_backward", inputs)
    outputs = {name: right[name].rounded * np.float32(factor) for name in ("grad_weight", "grad_bias")}
    found = causes("layer_norm_backward", inputs, outputs, normalized_shape=(columns,))
    assert found["grad_bias"] == []
    assert [cause.name for cause in found["grad_weight"]] == ["scaled-rstd"]
    assert f"an rstd {factor:g} times the given one" in found["grad_weight"][0].text


def norm_terms(inputs):
    dy, x, mean, rstd, weight = (inputs[name].astype(np.float64) for name in inputs)
    xhat = (x - mean) * rstd
    g = dy * weight
    return dy, x, mean, rstd, weight, xhat, g, g.mean(1, keepdims=True), (g * xhat).mean(1, keepdims=True)


NORM_OPERATIONS = {
    "weight is left out": lambda dy, x, mean, rstd, w, xhat, g, c1, c2: (
        rstd * (dy - dy.mean(1, keepdims=True) - xhat * (dy * xhat).mean(1, keepdims=True))
    ),
    "the mean of grad_out times weight over a row is not": lambda dy, x, mean, rstd, w, xhat, g, c1, c2: (
        rstd * (g - xhat * c2)
    ),
    "the part along the normalised input is not": lambda dy, x, mean, rstd, w, xhat, g, c1, c2: rstd * (g - c1),
    "neither the mean nor": lambda dy, x, mean, rstd, w, xhat, g, c1, c2: rstd * g,
    "sums over a row are subtracted": lambda dy, x, mean, rstd, w, xhat, g, c1, c2: (
        rstd * (g - (c1 + xhat * c2) * x.shape[1])
    ),
    "not multiplied by rstd": lambda dy, x, mean, rstd, w, xhat, g, c1, c2: g - c1 - xhat * c2,
    "exchanged": lambda dy, x, mean, rstd, w, xhat, g, c1, c2: norm_dx(x, (dy - mean) * rstd, w, rstd),
    "not normalised": lambda dy, x, mean, rstd, w, xhat, g, c1, c2: norm_dx(dy, x, w, rstd),
}
NORM_SUMS = {
    "grad_weight": {
        "a mean over the 2048 rows": lambda dy, x, mean, rstd, w, xhat, *_: (dy * xhat).mean(0),
        "grad_out is multiplied by weight": lambda dy, x, mean, rstd, w, xhat, *_: (dy * w * xhat).sum(0),
        "the result is grad_bias": lambda dy, *_: dy.sum(0),
        "not normalised": lambda dy, x, *_: (dy * x).sum(0),
        "mean is left out": lambda dy, x, mean, rstd, *_: (dy * x * rstd).sum(0),
        "rstd is left out": lambda dy, x, mean, *_: (dy * (x - mean)).sum(0),
    },
    "grad_bias": {
        "a mean over the 2048 rows": lambda dy, *_: dy.mean(0),
        "grad_out is multiplied by weight": lambda dy, x, mean, rstd, w, *_: (dy * w).sum(0),
        "the result is grad_weight": lambda dy, x, mean, rstd, w, xhat, *_: (dy * xhat).sum(0),
    },
}


def norm_dx(dy, xhat, weight, rstd):
    g = dy * weight
    return rstd * (g - g.mean(1, keepdims=True) - xhat * (g * xhat).mean(1, keepdims=True))


@pytest.mark.parametrize("text", NORM_OPERATIONS)
@pytest.mark.parametrize("dtype", SHORT_AND_LONG)
def test_layer_norms_other_operations(dtype, text):
    inputs = norm_inputs(dtype)
    inputs["rstd"] *= np.float32(3.0)  # so that neither rstd nor the mean of g is as small as roundings
    inputs["weight"] += np.float32(1.0)
    actual = NORM_OPERATIONS[text](*norm_terms(inputs)).astype(numpy_type(dtype))
    (found,) = causes("layer_norm_backward", inputs, {"grad_input": actual}, normalized_shape=(64,))["grad_input"]
    assert found.name in ("wrong-operation", "wrong-input")
    assert text in found.text
    assert found.structural


@pytest.mark.parametrize(("output", "text"), [(output, text) for output in NORM_SUMS for text in NORM_SUMS[output]])
def test_layer_norms_other_sums(output, text):
    inputs = norm_inputs("float32")
    inputs["rstd"] *= np.float32(3.0)
    actual = NORM_SUMS[output][text](*norm_terms(inputs)).astype(np.float32)
    (found,) = causes("layer_norm_backward", inputs, {output: actual}, normalized_shape=(64,))[output]
    assert found.name in ("wrong-operation", "wrong-input")
    assert text in found.text
    assert found.structural


STATISTICS = {
    "eps": ("scaled-rstd", lambda x: (x.mean(1), x.var(1) + 1e-2)),
    "ddof": ("scaled-rstd", lambda x: (x.mean(1), x.var(1, ddof=1) + 1e-5)),
    "mean": ("shifted-mean", lambda x: (x.mean(1) + 0.003, x.var(1) + 1e-5)),
}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("shape", [(256, 768), (96, 256), (64, 1024)])
@pytest.mark.parametrize(
    ("dtype", "fault"), [("float16", "eps"), ("float16", "ddof"), ("float32", "mean"), ("bfloat16", "eps")]
)
def test_other_statistics_are_no_matter_of_sums_in_16_bits(dtype, fault, shape, seed):
    """dw was called summed in 16 bits, by the size of its errors alone."""
    rng = np.random.default_rng(seed)
    kind, (name, computed) = numpy_type(dtype), STATISTICS[fault]
    x = (rng.normal(size=shape) + 0.3).astype(kind)
    wide = x.astype(np.float64)

    def given(mean, variance):
        return {"mean": mean.astype(np.float32), "rstd": (1 / np.sqrt(variance)).astype(np.float32)}

    inputs = {"grad_out": rng.normal(size=shape).astype(kind), "input": x, "weight": rng.normal(size=shape[1])}
    inputs |= {"weight": inputs["weight"].astype(kind), **given(wide.mean(1), wide.var(1) + 1e-5)}
    inputs |= {key: inputs[key].reshape(-1, 1) for key in ("mean", "rstd")}
    wrong = golden("layer_norm_backward", {**inputs, **given(*computed(wide))})
    outputs = {key: wrong[key].rounded for key in ("grad_input", "grad_weight")}
    found = causes("layer_norm_backward", inputs, outputs, normalized_shape=shape[1:])
    assert {key: [cause.name for cause in named] for key, named in found.items()} == {key: [name] for key in outputs}
    if fault == "eps":
        assert "an rstd 0.99" in found["grad_input"][0].text
    elif fault == "mean":
        assert "off by 0.003" in found["grad_weight"][0].text


@pytest.mark.parametrize(("dtype", "threads"), [("float16", 2), ("bfloat16", 1), ("bfloat16", 7)])
def test_pytorchs_sums_in_16_bits(dtype, threads):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    inputs, before = norm_inputs(dtype), torch.get_num_threads()
    torch.set_num_threads(threads)
    outputs = implementations("layer_norm_backward")["PyTorch"](**inputs, normalized_shape=(64,))
    torch.set_num_threads(before)
    found = causes("layer_norm_backward", inputs, outputs, normalized_shape=(64,))["grad_weight"]
    assert [cause.name for cause in found] == ["narrow-sums"]
    assert dtype in found[0].text


def test_columns_that_are_zero_are_no_sums_in_16_bits():
    """Zeros have few digits in every type."""
    inputs = norm_inputs("float32")
    dw = golden("layer_norm_backward", inputs)["grad_weight"].rounded.copy()
    dw[::2] = 0
    assert causes("layer_norm_backward", inputs, {"grad_weight": dw}, normalized_shape=(64,)) == {"grad_weight": []}


@pytest.mark.parametrize("rows", [100, 256])
@pytest.mark.parametrize("order", ["neighbours", "halves"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_in_16_bits_that_are_also_given_in_them(dtype, order, rows):
    """Their digits say nothing, but the orders of summation that are simulated do."""
    inputs, kind = norm_inputs(dtype, rows), numpy_type(dtype)
    inputs["weight"] = inputs["weight"].astype(kind)
    dy, x, mean, rstd = (inputs[name].astype(np.float64) for name in ("grad_out", "input", "mean", "rstd"))
    parts = list((dy * (x - mean) * rstd).astype(kind))
    while len(parts) > 1:
        half = len(parts) // 2
        first, second = (parts[::2], parts[1::2]) if order == "neighbours" else (parts[:half], parts[half : 2 * half])
        over = parts[2 * half :]
        parts = [a + b for a, b in zip(first, second, strict=False)] + over
    found = causes("layer_norm_backward", inputs, {"grad_weight": parts[0]}, normalized_shape=(64,))["grad_weight"]
    assert [cause.name for cause in found] == ["narrow-sums"]
    assert dtype in found[0].text


def test_one_nan_is_no_overflow_where_nothing_overflows():
    inputs = inputs_of("float32")
    actual = exact("silu_backward", inputs).rounded.copy()
    actual[100, 100] = np.nan
    assert only("silu_backward", inputs, actual).name == "not-finite"


@pytest.mark.parametrize("mode", ["none", "tanh"])
def test_one_unit_too_much_everywhere_is_no_cancellation(mode):
    inputs = inputs_of("bfloat16", ones=True)
    right = exact("gelu_backward_v2", inputs, approximate=mode).rounded
    (found,) = causes(
        "gelu_backward_v2", inputs, (right.view(np.uint16) + 1).view(right.dtype), approximate=mode
    ).values()
    assert found == []


def test_dump_of_noise_has_no_cause():
    inputs = inputs_of("float32")
    noise = np.random.default_rng(9).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    (found,) = causes("silu_backward", inputs, noise).values()
    assert found == []


def test_bfloat16_is_the_type_under_test():
    assert numpy_type("bfloat16") is ml_dtypes.bfloat16
