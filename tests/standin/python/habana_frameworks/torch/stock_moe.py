# SPDX-License-Identifier: Apache-2.0
"""torch.ops.hpu.mixture_of_experts: the overloads for packed MXFP4 experts and for bf16 ones, with fused gate and up.

Like the ops of the bridge they unpack each touched expert to bf16 and multiply that, rounding to bf16 after each step.
Routes of experts outside [experts_min, experts_max] add nothing. Arguments are checked; that the packed overloads are
for graphs only is not.
"""

import torch

_GROUP = 32
_INPUTS = "Tensor hidden_states, Tensor expert_routing_table, Tensor router_weights, Tensor[] w12, Tensor[] w3"
_LIST = "int experts_min, int experts_max"
_TAIL = "int chunk_size=0, int total_experts=0"
_SCHEMAS = {
    "mxfp4_fused_weights": f"{_INPUTS}, Tensor[] d_scale_w12, Tensor[] d_scale_w3, *, int block_size=32, "
    f"bool permuted_weights, str activation, {_LIST}, bool is_fp4=True, {_TAIL}",
    "bias_mxfp4_fused_weights": f"{_INPUTS}, Tensor[] w12_bias, Tensor[] w3_bias, Tensor[] d_scale_w12, "
    f"Tensor[] d_scale_w3, *, int block_size=32, bool permuted_weights, {_LIST}, bool is_fp4=True, {_TAIL}, "
    "float alpha=1.702, float limit=7.0",
    "fused_weights": f"{_INPUTS}, bool permuted_weights, str activation, {_LIST}, *, {_TAIL}",
}
_ACTIVATIONS = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "relu": torch.nn.functional.relu,
}


def _check(name, ok, what):
    if not ok:
        raise RuntimeError(f"mixture_of_experts.{name}: {what}; nothing was computed")


def _check_list(name, what, tensors, count, dtype, shape):
    _check(name, len(tensors) == count, f"{what} must be {count} tensors, they are {len(tensors)}")
    for t in tensors:
        _check(name, t.dtype == dtype, f"{what} must be {dtype}, it is {t.dtype}")
        _check(name, list(t.shape) == shape, f"{what} must be {shape}, it is {list(t.shape)}")


def _pairs():
    """The two numbers of each byte, low nibble first."""
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = torch.cat([values, -values])
    byte = torch.arange(256)
    return torch.stack([codes[byte & 15], codes[byte >> 4]], dim=1)


_PAIRS = _pairs()
_SCALES = torch.ldexp(torch.ones(256, dtype=torch.float64), torch.arange(256) - 127).float()
_SCALES[255] = torch.nan


def _unpack(weight, scale, columns):
    """A packed matrix as fp32 that holds bf16 numbers."""
    rows = weight.shape[0]
    w = _PAIRS.index_select(0, weight.flatten().int()).view(rows, -1)[:, :columns]
    s = _SCALES.index_select(0, scale.flatten().int()).view(rows, -1).repeat_interleave(_GROUP, dim=1)[:, :columns]
    return (w * s).bfloat16().float()


def _bf16(x):
    """Where the ops have a bf16 tensor between two steps."""
    return x.bfloat16().float()


def _run(name, activate, x, table, weights, experts_min, matrices):
    """matrices(local expert): w12, bias12, w3, bias3, fp32 on the host."""
    out = torch.zeros(x.shape, dtype=torch.float32)
    x, table, weights = x.cpu().float(), table.cpu().long(), weights.cpu().float()
    for expert in sorted(set(table.flatten().tolist())):
        m = matrices(expert - experts_min)
        if m is None:
            continue
        w12, bias12, w3, bias3 = m
        token, slot = (table == expert).nonzero(as_tuple=True)
        a = _bf16(activate(_bf16(x[token] @ w12.T + bias12)))
        y = _bf16(a @ w3.T + bias3)
        out.index_add_(0, token, _bf16(y * weights[token, slot, None]))
    return out.bfloat16()


def _halves(activation):
    def activate(gate_up):
        gate, up = gate_up.chunk(2, dim=1)
        return _ACTIVATIONS[activation](gate) * up

    return activate


def _swiglu_oai(alpha, limit):
    def activate(gate_up):
        gate, up = gate_up[:, 0::2].clamp(max=limit), gate_up[:, 1::2].clamp(-limit, limit)
        return gate * torch.sigmoid(alpha * gate) * (up + 1)

    return activate


def _compute(name, x, table, weights, w12, w3, bias12, bias3, s12, s3, activate, experts_min, experts_max):
    count = experts_max - experts_min + 1
    _check(name, experts_min >= 0 and count >= 1, f"experts_min={experts_min}, experts_max={experts_max} is no range")
    _check(name, x.dim() == 2 and x.dtype == torch.bfloat16, "hidden_states must be bf16 [T, K]")
    ids = (torch.int32, torch.int64)
    _check(name, table.dim() == 2 and table.dtype in ids, "expert_routing_table must be int32 [T, top-k]")
    _check(name, table.shape[0] == x.shape[0], "expert_routing_table must have a row for each token")
    _check(name, weights.shape == table.shape, "router_weights must have the shape of expert_routing_table")
    _check(name, weights.dtype == torch.bfloat16, f"router_weights must be bf16, they are {weights.dtype}")
    K, rows = x.shape[1], w12[0].shape[0] if w12 else 0
    _check(name, rows > 0 and rows % 2 == 0, f"w12 must have 2I rows, it has {rows}")
    I = rows // 2  # noqa: E741
    if s12 is None:
        _check_list(name, "w12", w12, count, torch.bfloat16, [rows, K])
        _check_list(name, "w3", w3, count, torch.bfloat16, [K, I])
    else:
        _check_list(name, "w12", w12, count, torch.uint8, [rows, -(-K // 2)])
        _check_list(name, "w3", w3, count, torch.uint8, [K, -(-I // 2)])
        _check_list(name, "d_scale_w12", s12, count, torch.uint8, [rows, -(-K // _GROUP)])
        _check_list(name, "d_scale_w3", s3, count, torch.uint8, [K, -(-I // _GROUP)])
    if bias12 is not None:
        _check_list(name, "w12_bias", bias12, count, torch.bfloat16, [rows])
        _check_list(name, "w3_bias", bias3, count, torch.bfloat16, [K])

    def matrices(e):
        if not 0 <= e < count:
            return None
        biases = (0, 0) if bias12 is None else (bias12[e].cpu().float(), bias3[e].cpu().float())
        if s12 is None:
            first, second = w12[e].cpu().float(), w3[e].cpu().float()
        else:
            first, second = _unpack(w12[e].cpu(), s12[e].cpu(), K), _unpack(w3[e].cpu(), s3[e].cpu(), I)
        return first, biases[0], second, biases[1]

    return _run(name, activate, x, table, weights, experts_min, matrices).to(x.device)


def _check_options(name, permuted_weights, activation="silu", block_size=_GROUP, is_fp4=True):
    _check(name, permuted_weights, "the stand-in has only permuted_weights=True")
    _check(name, activation in _ACTIVATIONS, f"activation must be silu, gelu or relu, it is {activation}")
    _check(name, block_size == _GROUP, f"block_size must be 32, it is {block_size}")
    _check(name, is_fp4, "is_fp4 must be True")


def _mxfp4(x, table, weights, w12, w3, s12, s3, *, block_size=32, permuted_weights, activation, experts_min,
           experts_max, is_fp4=True, chunk_size=0, total_experts=0):
    name = "mxfp4_fused_weights"
    _check_options(name, permuted_weights, activation, block_size, is_fp4)
    activate = _halves(activation)
    return _compute(name, x, table, weights, w12, w3, None, None, s12, s3, activate, experts_min, experts_max)


def _bias_mxfp4(x, table, weights, w12, w3, bias12, bias3, s12, s3, *, block_size=32, permuted_weights, experts_min,
                experts_max, is_fp4=True, chunk_size=0, total_experts=0, alpha=1.702, limit=7.0):
    name = "bias_mxfp4_fused_weights"
    _check_options(name, permuted_weights, block_size=block_size, is_fp4=is_fp4)
    activate = _swiglu_oai(alpha, limit)
    return _compute(name, x, table, weights, w12, w3, bias12, bias3, s12, s3, activate, experts_min, experts_max)


def _fused(x, table, weights, w12, w3, permuted_weights, activation, experts_min, experts_max, *, chunk_size=0,
           total_experts=0):
    name = "fused_weights"
    _check_options(name, permuted_weights, activation)
    activate = _halves(activation)
    return _compute(name, x, table, weights, w12, w3, None, None, None, None, activate, experts_min, experts_max)


_library = torch.library.Library("hpu", "FRAGMENT")
for _name, _function in (("mxfp4_fused_weights", _mxfp4), ("bias_mxfp4_fused_weights", _bias_mxfp4),
                         ("fused_weights", _fused)):
    _library.define(f"mixture_of_experts.{_name}({_SCHEMAS[_name]}) -> Tensor")
    _library.impl(f"mixture_of_experts.{_name}", _function, "HPU")
    _library.impl(f"mixture_of_experts.{_name}", lambda x, *_, **__: torch.empty_like(x), "Meta")
