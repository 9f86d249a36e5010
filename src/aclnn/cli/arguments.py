"""Words of a command line: known options, named values, outputs, layouts of raw files."""

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
    """Return ``name=value``, ``--name value`` and ``--name=value`` as a dict; hyphens in names become underscores.

    Raises:
        ValueError: a word of another form, or a name given twice.
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
    """Reject ``--name`` unless it is an option of the command or an argument of one of the operators.

    Raises:
        ValueError: there is one; the text suggests the nearest name.
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
    """Return the outputs' files by Python name: from ``name=FILE``, or FILE alone for a single output.

    Raises:
        ValueError: an unknown name, a name given twice, no name with several outputs, or no file at all.
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
    """Reject reports that could not be written, before the computation.

    Raises:
        ValueError: an option given as file, or the same file for two reports.
        OSError: a folder given as file, or a file in a missing folder.
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
    """Require an output file that is neither read nor written otherwise, whatever the spelling of its path.

    Args:
        option: option that names the output.
        word: the option's value.
        out: the output's file.
        others: the other files, each with the word that names it.

    Raises:
        ValueError: the output is one of them.
    """
    for name, path in others:
        with suppress(OSError):  # samefile fails for a file that does not exist yet
            if os.path.realpath(out) == os.path.realpath(path) or os.path.samefile(out, path):
                raise ValueError(f"{option}: expected a file of its own, got {word!r}, which is that of {name}")
