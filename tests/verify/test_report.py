"""check, its report in three forms, and the pytest helper; the specification's worked contradictions."""

import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aclnn
from aclnn.core.status import AclnnError
from aclnn.verify import assert_close_to_golden, check, golden
from aclnn.verify.number_formats import FORMATS
from aclnn.verify.report.charts import by_x, histogram, match_map
from aclnn.verify.standards.published import STANDARDS
from benchmarks.implementations import implementations, literal
from benchmarks.verdicts import OPERATORS

SIZE = 120_000


RNG = np.random.default_rng(12)


def kind(dtype):
    return FORMATS[dtype].dtype.numpy.type


def uniform(dtype="float32", size=SIZE, low=-5.0, high=5.0):
    x = np.random.default_rng(1).uniform(low, high, size).astype(kind(dtype))
    return {"grad_output": np.ones_like(x), "self": x}


def standards_of(report):
    (output,) = report.data["cases"][0]["outputs"]
    return {row["name"]: row for row in output["standards"]}


def figure(row, name):
    return next(item["value"] for item in row["figures"] if item["name"] == name)


def test_one_plus_erf_passes_mixed_and_fails_mere_mare():
    inputs = uniform()
    report = check("gelu_backward_v2", inputs, literal("gelu_backward_v2"), approximate="none")
    assert report.passed
    report = check("gelu_backward_v2", inputs, literal("gelu_backward_v2"), all_standards=True, approximate="none")
    rows = standards_of(report)
    assert figure(rows["mixed"], "matched fraction") == 1.0
    assert rows["mixed"]["verdict"] == "pass"
    assert rows["mere-mare"]["verdict"] == "fail"
    assert figure(rows["mere-mare"], "MARE") == pytest.approx(1.9e-3, rel=0.2)
    worst = rows["mere-mare"]["worst"]
    assert next(item["value"] for item in worst["inputs"] if item["name"] == "self") == pytest.approx(-4.98, abs=0.03)
    assert report.data["cases"][0]["outputs"][0]["causes"][0]["name"] in ("one-plus-erf", "cancellation")
    assert not report.passed


def test_naive_silu_fails_mere_mare_at_the_derivatives_zero():
    x = np.sort(np.concatenate([uniform()["self"], np.float32(-1.278464) + np.arange(-40, 40) * 1.2e-7]))
    x = x.astype(np.float32)
    inputs = {"grad_output": np.ones_like(x), "self": x}
    report = check("silu_backward", inputs, literal("silu_backward"))
    row = standards_of(report)["mere-mare"]
    assert row["verdict"] == "fail"
    assert figure(row, "MARE") > 1e-2
    assert next(i["value"] for i in row["worst"]["inputs"] if i["name"] == "self") == pytest.approx(-1.278464, abs=1e-5)
    assert report.data["cases"][0]["outputs"][0]["causes"][0]["name"] == "cancellation"


def all_16_bit(dtype):
    x = np.arange(1 << 16, dtype=np.uint16).view(kind(dtype))
    return x[np.isfinite(x.astype(np.float64))]


@pytest.mark.parametrize(
    ("operator", "mode", "dtype", "ulp", "x"),
    [
        ("gelu_backward_v2", "tanh", "float16", 19.6, -5.418),
        ("gelu_backward_v2", "tanh", "bfloat16", 2454, -5.406),
        ("gelu_backward_v2", "none", "bfloat16", 7.5, None),
        ("silu_backward", None, "bfloat16", 242, -90.5),
        ("fast_gelu_backward", None, "bfloat16", 247, -52.75),
    ],
)
def test_literal_formulas_have_the_specified_errors_over_all_16_bit_inputs(operator, mode, dtype, ulp, x):
    """Compare with the specification's figures, whose formula is the document's, with tanh."""
    inputs = {"self": all_16_bit(dtype), "grad_output": np.ones_like(all_16_bit(dtype))}
    actual = document_tanh(inputs) if mode == "tanh" else literal(operator)(**inputs, **attributes(mode))
    found = golden(operator, inputs, approximate=mode)
    exact = next(iter(found.values()))
    a = actual.astype(np.float64)
    with np.errstate(invalid="ignore"):
        errors = np.abs(a - exact.value) / FORMATS[dtype].ulp(exact.value)
    broken = ~np.isfinite(a) & np.isfinite(exact.rounded.astype(np.float64))
    assert np.count_nonzero(broken) == {"tanh": 16384 if dtype == "bfloat16" else 0}.get(mode, np.count_nonzero(broken))
    if operator == "fast_gelu_backward":
        assert np.count_nonzero(broken) == 210
    worst = int(np.argmax(np.where(broken, -1, errors)))
    assert errors[worst] == pytest.approx(ulp, rel=0.03)
    assert x is None or float(inputs["self"][worst]) == pytest.approx(x, abs=2e-3)


def attributes(mode):
    return {} if mode is None else {"approximate": mode}


def document_tanh(inputs):
    x = inputs["self"].astype(np.float32)
    root, half = np.float32(math.sqrt(2 / math.pi)), np.float32(0.5)
    with np.errstate(all="ignore"):
        t = np.tanh(root * (x + np.float32(0.044715) * x * x * x))
        slope = half * (1 + t) + half * x * (1 - t * t) * root * (1 + np.float32(3 * 0.044715) * (x * x))
    return slope.astype(inputs["self"].dtype)


@pytest.fixture(scope="module")
def failing():
    inputs = uniform(size=30_000)
    return check(
        "gelu_backward_v2", inputs, literal("gelu_backward_v2"), third=literal("gelu_backward_v2"),
        approximate="none", name="<b>dump</b>", all_standards=True,
    )  # fmt: skip


def test_the_json_contains_everything(failing, tmp_path):
    data = json.loads(failing.to_json(tmp_path / "r.json"))
    assert data == json.loads((tmp_path / "r.json").read_text())
    (output,) = data["cases"][0]["outputs"]
    assert [row["name"] for row in output["standards"]] == list(STANDARDS)
    assert all(row["edition"] for row in output["standards"])
    assert sum(item["count"] for item in output["histogram"]) == 30_000
    assert sum(item["elements"] for item in output["by_x"]) == 30_000
    assert sum(map(sum, output["map"]["elements"])) == 30_000
    worst = output["worst"]
    x = np.float32(worst["inputs"][1]["value"])
    assert worst["inputs"][1]["hex"] == f"0x{x.view(np.uint32):08x}"
    assert float(np.float32(worst["expected"]["value"])) == worst["expected"]["value"]
    assert worst["ulp"] == max(item["max_ulp"] for item in output["by_x"])
    assert output["golden"]["bound_ulp"] == 0.5


def test_the_page_is_one_file_without_network(failing, tmp_path):
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    page = failing.to_html(tmp_path / "r.html")
    assert page == (tmp_path / "r.html").read_text()
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#)|url\(|@import|https?://|<link""", page)
    assert "<b>dump</b>" not in page
    assert "&lt;b&gt;dump&lt;/b&gt;" in page
    data = json.loads(re.search(r'<script type="application/json" id="report">(.*?)</script>', page, re.S)[1])
    assert data == failing.data
    assert "prefers-color-scheme: dark" in page
    assert page.count("<svg") == 3


def test_the_page_lists_undecided_standards():
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    inputs = uniform(size=3000)
    wrong = golden("silu_backward", inputs)["grad_input"].rounded * RNG.choice(np.float32([0.99, 1.01]), 3000)
    page = check("silu_backward", inputs, wrong, standards=["classified"]).to_html()
    assert "? UNDECIDED" in page
    assert "leaves undecided classified" in page


@pytest.mark.parametrize("draw", [histogram, by_x, match_map])
def test_drawings_are_well_formed(draw, failing):
    from xml.etree import ElementTree

    empty = check("silu_backward", uniform(size=0), uniform(size=0)["self"])
    broken = np.full(10, np.nan, np.float32)
    for report in (failing, empty, check("silu_backward", uniform(size=10), broken)):
        root = ElementTree.fromstring(draw(report.data["cases"][0]["outputs"][0]))
        assert root.attrib["viewBox"] == "0 0 360 200"
        for node in root.iter("rect"):
            assert -1 <= float(node.attrib["x"]) <= 360
            assert float(node.attrib["width"]) >= 0
            assert -1 <= float(node.attrib["y"]) + float(node.attrib["height"]) <= 201


def test_the_map_names_the_standard_of_matching_elements(failing):
    """ "Every element matches" must name the standard, because others may fail."""
    (output,) = failing.data["cases"][0]["outputs"]
    assert output["verdict"] == "fail"
    assert "no element beyond mixed&#x27;s tolerance" in match_map(output)


def test_the_fields_of_the_report_are_documented(failing):
    page = (Path(__file__).parents[2] / "docs" / "verify.md").read_text()
    section = page[page.index("## The report") : page.index("## Golden values")]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.M))
    case = failing.data["cases"][0]
    output = case["outputs"][0]
    parts = {"report": failing.data, "case": case, "output": output, "standard": output["standards"][0]}
    assert {name: re.findall(r"`(\w+)`", text) for name, text in rows.items()} == {
        name: list(part) for name, part in parts.items()
    }


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def screenshot(page, picture, size, *more):
    profile = picture.with_suffix(".profile")
    subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={profile}", "--hide-scrollbars", f"--window-size={size[0]},{size[1]}", *more,
            f"--screenshot={picture}", page.as_uri(),
        ],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    shutil.rmtree(profile, ignore_errors=True)
    image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")
    return np.round(255 * image.imread(picture)[..., :3]).astype(int)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium to draw the page with")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_renders_in_a_browser(failing, tmp_path, dark):
    page = tmp_path / "r.html"
    failing.to_html(page)
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    image = screenshot(page, tmp_path / "s.png", (800, 500), scheme)
    assert image.shape == (500, 800, 3)
    background = image[495, 2]
    assert (background.max() < 60) if dark else (background.min() > 200)
    # The verdict's red edge runs over the card, and the text stands out from the background.
    red = (image[..., 0] - image[..., 1] > 90).sum()
    assert red > 800
    assert np.abs(image.astype(int) - background).max() > 150


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium to draw the page with")
def test_the_page_fits_a_phone(failing, tmp_path):
    """The page declares its width, and nothing is wider than the screen."""
    page = tmp_path / "r.html"
    probe = "<script>document.title=[document.documentElement.scrollWidth,innerWidth].join(' ')</script></body>"
    page.write_text(failing.to_html().replace("</body>", probe))
    dumped = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={tmp_path / 'profile'}", "--window-size=390,844", "--dump-dom", page.as_uri(),
        ],
        check=True, capture_output=True, timeout=60, text=True,
    )  # fmt: skip
    wide, screen = map(int, re.search(r"<title>(\d+) (\d+)</title>", dumped.stdout).groups())
    assert wide <= screen


def test_errors_are_the_operators_own():
    inputs = uniform(size=12)
    with pytest.raises(AclnnError, match=r"aclnnSiluBackward: actual grad_input: expected shape") as caught:
        check("silu_backward", inputs, np.ones((3, 4), np.float32))
    assert caught.value.code == 161002
    with pytest.raises(AclnnError) as caught:
        check("silu_backward", {"self": inputs["self"]}, inputs["self"])
    assert caught.value.code == 161001
    with pytest.raises(AclnnError) as caught:
        check("silu_backward", {name: a.astype(np.float64) for name, a in inputs.items()}, inputs["self"])
    assert caught.value.code == 161002
    with pytest.raises(AclnnError) as caught:
        check("gelu_backward_v2", inputs, inputs["self"], approximate="Tanh")
    assert caught.value.code == 161002
    for third, text in (
        (np.ones(13, np.float32), r"third grad_input: expected shape \[12\], got \[13\]"),
        (np.ones(12), "third grad_input: expected one of float32, float16, bfloat16, got float64"),
    ):
        with pytest.raises(AclnnError, match=text):
            check("silu_backward", inputs, inputs["self"], third=third)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"operator": "softsign"}, "operator: expected one with golden values .*, such as softshrink, got 'softsign'"),
        ({"standards": ["strict"]}, "standard: expected one of mixed.*, got 'strict'"),
        ({"wrong": 3}, "silu_backward: expected none"),
        ({"actual": {"grad_weight": np.ones(3)}}, "silu_backward: expected one of grad_input, got 'grad_weight'"),
    ],
)
def test_invalid_arguments_are_rejected(arguments, text):
    inputs = uniform(size=12)
    given = {"operator": "silu_backward", "inputs": inputs, "actual": inputs["self"], **arguments}
    with pytest.raises(ValueError, match=text):
        check(**given)


def test_names_may_be_c_or_python_and_outputs_tuples():
    inputs = uniform(size=12)
    exact = golden("silu_backward", inputs)["grad_input"].rounded
    for actual in (exact, {"gradInput": exact}, {"grad_input": exact}, (exact,)):
        assert check("silu_backward", {"gradOutput": inputs["grad_output"], "self": inputs["self"]}, actual).passed
    assert check("hardswish_backward", inputs, {"grad_input": literal("hardswish_backward")(**inputs)}).passed


def test_one_argument_under_two_names_is_rejected():
    """Two values for one argument are an error."""
    inputs = uniform(size=12)
    again = {**inputs, "gradOutput": inputs["self"]}
    with pytest.raises(ValueError, match="grad_output: given twice, the second time as 'gradOutput'"):
        check("silu_backward", again, inputs["self"])
    with pytest.raises(ValueError, match="grad_input: given twice"):
        check("silu_backward", inputs, {"gradInput": inputs["self"], "grad_input": inputs["self"]})
    with pytest.raises(ValueError, match="normalized_shape: given twice"):
        check("layer_norm_backward", norm_case(), np.ones(40), normalized_shape=(40,), normalizedShape=(40,))


def test_functions_get_pythons_names():
    inputs = uniform(size=12)
    given = {"gradOutput": inputs["grad_output"], "self": inputs["self"]}
    assert check("silu_backward", given, aclnn.silu_backward, third=aclnn.silu_backward).passed
    made = literal("layer_norm_backward")
    assert check("layer_norm_backward", norm_case(), made, normalizedShape=(40,), standards=["mixed"]).passed


@pytest.mark.parametrize("shape", [40, True, [40.0], "40"])
def test_a_normalized_shape_that_is_none_is_rejected(shape):
    with pytest.raises(AclnnError, match="aclnnLayerNormBackward: normalized_shape: expected a sequence of integers"):
        check("layer_norm_backward", norm_case(), {"grad_bias": np.ones(40, np.float32)}, normalized_shape=shape)


def test_attributes_may_be_arrays():
    made = literal("layer_norm_backward")
    report = check("layer_norm_backward", norm_case(), made, normalized_shape=np.array([40]))
    assert json.loads(report.to_json())["cases"][0]["attributes"]["normalized_shape"] == [40]


def test_a_masked_array_is_rejected():
    inputs = uniform(size=12)
    masked = np.ma.masked_array(inputs["self"], inputs["self"] > 0)
    with pytest.raises(AclnnError, match="self: expected an array without a mask"):
        check("silu_backward", {**inputs, "self": masked}, inputs["self"])
    with pytest.raises(AclnnError, match="self: expected an array without a mask"):
        aclnn.silu_backward(inputs["grad_output"], masked)


def test_torch_tensors_are_taken():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.linspace(-5, 5, 3000).to(torch.bfloat16)
    dy = torch.ones_like(x)
    assert check("silu_backward", {"grad_output": dy, "self": x}, torch.ops.aten.silu_backward(dy, x)).passed


def test_named_standards_count_even_bitwise():
    inputs = uniform(size=3000)
    report = check("silu_backward", inputs, literal("silu_backward"), standards=["bitwise"])
    assert list(standards_of(report)) == ["bitwise"]
    assert not report.passed
    usual = standards_of(check("silu_backward", inputs, literal("silu_backward")))
    assert usual["bitwise"]["verdict"] == "fail"
    assert not usual["bitwise"]["counts"]


@pytest.mark.parametrize("standards", [[], ()])
def test_no_decisive_standard_does_not_pass(standards):
    inputs = uniform(size=12)
    with pytest.raises(ValueError, match=r"standards: expected at least one of mixed.*, got none"):
        assert_close_to_golden("silu_backward", inputs, np.zeros_like(inputs["self"]), standards=standards)


def test_a_named_standard_that_lacks_a_third_output_does_not_pass():
    inputs = uniform(size=12)
    with pytest.raises(ValueError, match="silu_backward: grad_input: commercial-L1 needs a reference output"):
        assert_close_to_golden("silu_backward", inputs, np.zeros_like(inputs["self"]), standards=["commercial-L1"])


def test_a_named_standard_that_lacks_eps_does_not_pass():
    inputs, made = norm_case(), literal("layer_norm_backward")
    with pytest.raises(ValueError, match=r"layer_norm_backward: grad_input: commercial-L2 a norm's backward .* eps"):
        check("layer_norm_backward", inputs, made, third=made, standards=["commercial-L2"], normalized_shape=(40,))


def test_an_output_without_a_reference_output_does_not_pass():
    """An output without a reference fails with one that has a reference."""
    inputs = norm_case()
    dx, dw, db = literal("layer_norm_backward")(**inputs, normalized_shape=(40,))
    given = {"third": {"grad_input": dx}, "eps": 1e-5, "normalized_shape": (40,)}
    with pytest.raises(ValueError, match="grad_weight: commercial-L2 needs a reference output"):
        check("layer_norm_backward", inputs, (dx, dw, 0 * db), standards=["commercial-L2"], **given)
    outputs = check("layer_norm_backward", inputs, (dx, dw, 0 * db), **given).data["cases"][0]["outputs"]
    assert "needs a reference output" in outputs[2]["skipped"][0]["reason"]


def test_a_named_standard_that_cannot_decide_does_not_pass():
    inputs = uniform(size=3000)
    wrong = golden("silu_backward", inputs)["grad_input"].rounded * RNG.choice(np.float32([0.99, 1.01]), 3000)
    named = check("silu_backward", inputs, wrong, standards=["classified"])
    assert named.data["verdict"] == "undecided"
    assert not named.passed
    among_all = standards_of(check("silu_backward", inputs, wrong))["classified"]
    assert (among_all["verdict"], among_all["counts"]) == ("undecided", False)


def tiny_gradients(dtype="float32"):
    rng = np.random.default_rng(0)
    scale = {"float32": 1e-15, "bfloat16": 1e-15, "float16": 1e-5}[dtype]
    x, dy = 2 * rng.normal(size=(128, 256)), scale * rng.normal(size=(128, 256))
    return {"grad_output": dy.astype(kind(dtype)), "self": x.astype(kind(dtype))}


@pytest.mark.parametrize("standards", [None, *([name] for name in STANDARDS if name != "bitwise")])
def test_tiny_gradients_that_were_never_written_do_not_pass(standards):
    """A named fault fails the report even if all standards pass."""
    inputs = tiny_gradients()
    actual = golden("silu_backward", inputs)["grad_input"].rounded.copy()
    actual.reshape(-1)[-200:] = 0
    report = check("silu_backward", inputs, actual, standards=standards, third=actual)
    assert {row["verdict"] for row in standards_of(report).values() if row["counts"]} == {"pass"}
    assert not report.passed
    text = "the last 200 elements hold 0 instead of results"
    (output,) = report.data["cases"][0]["outputs"]
    assert (output["verdict"], output["reason"]) == ("fail", text)
    assert [(cause["name"], cause["structural"]) for cause in output["causes"]] == [("unwritten", True)]
    headline = f"FAIL silu_backward: grad_input is wrong: {text}, although no standard that counts fails; worst error "
    assert report.brief().splitlines()[0].startswith(headline)
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    assert f"is wrong: {text}, although no standard that counts fails" in report.to_html()


@pytest.mark.parametrize("fault", ["constant", "moved-data", "unwritten", "wrong-mode"])
@pytest.mark.parametrize("dtype", list(FORMATS))
def test_tiny_gradients_with_a_fault_of_structure_do_not_pass(dtype, fault):
    inputs = tiny_gradients(dtype)
    right = golden("gelu_backward_v2", inputs, approximate="none")["grad_input"].rounded
    if fault == "wrong-mode":
        actual = golden("gelu_backward_v2", inputs, approximate="tanh")["grad_input"].rounded
    else:
        plant = {"constant": np.zeros_like, "moved-data": lambda a: np.roll(a, 3), "unwritten": last_row_blank}
        actual = plant[fault](right)
    report = check("gelu_backward_v2", inputs, actual, standards=["mixed"], approximate="none")
    assert standards_of(report)["mixed"]["verdict"] == "pass"
    if dtype == "float16" and fault in ("wrong-mode", "constant"):
        # All is subnormal: the modes differ by less than a unit, and flushing to zero is no fault of structure.
        assert report.passed
        return
    assert report.data["verdict"] == "fail"
    assert report.data["cases"][0]["outputs"][0]["causes"][0]["name"] == fault


def last_row_blank(array):
    blank = array.copy()
    blank[-1] = 0
    return blank


def flushed(array):
    """Return numbers as a device without subnormal numbers has them."""
    least = FORMATS[array.dtype.name].smallest_normal
    return np.where(np.abs(array.astype(np.float64)) < least, 0, array).astype(array.dtype)


#: With a smooth slope and with kinks: one of each in every run.
SOUND = ("silu_backward", "hardswish_backward")


def hard_inputs(dtype):
    """Return a zero or tiny dy, and x where derivatives are 0, 1 or cancel: results that are rightly constant."""
    rng = np.random.default_rng(4)
    wide, half = rng.normal(size=(2, 4096)), np.arange(4096) < 2048
    huge = np.sign(wide[0]) * 10 ** rng.uniform(-3, 20, 4096)
    xs = (2 * wide[0], huge, rng.uniform(-9, -5, 4096), np.linspace(-110, 110, 4096), rng.choice([-3, 3, 0], 4096))
    xs += tuple(np.where(half, wide[0], constant) for constant in (-3, -10, -60, 60))
    dys = [scale * wide[1] for scale in (1, 1e-7, 1e-15, 1e-38, 1e-41)]
    with np.errstate(over="ignore"):
        for x in xs:
            for dy in (*dys, half * wide[1], np.ones(4096)):
                yield {"grad_output": dy.astype(kind(dtype)), "self": x.astype(kind(dtype))}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operator", "given", "dtype"),
    [
        pytest.param(*row, dtype, marks=[] if dtype == "float32" and row[0] in SOUND else pytest.mark.long)
        for row in OPERATORS[:-1]
        for dtype in ("float32", "float16", "bfloat16")
    ],
)
def test_no_sound_implementation_is_structurally_wrong(operator, given, dtype):
    for inputs in hard_inputs(dtype):
        outputs = [make(**inputs, **given) for make in implementations(operator).values()]
        outputs += [found.rounded for found in golden(operator, inputs, **given).values()]
        for actual in (*outputs, *map(flushed, outputs)):
            (output,) = check(operator, inputs, actual, standards=["mixed"], **given).data["cases"][0]["outputs"]
            assert [cause for cause in output["causes"] if cause["structural"]] == []


def norm_grads(shape):
    """Return gradients for dy with zero rows, columns or sums, or all tiny."""
    rng = np.random.default_rng(6)
    dy, rows, columns = rng.normal(size=shape), *np.indices(shape)
    yield from (scale * dy for scale in (1, 1e-15, 1e-38, 1e-41))
    yield from (np.ones(shape), np.where(rows < shape[0] // 2, 1, -1), np.sign(dy))
    yield from (dy * (rows < shape[0] // 2), dy * (columns < shape[1] // 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        pytest.param(
            shape,
            dtype,
            marks=[] if (shape, dtype) in (((64, 48), "float32"), ((3, 500), "bfloat16")) else pytest.mark.long,
        )
        for shape in ((64, 48), (3, 500))
        for dtype in ("float32", "float16", "bfloat16")
    ],
)
def test_no_sound_layer_norm_is_structurally_wrong(shape, dtype):
    """Float32 sums may be exactly 0 where the exact ones are only small."""
    rng = np.random.default_rng(7)
    xs = (rng.normal(size=shape), np.tile([1.0, -1.0], math.prod(shape) // 2).reshape(shape), np.full(shape, 2.0))
    for x in xs:
        for dy in norm_grads(shape):
            wide = x.astype(kind(dtype)).astype(np.float64)
            inputs = {
                "grad_out": dy.astype(kind(dtype)), "input": x.astype(kind(dtype)),
                "mean": wide.mean(1).astype(np.float32), "rstd": (1 / np.sqrt(wide.var(1) + 1e-5)).astype(np.float32),
                "weight": np.ones(shape[1], np.float32),
            }  # fmt: skip
            inputs |= {name: inputs[name].reshape(-1, 1) for name in ("mean", "rstd")}
            for make in implementations("layer_norm_backward").values():
                outputs = make(**inputs, normalized_shape=shape[1:])
                for actual in (outputs, tuple(map(flushed, outputs))):
                    report = check(
                        "layer_norm_backward", inputs, actual, standards=["mixed"], normalized_shape=shape[1:]
                    )
                    for output in report.data["cases"][0]["outputs"]:
                        assert [cause for cause in output["causes"] if cause["structural"]] == []


def norm_case(dtype="float32"):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 40)).astype(kind(dtype))
    stats = x.astype(np.float64)
    return {
        "grad_out": rng.normal(size=x.shape).astype(kind(dtype)), "input": x,
        "mean": stats.mean(1).astype(np.float32), "rstd": (1 / np.sqrt(stats.var(1) + 1e-5)).astype(np.float32),
        "weight": rng.normal(size=40).astype(np.float32),
    }  # fmt: skip


def test_layer_norm_is_verified_in_cascade():
    inputs = norm_case()
    made = {"actual": literal("layer_norm_backward"), "third": literal("layer_norm_backward")}
    plain = check("layer_norm_backward", inputs, **made, normalized_shape=(40,))
    outputs = plain.data["cases"][0]["outputs"]
    assert [output["name"] for output in outputs] == ["grad_input", "grad_weight", "grad_bias"]
    assert [row["name"] for row in outputs[0]["skipped"]] == ["commercial-L0", "commercial-L1", "commercial-L2"]
    assert "eps" in outputs[0]["skipped"][0]["reason"]
    # A mean that is off is right for the backward alone, and wrong for the cascade.
    shifted = {**inputs, "mean": inputs["mean"] + np.float32(1e-3)}
    exact = {name: item.rounded for name, item in golden("layer_norm_backward", shifted).items()}
    third = literal("layer_norm_backward")(**inputs, normalized_shape=(40,))
    report = check("layer_norm_backward", shifted, exact, third=third, eps=1e-5, normalized_shape=(40,))
    rows = {row["name"]: row for row in report.data["cases"][0]["outputs"][0]["standards"]}
    assert rows["mixed"]["verdict"] == "pass"
    assert rows["commercial-L0"]["verdict"] == "fail"


@pytest.mark.parametrize("eps", [math.nan, math.inf, -50, "1e-5", True])
def test_an_invalid_eps_is_rejected(eps):
    """With eps = nan or -50 any dump would pass."""
    inputs, made = norm_case(), literal("layer_norm_backward")
    with pytest.raises(ValueError, match="eps: expected a finite number from 0 on, got"):
        check("layer_norm_backward", inputs, made, third=made, eps=eps, normalized_shape=(40,))


def test_eps_is_rejected_where_there_is_no_cascade():
    inputs = uniform(size=12)
    with pytest.raises(ValueError, match="eps: expected none, which only layer_norm_backward is verified with"):
        check("silu_backward", inputs, inputs["self"], eps=1e-5)


def test_masked_out_outputs_are_not_verified():
    inputs = norm_case()
    exact = golden("layer_norm_backward", inputs)
    report = check("layer_norm_backward", inputs, {"grad_bias": exact["grad_bias"].rounded}, normalized_shape=(40,))
    assert report.passed
    assert [output["name"] for output in report.data["cases"][0]["outputs"]] == ["grad_bias"]
    assert report.data["cases"][0]["attributes"]["output_mask"] == [False, False, True]


@pytest.mark.parametrize("dtype", list(FORMATS))
@pytest.mark.filterwarnings("error")
def test_bit_patterns_of_every_kind_are_verified_without_a_warning(dtype):
    """Casts of signalling NaN must not warn, which -W error would turn into an exception."""
    rng = np.random.default_rng(3)
    width = np.dtype(kind(dtype)).itemsize
    x, dy, actual = (rng.integers(0, 1 << 8 * width, 3000).astype(f"u{width}").view(kind(dtype)) for _ in range(3))
    for operator, mode in (("silu_backward", None), ("gelu_backward_v2", "tanh"), ("hardswish_backward", None)):
        inputs = {"grad_output": dy, "self": x}
        assert not check(operator, inputs, actual, third=dy, **attributes(mode)).passed
        exact = next(iter(golden(operator, inputs, approximate=mode).values())).rounded
        assert check(operator, inputs, exact, standards=["mixed", "bitwise"], **attributes(mode)).passed
    norm = {**norm_case(dtype), "input": x[:2400].reshape(60, 40), "grad_out": dy[:2400].reshape(60, 40)}
    norm |= {"mean": norm["mean"][:60], "rstd": norm["rstd"][:60]}
    sums = actual[:40].astype(np.float32), actual[40:80].astype(np.float32)
    assert not check("layer_norm_backward", norm, (norm["input"], *sums), normalized_shape=(40,)).passed


def test_verify_demanded_an_argument_that_run_has_a_default_for():
    inputs = uniform(size=30)
    report = check("gelu_backward_v2", inputs, aclnn.gelu_backward_v2(**inputs))
    assert report.passed
    assert report.data["cases"][0]["attributes"] == {"approximate": "none"}


def test_an_actual_that_does_not_fit_was_the_fault_of_grad_output():
    inputs = uniform(size=30)
    with pytest.raises(AclnnError) as caught:
        check("silu_backward", inputs, np.zeros(29, np.float32))
    assert caught.value.message == "aclnnSiluBackward: actual grad_input: expected shape [30], got [29]"


def test_the_first_line_named_neither_output_nor_error_nor_cause():
    inputs = uniform(size=3000)
    exact = golden("silu_backward", inputs)["grad_input"].rounded
    (line, *_) = check("silu_backward", inputs, exact).brief().splitlines()
    assert line == "PASS silu_backward: grad_input passes mixed (7 of 7 standards pass); no element is off"
    wrong = exact.copy()
    wrong[1000:1900] = 0
    (line, *_) = check("silu_backward", inputs, wrong, standards=["mixed", "bitwise"]).brief().splitlines()
    assert re.fullmatch(
        r"FAIL silu_backward: grad_input fails 2 of 2 standards \(mixed, bitwise\); worst error \S+ ULP at \[1\d+\]; "
        r"probable cause: the 900 elements from 1000 to 1899 hold 0 instead of results",
        line,
    )


def test_the_pytest_helper_fails_with_the_brief_report():
    inputs = uniform(size=3000)
    exact = golden("silu_backward", inputs)["grad_input"].rounded
    assert_close_to_golden("silu_backward", inputs, exact)
    with pytest.raises(AssertionError) as caught:
        assert_close_to_golden("gelu_backward_v2", inputs, literal("gelu_backward_v2")(**inputs, approximate="tanh"),
                               approximate="none")  # fmt: skip
    text = str(caught.value)
    assert "FAIL gelu_backward_v2 approximate=none" in text
    assert "mere-mare" in text
    assert "[wrong-mode" in text
    assert re.search(r"expected \S+ \(0x[0-9a-f]{8}\), got \S+ \(0x[0-9a-f]{8}\): \S+ ULP", text)


def test_a_dump_is_read_block_by_block(tmp_path):
    """Peak memory is far below the size of the dump."""
    from aclnn import io

    size = 8_000_000
    probe = (
        "import resource, sys, numpy as np\n"
        "from aclnn import io\n"
        "from aclnn.verify import check\n"
        "x = io.read(sys.argv[1])[:1000]\n"
        "check('silu_backward', {'grad_output': x, 'self': x}, x, standards=['mixed', 'close'])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "x = io.read(sys.argv[1])\n"
        "check('hardswish_backward', {'grad_output': x, 'self': x}, x, standards=['mixed'])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    io.write(tmp_path / "x.npy", np.random.default_rng(3).uniform(-5, 5, size).astype(np.float16))
    done = subprocess.run(
        [sys.executable, "-c", probe, str(tmp_path / "x.npy")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # A dozen float64 arrays of the whole would be 0.8 GB; blocks in flight are 0.2 GB however large the dump is.
    assert int(done.stdout) < 400_000
