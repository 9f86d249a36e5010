"""What ``torch.save`` writes, .pt and .pth: a zip archive of a pickle, which is not run, and the storages' bytes."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.io import pickles
from aclnn.io.entry import (
    MAX_EXPANDED_BYTES,
    MAX_EXPANSION,
    Array,
    Entry,
    FileError,
    expect_indexable,
    mapped,
    pieces,
    refuse,
    unreadable,
)
from aclnn.io.zips import members, stored_at


def read(path: Path, size: int, dtype: DataType | None, shape: Sequence[int] | None) -> dict[str, Entry]:
    """See ``aclnn.io.Form``."""
    found = {info.filename: info for info in _members(path)}
    pickle = [name for name in found if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickle) != 1:
        raise refuse(path, "expected a file of torch.save since version 1.6 (a zip archive with data.pkl)")
    if any(info.compress_type != zipfile.ZIP_STORED for info in found.values()):
        raise refuse(path, "expected uncompressed members, as torch.save writes them")
    prefix = pickle[0].removesuffix("data.pkl")

    def stored(name: str, limit: int) -> bytes:
        info = found[prefix + name]
        if info.file_size > limit:
            raise refuse(path, f"expected {name} of at most {limit} bytes, got {info.file_size}")
        with path.open("rb") as file:
            file.seek(stored_at(path, size, info))
            return file.read(info.file_size)

    if prefix + "byteorder" in found and stored("byteorder", 16) != b"little":
        raise refuse(path, "expected little-endian data")
    try:
        described = pickles.describe(stored("data.pkl", pickles.MAX_PICKLE_BYTES))
    except pickles.RefusedPickleError as error:
        raise refuse(path, str(error)) from error
    return {
        name: _described(path, size, name, found, prefix, saved)
        if isinstance(saved, pickles.Saved)
        else unreadable(refuse(path, f"{name}: {saved.text}"))
        for name, saved in described.items()
    }


def _members(path: Path) -> list[zipfile.ZipInfo]:
    try:
        return members(path)
    except FileError:
        with path.open("rb") as file:
            if file.read(1) != b"\x80":  # how a pickle begins
                raise
    text = (
        "expected a zip archive, got a pickle: if PyTorch before 1.6 saved it, load it with PyTorch and save it again"
    )
    raise refuse(path, text)


def _described(
    path: Path, size: int, name: str, found: Mapping[str, zipfile.ZipInfo], prefix: str, saved: pickles.Saved
) -> Entry:
    info = found.get(f"{prefix}data/{saved.storage}")
    itemsize = saved.dtype.numpy.itemsize
    if info is None or info.file_size != saved.storage_elements * itemsize:
        raise refuse(path, f"expected {saved.storage_elements * itemsize} bytes of storage {saved.storage!r}")
    elements = math.prod(saved.shape)
    reach = sum((extent - 1) * step for extent, step in zip(saved.shape, saved.strides, strict=True)) + 1
    if elements and saved.offset + reach > saved.storage_elements:
        raise refuse(path, f"expected {name!r} within its storage of {saved.storage_elements} elements, got {saved}")
    if elements * itemsize > max(MAX_EXPANDED_BYTES, MAX_EXPANSION * info.file_size):  # as expand() makes them
        raise refuse(
            path, f"expected {name!r} to span at most {MAX_EXPANSION} times its {info.file_size} bytes, got {saved}"
        )
    expect_indexable(path, saved.dtype, saved.shape)
    begin = stored_at(path, size, info)

    def load() -> Array:
        if elements == 0:
            return np.empty(saved.shape, saved.dtype.numpy)
        flat = mapped(path, saved.dtype, (saved.storage_elements,), begin)[saved.offset :]
        steps = tuple(step * itemsize for step in saved.strides)
        return np.lib.stride_tricks.as_strided(flat, saved.shape, steps, writeable=False)

    return Entry(saved.dtype, saved.shape, load)


def write(path: Path, file: BinaryIO, tensors: Mapping[str, Array]) -> None:
    """See ``aclnn.io.Form``."""
    try:
        pickled = pickles.pickled(
            {name: (DataType.of_numpy(array.dtype), array.shape) for name, array in tensors.items()}
        )
    except pickles.RefusedPickleError as error:
        raise refuse(path, str(error)) from error
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", "little")
        for number, array in enumerate(tensors.values()):
            with archive.open(f"archive/data/{number}", "w", force_zip64=True) as member:
                for piece in pieces(array):
                    member.write(piece)
        archive.writestr("archive/version", "3\n")
