# SPDX-License-Identifier: Apache-2.0
"""Where the scripts run: hpu, a Gaudi card; emu, the same path with a stand-in for the card's PyTorch on the host; cpu,
the ops of libmxk_op_cpu.so."""

import os
import sys
from pathlib import Path

import torch

from mxk_gaudi import load as gaudi
from mxk_gaudi.library import MxkError, find, read

from . import ops

NAMES = ("hpu", "cpu", "emu")
ROOT = Path(__file__).resolve().parents[2]


def cpu_library(directory=None):
    """Loads libmxk_op_cpu.so of a folder, else the one that mxk.ops finds, and returns its path."""
    if directory:
        path = Path(directory) / "libmxk_op_cpu.so"
        if not path.is_file():
            raise MxkError(f"{path}: there is no such file; nothing is run")
        os.environ["MXK_OP_LIBRARY"] = str(path)
    try:
        library = ops.load()
    except ImportError as e:
        raise MxkError(f"{e}; nothing is run") from e
    if directory and not library.samefile(path):
        raise MxkError(f"{path}: {library} is loaded already, and there may be only one; nothing is run")
    return library


def _stand_in():
    """Puts the stand-in for the card's package before any other, with what it needs from the default build."""
    sys.path.insert(0, str(ROOT / "tests" / "standin" / "python"))
    build = ROOT / "build" / "dev"
    os.environ.setdefault("MXK_STANDIN_LIB", str(build / "standin" / "lib"))
    os.environ.setdefault("MXK_STOCK_TPC_LIB", str(build / "tests" / "libfake_stock.so"))
    if not Path(os.environ["MXK_STANDIN_LIB"]).is_dir():
        raise MxkError(f"MXK_STANDIN_LIB: {os.environ['MXK_STANDIN_LIB']} is no folder; build with MXK_TORCH on first")


class Device:
    """One for each process: ops are registered for good."""

    def __init__(self, name, variant, directory=None):
        self.name, self.torch = name, "cpu" if name == "cpu" else "hpu"
        if not variant:
            raise MxkError("--variant is missing; nothing is run")
        if name == "cpu":
            library = cpu_library(directory)
        else:
            if not directory:
                raise MxkError(f"--device {name} needs --lib BUILD, what build.sh made; nothing is run")
            if name == "emu":
                _stand_in()
            library = gaudi.load(directory, variant)
        self.variants = read(library)
        self.variant = find(self.variants, variant)
        self.library, self.build = library, gaudi.manifest(directory) if self.torch == "hpu" else None
        if self.torch == "hpu":
            import habana_frameworks.torch as bridge  # not before load()
            import habana_frameworks.torch.core as core

            self._bridge, self._core, self._lazy = bridge, core, gaudi.is_lazy()
            if not self._lazy:
                gaudi.warmup(self.variant)

    def to(self, batch):
        return tuple(t.to(self.torch) for t in batch.tensors)

    def together(self, function):
        """What function gives, as one graph: all its ops and no other's."""
        if self.torch == "cpu":
            return function()
        if not self._lazy:  # some of the stack's ops are only in compiled graphs
            torch._dynamo.reset()  # after some graphs of one function it would run without one, and say nothing
            return torch.compile(function, backend="hpu_backend", dynamic=False)()
        self._core.mark_step()
        result = function()
        self._core.mark_step()
        return result

    def synchronize(self):
        if self.torch == "hpu":
            self._bridge.hpu.synchronize()

    def capture(self, function):
        """function as something to call often, which costs the device's work and one launch. On a card it is captured
        once: its inputs must stay where they are, and each call writes the same results."""
        if self.torch == "cpu":
            return function
        if not self._lazy:
            torch._dynamo.reset()
            return torch.compile(function, backend="hpu_backend", dynamic=False)
        self._core.mark_step()  # what came before is not part of it
        hpu = self._bridge.hpu
        graph = hpu.HPUGraph()
        with hpu.stream(hpu.Stream()):
            graph.capture_begin()
            results = function()
            graph.capture_end()

        def replay():
            graph.replay()
            return results

        return replay
