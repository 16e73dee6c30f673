# SPDX-License-Identifier: Apache-2.0
#
# What is installed into vllm-gaudi: the installer, and the runtime that it installs.
mxk_pytest(install_test install_test.py)
mxk_pytest(gaudi_env_test gaudi_env_test.py)
