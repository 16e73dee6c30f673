# SPDX-License-Identifier: Apache-2.0
"""What the scripts run: a layer, from a seed or a checkpoint, and the calls made of it."""

import argparse
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from mxk_gaudi.library import MxkError

from . import checkpoint, devices
from .layer import Layer, random_layer

ROUTINGS = ("random", "local", "hot")


@dataclass
class Batch:
    """One call, on the CPU. ids are distinct in a row, -1 where there are not enough experts; weights are positive bf16
    numbers whose rows sum to about 1."""

    routing: str
    rms: float
    x: torch.Tensor
    ids: torch.Tensor
    weights: torch.Tensor
    routes: int  # local ones
    experts: list  # local experts with a route, ascending

    @property
    def tensors(self):
        return self.x, self.ids, self.weights


@dataclass
class Problem:
    layer: Layer  # on the CPU
    total: int  # experts of the model's layer; this rank has some of them
    k: int
    seed: int
    weights: str  # where they come from
    router: tuple = ()  # weight [total, K] and bias [total], if the checkpoint has it

    def batch(self, T, routing, rms=1.0, stream=0):
        """Same arguments, same call. `stream` tells apart the calls of a problem."""
        kind = (*ROUTINGS, "router").index(routing)
        number = (((self.seed * 1024 + stream) * 4 + kind) * 64 + int(rms)) * 8192 + T
        random = torch.Generator().manual_seed(number % 2**63)
        x = (rms * torch.randn(T, self.layer.K, generator=random)).bfloat16()
        if routing == "router":
            weight, bias = self.router
            scores, ids = (x.float() @ weight.float().T + bias.float()).topk(self.k, dim=1)
            weights = scores.softmax(1)
        else:
            ids = self._ids(T, routing, random)
            weights = (2 * torch.rand(T, self.k, generator=random)).softmax(1)
        ids = ids.int()
        first, E = self.layer.first_expert, self.layer.E
        local = ids[(ids >= first) & (ids < first + E)]
        experts = (local.unique() - first).tolist()
        return Batch(routing, rms, x, ids, weights.bfloat16().float(), len(local), experts)

    def _ids(self, T, routing, random):
        first, E, k = self.layer.first_expert, self.layer.E, self.k
        pool = torch.arange(self.total) if routing == "random" else torch.arange(first, first + E)
        order = torch.rand(T, len(pool), generator=random).argsort(1)
        if routing == "hot":  # one expert in every row, in any slot
            hot = int(torch.randint(E, (1,), generator=random))
            order = torch.cat([torch.full((T, 1), hot), order[order != hot].view(T, E - 1)], dim=1)
        ids = torch.full((T, k), -1)
        n = min(k, len(pool))
        ids[:, :n] = pool[order[:, :n]]
        shuffle = torch.rand(T, k, generator=random).argsort(1)
        return ids.gather(1, shuffle) if routing == "hot" else ids

    def working_batch(self, T, routing, rms=1.0):
        """The first batch with a local route: a call without one has nothing to time."""
        stream = 0
        while not (batch := self.batch(T, routing, rms, stream)).routes:
            stream += 1
        return batch

    def to_json(self):
        layer = self.layer
        return {
            "variant": layer.variant.name,
            "K": layer.K,
            "I": layer.I,
            "E": layer.E,
            "e_total": self.total,
            "first_expert": layer.first_expert,
            "k": self.k,
            "weights": self.weights,
            "seed": self.seed,
        }

    def describe(self):
        p = self.to_json()
        rank = f"{p['E']} experts of {p['e_total']} from {p['first_expert']} on"
        return f"K {p['K']}, I {p['I']}, {rank}, top-{p['k']}; {p['weights']}"


def make(variant, experts, seed, shape=None, path=None, layer=None):
    """The problem of a checkpoint's layer (default: its first), or of random weights of a shape (K, I, experts of this
    rank and of the layer; default: what a rank serves). `experts` is another number of experts on this rank."""
    serving = variant.serving
    if path:
        found = checkpoint.load(path, variant, layer, experts)
        return Problem(found.layer, found.total, serving.top_k, seed, f"{path} layer {found.index}", found.router)
    K, I, local, total = shape or (serving.K, serving.I, serving.e_local, serving.e_total)
    E = experts or local
    total = max(total, E)
    # Any rank but the first where there is one: a wrong offset must show.
    made = random_layer(variant, E, seed, K, I, first_expert=E if 2 * E <= total else 0)
    return Problem(made, total, serving.top_k, seed, f"random weights, seed {seed}")


def default_tokens(variant):
    """Powers of two up to what the kernels take."""
    most = min(variant.limits.tokens, variant.limits.routes // variant.serving.top_k)
    return [2**n for n in range(most.bit_length()) if 2**n <= most]


def numbers(text):
    """An argument: numbers from 1 on, by comma."""
    return [count(n) for n in text.split(",")]


def count(text):
    n = int(text)
    if n < 1:
        raise argparse.ArgumentTypeError(f"{n} is below 1")
    return n


def add_arguments(parser, experts):
    """What both scripts take. `experts` is the name of the option for the experts of the rank."""
    add = parser.add_argument
    add("--variant", help="row of the table of variants")
    add("--device", choices=devices.NAMES, default="hpu", help="emu: a card emulated on the host, slow (default: hpu)")
    add("--lib", type=Path, metavar="BUILD", help="what build.sh made; with --device cpu: folder of libmxk_op_cpu.so")
    add("--checkpoint", type=Path, metavar="DIR", help="safetensors files to take weights from (default: random ones)")
    add("--layer", type=int, metavar="N", help="layer of the checkpoint (default: its first)")
    add(experts, type=count, metavar="N", dest="experts", help="experts of this rank")
    add("--tokens", type=numbers, metavar="T,...", help="token counts (default: powers of two up to the limit)")
    add("--seed", type=int, default=1)
    add("--json", type=Path, metavar="FILE", help="also write the results to this file")


def open_problem(args):
    """The device and the problem that the arguments name, and what to say about both."""
    if args.layer is not None and not args.checkpoint:
        raise MxkError("--layer needs --checkpoint; nothing is run")
    device = devices.Device(args.device, args.variant, args.lib)
    shape = emulation_shape(device.variant) if args.device == "emu" else None
    problem = make(device.variant, args.experts, args.seed, shape, args.checkpoint, args.layer)
    lines = [problem.describe()]
    if shape and not args.checkpoint:
        lines.append("an emulated card: the shape is small, far from what is served")
    return device, problem, lines


def emulation_shape(variant):
    """K, I, experts of this rank and of the layer: a few million weights an expert. Rows that end inside a chunk of 512
    where the variant has such, so that what pads them is seen; more experts than a token has routes."""
    limits = variant.limits
    K = 1024 + 32 if limits.k_multiple == 32 else 3 * limits.k_multiple
    I = 160 if limits.i_multiple == 32 else limits.i_multiple
    return K, I, 10, 24


def write_json(path, report):
    """All of it or nothing."""
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as file:
            try:
                json.dump(report, file, indent=2)
                file.write("\n")
                os.fchmod(file.fileno(), 0o644)
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as e:
        raise MxkError(f"{path}: cannot be written: {e.strerror}") from e
