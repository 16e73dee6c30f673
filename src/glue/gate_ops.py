#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gate of build.sh: an op library registers the ops of its build and no other, and none that lazy mode mixes up.

    gate_ops.py LIBRARY PLUGIN TABLE.json

PLUGIN is the bridge's library, which registers ops of its own: it is loaded first.
"""

import ctypes
import json
import os
import sys

import torch

KEYS = ("HPU", "Meta")


class Failed(Exception):
    pass


def signature(kernel):
    return tuple((dtype, rank) for _, dtype, rank in kernel["inputs"])


def check_signatures(kernels):
    """In lazy mode an op whose inputs are like another's gets that one's compiled recipe, and its result."""
    seen = {}
    for kernel in kernels:
        other = seen.setdefault(signature(kernel), kernel["name"])
        if other != kernel["name"]:
            inputs = ", ".join(f"{dtype} of rank {rank}" for dtype, rank in signature(kernel))
            raise Failed(f"{other} and {kernel['name']} have the same inputs ({inputs}), which lazy mode cannot tell "
                         "apart")


def check_ops(registered, kernels):
    """`registered`: names of the ops that loading the library added."""
    wanted = {"custom_op::" + kernel["name"] for kernel in kernels}
    for what, names in (("not registered", wanted - registered), ("no op of this build", registered - wanted)):
        if names:
            raise Failed(f"{what}: {', '.join(sorted(names))}")
    for kernel in kernels:
        op = "custom_op::" + kernel["name"]
        arguments = [str(argument.type) for argument in torch._C._get_schema(op, "").arguments]
        want = ["Tensor"] * len(kernel["inputs"]) + ["int"] * len(kernel["parameters"])
        if arguments != want:
            raise Failed(f"{op} takes {', '.join(arguments)}; by its row in the kernel table it is {', '.join(want)}")
        for key in KEYS:
            if not torch._C._dispatch_has_kernel_for_dispatch_key(op, key):
                raise Failed(f"{op} has no kernel for {key}")


def main():
    library, plugin, table = sys.argv[1:]
    with open(table, encoding="utf-8") as f:
        kernels = json.load(f)["kernels"]
    try:
        check_signatures(kernels)
        ctypes.CDLL(plugin, mode=ctypes.RTLD_GLOBAL)
        before = set(torch._C._dispatch_get_all_op_names())
        torch.ops.load_library(library)
        check_ops(set(torch._C._dispatch_get_all_op_names()) - before, kernels)
    except (Failed, OSError) as e:
        sys.exit(f"{os.path.basename(library)}: {e}")


if __name__ == "__main__":
    main()
