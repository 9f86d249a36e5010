"""``aclnn info``: the installation, and the parameters of an operator."""

from __future__ import annotations

import platform
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from inspect import Parameter
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from aclnn import operators
from aclnn.cli import console
from aclnn.cli.options import STDOUT
from aclnn.core.checks import computed
from aclnn.core.operator import Operator
from aclnn.core.products import Product, current_product, soc_name
from aclnn.operators import OPERATORS, required_arguments
from aclnn.operators.registry import BY_FUNCTION, C_OPERATORS
from aclnn.support import optional
from aclnn.version import __version__

# Distribution, and the extra that installs it.
_OPTIONAL = {
    "safetensors": "cli",
    "torch": "torch",
    "triton": "cuda",
    "cffi": "toolkit",
    "scikit-learn": "demo",
    "matplotlib": "demo",
    "python-flint": "verify",
    "jinja2": "verify",
}


def describe_installation(json: Path | None) -> None:
    """Print version, product, processor, threads, vector width, cache and optional packages."""
    facts = _installation()
    if json is not None:
        console.write_json(facts, json)
    if json == STDOUT:
        return
    table = _table()
    for name, value in facts.items():
        if name == "parts":
            value = ", ".join(f"{part} {found or '-'}" for part, found in value.items())
        elif isinstance(value, list):
            value = ", ".join(value)
        table.add_row(name.replace("_", " "), "none that can be written" if value is None else str(value))
    missing = {_OPTIONAL[part] for part, found in facts["parts"].items() if found is None}
    if missing:
        table.add_row("", f"install what is missing (-): {optional.install_command(','.join(sorted(missing)))}")
    console.out.print(table)


def _installation() -> dict[str, Any]:
    from aclnn.kernels.cpu import cache, threads

    product = current_product()
    return {
        "version": __version__,
        "product": product.title,
        "soc_name": soc_name(),
        "architecture": product.architecture,
        "processor": f"{_processor()} ({platform.machine()})",
        "threads": threads.shared().threads,
        "vector": _vector(),
        "cache_directory": None if cache.directory() is None else str(cache.directory()),
        "python": platform.python_version(),
        "operators": [operator.name for operator in OPERATORS],
        "plain_operators": len(C_OPERATORS) - len(OPERATORS),
        "parts": {part: _version(part) for part in ("numpy", "numba", "ml_dtypes", *_OPTIONAL)},
    }


def _vector() -> str:
    from aclnn.kernels.cpu import target

    return target.flavour(target.host())


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or "unknown processor"


def describe_operator(name: str, json: Path | None) -> None:
    """Print an operator's formula, parameters, data types by product and checks.

    Raises:
        UsageError: there is no operator of this Python or C name.
    """
    known = {operator.name: operator for operator in C_OPERATORS} | BY_FUNCTION
    if (operator := known.get(name)) is None:
        near = "".join(f", such as {one}" for one in get_close_matches(name, known, 1))
        raise console.UsageError(f"operator: expected one of docs/operators.md{near}, got {name!r}")
    facts = _operator(operator)
    if json is not None:
        console.write_json(facts, json)
    if json == STDOUT:
        return
    console.out.print(f"{operator.name}  ({operator.function})", style="bold")
    console.out.print(f"{operator.summary}\n{operator.formula}\n")
    table = _table("name", "C name", "takes", "default", "meaning")
    for row in facts["parameters"]:
        table.add_row(row["name"], row["c_name"], row["takes"], _default(row), row["meaning"])
    console.out.print(table)
    table = _table("product", "data types")
    for title, dtypes in facts["support"].items():
        table.add_row(title, ", ".join(dtypes))
    console.out.print(table)
    table = _table("check, in order", "status")
    for check in facts["checks"]:
        table.add_row(check["name"], str(check["code"]))
    console.out.print(table)


def _default(parameter: dict[str, Any]) -> str:
    default = parameter["default"]
    if default is None:
        return "may be null" if parameter["optional"] else ""
    return ",".join(map(str, default)).lower() if isinstance(default, tuple) else str(default)


def _operator(operator: Operator) -> dict[str, Any]:
    arguments = operators.signature_of(operator).parameters
    optional = {
        p.python_name for p in operator.attributes if arguments[p.python_name].default is not Parameter.empty
    } - set(required_arguments(operator))
    return {
        "name": operator.name,
        "c_name": operator.function,
        "summary": operator.summary,
        "formula": operator.formula,
        "parameters": [
            {
                "name": parameter.python_name,
                "c_name": parameter.name,
                "takes": parameter.kind.label,
                "optional": parameter.optional,
                "default": arguments[parameter.python_name].default if parameter.python_name in optional else None,
                "meaning": parameter.meaning,
            }
            for parameter in operator.parameters
        ],
        "support": {
            product.title: [
                dtype.numpy_name or dtype.c_name for dtype in computed(operator) if dtype in operator.support[product]
            ]
            for product in Product
            if product in operator.support
        },
        "checks": [{"name": check.name, "code": check.code} for check in operator.checks],
    }


def _table(*columns: str) -> Table:
    table = Table(*columns, box=None if not columns else SIMPLE, show_header=bool(columns), pad_edge=False)
    if not columns:
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
    return table
