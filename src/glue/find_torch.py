#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What build.sh has to know of the machine's Python: where torch and the Gaudi bridge are.

    find_torch.py [--pt2]

Prints lines of a name, a tab and a value, one called `missing` for each thing that is not there. The bridge's package
is looked at and not imported, if that will do: importing it looks for a card.
"""

import importlib.metadata
import importlib.util
import os
import platform
import re
import sys

OLDEST = (2, 6)


def torch_lines():
    try:
        import torch
    except Exception as e:  # a broken installation raises what it likes
        why = "is not installed" if isinstance(e, ModuleNotFoundError) and e.name == "torch" else f"does not load: {e}"
        yield "missing", f"torch: {sys.executable} has none, it {why} (PYTHON names another Python)"
        return
    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < OLDEST:
        yield "missing", f"torch {OLDEST[0]}.{OLDEST[1]} or later: {sys.executable} has {torch.__version__}"
    yield "torch_version", torch.__version__
    yield "torch_root", os.path.dirname(torch.__file__)
    yield "cxx11_abi", str(int(torch.compiled_with_cxx11_abi()))


def package_folders(name):
    """<the package habana_frameworks>/torch/NAME, where it is."""
    spec = importlib.util.find_spec("habana_frameworks")
    places = spec.submodule_search_locations if spec else None
    return [os.path.join(place, "torch", name) for place in places or ()]


def ask_package(name):
    """The bridge's own answer, should a release have moved it."""
    try:
        from habana_frameworks.torch.utils import lib_utils
        return [lib_utils.get_include_dir() if name == "include" else lib_utils.get_lib_dir()]
    except Exception:
        return []


def folder_lines(key, variable, name, files):
    looked = []
    places = [lambda: [os.environ[variable]]] if os.environ.get(variable) else [package_folders, ask_package]
    for place in places:
        for folder in place() if len(places) == 1 else place(name):
            looked.append(folder)
            if all(os.path.isfile(os.path.join(folder, file)) for file in files):
                yield key, os.path.abspath(folder)
                return
    where = ", ".join(dict.fromkeys(looked)) or "the package habana_frameworks, which is not installed"
    for file in files:
        if not any(os.path.isfile(os.path.join(folder, file)) for folder in looked):
            yield "missing", f"the PyTorch bridge: no {file} in {where} ({variable} names another folder)"


def bridge_version():
    try:
        return importlib.metadata.version("habana-torch-plugin")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def main():
    pt2 = sys.argv[1:] == ["--pt2"]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever packages print when they are imported is not an answer
    headers, plugins = ["hpu_custom_op.h"], ["libhabana_pytorch_plugin.so"]
    if pt2:
        headers.append("hpu_custom_op_pt2.h")
        plugins.append("libhabana_pytorch2_plugin.so")
    lines = [("python_version", platform.python_version()), ("bridge_version", bridge_version()), *torch_lines(),
             *folder_lines("bridge_include", "MXK_BRIDGE_INCLUDE", "include", headers),
             *folder_lines("bridge_lib", "MXK_BRIDGE_LIB", "lib", plugins)]
    for key, value in lines:
        print(key, " ".join(value.split("\n")), sep="\t", file=out)
    out.close()


if __name__ == "__main__":
    main()
