"""Cases from files: from a command line's words, a CSV or JSON list, or a directory."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aclnn import files
from aclnn.declaration import Kind, Operator, Parameter
from aclnn.verify.cases import Case, make_case, operator_named, parameter_named
from aclnn.words import Raw, attribute, located

Array = np.ndarray[Any, Any]

_CONTAINERS = (".npz", ".safetensors", ".pt", ".pth")


_NOTHING_RAW = Raw()


@dataclass(frozen=True)
class Request:
    """A case that is still words: everything under names as the user wrote them."""

    operator: str
    values: Mapping[str, Any]
    """Files of inputs, values of attributes."""
    actual: Mapping[str, str]
    third: Mapping[str, str]
    name: str = ""
    folder: Path = Path()


def outputs(words: Sequence[str], option: str) -> dict[str, str]:
    """Files by output: ``name=FILE``, or FILE alone for the only output.

    Raises:
        ValueError: a name twice.
    """
    found: dict[str, str] = {}
    for word in words:
        name, sign, file = word.partition("=")
        name, file = (name, file) if sign else ("", word)
        if name in found or not file:
            raise ValueError(f"--{option}: expected name=FILE once for each output, got {word!r}")
        found[name] = file
    return found


def load(request: Request, raw: Raw = _NOTHING_RAW) -> Case:
    """Read a case's arrays (memory-mapped) and check them.

    Raises:
        FileError: a file that cannot be read.
        AclnnError: what the operator refuses.
        ValueError: an unknown name or a value that does not fit.
    """
    operator = operator_named(request.operator)
    inputs: dict[str, Array] = {}
    attributes: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, value in request.values.items():
        parameter = parameter_named(operator, name)
        if parameter.kind is Kind.OUTPUT:
            raise ValueError(f"{name}: is an output, expected --actual {name}={value}")
        if parameter.kind is Kind.INPUT:
            inputs[parameter.python_name] = _read(request, operator, name, str(value), raw)
            sources[f"input {parameter.python_name}"] = str(value)
        else:
            attributes[parameter.python_name] = _attribute(parameter, value)
    arrays: list[dict[str, Array]] = []
    for role, named in (("actual", request.actual), ("third", request.third)):
        arrays.append({name: _read(request, operator, name, file, raw) for name, file in named.items()})
        for name, file in named.items():
            sources[f"{role} {parameter_named(operator, name, (Kind.OUTPUT,)).python_name}"] = file
    return make_case(operator, inputs, arrays[0], arrays[1] or None, attributes, request.name, sources)


def _read(request: Request, operator: Operator, name: str, text: str, raw: Raw) -> Array:
    parameter = parameter_named(operator, name)
    path, member = located(text)
    dtype, shape = raw.of(parameter.python_name)
    found = files.entries(request.folder / path, dtype, shape)
    if not member:
        same = [key for key in (name, parameter.python_name, parameter.name) if key in found]
        member = next(iter(found)) if len(found) == 1 else same[0] if same else ""
    if member not in found:
        held = ", ".join(sorted(found))
        raise files.FileError(f"{path}: expected {path}:NAME for {name}, with one of {held}")
    return found[member].load()


def _attribute(parameter: Parameter, value: Any) -> Any:
    if isinstance(value, str):
        return attribute(parameter, value)
    return tuple(value) if isinstance(value, list) else value


def listed(path: Path, operator: str, common: Mapping[str, Any]) -> Iterator[Request]:
    """The cases of a CSV or JSON list, or of a directory; ``common`` holds attributes that they share.

    A list's columns (or an object's keys) are the names of inputs and attributes, ``actual:OUTPUT`` (or ``actual`` for
    the only one), ``third:OUTPUT``, and, optional, ``name`` and ``operator``; files are relative to the list. In a
    directory every folder, and every .npz, .safetensors or .pt file, is a case; its tensors are named like the inputs,
    the outputs, and third_OUTPUT.

    Raises:
        ValueError: not such a list.
        OSError: it cannot be read.
    """
    if path.is_dir():
        yield from _directory(path, operator, common)
        return
    if path.suffix.lower() not in (".csv", ".json"):
        raise ValueError(f"{path}: expected a .csv or .json list or a directory")
    found = False
    for number, row in enumerate(_rows(path), 1):
        found = True
        yield _request(path, number, row, operator, common)
    if not found:
        raise ValueError(f"{path}: expected at least one case")


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        if path.suffix.lower() == ".csv":
            for row in csv.DictReader(file):
                if None in row or None in row.values():
                    raise ValueError(f"{path}: expected as many fields as names in every row, got {row}")
                yield {key.strip(): value.strip() for key, value in row.items() if value.strip()}
            return
        try:
            rows = json.load(file)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: expected a JSON list of objects ({error})") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path}: expected a JSON list of objects")
    yield from rows


def _request(path: Path, number: int, row: Mapping[str, Any], operator: str, common: Mapping[str, Any]) -> Request:
    values, groups = dict(common), {"actual": {}, "third": {}}  # type: dict[str, Any], dict[str, dict[str, str]]
    for key, value in row.items():
        role, _, output = key.partition(":")
        if role in groups:
            groups[role][output] = str(value)
        elif key not in ("name", "operator"):
            values[key] = value
    if not groups["actual"]:
        raise ValueError(f"{path}: expected an actual output in case {number}, got none")
    name = str(row.get("name", number))
    return Request(str(row.get("operator", operator)), values, groups["actual"], groups["third"], name, path.parent)


def _directory(path: Path, operator: str, common: Mapping[str, Any]) -> Iterator[Request]:
    cases = sorted(item for item in path.iterdir() if item.is_dir() or item.suffix.lower() in _CONTAINERS)
    if not cases:
        raise ValueError(f"{path}: expected folders, or {', '.join(_CONTAINERS)} files, one for each case")
    found = operator_named(operator)
    outputs_of = {name for p in found.outputs for name in (p.name, p.python_name)} | {"grad_input"}
    for case in cases:
        if case.is_dir():
            held = {item.stem: item.name for item in sorted(case.iterdir()) if item.suffix.lower() in files.SUFFIXES}
            folder = case
        else:
            held = {name: f"{case.name}:{name}" for name in files.entries(case)}
            folder = path
        actual = {name: file for name, file in held.items() if name in outputs_of}
        third = {name.removeprefix("third_"): file for name, file in held.items() if name.startswith("third_")}
        rest = {k: v for k, v in held.items() if k not in actual and not k.startswith("third_")}
        yield Request(operator, {**common, **rest}, actual, third, case.stem, folder)
