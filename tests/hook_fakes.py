# SPDX-License-Identifier: Apache-2.0
"""What the hook meets in a serving process, on the CPU: vllm-gaudi's MXFP4 method, its op and its layers, written anew
with the behaviour that matters here, and the stack's own ops. The kernels are those of libmxk_op_cpu.so."""

import importlib.util
import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch

from mxk import layer as mxk_layer
from mxk import ops, reference
from mxk_gaudi import env, hook, library, load

VARIANTS = library.read(ops.load())
VERSION = "0123abcd"
INSTALLED = f"MXFP4 TPC MoE installed: mxk_tpc gptoss-v8-{VERSION}"


def _stock_ops():
    """torch.ops.hpu.mixture_of_experts as the stand-in for the card has it, for CPU tensors."""
    path = Path(__file__).parent / "standin/python/habana_frameworks/torch/stock_moe.py"
    spec = importlib.util.spec_from_file_location("stock_moe", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, function in (("mxfp4_fused_weights", module._mxfp4), ("bias_mxfp4_fused_weights", module._bias_mxfp4),
                           ("fused_weights", module._fused)):
        module._library.impl(f"mixture_of_experts.{name}", function, "CPU")
    return module


if not hasattr(torch, "hpu"):
    STOCK = _stock_ops()


class Holder(torch.nn.Module):
    """One expert's packed matrix; views of the layer's tensors, as plain attributes, so that they do not follow it."""

    bias = None

    def set_weight(self, t):
        self.weight = t

    def set_scale(self, t):
        self.scale = t

    def set_bias(self, t):
        self.bias = t


class StockOp(torch.nn.Module):
    """vllm_gaudi.extension.ops.VllmMixtureOfExpertsOpMXFP4."""

    def __init__(self, global_num_experts, num_total_experts, experts_min=0, experts_max=8, block_size=32,
                 has_bias=False, alpha=1.702, limit=7.0, dispatch_fn=None):
        super().__init__()
        self.global_num_experts, self.num_experts = global_num_experts, num_total_experts
        self.experts_min, self.experts_max, self.block_size = experts_min, experts_max, block_size
        self.has_bias, self.alpha, self.limit = has_bias, alpha, limit
        self.w13_list = torch.nn.ModuleList(Holder() for _ in range(num_total_experts))
        self.w2_list = torch.nn.ModuleList(Holder() for _ in range(num_total_experts))
        self.calls = []  # positional and keyword arguments, for tests

    def _cache_weight_lists(self):
        both = (self.w13_list, self.w2_list)
        self.weights = [[e.weight for e in experts] for experts in both]
        self.scales = [[e.scale for e in experts] for experts in both]
        self.biases = [[e.bias for e in experts] for experts in both]

    def _apply(self, fn, recurse=True):
        result = super()._apply(fn, recurse)
        self._cache_weight_lists()
        return result

    def forward(self, hidden_states, expert_routing_table, router_weights, permuted_weights=True, activation="silu"):
        self.calls.append((hidden_states, expert_routing_table, router_weights, permuted_weights, activation))
        _, _ = hidden_states.shape
        inputs = hidden_states, expert_routing_table.to(torch.int32), router_weights
        common = dict(block_size=self.block_size, permuted_weights=True, experts_min=self.experts_min,
                      experts_max=self.experts_max, is_fp4=True, chunk_size=0, total_experts=0)
        stock = torch.ops.hpu.mixture_of_experts
        if self.has_bias:
            return stock.bias_mxfp4_fused_weights(*inputs, *self.weights, *self.biases, *self.scales, **common,
                                                  alpha=self.alpha, limit=self.limit)
        return stock.mxfp4_fused_weights(*inputs, *self.weights, *self.scales, activation=activation, **common)


def method_class():
    """A new HPUGptOssMxfp4MoEMethod: whatever is installed on it is on no other."""

    class Method:
        def __init__(self, model_type="gpt_oss", **op):
            self.model_type, self.op = model_type, op

        def process_weights_after_loading(self, layer) -> None:
            n, first = layer.local_num_experts, layer.moe_config.ep_rank * layer.local_num_experts
            has_bias = hasattr(layer, "w13_bias") and hasattr(layer, "w2_bias")
            layer.moe_op = StockOp(layer.global_num_experts, n, first, first + n - 1, has_bias=has_bias, **self.op)
            for e in range(n):
                for name, holder in (("w13", layer.moe_op.w13_list[e]), ("w2", layer.moe_op.w2_list[e])):
                    holder.set_weight(getattr(layer, f"{name}_weight").data[e])
                    holder.set_scale(getattr(layer, f"{name}_weight_scale").data[e])
                    if has_bias:
                        holder.set_bias(getattr(layer, f"{name}_bias").data[e])
            layer.moe_op._cache_weight_lists()

        def apply_monolithic(self, layer, x, router_logits, **kwargs):
            shape = x.shape
            x = x.view(-1, shape[-1])
            ids, weights = route(self.model_type, router_logits, layer.top_k)
            y = layer.moe_op(x, ids, weights, permuted_weights=True, activation=layer.activation)
            return y.view(*shape)

    return Method


def route(model_type, logits, k):
    if model_type == "gpt_oss":
        weights, ids = logits.topk(k, dim=-1)
        weights = weights.softmax(dim=-1, dtype=torch.float32)
    else:
        weights, ids = logits.softmax(dim=-1, dtype=torch.float32).topk(k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return ids.to(torch.int32), weights.to(torch.bfloat16)


class Layer(torch.nn.Module):
    """vLLM's fused experts of one rank. `weights` is an mxk.layer.Layer."""

    def __init__(self, weights, rank=0, ranks=1, top_k=4, name="model.layers.3.mlp.experts"):
        super().__init__()
        self.local_num_experts, self.global_num_experts = weights.E, weights.E * ranks
        self.moe_config = SimpleNamespace(
            ep_rank=rank, ep_size=ranks, dp_size=1, tp_size=1, is_sequence_parallel=False, is_lora_enabled=False,
            num_logical_experts=weights.E * ranks, moe_parallel_config=SimpleNamespace(enable_eplb=False))
        self.expert_placement_strategy = "linear"
        self.layer_name, self.top_k = name, top_k
        self.activation = "silu" if weights.bias13 is None else "swigluoai"
        self.use_grouped_topk, self.custom_routing_function = False, None
        tensors = {"w13_weight": weights.w13, "w13_weight_scale": weights.s13, "w2_weight": weights.w2,
                   "w2_weight_scale": weights.s2, "w13_bias": weights.bias13, "w2_bias": weights.bias2}
        for attribute, tensor in tensors.items():
            if tensor is not None:
                self.register_parameter(attribute, torch.nn.Parameter(tensor.clone(), requires_grad=False))


class Problem:
    """One rank's weights and layer of a variant, and the answer in fp32."""

    def __init__(self, variant="gptoss", K=None, I=None, E=8, seed=1, rank=0, ranks=1, top_k=4):  # noqa: E741
        small = {"gptoss": (544, 160), "dsv41": (512, 256), "kimi": (1024, 512)}
        K0, I0 = small.get(variant, (512, 512))
        self.weights = mxk_layer.random_layer(VARIANTS[variant], E, seed, K or K0, I or I0, first_expert=E * rank)
        self.layer = Layer(self.weights, rank, ranks, top_k)
        self.top_k, self.total = top_k, E * ranks

    def x(self, T, rms=1.0, seed=7):
        random = torch.Generator().manual_seed(1000 * seed + T)
        return (rms * torch.randn(T, self.weights.K, generator=random)).bfloat16()

    def logits(self, T, seed=11):
        return torch.randn(T, self.total, generator=torch.Generator().manual_seed(1000 * seed + T))

    def call(self, T, rms=1.0, model_type="gpt_oss"):
        return (self.x(T, rms), *route(model_type, self.logits(T), self.top_k))

    def reference(self, x, ids, weights):
        return reference.run(self.weights, [(x, ids, weights)])[0]


def error(y, want):
    return reference.accuracy(want, y).rel_l2


def served(problem, hooked=True, **op):
    """The method of a class of its own, after the weights of the problem's layer were loaded; with gpt-oss's hook."""
    cls = method_class()
    if hooked:
        hook.install(cls)
    method = cls(**op)
    method.process_weights_after_loading(problem.layer)
    return method


def turn_on(monkeypatch, switch=env.GPT_OSS, strict=False):
    """The kernels of a family on, as env.apply() would find them, with the CPU's op library as the build's."""
    result = env.Result(on=True, strict=strict, lib="/build", version=VERSION, max_tokens=switch.tokens)
    monkeypatch.setattr(env, "_results", {switch.flag: result})
    monkeypatch.setattr(env, "_said", set())
    monkeypatch.setattr(load, "load", lambda directory, variant: ops.load())
    monkeypatch.setattr(torch, "hpu", SimpleNamespace(synchronize=lambda: None, get_device_name=lambda: "GAUDI2"),
                        raising=False)


def turn_off(monkeypatch, switch=env.GPT_OSS):
    monkeypatch.setattr(env, "_results", {switch.flag: env.Result()})


class Log:
    """The lines in vLLM's log."""

    def __init__(self, monkeypatch):
        self.lines = []
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(record.getMessage())
        logger = logging.getLogger("vllm")
        monkeypatch.setattr(logger, "handlers", [handler])
        monkeypatch.setattr(logger, "propagate", False)
        monkeypatch.setattr(logger, "level", logging.INFO)
        logger.manager._clear_cache()  # of what it is enabled for

    def taken(self):
        lines, self.lines = self.lines, []
        return lines


def stub_modules(monkeypatch):
    """The modules that the real hpu_mxfp4.py imports; returns the model's configuration."""

    class Base:
        def __init__(self, moe):
            self.moe = moe

    class GptOssMxfp4MoEMethod(Base):
        pass

    def module(name, **contents):
        made = ModuleType(name)
        made.__path__ = []
        vars(made).update(contents)
        monkeypatch.setitem(sys.modules, name, made)
        parent, _, child = name.rpartition(".")
        if parent:
            if parent not in sys.modules:
                module(parent)
            setattr(sys.modules[parent], child, made)
        return made

    hf = SimpleNamespace(model_type="gpt_oss")
    config = SimpleNamespace(model_config=SimpleNamespace(hf_config=hf))
    experts = "vllm.model_executor.layers.fused_moe."
    module("vllm.config", get_current_vllm_config=lambda: config)
    module(experts + "layer", FusedMoE=Layer)
    module(experts + "routed_experts", RoutedExperts=Layer)
    module("vllm.model_executor.layers.quantization.mxfp4", GptOssMxfp4MoEMethod=GptOssMxfp4MoEMethod)
    module("vllm_gaudi.extension.ops", VllmMixtureOfExpertsOpMXFP4=StockOp)
    module("vllm_gaudi.extension.runtime", get_config=lambda: SimpleNamespace(use_dispatch_fn=False))
    module("vllm_gaudi.ops.hpu_fused_moe", _normalize_moe_activation=lambda activation: activation,
           select_experts_from_routed=None)
    module("vllm_gaudi.v1.worker.hpu_dp_utils", dispatch_hidden_states=None, dispatch_tensor=None,
           get_hpu_dp_metadata=None)
    return hf
