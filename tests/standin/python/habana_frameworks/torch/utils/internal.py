# SPDX-License-Identifier: Apache-2.0
import functools
import os


@functools.cache
def is_lazy():
    """Whether the process is in lazy mode. The releases that are stood in for are not, unless they are told."""
    mode = os.environ.get("PT_HPU_LAZY_MODE", "0")
    if mode not in ("0", "1"):
        raise ImportError(f"PT_HPU_LAZY_MODE must be 0 or 1, it is '{mode}'")
    return mode == "1"
