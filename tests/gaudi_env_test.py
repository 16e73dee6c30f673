# SPDX-License-Identifier: Apache-2.0
"""What the runtime does before habana is imported, and what makes it leave a layer or a call to the stock op.

Environment, set by ctest: PYTHONPATH, MXK_CLI.
"""

import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import vllm_tree
from mxk_gaudi import env as runtime
from mxk_gaudi.decline import CallFacts, LayerFacts, Tensor, too_many_tokens, why_not, why_not_call

PYTHON = Path(__file__).resolve().parents[1] / "python"
LIB = "/opt/mxfp4-moe/lib"
OURS = LIB + "/libmxk_tpc.so"
STOCK = "/usr/lib/habanalabs/libtpc_kernels.so"
OTHER_STOCK = "/sdk/libtpc_kernels.so"
FILES = {OURS, LIB + "/libmxk_op_lazy.so", LIB + "/MANIFEST", STOCK, OTHER_STOCK, "/x/libcustom.so",
         "/old/libmxk_tpc.so"}
SHA = "0123abcd" * 8
ON = {"MXFP4_TPC_MOE": "1", "HPU_MXFP4_NATIVE": "1", "PT_HPU_LAZY_MODE": "1"}
CHANGES = {"GC_KERNEL_PATH": OURS, "MXK_STOCK_TPC_LIB": STOCK, "PT_HPU_LAZY_ACC_PAR_MODE": "0"}


def built(variant="gptoss", sha=SHA):
    return lambda folder: {"variant": variant, "files": {"libmxk_tpc.so": sha}}


def early(variables, files=FILES, modules=("os", "torch"), manifest=built(), switch=runtime.GPT_OSS):
    """early_env() of an environment, which must not change, and whose result must not change what it made."""
    before = dict(variables)
    rest = dict(exists=files.__contains__, modules=modules, manifest=manifest, switch=switch)
    result = runtime.early_env(variables, **rest)
    assert variables == before
    assert not (result.on and result.disabled)
    assert result.on or not result.changes
    again = runtime.early_env({**variables, **result.changes}, **rest)
    assert not again.changes
    assert (again.on, again.disabled, again.version) == (result.on, result.disabled, result.version)
    return result


def said(result):
    return " | ".join(text for _, text in result.lines)


# ---- early_env -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", [None, "0", "", "true", "2", "on", "1 "])
def test_off(flag):
    variables = {**ON, "MXFP4_TPC_MOE": flag, "GC_KERNEL_PATH": "a,b", "PT_HPU_LAZY_ACC_PAR_MODE": "1",
                 "PT_HPU_RECIPE_CACHE_CONFIG": "/c,false,1"}
    if flag is None:
        del variables["MXFP4_TPC_MOE"]
    result = early(variables, files=set(), modules=("habana_frameworks",))
    assert not result.on and result.disabled is None and not result.changes
    wrong = flag not in (None, "0", "")
    assert said(result) == (f"MXFP4_TPC_MOE={flag} is neither 1 nor 0: it counts as 0" if wrong else "")


def test_on():
    result = early(ON)
    assert result.on and result.changes == CHANGES and not result.lines and not result.strict
    assert (result.lib, result.version, result.max_tokens) == (LIB, SHA[:8], 32)
    assert result.manifest["variant"] == "gptoss"


@pytest.mark.parametrize("variables, files, manifest, reason", [
    ({}, FILES - {OURS}, built(), LIB + " has no libmxk_tpc.so; MXFP4_TPC_MOE_LIB says where"),
    ({}, FILES - {LIB + "/libmxk_op_lazy.so", LIB + "/MANIFEST"}, built(), "no libmxk_op_lazy.so, no MANIFEST"),
    ({"MXFP4_TPC_MOE_LIB": "/elsewhere"}, FILES, built(), "/elsewhere has no libmxk_tpc.so"),
    ({"MXFP4_TPC_MOE_LIB": "lib"}, FILES, built(), "MXFP4_TPC_MOE_LIB is lib; it must be an absolute path"),
    ({"PT_HPU_LAZY_MODE": "0"}, FILES, built(), "PT_HPU_LAZY_MODE is 0"),
    ({"PT_HPU_LAZY_MODE": ""}, FILES, built(), "PT_HPU_LAZY_MODE is not set"),
    ({"HPU_MXFP4_NATIVE": "0"}, FILES, built(), "HPU_MXFP4_NATIVE is not 1, so the experts are not"),
    ({"HPU_MXFP4_NATIVE": ""}, FILES, built(), "nothing to do"),
    ({}, FILES - {STOCK}, built(), f"there is no stock kernel library {STOCK}; MXK_STOCK_TPC_LIB says where it is"),
    ({}, FILES, built("glm"), "was built for the variant glm; this model needs gptoss"),
    ({}, FILES, built(sha="1234"), "MANIFEST does not say what was built: ValueError"),
    ({}, FILES, lambda folder: {"variant": "gptoss"}, "MANIFEST does not say what was built: KeyError"),
    ({}, FILES, lambda folder: [], "MANIFEST does not say what was built: TypeError"),
    ({}, FILES, lambda folder: json.loads("{"), "MANIFEST does not say what was built: JSONDecodeError"),
    ({}, FILES, lambda folder: open("/nonexistent/MANIFEST"), "does not say what was built: FileNotFoundError"),
])
def test_disabled(variables, files, manifest, reason):
    result = early({**ON, **variables}, files=files, manifest=manifest)
    assert not result.on and reason in result.disabled and not result.changes


def test_what_is_never_too_late():
    late = ("habana_frameworks",)
    assert early({**ON, **{k: v for k, v in CHANGES.items() if k != "MXK_STOCK_TPC_LIB"}}, modules=late).on


def test_too_late():
    late = ("os", "habana_frameworks.torch", "habana_frameworks")
    result = early(ON, modules=late)
    assert "habana_frameworks was imported before vllm_gaudi, and reads GC_KERNEL_PATH, " in result.disabled
    assert early(ON, modules=("habana_frameworks_other", "not.habana_frameworks")).on
    assert early({**ON, **CHANGES}, modules=late).on, "a child has inherited all of it, so nothing is late"
    result = early({**ON, **CHANGES, "PT_HPU_LAZY_ACC_PAR_MODE": "1"}, modules=late)
    assert "reads PT_HPU_LAZY_ACC_PAR_MODE only once" in result.disabled


@pytest.mark.parametrize("value, stock, stock_after, words", [
    (None, None, STOCK, ""),
    ("", None, STOCK, ""),
    (STOCK, None, STOCK, ""),
    (OTHER_STOCK, None, OTHER_STOCK, ""),
    ("/x/libcustom.so", None, "/x/libcustom.so", ""),
    (OURS, None, STOCK, ""),
    (OURS, OTHER_STOCK, OTHER_STOCK, ""),
    (LIB + "//libmxk_tpc.so", OTHER_STOCK, OTHER_STOCK, ""),
    (OTHER_STOCK, STOCK, STOCK, "names /sdk/libtpc_kernels.so: dropped, MXK_STOCK_TPC_LIB names " + STOCK),
    (f"/x/libcustom.so:{OTHER_STOCK}", None, OTHER_STOCK, "GC_KERNEL_PATH names /x/libcustom.so: dropped"),
    (f"{OTHER_STOCK},/x/libcustom.so,/y.so", None, OTHER_STOCK, "names /x/libcustom.so, /y.so: dropped"),
    (f"{OTHER_STOCK}:{STOCK}", None, OTHER_STOCK, f"names {STOCK}: dropped"),
    (f"{OURS}:{OTHER_STOCK}", None, OTHER_STOCK, ""),
    (f"{OURS}:/x/libcustom.so", None, STOCK, "names /x/libcustom.so: dropped"),
    ("/x/libcustom.so:/y.so", None, STOCK, "names /x/libcustom.so, /y.so: dropped"),
    (OTHER_STOCK + ":", None, OTHER_STOCK, ""),
    ("/old/libmxk_tpc.so", None, STOCK, "names /old/libmxk_tpc.so: dropped"),
    ("/gone/libtpc_kernels.so", None, STOCK, "GC_KERNEL_PATH names /gone/libtpc_kernels.so: not used"),
    ("libtpc_kernels.so", None, STOCK, "GC_KERNEL_PATH names libtpc_kernels.so: not used"),
    (None, OURS, STOCK, f"MXK_STOCK_TPC_LIB names {OURS}: not used"),
    (OTHER_STOCK, "/gone.so", OTHER_STOCK, "MXK_STOCK_TPC_LIB names /gone.so: not used"),
])
def test_kernel_path(value, stock, stock_after, words):
    variables = {"GC_KERNEL_PATH": value, "MXK_STOCK_TPC_LIB": stock}
    variables = {**ON, **{name: text for name, text in variables.items() if text is not None}}
    result = early(variables, files=FILES | {"libtpc_kernels.so"})
    after = {**variables, **result.changes}
    assert (after["GC_KERNEL_PATH"], after["MXK_STOCK_TPC_LIB"]) == (OURS, stock_after)
    assert words in said(result) and len(result.lines) == bool(words)


def test_another_library_folder():
    files = FILES | {"/b/" + name for name in ("libmxk_tpc.so", "libmxk_op_lazy.so", "MANIFEST")}
    variables = {"MXFP4_TPC_MOE_LIB": "/a/..//b/", "GC_KERNEL_PATH": OURS, "MXK_STOCK_TPC_LIB": STOCK}
    result = early({**ON, **variables}, files=files)
    assert result.changes["GC_KERNEL_PATH"] == "/b/libmxk_tpc.so" and f"names {OURS}: dropped" in said(result)


def test_accumulation_thread():
    result = early({**ON, "PT_HPU_LAZY_ACC_PAR_MODE": "1"})
    assert result.changes == CHANGES and "PT_HPU_LAZY_ACC_PAR_MODE was 1 and is set to 0" in said(result)
    assert "PT_HPU_LAZY_ACC_PAR_MODE" not in early({**ON, "PT_HPU_LAZY_ACC_PAR_MODE": "0"}).changes


@pytest.mark.parametrize("value, after", [
    ("/c", "/c_mxk-0123abcd/"),
    ("/c/", "/c_mxk-0123abcd/"),
    ("/c,false,1024", "/c_mxk-0123abcd/,false,1024"),
    ("/c//,true,8192,true", "/c_mxk-0123abcd/,true,8192,true"),
    ("c,", "c_mxk-0123abcd/,"),
    ("/,false,1", "/_mxk-0123abcd/,false,1"),
    (",false,1024", ",false,1024"),
    (" ,false,1024", " ,false,1024"),
    ("", ""),
    ("/c_mxk-0123abcd/,false,1024", "/c_mxk-0123abcd/,false,1024"),
    ("/c_mxk-0123abcd,false", "/c_mxk-0123abcd/,false"),
    ("/c_mxk-89abcdef/,false", "/c_mxk-0123abcd/,false"),
    ("/c_mxk-x/,false", "/c_mxk-x_mxk-0123abcd/,false"),
])
@pytest.mark.parametrize("name", ["PT_HPU_RECIPE_CACHE_CONFIG", "PT_RECIPE_CACHE_PATH"])
def test_recipe_cache(name, value, after):
    result = early({**ON, name: value})
    assert {**ON, name: value, **result.changes}[name] == after
    assert (name in result.changes) == (value != after)


@pytest.mark.parametrize("value, tokens", [("1", 1), ("32", 32), (" 7 ", 7), ("", 32), ("0", 1), ("-3", 1), ("33", 32),
                                           ("abc", 32), ("8.0", 32), ("9" * 20, 32), ("٣", 32)])
def test_max_tokens(value, tokens):
    result = early({**ON, "MXFP4_TPC_MOE_MAX_TOKENS": value})
    assert result.on and result.max_tokens == tokens
    clamped = value not in ("1", "32", " 7 ", "")
    assert bool(result.lines) == clamped
    assert not clamped or f"={value} is no number from 1 to 32: it counts as {tokens}" in said(result)


@pytest.mark.parametrize("name, meant", [
    ("MXFP4_MOE_TPC", "MXFP4_TPC_MOE"), ("MXFP4_TPC_MOE_MAXTOKENS", "MXFP4_TPC_MOE_MAX_TOKENS"),
    ("MXFP4_TPC_MOE_LIBS", "MXFP4_TPC_MOE_LIB"), ("MXFP4_TPC_MOE_LIB_DIR", "MXFP4_TPC_MOE_LIB"),
    ("MXPF4_TPC_MOE", "MXFP4_TPC_MOE"), ("mxfp4_tpc_moe", "MXFP4_TPC_MOE"), ("MXFP4_MOE", "MXFP4_TPC_MOE"),
    ("MXK_STRIKT", "MXK_STRICT"), ("MXK_STOCK_TPC", "MXK_STOCK_TPC_LIB"),
])
def test_misspelt(name, meant):
    for variables in ({name: "1"}, {**ON, name: "1"}):
        result = early(variables)
        assert said(result) == f"{name} is not a variable of ours and does nothing; did you mean {meant}?"
        assert result.on == ("MXFP4_TPC_MOE" in variables)


@pytest.mark.parametrize("name", ["VLLM_MXFP4_TPC_MOE", "HPU_MXFP4_TPC_MOE"])
def test_our_flag_with_a_word_before_it(name):
    (line,) = early({name: "1"}).lines
    assert line[1] == f"{name} is not a variable of ours and does nothing; did you mean MXFP4_TPC_MOE?"


def test_names_of_others():
    names = """HPU_MXFP4_NATIVE GLM_MXK GLM_MXK_PREFILL KIMI_MXK KIMI_MXK_LIB DSV41_MXK MUSE_SPARK_MXFP4_KERNELS
        MXK_BACKEND MXK_TEST_SMALL MXK_TEST_SEED MXK_CLI MXK_OP_LIBRARY MXK_STANDIN_LIB MXK_SDK_INCLUDE MXK_BRIDGE_LIB
        TPC_CLANG VLLM_USE_FAKE_HPU VLLM_MOE_CHUNK VLLM_MXFP4_USE_MARLIN PT_HPU_LAZY_MODE
        GC_KERNEL_PATH HOME PATH LD_LIBRARY_PATH MAX_TOKENS OMP_NUM_THREADS MOE_TPC TPC_MOE MXFP4""".split()
    assert not early({name: "1" for name in names}).lines
    assert not early({name: "x" for name in os.environ}).lines


KIMI = runtime.Switch(flag="KIMI_MXK", lib="KIMI_MXK_LIB", max_tokens="", label="Kimi", variant="kimi", tokens=16,
                      needs="")
MIMO = runtime.Switch(flag="MIMO_MXK", lib="MIMO_MXK_LIB", max_tokens="", label="MiMo", variant="glm", tokens=16,
                      needs="", lazy=False)


def test_other_families():
    kimi = early({"KIMI_MXK": "1", "PT_HPU_LAZY_MODE": "1", "MIMO_MXK_LIB": "x", **{"MXFP4_TPC_MOE": "1"}},
                 manifest=built("kimi"), switch=KIMI)
    assert kimi.on and kimi.changes == CHANGES and kimi.max_tokens == 16 and not kimi.lines
    assert "KIMI_MKX is not" in said(early({"KIMI_MKX": "1"}, switch=KIMI))
    assert not early(ON, switch=KIMI).on
    files = FILES - {LIB + "/libmxk_op_lazy.so"}
    for mode in ({}, {"PT_HPU_LAZY_MODE": "0"}):
        missing = early({"MIMO_MXK": "1", **mode}, files, manifest=built("glm"), switch=MIMO)
        assert "has no libmxk_op_pt2.so; MIMO_MXK_LIB says" in missing.disabled
        mimo = early({"MIMO_MXK": "1", **mode}, files | {LIB + "/libmxk_op_pt2.so"}, manifest=built("glm"), switch=MIMO)
        assert mimo.on and set(mimo.changes) == {"GC_KERNEL_PATH", "MXK_STOCK_TPC_LIB"}
    lazy = early({"MIMO_MXK": "1", "PT_HPU_LAZY_MODE": "1"}, files, manifest=built("glm"), switch=MIMO)
    assert "it must be 0" in lazy.disabled


# ---- in a process, through the hooks of the installer ----------------------------------------------------------------

PROGRAM = """\
import os, sys
before = dict(os.environ)
import vllm_gaudi
import vllm_gaudi.ops.hpu_mxfp4 as mxfp4
import json
changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
print(json.dumps({"changed": changed, "hooked": hasattr(mxfp4.HPUGptOssMxfp4MoEMethod, "hooked"),
                  "modules": sorted(sys.modules), "names": sorted(vars(vllm_gaudi)) + sorted(vars(mxfp4)),
                  "gone": sorted(set(before) - set(os.environ))}))
"""


@pytest.fixture
def served(tmp_path):
    """A tree with the runtime installed, its hook a small one, and a folder that looks like a build."""
    source = tmp_path / "source"
    shutil.copytree(PYTHON / "mxk_gaudi", source / "mxk_gaudi", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PYTHON / "anchored_edits.py", source)
    (source / "mxk_gaudi/hook.py").write_text("def install(method):\n    method.hooked = True\n")
    shutil.copy(PYTHON / "install_mxfp4_tpc_moe.py", source)
    vllm_tree.make(tmp_path)
    install = [sys.executable, source / "install_mxfp4_tpc_moe.py", "--root", tmp_path]
    subprocess.run(install, check=True, capture_output=True)
    lib = tmp_path / "lib"
    lib.mkdir()
    for name in ("libmxk_tpc.so", "libmxk_op_lazy.so", "libtpc_kernels.so"):
        (lib / name).write_text("")
    (lib / "MANIFEST").write_text(json.dumps(built()("")))
    return tmp_path


def serve(served, **variables):
    """Exit status, what the program found, lines on stderr."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True,
                          env={**inherited, "PYTHONPATH": str(served), "PYTHONDONTWRITEBYTECODE": "1", **variables})
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def on(served, **variables):
    lib = f"{served}/lib"
    return {**ON, "MXFP4_TPC_MOE_LIB": lib, "GC_KERNEL_PATH": lib + "/libtpc_kernels.so", **variables}


def test_serving_with_the_kernels(served):
    status, found, errors = serve(served, **on(served))
    assert status == 0 and not errors and found["hooked"]
    assert found["changed"] == {"GC_KERNEL_PATH": f"{served}/lib/libmxk_tpc.so", "PT_HPU_LAZY_ACC_PAR_MODE": "0",
                                "MXK_STOCK_TPC_LIB": f"{served}/lib/libtpc_kernels.so"}
    assert serve(served, **{**on(served), **found["changed"]})[1]["changed"] == {}, "a child changes nothing"


def test_serving_with_the_flag_off(served, tmp_path):
    stock = vllm_tree.make(tmp_path / "stock")
    for flag in ({}, {"MXFP4_TPC_MOE": "0"}):
        variables = {**on(served), "MXK_STRICT": "1", **flag}
        variables = {name: value for name, value in variables.items() if name != "MXFP4_TPC_MOE" or flag}
        status, found, errors = serve(served, **variables)
        expected = serve(stock, **variables)[1]
        assert status == 0 and not errors
        more = set(found["modules"]) - set(expected["modules"])
        assert {m for m in more if m.split(".")[0] not in sys.stdlib_module_names} == {
            "vllm_gaudi.ops.mxk_gaudi", "vllm_gaudi.ops.mxk_gaudi.env"}
        assert {key: found[key] for key in ("changed", "gone", "names", "hooked")} == {
            key: expected[key] for key in ("changed", "gone", "names", "hooked")}


def test_serving_without_libraries(served):
    status, found, errors = serve(served, **on(served, MXFP4_TPC_MOE_LIB="/nonexistent"))
    assert status == 0 and found["changed"] == {} and not found["hooked"]
    assert errors == ("WARNING MXFP4 TPC MoE: /nonexistent has no libmxk_tpc.so, no libmxk_op_lazy.so, no MANIFEST; "
                      "MXFP4_TPC_MOE_LIB says where build.sh put them; the stock op is used\n")
    status, found, errors = serve(served, **on(served, MXFP4_TPC_MOE_LIB="/nonexistent", MXK_STRICT="1"))
    assert status == 1 and "\nRuntimeError: MXFP4 TPC MoE: /nonexistent has no" in errors
    assert "MXK_STRICT=1 makes this an error" in errors


def remove(target):
    shutil.rmtree(target)


def spoil_env(target):
    (target / "env.py").write_text("import nothing_of_that_name\n")


def spoil_package(target):
    (target / "__init__.py").write_text("def (:\n")


def spoil_hook(target):
    (target / "hook.py").write_text("def install(method):\n    raise ValueError('of no use')\n")


def remove_hook(target):
    (target / "hook.py").unlink()


@pytest.mark.parametrize("spoil, words", [(remove, "No module named"), (spoil_env, "No module named"),
                                          (spoil_package, "SyntaxError"), (spoil_hook, "ValueError: of no use"),
                                          (remove_hook, "ModuleNotFoundError")])
def test_serving_with_a_broken_runtime(served, spoil, words):
    spoil(served / "vllm_gaudi/ops/mxk_gaudi")
    status, found, errors = serve(served, **on(served))
    assert status == 0 and not found["hooked"]
    assert len(errors.splitlines()) == 1 and words in errors and errors.startswith("WARNING MXFP4 TPC MoE: ")
    assert "the stock op is used" in errors
    status, found, errors = serve(served, **on(served, MXK_STRICT="1"))
    assert status == 1 and words in errors
    status, found, errors = serve(served, **on(served, MXK_STRICT="1", MXFP4_TPC_MOE="0"))
    assert status == 0 and not errors and found["changed"] == {}


def test_log_goes_to_vllm_once(served):
    program = """\
import logging
logging.getLogger("vllm").addHandler(logging.StreamHandler())
from vllm_gaudi.ops.mxk_gaudi import env
assert env.applied().on
for _ in range(2):
    env.decline("a reason")
    env.decline("another %s")
    env.apply()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(served), **on(served, MXFP4_MOE_TPC="1")})
    assert done.stderr.splitlines() == [
        "MXFP4 TPC MoE: MXFP4_MOE_TPC is not a variable of ours and does nothing; did you mean MXFP4_TPC_MOE?",
        "MXFP4 TPC MoE: a reason; the stock op is used", "MXFP4 TPC MoE: another %s; the stock op is used"]


# ---- layers ----------------------------------------------------------------------------------------------------------


def rows():
    done = subprocess.run([os.environ["MXK_CLI"], "variants", "--json"], check=True, capture_output=True)
    return {row["name"]: row for row in json.loads(done.stdout)["variants"]}


ROWS = rows()


def tensors(E, K, I, bias):  # noqa: E741
    shapes = {"w13": (E, 2 * I, K // 2), "s13": (E, 2 * I, K // 32), "w2": (E, K, I // 2), "s2": (E, K, I // 32)}
    made = {name: Tensor("uint8", shape) for name, shape in shapes.items()}
    if bias:
        made.update(b13=Tensor("bfloat16", (E, 2 * I)), b2=Tensor("bfloat16", (E, K)))
    return made


def layer(name="gptoss", E=None, K=None, I=None, change=None, **facts):  # noqa: E741
    row = ROWS[name]
    serving, act = row["serving"], row["act_params"]
    E, K, I = E or serving["e_local"], K or serving["K"], I or serving["I"]  # noqa: E741
    ranks = 2
    parts = tensors(E, K, I, row["bias"])
    for tensor, new in (change or {}).items():
        parts.pop(tensor, None)
        if new is not None:
            parts[tensor] = new
    known = dict(row=row, tensors=parts, rows=row["rows"], alpha=act["alpha"], shift=act["shift"],
                 limit=math.inf if act["limit"] is None else act["limit"], first_expert=E, global_experts=ranks * E,
                 ep_size=ranks, ep_rank=1)
    return LayerFacts(**{**known, **facts})


@pytest.mark.parametrize("name", ROWS)
def test_layers_that_fit(name):
    limits = ROWS[name]["limits"]
    assert why_not(layer(name)) is None
    assert why_not(layer(name, E=limits["experts"], K=limits["k_max"], I=limits["i_max"])) is None
    assert why_not(layer(name, E=1, K=limits["k_multiple"], I=limits["i_multiple"])) is None
    E = ROWS[name]["serving"]["e_local"]
    assert why_not(layer(name, first_expert=0, ep_size=1, ep_rank=0, global_experts=E)) is None


@pytest.mark.parametrize("name", ROWS)
def test_limits_of_a_row(name):
    limits = ROWS[name]["limits"]
    for letter, multiple, largest in (("K", "k_multiple", "k_max"), ("I", "i_multiple", "i_max")):
        for value in (limits[largest] + limits[multiple], limits[multiple] + 16, limits[multiple] // 2):
            assert why_not(layer(name, **{letter: value})) == (
                f"{letter} is {value}; it must be a multiple of {limits[multiple]}, at most {limits[largest]}")
    E = limits["experts"] + 1
    assert why_not(layer(name, E=E)) == f"{E} local experts; there must be 1 to {E - 1}"
    others = {"b13": None} if ROWS[name]["bias"] else {"b2": Tensor("bfloat16", (1, 1))}
    assert "biases" in why_not(layer(name, change=others))


def test_a_padded_intermediate_size():
    for I in (2880, 1472, 768, 384):  # noqa: E741  what vLLM pads 2880, 1440, 736 and 360 to
        assert why_not(layer(I=I, tp_size=2880 // 360)) is None


@pytest.mark.parametrize("facts, reason", [
    ({"device": "gaudi3"}, "the device is gaudi3; the kernels are built for gaudi2"),
    ({"model_types": ("gpt_oss",), "model_type": "glm5_next"}, "the model type is glm5_next; the hook is for gpt_oss"),
    ({"dp_size": 2}, "data parallel size 2; it must be 1"),
    ({"sequence_parallel": True}, "the layer is sequence parallel"),
    ({"lora": True}, "the experts have LoRA"),
    ({"eplb": True}, "experts are rebalanced (EPLB)"),
    ({"redundant_experts": 4}, "4 redundant experts; there must be none"),
    ({"placement": "round_robin"}, "expert placement is round_robin; it must be linear"),
    ({"global_experts": 65}, "65 experts on 2 ranks; each must have as many"),
    ({"global_experts": 128}, "rank 1 of 2 has experts 32 to 63 of 128; each rank must have as many, in order"),
    ({"first_expert": 0}, "rank 1 of 2 has experts 0 to 31 of 64; each rank"),
    ({"rows": "stacked"}, "gate and up rows are stacked; the kernels of gptoss read interleaved ones"),
    ({"alpha": 1.704}, "the activation has alpha 1.704; the kernels of gptoss compute 1.702"),
    ({"limit": 10.0}, "the activation has limit 10.0; the kernels of gptoss compute 7"),
    ({"limit": math.inf}, "the activation has limit inf"),
    ({"shift": 0.0}, "the activation has shift 0.0; the kernels of gptoss compute 1"),
    ({"block_size": 16}, "16 values share a scale; it must be 32"),
    ({"change": {"s2": None}}, "the layer has no s2"),
    ({"change": {"b2": None}}, "the layer has no b2; the kernels of gptoss add biases"),
    ({"change": {"w13": Tensor("uint8", (5760, 1440))}}, "w13 has 2 dimensions; it must have 3"),
    ({"change": {"w2": Tensor("uint8", (32, 2880, 384))}}, "w2 is [32, 2880, 384]; with w13 [32, 5760, 1440] it"),
    ({"change": {"b13": Tensor("float32", (32, 5760))}}, "b13 is float32; it must be bfloat16"),
    ({"change": {"s13": Tensor("int8", (32, 5760, 90))}}, "s13 is int8; it must be uint8"),
    ({"change": {"w13": Tensor("uint8", (32, 5760, 1440), False)}}, "w13 is not contiguous"),
    ({"change": {"w13": Tensor("uint8", (32, 0, 1440))}}, "I is 0; it must be a multiple of 32"),
    ({"change": {"w13": Tensor("uint8", (0, 5760, 1440))}}, "0 local experts; there must be 1 to 128"),
    ({"change": {"w13": Tensor("uint8", (32, 5761, 1440))}}, "w13 is [32, 5761, 1440]"),
])
def test_layers_that_do_not_fit(facts, reason):
    assert why_not(layer(**facts)).startswith(reason)


def test_an_unclamped_variant_refuses_a_clamped_layer():
    assert why_not(layer("glm", limit=10.0)) == "the activation has limit 10.0; the kernels of glm compute inf"


def call(name="gptoss", T=8, k=4, cap=32, K=2880, x=None, ids=None, weights=None):
    return CallFacts(row=ROWS[name], hidden=K, x=x or Tensor("bfloat16", (T, K)), ids=ids or Tensor("int32", (T, k)),
                     weights=weights or Tensor("bfloat16", (T, k)), max_tokens=cap)


@pytest.mark.parametrize("facts, reason", [
    ({"T": 1}, None), ({"T": 32}, None), ({"T": 16, "k": 8}, None), ({"T": 4, "cap": 4}, None),
    ({"ids": Tensor("int64", (8, 4), False)}, None), ({"weights": Tensor("float32", (8, 4))}, None),
    ({"T": 33}, "33 tokens; the kernels take 32"),
    ({"T": 33, "cap": 64}, "33 tokens; the kernels take 32"),
    ({"T": 5, "cap": 4}, "5 tokens; the kernels take 4"),
    ({"T": 17, "name": "glm", "k": 1}, "17 tokens; the kernels take 16"),
    ({"T": 0}, "x is [0, 2880]; it must be [T, 2880] with a token or more"),
    ({"x": Tensor("bfloat16", (8, 2944))}, "x is [8, 2944]; it must be [T, 2880]"),
    ({"x": Tensor("bfloat16", (1, 8, 2880))}, "x is [1, 8, 2880]"),
    ({"x": Tensor("bfloat16", ())}, "x is []"),
    ({"x": Tensor("float16", (8, 2880))}, "x is float16; it must be bfloat16"),
    ({"ids": Tensor("int32", (7, 4))}, "ids are [7, 4]; they must be [8, k]"),
    ({"ids": Tensor("int32", (8, 0))}, "ids are [8, 0]"),
    ({"ids": Tensor("int32", (32,))}, "ids are [32]"),
    ({"ids": Tensor("uint8", (8, 4))}, "ids are uint8"),
    ({"weights": Tensor("bfloat16", (8, 2))}, "routing weights are [8, 2]; they must be [8, 4]"),
    ({"weights": Tensor("float16", (8, 4))}, "routing weights are float16"),
    ({"T": 26, "k": 5}, "130 routes (26 tokens, 5 each); the kernels take 128"),
])
def test_calls(facts, reason):
    facts = call(**facts)
    found = why_not_call(facts)
    assert found is None if reason is None else found.startswith(reason)
    assert too_many_tokens(facts) == (reason is not None and "tokens; the kernels" in reason)


def test_facts_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        layer().device = "gaudi3"
