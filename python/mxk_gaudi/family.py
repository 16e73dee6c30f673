# SPDX-License-Identifier: Apache-2.0
"""What a port of another model than gpt-oss uses. It calls env.apply(SWITCHES[...]) before habana is imported, makes
one Family, and then either installs it on the method class of its layers, or binds each layer and calls what it gets:

    glm = Family(SWITCHES["glm"], rows="stacked", limit=math.inf, prefill_flag="GLM_MXK_PREFILL")
    glm.install(MethodClass)                            # layers with a moe_op, as vllm-gaudi makes them
    experts = glm.bind(layer, stock, 64, 127, 256)      # any other: y = experts(x, ids, weights)

With the kernels off install() does nothing and bind() gives `stock` back."""

import os

from . import env
from .env import SWITCHES  # noqa: F401
from .hook import MoeHook, Span


class Family(MoeHook):
    """rows and limit: the order of gate and up rows in the port's layers, and the clamp of the model's activation,
    math.inf if it has none. reorder: layers whose rows are not in the order of the kernels get a second w13, which
    costs its size, instead of staying on the stock op. prefill_flag: the environment variable that, set to 1, sends
    calls above the cap through the unpack kernel and the stock bf16 op."""

    def __init__(self, switch, *, rows, limit, reorder=False, prefill_flag=""):
        super().__init__(switch, rows=rows, limit=limit)
        self.reorder = reorder
        self._prefill_flag = prefill_flag

    def ready(self):
        if not super().ready():
            return False
        if self._prefill_flag and os.environ.get(self._prefill_flag) == "1":
            self.prefill = self.variant.deq
            if not self.prefill:
                env.decline(f"{self._prefill_flag}=1, and {self.variant.name} has no kernel to unpack for prefill",
                            self.switch)
        return True

    def bind(self, layer, stock, experts_min, experts_max, global_experts, norm=None, all_reduce=None):
        """What to call, with x, ids and weights, for the routed experts of a layer: the kernels where they can run the
        call, else stock(x, ids, weights). The layer is a torch.nn.Module with the tensors of vLLM's fused experts
        (experts.SERVED); its experts are experts_min to experts_max of global_experts. norm, all_reduce: those of
        Experts.per_route(), for muse. Call it again when the weights were loaded again."""
        if not self.ready():
            return stock
        kernels = None
        if norm is not None:
            def kernels(experts):
                return lambda x, ids, weights: experts.per_route(x, ids, weights, norm, all_reduce)
        return self._forward(layer, stock, None, lambda: _span(experts_min, experts_max, global_experts),
                             kernels=kernels)

    def _span(self, layer, op):
        return _span(op.experts_min, op.experts_max, layer.global_num_experts)


def _span(first, last, total):
    """Ports share experts out in their own ways, such as in 4 groups of 2 ranks: only the range counts."""
    count = max(last - first + 1, 1)
    return Span(first, last, total, first // count, max(total // count, 1))
