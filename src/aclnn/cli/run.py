"""``aclnn run``: one command per operator, generated from its declaration, that applies it to files."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from inspect import Parameter as Argument
from inspect import Signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from aclnn import io, operators, soc_name
from aclnn.cli import console
from aclnn.cli.arguments import expect_own_file, expect_places, output_files, raw_layout
from aclnn.cli.options import STDOUT, DtypeOption, JsonOption, ShapeOption, SocOption, emulate
from aclnn.core.operator import Kind, Operator, Parameter
from aclnn.core.status import AclnnError
from aclnn.execution.error_messages import renamed
from aclnn.io.arguments import Raw, attribute, split_member
from aclnn.operators import BY_NAME, OPERATORS, required_arguments

_METAVARS = {
    Kind.INT_ARRAY: "4,8",
    Kind.BOOL_ARRAY: "1,1,0",
    Kind.BOOL: "true|false",
    Kind.STRING: "TEXT",
    Kind.DOUBLE: "NUMBER",
    Kind.SCALAR: "NUMBER",
}
_USER_NAMES = "aclnn.run.user_names"
_BY_ANY_NAME = BY_NAME | {operator.function: operator for operator in OPERATORS}


@dataclass(frozen=True)
class RunRequest:
    """A call, with Python names."""

    operator: Operator
    inputs: Mapping[str, str]
    """File of each input."""
    attributes: dict[str, Any]
    outs: Mapping[str, str]
    """File of each output."""
    raw: Raw


class _Commands(Mapping[str, Any]):
    """Commands by an operator's Python or C name, created on demand."""

    def __iter__(self) -> Iterator[str]:
        return iter(BY_NAME)

    def __len__(self) -> int:
        return len(BY_NAME)

    def __getitem__(self, name: str) -> Any:
        return _command(_BY_ANY_NAME[name])


class _Operators(TyperGroup):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _Commands()  # type: ignore[assignment]  # never changed

    def list_commands(self, ctx: Any) -> list[str]:
        return [*BY_NAME]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and _is_plain(args[0]):
            text = "expected one that aclnn run --help lists"
            also = "it has no Python function; C programs, aclnn.cann, torch_npu and aclnn verify can call it"
            raise typer.BadParameter(f"operator: {text}, got {args[0]!r}: {also}", ctx)
        return super().resolve_command(ctx, args)


def _is_plain(name: str) -> bool:
    from aclnn.operators.registry import C_OPERATORS

    return any(name in (operator.name, operator.function) for operator in C_OPERATORS)


app = typer.Typer(
    cls=_Operators, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, add_completion=False
)


@app.callback()
def _group() -> None:
    """Run an operator on files.

    aclnn run silu_backward --grad-output dy.npy --self x.npy --out dx.npy
    """


class _Command(TyperCommand):
    """Command that also accepts ``name=value``, with Python or C names, for ``--name value``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # not during completion
            try:
                args = _with_options(BY_NAME[str(self.name)], args, ctx.meta.setdefault(_USER_NAMES, {}))
            except ValueError as error:
                raise typer.BadParameter(str(error), ctx) from None
        return super().parse_args(ctx, args)


def _with_options(operator: Operator, words: Sequence[str], user_names: dict[str, str]) -> list[str]:
    """Convert ``name=value`` to options; ``user_names`` receives the user's word for each argument.

    Raises:
        ValueError: an unknown name, an output's name, or an argument given twice.
    """
    required = required_arguments(operator)
    options = {_option(p): p for p in operator.parameters if p.kind is not Kind.OUTPUT or p.python_name in required}
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        name, sign, value = word.partition("=")
        parameter = options.get(name) if name.startswith("-") else operator.parameter(name) if sign else None
        if parameter is None:
            found.append(word)
            if name.startswith("-") and not sign:
                found += [value for value in (next(rest, None),) if value is not None]
            continue
        if not sign:
            value = next(rest, "")
        if parameter.python_name in user_names:
            raise ValueError(f"{parameter.python_name}: given twice")
        if parameter.kind is Kind.OUTPUT and parameter.python_name not in required:
            raise ValueError(f"{name}: expected --out {name}={value} for an output, got {name}={value}")
        user_names[parameter.python_name] = name.removeprefix("--").replace("-", "_") if name.startswith("-") else name
        found += [_option(parameter), value]
    return found


def _option(parameter: Parameter) -> str:
    return f"--{parameter.python_name.replace('_', '-')}"


def _command(operator: Operator) -> Any:
    given, required = {p.python_name: p for p in operator.parameters}, required_arguments(operator)
    signature, hints = operators.signature_of(operator), get_type_hints(operators.function_of(operator))
    arguments = [
        _argument(given[name], signature.parameters[name].default, hints.get(name), name in required)
        for name in signature.parameters
        if name in given and (given[name].kind is not Kind.OUTPUT or name in required)
    ]
    written = _written(operator)
    names = ", ".join(output.python_name for output in written.outputs)
    out = typer.Option(
        "--out",
        metavar="[NAME=]FILE",
        help=f"File for an output ({names}); repeatable. A .npy, .bin or .raw file is replaced; a .npz, .safetensors "
        "or .pt file that holds other tensors is an error.",
    )
    common = {
        "aclnn_out": Annotated[list[str] | None, out],
        "aclnn_dtype": DtypeOption,
        "aclnn_shape": ShapeOption,
        "aclnn_soc_name": SocOption,
        "aclnn_json": JsonOption,
        "aclnn_context": typer.Context,
    }
    arguments += [Argument(name, Argument.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in common.items()]

    def command(**values: Any) -> None:
        out, dtype, shape, soc, json, context = (values.pop(name) for name in common)
        texts = {name: _text(value) for name, value in values.items()}
        with console.exit_status(json):
            with console.usage():
                expect_places({"--json": json})
                raw = raw_layout(dtype or [], shape or []).named(operator)
                request = _request(operator, texts, output_files(written, out or [], "--out"), raw)
                if json not in (None, STDOUT):
                    files = (
                        (name, split_member(text)[0]) for name, text in (*request.inputs.items(), *request.outs.items())
                    )
                    expect_own_file("--json", str(json), json, files)
            emulate(soc)
            _run(request, context.meta[_USER_NAMES], json)

    command.__signature__ = Signature(arguments)  # type: ignore[attr-defined]
    command.__annotations__ = {argument.name: argument.annotation for argument in arguments}
    command.__doc__ = f"{operator.summary}\n\n{operator.formula}\n\nFILE is x.npy, x.bin, x.npz:TENSOR, x.pt:TENSOR …; "
    command.__doc__ += "name=FILE and name=value are accepted too, also with C names."
    single = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    single.command(operator.name, cls=_Command)(command)
    return get_command(single)


def _written(operator: Operator) -> Operator:
    """Return the operator with its updated inputs as outputs."""
    parameters = (replace(p, kind=Kind.OUTPUT) if p.updated else p for p in operator.parameters)
    return replace(operator, parameters=tuple(parameters))


def _argument(parameter: Parameter, default: Any, hint: Any, required: bool) -> Argument:
    """Describe an argument to Typer: files as text, choices as an enumeration, others by a parser for their kind."""
    choices = get_args(hint) if get_origin(hint) is Literal and parameter.kind is Kind.STRING else ()
    options: dict[str, Any] = {"help": parameter.meaning, "show_default": False}
    if default not in (None, Argument.empty):
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
        options["help"] += f" [default: {shown.lower()}]"
    kind: Any = str
    if choices:
        kind = Enum(parameter.python_name, {choice: choice for choice in choices})  # type: ignore[misc,no-redef]
    elif not parameter.is_tensor:
        options |= {"parser": partial(_parsed, parameter), "metavar": _METAVARS.get(parameter.kind, "INTEGER")}
    else:
        kind, options = Path, options | {"metavar": "FILE"}
    return Argument(
        parameter.python_name,
        Argument.KEYWORD_ONLY,
        default=Argument.empty if required else None,
        annotation=Annotated[kind if required else kind | None, typer.Option(_option(parameter), **options)],
    )


def _text(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else str(value) if isinstance(value, Path) else value


def _parsed(parameter: Parameter, text: str) -> Any:
    try:
        return attribute(parameter, text, parameter.python_name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _request(operator: Operator, texts: Mapping[str, Any], outs: Mapping[str, str], raw: Raw) -> RunRequest:
    """Make a request from a command's values.

    Raises:
        ValueError: an output written twice, over an input, masked out, or updated without being given.
    """
    values = {name: value for name, value in texts.items() if value is not None}
    inputs = {name: values.pop(name) for name in [*values] if operator.parameter(name).is_tensor}
    places = [
        (os.path.realpath(path), io.name_in(path, member or "")) for path, member in map(split_member, outs.values())
    ]
    for place, file in zip(places, outs.values(), strict=True):
        if places.count(place) > 1:
            raise ValueError(f"--out: expected each file once, got {file!r} under two names")
        expect_own_file(
            "--out", file, split_member(file)[0], [(name, split_member(text)[0]) for name, text in inputs.items()]
        )
    for parameter in operator.inputs:
        if parameter.updated and parameter.python_name in outs.keys() - inputs.keys():
            raise ValueError(f"--out: {parameter.python_name}: expected it as an input, too, got none")
    _complete_mask(operator, values, outs)
    return RunRequest(operator, inputs, values, outs, raw)


def _complete_mask(operator: Operator, attributes: dict[str, Any], outs: Mapping[str, str]) -> None:
    """Set a mask that was not given to the outputs named by --out."""
    if any(parameter.python_name == "output_mask" for parameter in operator.attributes):
        names = [parameter.python_name for parameter in operator.outputs]
        mask = attributes.setdefault("output_mask", tuple(name in outs for name in names))
        for name, wanted in zip(names, mask, strict=False):  # the operator checks the mask's length
            if name in outs and not wanted:
                raise ValueError(f"--out: {name} is switched off by output_mask")


def _run(request: RunRequest, user_names: Mapping[str, str], json: Path | None) -> None:
    """Read the inputs, compute, write the outputs and list them."""
    operator = request.operator
    contents = _by_file(request.outs)
    for path, tensors in contents.items():
        _expect_nothing_lost(path, tensors)
    in_place = {parameter.python_name for parameter in _written(operator).outputs}
    with console.progress(len(request.inputs) + 2) as bar:
        arrays: dict[str, Any] = {}
        for name, file in request.inputs.items():
            bar.step(f"reading {file}", advance=bool(arrays))
            array = request.raw.read(file, operator, name)
            arrays[name] = array.copy() if name in in_place else array
        bar.step(f"computing {operator.name}")
        begin = time.perf_counter()
        function, parameters = operators.function_of(operator), operators.signature_of(operator).parameters
        absent = {p.python_name for p in operator.inputs if p.python_name not in arrays}
        nulls = {name: None for name in absent if parameters[name].default is Argument.empty}
        try:
            computed = function(**arrays, **nulls, **request.attributes)
        except AclnnError as error:
            raise AclnnError(error.code, renamed(error.message, user_names)) from None
        seconds = time.perf_counter() - begin
        results = computed if isinstance(computed, tuple) else (computed,)
        by_name = {parameter.python_name: result for parameter, result in zip(operator.outputs, results, strict=True)}
        by_name |= {name: array for name, array in arrays.items() if name in in_place}
        bar.step("writing")
        io.write_all(
            {path: {name: by_name[output] for name, output in tensors.items()} for path, tensors in contents.items()}
        )
    _report(request, by_name, seconds, json)


def _by_file(outs: Mapping[str, str]) -> dict[Path, dict[str, str]]:
    """Group outputs by file: a mapping from each tensor's name in the file to the output."""
    paths: dict[str, Path] = {}
    contents: dict[Path, dict[str, str]] = {}
    for output, word in outs.items():
        path, member = split_member(word)
        path = paths.setdefault(os.path.realpath(path), path)
        contents.setdefault(path, {})[io.name_in(path, member or "")] = output
    return contents


def _expect_nothing_lost(path: Path, names: Collection[str]) -> None:
    """Reject a file that holds other tensors, since files are written as a whole."""
    if path.suffix.lower() in io.CONTAINERS and path.is_file() and path.stat().st_size:
        lost = sorted(set(io.entries(path)) - set(names))
        if lost:
            text = f"expected a new file, or one that holds nothing but {_quoted(names)} (FILE:NAME chooses the name)"
            raise io.FileError(f"{path}: {text}: {_quoted(lost)} would be lost")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names)))


def _report(request: RunRequest, results: Mapping[str, Any], seconds: float, json: Path | None) -> None:
    rows = [
        {"name": name, "file": file, "dtype": results[name].dtype.name, "shape": list(results[name].shape)}
        for name, file in request.outs.items()
    ]
    if json is not None:
        operator = request.operator.name
        console.write_json({"operator": operator, "soc_name": soc_name(), "seconds": seconds, "outputs": rows}, json)
    for row in rows if json != STDOUT else ():
        console.out.print(f"{row['name']}: {row['dtype']} {row['shape']} -> {row['file']}", soft_wrap=True)
