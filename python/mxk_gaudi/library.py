# SPDX-License-Identifier: Apache-2.0
"""What an op library says of itself: the torch that it was built for, and the table of variants: what a layer of each
model is, the limits of its kernels and the shape that one rank serves. Nothing of it is written down again in Python.
"""

import ctypes
import json
import math
import re
from dataclasses import dataclass


class MxkError(RuntimeError):
    """What was asked for cannot be done. The message says what, the limit, the value, and what happens now."""


@dataclass(frozen=True)
class Limits:
    """What the kernels of a variant take: multiples and largest values."""

    k_multiple: int
    k_max: int
    i_multiple: int
    i_max: int
    tokens: int
    routes: int
    experts: int


@dataclass(frozen=True)
class Serving:
    """Hidden size, intermediate size, experts of a rank and of the layer, routes of a token."""

    K: int
    I: int
    e_local: int
    e_total: int
    top_k: int


@dataclass(frozen=True)
class Variant:
    name: str
    models: str
    w13_kernel: str
    w2_kernel: str
    interleaved: bool  # rows of w13: gate, up, gate, up, ...; else all gates, then all ups
    bias: bool
    per_route: bool
    deq: bool
    # h = g * sigmoid(alpha * g) * (u + shift) with g at most limit and u within +-limit
    limit: float
    alpha: float
    shift: float
    limits: Limits
    serving: Serving


def check_torch(library, version):
    """Raises ImportError if the library was built for another torch: its C++ interface changes with each release. The
    file is read and not loaded."""
    found = re.search(rb"mxk op library for torch ([0-9.]+)", library.read_bytes())
    if not found:
        raise ImportError(f"{library} is not an op library of mxk")
    built = found[1].decode()
    if built.split(".")[:2] != version.split(".")[:2]:
        raise ImportError(f"{library} was built for torch {built}, this is torch {version}: build it again")


def read(library):
    """The variants in an op library, by name. The library becomes part of this process: one per process."""
    try:
        function = ctypes.CDLL(str(library)).mxk_variants_json
    except (OSError, AttributeError) as e:
        raise MxkError(f"{library}: is no mxk op library: {e}; no variant is known") from e
    function.restype = ctypes.c_char_p
    return parse(function().decode())


def parse(text):
    """The variants of a JSON array of them, as `mxk variants --json` prints it."""
    variants = {}
    for row in json.loads(text):
        act = row["act_params"]
        variants[row["name"]] = Variant(
            interleaved=row["rows"] == "interleaved",
            limit=math.inf if act["limit"] is None else act["limit"],
            alpha=act["alpha"],
            shift=act["shift"],
            limits=Limits(**row["limits"]),
            serving=Serving(**row["serving"]),
            **{key: row[key] for key in ("name", "models", "w13_kernel", "w2_kernel", "bias", "per_route", "deq")},
        )
    return variants


def find(variants, name):
    if name not in variants:
        raise MxkError(f"variant '{name}' is not one of {', '.join(variants)}; nothing is run")
    return variants[name]
