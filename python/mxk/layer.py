# SPDX-License-Identifier: Apache-2.0
"""The routed experts of one layer as they are served, on a device: through our kernels, through what the device offers
without them (stock), and for prefill."""

import os
from contextlib import contextmanager

import torch

from mxk_gaudi.layout import permute, relay_bias
from mxk_gaudi.library import MxkError


class Layer:
    """Weights u8 [E, 2I, K/2] and [E, K, I/2], scales u8 [E, 2I, K/32] and [E, K, I/32], biases [E, 2I] and [E, K], all
    on one device; they are kept as they are, no second copy is made but of the biases. x is bf16 [T, K], ids int32
    [T, k] (global), weights f32 [T, k]; results are bf16 [T, K], or [T, k, K] where the variant's output is per route.
    """

    def __init__(self, variant, w13, s13, w2, s2, bias13=None, bias2=None, first_expert=0):
        self.variant, self.first_expert = variant, first_expert
        self.w13, self.s13, self.w2, self.s2, self.bias13, self.bias2 = w13, s13, w2, s2, bias13, bias2
        if w13.dim() != 3 or w2.dim() != 3:
            raise MxkError(f"w13 {list(w13.shape)} and w2 {list(w2.shape)} must be [E, 2I, K/2] and [E, K, I/2]")
        self.E, self.K, self.I = w13.shape[0], 2 * w13.shape[2], 2 * w2.shape[2]
        E, K, I = self.E, self.K, self.I
        shapes = {"w13": (E, 2 * I, K // 2), "s13": (E, 2 * I, K // 32), "w2": (E, K, I // 2), "s2": (E, K, I // 32)}
        shapes |= {"bias13": (E, 2 * I), "bias2": (E, K)}
        for name, shape in shapes.items():
            tensor = getattr(self, name)
            if tensor is None:
                continue
            if tuple(tensor.shape) != shape:
                raise MxkError(f"{name} is {list(tensor.shape)}, w13 and w2 make it {list(shape)} (E={E} K={K} I={I})")
            if name[0] != "b" and tensor.dtype != torch.uint8:
                raise MxkError(f"{name} is {tensor.dtype}, it must be uint8")
        if not variant.bias and (bias13 is not None or bias2 is not None):
            raise MxkError(f"the layer has biases, variant '{variant.name}' takes none")
        self._kernel_bias13 = self._kernel_bias2 = ()  # as further arguments of an op
        if variant.bias:
            bias13 = torch.zeros(E, 2 * I, device=w13.device) if bias13 is None else bias13
            bias2 = torch.zeros(E, K, device=w13.device) if bias2 is None else bias2
            self._kernel_bias13 = (relay_bias(bias13.cpu(), variant.interleaved).to(w13.device),)
            self._kernel_bias2 = (relay_bias(bias2.cpu()).to(w13.device),)
        # Not at the first call, which a graph may be recording.
        self._stock_arguments = None if w13.device.type == "cpu" else self._make_stock_arguments()

    def to(self, device):
        tensors = (self.w13, self.s13, self.w2, self.s2, self.bias13, self.bias2)
        moved = [t if t is None else t.to(device) for t in tensors]
        return Layer(self.variant, *moved, first_expert=self.first_expert)

    def kernel(self, x, ids, weights):
        v, ops = self.variant, torch.ops.custom_op
        w13, w2 = getattr(ops, v.w13_kernel), getattr(ops, v.w2_kernel)
        a = w13(permute(x), self.w13, self.s13, ids, *self._kernel_bias13, self.first_expert)
        return w2(a, self.w2, self.s2, ids, weights, *self._kernel_bias2, self.first_expert)

    def stock(self, x, ids, weights):
        if x.device.type == "cpu":
            with _environment("MXK_BACKEND", "stock"):
                return torch.ops.mxk.moe_decode(
                    x, ids, weights, self.w13, self.s13, self.w2, self.s2, self.bias13, self.bias2,
                    self.variant.name, self.first_expert,
                )
        if not self.variant.per_route:
            return self._fused(x, ids, weights)
        # The op sums over a token's routes: give it each route as a token, unweighted.
        T, k = ids.shape
        each = x.unsqueeze(1).expand(T, k, self.K).reshape(T * k, self.K)
        return self._fused(each, ids.reshape(-1, 1), torch.ones_like(weights).reshape(-1, 1)).view(T, k, self.K)

    def _fused(self, x, ids, weights):
        """The stack's op on packed weights. It takes a list of tensors, one of each expert."""
        v = self.variant
        w13, w2, s13, s2, bias13, bias2 = self._stock_arguments
        inputs, common = (x, ids, weights.bfloat16()), self._range() | dict(block_size=32, is_fp4=True)
        if not v.interleaved:
            return _stock_op("mxfp4_fused_weights")(*inputs, w13, w2, s13, s2, activation="silu", **common)
        op = _stock_op("bias_mxfp4_fused_weights")
        return op(*inputs, w13, w2, bias13, bias2, s13, s2, alpha=v.alpha, limit=v.limit, **common)

    def _make_stock_arguments(self):
        bias13, bias2 = self.bias13, self.bias2
        if self.variant.interleaved:
            # The only op that takes rows in turn computes g * sigmoid(alpha * g) * (u + 1): where u + 0 is wanted, u
            # gets a bias of -1. The op's clamp then acts on u - 1, which is part of the error of this way.
            if bias13 is None:
                bias13 = torch.tensor([0, self.variant.shift - 1]).repeat(self.E, self.I).to(self.w13.device)
            if bias2 is None:
                bias2 = torch.zeros(self.E, self.K, device=self.w13.device)
            bias13, bias2 = bias13.bfloat16(), bias2.bfloat16()
        tensors = (self.w13, self.w2, self.s13, self.s2, bias13, bias2)
        return [t if t is None else [t[e] for e in range(self.E)] for t in tensors]

    def _range(self):
        last = self.first_expert + self.E - 1
        return dict(permuted_weights=True, experts_min=self.first_expert, experts_max=last)

    def dequantize(self, e):
        """bf16 [2I, K] and [K, I] of expert e, by mxk_deq. The slices are taken where they are used: in lazy mode an op
        of ours can read the wrong data from a view that an earlier graph made."""
        deq = torch.ops.custom_op.mxk_deq
        one = slice(e, e + 1)
        return deq(self.w13[one], self.s13[one])[0], deq(self.w2[one], self.s2[one])[0]

    def prefill(self, x, ids, weights):
        """Any number of tokens: all experts unpacked once, then the stack's bf16 op."""
        w13, w2 = zip(*(self.dequantize(e) for e in range(self.E)))
        if x.device.type == "cpu":
            return self._bf16_experts(x, ids, weights, w13, w2)
        op = _stock_op("fused_weights")
        return op(x, ids, weights.bfloat16(), list(w13), list(w2), activation="silu", **self._range())

    def _bf16_experts(self, x, ids, weights, w13, w2):
        y = torch.zeros_like(x, dtype=torch.float32)
        for e in range(self.E):
            token, slot = (ids == self.first_expert + e).nonzero(as_tuple=True)
            if not len(token):
                continue
            gate, up = (x[token] @ w13[e].T).float().chunk(2, dim=1)
            d = (torch.nn.functional.silu(gate) * up).bfloat16() @ w2[e].T
            y.index_add_(0, token, (weights[token, slot].bfloat16().unsqueeze(1) * d).float())
        return y.bfloat16()


def _stock_op(name):
    try:
        return getattr(torch.ops.hpu.mixture_of_experts, name)
    except AttributeError as e:
        raise MxkError(f"hpu::mixture_of_experts.{name}: this release has no such op; nothing is run") from e


@contextmanager
def _environment(name, value):
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def random_layer(variant, experts, seed, K=None, I=None, first_expert=0):
    """A layer of the serving shape, or of K and I, on the CPU; same arguments, same bytes. All 16 codes alike, and
    scales with which the weights have a standard deviation of 0.023, as trained ones do."""
    K, I = K or variant.serving.K, I or variant.serving.I
    random = torch.Generator().manual_seed(seed)

    def some(*shape):
        words = -(-torch.Size(shape).numel() // 8)
        numbers = torch.randint(-(2**63), 2**63 - 1, (words,), generator=random)
        return numbers.view(torch.uint8)[: torch.Size(shape).numel()].view(shape)

    def scales(*shape):
        bits = some(*shape)
        return 118 + (bits & 1) + (bits >> 1 & 1) + (bits >> 2 & 1)

    w13, s13 = some(experts, 2 * I, K // 2), scales(experts, 2 * I, K // 32)
    w2, s2 = some(experts, K, I // 2), scales(experts, K, I // 32)
    biases = ()
    if variant.bias:
        biases = [0.1 * torch.randn(experts, n, generator=random) for n in (2 * I, K)]
        biases = [b.bfloat16() for b in biases]
    return Layer(variant, w13, s13, w2, s2, *biases, first_expert=first_expert)
