"""Cases from task folders of ATK, Ascend's operator test kit: its inputs and outputs, saved by ``--save_data``.

Layout (ATK 26.5 to 26.8): output/NODE/CASES/ID/output_0.pt, where NODE is a backend and a name (pyaclnn_0, cpu_0),
CASES the list's name and ID the case's; input/…/ID/input.bin, written by ``torch.save``: the call's arguments in the
order of its signature, without outputs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aclnn.core.operator import Kind, Operator
from aclnn.io import SUFFIXES, pt
from aclnn.io.arguments import Raw
from aclnn.io.common import errors_of
from aclnn.support.optional import import_or_raise
from aclnn.verify.cases.arguments import operator_named
from aclnn.verify.cases.request import CaseRequest, natural_key

_OUTPUTS = "output/*/*/*/output_[0-9]*"
_OUTPUT = re.compile(rf"output_[0-9]+({'|'.join(map(re.escape, SUFFIXES))})")
_GOLDEN, _THIRD = "cpu", "gpu"
"""Backends not under test; a GPU's outputs are the reference of the dual-benchmark standards."""


def holds_cases(folder: Path) -> bool:
    """Return True for a task folder of ATK with saved outputs."""
    return any(folder.glob(_OUTPUTS))


def cases(folder: Path, operator: str, common: Mapping[str, Any]) -> Iterator[CaseRequest]:
    """Yield a request for each case of each node under test: all but cpu and gpu, unless there are no others.

    Args:
        folder: task folder, recognised by ``holds_cases``.
        operator: the operator, which the folder does not state.
        common: attributes, which override the saved ones.

    Raises:
        ValueError: a case without inputs, or with inputs that the operator does not have.
        MissingExtraError: PyTorch is needed.
    """
    found = operator_named(operator)
    of_node: dict[str, list[Path]] = {}
    for case in sorted({path.parent for path in folder.glob(_OUTPUTS)}, key=natural_key):
        of_node.setdefault(case.parent.parent.name, []).append(case)
    tested = [node for node in of_node if node.partition("_")[0] not in (_GOLDEN, _THIRD)] or [*of_node]
    third = next((node for node in of_node if node.partition("_")[0] == _THIRD and node not in tested), None)
    for node in tested:
        for case in of_node[node]:
            place = Path(case.parent.name, case.name)
            outputs, raw = _outputs(found, folder, case)
            others = _outputs(found, folder, folder / "output" / third / place)[0] if third else {}
            values = {**_inputs(found, folder, place), **found.by_name(common.items())}
            yield CaseRequest(operator, values, outputs, others, f"{node}/{place.as_posix()}", folder, raw=raw)


def _outputs(operator: Operator, folder: Path, case: Path) -> tuple[dict[str, str], Raw]:
    """Return files of a case's outputs by name, and the data types and shapes of raw ones."""
    names = [parameter.python_name for parameter in operator.outputs]
    found = sorted((file for file in case.iterdir() if _OUTPUT.fullmatch(file.name)), key=natural_key)
    numbers = [int(file.stem.removeprefix("output_")) for file in found]
    if max(numbers, default=0) >= len(names):
        raise ValueError(f"{case}: expected at most {len(names)} outputs of {operator.name}, got {found[-1].name}")
    info_file = case / "output_info.json"
    infos: list[Any] = []
    with errors_of(info_file):
        infos = _flat(json.loads(info_file.read_text(encoding="utf-8"))) if info_file.is_file() else infos
        named = dict(zip(names, infos, strict=False))
        raw = Raw(
            {name: info["dtype"].removeprefix("torch.") for name, info in named.items()},
            {name: tuple(info["shape"]) for name, info in named.items()},
        )
    return {names[n]: file.relative_to(folder).as_posix() for n, file in zip(numbers, found, strict=True)}, raw


def _flat(infos: Any) -> list[Any]:
    return [info for part in infos for info in _flat(part)] if isinstance(infos, list) else [infos]


def _inputs(operator: Operator, folder: Path, place: Path) -> dict[str, Any]:
    saved = sorted(path for top in ("input", "inputs") for path in folder.glob(f"{top}/**/{place.name}/input.bin"))
    same = [path for path in saved if path.parent.parent.name == place.parent.name] or saved
    if not same:
        raise ValueError(f"{folder}: expected input/…/{place.name}/input.bin, as --save_data input writes it, got none")
    torch = import_or_raise("torch", "torch")
    file = same[0].relative_to(folder).as_posix()
    with errors_of(same[0]):
        held = pt.saved(same[0])
        if not isinstance(held, (list, tuple, dict)):
            raise ValueError(f"expected a list of the call's arguments, got {type(held).__name__}")
        asked = [parameter.python_name for parameter in operator.parameters if parameter.kind is not Kind.OUTPUT]
        if not isinstance(held, dict) and len(held) > len(asked):
            raise ValueError(f"expected at most {len(asked)} arguments of {operator.name}, got {len(held)}")
        values: dict[str, Any] = {}
        for at, (name, value) in enumerate(held.items() if isinstance(held, dict) else zip(asked, held, strict=False)):
            if value is None:
                continue
            wanted = "a tensor" if operator.parameter(name).is_tensor else "a value"
            if isinstance(value, torch.Tensor) is not operator.parameter(name).is_tensor:
                raise ValueError(f"expected {wanted} for {name}, got {type(value).__name__}")
            entry = f"{file}:{name if isinstance(held, dict) else at}"
            values[name] = entry if isinstance(value, torch.Tensor) else value
    return operator.by_name(values.items())
