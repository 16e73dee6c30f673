# SPDX-License-Identifier: Apache-2.0
"""What build.sh refuses, and what it leaves behind."""

import os
import pathlib
import shutil
import signal
import stat
import subprocess
import time

import pytest
from build_sh_helpers import EXAMPLE, build, env, extra, manifest_of, nothing_left, quick, script, tree  # noqa: F401

# ---- usage -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("arguments, message", [
    ([], "OUT_DIR is missing"),
    ([""], "OUT_DIR is empty"),
    (["a", "b"], "there is one OUT_DIR, not also 'b'"),
    (["--fast", "a"], "unknown option --fast"),
    (["a", "--variant"], "--variant needs a value"),
    (["--variant", "--pt2", "a"], "--variant needs a value"),
    (["a", "--extra-kernel"], "--extra-kernel needs a value"),
    (["--pt2", "a"], "--pt2 is not for gptoss: gpt-oss serves in lazy mode"),
    (["--pt2", "--variant", "glm", "--extra-kernel", EXAMPLE, "a"], "extra kernels have legacy ops only"),
])
def test_misuse(arguments, message, quick, tmp_path):
    done = build(*arguments, env=quick, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert message in done.stderr.splitlines()[0] and "nothing was built" in done.stderr
    assert "usage: build.sh [--variant gptoss|glm|dsv41|muse|kimi]" in done.stderr
    assert nothing_left(tmp_path)


def test_help(quick):
    for option in ("-h", "--help"):
        done = build(option, env=quick)
        assert done.returncode == 0 and done.stderr == "" and done.stdout.startswith("usage: build.sh ")


def test_unknown_variant(quick, tmp_path):
    done = build("--variant", "glm5", tmp_path / "out", env=quick)
    assert done.returncode == 2 and nothing_left(tmp_path)
    assert "there is no variant 'glm5', but gptoss, glm, dsv41, muse, kimi; nothing was built" in done.stderr


# ---- what is missing -------------------------------------------------------------------------------------------------

MISSING = {  # variable, what the message names
    "TPC_CLANG": "the TPC compiler: no {} (TPC_CLANG",
    "CXX": "a C++ compiler: no {} (CXX",
    "PYTHON": "Python: no {} (PYTHON",
    "MXK_SDK_INCLUDE": "no tpc_kernel_lib_interface.h in {} (MXK_SDK_INCLUDE",
    "MXK_STOCK_TPC_LIB": "the stock TPC kernel library: no {} (MXK_STOCK_TPC_LIB",
    "MXK_BRIDGE_INCLUDE": "no hpu_custom_op.h in {} (MXK_BRIDGE_INCLUDE",
    "MXK_BRIDGE_LIB": "no libhabana_pytorch_plugin.so in {} (MXK_BRIDGE_LIB",
}


@pytest.mark.parametrize("variable", MISSING)
def test_one_thing_missing(variable, quick, tmp_path):
    nowhere = tmp_path / "no where"
    done = build(tmp_path / "out", env=dict(quick, **{variable: str(nowhere)}))
    assert done.returncode == 1 and nothing_left(tmp_path)
    first, *lines = done.stderr.splitlines()
    assert first == "build.sh: nothing was built, this is missing:"
    assert len(lines) == 1 and MISSING[variable].format(nowhere) in lines[0]


def test_all_of_it_missing(quick, tmp_path):
    names = [name for name in MISSING if name != "PYTHON"]
    (tmp_path / "torch.py").write_text("raise OSError('libtorch_cpu.so: not\\nthere')\n")
    done = build("--extra-kernel", tmp_path / "none", "--variant", "dsv41", tmp_path / "out",
                 env=dict(quick, PYTHONPATH=str(tmp_path), **{name: f"/nowhere/{name}" for name in names}))
    assert done.returncode == 1
    for name in names:
        assert MISSING[name].format(f"/nowhere/{name}") in done.stderr
    others = ("does not load: libtorch_cpu.so: not there", "exactly one <guid>.c, there are 0", "no glue.inc",
              "no op.cpp")
    for text in others:
        assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1 + len(names) + len(others)


@pytest.mark.parametrize("version, enough", [("1.13.1", False), ("2.5.1+hpu", False), ("2.6.0", True),
                                             ("2.10.0a0+git", True)])
def test_version_of_torch(version, enough, quick, tmp_path):
    (tmp_path / "torch.py").write_text(f"__version__ = '{version}'\ncompiled_with_cxx11_abi = lambda: True\n")
    path = f"{tmp_path}:{quick['PYTHONPATH']}"
    done = build("--variant", "none", tmp_path / "out", env=dict(quick, PYTHONPATH=path))
    assert ("torch 2.6 or later" in done.stderr) == (not enough), done.stderr
    assert done.returncode == (2 if enough else 1)


def test_pt2_needs_its_own_files(quick, tmp_path):
    bridge = pathlib.Path(quick["PYTHONPATH"]) / "habana_frameworks" / "torch"
    for folder, file in (("include", "hpu_custom_op_pt2.h"), ("lib", "libhabana_pytorch2_plugin.so")):
        shutil.copytree(bridge / folder, tmp_path / folder)
        (tmp_path / folder / file).unlink()
    variables = dict(quick, MXK_BRIDGE_INCLUDE=str(tmp_path / "include"), MXK_BRIDGE_LIB=str(tmp_path / "lib"))
    done = build("--variant", "glm", "--pt2", tmp_path / "out", env=variables)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 3
    assert "no hpu_custom_op_pt2.h in" in done.stderr and "no libhabana_pytorch2_plugin.so in" in done.stderr


# ---- extra kernels ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("guids, fields, message", [
    (["mxk_w13x"], {}, "mxk_w13x is the name of a kernel of mxk"),
    (["mxk_w2x_f32"], {}, "mxk_w2x_f32 is the name of a kernel of mxk"),
    (["port_a", "port_a"], {}, "port_a is there twice"),
    (["stock_kernel_20_f32"], {}, "stock_kernel_20_f32 is the name of a kernel of the stock library"),
    (["port-a"], {"name": "port_a"}, "'port-a' must be a name in C"),
    (["p" * 64], {}, "of at most 63 characters"),
    (["port_a"], {"name": "port_b"}, "the kernels are port_a, the rows port_b"),
    (["port_a"], {"row": ""}, "the kernels are port_a, the rows none"),
    (["port_a"], {"row": "#error planted\n"}, "planted"),
    (["port_a"], {"users": "always"}, "must be 'extra' and not emulation only, it is 'always', 0"),
    (["port_a"], {"emulation": 1}, "must be 'extra' and not emulation only, it is 'extra', 1"),
])
def test_extra_kernel_refused(guids, fields, message, quick, tmp_path):
    folders = [extra(tmp_path / "extra" / str(i), guid, **fields) for i, guid in enumerate(guids)]
    out = tmp_path / "results" / "out"
    done = build("--variant", "dsv41", *(word for f in folders for word in ("--extra-kernel", f)), out, env=quick)
    assert done.returncode == 1 and message in done.stderr and "nothing was built" in done.stderr
    assert not out.parent.exists()


def test_extra_kernel_with_two_sources(quick, tmp_path):
    folder = extra(tmp_path / "extra", "port_a")
    (folder / "more.c").touch()
    done = build("--variant", "dsv41", "--extra-kernel", folder, tmp_path / "out", env=quick)
    assert done.returncode == 1 and "exactly one <guid>.c, there are 2" in done.stderr


# ---- what is left behind ---------------------------------------------------------------------------------------------

def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_out_dir(env, tree, tmp_path):
    """An earlier build is replaced, by a later one that works; what is none is not touched."""
    out = tmp_path / "out"
    out.mkdir(mode=0o700)  # empty
    (tmp_path / "link").symlink_to(out)
    assert build("--variant", "kimi", out, env=env, tree=tree).returncode == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o777 & ~umask()
    first = contents(out)
    broken = script(tmp_path / "tpc-clang", '#!/bin/sh\necho "planted: no registers left" >&2\nexit 1\n')
    done = build("--variant", "muse", out, env=dict(env, TPC_CLANG=str(broken)), tree=tree)
    assert done.returncode == 1 and contents(out) == first
    assert "compiling the kernel mxk_w13x failed; nothing was built\nplanted: no registers left" in done.stderr
    done = build("--variant", "muse", tmp_path / "link", env=env, tree=tree)
    assert done.returncode == 0 and manifest_of(out)["variant"] == "muse" and (tmp_path / "link").is_symlink()
    (out / "notes.txt").touch()
    done = build("--variant", "kimi", out, env=env, tree=tree)
    assert done.returncode == 1
    assert f"{out} is an earlier build, but has other files too: notes.txt; nothing was built" in done.stderr
    assert manifest_of(out)["variant"] == "muse"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "out", "tpc-clang"]


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("name, text", [("notes.txt", "mine"), ("MANIFEST", "{}"), ("MANIFEST", "not json"),
                                        ("MANIFEST", '{"versions": {"other": 1}, "files": {}}')])
def test_what_is_no_build_is_not_replaced(name, text, quick, tmp_path):
    (tmp_path / name).write_text(text)
    done = build(tmp_path, env=quick)
    assert done.returncode == 1 and f"{tmp_path} is neither empty nor an earlier build" in done.stderr
    assert contents(tmp_path) == {name: text.encode()}
    done = build(tmp_path / name, env=quick)
    assert done.returncode == 1 and f"{tmp_path / name} is not a folder" in done.stderr


@pytest.mark.parametrize("number, status, group", [(signal.SIGINT, 130, True), (signal.SIGINT, 130, False),
                                                   (signal.SIGTERM, 143, False)])
def test_interrupted(number, status, group, env, tree, tmp_path):
    """By Ctrl-C, which all processes of a terminal see, or a signal to the script alone."""
    compiler = script(tmp_path / "tpc-clang", f'#!/bin/sh\nsleep 321 &\necho $! >>"{tmp_path}/pids"\nwait\n')
    out = tmp_path / "folder" / "deep" / "out"
    process = subprocess.Popen([tree / "build.sh", "--variant", "kimi", out], env=dict(env, TPC_CLANG=str(compiler)),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "pids").exists() or not (tmp_path / "pids").read_text():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    time.sleep(0.1)
    os.killpg(process.pid, number) if group else os.kill(process.pid, number)
    error = process.communicate(timeout=30)[1]
    assert process.returncode == status, error
    assert not (tmp_path / "folder").exists()
    for pid in (tmp_path / "pids").read_text().split():
        state = pathlib.Path(f"/proc/{pid}/stat")
        assert not state.exists() or state.read_text().split()[2] == "Z", "a compiler is still running"
