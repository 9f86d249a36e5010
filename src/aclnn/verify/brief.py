"""A report as a few lines of plain text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def brief(report: Json) -> str:
    """Verdict, figures of every standard, worst element, probable cause."""
    return "\n".join(line for case in report["cases"] for line in _case(case))


def title(case: Json) -> str:
    """What was judged; and what is wrong with it where no standard says so."""
    attributes = "".join(f" {name}={value}" for name, value in case["attributes"].items() if value is not None)
    name = f"{case['name']}: " if case["name"] else ""
    wrong = "; ".join(f"{output['name']}: {objection(output)}" for output in case["outputs"] if output["reason"])
    return f"{name}{case['operator']}{attributes}{': ' if wrong else ''}{wrong}"


def objection(output: Json) -> str:
    """Why an output is wrong that no standard fails."""
    return f"{output['reason']}, although no standard that counts fails"


def _case(case: Json) -> Iterator[str]:
    yield f"{case['verdict'].upper()}  {title(case)}"
    for output in case["outputs"]:
        yield f"  {output['name']}: {output['dtype']} {output['shape']}"
        for standard in output["standards"]:
            yield f"    {standard['verdict'].upper():9} {standard['name']:15} {figures(standard)}"
        yield from (f"    {line}" for line in details(output))


def figures(standard: Json) -> str:
    """A standard's figures against their limits, on one line."""
    shown = ", ".join(
        f"{figure['name']} {short(figure['value'])} {'' if figure['holds'] else 'not '}{figure['relation']} "
        f"{short(figure['limit'])}"
        for figure in standard["figures"]
    )
    note = "" if standard["counts"] else " (does not count)"
    return f"{shown}{' · ' + standard['reason'] if standard['reason'] else ''}{note}"


def details(output: Json) -> Iterator[str]:
    """The worst element and the probable causes."""
    worst = output["worst"]
    if worst is not None:
        at = ", ".join(map(str, worst["coordinates"]))
        inputs = ", ".join(f"{item['name']} = {exact(item['value'])} ({item['hex']})" for item in worst["inputs"])
        yield f"worst: [{at}]{' with ' + inputs if inputs else ''}"
        yield (
            f"  expected {exact(worst['expected']['value'])} ({worst['expected']['hex']}), "
            f"got {exact(worst['actual']['value'])} ({worst['actual']['hex']}): {short(worst['ulp'])} ULP"
        )
    for cause in output["causes"]:
        yield f"probable cause: {cause['text']} [{cause['name']}, {100 * cause['share']:.3g} % of the wrong elements]"
    if worst is not None and not output["causes"]:
        failed = any(standard["verdict"] == "fail" and standard["counts"] for standard in output["standards"])
        if failed:
            yield "probable cause: none of the known ones"


def short(value: float | str) -> str:
    """Four significant digits."""
    return value if isinstance(value, str) else f"{value:.4g}"


def exact(value: float | str) -> str:
    """Nine significant digits: enough to tell float32 numbers apart."""
    return value if isinstance(value, str) else f"{value:.9g}"
