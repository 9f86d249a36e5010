"""NumPy's .npz: a zip archive of .npy files, compressed or not."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from aclnn.core.dtypes import DataType
from aclnn.io import npy
from aclnn.io.entry import MAX_EXPANDED_BYTES, MAX_EXPANSION, Array, Entry, mapped, pieces, refuse
from aclnn.io.zips import DAMAGED, members, stored_at, unpacked

_MAX_SUMMED_BYTES = 1 << 28
"""Larger stored members are mapped without a look at their check sums, which would read them one time more."""


def read(path: Path, size: int, dtype: DataType | None, shape: Sequence[int] | None) -> dict[str, Entry]:
    """See ``aclnn.io.Form``."""
    found = {}
    for info in members(path):
        name = info.filename.removesuffix(".npy")
        if name == info.filename:
            raise refuse(path, f"expected members named *.npy, got {name!r}")
        if info.compress_type == zipfile.ZIP_STORED:
            begin = stored_at(path, size, info)
            with path.open("rb") as file:
                file.seek(begin)
                entry = npy.described(path, file, begin, begin + info.file_size, dtype)
                found[name] = _summed(path, info, begin, entry)
        else:
            found[name] = _compressed(path, size, info, dtype)
    return found


def _summed(path: Path, info: zipfile.ZipInfo, begin: int, entry: Entry) -> Entry:
    """The entry, loaded only when its member's bytes have the sum that the archive says they have."""

    def load() -> Array:
        data = mapped(path, DataType.UINT8, (info.file_size,), begin)
        if zlib.crc32(data.data) != info.CRC:
            raise refuse(path, f"expected the bytes of {info.filename} to have the check sum {info.CRC:#010x}")
        return entry.load()

    return entry if info.file_size > _MAX_SUMMED_BYTES else Entry(entry.dtype, entry.shape, load)


def _compressed(path: Path, size: int, info: zipfile.ZipInfo, dtype: DataType | None) -> Entry:
    with unpacked(path, size, info) as stream:
        kind, shape, fortran, length = npy.header_of(path, stream, dtype)  # type: ignore[arg-type]  # reads, like a file

    def load() -> Array:
        with unpacked(path, size, info) as stream:
            stream.read(length)
            try:
                data = stream.read(entry.nbytes + 1)
            except DAMAGED as error:
                raise refuse(path, f"expected {entry.nbytes} bytes of {info.filename} ({error})") from error
        if len(data) != entry.nbytes:
            raise refuse(path, f"expected {entry.nbytes} bytes of {info.filename}, got another number")
        return np.frombuffer(data, kind.numpy).reshape(shape, order="F" if fortran else "C")

    entry = Entry(kind, shape, load)
    if entry.nbytes + length != info.file_size:
        raise refuse(path, f"expected {entry.nbytes + length} bytes of {info.filename}, got {info.file_size}")
    if entry.nbytes > max(MAX_EXPANDED_BYTES, MAX_EXPANSION * info.compress_size):
        raise refuse(
            path,
            f"expected {info.filename} to unpack to at most {MAX_EXPANSION} times its {info.compress_size} bytes, "
            f"got {entry.nbytes}: store it uncompressed (numpy.savez)",
        )
    return entry


def write(path: Path, file: BinaryIO, tensors: Mapping[str, Array]) -> None:
    """See ``aclnn.io.Form``."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in tensors.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(npy.head(path, array))
                for piece in pieces(array):
                    member.write(piece)
