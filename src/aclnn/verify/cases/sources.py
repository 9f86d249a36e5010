"""Cases from files: from command-line words, a CSV or JSON list, or a directory."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from aclnn import io
from aclnn.core.operator import Kind, Operator
from aclnn.io.arguments import Raw, attribute, expect_required, split_member
from aclnn.verify.cases import atk, msprobe, ttk
from aclnn.verify.cases.arguments import operator_named
from aclnn.verify.cases.case import Case, make_case
from aclnn.verify.cases.request import CaseRequest, natural_key

_NOTHING_RAW = Raw()


def by_python_name(operator: Operator, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs and attributes by Python name.

    Raises:
        ValueError: an unknown name, a name given twice, or an output's name.
    """
    for name, value in values.items():
        if operator.parameter(name).kind is Kind.OUTPUT and not operator.parameter(name).is_read:
            raise ValueError(f"{name}: expected --actual {name}={value} for an output, got {name}={value}")
    return operator.by_name(values.items())


def load(request: CaseRequest, raw: Raw = _NOTHING_RAW) -> Case:
    """Read a case's arrays (memory-mapped) and check them.

    Raises:
        FileError: a file that cannot be read.
        AclnnError: an error of the operator's checks.
        ValueError: an unknown name, a name given twice, a missing one, or a value that does not fit.
    """
    operator = operator_named(request.operator)
    values = by_python_name(operator, request.values)
    words = _words(request, operator, values)
    described = raw.named(operator).over(request.raw.named(operator))
    attributes = {
        name: attribute(operator.parameter(name), value, name) if isinstance(value, str) else value
        for name, value in request.values.items()
        if not operator.parameter(name).is_tensor
    }
    expect_required(operator, values)
    arrays = {
        role: {name: described.read(text, operator, name, request.folder) for name, text in texts.items()}
        for role, texts in words.items()
    }
    sources = {f"{role} {name}": text for role, texts in words.items() for name, text in texts.items()}
    given = {
        key: name
        for names in (request.values, request.actual)
        for key, name in operator.by_name((name, name) for name in names if name).items()
    }
    inputs, actual, third = ({given.get(name, name): array for name, array in role.items()} for role in arrays.values())
    return make_case(operator, inputs, actual, third, attributes, request.name, sources, request.roles)


def files_of(request: CaseRequest) -> Iterator[tuple[str, Path]]:
    """Yield the names of a case's inputs and outputs with the files to read.

    Raises:
        ValueError: an unknown name, or a name given twice.
    """
    operator = operator_named(request.operator)
    for texts in _words(request, operator, by_python_name(operator, request.values)).values():
        yield from ((name, request.folder / split_member(text)[0]) for name, text in texts.items())


def _words(request: CaseRequest, operator: Operator, values: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    return {
        "input": {name: str(value) for name, value in values.items() if operator.parameter(name).is_tensor},
        "actual": operator.by_name(request.actual.items(), (Kind.OUTPUT,)),
        "third": operator.by_name(request.third.items(), (Kind.OUTPUT,)),
    }


def read_cases(path: Path, operator: str, common: Mapping[str, Any]) -> Iterator[CaseRequest]:
    """Yield the cases of a CSV or JSON list, or of a directory; ``common`` holds attributes common to all.

    A list's columns (or an object's keys) are the names of inputs and attributes, ``actual:OUTPUT`` (or ``actual`` for
    a single output), ``third:OUTPUT``, and optionally ``name`` and ``operator``; files are relative to the list. In a
    directory, each folder, .npz, .safetensors or .pt file is a case; its tensors are named after the inputs, the
    outputs, and third_OUTPUT, or by position: input0, input_1, output0 …. A directory with msprobe's dump.json, or with
    folders of steps and ranks that have one, is read by ``msprobe``; a task folder of ATK by ``atk``; and a CSV list
    with the columns testcase_name and api_name by ``ttk``.

    Raises:
        ValueError: not a valid list.
        OSError: it cannot be read.
    """
    if path.is_dir():
        read = msprobe.cases if msprobe.dumps(path) else atk.cases if atk.holds_cases(path) else _directory
        yield from read(path, operator, common)
        return
    if path.suffix.lower() not in (".csv", ".json") and path.exists():
        raise ValueError(f"{path}: expected a .csv or .json list or a directory, got {path.suffix or 'no suffix'}")
    rows = _rows(path)
    if not rows:
        raise ValueError(f"{path}: expected at least one case, got none")
    if ttk.is_list(rows):
        yield from ttk.cases(path, rows, operator, common)
        return
    for number, row in enumerate(rows, 1):
        yield _request(path, number, row, operator, common)


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # Excel writes a byte order mark
            rows = list(_csv_rows(file)) if path.suffix.lower() == ".csv" else _json_rows(file)
    except (ValueError, RecursionError, csv.Error) as error:
        raise ValueError(f"{path}: {error}") from error
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def _csv_rows(file: TextIO) -> Iterator[dict[str, Any]]:
    reader = csv.DictReader(file)
    _expect_once([name.strip() for name in reader.fieldnames or ()])
    for row in reader:
        if None in row or None in row.values():
            raise ValueError(f"expected as many fields as names in every row, got {row}")
        yield {key.strip(): value.strip() for key, value in row.items() if value.strip()}


def _json_rows(file: TextIO) -> list[dict[str, Any]]:
    rows = json.load(file, object_pairs_hook=_object)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"expected a JSON list of objects, got {type(rows).__name__}")
    return rows


def _object(items: list[tuple[str, Any]]) -> dict[str, Any]:
    _expect_once([name for name, _ in items])
    return dict(items)


def _expect_once(names: Sequence[str]) -> None:
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"expected every name once, got {', '.join(sorted(twice))} again")


def _request(path: Path, number: int, row: Mapping[str, Any], operator: str, common: Mapping[str, Any]) -> CaseRequest:
    values = dict(common)
    groups: dict[str, dict[str, str]] = {"actual": {}, "third": {}}
    for key, value in row.items():
        role, _, output = key.partition(":")
        if role in groups:
            groups[role][output] = str(value)
        elif key not in ("name", "operator"):
            values[key] = value
    if not groups["actual"]:
        raise ValueError(f"{path}: expected an actual output in case {number}, got none")
    name = str(row.get("name", number))
    return CaseRequest(str(row.get("operator", operator)), values, groups["actual"], groups["third"], name, path.parent)


def _directory(path: Path, operator: str, common: Mapping[str, Any]) -> Iterator[CaseRequest]:
    shown = [item for item in path.iterdir() if not item.name.startswith(".")]
    cases = [item for item in shown if item.is_dir() or item.suffix.lower() in io.CONTAINERS]
    if not cases:
        raise ValueError(f"{path}: expected a directory or a {', '.join(io.CONTAINERS)} file for each case, got none")
    found = operator_named(operator)
    outputs_of = {name for p in found.outputs for name in (p.name, p.python_name)}
    for case in sorted(cases, key=natural_key):
        shown_as = case.name if case.is_dir() else case.stem
        if case.is_dir():
            held = {item.stem: item.name for item in sorted(case.iterdir()) if item.suffix.lower() in io.SUFFIXES}
            folder = case
        else:
            held = {name: f"{case.name}:{name}" for name in io.entries(case)}
            folder = path
        held = {_positional(found, name): file for name, file in held.items()}
        actual = {name: file for name, file in held.items() if name in outputs_of}
        third = {name.removeprefix("third_"): file for name, file in held.items() if name.startswith("third_")}
        rest = {k: v for k, v in held.items() if k not in actual and not k.startswith("third_")}
        if not actual:
            raise ValueError(f"{path}: expected an actual output in case {shown_as}, got none")
        yield CaseRequest(operator, {**common, **rest}, actual, third, shown_as, folder)


def _positional(operator: Operator, name: str) -> str:
    """Return the name of input0, input_1, output_0 …; any other name is returned unchanged."""
    match = re.fullmatch(r"(input|output)_?(\d+)", name)
    if match is None:
        return name
    group = operator.inputs if match[1] == "input" else operator.outputs
    number = int(match[2])
    return group[number].python_name if number < len(group) else name
