"""``aclnn verify``: verdicts on dumped outputs. Exit status 0 pass, 1 failure or error, 2 usage error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from aclnn.cli import console
from aclnn.cli.arguments import (
    expect_options,
    expect_own_file,
    expect_places,
    named_file,
    output_files,
    pairs,
    raw_layout,
)
from aclnn.cli.options import STDOUT, DtypeOption, JsonOption, ShapeOption, SocOption, emulate
from aclnn.core.status import AclnnError
from aclnn.io import FileError
from aclnn.io.arguments import Raw, attribute, expect_required
from aclnn.support.allocator import keep_freed_memory
from aclnn.support.optional import import_or_raise
from aclnn.verify.cases.arguments import VERIFIABLE, operator_named
from aclnn.verify.cases.case import Case
from aclnn.verify.cases.request import CaseRequest
from aclnn.verify.cases.sources import by_python_name, files_of, load, read_cases
from aclnn.verify.checking import Counting, checked_eps, chosen_standards, counting_of, routed_eps, verify_case
from aclnn.verify.report.document import Report, document
from aclnn.verify.report.text import details, figures, short, title, totals
from aclnn.verify.standards.published import STANDARDS


def _verifiable_operators(incomplete: str) -> list[str]:
    return [name for name in VERIFIABLE if name.startswith(incomplete)]


app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@app.command(context_settings={"ignore_unknown_options": True})
def verify(
    context: typer.Context,
    operator: Annotated[
        str,
        typer.Argument(
            help="For example silu_backward or mm; docs/operators.md lists them.", autocompletion=_verifiable_operators
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="Inputs as name=FILE (or FILE:TENSOR), attributes as --name value or name=value."),
    ] = None,
    actual: Annotated[list[str] | None, typer.Option(help="The output to verify: name=FILE, once for each.")] = None,
    third: Annotated[
        list[str] | None,
        typer.Option(
            "--reference",
            "--third",
            help="The same output from elsewhere, such as a GPU, for the commercial standards.",
        ),
    ] = None,
    cases: Annotated[Path | None, typer.Option(help="Several cases: a CSV or JSON list, or a directory.")] = None,
    standard: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Standard that decides the verdict, one of {', '.join(STANDARDS)}; repeatable. Default: mixed."
        ),
    ] = None,
    all_standards: Annotated[
        bool, typer.Option("--all-standards", help="Every applicable standard decides the verdict, not only mixed.")
    ] = False,
    eps: Annotated[
        float | None,
        typer.Option(help="A norm's attribute; for LayerNorm's backward, the forward's, to verify both in cascade."),
    ] = None,
    dtype: DtypeOption = None,
    shape: ShapeOption = None,
    soc_name: SocOption = None,
    json: JsonOption = None,
    junit: Annotated[Path | None, typer.Option(help="Write the verdicts as JUnit XML; - prints it.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as one HTML page; - prints it.")] = None,
) -> None:
    """Compare an operator's output with golden values.

    aclnn verify silu_backward grad_output=dy.npy self=x.npy --actual grad_input=dx.npy

    Exit status: 0 pass, 1 failure or error, 2 usage error.
    """
    places = {"--json": json, "--html": html, "--junit": junit}
    with console.exit_status(json):
        with console.usage():
            expect_places(places)
            if standard and all_standards:
                raise ValueError("--all-standards: expected no --standard, got both")
        emulate(soc_name)
        if html is not None:
            import_or_raise("jinja2", "verify")
        with console.usage():
            verified = [*VERIFIABLE] if cases else [operator]  # a list's cases may be of several operators
            expect_options(arguments or [], [operator_named(name) for name in verified], context)
            raw, words, chosen = (
                raw_layout(dtype or [], shape or []),
                pairs(arguments or []),
                chosen_standards(standard),
            )
            if eps is not None and "eps" in words:
                raise ValueError("eps: given twice")
            found, eps = routed_eps(operator_named(operator), eps)
            words |= {name: repr(value) for name, value in found.items()}
            if cases is None:
                requests = [_request(operator, words, actual or [], third or [], raw)]
            elif actual or third:
                raise ValueError("--cases: expected outputs in the list, got --actual or --reference")
        if cases is not None:
            requests = list(read_cases(cases, operator, words))
        with console.usage():
            _expect_own_places(places, requests, cases)
            eps = checked_eps(eps, {request.operator for request in requests})
            if cases is None:
                expect_required(operator_named(operator), by_python_name(operator_named(operator), words))
        keep_freed_memory()
        report = _verify(requests, raw, chosen, counting_of(standard, all_standards), eps)
        if json != STDOUT:
            _show(report.data)
        _put(report.to_html, html)
        _put(report.to_junit, junit)
        _put(report.to_json, json)  # last: standard output gets one document, this or an error
    if not report.passed:
        raise typer.Exit(1)


def _expect_own_places(places: Mapping[str, Path | None], requests: Sequence[CaseRequest], cases: Path | None) -> None:
    """Reject a report that would overwrite an input."""
    for option, path in places.items():
        if path is not None and path != STDOUT:
            expect_own_file(option, str(path), path, [("--cases", cases)] if cases else [])
            for request in requests:
                with _in_case(request):
                    expect_own_file(option, str(path), path, files_of(request))


def _request(
    operator: str, words: Mapping[str, str], actual: Sequence[str], third: Sequence[str], raw: Raw
) -> CaseRequest:
    found = operator_named(operator)
    for name, value in by_python_name(found, words).items():
        if not found.parameter(name).is_tensor:
            attribute(found.parameter(name), value, name)
    output_files(found, actual, "--actual")
    if third:
        output_files(found, third, "--reference")
    raw.named(found)
    outputs, others = (dict(map(named_file, files)) for files in (actual, third))
    return CaseRequest(operator, words, outputs, others, roles=("--actual", "--reference"))


def _put(text: Callable[..., str], path: Path | None) -> None:
    """Write a report to the requested file."""
    if path == STDOUT:
        console.out.print(text(), soft_wrap=True, end="")
    elif path is not None:
        text(path)


def _verify(requests: Sequence[CaseRequest], raw: Raw, standards: Any, counting: Counting, eps: float | None) -> Report:
    # Cases are loaded once up front, to detect errors early, and again in their turn: mapped files stay open, and a
    # process may open about a thousand.
    for request in requests[1:]:
        _load(request, raw)
    documents = []
    with console.progress(100 * len(requests), "verifying") as bar:
        for number, request in enumerate(requests):
            done = 100 * number

            def report_progress(
                fraction: float, begin: int = 100 * number, name: str = request.name or request.operator
            ) -> None:
                nonlocal done
                bar.step(f"verifying {name}", advance=begin + int(100 * fraction) - done)
                done = begin + int(100 * fraction)

            with _in_case(request):
                documents.append(verify_case(load(request, raw), standards, counting, eps, report_progress))
    return Report(document(documents))


def _load(request: CaseRequest, raw: Raw) -> Case:
    with _in_case(request):
        return load(request, raw)


@contextmanager
def _in_case(request: CaseRequest) -> Iterator[None]:
    """Prefix errors with the name of the case."""
    try:
        yield
    except AclnnError as error:
        raise AclnnError(error.code, f"{_case(request)}{error.message}") from error
    except (FileError, OSError) as error:
        raise FileError(f"{_case(request)}{console.text_of(error)}") from error
    except ValueError as error:
        raise ValueError(f"{_case(request)}{error}") from error


def _case(request: CaseRequest) -> str:
    return f"case {request.name}: " if request.name else ""


_STYLES = {"pass": "bold green", "fail": "bold red", "warning": "bold yellow", "undecided": "bold yellow"}


def _show(report: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    for case in report["cases"]:
        verdict = Text(case["verdict"].upper(), _STYLES[case["verdict"]])
        console.out.print(verdict, title(case), soft_wrap=True)
        for output in case["outputs"]:
            console.out.print(f"  {output['name']}: {output['dtype']} {output['shape']}")
            table = Table.grid(padding=(0, 1))
            for row in output["standards"]:
                table.add_row("   ", Text(row["verdict"], _STYLES[row["verdict"]]), row["name"], figures(row))
            console.out.print(table)
            for line in details(output):
                console.out.print(f"    {line}", soft_wrap=True)
    if len(report["cases"]) > 1:
        table = Table("verdict", "case", "operator", "worst ULP", "cause", box=None)
        for case in report["cases"]:
            worst = [output["worst"]["ulp"] for output in case["outputs"] if output["worst"]]
            causes = {output["causes"][0]["name"]: None for output in case["outputs"] if output["causes"]}
            verdict = Text(case["verdict"], _STYLES[case["verdict"]])
            far = short(max(worst, key=float, default=0.0))
            table.add_row(verdict, case["name"], case["operator"], far, ", ".join(causes))
        console.out.print(table)
        console.out.print(totals(report), soft_wrap=True)
