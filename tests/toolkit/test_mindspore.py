"""Files and functions that MindSpore looks for before its first call."""

import os
import subprocess
import sys
from pathlib import Path

from aclnn.toolkit.compiler import cxx_compiler
from aclnn.toolkit.environment import variables

COMPILER = """
from te import tik, tvm, version
import te.lang.cce
from te.platform.fusion_manager import fusion_manager
from tbe.tvm.topi.cce import util

@fusion_manager.register("square")
def square(x):
    return x * x

print(version.version, square(3), bool(tik.Tik), te.lang.cce.__name__, util)
"""

ATTRIBUTES = """
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace ge {
class Operator {
public:
    virtual ~Operator() = default;
    std::string GetOpType() const;
    Operator &SetAttr(const char *name, float value);
    Operator &SetAttr(const char *name, const std::vector<int64_t> &value);
    uint32_t GetAttr(const char *name, float &value) const;
    uint32_t GetAttr(const char *name, std::vector<int64_t> &value) const;
private:
    std::shared_ptr<void> parts;
};
struct OperatorFactory {
    static Operator CreateOperator(const char *name, const char *type);
};
}

int main()
{
    ge::Operator pool = ge::OperatorFactory::CreateOperator("", "MaxPool");
    const ge::Operator same = pool;
    float number = 7;
    std::vector<int64_t> sizes;

    pool.SetAttr("ksize", std::vector<int64_t>{1, 2});
    const uint32_t missing = same.GetAttr("ksize", number), found = same.GetAttr("ksize", sizes);
    pool.SetAttr("ksize", 0.5f);
    printf("%s %d %u %d %d", same.GetOpType().c_str(), missing != 0, found, (int)sizes.size(), (int)sizes[1]);
    number = 7;
    const uint32_t other = same.GetAttr("ksize", number);
    printf(" %u %g\\n", other, number);
}
"""


def test_the_operators_compiler_has_every_name(toolkit_root: Path) -> None:
    environment = variables(toolkit_root, os.environ)
    done = subprocess.run([sys.executable, "-c", COMPILER], env=environment, capture_output=True, text=True)
    release = (toolkit_root / "compiler" / "version.info").read_text().strip().removeprefix("Version=")
    assert (done.stdout.split()[:4], done.stderr) == ([release, "9", "True", "te.lang.cce"], "")


def test_an_operator_of_the_graph_engine_keeps_its_attributes(toolkit_root: Path, tmp_path: Path) -> None:
    """Copies of an operator share attributes; one name may have an attribute of each type."""
    (tmp_path / "attributes.cpp").write_text(ATTRIBUTES)
    lib = toolkit_root / "lib64"
    options = ["-std=c++11", "-D_GLIBCXX_USE_CXX11_ABI=0", f"-L{lib}", f"-Wl,-rpath,{lib}"]
    program = tmp_path / "attributes"
    subprocess.run([*cxx_compiler(), *options, program.with_suffix(".cpp"), "-lge_runner", "-o", program], check=True)
    assert subprocess.run([program], capture_output=True, text=True).stdout == "MaxPool 1 0 2 2 0 0.5\n"


def test_libraries_are_found_in_a_folder_called_cann(toolkit_root: Path) -> None:
    """MindSpore expects the path of aclrtMalloc's library to contain a folder called cann."""
    program = "import ctypes; ctypes.CDLL('libascendcl.so')"
    environment = variables(toolkit_root, os.environ)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    folder = Path(environment["LD_LIBRARY_PATH"].split(os.pathsep)[0])
    assert folder.parent.name == "cann"
    assert folder.samefile(toolkit_root / "lib64")
