# SPDX-License-Identifier: Apache-2.0
"""HPU graphs: operators are recorded while they run, and replayed on the same tensors."""

import gc

import torch
from habana_frameworks.torch.hpu import streams
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def _tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _on_device(tree):
    return any(t.device.type == "hpu" for t in _tensors(tree))


class _Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        on_host = [
            leaf
            for leaf in tree_leaves(result)
            if leaf is not None and not (isinstance(leaf, torch.Tensor) and leaf.device.type == "hpu")
        ]
        if on_host and _on_device((args, kwargs)):
            raise RuntimeError(f"{func}: a result on the host cannot be captured, a replay would not make it again")
        if _on_device((args, kwargs, result)):
            self.calls.append((func, args, kwargs, result))
        return result


class HPUGraph:
    _capturing = None

    def __init__(self):
        self._recorder = None

    def capture_begin(self, dry_run=False):
        if HPUGraph._capturing is not None or self._recorder is not None:
            raise RuntimeError("capture_begin: a capture is under way, or this graph has been captured already")
        HPUGraph._capturing = self
        self._recorder = _Recorder()
        self._recorder.__enter__()

    def capture_end(self):
        if HPUGraph._capturing is not self:
            raise RuntimeError("capture_end: this graph is not being captured")
        HPUGraph._capturing = None
        self._recorder.__exit__(None, None, None)

    def replay(self, asynchronous=False):
        if HPUGraph._capturing is not None or self._recorder is None:
            raise RuntimeError("replay: this graph has not been captured, or a capture is under way")
        with torch.inference_mode():
            for func, args, kwargs, result in self._recorder.calls:
                again = func(*args, **kwargs)
                for old, new in zip(_tensors(result), _tensors(again)):
                    if old.data_ptr() != new.data_ptr():  # else a view, or changed in place
                        old.copy_(new)

    def reset(self):
        if HPUGraph._capturing is self:
            self.capture_end()
        self._recorder = None


class graph:
    """Captures what runs inside of it."""

    def __init__(self, hpu_graph, stream=None, dry_run=False):
        self.hpu_graph = hpu_graph
        self._stream = streams.stream(stream or streams.Stream())

    def __enter__(self):
        gc.collect()
        self._stream.__enter__()
        self.hpu_graph.capture_begin()

    def __exit__(self, *exception):
        self.hpu_graph.capture_end()
        self._stream.__exit__(*exception)
