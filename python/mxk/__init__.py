# SPDX-License-Identifier: Apache-2.0
"""Routed experts of MXFP4 mixture-of-experts models straight from their packed weights.

Importing the package loads its PyTorch ops for CPUs, torch.ops.mxk.moe_decode and torch.ops.custom_op.mxk_*, if they
were built (`pip install .` does). mxk_gaudi.load loads those for Gaudi 2 that build.sh makes. The other modules are for
the scripts of the repository that prove and time a build.
"""

from mxk import ops

__all__ = ["moe_decode", "ops"]

ops.load_if_built()


def moe_decode(x, topk_ids, topk_weights, w13, s13, w2, s2, bias13=None, bias2=None, *, variant, first_expert=0):
    """The routed experts of one layer, on a CPU: y bf16 [T, K], or [T, k, K] for variants with per-route output.

    x: bf16 [T, K]. topk_ids: int32 or int64 [T, k], global; ids outside [first_expert, first_expert + E) are skipped.
    topk_weights: float32 or bfloat16 [T, k], used as they are. w13: uint8 [E, 2I, K/2]; s13: uint8 [E, 2I, K/32];
    w2: uint8 [E, K, I/2]; s2: uint8 [E, K, I/32]; they must be contiguous and are read where they lie.
    bias13 [E, 2I], bias2 [E, K]: float32, or bfloat16, which is converted in every call. variant: a row of
    the table (`mxk variants`). The environment variable MXK_BACKEND names a backend; by default the best one of the
    machine runs, on torch.get_num_threads() threads. Raises RuntimeError with one clear line and computes nothing if a
    tensor is not what this says.
    """
    ops.load()
    return ops.torch.ops.mxk.moe_decode(
        x, topk_ids, topk_weights, w13, s13, w2, s2, bias13, bias2, variant, first_expert
    )
