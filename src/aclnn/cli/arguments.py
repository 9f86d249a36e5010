"""Words of a command line: options that exist, values by name, outputs, layouts of raw files."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from aclnn.cli.options import STDOUT
from aclnn.core.operator import Kind, Operator
from aclnn.io.arguments import Raw, integers

if TYPE_CHECKING:
    import typer


def named_file(word: str) -> tuple[str, str]:
    """Split ``name=FILE``; the name is "" for any other word, such as ``runs/lr=1/dx.npy``."""
    name, sign, file = word.partition("=")
    return (name, file) if sign and name.isidentifier() else ("", word)


def pairs(words: Sequence[str]) -> dict[str, str]:
    """Read ``name=value``, ``--name value`` and ``--name=value`` by name; hyphens in names become underscores.

    Raises:
        ValueError: something else, or a name given twice.
    """
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, sign, value = word.partition("=")
        if name.startswith("--") and not sign and rest:
            sign, value = "=", rest.pop(0)
        name = name.removeprefix("--").replace("-", "_")
        if not sign or not name:
            raise ValueError(f"expected name=FILE, name=value or --name value, got {word!r}")
        if name in found:
            raise ValueError(f"{name}: given twice")
        found[name] = value
    return found


def raw_layout(dtypes: Sequence[str], shapes: Sequence[str]) -> Raw:
    """Read ``--dtype`` (``float16`` or ``name=float16``) and ``--shape`` (``4,8`` or ``name=4,8``).

    Raises:
        ValueError: not a shape, or a name given twice.
    """
    extents = {}
    for name, text in _by_name(shapes, "--shape").items():
        try:
            extents[name] = integers(text)
        except ValueError:
            raise ValueError(f"--shape: expected extents such as 4,8, got {text!r}") from None
    return Raw(_by_name(dtypes, "--dtype"), extents)


def _by_name(words: Sequence[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, _, value = word.rpartition("=")
        if name in found:
            raise ValueError(f"{option}: {word!r} given twice")
        found[name] = value
    return found


def expect_options(words: Sequence[str], known: Sequence[Operator], context: typer.Context) -> None:
    """Reject ``--name`` where neither the command has such an option nor one of the operators such an argument.

    Raises:
        ValueError: there is one; the text has the nearest name.
    """
    for given in _option_names(words):
        if not any(operator.find(given.replace("-", "_")) for operator in known):
            options = [name for parameter in context.command.params for name in parameter.opts]
            arguments = [p.python_name.replace("_", "-") for operator in known for p in operator.parameters]
            near = _nearest(given, [name.removeprefix("--") for name in options if name.startswith("--")])
            near = near or _nearest(given, arguments)
            raise ValueError(f"no option or argument --{given}{near and f' (did you mean --{near}?)'}")


def _nearest(given: str, names: Sequence[str]) -> str:
    return next(iter(get_close_matches(given, names, 1)), "")


def _option_names(words: Iterable[str]) -> Iterator[str]:
    """Yield the names in ``--name value`` and ``--name=value``."""
    rest = iter(words)
    for word in rest:
        if word.startswith("--"):
            name, sign, _ = word.removeprefix("--").partition("=")
            yield name
            if not sign:
                next(rest, None)


def output_files(operator: Operator, words: Sequence[str], option: str) -> dict[str, str]:
    """Read the files of outputs, by Python's names: ``name=FILE`` for each, or FILE alone for the only one.

    Raises:
        ValueError: an unknown name, one given twice, one left out where there are several, or no file at all.
    """
    names = [output.python_name for output in operator.outputs]
    named = [named_file(word) for word in words]
    for name, file in named:
        if not name and len(names) > 1:
            wanted = f"{'=, '.join(names[:-1])}= or {names[-1]}="
            raise ValueError(f"{option}: expected {wanted} before {file!r}: {operator.name} has {len(names)} outputs")
    try:
        found = operator.by_name(named, (Kind.OUTPUT,))
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None
    if not all(found.values()) or not found:
        got = "no FILE" if found else "none"
        raise ValueError(f"{option}: expected name=FILE with one of {', '.join(names)}, got {got}")
    return found


def expect_places(places: Mapping[str, Path | None]) -> None:
    """Refuse before the work what no report could be written to after it.

    Raises:
        ValueError: an option taken for a file, or two reports in one place.
        OSError: a folder, or a file in none.
    """
    given = {option: path for option, path in places.items() if path is not None}
    for option, path in given.items():
        if str(path).startswith("--"):
            raise ValueError(f"{option}: expected FILE or -, got {str(path)!r}")
        if path != STDOUT:
            _expect_writable(path)
    if len(set(map(os.path.realpath, given.values()))) < len(given):
        raise ValueError(f"{' and '.join(given)}: expected two places, got {str(path)!r} for both")


def _expect_writable(path: Path) -> None:
    target = Path(os.path.realpath(path))
    if target.is_dir() or not target.parent.is_dir():
        code = errno.EISDIR if target.is_dir() else errno.ENOTDIR if target.parent.exists() else errno.ENOENT
        raise OSError(code, os.strerror(code), str(path))


def expect_own_file(option: str, word: str, out: Path, others: Iterable[tuple[str, Path]]) -> None:
    """Refuse to overwrite a file that is read, or written as something else, under whatever path.

    Args:
        option: the one that names the output.
        word: its value.
        out: the output's file.
        others: the other files, by the word for each.

    Raises:
        ValueError: the output is one of those.
    """
    for name, path in others:
        with suppress(OSError):  # a file that does not exist has no other link
            if os.path.realpath(out) == os.path.realpath(path) or os.path.samefile(out, path):
                raise ValueError(f"{option}: expected a file of its own, got {word!r}, which is that of {name}")
