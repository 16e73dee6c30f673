# SPDX-License-Identifier: Apache-2.0
"""mxk.checkpoint against the mxk command, which reads the same files, and against tensors read by hand; and what it
refuses."""

import json
import os
import re
import subprocess

import pytest
import torch
from safetensors.torch import load_file, save_file

from mxk import checkpoint, ops, problem, reference
from mxk_gaudi import library as variants
from mxk_gaudi.library import MxkError

VARIANTS = variants.read(ops.load())
CLI = os.environ["MXK_CLI"]
K, I, E = 512, 512, 4


def mxk(*arguments):
    return subprocess.run([CLI, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A checkpoint of two layers for each variant, as the mxk command writes it."""
    folders = {}
    for name in VARIANTS:
        folders[name] = tmp_path_factory.mktemp("ckpt") / name
        mxk("make-checkpoint", folders[name], "--variant", name, "--layers", 2, "--experts", E, "--hidden", K,
            "--intermediate", I)
    return folders


@pytest.mark.parametrize("name", VARIANTS)
def test_the_command_computes_the_same(name, made, tmp_path):
    """Layer 1, whose experts are read by both and computed by C++ and by the reference here."""
    v = VARIANTS[name]
    found = checkpoint.load(made[name], v, 1, E)
    assert (found.index, found.total, found.layer.first_expert) == (1, 4, 0)
    p = problem.Problem(found.layer, E, 4, 1, "test")
    batch = p.batch(5, "local")
    save_file({"x": batch.x, "topk_ids": batch.ids, "topk_weights": batch.weights}, tmp_path / "in.safetensors")
    mxk("run", "--variant", name, "--layer", made[name], "--layer-index", 1, "--input", tmp_path / "in.safetensors",
        "--output", tmp_path / "out.safetensors", "--out-dtype", "f32", "--backend", "ref")
    (want,) = reference.run(found.layer, [batch.tensors])
    assert reference.accuracy(want, load_file(tmp_path / "out.safetensors")["y"]).rel_l2 < 2e-4


def tensors_of(folder):
    files = sorted(folder.glob("*.safetensors"))
    return {name: t for file in files for name, t in load_file(file).items()}


def test_a_rank_that_is_not_the_first(made):
    """Two of four experts: those of the second rank, under their own numbers."""
    found = checkpoint.load(made["dsv41"], VARIANTS["dsv41"], None, 2)
    tensors, layer = tensors_of(made["dsv41"]), found.layer
    assert (found.index, layer.first_expert, layer.E, layer.K, layer.I) == (0, 2, 2, K, I)
    for e in (2, 3):
        prefix = f"layers.0.ffn.experts.{e}."
        for part, (mine, suffix) in enumerate([(layer.w13, "weight"), (layer.s13, "scale")]):
            assert torch.equal(mine[e - 2, 0::2], tensors[f"{prefix}w1.{suffix}"].view(torch.uint8))
            assert torch.equal(mine[e - 2, 1::2], tensors[f"{prefix}w3.{suffix}"].view(torch.uint8))
        assert torch.equal(layer.w2[e - 2], tensors[f"{prefix}w2.weight"].view(torch.uint8))
    stacked = checkpoint.load(made["glm"], VARIANTS["glm"], 0, E).layer
    tensors = tensors_of(made["glm"])
    gate, up = (tensors[f"model.layers.0.mlp.experts.3.{n}_proj.weight"] for n in ("gate", "up"))
    assert torch.equal(stacked.w13[3], torch.cat([gate, up]))


def test_gptoss_biases_and_router(made):
    found = checkpoint.load(made["gptoss"], VARIANTS["gptoss"], 1, 2)
    tensors = tensors_of(made["gptoss"])
    prefix = "model.layers.1.mlp."
    assert torch.equal(found.layer.bias13, tensors[prefix + "experts.gate_up_proj_bias"][2:].float())
    assert torch.equal(found.layer.w2, tensors[prefix + "experts.down_proj_blocks"][2:].flatten(2))
    p = problem.make(VARIANTS["gptoss"], 2, 1, path=made["gptoss"], layer=1)
    batch = p.batch(3, "router")
    logits = batch.x.float() @ tensors[prefix + "router.weight"].float().T + tensors[prefix + "router.bias"].float()
    assert torch.equal(batch.ids.long().sort(1).values, torch.arange(4).expand(3, 4))  # top-4 of 4
    want = logits.softmax(1).gather(1, batch.ids.long())
    assert torch.equal(batch.weights, want.bfloat16().float()) or (batch.weights - want).abs().max() < 2e-3
    assert batch.routes == 3 * 2
    assert checkpoint.load(made["glm"], VARIANTS["glm"]).router == ()


def fused(prefix="", shape=(2, K, I), **changes):
    e, k, i = shape
    generator = torch.Generator().manual_seed(5)

    def some(*sizes):
        return torch.randint(0, 256, sizes, generator=generator, dtype=torch.uint8)

    tensors = {"w13_weight": some(e, 2 * i, k // 2), "w13_weight_scale": some(e, 2 * i, k // 32)}
    tensors |= {"w2_weight": some(e, k, i // 2), "w2_weight_scale": some(e, k, i // 32)} | changes
    return {prefix + name: t for name, t in tensors.items() if t is not None}


def test_fused_layout(tmp_path):
    prefixes = [f"model.layers.{n}.mlp.experts.routed_experts." for n in (2, 10)]
    for n, prefix in enumerate(prefixes):
        scale = fused()["w13_weight_scale"].view(torch.float8_e8m0fnu)
        save_file(fused(prefix, w2_weight=fused()["w2_weight"].view(2, K, I // 32, 16), w13_weight_scale=scale,
                        w2_bias=torch.full((2, K), n + 1.5).half()), tmp_path / f"{n}.safetensors")
    found = checkpoint.load(tmp_path, VARIANTS["gptoss"], 10, None)
    layer, want = found.layer, fused()
    assert (layer.E, layer.first_expert) == (2, 0) and layer.bias13 is None and (layer.bias2 == 2.5).all()
    for mine, name in ((layer.w13, "w13_weight"), (layer.s13, "w13_weight_scale"), (layer.w2, "w2_weight")):
        assert torch.equal(mine, want[name])
    assert checkpoint.load(tmp_path, VARIANTS["gptoss"]).index == 2
    # One file, names without a number.
    save_file(fused("moe-"), tmp_path / "single.safetensors")
    assert checkpoint.load(tmp_path / "single.safetensors", VARIANTS["glm"]).index == 0


def test_a_slice_where_the_intermediate_size_is_too_large(tmp_path):
    v = VARIANTS["muse"]
    n, whole = v.serving.I, 4 * v.serving.I
    save_file(fused(shape=(1, 512, whole)), tmp_path / "a.safetensors")
    layer, want = checkpoint.load(tmp_path, v).layer, fused(shape=(1, 512, whole))
    assert layer.I == n and layer.w2.is_contiguous()
    assert torch.equal(layer.w13[0], torch.cat([want["w13_weight"][0, :n], want["w13_weight"][0, whole : whole + n]]))
    assert torch.equal(layer.w2, want["w2_weight"][..., : n // 2])
    assert torch.equal(layer.s2, want["w2_weight_scale"][..., : n // 32])


def refused(path, text, variant="glm", layer=None, experts=None):
    with pytest.raises(MxkError, match=re.escape(text)):
        checkpoint.load(path, VARIANTS[variant], layer, experts)


def test_refusals(made, tmp_path):
    refused(made["glm"], "no layer 7 among its layers 0 to 1; nothing is read", layer=7)
    refused(made["glm"], "5 experts are asked for, it has 4", experts=5)
    refused(made["gptoss"], "variant 'glm' reads all gates first")
    refused(tmp_path, "no safetensors file with a tensor in it")
    refused(tmp_path / "none", "nothing is read")
    (tmp_path / "x.safetensors").write_bytes(b"rubbish!")
    refused(tmp_path, "nothing is read")


@pytest.mark.parametrize(("changes", "text"), [
    ({"w2_weight_scale": None}, "tensor 'w2_weight_scale': is missing"),
    ({"w13_weight": torch.zeros(2, 2 * I, 255, dtype=torch.uint8)}, f"[2, {2 * I}, 255] where [2, {2 * I}, 256]"),
    ({"w2_weight_scale": torch.zeros(2, K, I // 16, dtype=torch.float8_e4m3fn)}, "scales of NVFP4"),
    ({"w13_weight_scale": torch.zeros(2, 2 * I, K // 32)}, "is F32 where U8 or F8_E8M0 is needed"),
    ({"w13_bias": torch.zeros(2, 2 * I)}, "variant 'glm' takes none"),
    ({"w13_bias": torch.zeros(2, I)}, f"[2, {I}] where [2, {2 * I}] is needed"),
    ({"w13_weight": torch.zeros(2, 2 * I, K // 2), "w2_weight": torch.zeros(2, K, I // 2)}, "no MXFP4 expert layer"),
])
def test_refused_tensors(changes, text, tmp_path):
    save_file(fused(**changes), tmp_path / "a.safetensors")
    refused(tmp_path, text)


def test_refused_expert_tensors(tmp_path):
    def one(**more):
        tensors = {}
        for e in range(2):
            for projection, rows, columns in (("gate", 64, 32), ("up", 64, 32), ("down", 32, 64)):
                name = f"layers.0.experts.{e}.{projection}_proj."
                tensors[name + "weight"] = torch.zeros(rows, columns // 2, dtype=torch.uint8)
                tensors[name + "weight_scale"] = torch.zeros(rows, columns // 32, dtype=torch.uint8)
        save_file({name: t for name, t in (tensors | more).items() if t is not None}, tmp_path / "a.safetensors")

    one()
    assert checkpoint.load(tmp_path, VARIANTS["glm"]).layer.E == 2
    one(**{"layers.0.experts.1.up_proj.weight_scale": None})
    refused(tmp_path, "tensor 'layers.0.experts.1.<up_proj or w3>.<weight_scale or scale>': is missing")
    one(**{"layers.0.experts.1.up_proj.weight_scale_2": torch.zeros(1)})
    refused(tmp_path, "weights with such a tensor are not plain MXFP4")
    one(**{"layers.0.experts.1.w3.weight": torch.zeros(64, 16, dtype=torch.uint8)})
    refused(tmp_path, "name the same weights")
    one(**{"layers.0.w13_weight": torch.zeros(1, 64, 16, dtype=torch.uint8)})
    refused(tmp_path, "more than one set of tensors is layer 0")


def test_a_wrong_index(tmp_path):
    save_file(fused(), tmp_path / "a.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys([*fused(), "lost"], "a.safetensors")}))
    refused(tmp_path, "tensor 'lost' is not in 'a.safetensors'")
    index.write_text(json.dumps({"weight_map": {"w": "../a.safetensors"}}))
    refused(tmp_path, "names a file outside its directory")
    index.write_text("[]")
    refused(tmp_path, "nothing is read")
