"""Tensor files: what is written comes back, in every form; what is hostile is rejected before memory is taken."""

import errno
import importlib.util
import json
import os
import pickle
import resource
import stat
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest

from aclnn import io
from aclnn.io import FileError

WITHOUT_TORCH = importlib.util.find_spec("torch") is None
needs_torch = pytest.mark.skipif(WITHOUT_TORCH, reason="PyTorch is not installed")
PT, PTH = (pytest.param(suffix, marks=needs_torch) for suffix in (".pt", ".pth"))
FORMS = [".npy", ".npz", ".safetensors", PT, PTH, ".bin", ".raw"]
TYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.float64, np.int64]
SHAPES = [(), (0, 3), (7,), (3, 4, 5)]


def sample(dtype, shape):
    rng = np.random.default_rng(7)
    return np.asarray(rng.normal(size=shape) * 9).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("suffix", FORMS)
def test_written_files_are_read_back(tmp_path, suffix, dtype):
    for shape in SHAPES:
        array = sample(dtype, shape)
        path = tmp_path / f"t{suffix}"
        io.write(path, array)
        back = io.read(path, dtype=np.dtype(dtype).name, shape=shape)
        assert back.dtype == array.dtype
        assert back.shape == shape
        assert back.tobytes() == array.tobytes()
    assert sorted(os.listdir(tmp_path)) == [f"t{suffix}"]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", PT])
def test_several_tensors_have_names(tmp_path, suffix):
    tensors = {"x": sample(np.float32, (3,)), "dy": sample(ml_dtypes.bfloat16, (2, 2)).T}
    path = tmp_path / f"t{suffix}"
    io.write(path, tensors)
    assert set(io.entries(path)) == {"x", "dy"}
    for name, array in tensors.items():
        assert io.read(path, name).tobytes() == array.tobytes()
    with pytest.raises(FileError, match=r"expected a tensor's name, one of dy, x"):
        io.read(path)
    with pytest.raises(FileError, match=r"expected a tensor named 'z', got dy, x"):
        io.read(path, "z")


def test_numpy_reads_and_writes_the_same_files(tmp_path):
    array = sample(np.float16, (4, 3))
    io.write(tmp_path / "a.npy", array)
    assert np.array_equal(np.load(tmp_path / "a.npy"), array)
    io.write(tmp_path / "a.npz", {"k": array})
    assert np.array_equal(np.load(tmp_path / "a.npz")["k"], array)
    np.save(tmp_path / "b.npy", np.asfortranarray(array))
    assert np.array_equal(io.read(tmp_path / "b.npy"), array)
    np.savez_compressed(tmp_path / "c.npz", k=array)
    assert np.array_equal(io.read(tmp_path / "c.npz", "k"), array)
    narrow = array.astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "d.npy", narrow)
    assert io.read(tmp_path / "d.npy").dtype == narrow.dtype
    assert io.read(tmp_path / "d.npy").tobytes() == narrow.tobytes()
    assert io.read(tmp_path / "d.npy", dtype="uint16").dtype == np.uint16


def test_the_safetensors_library_agrees(tmp_path):
    library = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    array = sample(np.float32, (4, 3))
    io.write(tmp_path / "a.safetensors", {"k": array})
    assert np.array_equal(library.load_file(tmp_path / "a.safetensors")["k"], array)
    library.save_file({"k": array}, tmp_path / "b.safetensors")
    assert np.array_equal(io.read(tmp_path / "b.safetensors"), array)


def test_torch_agrees(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    array = sample(np.float32, (4, 3))
    io.write(tmp_path / "a.pt", {"k": array, "n": sample(ml_dtypes.bfloat16, (5,))})
    loaded = torch.load(tmp_path / "a.pt", weights_only=True)
    assert np.array_equal(loaded["k"].numpy(), array)
    assert loaded["n"].dtype == torch.bfloat16
    io.write(tmp_path / "b.pt", array)
    assert np.array_equal(torch.load(tmp_path / "b.pt", weights_only=True).numpy(), array)
    base = torch.arange(24.0).reshape(4, 6)
    saved = {"t": base.T[1:3], "p": torch.nn.Parameter(base), "list": [base[1], 3, "word"], "n": {"a": base.half()}}
    torch.save(saved, tmp_path / "c.pt")
    assert set(io.entries(tmp_path / "c.pt")) == {"t", "p", "list.0", "n.a"}
    assert np.array_equal(io.read(tmp_path / "c.pt", "t"), base.T[1:3].numpy())
    assert np.array_equal(io.read(tmp_path / "c.pt", "n.a"), base.half().numpy())
    torch.save(torch.nn.Linear(3, 2).state_dict(), tmp_path / "d.pt")
    assert set(io.entries(tmp_path / "d.pt")) == {"weight", "bias"}


def test_uncompressed_members_are_mapped(tmp_path):
    array = sample(np.float32, (1000,))
    for suffix in (".npy",) if WITHOUT_TORCH else (".npy", ".pt"):
        io.write(tmp_path / f"t{suffix}", {"a": array})
        (entry,) = io.entries(tmp_path / f"t{suffix}").values()
        read = entry()
        assert not read.flags.writeable
        assert io.read(tmp_path / f"t{suffix}").flags.aligned
        while isinstance(read.base, np.ndarray):
            read = read.base
        assert not read.flags.owndata, suffix


def npy(header, data=b""):
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def npy_of(descr="'<f4'", shape="(2,)", data=b"\0" * 8):
    return npy(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode(), data)


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


HUGE = f"({1 << 60},)"
HOSTILE = {
    "empty.npy": (b"", "EOF: reading magic string"),
    "pickle.npy": (pickle.dumps({"a": 1}), "the magic string is not correct"),
    "objects.npy": (npy_of("'|O'"), "expected a data type that ACL has (float32, float16, bfloat16 …), got dtype('O')"),
    "structured.npy": (npy_of("[('a', '<f4')]"), "got dtype([('a', '<f4')])"),
    "odd_type.npy": (npy_of("'<f3'"), "not a valid dtype descriptor: '<f3'"),
    "big_endian.npy": (npy_of("'>f4'"), "got dtype('>f4')"),
    "huge.npy": (npy_of(shape=HUGE), "expected 4611686018427387904 bytes"),
    "overflow.npy": (npy_of(shape=f"({1 << 32}, {1 << 32})"), "expected 73786976294838206464 bytes"),
    "negative.npy": (npy_of(shape="(-1,)"), "expected -4 bytes for [-1]"),
    "many_dims.npy": (npy_of(shape="(" + "1," * 65 + ")", data=bytes(4)), "maximum supported dimension"),
    "truncated.npy": (npy_of(data=b"\0" * 7), "expected 8 bytes for [2] of float32, got 7"),
    "appended.npy": (2 * npy_of(data=b"\0" * 8), "expected 8 bytes for [2] of float32, got "),
    "code.npy": (npy(b"__import__('os').system('true')"), "malformed node"),
    "nested.npy": (npy(b"(" * 9000), "nested.npy: "),
    "header.npy": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "expected 4294967295 bytes got 0"),
    "long.safetensors": (struct.pack("<Q", 1 << 60) + b"{}", "header too large"),
    "json.safetensors": (safetensors(b"{nonsense"), "invalid JSON"),
    "deep.safetensors": (safetensors(b"[" * 50_000), "invalid JSON"),
    "list.safetensors": (safetensors([1]), "invalid JSON"),
    "huge.safetensors": (
        safetensors({"a": {"dtype": "F32", "shape": [1 << 60], "data_offsets": [0, 4 << 60]}}),
        "overflow computing buffer size",
    ),
    "lying.safetensors": (
        safetensors({"a": {"dtype": "F32", "shape": [1 << 60], "data_offsets": [0, 4]}}, b"\0" * 4),
        "overflow computing buffer size",
    ),
    "gap.safetensors": (
        safetensors({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}}, b"\0" * 8),
        "invalid shape, data type, or offset",
    ),
    "dtype.safetensors": (
        safetensors({"a": {"dtype": "X", "shape": [], "data_offsets": [0, 0]}}),
        "unknown variant `X`",
    ),
    "text.npz": (b"hello", "not a zip file"),
    "text.pt": (b"hello", "expected a zip archive"),
    "pickle.pt": (
        pickle.dumps({"a": 1}),
        "expected a zip archive; load a file of PyTorch before 1.6 with PyTorch and save it again",
    ),
    "truncated.pt": (b"PK\3\4" + b"\0" * 100, "expected a whole zip archive, got a truncated or damaged one"),
    "odd.bin": (b"\0" * 7, "expected 4 bytes for [1] of float32, got 7"),
    "word.txt": (b"1 2 3", "expected one of .npy, .npz"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[needs_torch] if name.endswith(".pt") else []) for name in HOSTILE]
)
def test_hostile_files_are_rejected(tmp_path, name):
    data, text = HOSTILE[name]
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(FileError) as caught:
        io.read(path, dtype="float32" if name.endswith("bin") else None)
    assert str(path) in str(caught.value)
    assert text in f"{caught.value}$"


def test_a_missing_file_and_a_directory_are_rejected(tmp_path):
    with pytest.raises(FileError, match="No such file"):
        io.read(tmp_path / "none.npy")
    (tmp_path / "d.npy").mkdir()
    with pytest.raises(FileError, match="expected a regular file"):
        io.read(tmp_path / "d.npy")


class Dangerous:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_pickle_is_never_run(tmp_path):
    trap = str(tmp_path / "trap")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.save({"x": torch.ones(2), "y": Dangerous(trap)}, tmp_path / "a.pt")
    with pytest.raises(FileError, match=r"state_dict\(\), got \w+\.mkdir$"):
        io.entries(tmp_path / "a.pt")
    objects = np.array([Dangerous(trap)], object)
    np.save(tmp_path / "o.npy", objects)
    np.savez(tmp_path / "o.npz", o=objects)
    for name in ("o.npy", "o.npz"):
        with pytest.raises(FileError, match=r"expected a data type that ACL has .*, got dtype\('O'\)"):
            io.read(tmp_path / name)
    assert not os.path.exists(trap)


def test_compressed_members_of_a_torch_file_are_not_taken_for_elements(tmp_path):
    """torch.load would map compressed members, and return their bytes as numbers."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.save({"a": torch.ones(4)}, tmp_path / "a.pt")
    with (
        zipfile.ZipFile(tmp_path / "a.pt") as stored,
        zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as b,
    ):
        for name in stored.namelist():
            b.writestr(name, stored.read(name))
    with pytest.raises(FileError, match=r"expected uncompressed members, as torch\.save writes them"):
        io.read(tmp_path / "b.pt")


def test_a_damaged_lzma_archive_is_rejected(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", npy_of(shape="(5000,)", data=sample(np.float32, (5000,)).tobytes()))
    damaged = bytearray(path.read_bytes())
    damaged[60:200] = bytes(140)
    path.write_bytes(damaged)
    with pytest.raises(FileError):
        io.read(path)


@pytest.mark.parametrize("name", ["a.pt", "a.bin"])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_other_objects_in_torch_files_do_not_hide_tensors(tmp_path, protocol, name):
    """Objects with tensors: weights_only reads protocol 2 only, ATK writes 4, and published models end in .bin."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    path = tmp_path / name
    saved = {"x": torch.ones(3), "c": torch.ones(2, dtype=torch.complex64), "d": torch.device("cpu")}
    torch.save({**saved, "size": saved["x"].shape, "dtype": torch.bfloat16}, path, pickle_protocol=protocol)
    assert io.read(path, "x").tolist() == [1, 1, 1]
    assert io.read(path, "c").tolist() == [1, 1]
    assert set(io.entries(path)) == {"x", "c"}


@pytest.mark.parametrize("protocol", [2, 4])
def test_errors_about_whole_models_name_what_to_save(tmp_path, protocol):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    path, model = tmp_path / "a.pt", torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    torch.save(model, path, pickle_protocol=protocol)
    text = r"a\.pt: expected tensors in lists and dictionaries, as of model\.state_dict\(\), got .*Sequential$"
    with pytest.raises(FileError, match=text):
        io.read(path)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_code_in_a_torch_file_is_not_run(tmp_path, protocol):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "run"),)

    torch.save([torch.ones(3), Evil()], tmp_path / "a.pt", pickle_protocol=protocol)
    with pytest.raises(FileError, match=r"a\.pt: expected tensors in lists and dictionaries, .*, got posix\.mkdir"):
        io.read(tmp_path / "a.pt", "0")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_compiled_model_is_rejected(tmp_path, protocol, recwarn):
    """torch.load would pass a TorchScript archive to torch.jit.load unless it reads weights only, with a warning."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.save(torch.ones(3), tmp_path / "a.pt", pickle_protocol=protocol)
    with zipfile.ZipFile(tmp_path / "a.pt", "a") as archive:
        archive.writestr("a/constants.pkl", b"")
    with pytest.raises(FileError, match="TorchScript"):
        io.read(tmp_path / "a.pt")
    assert not recwarn


def test_a_file_from_before_pytorch_1_6_is_distinguished_from_a_damaged_one(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.save(torch.ones(3), tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(FileError, match=r"a\.pt: expected a zip archive; load a file of PyTorch before 1\.6"):
        io.read(tmp_path / "a.pt")


def test_an_expanded_tensor_is_read(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.save(torch.ones(1).expand(6, 8), tmp_path / "a.pt")
    assert np.array_equal(io.read(tmp_path / "a.pt"), np.ones((6, 8)))
    torch.save(torch.ones(1).expand(1 << 20, 1 << 20), tmp_path / "a.pt")
    with pytest.raises(FileError, match=r"to take at most 100 times its \d+ bytes, got 4398046511104"):
        io.read(tmp_path / "a.pt")


def test_a_flipped_bit_in_a_stored_member_is_found(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, a=sample(np.float32, (500,)))
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    assert io.entries(path).keys() == {"a"}
    with pytest.raises(FileError, match=r"Bad CRC-32 for file 'a\.npy'"):
        io.read(path)


def test_an_empty_tensor_of_impossible_extents_is_rejected(tmp_path):
    (tmp_path / "a.npy").write_bytes(npy_of(shape=f"({1 << 63}, 0)", data=b""))
    with pytest.raises(FileError, match=r"too large|out of bounds|too big|dimension exceeded"):
        io.read(tmp_path / "a.npy")


def test_errors_about_sizes_state_the_given_size(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(16))
    with pytest.raises(FileError, match=r"expected extents from 0 on, got \[-4\]"):
        io.read(tmp_path / "a.bin", dtype="float32", shape=(-4,))
    (tmp_path / "a.npy").write_bytes(npy_of()[:40])
    with pytest.raises(FileError, match=r"reading array header, expected \d+ bytes got 30"):
        io.read(tmp_path / "a.npy")


def test_zip_bombs_are_rejected_before_memory_is_taken(tmp_path):
    path = tmp_path / "bomb.npz"
    zeros = 400_000_000
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as member:
        member.write(npy_of("'|u1'", f"({zeros},)", b""))
        for _ in range(zeros // 10_000_000):
            member.write(bytes(10_000_000))
    assert path.stat().st_size < 1_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FileError, match=r"expected 'a\.npy' to take at most 100 times its"):
        io.read(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    # One that lies about its size.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", npy_of("'|u1'", f"({1 << 60},)", bytes(1000)))
    with pytest.raises(FileError, match=r"expected 1152921504606846976 bytes for .* got 1000"):
        io.read(path)


def test_a_compressed_member_that_is_cut_off_is_rejected(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", a=sample(np.float32, (500,)))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    directory = data.rindex(b"PK\x01\x02")
    data[directory + 20 : directory + 24] = struct.pack("<I", len(data) // 2)  # its compressed size
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(FileError):
        io.read(tmp_path / "a.npz")


def test_a_damaged_archive_is_rejected(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=sample(np.float32, (5000,)))
    whole = path.read_bytes()
    rng = np.random.default_rng(3)
    rejected = 0
    for _ in range(200):
        damaged = bytearray(whole)
        for position in rng.integers(0, len(whole), 3):
            damaged[position] ^= 1 << int(rng.integers(0, 8))
        path.write_bytes(damaged)
        try:
            io.read(path)
        except FileError:
            rejected += 1
    assert rejected > 150
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(FileError):
            io.read(path)


def test_an_interrupted_write_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "a.npy"
    io.write(path, sample(np.float32, (3,)))
    before = path.read_bytes()

    def fail(array):
        raise KeyboardInterrupt

    monkeypatch.setattr(io.npy, "row_major_bytes", fail)
    with pytest.raises(KeyboardInterrupt):
        io.write(path, sample(np.float32, (3000,)))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.npy"]


def test_several_files_are_written_or_none(tmp_path):
    array = sample(np.float32, (3,))
    for bad in (tmp_path / "no" / "b.npy", tmp_path):
        with pytest.raises(FileError, match=r"expected one of \.npy|No such file"):
            io.write_all({tmp_path / "a.npy": array, bad: array})
        assert os.listdir(tmp_path) == []
    io.write_all({tmp_path / "a.npy": array, tmp_path / "b.npz": {"k": array}})
    assert sorted(os.listdir(tmp_path)) == ["a.npy", "b.npz"]


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("fault", [OSError(errno.EPERM, "Operation not permitted"), KeyboardInterrupt()])
def test_a_place_that_cannot_be_taken_leaves_the_others_as_they_were(tmp_path, monkeypatch, links, fault):
    """If one file cannot be replaced, such as another user's in /tmp, no other file is."""
    old, fresh = sample(np.float32, (3,)), sample(np.float32, (4,))
    paths = {name: tmp_path / f"{name}.npy" for name in ("old", "new", "stuck", "last")}
    for name in ("old", "stuck", "last"):
        io.write(paths[name], old)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    replace = os.replace

    def fail(source, target):
        if target == paths["stuck"]:
            raise fault
        replace(source, target)

    def no_links(*arguments, **options):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "replace", fail)
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    with pytest.raises((FileError, KeyboardInterrupt), match=r"stuck\.npy: Operation not permitted|^$"):
        io.write_all(dict.fromkeys(paths.values(), fresh))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    monkeypatch.setattr(os, "replace", replace)
    io.write_all(dict.fromkeys(paths.values(), fresh))
    assert sorted(os.listdir(tmp_path)) == sorted(path.name for path in paths.values())
    assert all(np.array_equal(io.read(path), fresh) for path in paths.values())


def test_bytes_that_a_disk_rejects_late_leave_what_was_there(tmp_path, monkeypatch):
    """With a quota or a network file system a write may fail as late as in fsync."""

    def fail(descriptor):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    path = tmp_path / "a.npy"
    io.write(path, sample(np.float32, (3,)))
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(FileError, match=r"a\.npy: Disk quota exceeded"):
        io.write(path, sample(np.float32, (4,)))
    assert path.read_bytes() == before


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path, monkeypatch):
    """A private file must not become readable for everybody."""
    array, path = sample(np.float32, (3,)), tmp_path / "a.npy"
    io.write(path, array)
    path.chmod(0o600)
    written = []
    convert = io.npy.row_major_bytes
    monkeypatch.setattr(
        io.npy,
        "row_major_bytes",
        lambda array: written.extend(file.stat().st_mode for file in tmp_path.iterdir()) or convert(array),
    )
    io.write(path, array)
    assert [stat.filemode(mode) for mode in (*written, path.stat().st_mode)] == 3 * ["-rw-------"]


def test_files_that_are_new_have_the_permissions_that_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        io.write(tmp_path / "a.npy", sample(np.float32, (3,)))
    finally:
        os.umask(before)
    assert stat.filemode((tmp_path / "a.npy").stat().st_mode) == "-rw-r-----"


def test_names_that_could_not_be_read_back_are_rejected(tmp_path):
    array = sample(np.float32, (3,))
    with pytest.raises(FileError, match="expected another name than __metadata__"):
        io.write(tmp_path / "a.safetensors", {"__metadata__": array})
    for suffix, name in ((".npz", "arr_0"), (".safetensors", "tensor")):
        with pytest.raises(FileError, match=f"expected every name once, got '{name}' again"):
            io.write(tmp_path / f"a{suffix}", {"": array, name: array})
    with pytest.raises(FileError, match=r"expected a name without NUL, got 'a\\x00b'"):
        io.write(tmp_path / "a.npz", {"a\0b": array})
    for suffix in (".npy", ".npz"):
        with pytest.raises(FileError, match="expected a data type that can be read back, got float8_e5m2"):
            io.write(tmp_path / f"a{suffix}", array.astype(ml_dtypes.float8_e5m2))
    assert os.listdir(tmp_path) == []


def test_unwritable_outputs_are_rejected(tmp_path):
    array = sample(np.float32, (3,))
    with pytest.raises(FileError, match="expected one tensor for this format, got 2"):
        io.write(tmp_path / "a.npy", {"a": array, "b": array})
    with pytest.raises(FileError, match=r"expected one of \.npy"):
        io.write(tmp_path / "a.txt", array)
    with pytest.raises(FileError, match="expected a data type that ACL has"):
        io.write(tmp_path / "a.npy", np.array([None]))
    with pytest.raises(FileError, match="No such file"):
        io.write(tmp_path / "no" / "a.npy", array)
    assert os.listdir(tmp_path) == []
    with pytest.raises(FileError, match="expected a data type such as float32"):
        io.read(tmp_path / "a.bin", dtype="float12")


@needs_torch
def test_a_tensor_of_an_npu_is_read_without_torch_npu(tmp_path):
    """torch_npu saves tensors with the device npu:0."""
    import torch

    array = sample(np.float32, (3, 4))
    torch.save(torch.from_numpy(array), tmp_path / "cpu.pt")
    with zipfile.ZipFile(tmp_path / "cpu.pt") as source, zipfile.ZipFile(tmp_path / "npu.pt", "w") as target:
        for name in source.namelist():
            held = source.read(name)
            if name.endswith("data.pkl"):
                location = b"X\x03\x00\x00\x00cpu"
                assert held.count(location) == 1
                held = held.replace(location, b"X\x05\x00\x00\x00npu:0")
            target.writestr(name, held)
    assert io.read(tmp_path / "npu.pt").tobytes() == array.tobytes()
