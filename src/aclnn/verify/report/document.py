"""The report: a JSON document, from which the page and the text are rendered."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.core.tensor import Scalar
from aclnn.io import replace_all
from aclnn.verify.cases.case import Case
from aclnn.verify.diagnosis.diagnose import diagnose
from aclnn.verify.diagnosis.evidence import Cause
from aclnn.verify.goldens.values import VALUE_BOUND_ULP, Progress
from aclnn.verify.number_formats import ALL_FORMATS, quiet
from aclnn.verify.standards.evaluate import Measured, NormInputSource, NormSumSource, ulp_error
from aclnn.verify.standards.measures import Figure, Outcome, Standard, Verdict
from aclnn.verify.standards.picture import AXIS_BINS, axis_edges, histogram_labels
from aclnn.verify.standards.published import MIXED_LIMITS
from aclnn.version import __version__

Json = dict[str, Any]
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Report:
    """Verdicts on one or more cases."""

    data: Json
    """The document written by to_json; docs/verify.md describes the fields."""

    @property
    def passed(self) -> bool:
        """False if a deciding standard failed, a named one was undecided, or an output has a structural fault."""
        return bool(self.data["verdict"] == Verdict.PASS.value)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the document as text, and write it to ``path`` if given, atomically."""
        text = json.dumps(self.data, indent=1, allow_nan=False) + "\n"
        return written(text, path)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return a self-contained page for light and dark displays, and write it to ``path`` if given, atomically.

        Raises:
            MissingExtraError: jinja2 is not installed.
        """
        from aclnn.verify.report.html import render

        return written(render(self.data), path)

    def to_junit(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return JUnit XML with one test per output, for CI, and write it to ``path`` if given, atomically."""
        from aclnn.verify.report.junit import render

        return written(render(self.data), path)

    def brief(self) -> str:
        """Return the verdict, every standard's figures, the worst element and the probable cause, as text."""
        from aclnn.verify.report.text import brief

        return brief(self.data)


def written(text: str, path: str | os.PathLike[str] | None) -> str:
    """Return the text, and write it to a file if a path is given, atomically.

    Raises:
        OSError: it cannot be written.
    """
    if path is not None:
        encoded = text.encode(errors="backslashreplace")  # file names may contain surrogates
        replace_all({Path(path): lambda file: file.write(encoded)})
    return text


def number(value: float) -> float | str:
    """Convert a float for JSON: "inf", "-inf" and "nan" become text."""
    return float(value) if math.isfinite(value) else str(float(value))


def document(cases: Sequence[Json]) -> Json:
    """Return the report of the cases."""
    return {"format": FORMAT_VERSION, "tool": f"aclnn {__version__}", "verdict": _verdict(cases), "cases": list(cases)}


def _verdict(parts: Sequence[Json]) -> str:
    return Verdict.of_all(Verdict(part["verdict"]) for part in parts).value


def case_document(case: Case, outputs: Sequence[Json]) -> Json:
    """Return the report of one case: its arguments and outputs."""
    arrays = [
        {"name": name, "role": role, "dtype": array.dtype.name, "shape": list(array.shape)}
        | ({"file": case.sources[f"{role} {name}"]} if f"{role} {name}" in case.sources else {})
        for role, group in (("input", case.inputs), ("actual", case.actual), ("third", case.third))
        for name, array in group.items()
    ]
    return {
        "name": case.name,
        "operator": case.operator.name,
        "function": case.operator.function,
        "formula": case.operator.formula,
        "attributes": {name: _plain(value) for name, value in case.attributes.items()},
        "arrays": arrays,
        "verdict": _verdict(outputs),
        "outputs": list(outputs),
        "unverified": [{"name": name, "dtype": dtype} for name, dtype in case.unverified.items()],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Scalar):
        return value.value.item()
    return value.c_name if isinstance(value, DataType) else list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Assessment:
    """A standard's outcome on an output, and whether it decides the output's verdict."""

    standard: Standard
    outcome: Outcome
    counts: bool

    @property
    def verdict(self) -> Verdict:
        """Verdict of the standard."""
        return self.outcome.verdict


@quiet
def output_document(
    measured: Measured, assessments: Sequence[Assessment], skipped: Mapping[str, str], progress: Progress | None = None
) -> Json:
    """Return the report of one output: verdicts, elements, charts, causes."""
    causes = _causes(measured, progress)
    verdict = Verdict.of_all(assessment.verdict for assessment in assessments if assessment.counts)
    fault = next((cause.text for cause in causes if cause.structural), "")
    shown = [assessment for assessment in assessments if assessment.verdict is not Verdict.UNDECIDED]
    picture = measured.picture
    wrong = picture.histogram[0] < picture.histogram.sum()
    return {
        "name": measured.name,
        "dtype": measured.target.name,
        "shape": list(measured.shape),
        "elements": int(math.prod(measured.shape)),
        "verdict": (Verdict.FAIL if fault else verdict).value,
        "reason": "" if verdict is Verdict.FAIL else fault,
        "standards": [_standard(measured, assessment) for assessment in assessments],
        "passing": [sum(assessment.verdict in (Verdict.PASS, Verdict.WARNING) for assessment in shown), len(shown)],
        "skipped": [{"name": name, "reason": reason} for name, reason in skipped.items()],
        "worst": _element(measured, picture.worst) if wrong else None,
        "causes": [vars(cause) for cause in causes],
        "golden": _golden(measured),
        "histogram": [
            {"label": label, "count": int(count)}
            for label, count in zip(histogram_labels(), picture.histogram, strict=True)
        ],
        "axis": _axis(measured),
        "by_x": [_bin(measured, index) for index in range(AXIS_BINS) if picture.by_x[0, index]],
        "map": _map(measured, bool(fault)),
    }


def _causes(measured: Measured, progress: Progress | None) -> list[Cause]:
    """Return probable causes; none if every element is the exact result rounded once."""
    if measured.picture.histogram[0] == measured.picture.histogram.sum():
        return []
    return diagnose(measured, progress)


def _axis(measured: Measured) -> str:
    operands = measured.source.whole.operands(slice(0, min(1, measured.source.size)))
    return next((name for name in operands if "grad" not in name), "golden value")


def _golden(measured: Measured) -> Json:
    norm = isinstance(measured.source, (NormInputSource, NormSumSource))
    bounded = measured.source.is_enclosed and not measured.undecided
    return {
        "arithmetic": "twice float64" if norm else "float64",
        "bound_ulp": 0.5 if bounded else None,
        "exact_bound_ulp": VALUE_BOUND_ULP if bounded else None,
        "settled": measured.resolved,
        "settled_by": "rationals" if norm else "python-flint",
        "undecided": measured.undecided,
    }


def _standard(measured: Measured, assessment: Assessment) -> Json:
    outcome = assessment.outcome
    return {
        "name": assessment.standard.name,
        "edition": assessment.standard.edition,
        "verdict": assessment.verdict.value,
        "counts": assessment.counts,
        "reason": assessment.outcome.reason,
        "figures": [_figure(figure) for figure in outcome.figures],
        "first": _element(measured, outcome.first),
        "worst": _element(measured, outcome.worst),
    }


def _figure(figure: Figure) -> Json:
    return {
        "name": figure.name,
        "value": number(figure.value),
        "relation": figure.relation,
        "limit": number(figure.limit),
        "holds": figure.holds,
    }


def _element(measured: Measured, index: int | None) -> Json | None:
    if index is None:
        return None
    elements = measured.source.elements(index, index + 1)
    target, actual = measured.target, elements.actual[0]
    coordinates = np.unravel_index(index, measured.shape) if measured.shape else ()
    golden = elements.golden
    return {
        "index": index,
        "coordinates": [int(at) for at in coordinates],
        "inputs": [
            {"name": name} | _value(ALL_FORMATS[str(array.dtype)].hex(array[0]), float(array[0]))
            for name, array in elements.inputs.items()
        ],
        "expected": _value(target.hex(golden.rounded[0]), float(golden.rounded[0])),
        "exact": number(float(golden.value[0])),
        "actual": _value(target.hex(actual), float(actual)),
        "ulp": number(float(ulp_error(elements.actual, golden, target)[0])),
    }


def _value(hexadecimal: str, value: float) -> Json:
    return {"value": number(value), "hex": hexadecimal}


def _bin(measured: Measured, index: int) -> Json:
    low, high = axis_edges(index)
    elements, failing, total, most = measured.picture.by_x[:, index].tolist()
    return {
        "low": low,
        "high": high,
        "elements": int(elements),
        "failing": int(failing),
        "mean_ulp": number(total / elements),
        "max_ulp": number(most),
    }


def _map(measured: Measured, structural: bool) -> Json:
    """Return a map of mismatches; for a structural fault within mixed's tolerance, of elements with larger errors."""
    rows, columns = measured.picture.map_shape
    mixed = measured.target.name in MIXED_LIMITS
    by_ulp = (structural and measured.source.is_enclosed) or not mixed
    elements, failing, wrong = measured.picture.cells[:, :rows, :columns].tolist()
    return {
        "of": [measured.picture.rows, measured.picture.columns],
        "elements": elements,
        "failing": wrong if structural else failing,
        "beyond": f"{measured.target.sound_ulp:g} ULP" if by_ulp else "mixed's tolerance",
    }
