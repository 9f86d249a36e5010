"""The report as a few lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aclnn.verify.number_formats import ALL_FORMATS

Json = dict[str, Any]


def brief(report: Json) -> str:
    """Return verdict, every standard's figures, worst element and probable cause."""
    lines = [line for case in report["cases"] for line in _case(case)]
    return "\n".join([*lines, totals(report)] if len(report["cases"]) > 1 else lines)


def totals(report: Json) -> str:
    """Return the numbers of cases that passed, failed and remained undecided."""
    count = {verdict: sum(case["verdict"] == verdict for case in report["cases"]) for verdict in _VERDICT_TEXTS}
    said = ", ".join(
        f"{number} {_VERDICT_TEXTS[verdict]}" for verdict, number in count.items() if number or verdict == "pass"
    )
    return f"{len(report['cases'])} cases: {said}"


_VERDICT_TEXTS = {"pass": "pass", "fail": "fail", "undecided": "undecided"}


def title(case: Json) -> str:
    """Return a case's name and, for each output, its verdict, worst error and cause, or that it is not verified."""
    attributes = "".join(f" {name}={value}" for name, value in case["attributes"].items() if value is not None)
    name = f"{case['name']}: " if case["name"] else ""
    unverified = [f"{output['name']} is not verified ({output['dtype']})" for output in case["unverified"]]
    return f"{name}{case['operator']}{attributes}: {' · '.join([*map(headline, case['outputs']), *unverified])}"


def headline(output: Json) -> str:
    """Return an output's verdict, worst error and cause."""
    worst, causes = output["worst"], output["causes"]
    error = f"worst error {distance(output)} at {worst['coordinates']}" if worst else "no element is off"
    cause = f"; probable cause: {causes[0]['text']}" if causes and not output["reason"] else ""
    cause = f"; cause unknown: {causes[0]['text']}" if causes and causes[0]["name"] == "unknown" else cause
    return f"{output['name']} {summary(output)}; {error}{cause}"


def summary(output: Json) -> str:
    """Return how many standards fail or remain undecided and which, or what is wrong although none fails."""
    if output["reason"]:
        return f"is wrong: {output['reason']}, although no standard that counts fails"
    counting = [standard for standard in output["standards"] if standard["counts"]]
    for verdict, verb in (("fail", "fails"), ("undecided", "leaves undecided")):
        found = [standard["name"] for standard in counting if standard["verdict"] == verdict]
        if found:
            if len(counting) == 1:
                return f"{verb} {found[0]}{_others(output)}"
            return f"{verb} {len(found)} of {len(counting)} standards ({', '.join(found)})"
    return (
        f"passes all {len(counting)} standards"
        if len(counting) != 1
        else f"passes {counting[0]['name']}{_others(output)}"
    )


def _others(output: Json) -> str:
    passing, shown = output["passing"]
    return f" ({passing} of {shown} standards pass)" if shown > 1 else ""


def _case(case: Json) -> Iterator[str]:
    yield f"{case['verdict'].upper()} {title(case)}"
    for output in case["outputs"]:
        yield f"  {output['name']}: {output['dtype']} {output['shape']}"
        for standard in output["standards"]:
            yield f"    {standard['verdict'].upper():9} {standard['name']:15} {figures(standard)}"
        yield from (f"    {line}" for line in details(output))


def figures(standard: Json) -> str:
    """Return a standard's figures against their limits, on one line."""
    shown = ", ".join(
        f"{figure['name']} {short(figure['value'])} {'' if figure['holds'] else 'not '}{figure['relation']} "
        f"{short(figure['limit'])}"
        for figure in standard["figures"]
    )
    note = "" if standard["counts"] else " (does not count)"
    return f"{shown}{' · ' + standard['reason'] if standard['reason'] else ''}{note}"


def details(output: Json) -> Iterator[str]:
    """Yield the worst element and the probable causes."""
    worst = output["worst"]
    if worst is not None:
        at = ", ".join(map(str, worst["coordinates"]))
        inputs = ", ".join(f"{item['name']} = {exact(item['value'])} ({item['hex']})" for item in worst["inputs"])
        yield f"worst: [{at}]{' with ' + inputs if inputs else ''}"
        yield (
            f"  expected {exact(worst['expected']['value'])} ({worst['expected']['hex']}), "
            f"got {exact(worst['actual']['value'])} ({worst['actual']['hex']}): {distance(output)}"
        )
    for cause in output["causes"]:
        yield f"probable cause: {cause['text']} [{cause['name']}, {100 * cause['share']:.3g} % of the wrong elements]"
        if cause["test"]:
            yield f"  would be refuted by {cause['test']}"


def distance(output: Json) -> str:
    """Return the error of an output's worst element: in ULP, or the difference of integers."""
    return short(output["worst"]["ulp"]) + ("" if ALL_FORMATS[output["dtype"]].is_integer else " ULP")


def short(value: float | str) -> str:
    """Format with four significant digits."""
    return value if isinstance(value, str) else f"{value:.4g}"


def exact(value: float | str) -> str:
    """Format with nine significant digits, which distinguish all float32 numbers."""
    return value if isinstance(value, str) else f"{value:.9g}"
