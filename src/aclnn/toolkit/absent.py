"""CANN names that a program needs and this toolkit lacks, found in compiler messages and in object files."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from aclnn.capi.prototype import FUNCTIONS
from aclnn.toolkit import headers
from aclnn.toolkit.compiler import ToolkitError
from aclnn.toolkit.stubs import STUBS

# gcc and clang name files, functions, types and constants; the linkers of GNU and LLVM name functions.
_COMPILER_MESSAGES = re.compile(
    r"error: ['‘]?(?P<header>[\w./]+\.h)(?:['’] file not found|: No such file)"
    r"|undeclared[\w ]* ['‘](?P<undeclared>\w+)['’]"
    r"|['‘](?P<quoted>\w+)['’] (?:was not declared|undeclared|does not name a type)"
    r"|(?:unknown type name|implicit declaration of function) ['‘](?P<unknown>\w+)['’]"
    r"|undefined reference to [`'‘](?P<undefined>\w+)['’]"
    r"|undefined symbol: (?P<symbol>\w+)$",
    re.MULTILINE,
)
_OF_CANN = re.compile(
    r"(?:\w+/)*acl\w*\.h|(?:runtime|ge|graph|hccl|external)/[\w./]+\.h|[aA]cl\w+|ACL\w+|(?:rt|Hccl)[A-Z]\w+"
)


def named_in(output: str) -> list[str]:
    """Return the distinct headers, functions, types and constants of CANN that a compiler's messages report missing.

    Names that the toolkit has are left out: the program lacks an include.
    """
    found = [match[match.lastgroup or 0] for match in _COMPILER_MESSAGES.finditer(output)]
    texts = headers.texts()
    here = {*texts, *(word for text in texts.values() for word in re.findall(r"\w+", text))}
    return [name for name in dict.fromkeys(found) if _OF_CANN.fullmatch(name) and name not in here]


def undefined_in(objects: Sequence[Path]) -> list[str]:
    """Return the distinct operator functions that object files, archives or libraries call and this toolkit lacks.

    Raises:
        ToolkitError: there is no ``nm``, or it cannot read a file.
    """
    nm = shutil.which("nm") if objects else ""
    if nm is None:
        raise ToolkitError("nm: expected an executable on PATH, got none (Debian, Ubuntu: apt-get install binutils)")
    here = {*FUNCTIONS, *(stub.name for stub in STUBS)}
    found = (name for file in objects for name in _undefined(nm, file) if name.startswith("aclnn"))
    return [name for name in dict.fromkeys(found) if name not in here]


def _undefined(nm: str, file: Path) -> list[str]:
    # A stripped library has dynamic symbols only.
    results = [
        subprocess.run([nm, "-P", "-u", *table, str(file)], capture_output=True, text=True, check=False)
        for table in ([], ["-D"])
    ]
    if all(result.returncode for result in results):
        raise ToolkitError(f"{file}: expected an object file, an archive or a library, got {results[0].stderr.strip()}")
    lines = (line.split() for result in results for line in result.stdout.splitlines())
    return [fields[0].partition("@")[0] for fields in lines if len(fields) > 1 and fields[1] in "Uw"]
