"""The report as JUnit XML for CI systems: one test per output of each case."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from aclnn.verify.report.text import details, figures, headline

Json = dict[str, Any]


def render(report: Json) -> str:
    """Return one suite; a failing output is a failure, one that no standard could decide is an error."""
    outputs = [(case, number, output) for number, case in enumerate(report["cases"], 1) for output in case["outputs"]]
    count = {
        verdict: str(sum(output["verdict"] == verdict for *_, output in outputs)) for verdict in ("fail", "undecided")
    }
    suite = ElementTree.Element(
        "testsuite", name="aclnn verify", tests=str(len(outputs)), failures=count["fail"], errors=count["undecided"]
    )
    for case, number, output in outputs:
        name = _printable(f"{case['name'] or number} {output['name']}")
        test = ElementTree.SubElement(suite, "testcase", classname=case["operator"], name=name)
        if output["verdict"] != "pass":
            kind = "failure" if output["verdict"] == "fail" else "error"
            problem = ElementTree.SubElement(test, kind, message=_printable(headline(output)))
            standards = (f"{row['verdict']} {row['name']} {figures(row)}" for row in output["standards"])
            problem.text = _printable("\n".join([*details(output), *standards]))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """Return text without the characters that XML cannot represent."""
    return "".join(character if character.isprintable() or character == "\n" else "\ufffd" for character in text)
