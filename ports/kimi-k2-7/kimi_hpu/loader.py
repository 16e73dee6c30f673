# SPDX-License-Identifier: Apache-2.0
"""Loads fused MXFP4 experts under expert parallelism: tensors that hold all experts of a layer, w13 u8 [E, 2I, K/2]
and [E, 2I, K/32], w2 u8 [E, K, I/2] and [E, K, I/32]. Rank r of n gets the experts [r*E/n, (r+1)*E/n), as they are.

DeepseekV2Model.load_weights of vLLM, which loads every model of that family, knows one tensor per expert and
projection only. It is wrapped, not edited: the wrapper takes the fused tensors out of the stream and leaves all others,
and so does not depend on the body of a method that changes from release to release. vllm-gaudi wraps the same method.
"""

import functools
import re
from dataclasses import dataclass

FUSED = re.compile(r"((?:.*\.)?experts\.)(?:routed_experts\.)?((?:w13|w2)_weight(?:_scale)?)")


@dataclass(frozen=True)
class Split:
    """How the experts of a layer are spread over the ranks."""

    experts: int  # of the layer, on all ranks
    ep_size: int
    ep_rank: int
    tp_size: int = 1  # ranks that share each expert: 1 under expert parallelism
    placement: str = "linear"


def find(name, params):
    """The parameter that the fused tensor goes to; None if the tensor is not one, or the model has no such parameter,
    as for layers on other stages of a pipeline."""
    match = FUSED.fullmatch(name)
    if match is None:
        return None
    names = (match[1] + match[2], f"{match[1]}routed_experts.{match[2]}")  # the second in newer versions of vLLM
    return next((n for n in names if n in params), None)


def load(name, tensor, split, param):
    """Copies the part of this rank into the parameter, or raises ValueError and leaves it as it is."""
    wrong = _why_not(tensor, split, param)
    if wrong:
        raise ValueError(f"{name}: {wrong}; loading stops")
    count = split.experts // split.ep_size
    first = split.ep_rank * count
    # vLLM gives views of mapped files: only the pages of these experts are read.
    param.data.copy_(tensor[first:first + count])


def _why_not(tensor, split, param):
    shape, own = list(tensor.shape), list(param.shape)
    if split.tp_size != 1:
        return (f"tensor parallel size {split.tp_size} without expert parallelism would cut each of the"
                f" {split.experts} experts into {split.tp_size} parts, and fused MXFP4 experts are split by whole"
                f" experts only, {split.experts} over {split.tp_size} ranks: pass --enable-expert-parallel")
    if split.placement != "linear":
        return f"expert placement is {split.placement}; it must be linear, where a rank's experts are consecutive"
    if str(tensor.dtype) != "torch.uint8":
        return f"the tensor is {tensor.dtype}; packed MXFP4 weights and their scales must be torch.uint8"
    if str(param.dtype) != "torch.uint8":
        return (f"the tensor is packed MXFP4, torch.uint8, and the layer was made for {param.dtype}:"
                " quantization_config in config.json does not say how the experts are stored")
    if len(shape) != 3:
        return f"the tensor has {len(shape)} dimensions {shape}; all experts of a layer have 3"
    if shape[0] != split.experts:
        return f"the tensor has {shape[0]} experts, the layer {split.experts} (redundant ones are not supported)"
    if split.experts % split.ep_size:
        return f"{split.experts} experts cannot be split over {split.ep_size} ranks: each must have as many"
    part = [split.experts // split.ep_size, *shape[1:]]
    if part != own:
        return f"rank {split.ep_rank} of {split.ep_size} takes {part} of the tensor {shape}, its parameter is {own}"
    return None


def split_of(layer):
    """What a layer of vLLM says of itself."""
    config = layer.moe_config
    placement = getattr(layer, "expert_placement_strategy", None) or "linear"  # older versions know no other
    return Split(layer.global_num_experts, config.ep_size, config.ep_rank, config.tp_size, placement)


def patch(model_class):
    """Lets the class load fused experts; what else it loads goes through its own method. Once per class."""
    stock = model_class.load_weights
    if getattr(stock, "loads_fused_experts", False):
        return

    @functools.wraps(stock)
    def load_weights(self, weights):
        params = dict(self.named_parameters())
        loaded = set()

        def others():
            for name, tensor in weights:
                target = find(name, params)
                if target is None:
                    yield name, tensor
                else:
                    layer = self.get_submodule(target.rpartition(".")[0])
                    load(name, tensor, split_of(layer), params[target])
                    loaded.add(target)

        return loaded | set(stock(self, others()))

    load_weights.loads_fused_experts = True
    model_class.load_weights = load_weights
