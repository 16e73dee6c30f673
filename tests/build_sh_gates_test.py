# SPDX-License-Identifier: Apache-2.0
"""The gates of build.sh, its MANIFEST, and what it is built with."""

import hashlib
import os
import re
import shutil
import subprocess

import pytest
import torch
from build_sh_helpers import EXAMPLE, ROOT, build, copy_tree, env, extra, manifest_of, nothing_left, quick  # noqa: F401
from build_sh_helpers import script, tree  # noqa: F401

import gate_guids
import gate_ops
import manifest as manifest_module

# ---- gates -----------------------------------------------------------------------------------------------------------

def entry(name, value):
    return name.encode().ljust(64, b"\0") + value.to_bytes(7, "little") + bytes(9)


def test_gate_of_the_list():
    stock = [entry("a", 5), entry("b", 6)]
    ours = [entry("mxk_x", 7), entry("mxk_y", 8)]
    names = ["mxk_x", "mxk_y"]
    gate_guids.check(stock + ours, stock, names)
    gate_guids.check(ours, [], names)
    for library, message in [
        (ours, "entry 0 is the stock library's 'a' changed in byte 0"),
        (stock[::-1] + ours, "entry 0 is the stock library's 'a'"),
        ([stock[0], stock[1][:79] + b"\1", *ours], "entry 1 is the stock library's 'b' changed in byte 79"),
        (stock[:1], "1 kernels are listed, the stock library alone has 2; the first that is missing is 'b'"),
        (stock + ours[:1], "there must be mxk_x, mxk_y; there is mxk_x"),
        (stock, "there is nothing"),
        (stock + ours[::-1], "there is mxk_y, mxk_x"),
        (stock + ours + [entry("mxk_z", 9)], "there is mxk_x, mxk_y, mxk_z"),
        (stock + [ours[0], entry("mxk_y", 7)], "the hash of 'mxk_y' is 0x7"),
        (stock + [ours[0], entry("mxk_y", 6)], "the hash of 'mxk_y' is 0x6"),
        (stock + [entry("mxk_x", 0), ours[1]], "the hash of 'mxk_x' is 0x0"),
    ]:
        with pytest.raises(gate_guids.Failed, match=re.escape(message)):
            gate_guids.check(library, stock, names)


STOCK = """
#include <stdint.h>
#include <string.h>
struct Entry { char name[64]; uint64_t hash; uint32_t properties, unused; };
static unsigned calls;
uint32_t GetKernelGuids(uint32_t device, uint32_t* count, struct Entry* entries) {
  *count = 1;
  if (entries) {
    memset(entries, 0, sizeof *entries);
    strcpy(entries->name, "stock");
    entries->hash = 1;
    entries->properties = PROPERTIES;
  }
  return 0;
}
uint32_t InstantiateTpcKernel(void) { return 0; }
uint32_t GetShapeInference(void) { return 0; }
"""


def stock_library(folder, properties):
    (folder / "stock.c").write_text(STOCK)
    library = folder / f"stock {properties}.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wno-unused-variable", f"-DPROPERTIES={properties}", folder / "stock.c",
                    "-o", library], check=True)
    return str(library)


@pytest.fixture(scope="module")
def built(env, tree, tmp_path_factory):
    """A build of muse beside a stock library of one kernel."""
    folder = tmp_path_factory.mktemp("built")
    done = build("--variant", "muse", folder / "out", tree=tree,
                 env=dict(env, MXK_STOCK_TPC_LIB=stock_library(folder, "2")))
    assert done.returncode == 0 and manifest_of(folder / "out")["stock"]["guids"] == 1, done.stderr
    return folder / "out"


def test_gate_of_the_list_fails_the_build(built, env, tree, tmp_path):
    changing = dict(env, MXK_STOCK_TPC_LIB=stock_library(tmp_path, "++calls"))
    done = build("--variant", "muse", tmp_path / "results" / "out", env=changing, tree=tree)
    assert done.returncode == 1 and not (tmp_path / "results").exists()
    assert "libmxk_tpc.so: entry 0 is the stock library's 'stock' changed in byte 72" in done.stderr
    assert "the check of the list of kernels failed; nothing was built" in done.stderr


def test_a_library_of_ours_is_no_stock_library(built, env, tree, tmp_path):
    ours = dict(env, MXK_STOCK_TPC_LIB=str(built / "libmxk_tpc.so"))
    done = build("--variant", "muse", tmp_path / "out", env=ours, tree=tree)
    assert done.returncode == 1 and nothing_left(tmp_path)
    assert "already has mxk_w13x, mxk_w2xr, mxk_selfcheck" in done.stderr


def test_gate_of_signatures():
    def kernels(*signatures):
        return [{"name": f"k{i}", "inputs": [["x", *pair] for pair in s]} for i, s in enumerate(signatures)]

    u8, f32 = ("u8", 2), ("f32", 2)
    gate_ops.check_signatures(kernels([u8], [u8, u8], [u8, f32], [f32, u8], [("u8", 3)]))
    with pytest.raises(gate_ops.Failed, match="k0 and k2 have the same inputs .u8 of rank 2, f32 of rank 2."):
        gate_ops.check_signatures(kernels([u8, f32], [u8, u8], [u8, f32]))


def test_gate_of_ops():
    def kernel(name, parameters=()):
        return {"name": name, "inputs": [["x", "u8", 2]], "parameters": list(parameters)}

    library = torch.library.Library("custom_op", "FRAGMENT")
    for name, arguments, keys in (("good", "Tensor x, int n", ("HPU", "Meta")), ("no_device", "Tensor x", ("Meta",)),
                                  ("no_meta", "Tensor x", ("HPU",))):
        library.define(f"{name}({arguments}) -> Tensor")
        for key in keys:
            library.impl(name, lambda x, n=0: x, key)
    good = kernel("good", ["n"])
    gate_ops.check_ops({"custom_op::good"}, [good])
    for registered, kernels, message in [
        (["good"], [good, kernel("missing")], "not registered: custom_op::missing"),
        (["good", "other"], [good], "no op of this build: custom_op::other"),
        (["good"], [kernel("good")], "custom_op::good takes Tensor, int; by its row in the kernel table it is Tensor"),
        (["no_device"], [kernel("no_device")], "custom_op::no_device has no kernel for HPU"),
        (["no_meta"], [kernel("no_meta")], "custom_op::no_meta has no kernel for Meta"),
    ]:
        with pytest.raises(gate_ops.Failed, match=re.escape(message)):
            gate_ops.check_ops({"custom_op::" + name for name in registered}, kernels)


FOREIGN = """
#include <torch/library.h>
TORCH_LIBRARY_FRAGMENT(custom_op, m) { m.def("mxk_w13xib(Tensor x) -> Tensor"); }
"""


@pytest.mark.parametrize("fields, message", [
    ({"op": '#include "torch/ops.h"\nMXK_OP(port_a);\n' + FOREIGN}, "no op of this build: custom_op::mxk_w13xib"),
    ({"inputs": '{"codes", u8, {1, 256}}, {"numbers", f32, {(Size{"T/2", Letter::T, 1, 2}), 64}}'},
     "mxk_selfcheck and port_a have the same inputs (u8 of rank 2, f32 of rank 2)"),
])
def test_gate_of_ops_fails_the_build(fields, message, env, tree, tmp_path):
    folder = extra(tmp_path / "extra", "port_a", **fields)
    done = build("--variant", "muse", "--extra-kernel", folder, tmp_path / "out", env=env, tree=tree)
    assert done.returncode == 1, done.stdout
    assert f"libmxk_op_lazy.so: {message}" in done.stderr
    assert "the check of the ops failed; nothing was built" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["extra"]


# ---- what it is built with -------------------------------------------------------------------------------------------

def test_the_header_of_the_sdk_is_the_one_that_counts(env, tree, tmp_path):
    """A release that moves a field must not be built for with the layout that we know."""
    sdk = shutil.copytree(env["MXK_SDK_INCLUDE"], tmp_path / "sdk")
    header = sdk / "tpc_kernel_lib_interface.h"
    header.write_text(header.read_text().replace("UserParams nodeParams;", "uint64_t added; UserParams nodeParams;", 1))
    done = build("--variant", "muse", tmp_path / "out", env=dict(env, MXK_SDK_INCLUDE=str(sdk)), tree=tree)
    assert done.returncode == 1 and "HabanaKernelParams" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["sdk"]


def test_places_of_a_gaudi_image(quick, tmp_path):
    """Where nothing is said, and nothing is there."""
    places = {"TPC_CLANG": "/opt/habanalabs/bin/tpc-clang", "MXK_SDK_INCLUDE": "/usr/include/habanalabs",
              "MXK_STOCK_TPC_LIB": "/usr/lib/habanalabs/libtpc_kernels.so"}
    variables = {name: value for name, value in quick.items() if name not in places}
    done = build("--variant", "none", tmp_path / "out", env=variables)
    assert done.returncode in (1, 2) and nothing_left(tmp_path)
    for place in places.values():
        assert place in done.stderr or os.path.exists(place)


@pytest.mark.parametrize("words, message", [
    (["-march=gaudi3"], "unknown target CPU 'gaudi3'"),
    ([], "no target CPU"),
    (["-march=gaudi2", "-fPIC"], "unknown argument: '-fPIC'"),
    (["-march=gaudi2", "-std=c++20"], "unknown argument: '-std=c++20'"),
])
def test_the_standin_takes_no_more_than_tpc_clang(words, message, env, tree, tmp_path):
    source = tree / "src" / "tpc" / "mxk_w2x.c"
    done = subprocess.run([env["TPC_CLANG"], *words, "-O2", "-c", source, "-o", tmp_path / "k.o"], env=env,
                          capture_output=True, text=True)
    assert done.returncode == 1 and message in done.stderr and nothing_left(tmp_path)


# ---- MANIFEST --------------------------------------------------------------------------------------------------------

def test_code_sha256_is_that_of_the_code(env, tmp_path):
    """Not of comments. And every path may have spaces, or be relative; paths of sources and results show in nothing."""
    first = copy_tree(tmp_path / "first")
    again = copy_tree(tmp_path / "the first, again")
    other = copy_tree(tmp_path / "an other" / "tree", comment="Nothing but a comment.")
    changed = copy_tree(tmp_path / "changed", code="if (a > 100) a = 0;")
    tools = tmp_path / "some tools"
    tools.mkdir()
    sdk = shutil.copytree(env["MXK_SDK_INCLUDE"], tools / "the sdk")
    stock = shutil.copy(env["MXK_STOCK_TPC_LIB"], tools / "the stock.so")
    compiler = script(tools / "the tpc-clang", f'#!/bin/sh\nexec "{env["TPC_CLANG"]}" "$@"\n')
    copy = shutil.copytree(EXAMPLE, tmp_path / "an other" / "extra")
    with open(copy / "dsv41_sinkhorn.c", "a") as f:
        f.write("/* Nothing but a comment. */\n")
    spaces = dict(env, MXK_SDK_INCLUDE=str(sdk), MXK_STOCK_TPC_LIB=str(stock), TPC_CLANG=str(compiler))
    for source, where, extra_dir, variables in (
            (first, tmp_path / "out1", EXAMPLE, env),
            (again, tmp_path / "out1b", EXAMPLE, env),
            (other, "out 2", "an other/extra", spaces),
            (changed, tmp_path / "out3", EXAMPLE, env)):
        done = build("--variant", "dsv41", "--extra-kernel", extra_dir, where, env=variables, tree=source, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert manifest_of(tmp_path / "out1") == manifest_of(tmp_path / "out1b")
    libraries = [manifest_of(tmp_path / name)["files"]["libmxk_tpc.so"] for name in ("out1", "out 2", "out3")]
    assert len(set(libraries)) == 3  # each has its kernels inside
    kernels = [manifest_of(tmp_path / name)["kernels"] for name in ("out1", "out 2", "out3")]
    for name in ("mxk_w13xi", "mxk_w2x", "mxk_selfcheck", "dsv41_sinkhorn"):
        one, two, three = (k[name] for k in kernels)
        assert one["sha256"] != two["sha256"] and one["code_sha256"] == two["code_sha256"], name
        assert (one["code_sha256"] == three["code_sha256"]) == (name == "dsv41_sinkhorn"), name


def test_sections_of_either_class(tmp_path):
    def elf(kind, **contents):
        (tmp_path / "empty").write_bytes(b"x")
        command = ["objcopy", "-I", "binary", "-O", kind]
        for name, content in contents.items():
            (tmp_path / name).write_bytes(content)
            command.append(f"--add-section=.{name}={tmp_path / name}")
        subprocess.run([*command, tmp_path / "empty", tmp_path / "elf"], check=True)
        return (tmp_path / "elf").read_bytes()

    want = hashlib.sha256(b"codemeta").hexdigest()
    for kind in ("elf32-little", "elf64-little"):
        # In whatever order they stand in the file.
        assert manifest_module.code_sha256(elf(kind, tpc_metadata=b"meta", text=b"code", other=b"1")) == want
        whole = elf(kind, other=b"2" * 99, text=b"code", tpc_metadata=b"meta")
        assert manifest_module.code_sha256(whole) == want
        assert manifest_module.code_sha256(elf(kind, text=b"code", tpc_metadata=b"atem")) != want
        for contents, name in (({"text": b"code"}, ".tpc_metadata"), ({"tpc_metadata": b"meta"}, ".text")):
            with pytest.raises(manifest_module.Refused, match=re.escape(f"it has no section {name}")):
                manifest_module.code_sha256(elf(kind, **contents))
        for length in range(0, len(whole), 7):
            with pytest.raises(manifest_module.Refused):
                manifest_module.code_sha256(whole[:length])
    with pytest.raises(manifest_module.Refused, match="not a little-endian ELF file"):
        manifest_module.code_sha256(b"bitcode" * 20)


# ---- the example -----------------------------------------------------------------------------------------------------

def test_example_is_written_like_a_kernel(tmp_path):
    import tpc_c_test
    import tpc_sources_test

    source = EXAMPLE / "dsv41_sinkhorn.c"
    known = tpc_sources_test.rows(ROOT / "src" / "tpc" / "emu" / "intrinsics.inc")
    assert list(tpc_sources_test.complaints(source, known)) == []
    clang = shutil.which("clang-19")
    if clang:
        (tmp_path / "declarations.h").write_text(tpc_c_test.declarations())
        subprocess.run([clang, "-fsyntax-only", "-x", "c", "-std=gnu17", "-Wall", "-Werror", "-Wno-unused-function",
                        "-Wno-psabi", "-Wno-deprecated-non-prototype", "-I", ROOT / "src", "-I", ROOT / "include",
                        "-include", tmp_path / "declarations.h", source], check=True)
