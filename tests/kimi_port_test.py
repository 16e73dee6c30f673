# SPDX-License-Identifier: Apache-2.0
"""The port of Kimi-K2.7: the loader of fused experts, install.sh on skeleton trees, and that recipe.yaml, README.md and
the Dockerfile agree with each other and with the repository."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import vllm_tree

ROOT = Path(__file__).resolve().parents[1]
PORT = ROOT / "ports/kimi-k2-7"
sys.path[:0] = [str(PORT), str(ROOT / "python")]

import anchored_edits  # noqa: E402
import edits  # noqa: E402
import image  # noqa: E402
from kimi_hpu import loader  # noqa: E402
from mxk_gaudi import env, family  # noqa: E402

TARGET = "vllm_gaudi/ops/kimi_hpu"
EDITED = {f"vllm_gaudi/{file}" for file in edits.EDITS.blocks}
GAUDI, VLLM = "058f107" + "a" * 33, "ced6857a" + "b" * 32

# ---- the loader ------------------------------------------------------------------------------------------------------

E, I, K = 12, 64, 96  # noqa: E741
SHAPES = {"w13_weight": (2 * I, K // 2), "w13_weight_scale": (2 * I, K // 32), "w2_weight": (K, I // 2),
          "w2_weight_scale": (K, I // 32)}


def fused(name="w13_weight", experts=E):
    generator = torch.Generator().manual_seed(sorted(SHAPES).index(name))
    return torch.randint(0, 256, (experts, *SHAPES[name]), dtype=torch.uint8, generator=generator)


def parameter(name="w13_weight", experts=E, dtype=torch.uint8):
    return torch.nn.Parameter(torch.zeros(experts, *SHAPES[name], dtype=dtype), requires_grad=False)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize("name", SHAPES)
def test_each_rank_gets_its_experts(name, ranks):
    whole, parts = fused(name), []
    for rank in range(ranks):
        param = parameter(name, E // ranks)
        loader.load(f"experts.{name}", whole, loader.Split(E, ranks, rank), param)
        assert torch.equal(param.data, whole[rank * E // ranks:(rank + 1) * E // ranks])
        parts.append(param.data)
    assert torch.equal(torch.cat(parts), whole)


NO_EP = ("layers.3.mlp.experts.w13_weight: tensor parallel size 8 without expert parallelism would cut each of the 384"
         " experts into 8 parts, and fused MXFP4 experts are split by whole experts only, 384 over 8 ranks: pass"
         " --enable-expert-parallel; loading stops")


@pytest.mark.parametrize("split, tensor, param, message", [
    (dict(experts=384, tp_size=8), None, None, NO_EP),
    (dict(ep_size=5), None, parameter(experts=2), "12 experts cannot be split over 5 ranks"),
    (dict(ep_size=4, experts=16), None, parameter(experts=4), "the tensor has 12 experts, the layer 16"),
    (dict(ep_size=4), None, parameter(experts=4),
     "rank 0 of 4 takes [3, 128, 48] of the tensor [12, 128, 48], its parameter is [4, 128, 48]"),
    (dict(ep_size=4), fused("w2_weight"), parameter(experts=3), "takes [3, 96, 32] of the tensor [12, 96, 32], its"),
    (dict(), fused()[0], None, "the tensor has 2 dimensions [128, 48]"),
    (dict(placement="round_robin"), None, None, "expert placement is round_robin; it must be linear"),
    (dict(), fused().view(torch.int8), None, "the tensor is torch.int8; packed MXFP4 weights and their scales must be"),
    (dict(), None, parameter(dtype=torch.bfloat16), "the layer was made for torch.bfloat16: quantization_config in"),
])
def test_what_cannot_be_loaded(split, tensor, param, message):
    param = parameter() if param is None else param
    with pytest.raises(ValueError) as e:
        loader.load("layers.3.mlp.experts.w13_weight", fused() if tensor is None else tensor,
                    loader.Split(**{**dict(experts=E, ep_size=1, ep_rank=0), **split}), param)
    assert message in str(e.value) and str(e.value).endswith("; loading stops")
    assert not param.any()


@pytest.mark.parametrize("name, found", [
    ("layers.3.mlp.experts.w13_weight", "layers.3.mlp.experts.routed_experts.w13_weight"),
    ("layers.3.mlp.experts.routed_experts.w2_weight_scale", "layers.3.mlp.experts.routed_experts.w2_weight_scale"),
    ("experts.w2_weight", "experts.w2_weight"),
    ("layers.4.mlp.experts.w13_weight", None),  # another stage of the pipeline
    ("layers.3.mlp.experts.w13_bias", None),
    ("layers.3.mlp.experts.7.w13_weight", None),
    ("layers.3.mlp.experts.7.gate_proj.weight", None),
    ("layers.3.mlp.shared_experts.w13_weight", None),
    ("layers.3.mlp.experts.w13_weight.more", None),
])
def test_which_tensors_are_fused(name, found):
    params = ["layers.3.mlp.experts.routed_experts." + n for n in (*SHAPES, "w13_bias")]
    params += ["experts.w2_weight", "layers.3.mlp.shared_experts.w13_weight"]
    assert loader.find(name, params) == found


def make_model(base, ranks=4, rank=1, routed=True, **config):
    """A model like those that vLLM makes: two layers, whose experts may be one module further down."""

    def layer():
        experts = torch.nn.Module()
        for name in SHAPES:
            experts.register_parameter(name, parameter(name, E // ranks))
        experts.moe_config = SimpleNamespace(**{**dict(ep_size=ranks, ep_rank=rank, tp_size=1), **config})
        experts.global_num_experts = E
        layer = torch.nn.Module()
        layer.mlp = torch.nn.Module()
        layer.mlp.experts = torch.nn.Module() if routed else experts
        if routed:
            layer.mlp.experts.routed_experts = experts
        layer.norm = torch.nn.Parameter(torch.zeros(8))
        return layer

    model = base()
    model.layers = torch.nn.ModuleList([layer(), layer()])
    return model


def checkpoint():
    for layer in "01":
        yield f"layers.{layer}.norm", torch.arange(8.0)
        for name in SHAPES:
            yield f"layers.{layer}.mlp.experts.{name}", fused(name)
    yield "layers.7.mlp.experts.w2_weight", fused("w2_weight")


def stock_class():
    class Stock(torch.nn.Module):
        def load_weights(self, weights):
            """What a model's own loader does with the tensors that it is given."""
            self.seen = []
            for name, tensor in weights:
                self.seen.append((name, tensor))
                if name.endswith("norm"):
                    self.get_parameter(name).data.copy_(tensor)
            return {name for name, _ in self.seen}

    return Stock


@pytest.mark.parametrize("routed", [True, False])
def test_the_wrapped_loader(routed):
    Stock = stock_class()
    loader.patch(Stock)
    wrapped = Stock.load_weights
    loader.patch(Stock)
    assert Stock.load_weights is wrapped and wrapped.__doc__
    model = make_model(Stock, routed=routed)
    tensors = list(checkpoint())
    loaded = model.load_weights(iter(tensors))
    # All others go on, the same objects in the same order; a layer that is not here too, for the stock method to judge.
    others = [t for t in tensors if "experts" not in t[0] or "layers.7" in t[0]]
    assert [(name, id(t)) for name, t in model.seen] == [(name, id(t)) for name, t in others]
    assert loaded == {name for name, _ in model.named_parameters()} | {"layers.7.mlp.experts.w2_weight"}
    for name, param in model.named_parameters():
        short = name.rpartition(".")[2]
        assert torch.equal(param, torch.arange(8.0) if short == "norm" else fused(short)[3:6])


def test_the_wrapped_loader_without_expert_parallelism():
    Stock = stock_class()
    loader.patch(Stock)
    with pytest.raises(ValueError, match="tensor parallel size 8 .* pass --enable-expert-parallel"):
        make_model(Stock, ep_size=1, ep_rank=0, tp_size=8).load_weights(checkpoint())
    model = make_model(Stock)
    model.layers[1].mlp.experts.routed_experts.expert_placement_strategy = "round_robin"
    with pytest.raises(ValueError, match=r"^layers.1.mlp.experts.w13_weight: expert placement is round_robin"):
        model.load_weights(checkpoint())


# ---- install.sh ------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path):
    return vllm_tree.make_image(tmp_path / "tree", GAUDI)


def install(tree, *arguments, rc=0, script=PORT / "install.sh", **more):
    """What install.sh says, both ways."""
    environment = {"PATH": os.environ["PATH"], "PYTHON": sys.executable, "KIMI_MXK_LIB": f"{tree}/none", **more}
    done = subprocess.run(["bash", script, "--root", tree, *arguments], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == rc, done.stdout
    return done.stdout


def refused(tree, *arguments, **more):
    before = vllm_tree.snapshot(tree)
    said = install(tree, *arguments, rc=1, **more)
    assert vllm_tree.snapshot(tree) == before and "no file was changed" in said
    return said


def edit(path, old, new):
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))


def test_install_twice_and_uninstall(tree):
    original = vllm_tree.snapshot(tree)
    assert "not installed" in install(tree, "--check", rc=1)
    assert "kernels: none at" in install(tree)
    after = vllm_tree.snapshot(tree)
    assert {path for path in original if original[path] != after[path]} == EDITED
    new = {f"{TARGET}/{p.name}" for p in (PORT / "kimi_hpu").glob("*.py")} | {
        f"{TARGET}/mxk_gaudi/{p.name}" for p in (ROOT / "python/mxk_gaudi").glob("*.py")}
    assert set(after) - set(original) == new | {TARGET, f"{TARGET}/mxk_gaudi", f"{TARGET}/INSTALLED"}
    assert after[f"{TARGET}/loader.py"][0] == (PORT / "kimi_hpu/loader.py").read_bytes()
    assert "already installed" in install(tree)
    assert "installed: version" in install(tree, "--check")
    assert vllm_tree.snapshot(tree) == after
    for said in ("removed from", "nothing to remove"):
        assert said in install(tree, "--uninstall")
        assert vllm_tree.snapshot(tree) == original


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "  "])
def test_uninstall_gives_back_every_byte(tree, end):
    for file in EDITED:
        (tree / file).write_text((tree / file).read_text().rstrip("\n") + end)
    original = vllm_tree.snapshot(tree)
    install(tree)
    for file in EDITED:
        compile((tree / file).read_text(), file, "exec")
    install(tree, "--uninstall")
    assert vllm_tree.snapshot(tree) == original


@pytest.mark.parametrize("file", sorted(EDITED))
def test_blocks_that_were_touched(tree, file):
    original = vllm_tree.snapshot(tree)
    install(tree)
    edit(tree / file, "kimi_hpu import", "kimi_hpu  import")
    for arguments in ([], ["--check"], ["--uninstall"]):
        assert "was edited by hand" in refused(tree, *arguments)
    (tree / file).write_bytes(original[file][0])
    assert "not all of the three" in refused(tree)
    install(tree, "--uninstall")
    assert vllm_tree.snapshot(tree) == original


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("second_leaves_first", [True, False])
@pytest.mark.parametrize("kimi_first", [True, False])
def test_beside_the_installer_of_gpt_oss(tree, tmp_path, kimi_first, second_leaves_first, end):
    source = tmp_path / "source"
    shutil.copytree(ROOT / "python", source, ignore=shutil.ignore_patterns("__pycache__", "mxk"))
    (tree / "vllm_gaudi/ops/hpu_mxfp4.py").write_text((tree / "vllm_gaudi/ops/hpu_mxfp4.py").read_text().rstrip() + end)
    original = vllm_tree.snapshot(tree)

    def gpt_oss(tree, *arguments):
        run = [sys.executable, "-B", source / "install_mxfp4_tpc_moe.py", "--root", tree, *arguments]
        return subprocess.run(run, check=True, capture_output=True, text=True).stdout

    def untouched(*installers):
        before = vllm_tree.snapshot(tree)
        for each in installers:
            assert "\ninstalled: version" in each(tree, "--check") and "already installed" in each(tree)
        assert vllm_tree.snapshot(tree) == before

    both = (install, gpt_oss) if kimi_first else (gpt_oss, install)
    for each in both:
        each(tree)
    untouched(*both)
    with open(source / "mxk_gaudi/env.py", "a") as f:
        f.write("# newer\n")
    assert "\ninstalled: version" in gpt_oss(tree)  # an upgrade, with the other one there
    untouched(*both)
    leaves, stays = reversed(both) if second_leaves_first else both
    leaves(tree, "--uninstall")
    untouched(stays)
    stays(tree, "--uninstall")
    assert vllm_tree.snapshot(tree) == original


def test_a_repair_and_foreign_files(tree):
    install(tree)
    whole = vllm_tree.snapshot(tree)
    (tree / TARGET / "loader.py").write_text("")
    (tree / TARGET / "mxk_gaudi/env.py").unlink()
    assert "missing or changed: ops/kimi_hpu/loader.py, ops/kimi_hpu/mxk_gaudi/env.py" in install(tree, "--check", rc=1)
    install(tree)
    assert vllm_tree.snapshot(tree) == whole
    (tree / TARGET / "mine.py").write_text("")
    for arguments in ([], ["--check"], ["--uninstall"]):
        assert "files that are not ours: mine.py" in refused(tree, *arguments)


@pytest.mark.parametrize("anchor", edits.ANCHORS, ids=lambda a: a.id)
@pytest.mark.parametrize("how", ["missing", "2 hits", "other indentation"])
def test_each_anchor(anchor, how):
    texts = {file: "".join(a.line + "\n" for a in edits.ANCHORS if a.file == file) for file in edits.EDITS.files}
    assert not any(anchored_edits.find_anchors(edits.ANCHORS, texts).values())
    new = {"missing": "", "2 hits": 2 * (anchor.line + "\n"), "other indentation": f"  {anchor.line}\n"}[how]
    texts[anchor.file] = texts[anchor.file].replace(anchor.line + "\n", new)
    wrong = {a: what for a, what in anchored_edits.find_anchors(edits.ANCHORS, texts).items() if what}
    assert list(wrong) == [anchor] and wrong[anchor].startswith(how)


def test_all_that_is_wrong_is_said_before_anything_is_written(tree):
    edit(tree / "vllm_gaudi/ops/hpu_mxfp4.py", "output = layer.moe_op(", "result = layer.moe_op(")
    (tree / "vllm_gaudi/models/deepseek_v2.py").unlink()
    edit(tree / "vllm/model_executor/models/deepseek_v2.py", "self, weights", "self, weights, more")
    edit(tree / "vllm_gaudi-0.30.0.dist-info/direct_url.json", "058f107", "058f108")
    for arguments in ([], ["--check"], ["--build"]):
        said = refused(tree, *arguments)
        assert "A8 ops/hpu_mxfp4.py: missing: '        output = layer.moe_op('" in said
        assert "A12 models/deepseek_v2.py: there is no such file" in said
        assert "A13 vllm/model_executor/models/deepseek_v2.py: load_weights takes (self, weights, more)" in said
        assert "vllm-gaudi: its commit is 058f108" in said and "by direct_url.json; it must be 058f107" in said


@pytest.mark.parametrize("text, message", [
    (None, "there is no such file"), ("class Other: pass", "there is no class"),
    ("class DeepseekV2Model:\n    def other(self): pass", "has no method load_weights"),
    ("class DeepseekV2Model:\n    async def load_weights(self, weights): pass", "has no method load_weights"),
    ("@x\nclass DeepseekV2Model(A, B):\n    def load_weights(self, weights: T) -> set: pass", None),
])
def test_the_class_that_is_wrapped(text, message):
    found = edits.why_not_wrapped(text)
    assert found is None if message is None else message in found


def test_commits(tmp_path):
    def clone(name, **files):
        for file, text in files.items():
            path = tmp_path / name / ".git" / file.replace("__", "/").replace("_", "-")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / name

    def of(version="1.0", url=None, package=tmp_path / "nowhere/pkg"):
        site = tmp_path / f"site{len(list(tmp_path.iterdir()))}"
        vllm_tree.metadata(site, "pkg", version, url)
        return image.commit_of(package, "pkg", [site])

    detached = clone("detached", HEAD=VLLM + "\n")
    branch = clone("branch", HEAD="ref: refs/heads/main\n", refs__heads__main=GAUDI + "\n")
    packed = clone("packed", HEAD="ref: refs/heads/main\n", packed_refs=f"# x\n{GAUDI} refs/heads/main\n")
    unborn = clone("unborn", HEAD="ref: refs/heads/main\n", packed_refs="")
    assert of() == (None, None) and of(url={"url": f"file://{unborn}"}) == (None, None)
    assert of(url={"url": f"file://{detached}", "dir_info": {}}) == (VLLM, "the clone that was installed")
    assert of(url={"url": f"file://{packed}"})[0] == of(package=branch / "pkg")[0] == GAUDI
    assert of(package=detached / "pkg") == (VLLM, "the clone it is in")
    # What describes the installed files comes before a clone, which may have moved on.
    assert of("1.0+g1234567", {"url": f"file://{detached}"}) == ("1234567", "its version")
    assert of("1.0+cpu.g1234567.d20260101")[0] == "1234567" and of("1.0+cpu") == (None, None)
    assert of("1.0+g1234567", {"url": "git", "vcs_info": {"commit_id": GAUDI}}) == (GAUDI, "direct_url.json")
    assert image.is_commit(VLLM, "ced6857a") and image.is_commit("ced6857", "ced6857a")
    assert not image.is_commit("ced6857b", "ced6857a") and not image.is_commit("ced685", "ced6857a")


def test_an_image_that_does_not_say_its_commit(tree):
    (tree / "vllm-0.30.1.dev3+gced6857a1.empty.dist-info/METADATA").write_text("Name: vllm\nVersion: 0.30.0\n")
    assert "vllm: its commit must be ced6857a, and nothing says which it is" in refused(tree)


def test_a_tree_that_cannot_be_written(tree, monkeypatch):
    """Every step that writes fails once, as on a read-only or full disk; root may write where others may not."""
    import patch

    original, replace, left = vllm_tree.snapshot(tree), os.replace, 0

    def failing(a, b):
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError(30, "Read-only file system", str(b))
        replace(a, b)

    monkeypatch.setattr(anchored_edits.os, "replace", failing)
    for step in range(1, 100):
        left = step
        if patch.main(["--root", str(tree)]) == 0:
            break
        left = 0
        assert vllm_tree.snapshot(tree) == original
    assert len(EDITED) + 8 < step < 99 and left > 0


def test_arguments(tree):
    for arguments in (["--check", "--uninstall"], ["--build", "--check"], ["more"], ["--root"]):
        assert "nothing was done" in install(tree, *arguments, rc=2)
    assert "KIMI_MXK_LIB is here; it must be an absolute" in install(tree, "--build", rc=2, KIMI_MXK_LIB="here")
    assert "there is no folder" in refused(tree / "vllm")


# ---- what is installed, in a process ---------------------------------------------------------------------------------

PROGRAM = """\
import json, os, sys
before = dict(os.environ)
import vllm_gaudi
changed = {k: v for k, v in os.environ.items() if before.get(k) != v}
early = sorted(m for m in sys.modules if m.split(".")[0] in ("torch", "vllm"))
from vllm_gaudi.ops import hpu_mxfp4
from vllm_gaudi.models import register_model
register_model()
from vllm.model_executor.models.deepseek_v2 import DeepseekV2Model
method = hpu_mxfp4.HPUGptOssMxfp4MoEMethod.process_weights_after_loading
print(json.dumps([changed, early, method.__module__ + "." + str(getattr(method, "how", None)),
                  getattr(DeepseekV2Model.load_weights, "loads_fused_experts", False), "torch" in sys.modules]))
"""


def run(tree, **environment):
    """[variables changed, modules there too early, the method, whether fused experts load, and torch is there], log."""
    done = subprocess.run([sys.executable, "-B", "-c", PROGRAM], text=True, capture_output=True, cwd=tree,
                          env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tree), **environment})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture
def kernels(tmp_path):
    """A folder that looks like a build, and a stock library."""
    lib = tmp_path / "kernels"
    lib.mkdir()
    for name in ("libmxk_tpc.so", "libmxk_op_lazy.so", "libtpc_kernels.so"):
        (lib / name).write_text(name)
    digest = hashlib.sha256(b"libmxk_tpc.so").hexdigest()
    (lib / "MANIFEST").write_text(json.dumps({"variant": "kimi", "files": {"libmxk_tpc.so": digest}}))
    return {"KIMI_MXK_LIB": str(lib), "MXK_STOCK_TPC_LIB": str(lib / "libtpc_kernels.so"), "PT_HPU_LAZY_MODE": "1"}


STOCK = [{}, [], "vllm_gaudi.ops.hpu_mxfp4.None"]


@pytest.mark.parametrize("flag", [None, "0"])
def test_switched_off(tree, kernels, flag):
    environment = {**kernels, **({"KIMI_MXK": flag} if flag else {})}
    assert run(tree, **environment) == ([*STOCK, False, False], "")
    install(tree)
    assert run(tree, **environment) == ([*STOCK, True, False], "")


def test_switched_on(tree, kernels):
    install(tree)
    found, said = run(tree, KIMI_MXK="1", **kernels)
    assert found == [{"GC_KERNEL_PATH": kernels["KIMI_MXK_LIB"] + "/libmxk_tpc.so", "PT_HPU_LAZY_ACC_PAR_MODE": "0"},
                     *STOCK[1:], True, True]
    assert "Kimi MXK: the op library was not loaded" in said and "the stock op is used" in said  # no card here
    (tree / TARGET / "mxk_gaudi/family.py").write_text("""\
class Family:
    def __init__(self, switch, **how):
        self.how = switch.flag, switch.variant, how

    def install(self, method):
        def process_weights_after_loading(self, layer):
            pass
        process_weights_after_loading.how = self.how
        method.process_weights_after_loading = process_weights_after_loading
""")
    found, said = run(tree, KIMI_MXK="1", **kernels)
    assert found[2].endswith("family.('KIMI_MXK', 'kimi', {'rows': 'stacked', 'limit': inf})") and not said


def test_switched_on_without_what_it_needs(tree, kernels):
    install(tree)
    found, said = run(tree, KIMI_MXK="1", **{**kernels, "PT_HPU_LAZY_MODE": "0"})
    assert found == [*STOCK, True, False] and "PT_HPU_LAZY_MODE is 0" in said
    edit(Path(kernels["KIMI_MXK_LIB"], "MANIFEST"), '"kimi"', '"glm"')
    found, said = run(tree, KIMI_MXK="1", **kernels)
    assert found == [*STOCK, True, False] and "was built for the variant glm; this model needs kimi" in said
    shutil.rmtree(tree / TARGET)
    found, said = run(tree, KIMI_MXK="1", **kernels)
    assert found == [*STOCK, False, False]
    assert "Kimi MXK: the runtime cannot be imported" in said and "fused MXFP4 experts cannot be loaded" in said


def test_the_switch_is_that_of_the_family():
    text = (PORT / "kimi_hpu/switch.py").read_text().replace("from .mxk_gaudi import env", "from mxk_gaudi import env")
    names = {}
    exec(text, names)
    assert names["KIMI"] == family.SWITCHES["kimi"]


# ---- what is written about it ----------------------------------------------------------------------------------------


def parse(text):
    """The part of YAML that recipe.yaml uses: scalars, one level of mappings, and lists of scalars."""
    found, section = {}, None
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r"([a-z_]+):|(  )([A-Za-z_0-9]+): (\S.*)|(  )- (\S.*)", line)
        assert match, f"recipe.yaml:{number}: {line}"
        assert not re.search(r": | #|^[&*!|>'%@`{\[]", match[4] or match[6] or ""), f"recipe.yaml:{number}: {line}"
        if match[1]:
            assert match[1] not in found
            section = found[match[1]] = []
        elif match[3]:
            section.append((match[3], match[4]))
        else:
            section.append(match[6])
    return {name: dict(items) if isinstance(items[0], tuple) else items for name, items in found.items()}


@pytest.fixture
def recipe():
    return parse((PORT / "recipe.yaml").read_text())


def test_recipe_and_readme_launch_alike(recipe):
    readme = (PORT / "README.md").read_text()
    block = readme[readme.index("## 4. Serve"):readme.index("## 5. Verify")].split("```")[1]
    assert dict(re.findall(r"^export (\w+)=(.*)$", block, re.M)) == recipe["environment"]
    command = block[block.index("vllm serve"):].replace("\\\n", " ")
    assert command.split() == " ".join(recipe["serve"]).split()


def test_the_launch_environment_turns_the_kernels_on(recipe, kernels):
    result = env.early_env({**recipe["environment"], **kernels}, modules={}, switch=family.SWITCHES["kimi"])
    assert result.on and not result.lines


def test_the_recipe_agrees_with_the_code(recipe):
    said, hardware = recipe["image"], recipe["hardware"]
    assert {"vllm-gaudi": said["vllm_gaudi_commit"], "vllm": said["vllm_commit"]} == edits.COMMITS
    assert (ROOT / said["dockerfile"]).is_file() and said["variant"] == family.SWITCHES["kimi"].variant
    assert f"--tensor-parallel-size {hardware['cards']}" in recipe["serve"]
    assert f"--max-model-len {recipe['model']['context']}" in recipe["serve"]
    assert int(hardware["experts_per_card"]) * int(hardware["cards"]) == 384


def copied(context):
    """What the Dockerfile copies, below a folder in place of /."""
    for line in (PORT / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY "):
            *sources, target = line.split()[1:]
            target = context / target.lstrip("/")
            for source in sources:
                assert (ROOT / source).exists(), line
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    assert line.endswith("/")
                    target.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / source, target)
    return context / "opt/gaudi-cookbook"


def test_the_dockerfile(tree, tmp_path):
    text = (PORT / "Dockerfile").read_text()
    assert "\nARG BASE\nFROM ${BASE}\n" in text
    run = re.findall(r"^RUN bash (\S+) --build$", text, re.M)
    book = copied(tmp_path / "image")
    script = tmp_path / "image" / run[0].lstrip("/")
    assert len(run) == 1
    # In the copy, with a build that only says what it was asked for: what runs it, and that the image comes first.
    asked = tmp_path / "asked"
    (book / "build.sh").write_text(f"echo \"$@\" >> {asked}; mkdir {tree}/lib && touch {tree}/lib/MANIFEST\n")
    edit(tree / "vllm_gaudi-0.30.0.dist-info/direct_url.json", "058f107", "158f107")
    refused(tree, "--build", script=script)
    assert not asked.exists()
    edit(tree / "vllm_gaudi-0.30.0.dist-info/direct_url.json", "158f107", "058f107")
    assert f"kernels: {tree}/lib" in install(tree, "--build", script=script, KIMI_MXK_LIB=f"{tree}/lib")
    assert asked.read_text() == f"--variant kimi {tree}/lib\n"
    (book / "build.sh").write_text("exit 3\n")
    install(tree, "--uninstall", script=script)
    before = vllm_tree.snapshot(tree)
    install(tree, "--build", script=script, rc=3)
    assert vllm_tree.snapshot(tree) == before


def test_what_the_image_gets_is_enough(tmp_path):
    book = copied(tmp_path)
    for command in (["bash", book / "build.sh", "--help"], ["bash", book / "tests/run_parity.sh", "--help"],
                    [sys.executable, "-B", book / "tests/parity_hpu.py", "--help"],
                    [sys.executable, "-B", book / "bench/bench_moe.py", "--help"]):
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={"PATH": os.environ["PATH"]})
        assert done.returncode == 0 and "usage" in done.stdout, done.stderr
    used = set(re.findall(r'\$root/([\w./]+)', (ROOT / "build.sh").read_text()))
    assert used and all((book / path).exists() for path in used)
