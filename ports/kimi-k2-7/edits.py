# SPDX-License-Identifier: Apache-2.0
"""What the port relies on in vllm-gaudi and vLLM, and the lines that it adds. Text only: no file is read or written."""

import ast

from anchored_edits import Anchor, Block, Edits

COMMITS = {"vllm-gaudi": "058f107", "vllm": "ced6857a"}  # releases/v0.30.0
INIT, MXFP4, LOADER = "__init__.py", "ops/hpu_mxfp4.py", "models/deepseek_v2.py"
MODELS, OPS = "models/__init__.py", "extension/ops.py"

# Whole lines, with their indentation, each exactly once in its file of vllm_gaudi/.
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
EDITS = Edits(
    tag="kimi_hpu", target="ops/kimi_hpu", like=MXFP4, anchors=ANCHORS,
    blocks={INIT: Block("K1", ANCHORS[0].line, K1), MXFP4: Block("K2", None, K2), LOADER: Block("K3", None, K3)},
    partly="not all of the three kimi_hpu blocks are there: an install was cut short, or one was removed by hand;"
           " --uninstall takes out the others")


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
