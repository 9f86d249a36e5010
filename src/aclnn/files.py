"""Tensors in files: .npy, .npz, .safetensors, .pt and raw .bin, read without running or trusting anything in them.

Every size in a header is checked against the bytes that are really there before memory is taken; what lies
uncompressed in a file is memory-mapped. Files are written to a temporary name and renamed, so a reader never sees half
of one.
"""

from __future__ import annotations

import ast
import errno
import json
import lzma
import math
import os
import re
import secrets
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from aclnn import torch_files
from aclnn.dtypes import DataType

Array = np.ndarray[Any, Any]

_MAX_HEADER = 10_000
_MAX_JSON_HEADER = 100_000_000  # the limit of the safetensors library itself
_MAX_DIMS = 64
# Deflate reaches 1,032:1 on zeros. Small files may; a file that turns 3 MB into 2 GB is somebody's trap.
_MAX_EXPANSION = 100
_MAX_EXPANDED_BYTES = 1 << 28

_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)

_SAFETENSORS_TYPES = {
    "F64": DataType.DOUBLE, "F32": DataType.FLOAT, "F16": DataType.FLOAT16, "BF16": DataType.BF16,
    "I64": DataType.INT64, "I32": DataType.INT32, "I16": DataType.INT16, "I8": DataType.INT8,
    "U64": DataType.UINT64, "U32": DataType.UINT32, "U16": DataType.UINT16, "U8": DataType.UINT8,
    "BOOL": DataType.BOOL,
}  # fmt: skip


class FileError(ValueError):
    """A file that cannot be read as tensors; the text names it and says what was expected and what was found."""


@dataclass(frozen=True)
class Entry:
    """One tensor of a file, described but not read yet. What ``load`` maps may be unaligned; NumPy copes."""

    dtype: DataType
    """DT_UNDEFINED for what is no tensor of numbers known here: ``load`` then refuses it."""
    shape: tuple[int, ...]
    load: Callable[[], Array]

    @property
    def nbytes(self) -> int:
        """Bytes that the elements take."""
        return math.prod(self.shape) * self.dtype.numpy.itemsize


def entries(
    path: str | os.PathLike[str], dtype: DataType | str | None = None, shape: Sequence[int] | None = None
) -> dict[str, Entry]:
    """The tensors of a file by name, unread; a file that holds a single nameless one has it under "".

    Args:
        path: .npy, .npz, .safetensors, .pt / .pth, .bin / .raw.
        dtype: needed for raw files; for others, what a two-byte void (bfloat16 as NumPy stores it) means.
        shape: needed for raw files; for others it must agree.

    Raises:
        FileError: not readable, truncated, of an unknown kind, or not what it claims.
    """
    path = Path(path)
    wanted = _data_type(dtype)
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise _refuse(path, "expected a regular file")
        reader = _READERS.get(path.suffix.lower())
        if reader is None:
            raise _refuse(path, f"expected one of {', '.join(_READERS)}, got {path.suffix or 'no suffix'}")
        found = reader(path, size, wanted, shape)
    except _DAMAGED as error:
        raise _refuse(path, f"expected an undamaged archive ({error})") from error
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    if shape is not None:
        for entry in found.values():
            if entry.dtype is not DataType.DT_UNDEFINED and entry.shape != tuple(shape):
                raise _refuse(path, f"expected shape {list(shape)}, got {list(entry.shape)}")
    return found


def read(
    path: str | os.PathLike[str],
    name: str | None = None,
    dtype: DataType | str | None = None,
    shape: Sequence[int] | None = None,
) -> Array:
    """One tensor of a file: memory-mapped and read-only, unless it lies compressed or at an odd address.

    Args:
        path: the file.
        name: which tensor; not needed where there is only one.
        dtype: as for ``entries``.
        shape: as for ``entries``.

    Raises:
        FileError: as ``entries``; or there is no such tensor, or several and no name.
    """
    found = entries(path, dtype, shape)
    if name is None:
        if len(found) != 1:
            raise _refuse(Path(path), f"expected a tensor's name, one of {', '.join(sorted(found))}")
        name = next(iter(found))
    if name not in found:
        raise _refuse(Path(path), f"expected a tensor named {name!r}, got {', '.join(sorted(found)) or 'none'}")
    array = found[name].load()
    return array if array.flags.aligned else array.copy()


def write(path: str | os.PathLike[str], tensors: Array | Mapping[str, Array]) -> None:
    """Write one array, or several by name, in the form that the suffix names. Replaces the file in one step.

    A nameless tensor is called arr_0 in .npz, as NumPy does, and tensor in .safetensors.

    Raises:
        FileError: unknown suffix, several tensors for a form that holds one, a name twice, or a data type or name that
            the form cannot hold.
    """
    write_all({Path(path): tensors})


def write_all(contents: Mapping[Path, Array | Mapping[str, Array]]) -> None:
    """Write several files as ``write`` does: all of them appear, or none changes.

    Raises:
        FileError: as ``write``.
    """
    writers = {path: _writer(path, tensors) for path, tensors in contents.items()}
    try:
        replace_all(writers)
    except OSError as error:
        raise FileError(f"{error.filename}: {error.strerror}") from error


def _writer(path: Path, tensors: Array | Mapping[str, Array]) -> Callable[[BinaryIO], None]:
    form = _WRITERS.get(path.suffix.lower())
    if form is None:
        raise _refuse(path, f"expected one of {', '.join(_WRITERS)}, got {path.suffix or 'no suffix'}")
    checked: dict[str, Array] = {}
    for given, array in (tensors if isinstance(tensors, Mapping) else {"": tensors}).items():
        name = name_in(path, given)
        if name in checked:
            raise _refuse(path, f"expected every name once, got {name!r} again")
        checked[name] = _writable(path, array)
    return lambda file: form(path, file, checked)


def name_in(path: Path, name: str) -> str:
    """What a tensor is called in a file: nameless ones have a name in some forms."""
    return name or _NAMELESS.get(path.suffix.lower(), "")


_NAMELESS = {".npz": "arr_0", ".safetensors": "tensor"}


def replace_all(writers: Mapping[Path, Callable[[BinaryIO], object]]) -> None:
    """Files by what writes their bytes: all take their places when the last is written, or none changes.

    Links stay, and what they lead to is replaced. Pipes and devices cannot be replaced: they are written to, after the
    others are written and before those take their places.

    Raises:
        OSError: one cannot be written; ``filename`` is its path as given.
    """
    staged: list[tuple[Path, str, Path]] = []
    try:
        for path, write_to in sorted(writers.items(), key=lambda item: _is_special(item[0])):
            with _named_in_errors(path):
                if _is_special(path):
                    with path.open("wb") as file:
                        write_to(file)
                    continue
                target = os.path.realpath(path)
                staged.append((path, target, Path(target).with_name(f".{secrets.token_hex(6)}.tmp")))
                with open(os.open(staged[-1][2], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
                    write_to(file)
        for path, target, temporary in staged:
            with _named_in_errors(path):
                os.replace(temporary, target)
    finally:
        for _, _, temporary in staged:
            temporary.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:  # not there: whoever writes it finds out why
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return not stat.S_ISREG(mode)


@contextmanager
def _named_in_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _refuse(path: Path, text: str) -> FileError:
    return FileError(f"{path}: {text}")


def _data_type(dtype: DataType | str | None) -> DataType | None:
    if dtype is None or isinstance(dtype, DataType):
        return dtype
    for candidate in DataType:
        if candidate.numpy_name == dtype:
            return candidate
    raise FileError(f"dtype: expected a name such as float32, float16 or bfloat16, got {dtype!r}")


def _mapped(path: Path, dtype: DataType, shape: tuple[int, ...], offset: int, fortran: bool = False) -> Array:
    if 0 in shape:
        return np.empty(shape, dtype.numpy)
    return np.memmap(path, dtype.numpy, "r", offset, shape, "F" if fortran else "C").view(np.ndarray)


def _unreadable(refusal: FileError) -> Entry:
    """One that is there and cannot be read; the file's others can."""

    def load() -> Array:
        raise refusal

    return Entry(DataType.DT_UNDEFINED, (), load)


def _expect_indexable(path: Path, dtype: DataType, shape: Sequence[int]) -> None:
    """NumPy multiplies extents whatever stands beside them: (2**63, 0) is no shape although it holds nothing."""
    if math.prod(extent or 1 for extent in shape) * dtype.numpy.itemsize >= 1 << 63:
        raise _refuse(path, f"expected extents that span less than 2^63 bytes, got {list(shape)}")


def _entry(path: Path, dtype: DataType, shape: tuple[int, ...], offset: int, end: int, fortran: bool = False) -> Entry:
    """A tensor that lies uncompressed at ``offset`` and must not reach beyond ``end``."""
    entry = Entry(dtype, shape, lambda: _mapped(path, dtype, shape, offset, fortran))
    if entry.nbytes > end - offset:
        raise _refuse(
            path, f"expected {entry.nbytes} bytes for {list(shape)} of {dtype.numpy_name}, got {max(end - offset, 0)}"
        )
    _expect_indexable(path, dtype, shape)
    return entry


def _read_raw(path: Path, size: int, dtype: DataType | None, shape: Sequence[int] | None) -> dict[str, Entry]:
    if dtype is None:
        raise _refuse(path, "expected a dtype for a raw file (--dtype float32, float16 or bfloat16)")
    itemsize = dtype.numpy.itemsize
    dims = (size // itemsize,) if shape is None else tuple(shape)
    if not _is_shape(dims):
        raise _refuse(path, f"expected at most {_MAX_DIMS} extents from 0 on, got {list(dims)}")
    if math.prod(dims) * itemsize != size:
        wanted = math.prod(dims) * itemsize
        raise _refuse(path, f"expected {wanted} bytes for {list(dims)} of {dtype.numpy_name}, got {size}")
    return {"": _entry(path, dtype, dims, 0, size)}


def _read_npy(path: Path, size: int, dtype: DataType | None, shape: Sequence[int] | None) -> dict[str, Entry]:
    with path.open("rb") as file:
        return {"": _npy_entry(path, file, 0, size, dtype)}


def _npy_entry(path: Path, file: BinaryIO, start: int, end: int, dtype: DataType | None) -> Entry:
    found, shape, fortran, length = _npy_header(path, file, dtype)
    entry, left = _entry(path, found, shape, start + length, end, fortran), end - start - length
    if left != entry.nbytes:  # another array, say, appended to the first
        raise _refuse(path, f"expected {entry.nbytes} bytes for {list(shape)} of {found.numpy_name}, got {left}")
    return entry


_DESCR = re.compile(r"([<>|=])(f2|f4|f8|i1|i2|i4|i8|u1|u2|u4|u8|b1|V2)")


def _npy_header(path: Path, file: BinaryIO, dtype: DataType | None) -> tuple[DataType, tuple[int, ...], bool, int]:
    """Data type, shape, whether in Fortran order, and the length of the header that ``file`` stands at."""
    magic = file.read(8)
    if magic[:1] == b"\x80":
        raise _refuse(path, "expected a .npy file, got a pickle: it could run code and is not opened")
    if magic[:6] != b"\x93NUMPY" or len(magic) < 8 or magic[6] not in (1, 2, 3):
        raise _refuse(path, "expected a .npy file of version 1 to 3")
    width = 2 if magic[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > _MAX_HEADER:
        raise _refuse(path, f"expected a header of at most {_MAX_HEADER} bytes, got {length}")
    text = file.read(length)
    if len(text) != length:
        raise _refuse(path, f"expected a header of {length} bytes, got {len(text)}")
    try:
        header = ast.literal_eval(text.decode("latin-1").strip())
        descr, fortran, shape = header["descr"], header["fortran_order"], header["shape"]
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as error:
        raise _refuse(path, "expected a .npy header with descr, fortran_order and shape") from error
    match = _DESCR.fullmatch(descr) if isinstance(descr, str) else None
    if match is None or (match[1] == ">" and match[2][1] != "1"):
        raise _refuse(path, f"expected little-endian numbers, got data type {descr!r} (objects are never unpickled)")
    found = (dtype or DataType.BF16) if match[2] == "V2" else DataType.of_numpy(np.dtype(match[2]))
    if found.numpy.itemsize != int(match[2][1]):
        raise _refuse(path, f"expected elements of 2 bytes, got a dtype of {found.numpy.itemsize}")
    if not isinstance(fortran, bool) or not _is_shape(shape):
        raise _refuse(path, f"expected a tuple of at most {_MAX_DIMS} extents, got {str(shape)[:80]}")
    return found, tuple(shape), fortran, 8 + width + length


def _is_shape(shape: object) -> bool:
    return (
        isinstance(shape, (tuple, list))
        and len(shape) <= _MAX_DIMS
        and all(type(extent) is int and extent >= 0 for extent in shape)
    )


def _members(path: Path) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
    except (*_DAMAGED, ValueError, struct.error) as error:
        raise _refuse(path, f"expected a zip archive ({error})") from error
    if any(info.flag_bits & 1 for info in infos):
        raise _refuse(path, "expected an archive without encryption")
    return infos


def _stored_at(path: Path, size: int, info: zipfile.ZipInfo) -> int:
    """Where an uncompressed member's bytes begin."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        local = file.read(30)
    if len(local) < 30 or local[:4] != b"PK\x03\x04":
        raise _refuse(path, f"expected a zip member at {info.header_offset}")
    name_length, extra_length = struct.unpack_from("<HH", local, 26)
    begin = info.header_offset + 30 + int(name_length) + int(extra_length)
    if begin + info.file_size > size:
        raise _refuse(path, f"expected {info.file_size} bytes of {info.filename}, got {max(size - begin, 0)}")
    return begin


def _read_npz(path: Path, size: int, dtype: DataType | None, shape: Sequence[int] | None) -> dict[str, Entry]:
    found = {}
    for info in _members(path):
        name = info.filename.removesuffix(".npy")
        if name == info.filename:
            raise _refuse(path, f"expected members named *.npy, got {name!r}")
        if info.compress_type == zipfile.ZIP_STORED:
            begin = _stored_at(path, size, info)
            with path.open("rb") as file:
                file.seek(begin)
                found[name] = _summed(path, info, begin, _npy_entry(path, file, begin, begin + info.file_size, dtype))
        else:
            found[name] = _compressed_entry(path, info, dtype)
    return found


_MAX_SUMMED_BYTES = 1 << 28
"""Larger stored members are mapped without a look at their check sums, which would read them one time more."""


def _summed(path: Path, info: zipfile.ZipInfo, begin: int, entry: Entry) -> Entry:
    """The entry, loaded only when its member's bytes have the sum that the archive says they have."""

    def load() -> Array:
        data = _mapped(path, DataType.UINT8, (info.file_size,), begin)
        if zlib.crc32(data.data) != info.CRC:
            raise _refuse(path, f"expected the bytes of {info.filename} to have the check sum {info.CRC:#010x}")
        return entry.load()

    return entry if info.file_size > _MAX_SUMMED_BYTES else Entry(entry.dtype, entry.shape, load)


def _compressed_entry(path: Path, info: zipfile.ZipInfo, dtype: DataType | None) -> Entry:
    with zipfile.ZipFile(path) as archive, archive.open(info) as stream:
        kind, shape, fortran, length = _npy_header(path, stream, dtype)  # type: ignore[arg-type]  # reads, like a file

    def load() -> Array:
        with zipfile.ZipFile(path) as archive, archive.open(info) as stream:
            stream.read(length)
            try:
                data = stream.read(entry.nbytes + 1)
            except _DAMAGED as error:
                raise _refuse(path, f"expected {entry.nbytes} bytes of {info.filename} ({error})") from error
        if len(data) != entry.nbytes:
            raise _refuse(path, f"expected {entry.nbytes} bytes of {info.filename}, got another number")
        return np.frombuffer(data, kind.numpy).reshape(shape, order="F" if fortran else "C")

    entry = Entry(kind, shape, load)
    if entry.nbytes + length != info.file_size:
        raise _refuse(path, f"expected {entry.nbytes + length} bytes of {info.filename}, got {info.file_size}")
    if entry.nbytes > max(_MAX_EXPANDED_BYTES, _MAX_EXPANSION * info.compress_size):
        raise _refuse(
            path,
            f"expected {info.filename} to unpack to at most {_MAX_EXPANSION} times its {info.compress_size} bytes, "
            f"got {entry.nbytes}: store it uncompressed (numpy.savez)",
        )
    return entry


def _read_safetensors(path: Path, size: int, dtype: DataType | None, shape: Sequence[int] | None) -> dict[str, Entry]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MAX_JSON_HEADER):
            raise _refuse(path, f"expected a header within the file's {size} bytes, got one of {length}")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise _refuse(path, "expected a JSON header") from error
    if not isinstance(header, dict):
        raise _refuse(path, "expected a JSON object as header")
    return {
        name: _safetensors_entry(path, name, row, 8 + length, size)
        for name, row in header.items()
        if name != "__metadata__"
    }


def _safetensors_entry(path: Path, name: str, row: Any, base: int, size: int) -> Entry:
    try:
        word, shape, (begin, end) = row["dtype"], row["shape"], row["data_offsets"]
        kind = _SAFETENSORS_TYPES.get(word)
    except (KeyError, TypeError, ValueError) as error:
        raise _refuse(path, f"expected dtype, shape and data_offsets for {name!r}") from error
    if not _is_shape(shape) or not _is_shape([begin, end]) or base + end > size:
        raise _refuse(path, f"expected {name!r} within the file's {size} bytes, got {str(row)[:120]}")
    if kind is None:
        known = ", ".join(_SAFETENSORS_TYPES)
        return _unreadable(_refuse(path, f"expected {name!r} of one of the types {known}, got {str(word)[:40]}"))
    entry = _entry(path, kind, tuple(shape), base + begin, base + end)
    if entry.nbytes != end - begin:
        raise _refuse(path, f"expected {entry.nbytes} bytes for {name!r}, got {end - begin}")
    return entry


def _read_torch(path: Path, size: int, dtype: DataType | None, shape: Sequence[int] | None) -> dict[str, Entry]:
    members = {info.filename: info for info in _members(path)}
    pickles = [name for name in members if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        raise _refuse(path, "expected a file of torch.save since version 1.6 (a zip archive with data.pkl)")
    if any(info.compress_type != zipfile.ZIP_STORED for info in members.values()):
        raise _refuse(path, "expected uncompressed members, as torch.save writes them")
    prefix = pickles[0].removesuffix("data.pkl")

    def stored(name: str, limit: int) -> bytes:
        info = members[prefix + name]
        if info.file_size > limit:
            raise _refuse(path, f"expected {name} of at most {limit} bytes, got {info.file_size}")
        with path.open("rb") as file:
            file.seek(_stored_at(path, size, info))
            return file.read(info.file_size)

    if prefix + "byteorder" in members and stored("byteorder", 16) != b"little":
        raise _refuse(path, "expected little-endian data")
    try:
        described = torch_files.describe(stored("data.pkl", torch_files.MAX_PICKLE_BYTES))
    except torch_files.RefusedPickleError as error:
        raise _refuse(path, str(error)) from error
    return {
        name: _torch_entry(path, size, name, members, prefix, saved)
        if isinstance(saved, torch_files.Saved)
        else _unreadable(_refuse(path, f"{name}: {saved.text}"))
        for name, saved in described.items()
    }


def _torch_entry(
    path: Path, size: int, name: str, members: Mapping[str, zipfile.ZipInfo], prefix: str, saved: torch_files.Saved
) -> Entry:
    info = members.get(f"{prefix}data/{saved.storage}")
    itemsize = saved.dtype.numpy.itemsize
    if info is None or info.file_size != saved.storage_elements * itemsize:
        raise _refuse(path, f"expected {saved.storage_elements * itemsize} bytes of storage {saved.storage!r}")
    elements = math.prod(saved.shape)
    reach = sum((extent - 1) * step for extent, step in zip(saved.shape, saved.strides, strict=True)) + 1
    if elements and saved.offset + reach > saved.storage_elements:
        raise _refuse(path, f"expected {name!r} within its storage of {saved.storage_elements} elements, got {saved}")
    if elements * itemsize > max(_MAX_EXPANDED_BYTES, _MAX_EXPANSION * info.file_size):  # as expand() makes them
        raise _refuse(
            path, f"expected {name!r} to span at most {_MAX_EXPANSION} times its {info.file_size} bytes, got {saved}"
        )
    _expect_indexable(path, saved.dtype, saved.shape)
    begin = _stored_at(path, size, info)

    def load() -> Array:
        if elements == 0:
            return np.empty(saved.shape, saved.dtype.numpy)
        flat = _mapped(path, saved.dtype, (saved.storage_elements,), begin)[saved.offset :]
        steps = tuple(step * itemsize for step in saved.strides)
        return np.lib.stride_tricks.as_strided(flat, saved.shape, steps, writeable=False)

    return Entry(saved.dtype, saved.shape, load)


_READERS: dict[str, Callable[[Path, int, DataType | None, Sequence[int] | None], dict[str, Entry]]] = {
    ".npy": _read_npy, ".npz": _read_npz, ".safetensors": _read_safetensors,
    ".pt": _read_torch, ".pth": _read_torch, ".bin": _read_raw, ".raw": _read_raw,
}  # fmt: skip
SUFFIXES = tuple(_READERS)
"""The suffixes that can be read."""
CONTAINERS = (".npz", ".safetensors", ".pt", ".pth")
"""Those of files that hold tensors by name."""


def _writable(path: Path, array: Array) -> Array:
    array = np.asarray(array)
    try:
        DataType.of_numpy(array.dtype)
    except TypeError as error:
        raise _refuse(path, str(error)) from error
    return array


def _single(path: Path, tensors: Mapping[str, Array]) -> Array:
    if len(tensors) != 1:
        raise _refuse(path, f"expected one tensor for this form, got {len(tensors)}")
    return next(iter(tensors.values()))


def _bytes(array: Array) -> Iterator[bytes]:
    """The elements in row-major order, in pieces that stay small for an array larger than memory."""
    flat, step = array.reshape(-1) if array.flags.c_contiguous else array.flat, 1 << 22
    for begin in range(0, array.size, step):
        yield np.asarray(flat[begin : begin + step]).tobytes()


def _write_raw(path: Path, file: BinaryIO, tensors: Mapping[str, Array]) -> None:
    file.writelines(_bytes(_single(path, tensors)))


def _write_npy(path: Path, file: BinaryIO, tensors: Mapping[str, Array]) -> None:
    array = _single(path, tensors)
    file.write(_npy_head(path, array))
    file.writelines(_bytes(array))


def _npy_head(path: Path, array: Array) -> bytes:
    if DataType.of_numpy(array.dtype) not in _SAFETENSORS_TYPES.values():
        raise _refuse(path, f"expected a data type that can be read back, got {array.dtype}")
    descr = "<V2" if array.dtype.name == "bfloat16" else array.dtype.str
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {array.shape}, }}"
    padded = text + " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded.encode()


def _write_npz(path: Path, file: BinaryIO, tensors: Mapping[str, Array]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in tensors.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(_npy_head(path, array))
                for piece in _bytes(array):
                    member.write(piece)


def _write_safetensors(path: Path, file: BinaryIO, tensors: Mapping[str, Array]) -> None:
    labels = {dtype.numpy: label for label, dtype in _SAFETENSORS_TYPES.items()}
    header, offset = {}, 0
    for name, array in tensors.items():
        if array.dtype not in labels:
            raise _refuse(path, f"expected one of {', '.join(labels.values())}, got {array.dtype}")
        if name == "__metadata__":
            raise _refuse(path, "expected another name than __metadata__, which is no tensor's")
        header[name] = {
            "dtype": labels[array.dtype], "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]
        }  # fmt: skip
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for array in tensors.values():
        file.writelines(_bytes(array))


def _write_torch(path: Path, file: BinaryIO, tensors: Mapping[str, Array]) -> None:
    try:
        pickled = torch_files.pickled(
            {name: (DataType.of_numpy(array.dtype), array.shape) for name, array in tensors.items()}
        )
    except torch_files.RefusedPickleError as error:
        raise _refuse(path, str(error)) from error
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", "little")
        for number, array in enumerate(tensors.values()):
            with archive.open(f"archive/data/{number}", "w", force_zip64=True) as member:
                for piece in _bytes(array):
                    member.write(piece)
        archive.writestr("archive/version", "3\n")


_WRITERS: dict[str, Callable[[Path, BinaryIO, Mapping[str, Array]], None]] = {
    ".npy": _write_npy, ".npz": _write_npz, ".safetensors": _write_safetensors,
    ".pt": _write_torch, ".pth": _write_torch, ".bin": _write_raw, ".raw": _write_raw,
}  # fmt: skip
