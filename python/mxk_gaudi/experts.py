# SPDX-License-Identifier: Apache-2.0
"""The routed experts of one layer through the kernels. The layer's tensors are read when it is called, so they may be
moved or replaced; what is made of them at load time is kept in buffers of the layer, which move with it and are made
again when the weights are loaded again: by process_weights_after_loading, or by load_state_dict."""

import torch

from .layout import permute, relay_bias

# As vLLM names the tensors of a layer.
SERVED = {"w13": "w13_weight", "s13": "w13_weight_scale", "w2": "w2_weight", "s2": "w2_weight_scale",
          "b13": "w13_bias", "b2": "w2_bias"}
BIAS13, BIAS2 = "mxk_bias13", "mxk_bias2"
REORDERED = {"w13": "mxk_w13", "s13": "mxk_s13"}


def served(layer):
    """The tensors that a layer has, by their short names."""
    found = {name: getattr(layer, attribute, None) for name, attribute in SERVED.items()}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def unusual_scales(layer):
    """How many scale bytes of a layer are 0, and how many 255."""
    scales = [served(layer)[name].detach().cpu() for name in ("s13", "s2")]
    return tuple(sum(int((s == byte).sum()) for s in scales) for byte in (0, 255))


def forget(layer):
    """Takes away what Experts keeps on a layer."""
    for name in (BIAS13, BIAS2, *REORDERED.values()):
        if name in layer._buffers:
            delattr(layer, name)


class Experts:
    """Calls take x bf16 [T, K], ids [T, k] of any integer type, global, and routing weights [T, k] of any float type.
    rows: the order of gate and up rows in the layer; if it is not the variant's, w13 and s13 are copied in that order.
    """

    def __init__(self, variant, layer, first_expert, rows):
        self.variant, self.layer, self.first_expert = variant, layer, first_expert
        tensors = served(layer)
        self.E, self.I, self.K = tensors["w13"].shape[0], tensors["w13"].shape[1] // 2, tensors["w2"].shape[1]
        # On the CPU and then copied: in lazy mode an op of ours must not be given a view of an earlier graph.
        self._interleaved, self._reordered = rows == "interleaved", (rows == "interleaved") != variant.interleaved
        self.copied = sum(tensors[name].numel() for name in REORDERED) if self._reordered else 0  # bytes
        self.refresh()

    def refresh(self):
        """Makes again what is kept, from the layer's tensors as they are now."""
        tensors = served(self.layer)
        if self._reordered:
            for name, buffer in REORDERED.items():
                self._keep(buffer, _reorder(tensors[name].detach().cpu(), self.variant.interleaved))
        if self.variant.bias:
            self._keep(BIAS13, relay_bias(tensors["b13"].detach().cpu(), self._interleaved))
            self._keep(BIAS2, relay_bias(tensors["b2"].detach().cpu()))

    def _keep(self, name, tensor):
        device, kept = served(self.layer)["w13"].device, self.layer._buffers.get(name)
        if kept is not None and (kept.shape, kept.dtype, kept.device) == (tensor.shape, tensor.dtype, device):
            kept.copy_(tensor)  # a graph that was recorded knows its address
        else:
            self.layer.register_buffer(name, tensor.to(device), persistent=False)  # not in checkpoints

    def _tensors(self):
        tensors = served(self.layer)
        if self._reordered:
            tensors.update({name: getattr(self.layer, buffer) for name, buffer in REORDERED.items()})
        return tensors

    def __call__(self, x, ids, weights):
        """y bf16 [T, K], the sum over a token's local routes; for a variant with output per route d [T, k, K],
        unweighted, zero for routes of other ranks."""
        v, t, ops = self.variant, self._tensors(), torch.ops.custom_op
        bias13, bias2 = ((getattr(self.layer, BIAS13),), (getattr(self.layer, BIAS2),)) if v.bias else ((), ())
        ids, weights = ids.to(torch.int32).contiguous(), weights.to(torch.float32).contiguous()
        a = getattr(ops, v.w13_kernel)(permute(x), t["w13"], t["s13"], ids, *bias13, self.first_expert)
        return getattr(ops, v.w2_kernel)(a, t["w2"], t["s2"], ids, weights, *bias2, self.first_expert)

    def per_route(self, x, ids, weights, norm, all_reduce=None):
        """y bf16 [T, K] of a model that normalises each expert's output. A rank that has a part of I has a part of the
        sum over I, so ranks add first (all_reduce); the norm does not see the routing weight, so that comes after it.
        norm must leave rows of zeros, which routes of other ranks have, as they are."""
        d = self(x, ids, weights)
        if all_reduce is not None:
            d = all_reduce(d)
        return (norm(d).float() * weights.float().unsqueeze(-1)).sum(1).to(x.dtype)

    def prefill(self, x, ids, weights):
        """Any number of tokens: each local expert is unpacked once, and the stock bf16 op multiplies. Slices are taken
        in the graph of the call, for the same reason as above."""
        t, deq = self._tensors(), torch.ops.custom_op.mxk_deq
        one = [slice(e, e + 1) for e in range(self.E)]
        return torch.ops.hpu.mixture_of_experts.fused_weights(
            x, ids.to(torch.int32), weights.to(x.dtype), [deq(t["w13"][e], t["s13"][e])[0] for e in one],
            [deq(t["w2"][e], t["s2"][e])[0] for e in one], permuted_weights=True, activation="silu",
            experts_min=self.first_expert, experts_max=self.first_expert + self.E - 1)


def _reorder(rows, interleaved):
    """[E, 2I, ...] with gates and ups in turn, of halves; or the other way round."""
    shape = (2, -1) if interleaved else (-1, 2)
    return rows.unflatten(1, shape).transpose(1, 2).flatten(1, 2).contiguous()
