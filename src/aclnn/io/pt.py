"""Files of ``torch.save``, .pt and .pth, read by ``torch.load`` with ``weights_only`` and memory mapping."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from pickle import Unpickler, UnpicklingError
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.io.common import Loader, expect_small
from aclnn.support.optional import import_or_raise
from aclnn.typing import Array

_PROTOCOL = 2
"""The pickle protocol of ``torch.save``, and the only one that ``weights_only`` supports completely."""
_ZIP = b"PK\3\4"
"""First bytes of a zip archive; its directory is at the end."""
_ALLOWED = {
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
    ("torch", "Size"),
    ("torch", "device"),
    ("collections", "OrderedDict"),
}


_WITHOUT_TORCH = (DataType.BF16, DataType.FLOAT8_E5M2, DataType.FLOAT8_E4M3FN, DataType.FLOAT8_E8M0)
"""Data types that PyTorch does not convert to NumPy's."""


def read(path: Path, dtype: DataType | None, shape: Sequence[int] | None) -> dict[str, Loader]:
    """Read a file as ``aclnn.io.Reader`` says; the keys of nested containers name a tensor, as in ``state.weight``."""
    torch = import_or_raise("torch", "torch")
    size = path.stat().st_size
    return {name: partial(_array, name, tensor, size) for name, tensor in _named("", saved(path), torch.Tensor)}


def saved(path: Path) -> Any:
    """Load a file's contents: memory-mapped tensors, numbers and strings, in lists and dictionaries.

    Raises:
        ValueError: the file is not from ``torch.save``, or contains other objects.
        OSError: the file cannot be read.
        MissingExtraError: PyTorch is not installed.
    """
    torch = import_or_raise("torch", "torch")
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            begins_as_zip = file.read(len(_ZIP)) == _ZIP
        if begins_as_zip:
            raise ValueError("expected a whole zip archive, got a truncated or damaged one")
        raise ValueError("expected a zip archive; load a file of PyTorch before 1.6 with PyTorch and save it again")
    with zipfile.ZipFile(path) as archive:  # memory mapping would read compressed bytes as elements
        if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
            raise ValueError("expected uncompressed members, as torch.save writes them")
        held = {info.filename.rpartition("/")[2]: info for info in archive.infolist()}
        if "constants.pkl" in held:
            raise ValueError("expected tensors, as of model.state_dict(), got a compiled model (TorchScript)")
        whole = "data.pkl" not in held or archive.read(held["data.pkl"])[1] == _PROTOCOL
    reading: dict[str, Any] = {"weights_only": True}
    if not whole:
        reading = {"weights_only": False, "pickle_module": SimpleNamespace(__name__="pickle", Unpickler=_Restricted)}
    try:
        return torch.load(path, map_location="cpu", mmap=True, **reading)
    except UnpicklingError as error:
        named = re.search(r"GLOBAL ([\w.]+)", str(error))  # the remaining message advises to trust the file
        got = named[1] if named else "something else"
        raise ValueError(f"expected tensors in lists and dictionaries, as of model.state_dict(), got {got}") from None


class _Restricted(Unpickler):
    """Unpickler for other protocols than that of ``weights_only``; it loads no globals but those that tensors need."""

    def find_class(self, module: str, name: str) -> Any:
        torch = import_or_raise("torch", "torch")
        dtype = module == "torch" and isinstance(vars(torch).get(name), torch.dtype)
        if not dtype and (module, name) not in _ALLOWED:
            raise UnpicklingError(f"GLOBAL {module}.{name}")
        return super().find_class(module, name)


def _named(name: str, saved: object, kind: type) -> Iterator[tuple[str, Any]]:
    if isinstance(saved, kind):
        yield name, saved
    elif isinstance(saved, (Mapping, list, tuple)):
        for key, value in saved.items() if isinstance(saved, Mapping) else enumerate(saved):
            yield from _named(f"{name}.{key}" if name else str(key), value, kind)


def _array(name: str, tensor: Any, size: int) -> Array:
    expect_small(name, tensor.nbytes, size)  # one element can be expanded to any shape
    torch = import_or_raise("torch", "torch")
    held = {getattr(torch, dtype.torch_name or "", None): dtype for dtype in _WITHOUT_TORCH}.get(tensor.dtype)
    words = {1: torch.uint8, 2: torch.int16}
    array: Array = (tensor.detach() if held is None else tensor.detach().view(words[held.itemsize])).numpy()
    array = array if held is None else array.view(held.numpy)
    array.flags.writeable = False
    return array


def write(file: BinaryIO, tensors: Mapping[str, Array]) -> None:
    """Write a file as ``aclnn.io.Writer`` says: an array without a name as a tensor, others as a dictionary."""
    torch = import_or_raise("torch", "torch")
    saved = {name: _tensor(torch, array) for name, array in tensors.items()}
    torch.save(saved[""] if [*saved] == [""] else saved, file)


def _tensor(torch: Any, array: Array) -> Any:
    array = np.require(array, requirements=("C", "W"))
    if array.dtype == DataType.BF16.numpy:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
