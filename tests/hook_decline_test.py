# SPDX-License-Identifier: Apache-2.0
"""Layers and calls that the kernels do not take: the stock op serves them, bit for bit, and the log says why once."""

import hook_fakes as fakes
import pytest
import torch
from hook_fakes import INSTALLED, error, served

from mxk_gaudi import hook, load

STOCK = "the stock op is used"


@pytest.fixture
def log(monkeypatch):
    return fakes.Log(monkeypatch)


@pytest.fixture
def on(monkeypatch):
    fakes.turn_on(monkeypatch)


def config(**facts):
    def change(layer):
        for name, value in facts.items():
            setattr(layer.moe_config, name, value)

    return change


def attribute(name, value):
    return lambda layer: setattr(layer, name, value)


def tensor(name, function):
    def change(layer):
        made = function(getattr(layer, name).data)
        setattr(layer, name, torch.nn.Parameter(made, requires_grad=False))

    return change


def no_biases(layer):
    del layer.w13_bias, layer.w2_bias
    layer.activation = "silu"  # which the stock op without biases takes


def eplb(layer):
    layer.moe_config.moe_parallel_config.enable_eplb = True


DECLINED = {
    "dp": (config(dp_size=2), "data parallel size 2; it must be 1"),
    "sp": (config(is_sequence_parallel=True), "the layer is sequence parallel"),
    "lora": (config(is_lora_enabled=True), "the experts have LoRA"),
    "eplb": (eplb, "experts are rebalanced (EPLB), so their numbers do not stay where they are"),
    "eplb of older releases": (attribute("enable_eplb", True), "experts are rebalanced (EPLB), so their numbers do not"
                                                               " stay where they are"),
    "redundant": (config(num_logical_experts=6), "2 redundant experts; there must be none"),
    "placement": (attribute("expert_placement_strategy", "round_robin"), "expert placement is round_robin; it must be"
                                                                         " linear"),
    "biases": (no_biases, "the layer has no b13; the kernels of gptoss add biases"),
    "bias type": (tensor("w13_bias", torch.Tensor.float), "b13 is float32; it must be bfloat16"),
    "not contiguous": (tensor("w2_weight", lambda t: t.mT.contiguous().mT), "w2 is not contiguous"),
    "range": (config(ep_rank=0, ep_size=3), "8 experts on 3 ranks; each must have as many"),
}


def bits_of_stock(problem, method, other, stock):
    for T in (1, 5, 33):
        x, logits = problem.x(T), problem.logits(T)
        y = method.apply_monolithic(problem.layer, x, logits)
        assert torch.equal(y, stock.apply_monolithic(other.layer, x, logits))


@pytest.mark.parametrize("name", DECLINED)
def test_declined_layers(on, log, name):
    change, reason = DECLINED[name]
    problem, other = fakes.Problem(), fakes.Problem()
    change(problem.layer)
    change(other.layer)
    method, stock = served(problem), served(other, hooked=False)
    method.process_weights_after_loading(problem.layer)  # again: nothing more to say
    assert log.taken() == [INSTALLED, f"MXFP4 TPC MoE: {reason}; {STOCK}"]
    assert vars(problem.layer.moe_op).keys() == vars(other.layer.moe_op).keys()
    assert not dict(problem.layer.named_buffers())
    if name != "bias type":  # which the stock op refuses
        bits_of_stock(problem, method, other, stock)


@pytest.mark.parametrize("op, reason", [
    ({"alpha": 1.7}, "the activation has alpha 1.7; the kernels of gptoss compute 1.702"),
    ({"limit": 10.0}, "the activation has limit 10.0; the kernels of gptoss compute 7"),
    ({"block_size": 16}, "16 values share a scale; it must be 32"),
    ({"model_type": "llama4"}, "the model type is llama4; the hook is for gpt_oss"),
    ({"model_type": None}, "the model type is ; the hook is for gpt_oss"),
])
def test_declined_ops(on, log, op, reason):
    problem = fakes.Problem()
    served(problem, **op)
    assert log.taken()[1:] == [f"MXFP4 TPC MoE: {reason}; {STOCK}"]
    assert "forward" not in vars(problem.layer.moe_op)


def test_other_devices(on, log, monkeypatch):
    monkeypatch.setattr(torch.hpu, "get_device_name", lambda: "GAUDI3")
    served(fakes.Problem())
    assert log.taken()[1:] == [f"MXFP4 TPC MoE: the device is gaudi3; the kernels are built for gaudi2; {STOCK}"]
    monkeypatch.delattr(torch.hpu, "get_device_name")
    problem = fakes.Problem()
    served(problem)
    assert "AttributeError" in log.taken()[-1] and "forward" not in vars(problem.layer.moe_op)


def test_a_failure_half_way_leaves_nothing(on, log, monkeypatch):
    def fails(layer):
        raise MemoryError("no more")

    monkeypatch.setattr(hook, "unusual_scales", fails)
    problem = fakes.Problem()
    served(problem)
    assert log.taken()[1:] == [f"MXFP4 TPC MoE: MemoryError: no more; {STOCK}"]
    assert not dict(problem.layer.named_buffers()) and "forward" not in vars(problem.layer.moe_op)


CALLS = {
    "x": (lambda x, i, w: (x.float(), i, w), "x is float32; it must be bfloat16"),
    "K": (lambda x, i, w: (x[:, :512], i, w), "x is [3, 512]; it must be [T, 544] with a token or more"),
    "ids": (lambda x, i, w: (x, i.float(), w), "ids are float32; they must be int32 or int64"),
    "rows": (lambda x, i, w: (x, i[:2], w), "ids are [2, 4]; they must be [3, k]"),
    "weights": (lambda x, i, w: (x, i, w.half()), "routing weights are float16; they must be bfloat16 or float32"),
    "routes": (lambda x, i, w: (x, i.repeat(1, 12), w.repeat(1, 12)), "144 routes (3 tokens, 48 each); the kernels take"
                                                                      " 128"),
}


@pytest.mark.parametrize("name", CALLS)
def test_declined_calls(on, log, name):
    change, reason = CALLS[name]
    problem = fakes.Problem()
    served(problem)
    log.taken()
    op = problem.layer.moe_op
    op.forward.stock = lambda *args: ("stock", args)
    call = change(*problem.call(3))
    for _ in range(2):
        answer, args = op(*call)
        assert answer == "stock" and all(a is b for a, b in zip(args, call, strict=True))
    assert log.taken() == [f"MXFP4 TPC MoE: {reason}; {STOCK}"]
    assert isinstance(op(*problem.call(3)), torch.Tensor), "other calls go on"


def test_a_kernel_that_fails(on, log, monkeypatch):
    problem, other = fakes.Problem(), fakes.Problem(seed=2)
    served(problem), served(other)
    log.taken()
    problem.layer.w13_weight = torch.nn.Parameter(problem.layer.w13_weight[:, 1:].data, requires_grad=False)
    call = problem.call(3)
    y = problem.layer.moe_op(*call)
    said = log.taken()
    assert len(said) == 1 and said[0].startswith("MXFP4 TPC MoE: a call failed: RuntimeError: mxk_w13xib: ")
    assert error(y, problem.reference(*call)) > 2e-3 and len(problem.layer.moe_op.calls) == 1
    problem.layer.w13_weight = torch.nn.Parameter(problem.weights.w13, requires_grad=False)  # too late
    problem.layer.moe_op(*call)
    assert len(problem.layer.moe_op.calls) == 2 and log.taken() == []
    other.layer.moe_op(*call)
    assert not other.layer.moe_op.calls, "only that layer"


def test_strict(monkeypatch, log):
    fakes.turn_on(monkeypatch, strict=True)
    problem = fakes.Problem()
    problem.layer.moe_config.dp_size = 2
    with pytest.raises(RuntimeError, match="MXFP4 TPC MoE: data parallel size 2.*MXK_STRICT=1 makes this an error"):
        served(problem)
    problem = fakes.Problem()
    served(problem)
    with pytest.raises(RuntimeError, match="x is float32.*MXK_STRICT=1"):
        problem.layer.moe_op(problem.x(3).float(), *problem.call(3)[1:])
    assert problem.layer.moe_op(*problem.call(33)).shape[0] == 33
    problem.layer.w2_weight = problem.layer.w13_weight
    with pytest.raises(RuntimeError, match="a call failed: RuntimeError: mxk_w2xb: .*MXK_STRICT=1"):
        problem.layer.moe_op(*problem.call(3))
    monkeypatch.setattr(load, "load", lambda *_: 1 / 0)
    with pytest.raises(RuntimeError, match="the op library was not loaded: ZeroDivisionError.*MXK_STRICT=1"):
        hook.install(fakes.method_class())
