"""Declarations of the toolkit's headers, and definitions of its libraries."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from aclnn.core.status import CODES
from aclnn.operators import OPERATORS
from aclnn.toolkit.libraries import BOOST, GRAPH_ENGINE
from aclnn.toolkit.stubs import STUBS, error_text
from tests.helpers.toolkit_support import Compile, needs_toolkit, run

pytestmark = [needs_toolkit, pytest.mark.toolkit]

HEADERS = (
    "acl/acl.h acl/acl_base.h acl/acl_rt.h acl/acl_op.h acl/acl_mdl.h acl/acl_op_compiler.h aclnn/acl_meta.h "
    "aclnn/aclnn_base.h "
    "aclnnop/aclnn_fast_gelu_backward.h aclnnop/aclnn_silu_backward.h aclnnop/aclnn_gelu_backward_v2.h "
    "aclnnop/aclnn_hardswish_backward.h aclnnop/aclnn_layer_norm_backward.h aclnnop/aclnn_fast_gelu.h "
    "aclnnop/aclnn_silu.h aclnnop/aclnn_gelu.h aclnnop/aclnn_gelu_v2.h aclnnop/aclnn_hardswish.h "
    "aclnnop/aclnn_swi_glu.h aclnnop/aclnn_swi_glu_grad.h "
    "aclnnop/aclnn_layer_norm.h aclnnop/aclnn_ops_nn.h aclnnop/aclnn_ops_math.h runtime/rt.h "
    "aclnn/opdev/fp16_t.h securec.h"
)
#: The documents' operators; each has two phases.
OPERATOR_FUNCTIONS = (
    "aclnnFastGeluBackward aclnnSiluBackward aclnnGeluBackwardV2 aclnnHardswishBackward aclnnLayerNormBackward "
    "aclnnFastGelu aclnnSilu aclnnGelu aclnnGeluV2 aclnnHardswish aclnnInplaceHardswish aclnnLayerNorm "
    "aclnnLayerNormWithImplMode aclnnFastLayerNorm aclnnSwiGlu aclnnSwiGluGrad"
)
#: The runtime's and the objects' functions that the documents name.
FUNCTIONS = (
    "aclInit aclFinalize aclFinalizeReference aclnnInit aclnnFinalize aclrtGetDeviceCount aclrtSetDevice "
    "aclrtResetDevice aclrtResetDeviceForce aclrtGetDevice aclrtGetRunMode aclrtSynchronizeDevice aclrtGetSocName "
    "aclrtGetVersion aclrtCreateContext aclrtDestroyContext aclrtSetCurrentContext aclrtGetCurrentContext "
    "aclrtCreateStream aclrtCreateStreamWithConfig aclrtDestroyStream aclrtDestroyStreamForce aclrtSynchronizeStream "
    "aclrtSynchronizeStreamWithTimeout aclrtStreamQuery aclrtCreateEvent aclrtCreateEventWithFlag "
    "aclrtCreateEventExWithFlag aclrtRecordEvent aclrtStreamWaitEvent aclrtResetEvent aclrtDestroyEvent "
    "aclrtSynchronizeEvent aclrtSynchronizeEventWithTimeout aclrtQueryEventStatus aclrtQueryEvent "
    "aclrtEventElapsedTime aclrtMalloc aclrtMallocAlign32 aclrtMallocCached aclrtMemFlush aclrtMemInvalidate "
    "aclrtFree aclrtMallocHost aclrtFreeHost aclrtMemcpy aclrtMemcpyAsync aclrtMemset aclrtMemsetAsync aclrtGetMemInfo "
    "aclGetRecentErrMsg aclrtGetLastError aclrtPeekAtLastError aclDataTypeSize aclFloat16ToFloat aclFloatToFloat16 "
    "aclCreateTensor aclDestroyTensor aclGetViewShape aclGetViewStrides aclGetStorageShape aclGetViewOffset "
    "aclGetFormat aclGetDataType aclGetRawTensorAddr aclSetRawTensorAddr aclInitTensor aclCreateScalar "
    "aclCreateIntArray aclCreateFloatArray aclCreateBoolArray aclCreateTensorList aclCreateScalarList "
    "aclDestroyScalar aclDestroyIntArray aclDestroyFloatArray aclDestroyBoolArray aclDestroyTensorList "
    "aclDestroyScalarList aclGetIntArraySize aclGetFloatArraySize aclGetBoolArraySize aclGetTensorListSize "
    "aclGetScalarListSize aclSetAclOpExecutorRepeatable aclDestroyAclOpExecutor aclSetInputTensorAddr "
    "aclSetOutputTensorAddr aclSetTensorAddr aclSetDynamicInputTensorAddr aclSetDynamicOutputTensorAddr "
    "aclSetDynamicTensorAddr AclSetInputTensorAddr AclSetOutputTensorAddr AclSetTensorAddr "
    "AclSetDynamicInputTensorAddr AclSetDynamicOutputTensorAddr AclSetDynamicTensorAddr "
    "aclrtSetSysParamOpt aclrtGetSysParamOpt aclrtCtxSetSysParamOpt aclrtCtxGetSysParamOpt aclrtSetOpExecuteTimeOut "
    "aclrtGetPrimaryCtxState aclrtDeviceCanAccessPeer aclrtDeviceEnablePeerAccess aclrtDeviceGetBareTgid "
    "aclGetDeviceCapability aclSetCompileopt aclGetCompileoptSize aclGetCompileopt aclsysGetCANNVersion "
    "aclsysGetVersionStr"
)
LOWER_RUNTIME = (
    "rtCtxCreate rtCtxDestroy rtStreamCreate rtStreamDestroy rtStreamDestroyForce rtStreamSynchronize "
    "rtStreamSynchronizeWithTimeout rtMalloc rtFree rtMemcpy rtSetDeviceSatMode"
)

LANGUAGES = [
    pytest.param(compiler, language, standard, id=f"{compiler}-{standard}")
    for compiler in ("gcc", "clang")
    for language, standard in (("c", "c11"), ("c++", "c++17"), ("c++", "c++11"))
]
#: How clients find a declaration: a type, a name, parameters without brackets, a semicolon.
DECLARATION = re.compile(r"^(?P<result>[\w ]+?[ *]+)(?P<name>\w+)\((?P<parameters>[^()]*)\);$", re.MULTILINE)


def declared(text: str) -> dict[str, str]:
    """Return the functions that a header declares, with their parameters."""
    found = [(match["name"], match["parameters"]) for match in DECLARATION.finditer(text)]
    assert len(found) == len(dict(found)), "declared twice"
    return dict(found)


def exported(library: Path) -> set[str]:
    lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in lines.splitlines()}


def undefined(library: Path) -> set[str]:
    lines = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in lines.splitlines()}


@pytest.fixture(scope="module")
def headers(toolkit_root: Path) -> dict[str, str]:
    include = toolkit_root / "include"
    return {str(path.relative_to(include)): path.read_text() for path in sorted(include.rglob("*.h"))}


def test_the_headers_match_the_documents(headers: dict[str, str]) -> None:
    # An operator of one's own adds a header.
    assert set(HEADERS.split()) <= set(headers)


@pytest.mark.parametrize(("compiler", "language", "standard"), LANGUAGES)
def test_each_header_stands_alone_without_a_warning(
    toolkit_root: Path, tmp_path: Path, compiler: str, language: str, standard: str
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    for header in HEADERS.split():
        source = tmp_path / "one.c"
        source.write_text(f'#include "{header}"\n#include "{header}"\nint main(void) {{ return 0; }}\n')
        strict = ["-Wall", "-Wextra", "-Wpedantic", "-Wstrict-prototypes"][: 4 if language == "c" else 3]
        options = [f"-std={standard}", *strict, "-Werror", "-fsyntax-only"]
        command = [compiler, "-x", language, *options, f"-I{toolkit_root / 'include'}", source]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{header}: {done.stderr}"


def test_numbers_match_the_documents(compiled: Compile) -> None:
    run(compiled("constants.c"))


def test_samples_find_numbers_of_16_bits_and_copies_that_know_their_room(compiled: Compile) -> None:
    assert run(compiled("sample_headers.cpp")).stdout == "ok\n"


def test_samples_find_the_runtime_through_the_header_of_hccl(headers: dict[str, str]) -> None:
    """The sample of aclnnMatmulReduceScatterV2 includes no header of the runtime itself."""
    assert '#include "acl/acl.h"' in headers["hccl/hccl.h"]


def test_the_runtime_s_header_suffices_to_initialise(headers: dict[str, str]) -> None:
    """Programs include acl_rt.h alone; CANN's acl.h only includes it and others."""
    assert "aclError aclInit(const char *configPath);" in headers["acl/acl_rt.h"]
    assert "(" not in headers["acl/acl.h"]


def test_every_status_and_enumeration_is_there(headers: dict[str, str]) -> None:
    text = "\n".join(headers.values())
    assert {name for name in CODES if not re.search(rf"\b{name} = {CODES[name]};", text)} == set()


def test_every_function_of_the_documents_is_declared(headers: dict[str, str]) -> None:
    found = {name for text in headers.values() for name in declared(text)}
    pairs = {name for function in OPERATOR_FUNCTIONS.split() for name in (function, f"{function}GetWorkspaceSize")}
    assert {*FUNCTIONS.split(), *LOWER_RUNTIME.split(), *pairs} <= found
    assert set(OPERATOR_FUNCTIONS.split()) <= {operator.function for operator in OPERATORS}


def test_declared_functions_are_exported_and_only_stubs_are_undeclared(
    toolkit_root: Path, headers: dict[str, str]
) -> None:
    libraries = sorted(path for path in (toolkit_root / "lib64").glob("lib*.so") if not path.is_symlink())
    names = [f"lib{name}.so" for name in ("ascendcl", "hccl", "nnopbase", "opapi", "runtime")]
    assert [path.name for path in libraries if path.name not in (BOOST, GRAPH_ENGINE)] == names
    libraries = [path for path in libraries if path.name in names]
    exports = [name for library in libraries for name in exported(library)]
    assert len(exports) == len(set(exports)), "defined twice"
    public = {name for text in headers.values() for name in declared(text)}
    assert set(exports) - {stub.name for stub in STUBS} == public
    assert not public & {stub.name for stub in STUBS}


def test_stubs_are_where_programs_look_for_them(toolkit_root: Path) -> None:
    for name in ("ascendcl", "runtime", "opapi"):
        found = exported(toolkit_root / "lib64" / f"lib{name}.so")
        assert {stub.name for stub in STUBS if stub.library == name} <= found


def test_stubs_return_an_error_or_do_nothing(compiled: Compile, tmp_path: Path) -> None:
    program = tmp_path / "stubs.c"
    program.write_text(
        "#include <stdio.h>\n"
        '#include "acl/acl.h"\n'
        + "".join(f"{stub.prototype};\n" for stub in STUBS if stub.name == "aclmdlInitDump")
        + "uint64_t MsprofGetHashId(const char *, size_t);\nuint64_t MsprofSysCycleTime(void);\n"
        "void aclAppLog(int, const char *, const char *, uint32_t, const char *, ...);\n"
        "int main(void) {\n"
        'aclAppLog(3, "f", "file", 1, "%d", 1);\n'
        'printf("%d ", aclmdlInitDump());\nputs(aclGetRecentErrMsg());\n'
        'return MsprofGetHashId("a", 1) == MsprofGetHashId("b", 1)\n'
        "|| MsprofSysCycleTime() == 0 ? 1 : 0; }\n"
    )
    assert run(compiled(program)).stdout == f"200001 {error_text('aclmdlInitDump')} [200001]\n"


def test_operators_are_in_libopapi_only(toolkit_root: Path, headers: dict[str, str]) -> None:
    lib = toolkit_root / "lib64"
    operators = {name for header, text in headers.items() if header.startswith("aclnnop/") for name in declared(text)}
    assert exported(lib / "libopapi.so") == operators | {stub.name for stub in STUBS if stub.library == "opapi"}
    assert (lib / "libopapi_nn.so").resolve() == (lib / "libopapi.so").resolve()
    for name in ("libascendcl.so", "libnnopbase.so", "libruntime.so", "aclnn/libaclnn_start.so", "aclnn/bridge.so"):
        assert not operators & (exported(lib / name) | undefined(lib / name))


def test_no_library_lists_anothers_functions(toolkit_root: Path, headers: dict[str, str]) -> None:
    every = {name for text in headers.values() for name in declared(text)}
    for library in (toolkit_root / "lib64").rglob("*.so"):
        assert library.name == BOOST or not every & undefined(library)


def test_the_operators_declarations_parse_like_the_documents(headers: dict[str, str]) -> None:
    """Declarations are ``aclnnStatus name(type name, …, uint64_t *workspaceSize, aclOpExecutor **executor);``."""
    for function in OPERATOR_FUNCTIONS.split():
        (text,) = (text for text in headers.values() if f"{function}GetWorkspaceSize(" in text)
        first = re.search(rf"^aclnnStatus {function}GetWorkspaceSize\(([^();]*)\);$", text, re.MULTILINE)
        assert first is not None
        parameters = [parameter.strip() for parameter in first[1].split(",")]
        assert all(re.fullmatch(r"(const )?\w+ \**\w+", parameter) for parameter in parameters), parameters
        assert parameters[-2:] == ["uint64_t *workspaceSize", "aclOpExecutor **executor"]
        second = re.search(rf"^aclnnStatus {function}\(([^();]*)\);$", text, re.MULTILINE)
        assert second is not None
        assert [re.sub(r"^const ", "", p.strip()) for p in second[1].split(",")] == [
            "void *workspace",
            "uint64_t workspaceSize",
            "aclOpExecutor *executor",
            "aclrtStream stream",
        ]
        assert text.count(f"{function}(") == 1


@pytest.mark.parametrize(
    ("function", "text"),
    [("aclnnIou", "mode"), ("aclnnCIoU", "mode"), ("aclnnRoiAlign", "mode"), ("aclnnFusedMatmul", "fusedOpType")],
)
def test_a_const_text_of_a_sample_was_no_argument(headers: dict[str, str], function: str, text: str) -> None:
    """CANN's sample program of aclnnIou passes ``const char* mode``, which C++ does not convert to ``char *``."""
    (prototypes,) = (found for found in headers.values() if f"{function}GetWorkspaceSize(" in found)
    assert re.search(rf"{function}GetWorkspaceSize\([^;]*const char \*{text},", prototypes)


def test_lists_are_released_by_the_c_plus_plus_runtime(toolkit_root: Path) -> None:
    library = toolkit_root / "lib64" / "libnnopbase.so"
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "libstdc++.so" in needed
    assert not {"_ZdaPv", "_Znam"} & exported(library)


def test_clients_find_the_package_from_the_operators_folder(toolkit_root: Path) -> None:
    lines = (toolkit_root / "opp" / "scene.info").read_text().split()
    scene = dict(line.split("=") for line in lines)
    assert scene["os"] == "linux"
    beside = toolkit_root / f"{scene['arch']}-{scene['os']}"
    assert (beside / "include" / "aclnnop" / "aclnn_silu_backward.h").is_file()
    assert (beside / "lib64" / "libopapi.so").is_file()
