# SPDX-License-Identifier: Apache-2.0
"""build.sh for every variant. What it builds is what other tests load. The variables are in build_sh_helpers.py."""

import os
import pathlib
import subprocess
import sys

import pytest
from build_sh_helpers import EXAMPLE, ROOT, build, environment, manifest_of, sha256

import gate_guids

# By hand, and not from the table that build.sh reads.
KERNELS = {
    "gptoss": ["mxk_w13xib", "mxk_w2xb", "mxk_selfcheck"],
    "glm": ["mxk_w13x", "mxk_w2x", "mxk_deq", "mxk_selfcheck"],
    "dsv41": ["mxk_w13xi", "mxk_w2x", "mxk_selfcheck"],
    "muse": ["mxk_w13x", "mxk_w2xr", "mxk_selfcheck"],
    "kimi": ["mxk_w13xt", "mxk_w2x", "mxk_selfcheck"],
}


LIST_OPS = """
import ctypes, sys, torch
ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
before = set(torch._C._dispatch_get_all_op_names())
torch.ops.load_library(sys.argv[2])
print(*sorted(set(torch._C._dispatch_get_all_op_names()) - before))
"""


def ops_of(library, plugin):
    done = subprocess.run([sys.executable, "-c", LIST_OPS, plugin, library], capture_output=True, text=True, check=True)
    return done.stdout.split()


def exports(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in out.splitlines()}


@pytest.mark.parametrize("name", [*KERNELS, "dsv41-extra"])
def test_build(name):
    folder = pathlib.Path(os.environ["MXK_TEST_GAUDI"])
    out = folder / name
    variant, extra = name.removesuffix("-extra"), name.endswith("-extra")
    # The libraries of a mode: lazy always, PT2 where it is offered.
    modes = ["lazy"] if extra or variant == "gptoss" else ["lazy", "pt2"]
    arguments = ["--variant", variant, *(["--pt2"] if "pt2" in modes else []),
                 *(["--extra-kernel", EXAMPLE] if extra else [])]
    if name == "gptoss":
        arguments = []  # the default
    done = build(*arguments, out, env=environment())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""

    kernels = KERNELS[variant] + (["dsv41_sinkhorn"] if extra else [])
    libraries = ["libmxk_tpc.so", *(f"libmxk_op_{mode}.so" for mode in modes)]
    summary = f"built {variant}: {len(kernels)} kernels, {' '.join(libraries)} MANIFEST in {out}"
    assert done.stdout.splitlines()[-1] == summary
    assert sorted(path.name for path in out.iterdir()) == sorted(["MANIFEST", *libraries])

    manifest = manifest_of(out)
    assert manifest["variant"] == variant
    assert manifest["extra_kernels"] == (["dsv41_sinkhorn"] if extra else [])
    assert manifest["files"] == {file: sha256(out / file) for file in sorted(libraries)}
    assert list(manifest["kernels"]) == kernels
    for sums in manifest["kernels"].values():
        assert len(sums["sha256"]) == len(sums["code_sha256"]) == 64 and sums["sha256"] != sums["code_sha256"]
    assert len({sums["code_sha256"] for sums in manifest["kernels"].values()}) == len(kernels)
    stock = pathlib.Path(os.environ["MXK_TEST_STOCK"])
    assert manifest["stock"] == {"path": str(stock), "sha256": sha256(stock), "guids": 412}
    version = manifest["versions"]
    assert set(version) == {"mxk", "tpc-clang", "g++", "python", "torch", "habana-torch-plugin"}
    assert "stand-in" in version["tpc-clang"] and version["python"] == "%d.%d.%d" % sys.version_info[:3]
    assert f"VERSION {version['mxk']} " in (ROOT / "CMakeLists.txt").read_text()

    for mode in modes:
        plugin = f"libhabana_pytorch{'2' if mode == 'pt2' else ''}_plugin.so"
        got = ops_of(out / f"libmxk_op_{mode}.so", os.path.join(os.environ["MXK_STANDIN_LIB"], plugin))
        assert got == sorted("custom_op::" + kernel for kernel in kernels)
    mine = {name for name in exports(stock) if not name.startswith("_Z")}  # those are the C++ runtime's
    assert exports(out / "libmxk_tpc.so") == mine
    # The stock library is named by the environment when the library is asked, as in a server.
    os.environ["MXK_STOCK_TPC_LIB"] = str(stock)
    listed = [gate_guids.name_of(entry) for entry in gate_guids.guids(str(out / "libmxk_tpc.so"))]
    assert listed[412:] == kernels


def test_one_source_gives_one_code():
    """The same kernel in several variants is the same machine code."""
    folder = pathlib.Path(os.environ["MXK_TEST_GAUDI"])
    codes = {}
    for name in [*KERNELS, "dsv41-extra"]:
        for kernel, sums in manifest_of(folder / name)["kernels"].items():
            codes.setdefault(kernel, set()).add(sums["code_sha256"])
    assert all(len(code) == 1 for code in codes.values()), codes
    assert len(set.union(*codes.values())) == len(codes)


RUN_EXTRA = """
import sys, torch, habana_frameworks.torch
torch.ops.load_library(sys.argv[1])
y = torch.ops.custom_op.dsv41_sinkhorn(torch.linspace(-1, 1, 16 * 70).reshape(16, 70).to("hpu"), 20).cpu()
assert y.shape == (16, 70) and y.dtype == torch.float32
for dimension in (0, 1):
    assert (y.reshape(4, 4, 70).sum(dimension) - 1).abs().max() < 1e-4
"""


def test_op_of_the_extra_kernel():
    """As a port would call it: op library, bridge and kernel library together, the latter two as stand-ins."""
    out = pathlib.Path(os.environ["MXK_TEST_GAUDI"]) / "dsv41-extra"
    variables = dict(os.environ, PT_HPU_LAZY_MODE="1", GC_KERNEL_PATH=str(out / "libmxk_tpc.so"),
                     MXK_STOCK_TPC_LIB=os.environ["MXK_TEST_STOCK"])
    done = subprocess.run([sys.executable, "-c", RUN_EXTRA, out / "libmxk_op_lazy.so"], env=variables,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
