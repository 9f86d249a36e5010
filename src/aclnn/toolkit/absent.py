"""Names of CANN that a program needs and this toolkit lacks, from a compiler's or linker's messages."""

from __future__ import annotations

import re

from aclnn.toolkit import headers

# gcc and clang on files, functions, types and constants; GNU's linkers and LLVM's on functions.
_COMPLAINTS = re.compile(
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
    """The headers, functions, types and constants of CANN's that a compiler's messages miss, each once.

    A name that the toolkit has is left out: the program forgot its header.
    """
    found = [match[match.lastgroup or 0] for match in _COMPLAINTS.finditer(output)]
    texts = headers.texts()
    here = {*texts, *(word for text in texts.values() for word in re.findall(r"\w+", text))}
    return [name for name in dict.fromkeys(found) if _OF_CANN.fullmatch(name) and name not in here]
