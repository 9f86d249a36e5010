"""Cases from msprobe's dumps: dump.json with dump_tensor_data, in folders such as step0/rank0."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aclnn.core.operator import Kind, Operator
from aclnn.verify.cases.arguments import operator_named
from aclnn.verify.cases.request import CaseRequest, natural_key

_DIRECTIONS = ("forward", "backward")
_MODES = ("none", "tanh")


class _Entry(NamedTuple):
    """A call recorded in dump.json."""

    given: list[str]
    """Files of the given tensors, in order."""
    results: list[str]
    attributes: dict[str, Any]
    """Keyword arguments other than tensors."""
    parameters: dict[str, str]
    """Files of a module's parameters, by name."""


def dumps(folder: Path) -> list[Path]:
    """Return folders with a dump.json: this one, or those of its steps and ranks in numerical order."""
    found = [path.parent for pattern in ("", "*/", "*/*/") for path in folder.glob(f"{pattern}dump.json")]
    return sorted(found, key=natural_key)


def cases(folder: Path, operator: str, common: Mapping[str, Any]) -> Iterator[CaseRequest]:
    """Yield a request for each call of an operator in the dumps of a folder (see ``dumps``).

    An API's entry is named KIND.API.NUMBER.forward or .backward, a module's Module.NAME.CLASS.forward.NUMBER; the API
    or class equals the operator's name up to case, underscores and npu_. The tensors of a forward entry are the
    operator's inputs in order; keyword arguments are attributes, and a module's parameters are inputs by name. The
    gradients of a backward entry and the tensors of its forward entry are the inputs of, say, silu_backward. ``common``
    holds attributes, which override the dump's.

    Raises:
        ValueError: a dump without tensors, or no call of the operator.
        OSError: it cannot be read.
    """
    found = operator_named(operator)
    plain = re.sub(r"_backward(_v2)?$|_grad$", "", found.name)
    direction = _DIRECTIONS[plain != found.name]
    apis = {plain, plain.removesuffix("_v2")}
    none = True
    for place in dumps(folder):
        entries = _entries(place / "dump.json")
        shown = place.relative_to(folder).as_posix()
        for key, entry in entries.items():
            called = _called(key)
            if called is None or called[0] not in map(_normalized, apis) or called[1] != direction:
                continue
            none = False
            name = key if shown == "." else f"{shown}/{key}"
            forward = entries.get(called[2]) if direction == "backward" else None
            yield _request(name, found, entry, forward, place, common)
    if none:
        raise ValueError(f"{folder}: expected a call of {' or '.join(sorted(apis))} in dump.json, got none")


def _entries(path: Path) -> dict[str, _Entry]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))["data"]
        return {
            name: _Entry(
                _files([entry.get(key, []) for key in ("input_args", "input", "input_kwargs")]),
                _files(entry.get("output", [])),
                {k: item["value"] for k, item in entry.get("input_kwargs", {}).items() if "value" in item},
                {k: file for k, item in entry.get("parameters", {}).items() for file in _files(item)},
            )
            for name, entry in data.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: expected msprobe's dump with tensors: {error}") from error


def _files(item: Any) -> list[str]:
    """Return the files of the tensors in a part of an entry, in order; files outside dump_tensor_data are ignored."""
    if isinstance(item, dict) and "data_name" in item:
        file = item["data_name"]
        return [file] if file and Path(file).name == file else []
    parts: Sequence[Any] = [*item.values()] if isinstance(item, dict) else item if isinstance(item, list) else []
    return [file for part in parts for file in _files(part)]


def _normalized(name: str) -> str:
    return name.lower().removeprefix("npu_").replace("_", "")


def _called(key: str) -> tuple[str, str, str] | None:
    """Return an entry's API, its direction, and the name of its forward entry."""
    parts = key.split(".")
    for at in (-1, -2):
        if len(parts) >= 4 and parts[at] in _DIRECTIONS:
            forward = [*parts[:at], "forward", *parts[len(parts) + at + 1 :]]
            return _normalized(parts[-3]), parts[at], ".".join(forward)
    return None


def _request(
    name: str, operator: Operator, entry: _Entry, forward: _Entry | None, place: Path, common: Mapping[str, Any]
) -> CaseRequest:
    whole = forward or entry
    files = [*entry.given, *(forward.given if forward else [])]
    values: dict[str, Any] = {}
    for parameter in operator.inputs:
        if parameter.python_name in whole.parameters:
            values[parameter.python_name] = whole.parameters[parameter.python_name]
        elif files:
            values[parameter.python_name] = files.pop(0)
        elif not parameter.optional:
            raise ValueError(f"{place}: {name}: expected a tensor for {parameter.python_name}, got none")
    if not entry.results:
        raise ValueError(f"{place}: {name}: expected an output with a tensor, got none")
    for parameter in operator.attributes:
        if parameter.python_name in whole.attributes:
            given = whole.attributes[parameter.python_name]
            number = parameter.kind is not Kind.STRING and given in _MODES
            values[parameter.python_name] = _MODES.index(given) if number else given
    actual = dict(zip((p.python_name for p in operator.outputs), entry.results, strict=False))
    values |= operator.by_name(common.items())
    return CaseRequest(operator.name, values, actual, {}, name, place / "dump_tensor_data")
