# SPDX-License-Identifier: Apache-2.0
"""The hook: layers whose experts the kernels can run get their calls of few tokens through the kernels. All others, and
all other calls, are served by the stock op as if the hook were not there."""

import functools
import logging
import math
import os
from dataclasses import dataclass

import torch

from . import env, library, load
from .decline import CallFacts, LayerFacts, Tensor, too_many_tokens, why_not, why_not_call
from .experts import Experts, forget, served, unusual_scales

INTERFACE = 8  # of the ops and this runtime, which change together; part of the version in the log


@dataclass(frozen=True)
class Span:
    """The experts of this rank, first to last, of `total`; and which rank of how many has them."""

    first: int
    last: int
    total: int
    rank: int
    ranks: int


class MoeHook:
    """For one model family. rows, limit, alpha, shift: what its experts compute, as decline.LayerFacts says; an op that
    knows its own limit and alpha is believed. model_types: that it is for, empty: any."""

    def __init__(self, switch, *, rows, limit, alpha=1.0, shift=0.0, model_types=()):
        self.switch, self.model_types = switch, model_types
        _switches[switch.flag] = switch
        self._computes = {"rows": rows, "limit": limit, "alpha": alpha, "shift": shift}
        self.variant = None  # once the op library is loaded
        self.max_tokens = 0
        self.left_to_stock = 0  # calls above the cap or without tokens; one for each graph that was made
        self.reorder = self.prefill = False  # see Family
        self._row = None
        self._warm = switch.lazy  # only the ops of PT2 mode need it
        self._scales_said = False

    # ---- once in a process -------------------------------------------------------------------------------------------

    def ready(self):
        """Loads the op library, unless that was done; False if the kernels are off or it cannot be."""
        result = env.applied(self.switch)
        if self.variant is not None or not result.on:
            return result.on
        if not self.switch.lazy:
            os.environ.setdefault("PT_HPU_LAZY_MODE", "0")  # the default of the stack, which load() would not guess
        try:
            path = load.load(result.lib, self.switch.variant)
            variant = library.find(library.read(path), self.switch.variant)
            for kernel in (variant.w13_kernel, variant.w2_kernel):
                getattr(torch.ops.custom_op, kernel)
        except Exception as e:
            env.decline(f"the op library was not loaded: {type(e).__name__}: {e}", self.switch)
            return False
        self.variant, self._row, self.max_tokens = variant, _row(variant), result.max_tokens
        env.say_once(f"{self.switch.label} installed: mxk_tpc {variant.name}-v{INTERFACE}-{result.version}")
        return True

    def install(self, method_class):
        """Layers that method_class.process_weights_after_loading has made ready are looked at from now on. Done once
        for a class and its subclasses, however often it is called."""
        if not self.ready():
            return
        stock, flag = method_class.process_weights_after_loading, self.switch.flag
        if getattr(stock, "mxk_flag", None) == flag:
            return

        @functools.wraps(stock)
        def process_weights_after_loading(method, layer, *args, **kwargs):
            result = stock(method, layer, *args, **kwargs)
            self.attach(layer, getattr(method, "model_type", None) or "")
            return result

        process_weights_after_loading.mxk_flag = flag
        method_class.process_weights_after_loading = process_weights_after_loading

    # ---- once for each load of a layer -------------------------------------------------------------------------------

    def attach(self, layer, model_type=""):
        """Calls of layer.moe_op go through the kernels where they can. The op itself stays, with its weights."""
        op = layer.moe_op
        current = op.forward
        stock = current.stock if isinstance(current, Forward) else current
        forward = self._forward(layer, stock, op, lambda: self._span(layer, op), model_type)
        if forward is not current:
            op.forward = forward  # nn.Module finds an attribute of the instance first

    def _span(self, layer, op):
        config = layer.moe_config
        return Span(op.experts_min, op.experts_max, layer.global_num_experts, config.ep_rank, config.ep_size)

    def _forward(self, layer, stock, op, span, model_type="", kernels=None):
        """What to call for the layer's experts: a Forward, or `stock` itself. span: a function that gives a Span.
        kernels: a function of an Experts that gives what to call instead of it."""
        try:
            span = span()
            reason = self._why_not(layer, op, span, model_type)
            if reason is None and self.variant.per_route != bool(kernels):
                row, norm = ("route", "no") if kernels is None else ("token", "a")
                reason = (f"the kernels of {self.variant.name} give a row for each {row}, and {norm} norm of single"
                          " experts was given")
            if reason is None:
                return self._enable(layer, stock, op, span, kernels)
        except Exception as e:  # the engine must start
            reason = f"{type(e).__name__}: {e}"
        forget(layer)
        layer.__dict__.pop("mxk_experts", None)
        env.decline(reason, self.switch)
        return stock

    def _why_not(self, layer, op, span, model_type):
        tensors = {name: _tensor(t) for name, t in served(layer).items()}
        config = getattr(layer, "moe_config", None)
        parallel = getattr(config, "moe_parallel_config", None)
        computes = dict(self._computes)
        if self.reorder:
            computes["rows"] = self._row["rows"]
        if getattr(op, "has_bias", False):  # else its alpha and limit are not used
            computes.update(alpha=op.alpha, limit=op.limit)
        reason = why_not(LayerFacts(
            row=self._row, tensors=tensors, first_expert=span.first, global_experts=span.total, ep_size=span.ranks,
            ep_rank=span.rank, **computes,
            block_size=getattr(op, "block_size", 32), device=torch.hpu.get_device_name().split()[0].lower(),
            model_type=model_type, model_types=self.model_types,
            dp_size=getattr(config, "dp_size", 1), tp_size=getattr(config, "tp_size", 1),
            sequence_parallel=getattr(config, "is_sequence_parallel", False),
            eplb=getattr(layer, "enable_eplb", False) or getattr(parallel, "enable_eplb", False),
            redundant_experts=_redundant(layer, config),
            placement=getattr(layer, "expert_placement_strategy", None) or "linear",
            lora=getattr(config, "is_lora_enabled", False)))
        if reason is None and span.last - span.first + 1 != tensors["w13"].shape[0]:
            return f"experts {span.first} to {span.last} are served from weights of {tensors['w13'].shape[0]}"
        return reason

    def _enable(self, layer, stock, op, span, kernels):
        if not self._warm:  # here, because not every process that installs the hook may open the device
            load.warmup(self.variant)
            self._warm = True
        experts = Experts(self.variant, layer, span.first, self._computes["rows"])
        self._check_scales(layer)
        if experts.copied:
            env.log(f"gate and up rows are {self._computes['rows']}, the kernels of {self.variant.name} read"
                    f" {self._row['rows']} ones: w13 is kept in both orders, {experts.copied / 2**20:.1f} MB more for"
                    " each layer", logging.WARNING, self.switch)
        label = f"{self.switch.label} enabled"
        env.say_once(f"{label} (E_local={experts.E} K={experts.K} I={experts.I}, <= {self.max_tokens} tokens,"
             f" experts {span.first} to {span.last} of {span.total})", once=label)
        _refresh_after_load_state_dict(layer, experts)
        # The op with biases ignores what it is told of the activation.
        activation = None if getattr(op, "has_bias", False) else "silu"
        prefill = experts.prefill if self.prefill else None
        return Forward(self, experts, kernels(experts) if kernels else experts, stock, activation, prefill)

    def _check_scales(self, layer):
        if self._scales_said:
            return
        zero, infinite = unusual_scales(layer)
        if zero or infinite:
            self._scales_said = True
            env.log(f"{getattr(layer, 'layer_name', 'a layer')}: {zero} scale bytes are 0 and {infinite} are 255; the"
                    " kernels read 0 as zero, which is right for padding, and 255 as infinity; further layers are not"
                    " looked at", logging.WARNING, self.switch)


class Forward:
    """The experts of one layer, call by call: `kernels` or `stock`, which get the same arguments. prefill: instead of
    stock for calls above the cap. The choice is made when a graph is made, and stays with it. An op that fails while
    torch.compile traces is an error of the compilation: there it cannot be caught here."""

    def __init__(self, hook, experts, kernels, stock, activation=None, prefill=None):
        self.stock = stock
        self._hook, self._experts, self._activation = hook, experts, activation
        self._kernels, self._prefill = kernels, prefill

    def __call__(self, hidden_states, expert_routing_table, router_weights, *args, **kwargs):
        call = hidden_states, expert_routing_table, router_weights
        way = self._way(call, self._why_not_activation(*args[1:2], **kwargs))
        if way and getattr(self, way):
            try:
                return getattr(self, way)(*call)
            except Exception as e:
                setattr(self, way, None)  # what fails in one graph of a layer fails in all
                env.decline(f"a call failed: {type(e).__name__}: {e}", self._hook.switch)
        return self.stock(*call, *args, **kwargs)

    def _way(self, call, reason):
        hook = self._hook
        facts = CallFacts(hook._row, self._experts.K, *map(_tensor, call), hook.max_tokens)
        many = too_many_tokens(facts)
        if (many and not self._prefill) or 0 in facts.x.shape[:1]:
            if not torch.compiler.is_compiling():  # a graph would depend on the count
                hook.left_to_stock += 1
            return None
        reason = reason or (None if many else why_not_call(facts))
        if reason:
            _decline_call(reason, hook.switch.flag)
            return None
        return "_prefill" if many else "_kernels"

    def _why_not_activation(self, activation="silu", **_):
        activation = getattr(activation, "value", activation)
        if self._activation and activation != self._activation:
            return (f"the activation is {activation}; the kernels of {self._hook.variant.name} compute"
                    f" {self._activation}")
        return None


_switches = {}  # by flag


@torch.compiler.assume_constant_result  # torch.compile cannot trace a log: it calls this while it traces
def _decline_call(reason, flag):
    env.decline(reason, _switches[flag])


def _refresh_after_load_state_dict(layer, experts):
    """Once for a layer; the experts that it has at the time are meant."""
    if not hasattr(layer, "mxk_refreshes"):
        layer.mxk_refreshes = True
        layer.register_load_state_dict_post_hook(_refresh)
    layer.__dict__["mxk_experts"] = experts


def _refresh(layer, _):
    if experts := layer.__dict__.get("mxk_experts"):
        experts.refresh()


def _redundant(layer, config):
    logical = getattr(config, "num_logical_experts", None)
    return layer.global_num_experts - logical if logical else 0


def _tensor(t):
    return Tensor(str(t.dtype)[len("torch."):], tuple(t.shape), t.is_contiguous())


def _row(variant):
    """A variant as decline takes it."""
    return {"name": variant.name, "rows": "interleaved" if variant.interleaved else "stacked", "bias": variant.bias,
            "act_params": {"limit": None if variant.limit == math.inf else variant.limit, "alpha": variant.alpha,
                           "shift": variant.shift},
            "limits": vars(variant.limits)}


def install(method_class):
    """The hook of gpt-oss on the class of vllm_gaudi/ops/hpu_mxfp4.py."""
    MoeHook(env.GPT_OSS, rows="interleaved", limit=7.0, alpha=1.702, shift=1.0, model_types=("gpt_oss",)).install(
        method_class)
