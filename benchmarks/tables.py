"""Generate the tables of docs/numerics.md from the files that ``make exhaustive`` writes.

python -m benchmarks.tables
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.references import FORMULAS, FORWARDS

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "numerics.md"


class Table(NamedTuple):
    """Source of a table's rows; the first line identifies the table."""

    file: str
    wanted: Callable[[str], bool]
    """Predicate of an operator's name."""
    columns: dict[str, str]
    """The file's columns by their names on the page."""

    @property
    def heading(self) -> str:
        return line(self.columns)


_FOUND = {
    "provider": "provider",
    "x": "x",
    "worst ULP": "worst_ulp",
    "at x": "worst_x",
    "above 0.5 ULP": "above_half",
    "above 1 ULP": "above_1",
    "broken": "broken",
}
TABLES = (
    Table("exhaustive.csv", FORMULAS.__contains__, {"f": "operator"} | _FOUND),
    Table("exhaustive.csv", FORWARDS.__contains__, {"forward": "operator"} | _FOUND),
    Table(
        "exhaustive_products.csv",
        FORMULAS.__contains__,
        {
            "f": "operator",
            "data type": "dtype",
            "provider": "provider",
            "pairs": "pairs",
            "worst ULP": "worst_ulp",
            "at x": "worst_x",
            "and dy": "worst_dy",
            "above 0.5 ULP": "above_half",
            "above 1 ULP": "above_1",
            "broken": "broken",
        },
    ),
    Table(
        "exhaustive_hardest.csv",
        FORMULAS.__contains__,
        {
            "f": "operator",
            "derivatives": "inputs",
            "worst of 2^-24": "worst_relative",
            "above 1.5": "above_large",
            "worst ULP": "worst_ulp",
            "at x": "worst_x",
            "and dy": "worst_dy",
        },
    ),
)


_COUNTS = ("pairs", "inputs", "above_half", "above_1", "above_large", "broken")


def line(cells: Iterable[str]) -> str:
    """Write a line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def _cell(column: str, text: str) -> str:
    if column == "operator":
        return text.removesuffix("_forward")
    return f"{int(text):,}" if column in _COUNTS else text


def _lines(table: Table, folder: Path) -> Iterator[str]:
    yield table.heading
    yield line("---" for _ in table.columns)
    with open(folder / table.file, newline="") as file:
        for row in csv.DictReader(file):
            if table.wanted(row["operator"]):
                yield line(_cell(column, row[column]) for column in table.columns.values())


def page(text: str, folder: Path = HERE) -> str:
    """Return the page with its tables' rows replaced."""
    lines = text.splitlines()
    for table in TABLES:
        begin = lines.index(table.heading)
        end = next((i for i in range(begin, len(lines)) if not lines[i].startswith("|")), len(lines))
        lines[begin:end] = _lines(table, folder)
    return "\n".join(lines) + "\n"


def write() -> None:
    PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    write()
