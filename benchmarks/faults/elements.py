"""Faults of activations and their gradients, elementwise operators with one output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from aclnn.operators import BY_NAME, function_of
from aclnn.verify import golden
from aclnn.verify.number_formats import FORMATS
from benchmarks import faults
from benchmarks.faults import Array, Result
from benchmarks.implementations import implementations, literal

SHAPE = (2, 64, 32, 32)
SINGLE, HALF, BRAIN = "float32", "float16", "bfloat16"


@dataclass(frozen=True)
class Subject:
    """An operator in a data type, with its inputs and attributes."""

    operator: str
    dtype: str
    attributes: dict[str, Any] = field(default_factory=dict)
    scale: float = 2.0

    @property
    def label(self) -> str:
        """Name of the operator and its data type."""
        return f"{self.operator} {self.dtype}"


@dataclass
class Given:
    """A subject's inputs and correct results."""

    subject: Subject
    inputs: dict[str, Array]
    right: Array
    """Results of this project's kernels."""

    def run(self, inputs: dict[str, Array] | None = None, operator: str | None = None, **changed: Any) -> Array:
        """Compute with other inputs, attributes or operator."""
        function = function_of(BY_NAME[operator or self.subject.operator])
        attributes = {**({} if operator else self.subject.attributes), **changed}
        return np.array(function(**(inputs or self.inputs), **attributes))

    def changed(self, name: str, change: Callable[[Array], Array]) -> Array:
        """Compute with one input changed."""
        value = change(self.inputs[name].astype(np.float64)).astype(self.inputs[name].dtype)
        return self.run({**self.inputs, name: value})

    @property
    def exact(self) -> Array:
        """Compute exact results in float64."""
        (found,) = golden(self.subject.operator, self.inputs, **self.subject.attributes).values()
        return found.value

    def rounded(self, values: Array) -> Array:
        """Round values to the output's data type."""
        return FORMATS[self.subject.dtype].round(np.asarray(values, np.float64))


@cache
def given(subject_index: int) -> Given:
    """Return the inputs and the correct result of a subject."""
    subject = SUBJECTS[subject_index]
    rng = np.random.default_rng(subject_index)
    kind = FORMATS[subject.dtype]
    shape = SHAPE
    inputs = {
        p.python_name: kind.round(rng.normal(size=shape) * (1.0 if "grad" in p.python_name else subject.scale))
        for p in BY_NAME[subject.operator].inputs
    }
    if subject.operator == "sigmoid_backward":
        inputs["output"] = kind.round(1 / (1 + np.exp(-rng.normal(size=shape))))
    made = Given(subject, inputs, np.empty(0))
    made.right = made.run()
    return made


SUBJECTS = [
    Subject(operator, dtype, attributes)
    for operator, attributes in (
        ("silu_backward", {}),
        ("gelu_backward_v2", {"approximate": "tanh"}),
        ("hardswish_backward", {}),
        ("mish_backward", {}),
        ("elu_backward", {"alpha": 0.75, "scale": 1.0, "input_scale": 1.0, "is_result": False}),
        ("softplus_backward", {"beta": 1.5, "threshold": 20.0}),
        ("silu", {}),
        ("gelu_v2", {"approximate": 1}),
        ("sigmoid_backward", {}),
    )
    for dtype in (SINGLE, HALF, BRAIN)
]


@dataclass(frozen=True)
class Fault:
    """A fault to plant, the causes that count as its name, and the subjects that can show it."""

    name: str
    causes: frozenset[str]
    plant: Callable[[Given], Array]
    fits: Callable[[Subject], bool] = lambda subject: True


FAULTS: list[Fault] = []


def fault(name: str, *causes: str, fits: Callable[[Subject], bool] = lambda s: True) -> Callable[[Any], Any]:
    """Register a fault."""

    def register(plant: Callable[[Given], Array]) -> Callable[[Given], Array]:
        FAULTS.append(Fault(name, frozenset(causes), plant, fits))
        return plant

    return register


def _single(subject: Subject) -> bool:
    return subject.dtype == SINGLE


def is_gradient(subject: Subject) -> bool:
    """Return true for a gradient, by its operator's name."""
    return "backward" in subject.operator


def _of(*operators: str) -> Callable[[Subject], bool]:
    return lambda subject: subject.operator in operators


def _both(*rules: Callable[[Subject], bool]) -> Callable[[Subject], bool]:
    return lambda subject: all(rule(subject) for rule in rules)


def _set(where: Any, value: float) -> Callable[[Given], Array]:
    def plant(g: Given) -> Array:
        made = g.right.copy()
        made.reshape(-1)[where] = value
        return made

    return plant


_UNWRITTEN = ("unwritten", "constant")
for _name, _where, _value, _causes in (
    ("one NaN", 70001, np.nan, ("not-finite",)),
    ("one infinity", 5, np.inf, ("not-finite", "bit-flip")),
    ("NaN in 2 % of the elements", slice(None, None, 50), np.nan, ("not-finite",)),
    ("NaN in a tile of 4,096", slice(8192, 12288), np.nan, ("not-finite",)),
    ("the last 2,000 elements 0", slice(-2000, None), 0.0, _UNWRITTEN),
    ("the first 1,024 elements 0", slice(0, 1024), 0.0, _UNWRITTEN),
    ("a tile of 4,096 elements 0", slice(40960, 45056), 0.0, _UNWRITTEN),
    ("a stretch of 300 elements 7", slice(1000, 1300), 7.0, _UNWRITTEN),
    ("everything 0", slice(None), 0.0, ("constant",)),
    ("everything NaN", slice(None), np.nan, ("constant", "not-finite")),
):
    fault(_name, *_causes)(_set(_where, _value))


def _columns(g: Given) -> Array:
    made = g.right.copy()
    made[..., -5:] = 0.0
    return made


fault("the last 5 columns of every row 0", *_UNWRITTEN)(_columns)


def _flip(bit: int, count: int) -> Callable[[Given], Array]:
    def plant(g: Given) -> Array:
        made = g.right.copy()
        bits = FORMATS[g.subject.dtype].bits(made).reshape(-1)
        large = np.flatnonzero(np.abs(g.right.reshape(-1).astype(np.float64)) > 0.5)
        bits[large[len(large) // 3 :: 1000][:count]] ^= np.array(1 << (8 * made.dtype.itemsize + bit), bits.dtype)
        return bits.view(made.dtype).reshape(made.shape)

    return plant


fault("one flipped exponent bit", "bit-flip")(_flip(-4, 1))
fault("the sign of one element flipped", "bit-flip")(_flip(-1, 1))
fault("one bit flipped in each of 12 elements", "bit-flip")(_flip(-5, 12))


def _tile(size: int, begin: int, source: str) -> Callable[[Given], Array]:
    def plant(g: Given) -> Array:
        made, flat = g.right.copy(), g.right.reshape(-1)
        rng = np.random.default_rng(3)
        there = flat[begin - size : begin] if source == "before" else g.rounded(rng.normal(size=size))
        made.reshape(-1)[begin : begin + size] = there
        return made

    return plant


for _size, _begin, _source in (
    (4096, 16384, "before"), (4096, 16384, "random"), (1024, 99328, "random"), (32768, 65536, "before"),
    (512, 4096, "random"),
):  # fmt: skip
    fault(f"a stale tile of {_size:,} ({_source})", "stale")(_tile(_size, _begin, _source))


def _stale_numpy(g: Given) -> Array:
    made = np.array(literal(g.subject.operator)(**g.inputs, **g.subject.attributes))
    made.reshape(-1)[8192:12288] = made.reshape(-1)[:4096]
    return made


fault("a stale tile in NumPy's result", "stale", fits=_of("silu_backward", "gelu_backward_v2"))(_stale_numpy)


def _block(g: Given) -> Array:
    made = g.right.copy()
    made[0, 3, 5:17, 8:24] = g.rounded(np.random.default_rng(5).normal(size=(12, 16)))
    return made


fault("a stale block of 12 rows × 16 columns", "stale")(_block)


def _nc1hwc0(a: Array) -> Array:
    n, c, h, w = a.shape
    return np.ascontiguousarray(a.reshape(n, c // 16, 16, h, w).transpose(0, 1, 3, 4, 2)).reshape(a.shape)


def _nz(a: Array) -> Array:
    n, c, h, w = a.shape
    return np.ascontiguousarray(a.reshape(n, c, h // 16, 16, w // 16, 16).transpose(0, 1, 4, 2, 3, 5)).reshape(a.shape)


def _nhwc(a: Array) -> Array:
    return np.ascontiguousarray(a.transpose(0, 2, 3, 1)).reshape(a.shape)


_LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "transposed": lambda a: np.ascontiguousarray(a.swapaxes(2, 3)),
    "in NHWC order": _nhwc,
    "in NC1HWC0 order": _nc1hwc0,
    "in FRACTAL_NZ order": _nz,
    "reversed": lambda a: a.reshape(-1)[::-1].reshape(a.shape),
    "with its rows reversed": lambda a: a[:, :, ::-1],
    "with its channels reversed": lambda a: a[:, ::-1],
    "shifted by one element": lambda a: np.roll(a, 1),
    "shifted by 100 elements": lambda a: np.roll(a, -100),
    "with batch and channel read in the other order": lambda a: np.ascontiguousarray(a.swapaxes(0, 1)).reshape(a.shape),
}
for _name, _change in _LAYOUTS.items():
    fault(f"the result {_name}", "moved-data")(lambda g, change=_change: np.array(change(g.right)))
for _name in ("transposed", "shifted by one element", "in NHWC order"):
    fault(f"x {_name}", "moved-data", fits=is_gradient)(
        lambda g, change=_LAYOUTS[_name]: g.changed([*g.inputs][1], change)
    )
fault("grad_output with its rows reversed", "moved-data", fits=is_gradient)(
    lambda g: g.changed(next(iter(g.inputs)), _LAYOUTS["with its rows reversed"])
)

for _factor in (1.001, 2.0, 0.5, 1.02, 65504.0 / 65536):
    fault(
        f"the result × {_factor:g}",
        "scaled",
        "wrong-attribute",
        "wrong-constant",
        fits=_single if abs(_factor - 1) < 0.01 else lambda s: True,
    )(lambda g, factor=_factor: g.rounded(factor * g.right.astype(np.float64)))
fault("the wrong sign", "sign")(lambda g: g.rounded(-g.right.astype(np.float64)))

# Operands and operations.
fault("grad_output left out", "wrong-input", "wrong-operation", fits=is_gradient)(
    lambda g: g.changed(next(iter(g.inputs)), np.ones_like)
)
fault("operands exchanged", "wrong-input", fits=_both(is_gradient, lambda s: s.operator != "sigmoid_backward"))(
    lambda g: g.run(dict(zip(g.inputs, reversed([*g.inputs.values()]), strict=True)))
)
fault("x taken for grad_output", "wrong-input", fits=is_gradient)(
    lambda g: g.run(dict.fromkeys(g.inputs, [*g.inputs.values()][1]))
)
fault("x with the wrong sign", "wrong-input", fits=lambda s: s.operator != "sigmoid_backward")(
    lambda g: g.changed([*g.inputs][-1], np.negative)
)
fault("grad_output handed through", "wrong-operation", fits=is_gradient)(lambda g: next(iter(g.inputs.values())).copy())
fault("the forward function", "wrong-operation", fits=_of("silu_backward", "mish_backward"))(
    lambda g: np.array(function_of(BY_NAME[g.subject.operator.removesuffix("_backward")])(g.inputs["self"]))
)
fault(
    "another operator: SiLU's gradient",
    "wrong-operation",
    "wrong-mode",
    fits=_of("hardswish_backward", "mish_backward", "gelu_backward_v2"),
)(lambda g: g.run(g.inputs, "silu_backward"))
fault("another operator: FastGELU's gradient", "wrong-operation", fits=_of("gelu_backward_v2", "silu_backward"))(
    lambda g: g.run(g.inputs, "fast_gelu_backward")
)
fault("another operator: Sigmoid", "wrong-operation", fits=_of("silu", "gelu_v2"))(
    lambda g: np.array(function_of(BY_NAME["sigmoid"])(next(iter(g.inputs.values()))))
)
fault("the mode that was not asked for", "wrong-mode", fits=_both(_of("gelu_backward_v2"), _single))(
    lambda g: g.run(approximate="none")
)
fault("the mode that was not asked for (forward)", "wrong-mode", fits=_both(_of("gelu_v2"), _single))(
    lambda g: g.run(approximate=0)
)
fault("is_result for an input", "wrong-mode", fits=_of("elu_backward"))(
    lambda g: g.run(is_result=True, inputs={**g.inputs, "self_or_result": g.inputs["self_or_result"]})
)
for _name, _changed in (("alpha", {"alpha": 1.0}), ("alpha", {"alpha": 0.8}), ("input_scale", {"input_scale": 1.25})):
    fault(
        f"{_name} = {next(iter(_changed.values())):g}", "wrong-attribute", "wrong-constant", fits=_of("elu_backward")
    )(lambda g, changed=_changed: g.run(**changed))
for _changed in ({"beta": 1.0}, {"beta": 1.45}):
    fault(f"beta = {_changed['beta']:g}", "wrong-attribute", fits=_of("softplus_backward"))(
        lambda g, changed=_changed: g.run(**changed)
    )


def _hardswish(slope: float, offset: float = 0.5, edge: float = 3.0) -> Callable[[Given], Array]:
    def plant(g: Given) -> Array:
        dy, x = (values.astype(np.float64) for values in g.inputs.values())
        return g.rounded(dy * np.where(x > edge, 1.0, np.where(x < -edge, 0.0, x * slope + offset)))

    return plant


_HARDSWISH = _of("hardswish_backward")
for _slope, _offset, _edge in ((0.3334, 0.5, 3.0), (0.33, 0.5, 3.0), (1 / 3, 0.51, 3.0), (1 / 3, 0.5, 2.5)):
    fault(f"hardswish: slope {_slope:.4g}, offset {_offset:g}, edge {_edge:g}", "wrong-constant", fits=_HARDSWISH)(
        _hardswish(_slope, _offset, _edge)
    )


fault(
    "PyTorch's hardswish, where x = ±3 is outside",
    "edge",
    fits=_both(_HARDSWISH, lambda s: s.dtype != SINGLE),
)(lambda g: np.asarray(implementations("hardswish_backward")["PyTorch"](**g.inputs)))


def _gelu(cubic: float, root: float) -> Callable[[Given], Array]:
    def plant(g: Given) -> Array:
        dy, x = (values.astype(np.float64) for values in g.inputs.values())
        t = np.tanh(root * (x + cubic * x**3))
        slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * cubic * x * x)
        return g.rounded(dy * slope)

    return plant


for _cubic, _root in ((0.0447, 0.7978845608), (0.044715, 0.8), (0.05, 0.7978845608)):
    fault(
        f"gelu: constants {_cubic:g} and {_root:.4g}", "wrong-constant", fits=_both(_of("gelu_backward_v2"), _single)
    )(_gelu(_cubic, _root))

# Rounding.
for _kind in (HALF, BRAIN):
    fault(f"the result rounded to {_kind}", "narrow-output", fits=_single)(
        lambda g, kind=_kind: FORMATS[kind].round(g.right.astype(np.float64)).astype(np.float32)
    )
    fault(f"the inputs rounded to {_kind}", "narrow-input", fits=_single)(
        lambda g, kind=_kind: g.run(
            {k: FORMATS[kind].round(v.astype(np.float64)).astype(np.float32) for k, v in g.inputs.items()}
        )
    )
    fault(f"x rounded to {_kind}", "narrow-input", fits=_both(_single, is_gradient))(
        lambda g, kind=_kind: g.changed([*g.inputs][-1], lambda v: FORMATS[kind].round(v).astype(np.float64))
    )
    fault(f"computed in {_kind}", "narrow-computation", fits=_single)(lambda g, kind=_kind: _stepwise(g, kind))
fault("the result cut to bfloat16 (toward zero)", "narrow-output", fits=_single)(
    lambda g: (g.right.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
)
fault("the inputs cut to bfloat16 (toward zero)", "narrow-input", fits=_single)(
    lambda g: g.run({k: (v.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) for k, v in g.inputs.items()})
)
fault("the derivative rounded to float16", "narrow-step", fits=_both(_single, is_gradient))(
    lambda g: (
        next(iter(g.inputs.values()))
        * g.changed(next(iter(g.inputs)), np.ones_like).astype(np.float16).astype(np.float32)
    )
)
fault("computed in float16, for float16", "narrow-computation", fits=_both(lambda s: s.dtype == HALF, is_gradient))(
    lambda g: _stepwise(g, HALF)
)


def _stepwise(g: Given, kind: str) -> Array:
    """Compute with every step of a usual formula rounded to a data type, whatever that of the output."""
    one = FORMATS[kind]

    def r(values: Array) -> Array:
        return one.round(np.asarray(values, np.float64)).astype(np.float64)

    values = [r(v.astype(np.float64)) for v in g.inputs.values()]
    x, dy = values[-1], values[0]
    s = r(1 / r(1 + r(np.exp(r(-x)))))
    name = g.subject.operator
    if name == "silu":
        result = r(x * s)
    elif name == "gelu_v2":
        result = r(r(0.5 * x) * r(1 + r(np.tanh(r(r(0.79788) * r(x + r(r(0.044715) * r(x * r(x * x)))))))))
    elif name == "sigmoid_backward":
        result = r(dy * r(r(1 - x) * x))
    elif name == "hardswish_backward":
        result = r(dy * np.where(x > 3, 1.0, np.where(x < -3, 0.0, r(r(x * r(1 / 3)) + 0.5))))
    elif name == "elu_backward":
        result = r(dy * np.where(x > 0, 1.0, r(0.75 * r(np.exp(x)))))
    elif name == "softplus_backward":
        z = r(np.exp(r(1.5 * x)))
        result = np.where(r(1.5 * x) > 20, dy, r(r(dy * z) / r(z + 1)))
    elif name == "mish_backward":
        t = r(np.tanh(r(np.log1p(r(np.exp(x))))))
        result = r(dy * r(t + r(r(x * s) * r(1 - r(t * t)))))
    elif name == "gelu_backward_v2":
        t = r(np.tanh(r(r(0.79788) * r(x + r(r(0.044715) * r(x * r(x * x)))))))
        left = r(0.5 * r(1 + t))
        right = r(r(r(0.5 * x) * r(1 - r(t * t))) * r(r(0.79788) * r(1 + r(r(0.13414) * r(x * x)))))
        result = r(dy * r(left + right))
    else:
        result = r(dy * r(s * r(1 + r(x * r(1 - s)))))
    return FORMATS[g.subject.dtype].round(result)


def _towards_zero(g: Given) -> Array:
    kind = FORMATS[g.subject.dtype]
    exact = g.exact.reshape(g.right.shape)
    step = kind.ulp(exact)
    return kind.round(np.trunc(exact / step) * step)


fault("results rounded toward zero", "rounding")(_towards_zero)
fault("1 + tanh in float32", "one-plus-erf", "cancellation", fits=_both(_of("gelu_backward_v2"), _single))(
    lambda g: _one_plus_tanh(g)
)


def _one_plus_tanh(g: Given) -> Array:
    dy, x = g.inputs.values()
    root, cubic, half, one = (np.float32(c) for c in (0.7978845608, 0.044715, 0.5, 1.0))
    t = np.tanh(root * (x + cubic * x * x * x))
    slope = half * (one + t) + half * x * (one - t * t) * root * (one + np.float32(3) * cubic * x * x)
    return np.asarray(dy * slope)


fault("cancellation at the derivative's zero", "cancellation", fits=_both(_of("silu_backward"), _single))(
    lambda g: np.array(literal("silu_backward")(**g.inputs))
)


# Two faults at once; the larger one must be named first.
fault("NumPy's float32 and one NaN", "not-finite", fits=_both(_of("silu_backward"), _single))(
    lambda g: _with(np.array(literal("silu_backward")(**g.inputs)), 777, np.nan)
)
fault("NumPy's float32 and the last 5,000 elements 0", "unwritten", fits=_both(_of("silu_backward"), _single))(
    lambda g: _with(np.array(literal("silu_backward")(**g.inputs)), slice(-5000, None), 0.0)
)
fault(
    "inputs cut to bfloat16 and a stale tile",
    "narrow-input",
    "stale",
    fits=_both(_of("silu_backward", "mish_backward"), _single),
)(
    lambda g: _with(
        g.run({k: (v.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) for k, v in g.inputs.items()}),
        slice(4096, 8192),
        g.right.reshape(-1)[:4096],
    )
)


def _with(made: Array, where: Any, value: Any) -> Array:
    made.reshape(-1)[where] = value
    return made


def cases() -> Iterator[tuple[Fault, int]]:
    """Yield every fault with every subject that can show it."""
    for one in FAULTS:
        for index, subject in enumerate(SUBJECTS):
            if one.fits(subject):
                yield one, index


def assess(one: Fault, index: int) -> Result:
    """Plant a fault and diagnose the result."""
    g = given(index)
    with np.errstate(all="ignore"):
        actual = one.plant(g)
    of = g.subject
    return faults.assess(one.name, of.label, one.causes, 0, of.operator, g.inputs, actual, of.attributes)
