# SPDX-License-Identifier: Apache-2.0
"""What ports use, for each family, with real numbers on the CPU."""

import json
import math
import os

import hook_fakes as fakes
import pytest
import torch
from hook_fakes import error

from mxk import reference
from mxk_gaudi import env, load
from mxk_gaudi.experts import Experts
from mxk_gaudi.family import SWITCHES, Family

MODELS = {"glm": dict(rows="stacked", limit=math.inf), "kimi": dict(rows="stacked", limit=math.inf),
          "muse": dict(rows="stacked", limit=math.inf), "dsv41": dict(rows="interleaved", limit=10.0),
          "mimo": dict(rows="stacked", limit=math.inf)}
SUMS = [name for name in MODELS if name != "muse"]


@pytest.fixture
def log(monkeypatch):
    return fakes.Log(monkeypatch)


@pytest.fixture
def turned_on(monkeypatch, log):
    """Makes the Family of a name, with its kernels on."""

    def make(name, **more):
        fakes.turn_on(monkeypatch, SWITCHES[name])
        monkeypatch.setattr(load, "warmup", lambda variant: warmed.append(variant.name))
        family = Family(SWITCHES[name], **{**MODELS[name], **more})
        family.warmed = warmed
        return family

    warmed = []
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    return make


def problem(name, **more):
    return fakes.Problem(SWITCHES[name].variant, **{"E": 4, "rank": 1, "ranks": 2, "top_k": 3, **more})


def bind(family, problem, stock=None, **more):
    E, first = problem.weights.E, problem.weights.first_expert
    return family.bind(problem.layer, stock or never, first, first + E - 1, problem.total, **more)


def never(*_):
    raise AssertionError("the stock op was called")


def rms_norm(d):
    return (d.float() * (d.float().square().mean(-1, keepdim=True) + 1e-6).rsqrt()).to(d.dtype)


# ---- through a method class ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["glm", "kimi", "mimo"])
def test_a_method_class(turned_on, log, name):
    family, p, other = turned_on(name), problem(name), problem(name)
    for cls, layer in ((fakes.method_class(), p.layer), (fakes.method_class(), other.layer)):
        if layer is p.layer:
            family.install(cls)
        method = cls(model_type="of the port")
        method.process_weights_after_loading(layer)
        method.process_weights_after_loading(layer)
    for T in (1, 5, 16, 17):
        x, logits = p.x(T), p.logits(T)
        y, expected = (method.apply_monolithic(q.layer, x, logits) for q in (p, other))
        if T > 16:
            assert torch.equal(y, expected) and len(p.layer.moe_op.calls) == 1
        else:
            want = p.reference(*p.call(T, model_type=""))
            assert error(y, want) <= reference.gate(want) and not p.layer.moe_op.calls
            assert 0 < error(y, expected.float()) <= error(expected, want) + 2e-3
    variant = fakes.VARIANTS[SWITCHES[name].variant]
    label, K, I = SWITCHES[name].label, p.weights.K, p.weights.I  # noqa: E741
    assert log.taken() == [f"{label} installed: mxk_tpc {variant.name}-v8-{fakes.VERSION}",
                           f"{label} enabled (E_local=4 K={K} I={I}, <= 16 tokens, experts 4 to 7 of 8)"]
    assert family.warmed == (["glm"] if name == "mimo" else [])


def test_another_activation(turned_on, log):
    family, p = turned_on("glm"), problem("glm")
    cls = fakes.method_class()
    family.install(cls)
    method = cls("glm_moe_dsa")
    method.process_weights_after_loading(p.layer)
    log.taken()
    for T in (3, 3, 17):
        p.layer.moe_op(*p.call(T), activation="gelu")
    assert log.taken() == ["GLM MXK: the activation is gelu; the kernels of glm compute silu; the stock op is used"]
    assert [c[4] for c in p.layer.moe_op.calls] == ["gelu"] * 3
    p.layer.activation = type("Enum", (), {"value": "silu"})()
    p.layer.moe_op(*p.call(3), True, p.layer.activation)
    assert len(p.layer.moe_op.calls) == 3


def test_biases_and_the_limits_of_an_op(turned_on, log):
    family, p = turned_on("glm"), fakes.Problem("gptoss", K=512, I=512)
    cls = fakes.method_class()
    family.install(cls)
    cls("x", alpha=1.0, limit=math.inf).process_weights_after_loading(p.layer)
    assert log.taken()[-1] == ("GLM MXK: the layer has b13; the kernels of glm add no biases; the stock op is used")
    cls("x").process_weights_after_loading(p.layer)
    assert "the activation has limit 7.0; the kernels of glm compute inf" in log.taken()[-1]


# ---- layer by layer --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("rms", [1, 4])
def test_bound_layers(turned_on, name, rms):
    p = problem(name)
    experts = bind(turned_on(name), p)
    for T in (1, 7, 16):
        x, ids, weights = p.call(T, rms * 4, model_type="")
        want = p.reference(x, ids, weights)
        y = experts(x, ids, weights)
        assert error(y, want) <= reference.gate(want)
        assert torch.equal(experts(x.t().contiguous().t(), ids.long(), weights.float()), y)
    with pytest.raises(AssertionError, match="the stock op was called"):
        experts(*p.call(17))


@pytest.mark.parametrize("ranks", [1, 2])
def test_muse(turned_on, ranks):
    """Two ranks with half of I each, whose rows are added before the norm, are as one with all of it."""
    whole = problem("muse", I=1024)
    x, ids, weights = whole.call(4, model_type="")
    ids[0] = 0  # all of another rank
    want = (rms_norm(whole.reference(x, ids, weights)) * weights.float().unsqueeze(-1)).sum(1)
    parts = [problem("muse", I=1024 // ranks) for _ in range(ranks)]
    for r, part in enumerate(parts):
        w, n = whole.weights, 1024 // ranks
        for name in ("w13", "s13"):
            halves = getattr(w, name).unflatten(1, (2, -1))[:, :, n * r:n * (r + 1)]
            setattr(part.weights, name, halves.flatten(1, 2).contiguous())
        part.weights.w2 = w.w2[:, :, n // 2 * r:n // 2 * (r + 1)].contiguous()
        part.weights.s2 = w.s2[:, :, n // 32 * r:n // 32 * (r + 1)].contiguous()
        part.layer = fakes.Layer(part.weights, 1, 2)
    family, rows = turned_on("muse"), []
    for part in parts:  # what each rank has to give
        bind(family, part, norm=lambda d: rows.append(d) or d)(x, ids, weights)
    assert all(d.shape == (4, 3, whole.weights.K) for d in rows)
    reduced = []
    experts = bind(family, parts[0], norm=lambda d: reduced.append(d) or rms_norm(d),
                   all_reduce=None if ranks == 1 else lambda d: sum(r.float() for r in rows).bfloat16())
    y = experts(x, ids, weights)
    assert y.dtype == torch.bfloat16 and error(y, want) <= (3e-3 if ranks == 1 else 5e-3)
    assert torch.equal(y[0], torch.zeros_like(y[0])) and len(reduced) == 1
    with pytest.raises(AssertionError, match="the stock op was called"):
        experts(*whole.call(5))


def test_norms_where_they_belong(turned_on, log):
    for name, more, words in (("muse", {}, "give a row for each route, and no norm of single experts was given"),
                              ("glm", {"norm": rms_norm}, "give a row for each token, and a norm of single experts")):
        assert bind(turned_on(name), problem(name), **more) is never
        assert words in log.taken()[-1]


def test_ranges(turned_on, log):
    p, family = problem("glm"), turned_on("glm")
    for (first, last, total), words in (((3, 5, 9), "rank 1 of 3 has experts 3 to 6 of 9"),
                                        ((4, 7, 9), "9 experts on 2 ranks"),
                                        ((2, 5, 8), "rank 0 of 2 has experts 2 to 5 of 8"),
                                        ((0, 7, 16), "rank 0 of 2 has experts 0 to 3 of 16"),
                                        ((4, 8, 8), "rank 0 of 1 has experts 4 to 7 of 8"),
                                        ((4, 3, 8), "rank 4 of 8 has experts 4 to 7 of 8")):
        assert family.bind(p.layer, never, first, last, total) is never
        said = log.taken()[-1]
        assert words in said, said
    call = p.call(3, model_type="")
    y = family.bind(p.layer, never, 4, 7, 12)(*call)  # any number of ranks
    assert error(y, p.reference(*call)) <= 2e-3


def test_a_clamp_that_the_kernels_do_not_have(turned_on, log):
    assert bind(turned_on("glm", limit=10.0), problem("glm")) is never
    assert "the activation has limit 10.0; the kernels of glm compute inf" in log.taken()[-1]
    assert bind(turned_on("dsv41", limit=math.inf), problem("dsv41")) is never


def test_off(monkeypatch, log):
    monkeypatch.setattr(load, "load", never)
    monkeypatch.setattr(env, "_results", {})
    family, p = Family(SWITCHES["kimi"], **MODELS["kimi"]), problem("kimi")
    cls = fakes.method_class()
    before = dict(vars(cls))
    family.install(cls)
    assert dict(vars(cls)) == before and bind(family, p) is never and log.taken() == []


# ---- rows in another order -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SUMS)
def test_reorder(turned_on, log, name):
    p = problem(name)
    other = {"stacked": "interleaved", "interleaved": "stacked"}[MODELS[name]["rows"]]
    for tensor in (p.layer.w13_weight, p.layer.w13_weight_scale):
        shape = (2, -1) if other == "interleaved" else (-1, 2)
        tensor.data = tensor.data.unflatten(1, shape).transpose(1, 2).flatten(1, 2).contiguous()
    assert bind(turned_on(name, rows=other), p) is never
    assert f"gate and up rows are {other}; the kernels of" in log.taken()[-1]
    family = turned_on(name, rows=other, reorder=True)
    experts = bind(family, p)
    call = p.call(9, model_type="")
    assert error(experts(*call), p.reference(*call)) <= 2e-3
    megabytes = (p.weights.w13.numel() + p.weights.s13.numel()) / 2**20
    said = [line for line in log.taken() if f" {megabytes:.1f} MB more for each layer" in line]
    assert len(said) == 1
    assert torch.equal(p.layer.mxk_w13, p.weights.w13) and torch.equal(p.layer.mxk_s13, p.weights.s13)
    assert not any(name.startswith("mxk") for name in p.layer.state_dict())


def test_reorder_with_biases():
    """No family needs it, but Experts knows how."""
    p = fakes.Problem()
    w = p.layer
    for tensor in (w.w13_weight, w.w13_weight_scale, w.w13_bias):
        tensor.data = tensor.data.unflatten(1, (-1, 2)).transpose(1, 2).flatten(1, 2).contiguous()
    call = p.call(9)
    y = Experts(fakes.VARIANTS["gptoss"], w, 0, "stacked")(*call)
    assert error(y, p.reference(*call)) <= 2e-3


def test_reorder_of_rows_that_are_in_order(turned_on, log):
    p = problem("glm")
    experts = bind(turned_on("glm", reorder=True), p)
    call = p.call(9, model_type="")
    assert error(experts(*call), p.reference(*call)) <= 2e-3
    assert not dict(p.layer.named_buffers()) and "MB" not in "".join(log.taken())


# ---- prefill ---------------------------------------------------------------------------------------------------------

PREFILL = "GLM_MXK_PREFILL"


@pytest.mark.parametrize("flag", [None, "0", "1"])
def test_prefill(turned_on, monkeypatch, log, flag):
    monkeypatch.delenv(PREFILL, raising=False)
    if flag:
        monkeypatch.setenv(PREFILL, flag)
    family, p = turned_on("glm", prefill_flag=PREFILL), problem("glm")
    cls = fakes.method_class()
    family.install(cls)
    cls("glm").process_weights_after_loading(p.layer)
    op, seen, stock = p.layer.moe_op, [], torch.ops.hpu.mixture_of_experts
    fused = stock.fused_weights
    monkeypatch.setattr(stock, "fused_weights", lambda *a, **k: seen.append(a) or fused(*a, **k))
    for T in (16, 17, 300):
        call = p.call(T, model_type="")
        y = op(*call)
        want = p.reference(*call)
        if T > 16:
            assert torch.equal(y, op.forward.stock(*call)), "the same products and roundings"
            op.calls.pop()
        assert error(y, want) <= (2e-3 if T == 16 else 8e-3)
    assert len(op.calls) == (0 if flag == "1" else 2) and len(seen) == (2 if flag == "1" else 0)
    assert not op(torch.zeros(0, p.weights.K).bfloat16(), call[1][:0], call[2][:0]).numel()
    assert len(log.taken()) == 2


def test_prefill_that_fails(turned_on, monkeypatch, log):
    monkeypatch.setenv(PREFILL, "1")
    p, got = problem("glm"), []
    experts = bind(turned_on("glm", prefill_flag=PREFILL), p, stock=lambda *call: got.append(call))
    log.taken()
    monkeypatch.setattr(torch.ops.hpu.mixture_of_experts, "fused_weights", lambda *a, **k: 1 / 0)
    for _ in range(2):
        experts(*p.call(20))
    assert len(got) == 2
    assert log.taken() == ["GLM MXK: a call failed: ZeroDivisionError: division by zero; the stock op is used"]
    call = p.call(3, model_type="")
    assert error(experts(*call), p.reference(*call)) <= 2e-3 and len(got) == 2, "calls of few tokens go on"


def test_prefill_without_a_kernel(turned_on, monkeypatch, log):
    monkeypatch.setenv("KIMI_MXK_PREFILL", "1")
    family, p, got = turned_on("kimi", prefill_flag="KIMI_MXK_PREFILL"), problem("kimi"), []
    experts = bind(family, p, stock=lambda *call: got.append(call))
    assert "KIMI_MXK_PREFILL=1, and kimi has no kernel to unpack for prefill" in log.taken()[1]
    experts(*p.call(20))
    assert len(got) == 1


# ---- torch.compile ---------------------------------------------------------------------------------------------------


def test_compiled(turned_on, monkeypatch):
    family, p = turned_on("mimo"), problem("mimo")
    cls = fakes.method_class()
    family.install(cls)
    method = cls("mimo")
    method.process_weights_after_loading(p.layer)
    monkeypatch.delattr(torch, "hpu")  # torch.compile would take it for the real one

    def model(x, logits):
        return method.apply_monolithic(p.layer, x + 0, logits) * 2

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=False)
    for T in (1, 16, 1, 17, 18):
        x, logits = p.x(T), p.logits(T)
        assert torch.equal(compiled(x, logits), model(x, logits)), T
    assert [len(c[0]) for c in p.layer.moe_op.calls] == [17, 17, 18, 18]


def test_declined_while_compiling(turned_on, monkeypatch, log):
    family, p = turned_on("mimo"), problem("mimo", E=32, top_k=20)
    experts = bind(family, p, stock=lambda x, ids, weights: x + 1)
    monkeypatch.delattr(torch, "hpu")
    log.taken()
    compiled = torch.compile(lambda *call: experts(*call), backend="aot_eager", fullgraph=True, dynamic=False)
    call = p.call(8, model_type="")
    for _ in range(2):
        assert torch.equal(compiled(*call), call[0] + 1)
    assert log.taken() == ["MiMo MXK: 160 routes (8 tokens, 20 each); the kernels take 128; the stock op is used"]


# ---- switches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SWITCHES)
def test_switches(name):
    switch = SWITCHES[name]
    lib = os.path.normpath(switch.default_lib)
    files = {f"{lib}/{file}" for file in (env.KERNELS, switch.op_library, "MANIFEST")} | {env.STOCK_DEFAULT}
    manifest = {"variant": switch.variant, "files": {env.KERNELS: "0" * 64}}
    variables = {switch.flag: "1", "PT_HPU_LAZY_MODE": str(int(switch.lazy)), PREFILL: "1"}
    result = env.early_env(variables, exists=files.__contains__, modules=(), manifest=lambda folder: manifest,
                           switch=switch)
    assert result.on and not result.lines and result.max_tokens == (4 if name == "muse" else 16)
    assert result.lib == ("/opt/gaudi-cookbook-kimi/mxk" if name == "kimi" else "/opt/mxfp4-moe/lib")
    elsewhere = env.early_env({**variables, switch.flag + "_LIB": "/else"}, exists=files.__contains__, modules=(),
                              manifest=lambda folder: manifest, switch=switch)
    assert "/else has no" in elsewhere.disabled and f"{switch.flag}_LIB says" in elsewhere.disabled
    limits = fakes.VARIANTS[switch.variant].limits
    assert switch.tokens <= limits.tokens and json.dumps(switch.names)
