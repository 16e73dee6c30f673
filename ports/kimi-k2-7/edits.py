# SPDX-License-Identifier: Apache-2.0
"""What the port relies on in vllm-gaudi and vLLM, and the lines that it adds. Text only: no file is read or written."""

import ast
import re
from collections import namedtuple

from install_mxfp4_tpc_moe import Refused, short_hash

COMMITS = {"vllm-gaudi": "058f107", "vllm": "ced6857a"}  # releases/v0.30.0
INIT, MXFP4, LOADER = "__init__.py", "ops/hpu_mxfp4.py", "models/deepseek_v2.py"
MODELS, OPS = "models/__init__.py", "extension/ops.py"

# Whole lines, with their indentation, each exactly once in its file of vllm_gaudi/.
Anchor = namedtuple("Anchor", "id file line")
ANCHORS = (
    Anchor("A1", INIT, "import os"),  # K1 goes above it
    Anchor("A2", INIT, "    from vllm_gaudi.platform import HpuPlatform"),
    Anchor("A3", INIT, "    import vllm_gaudi.ops.hpu_mxfp4  # noqa: F401"),
    Anchor("A4", MXFP4, "class HPUGptOssMxfp4MoEMethod(GptOssMxfp4MoEMethod):"),
    Anchor("A5", MXFP4, "    def process_weights_after_loading(self, layer) -> None:"),
    Anchor("A6", MXFP4, "        layer.moe_op = VllmMixtureOfExpertsOpMXFP4("),
    Anchor("A7", MXFP4, "        layer.moe_op._cache_weight_lists()"),
    Anchor("A8", MXFP4, "        output = layer.moe_op("),
    Anchor("A9", MXFP4, "mxfp4_module.GptOssMxfp4MoEMethod = HPUGptOssMxfp4MoEMethod"),
    Anchor("A10", OPS, " " * 20 + "return torch.ops.hpu.mixture_of_experts.mxfp4_fused_weights("),
    Anchor("A11", MODELS, "    import vllm_gaudi.models.deepseek_v2  # noqa: F401"),
    Anchor("A12", LOADER, "from vllm.model_executor.models import deepseek_v2"),
)
FILES = tuple(dict.fromkeys(anchor.file for anchor in ANCHORS))

# In vLLM a method that is wrapped: other lines of its class come and go.
WRAPPED_FILE, WRAPPED_CLASS, WRAPPED = "model_executor/models/deepseek_v2.py", "DeepseekV2Model", "load_weights"

K1 = """\
def _kimi_hpu():  # above all imports: habana reads the environment once
    try:
        from vllm_gaudi.ops.kimi_hpu import switch
    except Exception as error:  # the engine runs without its kernels too
        import os
        import sys
        if os.environ.get("KIMI_MXK") != "1":
            return
        message = f"Kimi MXK: the runtime cannot be imported ({error!r}); the stock op is used"
        if os.environ.get("MXK_STRICT") == "1":
            raise RuntimeError(message) from error
        print("WARNING " + message, file=sys.stderr)
    else:
        switch.apply()


_kimi_hpu()
del _kimi_hpu
"""
K2 = """\
def _kimi_hpu():
    try:
        from vllm_gaudi.ops.kimi_hpu import switch
    except Exception:  # said at the top of vllm_gaudi/__init__.py
        return
    switch.install_kernels(HPUGptOssMxfp4MoEMethod)


_kimi_hpu()
del _kimi_hpu
"""
K3 = """\
def _kimi_hpu():
    try:
        from vllm_gaudi.ops.kimi_hpu import loader
    except Exception as error:  # other models load without it
        import sys
        print(f"WARNING kimi_hpu: fused MXFP4 experts cannot be loaded ({error!r})", file=sys.stderr)
    else:
        loader.patch(deepseek_v2.DeepseekV2Model)


_kimi_hpu()
del _kimi_hpu
"""
BLOCKS = {INIT: ("K1", K1), MXFP4: ("K2", K2), LOADER: ("K3", K3)}
MARKER = re.compile(r"\s*#\s*(>>>|<<<)\s*kimi_hpu\b")
BEGIN = re.compile(r"# >>> kimi_hpu (K[123]), version ([0-9a-f]{8}), text ([0-9a-f]{8}) >>>")


def add_block(file, text, version):
    name, body = BLOCKS[file]
    block = f"# >>> kimi_hpu {name}, version {version}, text {short_hash(body.encode())} >>>\n{body}" \
            f"# <<< kimi_hpu {name} <<<\n"
    if file == INIT:
        return re.sub(rf"^(?={ANCHORS[0].line}[^\S\n]*$)", lambda _: block, text, count=1, flags=re.M)
    # Without a line break at its end the file gets one, and the block has none: so it shows how the file was.
    return f"{text}\n{block}" if text.endswith("\n") else f"{text}\n\n{block[:-1]}"


def take_out_block(file, text):
    """The text as it was without our block, and the version of the block; None if there is none."""
    name = BLOCKS[file][0]
    lines = text.split("\n")
    markers = [i for i, line in enumerate(lines) if MARKER.match(line)]
    if not markers:
        return text, None
    begin = BEGIN.fullmatch(lines[markers[0]])
    where = f"{file}: the kimi_hpu block at line {markers[0] + 1}"
    if len(markers) != 2 or not begin or begin[1] != name or lines[markers[1]] != f"# <<< kimi_hpu {name} <<<":
        raise Refused(f"{where} is not whole: it must be '# >>> kimi_hpu {name}, ... >>>' to '# <<< kimi_hpu {name}"
                      " <<<', once")
    first, last = markers
    body = "".join(line + "\n" for line in lines[first + 1:last])
    if short_hash(body.encode()) != begin[3]:
        raise Refused(f"{where} was edited by hand")
    if file != INIT and first and not lines[first - 1]:
        first -= 1  # the empty line came with the block
    return "\n".join(lines[:first] + lines[last + 1:]), begin[2]


def find_anchors(texts):
    """For each anchor None, or what is wrong with it."""
    found = {}
    for anchor in ANCHORS:
        if texts[anchor.file] is None:
            found[anchor] = "there is no such file"
            continue
        lines = [line.rstrip() for line in texts[anchor.file].split("\n")]
        hits = [str(i + 1) for i, line in enumerate(lines) if line == anchor.line]
        others = [str(i + 1) for i, line in enumerate(lines) if line.strip() == anchor.line.strip()]
        if len(hits) == 1:
            found[anchor] = None
        elif hits:
            found[anchor] = f"{len(hits)} hits, at lines {', '.join(hits)}; there must be one"
        else:
            found[anchor] = f"other indentation at line {', '.join(others)}" if others else "missing"
    return found


def why_not_wrapped(text):
    """None if the class of vLLM has the method that the loader wraps, taking what the wrapper gives."""
    if text is None:
        return "there is no such file"
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name == WRAPPED_CLASS:
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == WRAPPED:
                    names = [argument.arg for argument in method.args.args]
                    return None if names == ["self", "weights"] else f"{WRAPPED} takes ({', '.join(names)})"
            return f"class {WRAPPED_CLASS} has no method {WRAPPED}"
    return f"there is no class {WRAPPED_CLASS}"
