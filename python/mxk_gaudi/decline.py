# SPDX-License-Identifier: Apache-2.0
"""Why a layer, or a call of it, stays on the stock op. Pure functions over facts: a hook collects the facts, and what
the kernels take is in the row of the table of variants, as `mxk variants --json` and the op libraries give it."""

import math
from dataclasses import dataclass

DEVICE = "gaudi2"
BLOCK = 32  # values that share a scale


@dataclass(frozen=True)
class Tensor:
    dtype: str  # without "torch."
    shape: tuple
    contiguous: bool = True


@dataclass(frozen=True)
class LayerFacts:
    """Names as in the documentation: w13 u8 [E, 2I, K/2], s13 u8 [E, 2I, K/32], w2 u8 [E, K, I/2], s2 u8 [E, K, I/32]
    and, for a variant with biases, b13 bf16 [E, 2I] and b2 bf16 [E, K]."""

    row: dict  # the variant
    tensors: dict  # of Tensor, by name; a tensor that the layer lacks is absent
    rows: str  # of w13: "interleaved" or "stacked"
    first_expert: int  # local experts are these and the following
    global_experts: int
    alpha: float = 1.0  # h = g * sigmoid(alpha * g) * (u + shift) with g at most limit and u within +-limit
    limit: float = math.inf
    shift: float = 0.0
    block_size: int = BLOCK
    device: str = DEVICE
    model_type: str = ""
    model_types: tuple = ()  # that the hook knows; empty: any
    ep_size: int = 1
    ep_rank: int = 0
    dp_size: int = 1
    tp_size: int = 1  # any: a rank's I is what counts
    sequence_parallel: bool = False
    eplb: bool = False
    redundant_experts: int = 0
    placement: str = "linear"
    lora: bool = False


@dataclass(frozen=True)
class CallFacts:
    row: dict
    hidden: int  # K of the layer
    x: Tensor
    ids: Tensor
    weights: Tensor
    max_tokens: int  # what the operator allows; never more than the row does


def why_not(facts):
    """None if the kernels can run the layer, or a sentence that says why not."""
    return _why_not_served_so(facts) or _why_not_computed_so(facts) or _why_not_tensors(facts)


def _why_not_served_so(f):
    if f.device != DEVICE:
        return f"the device is {f.device}; the kernels are built for {DEVICE}"
    if f.model_types and f.model_type not in f.model_types:
        return f"the model type is {f.model_type}; the hook is for {', '.join(f.model_types)}"
    if f.dp_size != 1:
        return f"data parallel size {f.dp_size}; it must be 1"
    if f.sequence_parallel:
        return "the layer is sequence parallel"
    if f.lora:
        return "the experts have LoRA"
    if f.eplb:
        return "experts are rebalanced (EPLB), so their numbers do not stay where they are"
    if f.redundant_experts:
        return f"{f.redundant_experts} redundant experts; there must be none"
    if f.placement != "linear":
        return f"expert placement is {f.placement}; it must be linear"
    if f.global_experts % f.ep_size:
        return f"{f.global_experts} experts on {f.ep_size} ranks; each must have as many"
    return None


def _why_not_computed_so(f):
    row = f.row
    if f.rows != row["rows"]:
        return f"gate and up rows are {f.rows}; the kernels of {row['name']} read {row['rows']} ones"
    act = row["act_params"]
    for name, value, needed in (("limit", f.limit, math.inf if act["limit"] is None else act["limit"]),
                                ("alpha", f.alpha, act["alpha"]), ("shift", f.shift, act["shift"])):
        if value != needed:
            return f"the activation has {name} {value}; the kernels of {row['name']} compute {needed}"
    if f.block_size != BLOCK:
        return f"{f.block_size} values share a scale; it must be {BLOCK}"
    return None


def _why_not_tensors(f):
    row, limits, t = f.row, f.row["limits"], f.tensors
    for name in ("w13", "s13", "w2", "s2"):
        if name not in t:
            return f"the layer has no {name}"
    for name in ("b13", "b2"):
        if row["bias"] and name not in t:
            return f"the layer has no {name}; the kernels of {row['name']} add biases"
        if not row["bias"] and name in t:
            return f"the layer has {name}; the kernels of {row['name']} add no biases"
    if len(t["w13"].shape) != 3:
        return f"w13 has {len(t['w13'].shape)} dimensions; it must have 3"
    experts, rows, columns = t["w13"].shape
    K, I = 2 * columns, rows // 2  # noqa: E741
    expected = {"w13": (experts, 2 * I, K // 2), "s13": (experts, 2 * I, K // 32), "w2": (experts, K, I // 2),
                "s2": (experts, K, I // 32), "b13": (experts, 2 * I), "b2": (experts, K)}
    for letter, value, multiple, largest in (("K", K, limits["k_multiple"], limits["k_max"]),
                                             ("I", I, limits["i_multiple"], limits["i_max"])):
        if not 0 < value <= largest or value % multiple:
            return f"{letter} is {value}; it must be a multiple of {multiple}, at most {largest}"
    if not 0 < experts <= limits["experts"]:
        return f"{experts} local experts; there must be 1 to {limits['experts']}"
    for name, tensor in sorted(t.items()):
        dtype = "bfloat16" if name in ("b13", "b2") else "uint8"
        if tensor.dtype != dtype:
            return f"{name} is {tensor.dtype}; it must be {dtype}"
        if tuple(tensor.shape) != expected[name]:
            return f"{name} is {list(tensor.shape)}; with w13 {list(t['w13'].shape)} it must be {list(expected[name])}"
        if not tensor.contiguous:
            return f"{name} is not contiguous"
    if experts * f.ep_size != f.global_experts or f.first_expert != f.ep_rank * experts:
        return (f"rank {f.ep_rank} of {f.ep_size} has experts {f.first_expert} to {f.first_expert + experts - 1} of"
                f" {f.global_experts}; each rank must have as many, in order")
    return None


def too_many_tokens(facts):
    """A call that is meant for the stock op, such as prefill: nothing to say in the log."""
    return _tokens(facts) > _cap(facts)


def _tokens(facts):
    return facts.x.shape[0] if facts.x.shape else 0


def _cap(facts):
    return min(facts.max_tokens, facts.row["limits"]["tokens"])


def why_not_call(facts):
    """None if the kernels can take the call of a layer that they can run, or a sentence that says why not. What a hook
    makes right itself, layout and the type of ids, is not looked at."""
    x, ids, weights = facts.x, facts.ids, facts.weights
    if too_many_tokens(facts):
        return f"{_tokens(facts)} tokens; the kernels take {_cap(facts)}"
    if len(x.shape) != 2 or x.shape[0] < 1 or x.shape[1] != facts.hidden:
        return f"x is {list(x.shape)}; it must be [T, {facts.hidden}] with a token or more"
    if x.dtype != "bfloat16":
        return f"x is {x.dtype}; it must be bfloat16"
    if len(ids.shape) != 2 or ids.shape[0] != x.shape[0] or ids.shape[1] < 1:
        return f"ids are {list(ids.shape)}; they must be [{x.shape[0]}, k]"
    if ids.dtype not in ("int32", "int64"):
        return f"ids are {ids.dtype}; they must be int32 or int64"
    if weights.shape != ids.shape:
        return f"routing weights are {list(weights.shape)}; they must be {list(ids.shape)}, as the ids"
    if weights.dtype not in ("bfloat16", "float32"):
        return f"routing weights are {weights.dtype}; they must be bfloat16 or float32"
    T, k = ids.shape
    most = facts.row["limits"]["routes"]
    if T * k > most:
        return f"{T * k} routes ({T} tokens, {k} each); the kernels take {most}"
    return None
