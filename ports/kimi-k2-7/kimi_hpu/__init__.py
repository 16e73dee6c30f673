# SPDX-License-Identifier: Apache-2.0
"""What serving Kimi-K2.7 from MXFP4 experts adds to vllm-gaudi: the loader of fused experts (loader.py), and the switch
KIMI_MXK of the kernels (switch.py). patch.py copies it to vllm_gaudi/ops/kimi_hpu, with the runtime mxk_gaudi in it."""
