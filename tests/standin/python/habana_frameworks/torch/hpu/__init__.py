# SPDX-License-Identifier: Apache-2.0
"""torch.hpu: one device, which is always there, and done with everything that it was given."""

import ctypes

from habana_frameworks.torch import _plugin
from habana_frameworks.torch.hpu.streams import (  # noqa: F401
    Event,
    Stream,
    current_stream,
    default_stream,
    set_stream,
    stream,
)
from habana_frameworks.torch.utils.internal import is_lazy

if is_lazy():
    from habana_frameworks.torch.hpu.graphs import HPUGraph, graph  # noqa: F401

_initialized = False


def init():
    """Opens the device, if it is not open yet. torch does it before it makes a tensor on the device."""
    global _initialized
    why = ctypes.create_string_buffer(4096)
    if not _plugin.mxk_standin_open_device(why, ctypes.c_size_t(len(why))):
        raise RuntimeError(why.value.decode())
    _initialized = True


_lazy_init = init


def is_initialized():
    return _initialized


def is_available():
    return True


def device_count():
    return 1


def current_device():
    init()
    return 0


def set_device(device):
    pass


def get_device_name(device=None):
    init()
    return "GAUDI2 stand-in on the host"


def synchronize(device=None):
    init()
