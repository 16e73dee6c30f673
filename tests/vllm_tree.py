# SPDX-License-Identifier: Apache-2.0
"""Skeletons of a vllm-gaudi tree: the lines that the installer looks for, exactly as they are there, in code of our own
that can be imported without vLLM and torch. With what tests of both installers need: snapshots, and failures."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

# (id, file, line with its indentation)
ANCHORS = [
    ("A1", "__init__.py", "import os"),
    ("A2", "__init__.py", "    from vllm_gaudi.platform import HpuPlatform"),
    ("A3", "__init__.py", "    import vllm_gaudi.ops.hpu_mxfp4  # noqa: F401"),
    ("A4", "ops/hpu_mxfp4.py", "class HPUGptOssMxfp4MoEMethod(GptOssMxfp4MoEMethod):"),
    ("A5", "ops/hpu_mxfp4.py", "    def process_weights_after_loading(self, layer) -> None:"),
    ("A6", "ops/hpu_mxfp4.py", "        layer.moe_op = VllmMixtureOfExpertsOpMXFP4("),
    ("A7", "ops/hpu_mxfp4.py", "        layer.moe_op._cache_weight_lists()"),
    ("A8", "ops/hpu_mxfp4.py", "    def apply_monolithic("),
    ("A9", "ops/hpu_mxfp4.py", "        output = layer.moe_op("),
    ("A10", "ops/hpu_mxfp4.py", "mxfp4_module.GptOssMxfp4MoEMethod = HPUGptOssMxfp4MoEMethod"),
    ("A11", "extension/ops.py",
     "                    return torch.ops.hpu.mixture_of_experts.bias_mxfp4_fused_weights("),
]

FILES = {
    "__init__.py": """\
import os
import json


def register():
    from vllm_gaudi.platform import HpuPlatform
    return HpuPlatform.__name__


def settings():
    import os
    return json.loads(os.environ.get("SKELETON_SETTINGS", "{}"))


def register_ops():
    import vllm_gaudi.ops.hpu_mxfp4  # noqa: F401
""",
    "platform.py": """\
class HpuPlatform:
    pass
""",
    "ops/__init__.py": "",
    "ops/hpu_mxfp4.py": """\
from types import SimpleNamespace

from vllm_gaudi.extension.ops import VllmMixtureOfExpertsOpMXFP4


class GptOssMxfp4MoEMethod:
    pass


mxfp4_module = SimpleNamespace(GptOssMxfp4MoEMethod=GptOssMxfp4MoEMethod)


class HPUGptOssMxfp4MoEMethod(GptOssMxfp4MoEMethod):
    model_type = "gpt_oss"

    def process_weights_after_loading(self, layer) -> None:
        layer.moe_op = VllmMixtureOfExpertsOpMXFP4(
            layer.global_num_experts,
            layer.local_num_experts,
        )
        layer.moe_op._cache_weight_lists()

    def apply_monolithic(
        self,
        layer,
        x,
        router_logits,
    ):
        output = layer.moe_op(
            x,
            router_logits,
        )
        return output


mxfp4_module.GptOssMxfp4MoEMethod = HPUGptOssMxfp4MoEMethod
""",
    "extension/__init__.py": "",
    "extension/ops.py": """\
class VllmMixtureOfExpertsOpMXFP4:

    def __init__(self, global_num_experts, num_total_experts):
        self.experts = num_total_experts, global_num_experts

    def _cache_weight_lists(self):
        self.cached = True

    def __call__(self, x, router_logits):
        import torch

        if x is not None:
            if router_logits is not None:
                if self.cached:
                    return torch.ops.hpu.mixture_of_experts.bias_mxfp4_fused_weights(
                        x, router_logits)
        return None
""",
}


def make(root, edit=None):
    """Writes a tree into the folder `root`. edit: {file: function of its text}."""
    for file, text in FILES.items():
        path = Path(root, "vllm_gaudi", file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(edit[file](text).encode() if edit and file in edit else text.encode())
    Path(root, "vllm_gaudi/__init__.py").chmod(0o755)  # as in the real tree: the mode must be kept
    return Path(root)


MODEL = """\
class DeepseekV2Model:
    def load_weights(self, weights):
        return {name for name, _ in weights}
"""
MODELS = """\
def register_model():
    import vllm_gaudi.models.deepseek_v2  # noqa: F401
"""
LOADER = """\
from vllm.model_executor.models import deepseek_v2

patched = deepseek_v2.DeepseekV2Model
"""


def metadata(root, name, version, url=None):
    folder = Path(root, f"{name}-{version}.dist-info")
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if url:
        (folder / "direct_url.json").write_text(json.dumps(url))


def make_image(root, commit):
    """What an image has of vllm-gaudi and vLLM; the commits as pip records them, `commit` that of vllm-gaudi."""
    make(root)
    ops = root / "vllm_gaudi/extension/ops.py"
    text = ops.read_text()
    assert text.count("bias_mxfp4_fused_weights(") == 1
    ops.write_text(text + "\n\n" + text.replace("bias_mxfp4", "mxfp4"))
    for file, text in {"vllm_gaudi/models/__init__.py": MODELS, "vllm_gaudi/models/deepseek_v2.py": LOADER,
                       "vllm/__init__.py": "", "vllm/model_executor/__init__.py": "",
                       "vllm/model_executor/models/__init__.py": "", "vllm/model_executor/models/deepseek_v2.py": MODEL,
                       }.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    metadata(root, "vllm_gaudi", "0.30.0", {"url": "https://example.org", "vcs_info": {"commit_id": commit}})
    metadata(root, "vllm", "0.30.1.dev3+gced6857a1.empty")
    return root


def change(line, new):
    """A function that puts the lines `new` where the line stood."""

    def edit(text):
        lines = text.split("\n")
        at = lines.index(line)
        return "\n".join(lines[:at] + new + lines[at + 1:])

    return edit


def snapshot(root):
    """Everything below a folder but bytecode: contents, mode, what links point to."""
    found = {}
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        for name in folders + files:
            path = os.path.join(folder, name)
            what = os.readlink(path) if os.path.islink(path) else None
            if what is None and os.path.isfile(path):
                with open(path, "rb") as f:
                    what = f.read()
            found[os.path.relpath(path, root)] = what, os.lstat(path).st_mode
    return found


def fail_at(monkeypatch, step, error):
    """The step-th change of the tree fails; returns how many there were."""
    count = [0]

    def wrap(module, name):
        original = getattr(module, name)

        def wrapped(*args, **keywords):
            count[0] += 1
            if count[0] == step:
                raise error
            return original(*args, **keywords)

        monkeypatch.setattr(module, name, wrapped)

    for name in ("replace", "chmod", "fdopen", "unlink"):
        wrap(os, name)
    wrap(tempfile, "mkstemp")
    wrap(Path, "mkdir")
    wrap(Path, "unlink")
    wrap(subprocess, "run")
    return count
