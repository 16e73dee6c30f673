# SPDX-License-Identifier: Apache-2.0
"""What a layer computes (docs/semantics.md), in fp32 with plain torch operations on the CPU, and how far an answer is
from that. Shares no code with any kernel."""

import math
from dataclasses import dataclass

import torch

GATE = 1.75e-3  # rel_l2 of a bf16 output against fp32: rounding it to bf16 makes 1.66e-3
GATE_ROW = 3  # times the gate, for any single row

_E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
_PAIRS = torch.stack([_E2M1.repeat(16), _E2M1.repeat_interleave(16)], dim=1)  # of a byte: low nibble, high nibble
_SCALES = torch.tensor([2.0 ** (byte - 127) for byte in range(255)] + [math.nan])


def unpack(codes, scales):
    """fp32 [N, C] of packed rows [N, C/2] and their E8M0 bytes [N, C/32]. Exact."""
    numbers = torch.nn.functional.embedding(codes.int(), _PAIRS)
    factors = torch.nn.functional.embedding(scales.int(), _SCALES.unsqueeze(1))
    return (numbers.view(*scales.shape, 32) * factors).view(codes.shape[0], -1)


def activate(variant, gate_up):
    """fp32 [R, I] of the outputs of w13, fp32 [R, 2I] in the order of its rows."""
    if variant.interleaved:
        g, u = gate_up[:, 0::2], gate_up[:, 1::2]
    else:
        g, u = gate_up.chunk(2, dim=1)
    g, u = g.clamp(max=variant.limit), u.clamp(-variant.limit, variant.limit)
    return g / (1 + torch.exp(-variant.alpha * g)) * (u + variant.shift)


def run(layer, calls):
    """fp32 outputs of calls (x bf16 [T, K], ids int32 [T, k], weights f32 [T, k]), all on the CPU. An expert is
    unpacked once for all of them, so many calls cost little more than one."""
    variant = layer.variant
    outputs = [torch.zeros(*(ids.shape if variant.per_route else ids.shape[:1]), layer.K) for _, ids, _ in calls]
    for e in range(layer.E):
        routes = [(ids == layer.first_expert + e).nonzero(as_tuple=True) for _, ids, _ in calls]
        if not any(len(token) for token, _ in routes):
            continue
        x = torch.cat([x[token] for (x, _, _), (token, _) in zip(calls, routes)]).float()
        gate_up = x @ unpack(layer.w13[e], layer.s13[e]).T
        if layer.bias13 is not None:
            gate_up += layer.bias13[e].float()
        a = activate(variant, gate_up).bfloat16().float()
        d = a @ unpack(layer.w2[e], layer.s2[e]).T
        if layer.bias2 is not None:
            d += layer.bias2[e].float()
        for y, (_, _, weights), (token, slot), part in zip(
            outputs, calls, routes, d.split([len(token) for token, _ in routes])
        ):
            if variant.per_route:
                y[token, slot] = part
            else:  # a token may name an expert twice: in order of the slots
                y.index_add_(0, token, weights[token, slot].float().unsqueeze(1) * part)
    return outputs


@dataclass(frozen=True)
class Accuracy:
    rel_l2: float  # |y - reference| / |reference| over everything
    worst: float  # the same of the worst row
    row: int  # which that is
    not_finite: int = 0  # values that are infinite or NaN in both alike, and count for nothing


def accuracy(reference, y):
    """The error of y. A row that is zero in the reference and not in y counts as infinite."""
    want = reference.reshape(-1, reference.shape[-1]).double()
    got = y.detach().cpu().reshape(want.shape).double()
    alike = ~want.isfinite() & ((want == got) | (want.isnan() & got.isnan()))
    error = torch.where(alike, 0, got - want).square().sum(1)
    norm = torch.where(alike, 0, want).square().sum(1)
    rows = torch.where(norm > 0, (error / norm).sqrt(), torch.where(error > 0, math.inf, error))
    rows = torch.where(error.isnan(), math.nan, rows)
    row = int(rows.argmax())  # of NaN if there is one
    total = math.sqrt(error.sum() / norm.sum()) if norm.sum() > 0 else float(rows[row])
    return Accuracy(total, float(rows[row]), row, int(alike.sum()))


def gate(reference):
    """The largest rel_l2 of a bf16 answer; or the rounding of this very reference where that alone is worse, which
    happens to outputs of a few hundred values."""
    return max(GATE, 1.02 * accuracy(reference, reference.bfloat16()).rel_l2)


def passes(a, limit):
    """Also no for NaN, and where the reference itself is not finite, which tells nothing."""
    return not a.not_finite and a.rel_l2 <= limit and a.worst <= GATE_ROW * limit


def unpack_bf16(codes, scales):
    """What mxk_deq has to give, bit for bit."""
    return unpack(codes, scales).bfloat16()
