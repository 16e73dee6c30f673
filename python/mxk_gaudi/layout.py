# SPDX-License-Identifier: Apache-2.0
"""The orders in which the kernels take activations and biases. Weights stay as they are served."""

import torch

CHUNK = 512  # what activation rows are padded to


def permute(x):
    """Rows of activations as the kernels take them: padded to chunks of 512, where element 4i + p is at 128p + i."""
    chunks = -(-x.shape[1] // CHUNK)
    padded = torch.nn.functional.pad(x, (0, CHUNK * chunks - x.shape[1]))
    return padded.view(-1, chunks, CHUNK // 4, 4).transpose(2, 3).reshape(-1, CHUNK * chunks)


def relay_bias(bias, interleaved=True):
    """Bias of rows [E, N] as the kernels take it: fp32 [E, 8, N/8], that of row 8u + i at [i, u]. Rows that are all
    gates, then all ups, are counted in turn."""
    bias = bias.float()
    if not interleaved:
        bias = bias.unflatten(1, (2, -1)).transpose(1, 2).flatten(1)
    return bias.unflatten(1, (-1, 8)).transpose(1, 2).contiguous()
