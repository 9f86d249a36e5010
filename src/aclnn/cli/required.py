"""What ``run`` and ``verify`` require of a command line: options that there are, named outputs, all that is needed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from aclnn.core.operator import Kind, Operator
from aclnn.io.arguments import named_file

if TYPE_CHECKING:
    import typer


def expect_options(words: Sequence[str], known: Sequence[Operator], context: typer.Context) -> None:
    """Refuse ``--name`` where neither the command has such an option nor one of the known operators such an argument.

    Raises:
        ValueError: there is one; the text has the nearest name that would do.
    """
    for given in _option_names(words):
        if not any(_has(operator, given.replace("-", "_")) for operator in known):
            options = [name for parameter in context.command.params for name in parameter.opts]
            arguments = [p.python_name.replace("_", "-") for operator in known for p in operator.parameters]
            near = _nearest(given, [name.removeprefix("--") for name in options if name.startswith("--")])
            near = near or _nearest(given, arguments)
            raise ValueError(f"no option or argument --{given}{near and f' (did you mean --{near}?)'}")


def _nearest(given: str, names: Sequence[str]) -> str:
    return next(iter(get_close_matches(given, names, 1)), "")


def _option_names(words: Iterable[str]) -> Iterator[str]:
    """The names in ``--name value`` and ``--name=value``."""
    rest = iter(words)
    for word in rest:
        if word.startswith("--"):
            name, sign, _ = word.removeprefix("--").partition("=")
            yield name
            if not sign:
                next(rest, None)


def _has(operator: Operator, name: str) -> bool:
    try:
        operator.parameter(name)
    except ValueError:
        return False
    return True


def output_files(operator: Operator, words: Sequence[str], option: str) -> dict[str, str]:
    """Files by output, under Python's names: ``name=FILE`` of each, or FILE alone for the only one.

    Raises:
        ValueError: an unknown name, one twice, one left out where there are several, or no file at all.
    """
    named = [named_file(word) for word in words]
    try:
        _expect_names(operator, named)
        found = operator.by_name(named, (Kind.OUTPUT,))
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None
    if not all(found.values()) or not found:
        got = "no FILE" if found else "none"
        raise ValueError(f"{option}: expected name=FILE with one of {', '.join(_names(operator))}, got {got}")
    return found


def expect_no_input(option: str, word: str, out: Path, inputs: Iterable[tuple[str, Path]]) -> None:
    """Refuse to write over what is read, by whatever name its file goes.

    Args:
        option: the one that names the output.
        word: what it was given.
        out: the output's file.
        inputs: what is read, by the word for it.

    Raises:
        ValueError: the output is one of the files read.
    """
    for name, path in inputs:
        with suppress(OSError):  # what does not exist is no other file
            if os.path.samefile(out, path):
                raise ValueError(f"{option}: expected a file that is no input, got {word!r}, which {name} is read from")


def _names(operator: Operator) -> list[str]:
    return [output.python_name for output in operator.outputs]


def _expect_names(operator: Operator, named: Sequence[tuple[str, str]]) -> None:
    *others, last = _names(operator)
    for name, file in named:
        if not name and others:
            wanted = f"{'=, '.join(others)}= or {last}="
            raise ValueError(f"expected {wanted} before {file!r}: {operator.name} has {len(others) + 1} outputs")
