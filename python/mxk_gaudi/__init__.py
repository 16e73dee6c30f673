# SPDX-License-Identifier: Apache-2.0
"""What runs inside a serving process on Gaudi: the environment, the choice between our kernels and the stock op, and
the hook of gpt-oss. The package stands alone, so that it can be copied into vllm_gaudi/ops/ or a port. env and decline
need the standard library only, and nothing here imports torch before it is used."""
