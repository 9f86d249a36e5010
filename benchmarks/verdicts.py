"""Assess implementations by every standard, on cases of its generator, for every operator and data type.

``python -m benchmarks.verdicts`` prints the table of docs/verify-bench.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aclnn.verify.cases.case import Case, make_case
from aclnn.verify.checking import Counting, assess, chosen_standards
from aclnn.verify.number_formats import FORMATS
from aclnn.verify.standards.evaluate import evaluate
from aclnn.verify.standards.measures import Standard, Verdict
from aclnn.verify.standards.published import STANDARDS
from benchmarks.generators import GENERATORS, mixed
from benchmarks.implementations import LITERAL, Implementation, implementations, literal

Array = np.ndarray[Any, Any]

OPERATORS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("fast_gelu_backward", {}),
    ("silu_backward", {}),
    ("gelu_backward_v2", {"approximate": "none"}),
    ("gelu_backward_v2", {"approximate": "tanh"}),
    ("hardswish_backward", {}),
    ("layer_norm_backward", {"normalized_shape": (255,)}),
)
CASES = 10
"""Cases of each generator: the ten kinds of the generator for L1 and L2, or five of both kinds of the others."""
SIZES = (15, 1024, 32767, 65536)
_EPS = 1e-5
_REPEATS, _REPEATS_L2 = 50, 1000


@dataclass
class Row:
    """Passed and assessed cases by standard, for an implementation of an operator in a data type."""

    operator: str
    dtype: str
    implementation: str
    passed: dict[str, int] = field(default_factory=dict)
    assess: dict[str, int] = field(default_factory=dict)

    def count(self, standard: str, passed: bool) -> None:
        """Count a case."""
        self.assess[standard] = self.assess.get(standard, 0) + 1
        self.passed[standard] = self.passed.get(standard, 0) + passed


@dataclass(frozen=True)
class Table:
    """Results of all implementations."""

    rows: list[Row]

    @property
    def own_pass(self) -> bool:
        """True if this project's operators pass every case of the default standard (mixed) and repeat their bits.

        Other standards would be too strict: no float32 result of LayerNorm's dx passes mere-mare if the terms cancel.
        """
        return all(
            row.passed[name] == row.assess[name]
            for row in self.rows
            if row.implementation == "aclnn"
            for name in ("mixed", "repeats")
        )

    def markdown(self) -> str:
        """Format as a Markdown table: ✓ if all cases pass, else the number that pass."""
        names = [*STANDARDS, "repeats"]
        lines = [
            f"| operator | type | implementation | {' | '.join(names)} |",
            f"|---|---|---|{'---|' * len(names)}",
        ]
        for row in self.rows:
            cells = " | ".join(_cell(row.passed.get(name), row.assess.get(name)) for name in names)
            lines.append(f"| {row.operator} | {row.dtype} | {row.implementation} | {cells} |")
        return "\n".join(lines)


def _cell(passed: int | None, assess: int | None) -> str:
    if assess is None or passed is None:
        return "–"
    return "✓" if passed == assess else f"{passed}/{assess}"


def run(step: Callable[[str], Any] = lambda name: None, cases: int = CASES, most: int = SIZES[-1]) -> Table:
    """Assess every implementation.

    Args:
        step: called with a description of the next step.
        cases: number of cases of each generator.
        most: number of elements in the largest case.
    """
    rows = []
    for operator, attributes in OPERATORS:
        for dtype in FORMATS:
            for name, implementation in implementations(operator).items():
                shown = " ".join((operator, *(str(v) for v in attributes.values() if isinstance(v, str))))
                step(f"assessing {shown} {dtype}, {name}")
                row = Row(shown, dtype, name)
                _assess(row, operator, attributes, implementation, name != LITERAL, cases, most)
                rows.append(row)
    return Table(rows)


def _assess(
    row: Row,
    operator: str,
    attributes: Mapping[str, Any],
    implementation: Implementation,
    compared: bool,
    cases: int,
    most: int,
) -> None:
    third = literal(operator) if compared else None
    # "classified" may compare with a native reference, which is the literal formula itself.
    direct = [s for s in chosen_standards(None) if not s.needs_third and (compared or s.name != "classified")]
    groups: list[tuple[str, list[Standard]]] = [("mixed", direct)]
    if third is not None:
        groups += [(s.name, [s]) for s in STANDARDS.values() if s.needs_third]
    for generator, standards in groups:
        eps = _EPS if operator == "layer_norm_backward" and standards[0].needs_third else None
        for case in _cases(operator, attributes, row.dtype, implementation, third, generator, cases, most):
            outcomes = evaluate(case, standards, eps)
            for standard in standards:
                verdicts = [assess(measured, standard, Counting.ALL).verdict for measured in outcomes]
                row.count(standard.name, Verdict.FAIL not in verdicts)
    row.count("repeats", _repeats(operator, attributes, row.dtype, implementation))


def _cases(
    operator: str,
    attributes: Mapping[str, Any],
    dtype: str,
    implementation: Implementation,
    third: Implementation | None,
    generator: str,
    cases: int,
    most: int,
) -> Iterator[Case]:
    for seed in range(cases):
        inputs = _inputs(operator, attributes, dtype, min(SIZES[seed % len(SIZES)], most), seed, generator)
        actual = implementation(**inputs, **attributes)
        other = None if third is None else third(**inputs, **attributes)
        yield make_case(operator, inputs, actual, other, attributes)


def _inputs(
    operator: str, attributes: Mapping[str, Any], dtype: str, size: int, seed: int, generator: str
) -> dict[str, Array]:
    return like(_shaped(operator, attributes, dtype, size), seed, generator, _EPS)


def _shaped(operator: str, attributes: Mapping[str, Any], dtype: str, size: int) -> Case:
    """Return a case of about ``size`` elements, filled with zeros."""
    kind = FORMATS[dtype].dtype.numpy
    if operator != "layer_norm_backward":
        empty = np.zeros(size, kind)
        return make_case(operator, {"grad_output": empty, "self": empty}, empty, None, attributes)
    columns = int(np.prod(attributes["normalized_shape"]))
    rows = max(2, size // columns)
    x, statistics = np.zeros((rows, columns), kind), np.zeros((rows, 1), np.float32)
    weight = np.zeros(columns, np.float32)
    inputs = {"grad_out": x, "input": x, "mean": statistics, "rstd": statistics, "weight": weight}
    return make_case(operator, inputs, (x, weight, weight), None, attributes)


def _repeats(operator: str, attributes: Mapping[str, Any], dtype: str, implementation: Implementation) -> bool:
    """Return true for bitwise equal results, 1,000 times on a small case (as L2 requires), 50 times on a larger one."""
    for size, times in ((1023, _REPEATS_L2), (65535, _REPEATS)):
        inputs = _inputs(operator, attributes, dtype, size, 0, "mixed")
        first = _bytes(implementation(**inputs, **attributes))
        if any(_bytes(implementation(**inputs, **attributes)) != first for _ in range(times - 1)):
            return False
    return True


def _bytes(outputs: Any) -> list[bytes]:
    return [array.tobytes() for array in (outputs if isinstance(outputs, tuple) else (outputs,))]


def like(case: Case, seed: int, standard: str = "mixed", eps: float | None = None) -> dict[str, Array]:
    """Generate inputs of a case's shapes and data types by a standard's generator from a seed.

    LayerNorm's mean and rstd are those of its input (eps 1e-5 unless given).
    """
    generate = GENERATORS.get(standard, mixed)
    inputs = {}
    for position, (name, array) in enumerate(case.inputs.items()):
        values = generate(seed + 1_000_003 * position * 10, array.size)
        inputs[name] = values.astype(array.dtype).reshape(array.shape)
    if "rstd" in inputs:
        columns = int(np.prod(case.attributes["normalized_shape"]))
        rows = inputs["input"].reshape(-1, columns).astype(np.float64)
        rstd = 1.0 / np.sqrt(rows.var(axis=1) + (1e-5 if eps is None else eps))
        for name, values in (("mean", rows.mean(axis=1)), ("rstd", rstd)):
            inputs[name] = values.astype(case.inputs[name].dtype).reshape(case.inputs[name].shape)
    return inputs


def main() -> None:
    """Print the progress and the table."""
    print(run(lambda name: print(name, file=sys.stderr)).markdown())


if __name__ == "__main__":
    main()
