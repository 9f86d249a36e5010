"""LayerNorm of sums and its gradients on rows that float32 arithmetic would spoil: exact, each for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.execution import arrays
from tests.cases import CASE_BY_NAME
from tests.cases.table import T
from tests.helpers.calls import assert_close

Array = np.ndarray[Any, Any]
F32, N = np.float32, 40
NAMES = ("add_layer_norm", "deep_norm")
NORMAL = np.random.default_rng(12).normal(size=N)


def _with(place: int, value: float) -> Array:
    return np.where(np.arange(N) == place, value, NORMAL)


FINITE = {
    "ordinary": NORMAL,
    "large mean, small variance": 4096.0 + NORMAL * 2.0**-8,
    "one huge element": _with(7, 1e30),
    "squares beyond float32": NORMAL * 1e30,
    "equal elements": np.full(N, 0.1),
    "zeros": np.zeros(N),
    "subnormal": NORMAL * 1e-42,
}
OTHERS = {
    "NaN": _with(3, np.nan),
    "infinite": _with(5, np.inf),
    "negative infinite": _with(N - 1, -np.inf),
    "both infinities": np.where(np.arange(N) == 9, -np.inf, _with(8, np.inf)),
}


def checked(name: str, given: dict[str, Any]) -> dict[str, Array]:
    """Compute results, and compare them with the formula in extended precision."""
    case = CASE_BY_NAME[name]
    inputs = [given[p.name] for p in case.operator.inputs]
    attributes = tuple(given[p.name] for p in case.operator.attributes)
    results = arrays.call(case.operator, inputs, attributes, (None,) * len(case.operator.outputs))
    found = dict(zip((p.name for p in case.operator.outputs), results, strict=True))
    assert case.reference is not None
    with np.errstate(all="ignore"):
        expected = case.reference(given, {key: T(D.of_numpy(value.dtype), value.shape) for key, value in found.items()})
    for key, value in found.items():
        assert_close(key, value, *expected[key])
    return found


def terms(rows: dict[str, Array]) -> dict[str, Array]:
    """Return terms, by both operators' names, whose sums are these rows."""
    x = np.stack([*rows.values()]).astype(F32)
    return dict.fromkeys(("x1", "x"), x) | dict.fromkeys(("x2", "gx"), (x * F32(0.5)).astype(F32)) | {"alpha": 0.5}


def forward(rows: dict[str, Array], eps: float) -> dict[str, Any]:
    """Return arguments of both operators."""
    w, b = np.random.default_rng(1).normal(size=(2, N)).astype(F32)
    others = {"biasOptional": np.zeros(N, F32), "additionalOutput": True, "epsilon": eps}
    return {**terms(rows), "gamma": w, "beta": b, **others}


@pytest.mark.parametrize("eps", [1e-5, 0.0])
@pytest.mark.parametrize("name", NAMES)
def test_every_row_is_normalised_for_itself(name: str, eps: float) -> None:
    given = forward(FINITE | OTHERS, eps)
    found = checked(name, given)
    spoilt = ["equal elements", "zeros", *OTHERS] if eps == 0.0 else [*OTHERS]
    places = [(*FINITE, *OTHERS).index(key) for key in spoilt]
    assert np.isnan(found["yOut"][places]).all()
    assert np.isfinite(np.delete(found["yOut"], places, 0)).all()
    alone = checked(name, given | {key: given[key][1:2] for key in ("x1", "x2", "x", "gx")})
    assert (alone["yOut"] == found["yOut"][1]).all()


def gradient(rows: dict[str, Array], statistics: dict[str, Array]) -> dict[str, Any]:
    """Return arguments of both gradients."""
    rng = np.random.default_rng(2)
    dy, dsum = rng.normal(size=(2, len(rows), N)).astype(F32)
    given = {"dy": dy, "dsumOptional": dsum, "gamma": rng.normal(size=N).astype(F32)}
    return {**terms(rows), **given, "mean": statistics["meanOut"], "rstd": statistics["rstdOut"]}


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_a_row_depend_on_that_row(name: str) -> None:
    for rows in (FINITE, FINITE | OTHERS):
        statistics = checked(name, forward(rows, 1e-5))
        found = checked(f"{name}_grad", gradient(rows, statistics))
        assert np.isfinite(found["dxOut"][: len(FINITE)]).all()
        assert np.isnan(found["dxOut"][len(FINITE) :]).all()
        assert np.isfinite(found["dbetaOut"]).all()
