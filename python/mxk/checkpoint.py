# SPDX-License-Identifier: Apache-2.0
"""One layer's experts out of safetensors files, in the layouts that the mxk command reads: the Hugging Face one of
gpt-oss, the fused one of vLLM, and one tensor per expert and projection (Quark, DeepSeek, compressed-tensors names)."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from mxk_gaudi.library import MxkError

from .layer import Layer

# Names of w13, s13, w2, s2, bias13, bias2; of one expert weight and scale of gate, up, down.
_GPTOSS = [f"{name}_proj_{part}" for name in ("gate_up", "down") for part in ("blocks", "scales")]
_GPTOSS += ["gate_up_proj_bias", "down_proj_bias"]
_FUSED = "w13_weight w13_weight_scale w2_weight w2_weight_scale w13_bias w2_bias".split()
_PROJECTIONS = {"gate_proj": 0, "w1": 0, "up_proj": 2, "w3": 2, "down_proj": 4, "w2": 4}
_LEAVES = {"weight": 0, "weight_packed": 0, "weight_scale": 1, "scale": 1}
_FOREIGN = "bias weight_scale_2 weight_global_scale weight_zero_point".split()  # more than plain MXFP4

_NUMBER = r"(0|[1-9]\d{0,5})"
_NAMES = [
    re.compile(rf"((?:.*\.)?)({'|'.join(_GPTOSS)})"),
    re.compile(rf"((?:.*[._/:-])?)({'|'.join(_FUSED)})"),
    re.compile(rf"((?:.*\.)?experts\.){_NUMBER}\.({'|'.join(_PROJECTIONS)})\.({'|'.join([*_LEAVES, *_FOREIGN])})"),
]
_BYTES = ("U8", "I8", "F4")
_SCALES = ("U8", "F8_E8M0")
_REALS = ("BF16", "F16", "F32")


@dataclass
class Found:
    layer: Layer  # experts [first_expert, first_expert + E) of the model's layer
    index: int
    total: int  # experts in the checkpoint
    router: tuple


class _Files:
    """The tensors of a directory, or of one file, by name."""

    def __init__(self, path):
        try:
            from safetensors import SafetensorError, safe_open
        except ImportError as e:
            raise MxkError(f"--checkpoint needs the Python package safetensors ({e}); nothing is read") from e
        path, index = Path(path), Path(path) / "model.safetensors.index.json"
        try:
            if index.is_file():
                weight_map = json.loads(index.read_text())["weight_map"]
                names = sorted(set(weight_map.values()))
                if any(Path(name).name != name for name in names):
                    raise MxkError(f"{index}: names a file outside its directory; nothing is read")
                paths = [path / name for name in names]
            else:
                paths = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
            self._files = {p: safe_open(p, framework="pt") for p in paths}
            self.names = {name: p for p, file in self._files.items() for name in file.keys()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as e:
            raise MxkError(f"{path}: {type(e).__name__}: {e}; nothing is read") from e
        if not self.names:
            raise MxkError(f"{path}: no safetensors file with a tensor in it; nothing is read")
        if index.is_file() and (lost := weight_map.keys() - self.names.keys()):
            raise MxkError(f"{index}: tensor '{min(lost)}' is not in '{weight_map[min(lost)]}'; nothing is read")

    def slice(self, name):
        return self._files[self.names[name]].get_slice(name)

    def type(self, name):
        return self.slice(name).get_dtype()

    def read(self, name, first=None, count=None):
        if first is None:
            return self._files[self.names[name]].get_tensor(name)
        return self.slice(name)[first : first + count]


@dataclass
class _Group:
    """The tensors of one layer: name of each (expert, slot)."""

    kind: int
    prefix: str
    parts: dict

    def number(self):
        numbers = re.findall(rf"(?:^|\.)layers\.{_NUMBER}(?=\.)", self.prefix)
        return int(numbers[-1]) if numbers else None

    def packed(self, files):
        """Could this be MXFP4? Experts of other types (BF16, FP8) are left out."""
        types = [files.type(name) for (_, slot), name in self.parts.items() if slot in (0, 2, 4) and self.weight(slot)]
        return any(t in _BYTES for t in types) or not types

    def weight(self, slot):
        return slot % 2 == 0 and (self.kind == 2 or slot < 4)


def _groups(files):
    groups = {}
    for name in files.names:
        for kind, pattern in enumerate(_NAMES):
            if match := pattern.fullmatch(name):
                break
        else:
            continue
        prefix, *rest = match.groups()
        if kind < 2:
            expert, slot = 0, (_GPTOSS, _FUSED)[kind].index(rest[0])
        else:
            expert, slot = int(rest[0]), 6
            if rest[2] in _LEAVES:
                slot = _PROJECTIONS[rest[1]] + _LEAVES[rest[2]]
        parts = groups.setdefault((prefix, kind), _Group(kind, prefix, {})).parts
        if (expert, slot) in parts:
            raise MxkError(f"tensors '{name}' and '{parts[expert, slot]}' name the same weights; nothing is read")
        parts[expert, slot] = name
    return [group for group in groups.values() if group.packed(files)]


def _pick(groups, index, path):
    """The layer asked for and its number; without numbers in the names, layers count from 0 in their order."""

    def natural(group):
        return [(len(part), part) if part.isdigit() else (0, part) for part in re.split(r"(\d+)", group.prefix)]

    groups = sorted(groups, key=natural)
    if all(group.number() is None for group in groups):
        layers = list(enumerate(groups))
    else:
        layers = [(group.number(), group) for group in groups if group.number() is not None]
        layers.sort(key=lambda pair: pair[0])
    if not layers:
        raise MxkError(f"{path}: holds no MXFP4 expert layer; nothing is read")
    chosen = [pair for pair in layers if index is None or pair[0] == index]
    if not chosen:
        raise MxkError(f"{path}: no layer {index} among its layers {layers[0][0]} to {layers[-1][0]}; nothing is read")
    number, group = chosen[0]
    if sum(other == number for other, _ in layers) > 1:
        raise MxkError(f"{path}: more than one set of tensors is layer {number}; nothing is read")
    return number, group


class _Reader:
    """Tensors of one layer with their types and shapes checked."""

    def __init__(self, files, group, where):
        self.files, self.group, self.where = files, group, where
        foreign = [name for (_, slot), name in group.parts.items() if slot == 6]
        if foreign:
            self.fail(foreign[0], "weights with such a tensor are not plain MXFP4")

    def fail(self, name, why):
        raise MxkError(f"{self.where}: tensor '{name}': {why}; nothing is read")

    def name(self, slot, expert=0):
        if (expert, slot) not in self.group.parts:
            if self.group.kind == 2:
                projection = ("gate_proj or w1", "up_proj or w3", "down_proj or w2")[slot // 2]
                leaf = f"{expert}.<{projection}>.<{'weight_scale or scale' if slot % 2 else 'weight'}>"
            else:
                leaf = (_GPTOSS, _FUSED)[self.group.kind][slot]
            self.fail(self.group.prefix + leaf, "is missing")
        return self.group.parts[expert, slot]

    def shape(self, slot, expert=0):
        """Of weights, as rows of bytes."""
        name = self.name(slot, expert)
        shape = self.files.slice(name).get_shape()
        if len(shape) < 2:
            self.fail(name, f"{shape} where packed weights have more dimensions")
        return shape

    def bytes(self, slot, expert, want, part=None):
        """u8 of the shape wanted: weights [.., C/2], or [.., C/32, 16], and scales [.., C/32]."""
        name, weight = self.name(slot, expert), self.group.weight(slot)
        kind, types = self.files.type(name), _BYTES if weight else _SCALES
        if kind not in types:
            nvfp4 = ": scales of NVFP4, in groups of 16" if kind == "F8_E4M3" else ""
            self.fail(name, f"is {kind} where {' or '.join(types)} is needed{nvfp4}")
        tensor = self.files.read(name, *(part or ())).view(torch.uint8)
        shapes = [want] + [want[:-1] + (want[-1] // 16, 16)] * weight
        if tuple(tensor.shape) not in shapes:
            self.fail(name, f"{list(tensor.shape)} where {list(want)} is needed")
        return tensor.reshape(want)

    def bias(self, slot, want, part):
        if (0, slot) not in self.group.parts:
            return None
        name = self.name(slot)
        if self.files.type(name) not in _REALS:
            self.fail(name, f"is {self.files.type(name)} where {' or '.join(_REALS)} is needed")
        tensor = self.files.read(name, *part)
        if tuple(tensor.shape) != want:
            self.fail(name, f"{list(tensor.shape)} where {list(want)} is needed")
        return tensor.float()


def load(path, variant, index=None, experts=None):
    """Layer `index` of the checkpoint (default: its first) and `experts` of its experts (default: as many as a rank of
    the variant serves): those of the second rank if there are so many, else from the first on."""
    files = _Files(path)
    index, group = _pick(_groups(files), index, path)
    where = f"{path}: layer {index}"
    reader = _Reader(files, group, where)
    if group.kind == 2:
        total = 1 + max(expert for expert, _ in group.parts)
        K, I = reader.shape(4)[0], reader.shape(0)[0]
    else:
        if group.kind == 0 and not variant.interleaved:
            raise MxkError(
                f"{where}: gpt-oss tensors hold gate and up rows in turn, variant '{variant.name}' reads all gates"
                " first; nothing is read"
            )
        total = reader.shape(0)[0]
        K, I = reader.shape(2)[1], reader.shape(0)[1] // 2
    if K % 32 or I % 32 or not K or not I:
        raise MxkError(f"{where}: K={K} I={I} are not multiples of 32; nothing is read")
    E = experts or min(total, variant.serving.e_local)
    if E > total:
        raise MxkError(f"{where}: {E} experts are asked for, it has {total}; nothing is read")
    first = E if 2 * E <= total else 0
    read = _gather if group.kind == 2 else _view
    tensors = _slice(variant, I, *read(reader, variant, first, E, K, I))
    layer = Layer(variant, *tensors, first_expert=first)
    return Found(layer, index, total, _router(files, group, total, K))


def _view(reader, variant, first, E, K, I):
    part = (first, E)
    shapes = ((E, 2 * I, K // 2), (E, 2 * I, K // 32), (E, K, I // 2), (E, K, I // 32))
    tensors = [reader.bytes(slot, 0, want, part) for slot, want in enumerate(shapes)]
    return *tensors, reader.bias(4, (E, 2 * I), part), reader.bias(5, (E, K), part)


def _gather(reader, variant, first, E, K, I):
    def tensors(slot, rows, columns):
        return torch.stack([reader.bytes(slot, e, (rows, columns)) for e in range(first, first + E)])

    def fuse(slot, columns):
        pair = [tensors(slot, I, columns), tensors(slot + 2, I, columns)]
        return torch.stack(pair, 2).flatten(1, 2) if variant.interleaved else torch.cat(pair, 1)

    return fuse(0, K // 2), fuse(1, K // 32), tensors(4, K, I // 2), tensors(5, K, I // 32), None, None


def _slice(variant, I, w13, s13, w2, s2, bias13, bias2):
    """Where the intermediate size is beyond the kernels, ranks serve a slice of it each: that of the first."""
    n = variant.serving.I
    if I <= variant.limits.i_max or I % n:
        return w13, s13, w2, s2, bias13, bias2

    def rows(t):
        return t if t is None else t[:, : 2 * n] if variant.interleaved else torch.cat([t[:, :n], t[:, I : I + n]], 1)

    pieces = rows(w13), rows(s13), w2[..., : n // 2], s2[..., : n // 32], rows(bias13)
    return *(t if t is None else t.contiguous() for t in pieces), bias2


def _router(files, group, total, K):
    """weight [total, K] and bias [total] of gpt-oss; how other models choose experts is not known here."""
    prefix = group.prefix.removesuffix("experts.") + "router."
    if group.kind or prefix + "weight" not in files.names or prefix + "bias" not in files.names:
        return ()
    router = files.read(prefix + "weight"), files.read(prefix + "bias")
    return router if router[0].shape == (total, K) and router[1].shape == (total,) else ()
