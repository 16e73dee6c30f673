# SPDX-License-Identifier: Apache-2.0
"""What the scripts stand on: the fp32 reference and the layouts against plain loops, the calls that are made, the layer
through the ops of the CPU library, the loader of a card's build."""

import hashlib
import json
import math
import os
import random
import sys
import types

import pytest
import torch

from mxk import devices, ops, problem, reference
from mxk.layer import Layer, random_layer
from mxk_gaudi import library as variants
from mxk_gaudi import load as gaudi
from mxk_gaudi.layout import permute, relay_bias
from mxk_gaudi.library import MxkError

VARIANTS = variants.read(ops.load())
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def number(code, byte):
    sign = -1.0 if code & 8 else 1.0
    return math.nan if byte == 255 else sign * E2M1[code & 7] * 2.0 ** (byte - 127)


def matrix(codes, scales):
    """Rows of Python numbers."""
    return [
        [number(c[j // 2] >> 4 * (j % 2) & 15, s[j // 32]) for j in range(2 * len(c))]
        for c, s in zip(codes.tolist(), scales.tolist())
    ]


# ---- layouts


@pytest.mark.parametrize("K", [32, 512, 544, 1024])
def test_permute(K):
    x = torch.randn(3, K).bfloat16()
    padded = (K + 511) // 512 * 512
    want = torch.zeros(3, padded, dtype=torch.bfloat16)
    for n in range(K):
        c, rest = divmod(n, 512)
        want[:, 512 * c + 128 * (rest % 4) + rest // 4] = x[:, n]
    assert torch.equal(permute(x), want) and permute(x).is_contiguous()


@pytest.mark.parametrize("interleaved", [True, False])
def test_relay_bias(interleaved):
    E, I = 3, 32
    bias = torch.randn(E, 2 * I)
    got = relay_bias(bias, interleaved)
    assert got.shape == (E, 8, 2 * I // 8) and got.is_contiguous() and got.dtype == torch.float32
    for row in range(2 * I):  # in turn: gate 0, up 0, gate 1, ...
        stored = row if interleaved else row // 2 + I * (row % 2)
        assert torch.equal(got[:, row % 8, row // 8], bias[:, stored])


# ---- the reference


def test_unpack_knows_every_code_and_scale():
    codes = torch.arange(16).repeat_interleave(2)  # each code in the low and in the high nibble
    row = (codes[0::2] | codes[1::2] << 4).to(torch.uint8)
    rows, scales = row.repeat(256, 1), torch.arange(256).to(torch.uint8).unsqueeze(1)
    want = torch.tensor(matrix(rows, scales), dtype=torch.float64).float()
    got = reference.unpack(rows, scales)
    assert torch.equal(got[:255].view(torch.int32), want[:255].view(torch.int32)) and got[255].isnan().all()


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("rms", [1, 30])  # 30: beyond every limit of the activations
def test_reference_is_the_plain_loop(name, rms):
    v = VARIANTS[name]
    T, k, E, K, I, first = 3, 4, 3, 64, 32, 5
    layer = random_layer(v, E, 7, K, I, first)
    generator = torch.Generator().manual_seed(8)
    x = (rms * torch.randn(T, K, generator=generator)).bfloat16()
    ids = torch.tensor([[5, 7, -1, 8], [6, 5, 6, 5], [4, 8, -1, 99]], dtype=torch.int32)  # twice in a row; none local
    weights = torch.rand(T, k, generator=generator)
    want = torch.zeros(T, k, K, dtype=torch.float64)
    for t in range(T):
        for slot in range(k):
            e = int(ids[t, slot]) - first
            if not 0 <= e < E:
                continue
            rows = torch.tensor(matrix(layer.w13[e], layer.s13[e]), dtype=torch.float64) @ x[t].double()
            rows += layer.bias13[e].double() if v.bias else 0
            a = []
            for i in range(I):
                g, u = (rows[2 * i], rows[2 * i + 1]) if v.interleaved else (rows[i], rows[I + i])
                g, u = min(float(g), v.limit), max(min(float(u), v.limit), -v.limit)
                a.append(g / (1 + math.exp(min(-v.alpha * g, 700))) * (u + v.shift))
            down = torch.tensor(matrix(layer.w2[e], layer.s2[e]), dtype=torch.float64)
            want[t, slot] = down @ torch.tensor(a).bfloat16().double() + (layer.bias2[e].double() if v.bias else 0)
    if not v.per_route:
        want = (want * weights.double().unsqueeze(2)).sum(1)
    (got,) = reference.run(layer, [(x, ids, weights)])
    assert got.shape == want.shape and not got[2].any()
    assert reference.accuracy(want, got).rel_l2 < 2e-4  # an activation may round to the other bf16


@pytest.mark.parametrize("name", VARIANTS)
def test_activation_alone(name):
    """Each value to itself: beyond the limits some are too small to show in a sum."""
    v = VARIANTS[name]
    g, u = torch.cartesian_prod(*2 * [torch.arange(-14.0, 15.0, 3.5)]).T
    rows = torch.stack([g, u], 1).flatten() if v.interleaved else torch.cat([g, u])
    got = reference.activate(v, rows.unsqueeze(0)).flatten().tolist()
    for gate, up, h in zip(g.tolist(), u.tolist(), got):
        gate, up = min(gate, v.limit), max(-v.limit, min(up, v.limit))
        assert h == pytest.approx(gate / (1 + math.exp(-v.alpha * gate)) * (up + v.shift), rel=1e-5, abs=1e-30)


def test_accuracy():
    want = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1.0, 0.0]])
    assert reference.accuracy(want, want) == reference.Accuracy(0, 0, 0)
    a = reference.accuracy(want, torch.tensor([[3.0, 4.0], [0.0, 0.0], [1.0, 0.5]]))
    assert (a.rel_l2, a.worst, a.row) == (0.5 / math.sqrt(26), 0.5, 2)
    assert reference.accuracy(want, torch.tensor([[3.0, 4.0], [0.0, 1e-9], [1.0, 0.0]])).worst == math.inf
    broken = reference.accuracy(want, torch.tensor([[3.0, 4.0], [0.0, 0.0], [math.nan, 0.0]]))
    assert math.isnan(broken.worst) and broken.row == 2 and not reference.passes(broken, 1)
    assert reference.accuracy(torch.tensor([[math.nan, 1]]), torch.tensor([[math.nan, 1]])).not_finite == 1
    assert not reference.passes(reference.accuracy(torch.tensor([[math.inf, 1]]), torch.tensor([[1.0, 1]])), 1)


def test_gate():
    assert reference.gate(torch.randn(64, 1024, generator=torch.Generator().manual_seed(1))) == reference.GATE
    unlucky = torch.full((1, 32), 1 + 2**-8 + 2**-20)  # as far from a bf16 as can be
    assert reference.gate(unlucky) == pytest.approx(1.02 * 2**-8, rel=0.02)
    assert not reference.passes(reference.Accuracy(1e-3, 6e-3, 0), reference.GATE)  # one row alone


# ---- layers and calls


@pytest.mark.parametrize("name", VARIANTS)
def test_layer_through_the_ops(name):
    v = VARIANTS[name]
    p = problem.make(v, 4, 3, problem.emulation_shape(v))
    for routing in problem.ROUTINGS:
        batch = p.batch(3, routing)
        (want,) = reference.run(p.layer, [batch.tensors])
        kernel, stock = p.layer.kernel(*batch.tensors), p.layer.stock(*batch.tensors)
        assert kernel.shape == stock.shape == want.shape and kernel.dtype == torch.bfloat16
        assert reference.passes(reference.accuracy(want, kernel), reference.gate(want))
        assert 2e-3 < reference.accuracy(want, stock).rel_l2 < 1e-2  # another method: it rounds between the steps
    assert "MXK_BACKEND" not in os.environ


def test_layers_are_checked():
    v = VARIANTS["glm"]
    good = random_layer(v, 2, 1, 512, 512)
    tensors = [good.w13, good.s13, good.w2, good.s2]
    for i, (bad, text) in enumerate([
        (good.w13[:, 1:], "w13 is [2, 1023, 256]"), (good.s13.int(), "s13 is torch.int32"),
        (good.w2[0], "w2 [512, 256] must be"), (good.s2[:1], "s2 is [1, 512, 16], w13 and w2 make it [2, 512, 16]"),
    ]):
        with pytest.raises(MxkError, match=text.replace("[", r"\[").replace("]", r"\]")):
            Layer(v, *tensors[:i], bad, *tensors[i + 1 :])
    with pytest.raises(MxkError, match="variant 'glm' takes none"):
        Layer(v, *tensors, bias2=torch.zeros(2, 512))


def test_a_seed_makes_one_problem():
    v = VARIANTS["gptoss"]
    a, b, c = (problem.make(v, 3, seed, (64, 32, 3, 9)) for seed in (1, 1, 2))
    assert torch.equal(a.layer.w13, b.layer.w13) and torch.equal(a.layer.bias2, b.layer.bias2)
    assert not torch.equal(a.layer.w13, c.layer.w13)
    assert set(a.layer.s13.unique().tolist()) == {118, 119, 120, 121} and a.layer.w13.unique().numel() == 256
    assert a.layer.first_expert == 3 and a.total == 9
    same = [torch.equal(x, y) for x, y in zip(a.batch(4, "hot").tensors, b.batch(4, "hot").tensors)]
    assert all(same) and not torch.equal(a.batch(4, "hot").x, a.batch(4, "hot", stream=1).x)


def test_routings():
    v = VARIANTS["glm"]
    p = problem.make(v, 10, 1, (64, 32, 10, 24))
    local = set(range(10, 20))
    rows = {routing: p.batch(32, routing).ids.tolist() for routing in problem.ROUTINGS}
    assert all(len(set(row)) == p.k for routing in rows for row in rows[routing])
    assert {i for row in rows["random"] for i in row} == set(range(24))
    assert {i for row in rows["local"] for i in row} == local
    shared = set.intersection(*(set(row) for row in rows["hot"]))
    assert len(shared) == 1 and len({row.index(*shared) for row in rows["hot"]}) > 1
    batch = p.batch(32, "random")
    assert batch.routes == sum(i in local for row in rows["random"] for i in row) > 0
    assert batch.experts == sorted({i - 10 for row in rows["random"] for i in row if i in local})
    assert torch.equal(batch.weights, batch.weights.bfloat16().float())
    assert (batch.weights.sum(1) - 1).abs().max() < 0.02
    few = problem.make(v, 3, 1, (64, 32, 3, 24)).batch(2, "hot")
    assert (few.ids == -1).sum() == 2 * 5 and few.routes == 6


def test_default_tokens():
    assert problem.default_tokens(VARIANTS["gptoss"]) == [1, 2, 4, 8, 16, 32]
    assert problem.default_tokens(VARIANTS["kimi"]) == [1, 2, 4, 8, 16]


# ---- the loader of a card's build


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Files of the names of a build, and an environment of which nothing is left."""
    for name in ("libmxk_tpc.so", "libmxk_op_lazy.so", "libtpc_kernels.so"):
        (tmp_path / name).write_bytes(f"mxk op library for torch {torch.__version__}, and nothing else".encode())
    digest = hashlib.sha256((tmp_path / "libmxk_tpc.so").read_bytes()).hexdigest()
    (tmp_path / "MANIFEST").write_text(json.dumps({"variant": "glm", "files": {"libmxk_tpc.so": digest}}))
    for name in ("GC_KERNEL_PATH", "MXK_STOCK_TPC_LIB", "PT_HPU_RECIPE_CACHE_CONFIG", "PT_HPU_LAZY_ACC_PAR_MODE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    monkeypatch.setitem(sys.modules, "habana_frameworks", None)  # as where there is none
    return tmp_path


def test_a_build_is_checked_before_anything_is_loaded(build, monkeypatch):
    with pytest.raises(MxkError, match="was built for variant glm, kimi is asked for; nothing is loaded"):
        gaudi.load(build, "kimi")
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "0")
    with pytest.raises(MxkError, match="holds no libmxk_op_pt2.so; libmxk_op_pt2.so is made with --pt2"):
        gaudi.load(build, "glm")
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    (build / "MANIFEST").write_text("{}")
    with pytest.raises(MxkError, match="does not say which variant"):
        gaudi.load(build, "glm")
    (build / "libmxk_tpc.so").unlink()
    with pytest.raises(MxkError, match="holds no libmxk_tpc.so"):
        gaudi.load(build, "glm")
    assert "GC_KERNEL_PATH" not in os.environ and "PT_HPU_LAZY_ACC_PAR_MODE" not in os.environ


def test_the_kernel_library_is_one_file(build, monkeypatch):
    stock = str(build / "libtpc_kernels.so")
    for other in (f"{stock}:{build / 'libmxk_tpc.so'}", str(build / "MANIFEST"), "/nowhere/libother.so"):
        monkeypatch.setenv("GC_KERNEL_PATH", other)
        with pytest.raises(MxkError, match="GC_KERNEL_PATH names"):
            gaudi.load(build, "glm")
        assert os.environ["GC_KERNEL_PATH"] == other
    for other in ("libtpc_kernels.so", "/nowhere/libtpc_kernels.so", f"{build / 'libmxk_tpc.so'}:{stock}"):
        monkeypatch.setenv("GC_KERNEL_PATH", other)
        with pytest.raises(MxkError, match="one file that is there"):
            gaudi.load(build, "glm")
    monkeypatch.setenv("GC_KERNEL_PATH", stock)
    monkeypatch.setenv("PT_HPU_RECIPE_CACHE_CONFIG", "/cache/,false,1024")
    for _ in range(2):  # the second time it finds its own settings
        changes = gaudi._changes(build / "libmxk_tpc.so")
        os.environ.update(changes)
        assert os.environ["GC_KERNEL_PATH"] == str(build / "libmxk_tpc.so")
        assert os.environ["MXK_STOCK_TPC_LIB"] == stock and os.environ["PT_HPU_LAZY_ACC_PAR_MODE"] == "0"
        path, rest = os.environ["PT_HPU_RECIPE_CACHE_CONFIG"].split(",", 1)
        assert path.startswith("/cache_mxk-") and path.count("_mxk-") == 1 and rest == "false,1024"


def test_a_kernel_library_that_the_manifest_does_not_know(build):
    (build / "libmxk_tpc.so").write_bytes(b"another one")
    with pytest.raises(MxkError, match="libmxk_tpc.so is not the file that MANIFEST names.*nothing is loaded"):
        gaudi.load(build, "glm")


def test_a_load_that_fails_leaves_the_environment(build, monkeypatch):
    monkeypatch.setenv("PT_HPU_RECIPE_CACHE_CONFIG", "/cache/,false,1024")
    before = dict(os.environ)
    with pytest.raises(MxkError, match="habana_frameworks"):
        gaudi.load(build, "glm")
    assert dict(os.environ) == before
    (build / "libmxk_op_lazy.so").write_bytes(b"mxk op library for torch 1.0")
    with pytest.raises(MxkError, match="was built for torch 1.0.*nothing is loaded"):
        gaudi.load(build, "glm")
    assert dict(os.environ) == before


def test_a_device_that_is_open_is_refused(build, monkeypatch):
    hpu = types.SimpleNamespace(is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "habana_frameworks.torch.hpu", hpu)
    with pytest.raises(MxkError, match="the device is open already"):
        gaudi.load(build, "glm")
    assert "GC_KERNEL_PATH" not in os.environ


def test_a_second_library_is_refused_before_it_is_loaded(build, monkeypatch):
    monkeypatch.setattr(gaudi, "_loaded", build / "other.so")
    with pytest.raises(MxkError, match="already has .*other.so, and there may be only one; it is not loaded"):
        gaudi.load(build, "glm")


def test_cpu_library(tmp_path, monkeypatch):
    monkeypatch.setenv("MXK_OP_LIBRARY", str(ops.load()))
    assert devices.cpu_library() == devices.cpu_library(ops.load().parent) == ops.load()
    with pytest.raises(MxkError, match="libmxk_op_cpu.so: there is no such file; nothing is run"):
        devices.cpu_library(tmp_path)
    (tmp_path / "libmxk_op_cpu.so").write_bytes(b"another one")
    with pytest.raises(MxkError, match="is loaded already"):
        devices.cpu_library(tmp_path)


def test_random_seeds_are_not_the_global_ones():
    before = torch.get_rng_state(), random.getstate()
    problem.make(VARIANTS["glm"], 2, 1, (64, 32, 2, 4)).batch(2, "hot")
    assert torch.equal(before[0], torch.get_rng_state()) and before[1] == random.getstate()
