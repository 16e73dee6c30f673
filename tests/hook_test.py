# SPDX-License-Identifier: Apache-2.0
"""The hook around a method class like vllm-gaudi's, with real numbers on the CPU: hook on against hook off, and both
against fp32."""

import dataclasses

import hook_fakes as fakes
import pytest
import torch
from hook_fakes import INSTALLED, error, served

from mxk import reference
from mxk_gaudi import env, hook, layout, load

STOCK = "the stock op is used"


@pytest.fixture
def log(monkeypatch):
    return fakes.Log(monkeypatch)


@pytest.fixture
def on(monkeypatch):
    fakes.turn_on(monkeypatch)


# ---- calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rms", [1, 4])
def test_calls_of_every_size(on, log, rms):
    problem, other = fakes.Problem(), fakes.Problem()
    method, stock = served(problem), served(other, hooked=False)
    for T in range(1, 34):
        x, logits = problem.x(T, rms), problem.logits(T)
        y = method.apply_monolithic(problem.layer, x, logits)
        expected = stock.apply_monolithic(other.layer, x, logits)
        assert len(problem.layer.moe_op.calls) == (T > 32)
        if T > 32:
            assert torch.equal(y, expected)
            continue
        want = problem.reference(*problem.call(T, rms))
        assert error(y, want) <= reference.gate(want) < 2e-3 < error(expected, want), T
        assert error(y, expected.float()) <= error(expected, want) + 2e-3
    if rms == 4:  # the clamps were met, else this says nothing of them
        g = x.float() @ reference.unpack(problem.weights.w13[0], problem.weights.s13[0]).T
        assert (g.abs() > 7).any()
    enabled = "MXFP4 TPC MoE enabled (E_local=8 K=544 I=160, <= 32 tokens, experts 0 to 7 of 8)"
    assert log.taken() == [INSTALLED, enabled]


def test_the_stock_op_gets_the_very_same_arguments(on, log):
    problem = fakes.Problem()
    op = (served(problem), problem.layer.moe_op)[1]
    call = problem.call(33)
    op(*call, False, "gelu")
    op(*call)
    op(hidden_states=call[0], expert_routing_table=call[1], router_weights=call[2], activation="x")
    empty = problem.x(0), torch.zeros(0, 4, dtype=torch.int32), torch.zeros(0, 4, dtype=torch.bfloat16)
    assert op(*empty).shape == (0, problem.weights.K)
    assert all(a is b for a, b in zip([t for c in op.calls for t in c[:3]], [*call, *call, *call, *empty]))
    assert [c[3:] for c in op.calls] == [(False, "gelu"), (True, "silu"), (True, "x"), (True, "silu")]
    assert len(log.taken()) == 2, "a call of many tokens is nothing to log"
    assert op.forward._hook.left_to_stock == 4


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_ids_of_other_ranks_and_padding(on, rank):
    problem, other = (fakes.Problem(rank=rank, ranks=4) for _ in range(2))
    served(problem), served(other, hooked=False)
    x, ids, weights = problem.call(12)
    ids[0], ids[1, 1:], ids[2] = -1, 31, torch.tensor([2**31 - 1, -2**31, 32, -2])
    ids[3] = ids[3, 0]  # an expert may stand twice
    ids[4] = 8 * rank + torch.arange(4)
    y, expected = problem.layer.moe_op(x, ids, weights), other.layer.moe_op(x, ids, weights)
    want = problem.reference(x, ids, weights)
    assert not problem.layer.moe_op.calls
    assert error(y, want) <= 2e-3 and torch.equal(y[[0, 2]], torch.zeros_like(y[:2]))
    assert error(y, expected.float()) <= error(expected, want) + 2e-3
    for others in (ids.long(), ids.t().contiguous().t()):  # views, other types
        assert torch.equal(problem.layer.moe_op(x.t().contiguous().t(), others, weights.float()), y)


def test_ranks_sum_to_the_whole(on):
    whole = fakes.Problem(E=8)
    parts = [fakes.Problem(E=4, rank=rank, ranks=2) for rank in range(2)]
    for rank, part in enumerate(parts):
        half = slice(4 * rank, 4 * rank + 4)
        for name in ("w13", "s13", "w2", "s2", "bias13", "bias2"):
            setattr(part.weights, name, getattr(whole.weights, name)[half].contiguous())
        part.layer = fakes.Layer(part.weights, rank, 2)
    call = whole.call(16)
    total = 0
    for problem in (whole, *parts):
        served(problem)
    for part in parts:
        total = total + part.layer.moe_op(*call).float()
    assert error(total, whole.layer.moe_op(*call).float()) <= 4e-3
    assert error(total, whole.reference(*call)) <= 3e-3


def test_an_intermediate_size_that_is_padded(on):
    """A rank of tensor parallel gpt-oss: rows and columns of zeros, with scale bytes of 0."""
    problem = fakes.Problem(I=192)
    weights = problem.weights
    for name, start in (("w13", 2 * 160), ("s13", 2 * 160), ("bias13", 2 * 160)):
        getattr(weights, name)[:, start:] = 0
    weights.w2[:, :, 160 // 2:], weights.s2[:, :, 160 // 32:] = 0, 0
    problem.layer = fakes.Layer(weights)
    small = fakes.Problem(I=160)
    small.weights.w13, small.weights.s13 = weights.w13[:, :320].contiguous(), weights.s13[:, :320].contiguous()
    small.weights.w2, small.weights.s2 = weights.w2[:, :, :80].contiguous(), weights.s2[:, :, :5].contiguous()
    small.weights.bias13, small.weights.bias2 = weights.bias13[:, :320].contiguous(), weights.bias2
    served(problem)
    call = problem.call(9)
    assert error(problem.layer.moe_op(*call), small.reference(*call)) <= 2e-3


def test_scale_bytes_that_the_kernels_read_otherwise(on, log):
    problems = [fakes.Problem(seed=seed) for seed in range(3)]
    problems[1].layer.w13_weight_scale.data[2, 3, 4] = 255
    problems[1].layer.w2_weight_scale.data[1, :2, 0] = 0
    problems[2].layer.w2_weight_scale.data[:] = 0
    cls = fakes.method_class()
    hook.install(cls)
    for problem in [*problems, fakes.Problem(E=4)]:
        cls().process_weights_after_loading(problem.layer)
    lines = log.taken()
    assert sum(" enabled (" in line for line in lines) == 1, "the first eligible layer"
    said = [line for line in lines if "scale bytes" in line]
    assert len(said) == 1 and said[0].startswith(
        "MXFP4 TPC MoE: model.layers.3.mlp.experts: 2 scale bytes are 0 and 1 are 255; the kernels read 0 as zero")


# ---- weights that change ---------------------------------------------------------------------------------------------


def test_loading_again(on, log):
    problem, new = fakes.Problem(seed=1), fakes.Problem(seed=2)
    method = served(problem)
    first = problem.layer.moe_op
    state = list(problem.layer.state_dict())
    for name, tensor in new.layer.named_parameters():
        getattr(problem.layer, name).data.copy_(tensor)
    method.process_weights_after_loading(problem.layer)
    op = problem.layer.moe_op
    assert op is not first and isinstance(op.forward, hook.Forward) and not isinstance(op.forward.stock, hook.Forward)
    assert [name for name, _ in problem.layer.named_buffers()] == ["mxk_bias13", "mxk_bias2"]
    assert state == list(problem.layer.state_dict()) == [name for name, _ in problem.layer.named_parameters()]
    call = new.call(5)
    assert error(op(*call), new.reference(*call)) <= 2e-3
    assert len(log.taken()) == 2


def test_loading_again_with_load_state_dict(on):
    problem, new = fakes.Problem(seed=1), fakes.Problem(seed=2)
    served(problem)
    addresses = [buffer.data_ptr() for buffer in problem.layer.buffers()]
    problem.layer.load_state_dict(new.layer.state_dict(), strict=True)
    call = new.call(5)
    assert error(problem.layer.moe_op(*call), new.reference(*call)) <= 2e-3
    assert [buffer.data_ptr() for buffer in problem.layer.buffers()] == addresses, "recorded graphs know them"
    assert len(problem.layer._load_state_dict_post_hooks) == 1


def test_a_layer_that_says_less_is_declined(on, log):
    problem = fakes.Problem()
    del problem.layer.moe_config.ep_size
    method = served(problem)
    assert not isinstance(problem.layer.moe_op.forward, hook.Forward) and method
    assert any("ep_size" in line for line in log.taken())


def test_attaching_twice(on, log):
    problem = fakes.Problem()
    served(problem)
    op = problem.layer.moe_op
    stock = op.forward.stock
    gptoss = hook.MoeHook(env.GPT_OSS, rows="interleaved", limit=7.0, alpha=1.702, shift=1.0)
    assert gptoss.ready()
    gptoss.attach(problem.layer)
    assert op.forward.stock is stock
    op.experts_max = 9
    gptoss.attach(problem.layer)
    assert log.taken()[-1] == f"MXFP4 TPC MoE: experts 0 to 9 are served from weights of 8; {STOCK}"
    assert op.forward is stock and not dict(problem.layer.named_buffers())


def test_weights_that_move(on):
    """Replaced parameters, and .to(): the stock op's views stay behind, our tensors are read when they are needed."""
    problem, new = fakes.Problem(seed=1), fakes.Problem(seed=2)
    served(problem)
    for name in ("w13_weight", "w13_weight_scale", "w2_weight", "w2_weight_scale"):
        setattr(problem.layer, name, torch.nn.Parameter(getattr(new.layer, name).data, requires_grad=False))
    for name in ("bias13", "bias2"):
        setattr(new.weights, name, getattr(problem.weights, name))
    call = new.call(5)
    y = problem.layer.moe_op(*call)
    assert error(y, new.reference(*call)) <= 2e-3
    problem.layer.to("meta")
    assert {b.device.type for b in problem.layer.buffers()} == {"meta"}
    assert problem.layer.moe_op(*(t.to("meta") for t in call)).device.type == "meta"


def test_biases_as_the_kernels_take_them(on):
    problem = fakes.Problem()
    served(problem)
    layer = problem.layer
    assert torch.equal(layer.mxk_bias13, layout.relay_bias(layer.w13_bias)) and layer.mxk_bias13.dtype == torch.float32
    assert torch.equal(layer.mxk_bias2, layout.relay_bias(layer.w2_bias))
    assert layer.mxk_bias13[1, 2, 3] == layer.w13_bias[1, 8 * 3 + 2]


# ---- installing ------------------------------------------------------------------------------------------------------


def untouched(monkeypatch, log):
    cls = fakes.method_class()
    before = dict(vars(cls))
    hook.install(cls)
    env.install_hook(cls)
    assert dict(vars(cls)) == before
    problem, other = fakes.Problem(), fakes.Problem()
    cls().process_weights_after_loading(problem.layer)
    fakes.method_class()().process_weights_after_loading(other.layer)
    assert vars(problem.layer).keys() == vars(other.layer).keys()
    assert vars(problem.layer.moe_op).keys() == vars(other.layer.moe_op).keys()
    return log.taken()


def test_off(monkeypatch, log):
    fakes.turn_off(monkeypatch)
    monkeypatch.setattr(load, "load", lambda *_: pytest.fail("loaded"))
    assert untouched(monkeypatch, log) == []


@pytest.mark.parametrize("what", ["missing", "another variant", "no op"])
def test_no_library(on, monkeypatch, log, what):
    if what == "missing":
        monkeypatch.undo()
        log = fakes.Log(monkeypatch)
        result = env.Result(on=True, lib="/nonexistent", version=fakes.VERSION, max_tokens=32)
        monkeypatch.setattr(env, "_results", {env.GPT_OSS.flag: result})
        monkeypatch.setattr(env, "_said", set())
    if what == "another variant":
        monkeypatch.setattr(hook.library, "read", lambda path: {"glm": fakes.VARIANTS["glm"]})
    if what == "no op":
        row = dataclasses.replace(fakes.VARIANTS["gptoss"], w2_kernel="mxk_nothing")
        monkeypatch.setattr(hook.library, "read", lambda path: {"gptoss": row})
    said = untouched(monkeypatch, log)
    assert len(said) == 1 and said[0].startswith("MXFP4 TPC MoE: the op library was not loaded: ")
    assert {"missing": "/nonexistent: holds no", "another variant": "'gptoss' is not one of glm",
            "no op": "mxk_nothing"}[what] in said[0]


def test_installing_twice_and_subclasses(on, log):
    cls = fakes.method_class()
    hook.install(cls)
    wrapped = cls.process_weights_after_loading
    hook.install(cls)
    env.install_hook(cls)
    assert cls.process_weights_after_loading is wrapped and wrapped.__name__ == "process_weights_after_loading"

    class Same(cls):
        pass

    class Other(cls):
        def process_weights_after_loading(self, layer) -> None:
            super().process_weights_after_loading(layer)
            layer.seen = isinstance(layer.moe_op.forward, hook.Forward)

    hook.install(Same)
    hook.install(Other)
    assert "process_weights_after_loading" not in vars(Same)
    for subclass in (Same, Other):
        problem = fakes.Problem()
        subclass().process_weights_after_loading(problem.layer)
        forward = problem.layer.moe_op.forward
        assert isinstance(forward, hook.Forward) and not isinstance(forward.stock, hook.Forward)
    assert problem.layer.seen and len(log.taken()) == 2


def test_the_cap_of_the_operator(on, log, monkeypatch):
    monkeypatch.setitem(env._results, env.GPT_OSS.flag, dataclasses.replace(env.applied(), max_tokens=2))
    problem = fakes.Problem()
    served(problem)
    for T in (1, 2, 3):
        problem.layer.moe_op(*problem.call(T))
    assert len(problem.layer.moe_op.calls) == 1 and "<= 2 tokens" in log.taken()[1]
