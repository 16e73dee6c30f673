# SPDX-License-Identifier: Apache-2.0
"""For the tests of build.sh: how it is called with stand-ins in place of what a Gaudi image has (tests/standin).

  MXK_TEST_GAUDI   the folder for the builds, one for each variant, and dsv41-extra with the example of an extra kernel
  MXK_TEST_STOCK   a stock kernel library (fake_stock.cc)
  MXK_STANDIN_BUILD, MXK_STANDIN_LIB, PYTHONPATH   as the stand-ins want them
"""

import hashlib
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
STANDIN = ROOT / "tests" / "standin"
EXAMPLE = ROOT / "examples" / "dsv41_sinkhorn"

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "src" / "glue"))


def environment():
    """What a Gaudi image has where build.sh looks for it, here by variables. The bridge is found as a package."""
    cache = os.path.join(os.environ["MXK_TEST_GAUDI"], "cache")
    variables = dict(os.environ, TPC_CLANG=str(STANDIN / "tpc-clang"), CXX=str(STANDIN / "g++"), PYTHON=sys.executable,
                     MXK_SDK_INCLUDE=str(STANDIN / "sdk"), MXK_STOCK_TPC_LIB=os.environ["MXK_TEST_STOCK"],
                     MXK_STANDIN_CACHE=cache, MXK_STANDIN_OBJECTS=cache)
    for name in ("MXK_BRIDGE_INCLUDE", "MXK_BRIDGE_LIB"):
        variables.pop(name, None)
    return variables


def build(*arguments, env, tree=ROOT, cwd=None):
    return subprocess.run([str(pathlib.Path(tree) / "build.sh"), *map(str, arguments)], env=env, cwd=cwd,
                          capture_output=True, text=True, timeout=900)


def manifest_of(out):
    return json.loads((out / "MANIFEST").read_text())


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ---- builds that are about the script --------------------------------------------------------------------------------

EMPTY_KERNEL = "/* {comment} */\nvoid main(tensor a) {{ {code} }}\n"


def script(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def copy_tree(to, comment="", code="(void)a;"):
    to.mkdir(parents=True)
    ignore = shutil.ignore_patterns("__pycache__", "cpu", "ckpt", "reference")
    for name in ("src", "include"):
        shutil.copytree(ROOT / name, to / name, ignore=ignore)
    for name in ("build.sh", "CMakeLists.txt"):
        shutil.copy(ROOT / name, to / name)
    for kernel in (to / "src" / "tpc").glob("mxk_*.c"):
        kernel.write_text(EMPTY_KERNEL.format(comment=comment, code=code))
    return to


@pytest.fixture(scope="module")
def env():
    variables = environment()
    del variables["MXK_STANDIN_CACHE"]  # kernels that are compiled twice must come out alike by themselves
    return dict(variables, MXK_BRIDGE_INCLUDE=str(STANDIN / "bridge" / "include"),
                MXK_BRIDGE_LIB=os.environ["MXK_STANDIN_LIB"])


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return copy_tree(tmp_path_factory.mktemp("tree") / "tree")


@pytest.fixture(scope="module")
def quick(env, tmp_path_factory):
    """For what ends before anything is compiled: a torch that loads at once."""
    folder = tmp_path_factory.mktemp("python")
    (folder / "torch.py").write_text('__version__ = "2.9.0"\n\ndef compiled_with_cxx11_abi():\n    return True\n')
    bridge = folder / "habana_frameworks" / "torch"
    for file in ("include/hpu_custom_op.h", "include/hpu_custom_op_pt2.h", "lib/libhabana_pytorch_plugin.so",
                 "lib/libhabana_pytorch2_plugin.so"):
        (bridge / file).parent.mkdir(parents=True, exist_ok=True)
        (bridge / file).touch()
    variables = dict(env, PYTHONPATH=str(folder), CXX="g++")
    del variables["MXK_BRIDGE_INCLUDE"], variables["MXK_BRIDGE_LIB"]
    return variables


def nothing_left(folder):
    return [path.name for path in folder.iterdir()] == []


ROW = "X({name}, {users}, {name}, {emulation}, {parameters}, T, ({inputs}), ({{\"y\", f32, {{16, T}}}}))\n"
INPUTS = '{"x", f32, {16, T}}'


def extra(folder, guid, op=None, row=None, **fields):
    """A folder of an extra kernel that does nothing."""
    folder.mkdir(parents=True)
    fields = {"name": guid, "users": "extra", "emulation": 0, "parameters": '""', "inputs": INPUTS, **fields}
    (folder / f"{guid}.c").write_text(EMPTY_KERNEL.format(comment="", code="(void)a;"))
    (folder / "glue.inc").write_text(ROW.format(**fields) if row is None else row)
    (folder / "op.cpp").write_text(op or f'#include "torch/ops.h"\nMXK_OP({guid});\n')
    return folder
