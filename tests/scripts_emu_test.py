# SPDX-License-Identifier: Apache-2.0
"""The scripts on builds of build.sh and an emulated card: the path of a card, but for the card. MXK_GAUDI_BUILDS is the
folder of the builds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mxk import ops
from mxk_gaudi import library as variants

ROOT = Path(__file__).resolve().parents[1]
BUILDS = Path(os.environ["MXK_GAUDI_BUILDS"])
VARIANTS = variants.read(ops.load())
PARITY, BENCH = ROOT / "tests" / "parity_hpu.py", ROOT / "bench" / "bench_moe.py"


def run(*command, code=0, **environment):
    environment = os.environ | {"PYTHON": sys.executable} | environment
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("name", VARIANTS)
def test_run_parity(name):
    out, _ = run(ROOT / "tests" / "run_parity.sh", "--variant", name, "--device", "emu", "--lib", BUILDS / name,
                 "--tokens", "1,4")
    names = ["PARITY"] + ["PREFILL"] * VARIANTS[name].deq + ["SIG_DEVICE"]
    lines = [f"[{name}] {verdict} PASS" for verdict in names]
    assert out.endswith("\n\n" + "\n".join(lines) + "\n")
    assert "an emulated card: the shape is small" in out and "56 of 56 rows as expected" in out


def test_pt2_mode():
    arguments = ("--variant", "glm", "--device", "emu", "--lib", BUILDS / "glm", "--tokens", "1,2")
    for impl, last in (("kernel", "PREFILL"), ("sig", "SIG_DEVICE")):
        out, _ = run(sys.executable, PARITY, *arguments, "--impl", impl, PT_HPU_LAZY_MODE="0")
        assert out.endswith(f"[glm] {last} PASS\n")
    out, _ = run(sys.executable, BENCH, *arguments, PT_HPU_LAZY_MODE="0")
    assert out.count("random") >= 2
    out, err = run(sys.executable, PARITY, "--variant", "gptoss", "--device", "emu", "--lib", BUILDS / "gptoss",
                   PT_HPU_LAZY_MODE="0", code=1)
    assert "holds no libmxk_op_pt2.so" in err


def test_another_variant_is_refused():
    _, err = run(sys.executable, PARITY, "--variant", "kimi", "--device", "emu", "--lib", BUILDS / "glm", code=1)
    assert "was built for variant glm, kimi is asked for; nothing is loaded" in err


def test_one_library_a_process():
    program = f"""
import os, sys
sys.path.insert(0, {str(ROOT / "python")!r})
from mxk import devices
from mxk_gaudi import load as gaudi
devices.Device("emu", "glm", {str(BUILDS / "glm")!r})
assert gaudi.load({str(BUILDS / "glm")!r}, "glm")  # the same again
try:
    gaudi.load({str(BUILDS / "muse")!r})
except gaudi.MxkError as e:
    print(e)
os.environ["GC_KERNEL_PATH"] = {str(BUILDS / "muse" / "libmxk_tpc.so")!r}
gaudi._loaded = None
try:
    gaudi.load({str(BUILDS / "muse")!r})
except gaudi.MxkError as e:
    print(e)
"""
    out, _ = run(sys.executable, "-c", program)
    assert out.count("there may be only one; it is not loaded") == 2


def test_bench_says_what_its_times_are(tmp_path):
    for impl in ("kernel", "stock"):
        out, _ = run(sys.executable, BENCH, "--variant", "gptoss", "--device", "emu", "--lib", BUILDS / "gptoss",
                     "--impl", impl, "--json", tmp_path / f"{impl}.json")
        assert "THEY MEAN NOTHING for a card" in out and "median of 1 replays" in out
    out, _ = run(sys.executable, BENCH, "--compare", tmp_path / "stock.json", tmp_path / "kernel.json")
    assert "THEY MEAN NOTHING for a card" in out and "| 1 | all local | 4 |" in out
