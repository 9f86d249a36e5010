"""safetensors: a JSON header, then the tensors' bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from aclnn.core.dtypes import DataType
from aclnn.io.entry import Array, Entry, entry_at, is_shape, pieces, refuse, unreadable

_MAX_HEADER = 100_000_000  # the limit of the safetensors library itself

_TYPES = {
    "F64": DataType.DOUBLE, "F32": DataType.FLOAT, "F16": DataType.FLOAT16, "BF16": DataType.BF16,
    "I64": DataType.INT64, "I32": DataType.INT32, "I16": DataType.INT16, "I8": DataType.INT8,
    "U64": DataType.UINT64, "U32": DataType.UINT32, "U16": DataType.UINT16, "U8": DataType.UINT8,
    "BOOL": DataType.BOOL,
}  # fmt: skip


def read(path: Path, size: int, dtype: DataType | None, shape: Sequence[int] | None) -> dict[str, Entry]:
    """See ``aclnn.io.Form``."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MAX_HEADER):
            raise refuse(path, f"expected a header within the file's {size} bytes, got one of {length}")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise refuse(path, "expected a JSON header") from error
    if not isinstance(header, dict):
        raise refuse(path, "expected a JSON object as header")
    return {
        name: _described(path, name, row, 8 + length, size) for name, row in header.items() if name != "__metadata__"
    }


def _described(path: Path, name: str, row: Any, base: int, size: int) -> Entry:
    try:
        word, shape, (begin, end) = row["dtype"], row["shape"], row["data_offsets"]
        kind = _TYPES.get(word)
    except (KeyError, TypeError, ValueError) as error:
        raise refuse(path, f"expected dtype, shape and data_offsets for {name!r}") from error
    if not is_shape(shape) or not is_shape([begin, end]) or base + end > size:
        raise refuse(path, f"expected {name!r} within the file's {size} bytes, got {str(row)[:120]}")
    if kind is None:
        known = ", ".join(_TYPES)
        return unreadable(refuse(path, f"expected {name!r} of one of the types {known}, got {str(word)[:40]}"))
    entry = entry_at(path, kind, tuple(shape), base + begin, base + end)
    if entry.nbytes != end - begin:
        raise refuse(path, f"expected {entry.nbytes} bytes for {name!r}, got {end - begin}")
    return entry


def write(path: Path, file: BinaryIO, tensors: Mapping[str, Array]) -> None:
    """See ``aclnn.io.Form``."""
    labels = {dtype.numpy: label for label, dtype in _TYPES.items()}
    header, offset = {}, 0
    for name, array in tensors.items():
        if array.dtype not in labels:
            raise refuse(path, f"expected one of {', '.join(labels.values())}, got {array.dtype}")
        if name == "__metadata__":
            raise refuse(path, "expected another name than __metadata__, which is no tensor's")
        header[name] = {
            "dtype": labels[array.dtype], "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]
        }  # fmt: skip
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for array in tensors.values():
        file.writelines(pieces(array))
