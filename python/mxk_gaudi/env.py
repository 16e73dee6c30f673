# SPDX-License-Identifier: Apache-2.0
"""The environment of a serving process: what has to be in it before habana is imported, which reads it once.

early_env() works that out and changes nothing, apply() puts it in place. With the flag off neither changes anything.
"""

import difflib
import json
import logging
import os
import re
import sys
from dataclasses import dataclass, field

KERNELS = "libmxk_tpc.so"
STOCK = "libtpc_kernels.so"
STOCK_DEFAULT = "/usr/lib/habanalabs/" + STOCK
STOCK_VARIABLE = "MXK_STOCK_TPC_LIB"  # read by our kernel library: the one that it passes the other kernels on from
STRICT = "MXK_STRICT"
CACHES = ("PT_HPU_RECIPE_CACHE_CONFIG", "PT_RECIPE_CACHE_PATH")


@dataclass(frozen=True)
class Switch:
    """How a model family turns its kernels on. These are gpt-oss's names; a port has its own."""

    flag: str = "MXFP4_TPC_MOE"
    lib: str = "MXFP4_TPC_MOE_LIB"
    max_tokens: str = "MXFP4_TPC_MOE_MAX_TOKENS"  # "": the cap cannot be changed
    label: str = "MXFP4 TPC MoE"  # what lines in the log begin with
    variant: str = "gptoss"
    default_lib: str = "/opt/mxfp4-moe/lib"
    tokens: int = 32  # what the kernels take in a call
    lazy: bool = True  # which op library: that of lazy mode, or that of PT2
    needs: str = "HPU_MXFP4_NATIVE"  # must be 1 too: without it there are no packed weights. "": nothing is needed

    @property
    def op_library(self):
        return "libmxk_op_lazy.so" if self.lazy else "libmxk_op_pt2.so"

    @property
    def names(self):
        return tuple(name for name in (self.flag, self.lib, self.max_tokens, STRICT, STOCK_VARIABLE) if name)


GPT_OSS = Switch()


def _family(flag, label, variant, **more):
    return Switch(**{**dict(flag=flag, lib=flag + "_LIB", max_tokens="", label=label, variant=variant, tokens=16,
                            needs=""), **more})


# Of the other families, see family.py. The caps are those of the kernels, but for muse, whose port serves 4 tokens at
# most: its rows are reduced among ranks for each route.
SWITCHES = {
    "glm": _family("GLM_MXK", "GLM MXK", "glm"),
    "dsv41": _family("DSV41_MXK", "DSV41 MXK", "dsv41"),
    "muse": _family("MUSE_SPARK_MXFP4_KERNELS", "Muse Spark MXFP4 kernels", "muse", tokens=4),
    "kimi": _family("KIMI_MXK", "Kimi MXK", "kimi", default_lib="/opt/gaudi-cookbook-kimi/mxk"),
    "mimo": _family("MIMO_MXK", "MiMo MXK", "glm", lazy=False),  # in torch.compile mode
}


@dataclass(frozen=True)
class Result:
    """on: the kernels may be used. Otherwise `disabled` says why not, or is None if nobody asked for them."""

    on: bool = False
    disabled: str = None
    strict: bool = False
    changes: dict = field(default_factory=dict)  # variables to set
    lines: tuple = ()  # (level, text) for the log
    lib: str = ""  # folder of the libraries
    version: str = ""  # of the kernel library: the first 8 digits of its sha256
    manifest: dict = field(default_factory=dict)
    max_tokens: int = 0  # in a call


class _Disabled(Exception):
    pass


def read_manifest(folder):
    with open(os.path.join(folder, "MANIFEST"), encoding="utf-8") as f:
        return json.load(f)


def early_env(env, *, exists=os.path.isfile, modules=None, manifest=read_manifest, switch=GPT_OSS):
    """What to do in a process with the environment `env`. Applied twice it is the same as applied once, so children may
    inherit what it made."""
    lines = []

    def say(text, level=logging.WARNING):
        lines.append((level, text))

    strict = _switch(env, STRICT, say)
    on = _switch(env, switch.flag, say)
    _misspelt(env, switch, say)
    if not on:
        return Result(lines=tuple(lines), strict=strict)
    try:
        lib, built = _libraries(env, exists, manifest, switch)
        version = built["files"][KERNELS][:8]
        changes = _kernel_path(env, exists, os.path.join(lib, KERNELS), say)
        if switch.lazy:
            changes["PT_HPU_LAZY_ACC_PAR_MODE"] = "0"
            if env.get("PT_HPU_LAZY_ACC_PAR_MODE", "0") != "0":
                say(f"PT_HPU_LAZY_ACC_PAR_MODE was {env['PT_HPU_LAZY_ACC_PAR_MODE']} and is set to 0: with it an op"
                    " whose input is a view made in the same graph fails now and then")
        changes.update({name: own_cache(env[name], version) for name in CACHES if name in env})
        changes = {name: value for name, value in changes.items() if env.get(name) != value}
        imported = sys.modules if modules is None else modules
        late = sorted(name for name in imported if name.split(".")[0] == "habana_frameworks")
        # Our library reads STOCK_VARIABLE itself. GC_KERNEL_PATH is read when the device is opened: in PT2 mode torch
        # imports habana before vllm_gaudi can be there, and load() looks whether the device is open.
        read = [name for name in changes if name != STOCK_VARIABLE and (switch.lazy or name != "GC_KERNEL_PATH")]
        if late and read:
            raise _Disabled(f"{late[0]} was imported before vllm_gaudi, and reads {', '.join(read)} only once")
        max_tokens = _max_tokens(env, switch, say)
    except _Disabled as e:
        return Result(disabled=str(e), lines=tuple(lines), strict=strict)
    return Result(on=True, strict=strict, changes=changes, lines=tuple(lines), lib=lib, version=version, manifest=built,
                  max_tokens=max_tokens)


def _switch(env, name, say):
    value = env.get(name, "")
    if value not in ("", "0", "1"):
        say(f"{name}={value} is neither 1 nor 0: it counts as 0")
    return value == "1"


def _misspelt(env, switch, say):
    """Names that look like one of ours. A variable of another family or program is nobody's mistake."""

    def forms(name):  # as it is, and with its words in order: they get mixed up
        return name, "_".join(sorted(name.split("_")))

    own = {form: name for name in switch.names for form in forms(name)}
    foreign = re.compile(r"(HPU|PT|GC|VLLM|HABANA)_|\w+_MXK(_|$)")
    for name in sorted(env):
        if name.endswith("_" + switch.flag):  # as of vLLM or habana, whose names begin so
            say(f"{name} is not a variable of ours and does nothing; did you mean {switch.flag}?")
            continue
        if name in switch.names or foreign.match(name) and not name.startswith(switch.flag):
            continue
        close = [match for form in forms(name.upper()) for match in difflib.get_close_matches(form, own, 1, 0.8)]
        if close:
            say(f"{name} is not a variable of ours and does nothing; did you mean {own[close[0]]}?")


def _libraries(env, exists, manifest, switch):
    """The folder of the libraries and its MANIFEST, if the process can use them."""
    if switch.needs and env.get(switch.needs, "0") != "1":
        raise _Disabled(f"{switch.needs} is not 1, so the experts are not served as MXFP4: nothing to do")
    mode = env.get("PT_HPU_LAZY_MODE", "")
    if switch.lazy and mode != "1":
        raise _Disabled(f"PT_HPU_LAZY_MODE is {mode or 'not set'}; the ops are for lazy mode, it must be 1")
    if not switch.lazy and mode not in ("", "0"):
        raise _Disabled(f"PT_HPU_LAZY_MODE is {mode}; the ops are for torch.compile, it must be 0")
    lib = env.get(switch.lib) or switch.default_lib
    if not os.path.isabs(lib):
        raise _Disabled(f"{switch.lib} is {lib}; it must be an absolute path")
    lib = os.path.normpath(lib)
    missing = [name for name in (KERNELS, switch.op_library, "MANIFEST") if not exists(os.path.join(lib, name))]
    if missing:
        raise _Disabled(f"{lib} has no {', no '.join(missing)}; {switch.lib} says where build.sh put them")
    try:
        built = manifest(lib)
        variant, digest = built["variant"], built["files"][KERNELS]
        if not re.fullmatch("[0-9a-f]{64}", digest):
            raise ValueError(f"the sha256 of {KERNELS} is {digest}")
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise _Disabled(f"{lib}/MANIFEST does not say what was built: {type(e).__name__}: {e}") from e
    if variant != switch.variant:
        raise _Disabled(f"{lib} was built for the variant {variant}; this model needs {switch.variant}")
    return lib, built


def _kernel_path(env, exists, ours, say):
    """GC_KERNEL_PATH becomes our library alone: with a recipe cache the bridge takes one file only. Ours passes on the
    kernels of the stock library, which is the one that was there."""
    value = env.get("GC_KERNEL_PATH", "")
    listed = [p.strip() for p in value.split(":" if ":" in value else ",") if p.strip()]
    others = [p for p in listed if os.path.normpath(p) != ours]
    # Of a list only the stock library; a single file may have any name but that of ours, which would pass on to itself.
    usable = [p for p in others if os.path.basename(p) == STOCK or len(listed) == 1 and os.path.basename(p) != KERNELS]
    dropped = [p for p in others if p not in usable[:1]]
    if dropped:
        say(f"GC_KERNEL_PATH names {', '.join(dropped)}: dropped, our library passes on the kernels of {STOCK} only")
    stock = None
    for name, path in ((STOCK_VARIABLE, env.get(STOCK_VARIABLE)), ("GC_KERNEL_PATH", usable[0] if usable else None)):
        if not path:
            continue
        if not os.path.isabs(path) or os.path.basename(path) == KERNELS or not exists(path):
            say(f"{name} names {path}: not used, it must be the absolute path of a stock library that is there")
        elif stock is None:
            stock = path
        elif path != stock:
            say(f"{name} names {path}: dropped, {STOCK_VARIABLE} names {stock}")
    if stock is None:
        stock = STOCK_DEFAULT
    if not exists(stock):
        raise _Disabled(f"there is no stock kernel library {stock}; {STOCK_VARIABLE} says where it is")
    return {"GC_KERNEL_PATH": ours, STOCK_VARIABLE: stock}


def own_cache(setting, version):
    """The bridge's key of a cached recipe leaves the kernel library out, so each has a folder of its own. The slash at
    the end stays: the bridge appends the rank to the path as it is."""
    path, comma, rest = setting.partition(",")
    if not path.strip():
        return setting
    path = re.sub(r"_mxk-[0-9a-f]{8}$", "", path.rstrip("/"))
    return f"{path or '/'}_mxk-{version}/{comma}{rest}"


def _max_tokens(env, switch, say):
    value = env.get(switch.max_tokens, "") if switch.max_tokens else ""
    if not value:
        return switch.tokens
    number = int(value) if re.fullmatch(r"\s*[+-]?[0-9]{1,9}\s*", value) else None
    tokens = switch.tokens if number is None else min(max(number, 1), switch.tokens)
    if tokens != number:
        say(f"{switch.max_tokens}={value} is no number from 1 to {switch.tokens}: it counts as {tokens}")
    return tokens


# ---- in a process ----------------------------------------------------------------------------------------------------

_results = {}  # by flag
_said = set()


def apply(switch=GPT_OSS):
    """Puts the environment of this process in place and remembers what was found. Raises RuntimeError if the kernels
    are asked for and cannot be used, and MXK_STRICT=1; otherwise nothing."""
    try:
        result = early_env(os.environ, switch=switch)
        os.environ.update(result.changes)
    except Exception as e:  # the engine must start
        asked = os.environ.get(switch.flag) == "1"
        result = Result(disabled=f"{type(e).__name__}: {e}" if asked else None, strict=os.environ.get(STRICT) == "1")
    _results[switch.flag] = result
    for level, text in result.lines:
        log(text, level, switch)
    if result.disabled:
        decline(result.disabled, switch)
    return result


def applied(switch=GPT_OSS):
    """What apply() found; off if it was not called."""
    return _results.get(switch.flag, Result())


def decline(reason, switch=GPT_OSS):
    """The stock op does what the kernels were asked to do: says so, once for each reason, or with MXK_STRICT=1 raises
    RuntimeError."""
    if applied(switch).strict:
        raise RuntimeError(f"{switch.label}: {reason}; {STRICT}=1 makes this an error")
    log(f"{reason}; the stock op is used", logging.WARNING, switch)


def install_hook(method):
    """Called at the end of vllm_gaudi/ops/hpu_mxfp4.py with its class."""
    if not applied().on:
        return
    try:
        from .hook import install

        install(method)
    except Exception as e:  # the engine must start
        if applied().strict:
            raise
        decline(f"the hook was not installed: {type(e).__name__}: {e}")


def log(text, level=logging.INFO, switch=GPT_OSS):
    """What is wrong, or was changed, with the family's label before it; see say_once()."""
    say_once(f"{switch.label}: {text}", level)


def say_once(line, level=logging.INFO, once=None):
    """A line in vLLM's log, or on stderr as long as there is none. Once in a process, or the first of those that have
    the same `once`."""
    if (once or line) in _said:
        return
    _said.add(once or line)
    try:
        logger = logging.getLogger("vllm")
        if logger.hasHandlers():
            logger.log(level, "%s", line)
        else:
            print(f"{logging.getLevelName(level)} {line}", file=sys.stderr, flush=True)
    except Exception:  # a log that is broken or closed must not stop the engine
        pass
