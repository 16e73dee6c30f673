# SPDX-License-Identifier: Apache-2.0
"""KIMI_MXK=1 turns the kernels on, KIMI_MXK_LIB says where build.sh put them. Without the flag nothing is changed."""

import math

from .mxk_gaudi import env

KIMI = env.SWITCHES["kimi"]


def apply():
    """Called above all imports of vllm_gaudi: habana reads the environment once."""
    env.apply(KIMI)


def install_kernels(method):
    """Called at the end of vllm_gaudi/ops/hpu_mxfp4.py with the class that serves packed MXFP4 experts. Its name says
    gpt-oss, but it takes experts without biases too. Layers that the kernels do not fit keep the stock op."""
    result = env.applied(KIMI)
    if not result.on:
        return
    try:
        from .mxk_gaudi.family import Family

        Family(KIMI, rows="stacked", limit=math.inf).install(method)
    except Exception as e:  # the engine must start
        if result.strict:
            raise
        env.decline(f"the hook was not installed: {type(e).__name__}: {e}", KIMI)
