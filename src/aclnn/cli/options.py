"""Options common to several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

STDOUT = Path("-")

JsonOption = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE|-", help="Write a JSON document; - prints it in place of the text."),
]
SocOption = Annotated[
    str | None, typer.Option("--soc-name", metavar="NAME", help="SoC to emulate, such as Ascend950DT_9571.")
]
DtypeOption = Annotated[
    list[str] | None, typer.Option("--dtype", metavar="TYPE", help="For raw files: float16, or name=float16 for one.")
]
ShapeOption = Annotated[
    list[str] | None, typer.Option("--shape", metavar="EXTENTS", help="For raw files: 4,8, or name=4,8 for one.")
]


def emulate(soc_name: str | None) -> None:
    """Select the SoC given by ``--soc-name``.

    Raises:
        AclnnError: no such SoC.
    """
    if soc_name is not None:
        from aclnn.core.products import set_soc_name

        set_soc_name(soc_name)
