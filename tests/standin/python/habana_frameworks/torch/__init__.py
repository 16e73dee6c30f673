# SPDX-License-Identifier: Apache-2.0
"""Stand-in for the Habana PyTorch bridge: torch.device("hpu") in host memory, custom ops run emulated.

Importing it loads the plugin for the mode: the legacy one with PT_HPU_LAZY_MODE=1, else that of eager mode and
torch.compile. The plugins are in the directory that MXK_STANDIN_LIB names.
"""

import ctypes
import os

import torch
from habana_frameworks.torch.utils.internal import is_lazy


def _load_plugin():
    name = "libhabana_pytorch_plugin.so" if is_lazy() else "libhabana_pytorch2_plugin.so"
    directory = os.environ.get("MXK_STANDIN_LIB", "")
    path = os.path.join(directory, name)
    if not directory or not os.path.isfile(path):
        raise ImportError(
            f"this habana_frameworks is a stand-in, and its plugin {name} is not in the directory that MXK_STANDIN_LIB "
            f"names ('{directory}')"
        )
    return ctypes.CDLL(path, ctypes.RTLD_GLOBAL)


_plugin = _load_plugin()

from habana_frameworks.torch import hpu  # noqa: E402

torch._register_device_module("hpu", hpu)

from habana_frameworks.torch import core, stock_moe  # noqa: E402, F401

if not is_lazy():
    from habana_frameworks.torch import compile_backend  # noqa: F401
