# SPDX-License-Identifier: Apache-2.0
"""The scripts that an operator runs, on the CPU; and planted faults, which they have to find."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mxk import ops, problem, reference
from mxk.layer import Layer
from mxk_gaudi import library as variants

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "tests"), str(ROOT / "bench")]

import bench_moe  # noqa: E402
import parity_hpu  # noqa: E402

VARIANTS = variants.read(ops.load())
LIB = str(ops.load().parent)
CPU = ["--device", "cpu", "--lib", LIB]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """In this process: layers as small as those of an emulated card."""
    make = problem.make
    monkeypatch.setattr(
        problem, "make", lambda v, E, seed, shape, *rest: make(v, E, seed, shape or problem.emulation_shape(v), *rest)
    )


def run(*command, code=0, **environment):
    command = [str(c) for c in command]
    environment = os.environ | {"PYTHON": sys.executable} | environment
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


# ---- run_parity.sh


@pytest.mark.parametrize("name", VARIANTS)
def test_run_parity(name, tmp_path):
    out, _ = run(ROOT / "tests" / "run_parity.sh", "--variant", name, *CPU, "--experts", 2, "--tokens", "1,2", "--out",
                 tmp_path / "logs")
    names = ["PARITY"] + ["PREFILL"] * VARIANTS[name].deq + ["SIG_DEVICE"]
    lines = [f"[{name}] {verdict} PASS" for verdict in names]
    assert out.endswith("\n\n" + "\n".join(lines) + "\n")
    assert "hot" in (tmp_path / "logs" / f"{name}-kernel.log").read_text()


def test_run_parity_with_a_checkpoint(tmp_path):
    run(os.environ["MXK_CLI"], "make-checkpoint", tmp_path / "ckpt", "--variant", "gptoss", "--layers", 2,
        "--experts", 4, "--hidden", 544, "--intermediate", 160)
    out, _ = run(ROOT / "tests" / "run_parity.sh", "--variant", "gptoss", *CPU, "--checkpoint", tmp_path / "ckpt",
                 "--layer", 1, "--experts", 2, "--tokens", 4, TMPDIR=str(tmp_path))
    assert f"{tmp_path / 'ckpt'} layer 1" in out and "  router  " in out and "PARITY PASS" in out
    assert [p.name for p in tmp_path.iterdir()] == ["ckpt"]  # logs stay only where something failed


def test_run_parity_fails_aloud(tmp_path):
    out, _ = run(ROOT / "tests" / "run_parity.sh", "--variant", "kimi", "--device", "cpu", "--lib", tmp_path, code=1,
                 TMPDIR=str(tmp_path))
    assert len(list(tmp_path.glob("*/kimi-sig.log"))) == 1
    assert "libmxk_op_cpu.so: there is no such file; nothing is run" in out
    assert "[kimi] kernel: FAIL (status 1), see " in out and "PASS" not in out
    out, _ = run(ROOT / "tests" / "run_parity.sh", "--variant", "kimi", "--tokens", "0", code=2, TMPDIR=str(tmp_path))
    assert "0 is below 1" in out
    assert "usage" in run(ROOT / "tests" / "run_parity.sh", code=2)[1]
    for option in ("--impl", "--impl=stock", "--json"):
        _, err = run(ROOT / "tests" / "run_parity.sh", "--variant", "kimi", option, "stock", code=2)
        assert "is not for this script" in err
    out, _ = run(ROOT / "tests" / "run_parity.sh", "--variant", "kimi", code=1, PYTHON="true", TMPDIR=str(tmp_path))
    assert out.count("nothing was judged") == 2


# ---- parity_hpu.py


def parity(capsys, name, impl, *arguments):
    code = parity_hpu.main(["--variant", name, "--impl", impl, *CPU, "--tokens", "1,4", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_parity_writes_json(capsys, tmp_path):
    code, out, _ = parity(capsys, "gptoss", "kernel", "--json", tmp_path / "a.json")
    report = json.loads((tmp_path / "a.json").read_text())
    assert code == 0 and out.endswith("[gptoss] PARITY PASS\n") and report["passed"] == {"PARITY": True}
    assert {(r["T"], r["rms"], r["routing"]) for r in report["rows"]["PARITY"]} == {
        (T, rms, routing) for T in (1, 4) for rms in (1, 4) for routing in ("random", "local", "hot")
    }
    for r in report["rows"]["PARITY"]:
        assert r["kernel_rel_l2"] <= r["limit"] < 2e-3 < r["stock_rel_l2"] < 1e-2 or not r["routes"]
    code, out, _ = parity(capsys, "muse", "stock")
    assert code == 0 and "kernel" not in out and "PASS" not in out
    code, _, err = parity(capsys, "gptoss", "kernel", "--json", tmp_path / "none" / "a.json")
    assert code == 1 and "a.json: cannot be written: No such file or directory" in err


def test_a_reference_that_is_not_finite_proves_nothing(capsys, monkeypatch):
    right = reference.run
    monkeypatch.setattr(reference, "run", lambda *a: [torch.full_like(y, math.nan) for y in right(*a)])
    plant(monkeypatch, lambda _, y: torch.full_like(y, math.nan))
    code, out, _ = parity(capsys, "kimi", "kernel")
    assert code == 1 and "PARITY FAIL" in out and "not finite" in out


def plant(monkeypatch, fault):
    """The kernel's result becomes fault(call number, result)."""
    kernel, calls = Layer.kernel, []

    def planted(self, *tensors):
        calls.append(1)
        return fault(len(calls), kernel(self, *tensors))

    monkeypatch.setattr(Layer, "kernel", planted)


def test_a_wrong_result_fails(capsys, monkeypatch, tmp_path):
    def fault(n, y):
        if n == 9:  # T=4, RMS 1, hot: one row, little enough to pass as a whole
            y[2] *= 1.006
        return y

    plant(monkeypatch, fault)
    code, out, _ = parity(capsys, "gptoss", "kernel", "--json", tmp_path / "a.json")
    assert code == 1 and out.endswith("[gptoss] PARITY FAIL\n") and out.count("first failure") == 1
    assert "first failure: T=4 RMS=1 routing=hot: rel_l2" in out and "worst row 2 " in out
    assert json.loads((tmp_path / "a.json").read_text())["passed"] == {"PARITY": False}


def test_a_nan_fails(capsys, monkeypatch):
    plant(monkeypatch, lambda n, y: y * float("nan") if n == 3 else y)
    code, out, _ = parity(capsys, "glm", "kernel")
    assert code == 1 and "T=1 RMS=1 routing=hot: rel_l2 nan" in out


def test_a_wrong_step_fails(capsys, monkeypatch):
    right = torch.ops.custom_op.mxk_selfcheck

    def wrong(codes, numbers):
        out = right(codes, numbers)
        out[17, 3] *= 2
        return out

    monkeypatch.setattr(torch.ops.custom_op, "mxk_selfcheck", wrong)
    code, out, _ = parity(capsys, "kimi", "kernel")
    assert code == 1 and "55 of 56 rows as expected; wrong: [17]" in out and "first failure: mxk_selfcheck" in out


def test_recipes_mixed_up_fail(capsys, monkeypatch):
    """A bridge that takes a result by the shapes of the inputs: within a graph, and for good."""
    kernel, cache = Layer.kernel, {}

    def mixed_up(self, *tensors):
        return cache.setdefault(str([t.shape for t in tensors]), kernel(self, *tensors))

    monkeypatch.setattr(Layer, "kernel", mixed_up)
    code, out, _ = parity(capsys, "dsv41", "sig")
    assert code == 1 and out.endswith("[dsv41] SIG_DEVICE FAIL\n") and "first failure: T=1: rel_l2" in out
    assert "a call gave another's result" in out
    monkeypatch.setattr(Layer, "kernel", kernel)
    assert parity(capsys, "dsv41", "sig")[0] == 0


def test_a_graph_that_changes_results_fails(capsys, monkeypatch):
    def fault(n, y):
        if n == 2:  # the second call of the first pair, not the same call alone
            y.view(-1)[5] += 2**-6
        return y

    plant(monkeypatch, fault)
    code, out, _ = parity(capsys, "muse", "sig")
    assert code == 1 and "first failure: T=1: result 1 of two calls differs from that of the call alone" in out


def test_a_wrong_unpack_fails(capsys, monkeypatch):
    right = Layer.dequantize

    def wrong(self, e):
        w13, w2 = right(self, e)
        if e == self.E // 2:
            w2[0, 0] *= -1
        return w13, w2

    monkeypatch.setattr(Layer, "dequantize", wrong)
    code, out, _ = parity(capsys, "glm", "kernel")
    assert code == 1 and "first failure: mxk_deq of expert 5 differs" in out and "PREFILL FAIL" in out


def test_a_wrong_prefill_fails(capsys, monkeypatch):
    right = Layer.prefill
    monkeypatch.setattr(Layer, "prefill", lambda self, *tensors: right(self, *tensors) * 1.01)
    code, out, _ = parity(capsys, "glm", "kernel")
    assert code == 1 and "first failure: T=16: prefill is" in out


def test_usage(capsys):
    for arguments, text in [
        (["--variant", "gptoss", "--layer", "1"], "--layer needs --checkpoint"),
        (["--variant", "nope"], "variant 'nope' is not one of gptoss, glm"),
        ([], "--variant is missing"),
        (["--variant", "gptoss", "--tokens", "33"], "T=33 is not supported"),
    ]:
        assert parity_hpu.main([*CPU, *arguments]) == 1
        assert text in capsys.readouterr().err
    assert parity_hpu.main(["--variant", "gptoss"]) == 1  # --device hpu is the default
    assert "--device hpu needs --lib BUILD" in capsys.readouterr().err


# ---- bench_moe.py


def test_bench(tmp_path):
    files = {impl: tmp_path / f"{impl}.json" for impl in ("kernel", "stock")}
    bench = ROOT / "bench" / "bench_moe.py"
    for impl, file in files.items():
        run(sys.executable, bench, "--variant", "muse", *CPU, "--e-local", 8, "--tokens", 1, "--routing", "local",
            "--replays", 2, "--impl", impl, "--json", file)
    out, _ = run(sys.executable, bench, "--compare", files["kernel"], files["stock"], "--json", tmp_path / "both.json")
    lines = out.splitlines()
    columns = "Tokens | Routing | Local routes | Stock us | Kernel us | Speed-up | Stock rel_l2 | Kernel rel_l2"
    assert lines[1] == f"| {columns} |"
    rows = json.loads((tmp_path / "both.json").read_text())["rows"]
    assert len(lines) == 4 and lines[-1].startswith("| 1 | all local | 8 | ")
    for r in rows:
        assert r["kernel_rel_l2"] < 2e-3 < r["stock_rel_l2"] and r["speedup"] == r["stock_us"] / r["kernel_us"]
    report = json.loads(files["kernel"].read_text())
    assert report["chain"] == 8 and report["replays"] == 2 and report["problem"]["E"] == 8
    (row,) = report["rows"]
    assert (row["copies"] - 1) * row["bytes"] >= 4 * report["llc_bytes"]


def bench(capsys, monkeypatch, *arguments):
    monkeypatch.setattr(bench_moe, "cache_bytes", lambda: 1 << 20)
    code = bench_moe.main([*map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_bench_times_what_was_published(capsys, monkeypatch):
    code, out, _ = bench(capsys, monkeypatch, "--variant", "gptoss", *CPU, "--replays", 1)
    rows = [line.split()[:2] for line in out.splitlines() if line[:6].strip().isdigit()]
    assert code == 0 and rows == [[str(2**n), "random"] for n in range(6)] + [["1", "all"], ["8", "all"]]


def test_bench_does_not_time_what_is_wrong(capsys, monkeypatch, tmp_path):
    file = tmp_path / "a.json"
    run_it = ["--variant", "gptoss", *CPU, "--replays", 1, "--tokens", 2, "--json", file]
    plant(monkeypatch, lambda n, y: y * 1.01 if n == 5 else y)
    code, out, err = bench(capsys, monkeypatch, *run_it)
    assert code == 1 and "kernel T=2 random: rel_l2" in err and "a wrong result is not timed" in err
    assert not list(tmp_path.iterdir())
    plant(monkeypatch, lambda n, y: y * (1 + n // 20))  # wrong only while it is timed
    code, out, err = bench(capsys, monkeypatch, *run_it)
    assert code == 1 and "replays give other results than the first did" in err and not list(tmp_path.iterdir())


def test_bench_compares_only_the_same(capsys, monkeypatch, tmp_path):
    files = []
    stock = ["--impl", "stock"]
    for n, more in enumerate([[], stock, [*stock, "--seed", 2], [*stock, "--tokens", 4]]):
        files.append(tmp_path / f"{n}.json")
        run_it = ["--variant", "gptoss", *CPU, "--replays", 1, "--tokens", 2, "--json", files[-1], *more]
        assert bench(capsys, monkeypatch, *run_it)[0] == 0
    (tmp_path / "x.json").write_text('{"rows": 1}')
    for pair, text in [
        (files[:2], ""), (files[1::-1], ""), (files[0:3:2], "they differ in: weights random weights, seed 2 and"),
        (files[1:3], "files are of stock and stock"), (files[0:4:3], "no token count and routing in common"),
        ([files[0], tmp_path / "x.json"], "is no file of bench_moe.py --json"),
        ([files[0], tmp_path], "cannot be read"),
    ]:
        code, out, err = bench(capsys, monkeypatch, "--compare", *pair)
        assert (code, bool(err)) == (bool(text), bool(text)) and text in err, (out, err)
    with pytest.raises(SystemExit):
        bench(capsys, monkeypatch, "--impl", "kernel")
