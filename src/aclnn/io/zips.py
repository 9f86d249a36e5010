"""Members of zip archives, which .npz and .pt files are."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aclnn.io.entry import refuse

DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)
"""What reading a damaged archive raises."""


def members(path: Path) -> list[zipfile.ZipInfo]:
    """What an archive says it holds."""
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
    except (*DAMAGED, ValueError, struct.error) as error:
        raise refuse(path, f"expected a zip archive ({error})") from error
    if any(info.flag_bits & 1 for info in infos):
        raise refuse(path, "expected an archive without encryption")
    return infos


def stored_at(path: Path, size: int, info: zipfile.ZipInfo) -> int:
    """Where a member's bytes begin, as they lie in the archive."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        local = file.read(30)
    if len(local) < 30 or local[:4] != b"PK\x03\x04":
        raise refuse(path, f"expected a zip member at {info.header_offset}")
    name_length, extra_length = struct.unpack_from("<HH", local, 26)
    begin = info.header_offset + 30 + int(name_length) + int(extra_length)
    length = info.file_size if info.compress_type == zipfile.ZIP_STORED else info.compress_size
    if begin + length > size:
        raise refuse(path, f"expected {length} bytes of {info.filename}, got {max(size - begin, 0)}")
    return begin


@contextmanager
def unpacked(path: Path, size: int, info: zipfile.ZipInfo) -> Iterator[zipfile.ZipExtFile]:
    """A member to read from. ``ZipFile.open`` does the same, but for a ZipFile that has read the whole directory."""
    with path.open("rb") as file:
        file.seek(stored_at(path, size, info))
        with zipfile.ZipExtFile(file, "r", info) as stream:
            yield stream
