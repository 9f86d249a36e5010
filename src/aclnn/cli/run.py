"""``aclnn run``: an operator on files."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aclnn import io, operators, soc_name
from aclnn.cli import console
from aclnn.cli.required import expect_no_input, output_files
from aclnn.core.operator import Kind, Operator
from aclnn.core.status import AclnnError
from aclnn.execution.arrays import renamed
from aclnn.io.arguments import Raw, attribute, expect_required, located, pairs
from aclnn.operators import required_arguments


@dataclass(frozen=True)
class Request:
    """A command line understood: everything under Python's names."""

    operator: Operator
    inputs: Mapping[str, str]
    """Files by input."""
    attributes: Mapping[str, Any]
    outs: Mapping[str, str]
    """Files by output."""
    raw: Raw
    typed: Mapping[str, str]
    """The arguments as the command line spells them."""


def parse(operator: Operator, words: Sequence[str], outs: Sequence[str], raw: Raw) -> Request:
    """Understand ``name=file``, ``name=value``, ``--name value`` and the ``--out name=file`` of a command line.

    Raises:
        ValueError: an unknown, doubled or missing name, or a value that does not fit its attribute.
    """
    described = raw.named(operator)
    inputs: dict[str, str] = {}
    attributes: dict[str, Any] = {}
    named = pairs(words)
    typed = operator.by_name((name, name) for name in named)
    for name, spelt in typed.items():
        parameter, value = operator.parameter(name), named[spelt]
        if parameter.kind is Kind.OUTPUT and name not in required_arguments(operator):
            raise ValueError(f"{spelt}: is an output, expected --out {spelt}={value}")
        if parameter.is_tensor:
            inputs[name] = value
        else:
            attributes[name] = attribute(parameter, value, spelt)
    given = _outs(operator, outs)
    read = [(name, located(file)[0]) for name, file in inputs.items()]
    for file in given.values():
        expect_no_input("--out", file, located(file)[0], read)
    _complete_mask(operator, attributes, given)
    expect_required(operator, inputs | attributes)
    return Request(operator, inputs, attributes, given, described, typed)


def _outs(operator: Operator, words: Sequence[str]) -> dict[str, str]:
    found = output_files(operator, words, "--out")
    places = [(os.path.realpath(path), io.name_in(path, member or "")) for path, member in map(located, found.values())]
    for place, file in zip(places, found.values(), strict=True):
        if places.count(place) > 1:
            raise ValueError(f"--out: expected each file once, got {file!r} and another word for it")
    return found


def _complete_mask(operator: Operator, attributes: dict[str, Any], outs: Mapping[str, str]) -> None:
    """Where a mask switches the outputs, those asked for with --out are what it says by default."""
    if any(parameter.python_name == "output_mask" for parameter in operator.attributes):
        names = [parameter.python_name for parameter in operator.outputs]
        mask = attributes.setdefault("output_mask", tuple(name in outs for name in names))
        for name, wanted in zip(names, mask, strict=False):  # the operator judges the mask's length
            if name in outs and not wanted:
                raise ValueError(f"--out: {name} is switched off by output_mask")


def run_on_files(request: Request, json: bool) -> None:
    """Read the inputs, compute, write the outputs, and say what was written."""
    operator = request.operator
    contents = _by_file(request.outs)
    for path, tensors in contents.items():
        _expect_nothing_lost(path, tensors)
    in_place = {parameter.python_name for parameter in operator.outputs}
    with console.progress(len(request.inputs) + 2) as bar:
        arrays: dict[str, Any] = {}
        for name, file in request.inputs.items():
            bar.step(f"reading {file}", advance=bool(arrays))
            array = request.raw.read(file, operator, name)
            arrays[name] = array.copy() if name in in_place else array
        bar.step(f"computing {operator.name}")
        begin = time.perf_counter()
        try:
            computed = operators.function_of(operator)(**arrays, **request.attributes)
        except AclnnError as error:
            raise AclnnError(error.code, renamed(error.message, request.typed)) from None
        seconds = time.perf_counter() - begin
        results = computed if isinstance(computed, tuple) else (computed,)
        by_name = {parameter.python_name: result for parameter, result in zip(operator.outputs, results, strict=True)}
        bar.step("writing")
        io.write_all(
            {path: {name: by_name[output] for name, output in tensors.items()} for path, tensors in contents.items()}
        )
    _report(request, by_name, seconds, json)


def _by_file(outs: Mapping[str, str]) -> dict[Path, dict[str, str]]:
    """For each file to write its tensors: the output that each name stands for."""
    paths: dict[str, Path] = {}
    contents: dict[Path, dict[str, str]] = {}
    for output, word in outs.items():
        path, member = located(word)
        path = paths.setdefault(os.path.realpath(path), path)
        contents.setdefault(path, {})[io.name_in(path, member or "")] = output
    return contents


def _expect_nothing_lost(path: Path, names: Collection[str]) -> None:
    """A file is written as a whole: one that holds other tensors stays as it is."""
    if path.suffix.lower() in io.CONTAINERS and path.is_file() and path.stat().st_size:
        lost = sorted(set(io.entries(path)) - set(names))
        if lost:
            text = f"expected a new file, or one that holds nothing but {_quoted(names)} (FILE:NAME chooses the name)"
            raise io.FileError(f"{path}: {text}: {_quoted(lost)} would be lost")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names)))


def _report(request: Request, results: Mapping[str, Any], seconds: float, json: bool) -> None:
    rows = [
        {"name": name, "file": file, "dtype": results[name].dtype.name, "shape": list(results[name].shape)}
        for name, file in request.outs.items()
    ]
    if json:
        operator = request.operator.name
        console.print_json({"operator": operator, "soc_name": soc_name(), "seconds": seconds, "outputs": rows})
        return
    for row in rows:
        console.out.print(f"{row['name']}: {row['dtype']} {row['shape']} -> {row['file']}", soft_wrap=True)
