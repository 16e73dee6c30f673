# SPDX-License-Identifier: Apache-2.0
"""torch.compile(backend="hpu_backend"): graphs run operator by operator.

A compiled graph takes the kernels of custom ops from the bridge's registry and does not call the op as eager code does,
so an op that registers itself when it is first called must have been called.
"""

import torch
from functorch.compile import make_boxed_func
from habana_frameworks.torch import _plugin
from torch._dynamo.backends.common import aot_autograd


def _compile(module, example_inputs):
    for node in module.graph.nodes:
        if node.op == "call_function" and getattr(node.target, "namespace", "") == "custom_op":
            name = node.target.name().partition(".")[0]
            if not _plugin.mxk_standin_is_registered(name.encode()):
                raise RuntimeError(f"{name} isn't registered in KernelRegistry!")
    return make_boxed_func(module.forward)


torch._dynamo.register_backend(aot_autograd(fw_compiler=_compile), name="hpu_backend")
