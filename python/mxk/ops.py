# SPDX-License-Identifier: Apache-2.0
"""Loads the op library for CPUs, libmxk_op_cpu.so."""

import os
import pathlib

import torch

from mxk_gaudi.library import check_torch

_NAME = "libmxk_op_cpu.so"
_loaded = None


def path():
    """Where the library should be: MXK_OP_LIBRARY if set, else beside this file."""
    return pathlib.Path(os.environ.get("MXK_OP_LIBRARY") or pathlib.Path(__file__).with_name(_NAME))


def load():
    """Loads the library once; afterwards torch.ops.mxk.moe_decode and torch.ops.custom_op.mxk_* are there.

    Returns its path. Raises ImportError if it was not built, or built for another torch.
    """
    global _loaded
    if _loaded is None:
        library = path()
        if not library.is_file():
            raise ImportError(
                f"{library} is not there: the ops for CPUs are built by `pip install .`, or by CMake with"
                " -DMXK_TORCH=ON; MXK_OP_LIBRARY names a library elsewhere"
            )
        check_torch(library, torch.__version__)
        torch.ops.load_library(str(library))
        _loaded = library
    return _loaded


def load_if_built():
    if path().is_file():
        load()
