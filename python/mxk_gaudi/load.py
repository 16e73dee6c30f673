# SPDX-License-Identifier: Apache-2.0
"""Loads what build.sh made into a process on a Gaudi card. The graph compiler reads GC_KERNEL_PATH when the device is
opened and never again, so this comes before the first tensor on it."""

import hashlib
import json
import os
import sys
from pathlib import Path

import torch

from .env import CACHES, KERNELS, STOCK, own_cache
from .library import MxkError, check_torch

_loaded = None  # the op library of this process


def is_lazy():
    """Lazy mode, which is the default here: every build has its op library."""
    return os.environ.get("PT_HPU_LAZY_MODE", "1") != "0"


def load(directory, variant=None):
    """Makes the build's ops available as torch.ops.custom_op.*, refuses a build of another variant, and returns the
    path of the op library. In PT2 mode call warmup() before the first compiled graph."""
    global _loaded
    directory = Path(directory).resolve()
    library = directory / ("libmxk_op_lazy.so" if is_lazy() else "libmxk_op_pt2.so")
    _check_build(directory, library, variant)
    if _loaded == library:
        return library
    if _loaded or _has_ops():
        raise MxkError(
            f"{library}: this process already has {_loaded or 'an mxk op library'}, and there may be only one; it is"
            " not loaded. Use a process for each."
        )
    changes = _changes(directory / KERNELS)
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        _open(library)
    except BaseException:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        raise
    _loaded = library
    return library


def _open(library):
    try:
        import habana_frameworks.torch  # noqa: F401
        from habana_frameworks.torch.utils import internal as bridge
    except ImportError as e:
        raise MxkError(f"habana_frameworks: {e}; the op library needs the PyTorch of Gaudi, nothing is loaded") from e
    if bridge.is_lazy() != is_lazy():
        raise MxkError(
            f"habana_frameworks was imported before, in {'lazy' if bridge.is_lazy() else 'eager'} mode: set"
            f" PT_HPU_LAZY_MODE={int(is_lazy())} in the environment; {library} is not loaded"
        )
    try:
        torch.ops.load_library(str(library))
    except OSError as e:
        raise MxkError(f"{library}: {e.__cause__ or e}; build it again with this image's torch") from e


def _has_ops():
    op = "custom_op::mxk_selfcheck"
    known = op in torch._C._dispatch_get_all_op_names()
    return known and torch._C._dispatch_has_kernel_for_dispatch_key(op, "HPU")


def _check_build(directory, library, variant):
    missing = [p.name for p in (directory / KERNELS, library, directory / "MANIFEST") if not p.is_file()]
    if missing:
        pt2 = "; libmxk_op_pt2.so is made with --pt2, not for gptoss" if "libmxk_op_pt2.so" in missing else ""
        raise MxkError(f"{directory}: holds no {', no '.join(missing)}{pt2}; nothing is loaded")
    built = manifest(directory)["variant"]
    if variant and built != variant:
        raise MxkError(f"{directory}: was built for variant {built}, {variant} is asked for; nothing is loaded")
    # Recipes are cached by the sha256 that MANIFEST has, so it must be that of the file.
    digest = hashlib.sha256((directory / KERNELS).read_bytes()).hexdigest()
    if manifest(directory).get("files", {}).get(KERNELS) != digest:
        raise MxkError(f"{directory / KERNELS} is not the file that MANIFEST names: build again; nothing is loaded")
    try:
        check_torch(library, torch.__version__)
    except ImportError as e:
        raise MxkError(f"{e}; nothing is loaded") from e


def manifest(directory):
    """What build.sh says of a build: variant, versions, hashes."""
    path = Path(directory) / "MANIFEST"
    try:
        found = json.loads(path.read_text())
        found["variant"]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise MxkError(f"{path}: does not say which variant was built ({e}); nothing is loaded") from e
    return found


def _changes(kernels):
    """What has to be in the environment before the device is opened. env.early_env() does the same for a server, and
    puts up with more."""
    now = os.environ.get("GC_KERNEL_PATH", "")
    stock = os.path.isabs(now) and os.path.basename(now) == STOCK and os.path.isfile(now)
    ours = bool(now) and os.path.exists(now) and os.path.samefile(now, kernels)
    if now and not ours and not stock:
        raise MxkError(
            f"GC_KERNEL_PATH names {now}: it may name {kernels} or the stock {STOCK}, one file that is there and"
            " nothing else; nothing is loaded"
        )
    if not ours and _device_is_open():
        raise MxkError(
            f"the device is open already, and reads GC_KERNEL_PATH only once: {kernels} would not be used. Load it"
            " before the first tensor on hpu; nothing is loaded"
        )
    # With its own thread for lazy graphs, an op of ours that reads a view made in the same graph fails now and then.
    changes = {"PT_HPU_LAZY_MODE": os.environ.get("PT_HPU_LAZY_MODE", "1"), "PT_HPU_LAZY_ACC_PAR_MODE": "0"}
    if not ours:
        changes["GC_KERNEL_PATH"] = str(kernels)
        if stock:  # images name it: ours passes its kernels on
            changes["MXK_STOCK_TPC_LIB"] = os.environ.get("MXK_STOCK_TPC_LIB", now)
    version = manifest(kernels.parent)["files"][KERNELS][:8]  # which _check_build() has compared with the file
    return changes | {name: own_cache(os.environ[name], version) for name in CACHES if name in os.environ}


def _device_is_open():
    hpu = sys.modules.get("habana_frameworks.torch.hpu")
    return hpu is not None and hpu.is_initialized()


def warmup(variant):
    """Calls each op of the variant once with the smallest tensors it takes. In PT2 mode an op registers its kernel with
    the bridge at its first eager call, and a compiled graph that meets it before fails."""
    ops, limits = torch.ops.custom_op, variant.limits
    K, I = limits.k_multiple, limits.i_multiple

    def zeros(*shape, dtype=torch.uint8):
        return torch.zeros(*shape, dtype=dtype, device="hpu")

    def rounded(n):
        return -(-n // 512) * 512

    ids = zeros(1, 1, dtype=torch.int32)
    x = zeros(1, rounded(K), dtype=torch.bfloat16)
    w13 = zeros(1, 2 * I, K // 2), zeros(1, 2 * I, K // 32)
    w2 = zeros(1, K, I // 2), zeros(1, K, I // 32)
    bias13 = (zeros(1, 8, I // 4, dtype=torch.float32),) if variant.bias else ()
    bias2 = (zeros(1, 8, K // 8, dtype=torch.float32),) if variant.bias else ()
    a = getattr(ops, variant.w13_kernel)(x, *w13, ids, *bias13, 0)
    results = [getattr(ops, variant.w2_kernel)(a, *w2, ids, zeros(1, 1, dtype=torch.float32), *bias2, 0)]
    results.append(ops.mxk_selfcheck(zeros(1, 256), zeros(1, 64, dtype=torch.float32)))
    if variant.deq:
        results.append(ops.mxk_deq(*w2))
    return [r.cpu() for r in results]
