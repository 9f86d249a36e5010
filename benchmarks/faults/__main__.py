"""Verify all planted faults and correct results, and print the tables of docs/verify-bench.md."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from functools import partial
from pathlib import Path

from benchmarks.faults import Result, elements, norms, right


def tables(results: list[Result], right: list[tuple[str, str, str, str]]) -> str:
    """Return the tables of docs/verify-bench.md."""
    kinds = Counter(result.kind for result in results)
    total = len(results)
    lines = [
        f"{len({r.fault for r in results})} faults on {len({r.subject for r in results})} outputs and data types, "
        f"{total} cases: {kinds['hit']} recognized ({100 * kinds['hit'] / total:.1f} %), "
        f"{kinds['missed']} not recognized, {kinds['false']} misattributed.",
        "",
        "| planted fault | expected cause | recognized | not recognized | misattributed |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for name in dict.fromkeys(r.fault for r in results):
        mine = [r for r in results if r.fault == name]
        count = Counter(r.kind for r in mine)
        others = ", ".join(sorted({f"{r.named} ({r.subject})" for r in mine if r.kind == "false"}))
        expected = ", ".join(f"`{c}`" for c in sorted(mine[0].expected))
        lines.append(f"| {name} | {expected} | {count['hit']} of {len(mine)} | {count['missed'] or ''} | {others} |")
    lines += [
        "",
        f"{len(right)} correct outputs:",
        "",
        "| implementation | outputs | pass | fail |",
        "| --- | ---: | ---: | --- |",
    ]
    for who in dict.fromkeys(r[0] for r in right):
        mine = [r for r in right if r[0] == who]
        failed = ", ".join(r[1] for r in mine if r[2] != "pass")
        lines.append(f"| {who} | {len(mine)} | {len(mine) - sum(r[2] != 'pass' for r in mine)} | {failed} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Diagnose everything and print or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace the tables in docs/verify-bench.md")
    parser.add_argument("--every", type=int, default=1, help="take every n-th case")
    parser.add_argument("--only", default="", help="faults whose name contains this")
    arguments = parser.parse_args()
    results = []
    every = [
        *((one.name, partial(elements.assess, one, index)) for one, index in elements.cases()),
        *((one.name, partial(norms.assess, one)) for one in norms.cases()),
    ]
    for name, assess in every[:: arguments.every]:
        if arguments.only not in name:
            continue
        result = assess()
        results.append(result)
        if result.kind != "hit":
            print(
                f"{result.kind}: {result.fault} on {result.subject}:",
                f"{result.named} {result.text[:200]} [{result.verdict}]",
                flush=True,
            )
    passed = []
    for who, label, assessed in right.clean() if not arguments.only else ():
        report = assessed()
        (output,) = report.data["cases"][0]["outputs"]
        passed.append((who, label, output["verdict"], output["causes"][0]["text"] if output["causes"] else ""))
        if output["verdict"] != "pass":
            print("FALSE ALARM", passed[-1], flush=True)
    text = tables(results, passed)
    print(text, f"slowest {max(r.seconds for r in results):.2f} s, in all {sum(r.seconds for r in results):.1f} s")
    if arguments.write:
        page = Path(__file__).parents[2] / "docs" / "verify-bench.md"
        old = page.read_text(encoding="utf-8")
        page.write_text(
            re.sub(r"(<!-- faults -->\n).*?(<!-- /faults -->)", lambda m: m[1] + text + m[2], old, flags=re.S),
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
