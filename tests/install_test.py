# SPDX-License-Identifier: Apache-2.0
"""The installer for vllm-gaudi on skeleton trees, and on copies of the real ones that MXK_TEST_VLLM_GAUDI_TREES names:
paths or name=path, by colon. A tree named as in REFUSED must be refused, any other accepted."""

import ast
import errno
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import vllm_tree

PYTHON = Path(__file__).resolve().parents[1] / "python"
SCRIPT = PYTHON / "install_mxfp4_tpc_moe.py"
sys.path.insert(0, str(PYTHON))

import anchored_edits  # noqa: E402

INIT, MXFP4 = "vllm_gaudi/__init__.py", "vllm_gaudi/ops/hpu_mxfp4.py"
TARGET = "vllm_gaudi/ops/mxk_gaudi"
REFUSED = ("v0.21.0", "v0.27.0rc0")  # before the MXFP4 method of gpt-oss, and cut without it
HOOK = "def install(method):\n    method.hooked = True\n"


@pytest.fixture
def installer(tmp_path, monkeypatch):
    """The script as a module, with a runtime of env.py and a small hook, which tests may change."""
    spec = importlib.util.spec_from_file_location("installer", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    runtime = tmp_path / "source" / "mxk_gaudi"
    runtime.mkdir(parents=True)
    for name in ("__init__.py", "env.py"):
        shutil.copy(PYTHON / "mxk_gaudi" / name, runtime)
    (runtime / "hook.py").write_text(HOOK)
    monkeypatch.setattr(module, "RUNTIME", runtime)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield module
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def tree(tmp_path):
    return vllm_tree.make(tmp_path / "tree")


def append(path, text):
    with open(path, "a") as f:
        f.write(text)


def refused(installer, tree, capsys, *arguments):
    """What it says when it refuses, having changed nothing."""
    before = vllm_tree.snapshot(tree)
    capsys.readouterr()
    assert installer.main(["--root", str(tree), *arguments]) == 1
    assert vllm_tree.snapshot(tree) == before
    said = capsys.readouterr().err
    assert "no file was changed" in said
    return said


def installed(installer, tree):
    assert installer.main(["--root", str(tree)]) == 0
    assert installer.main(["--root", str(tree), "--check"]) == 0
    return vllm_tree.snapshot(tree)


# ---- what it looks for -----------------------------------------------------------------------------------------------


def test_the_anchors_are_those_of_the_skeleton(installer):
    assert [tuple(anchor) for anchor in installer.ANCHORS] == vllm_tree.ANCHORS


@pytest.mark.parametrize("anchor", vllm_tree.ANCHORS, ids=lambda a: a[0])
@pytest.mark.parametrize("how", ["missing", "2 hits", "other indentation", "trailing space", "longer"])
def test_each_anchor(installer, tmp_path, capsys, anchor, how):
    name, file, line = anchor
    new = {"missing": [], "2 hits": [line, line], "other indentation": ["  " + line], "trailing space": [line + " \t"],
           "longer": [line + " # more"]}[how]
    tree = vllm_tree.make(tmp_path / "tree", {file: vllm_tree.change(line, new)})
    if how == "trailing space":
        assert installer.main(["--root", str(tree)]) == 0
        return
    said = refused(installer, tree, capsys)
    assert "1 of 11 anchors" in said and line in said
    # The skeleton, like the real file, has another "import os" with another indentation.
    expected = "other indentation" if name == "A1" and how in ("missing", "longer") else how
    assert f"{name} {file}: {'missing' if expected == 'longer' else expected}" in said


def test_all_misses_are_named(installer, tree, capsys):
    (tree / MXFP4).unlink()
    (tree / "vllm_gaudi/extension/ops.py").write_text("")
    said = refused(installer, tree, capsys)
    assert "8 of 11" in said
    assert all(f"A{i} ops/hpu_mxfp4.py: there is no such file" in said for i in range(4, 11))
    assert "A11 extension/ops.py: missing" in said
    refused(installer, tree, capsys, "--check")
    refused(installer, tree, capsys, "--dry-run")


@pytest.mark.parametrize("file", [INIT, MXFP4, "vllm_gaudi/extension/ops.py"])
def test_other_encodings(installer, tree, capsys, file):
    text = (tree / file).read_bytes()
    (tree / file).write_bytes(text.replace(b"\n", b"\r\n"))
    assert "CR LF" in refused(installer, tree, capsys)
    (tree / file).write_bytes(text + b"# \xe4\n")
    assert "not UTF-8" in refused(installer, tree, capsys)


def test_an_ops_package_that_imports(installer, tree, capsys):
    (tree / "vllm_gaudi/ops/__init__.py").write_text("if True:\n    from vllm_gaudi import platform\n")
    assert "ops/__init__.py imports other modules" in refused(installer, tree, capsys)


def test_no_tree(installer, tmp_path, capsys):
    assert installer.main(["--root", str(tmp_path)]) == 1
    assert "--root is the folder that holds vllm_gaudi/" in capsys.readouterr().err


# ---- what it writes --------------------------------------------------------------------------------------------------


def test_what_is_installed(installer, tree):
    before = vllm_tree.snapshot(tree)
    after = installed(installer, tree)
    runtime = {path for path in after if path not in before}
    assert runtime == {TARGET} | {f"{TARGET}/{name}" for name in ("INSTALLED", "__init__.py", "env.py", "hook.py")}
    assert {path for path in before if before[path] != after[path]} == {INIT, MXFP4}
    assert after[INIT][1] == before[INIT][1] and after[TARGET + "/env.py"][1] == before[MXFP4][1]
    first, last = ast.parse(after[INIT][0]).body[0], ast.parse(after[MXFP4][0]).body[-1]
    assert isinstance(first, ast.FunctionDef) and first.name == "_mxk" and isinstance(last, ast.Delete)
    assert after[INIT][0].endswith(before[INIT][0]) and after[MXFP4][0].startswith(before[MXFP4][0])


def test_the_real_runtime(tree):
    run = [sys.executable, SCRIPT, "--root", tree]
    subprocess.run(run, check=True, capture_output=True)
    for source in (PYTHON / "mxk_gaudi").glob("*.py"):
        assert (tree / TARGET / source.name).read_bytes() == source.read_bytes()
    done = subprocess.run([*run, "--check"], check=True, capture_output=True, text=True)
    assert "\ninstalled: version " in done.stdout and done.stdout.count(" ok ") == 11


def test_twice(installer, tree, capsys):
    first = installed(installer, tree)
    capsys.readouterr()
    assert installed(installer, tree) == first
    assert "already installed" in capsys.readouterr().out


def test_another_version(installer, tree, capsys):
    original = vllm_tree.snapshot(tree)
    old = installed(installer, tree)
    append(installer.RUNTIME / "env.py", "# newer\n")
    (installer.RUNTIME / "hook.py").unlink()
    (installer.RUNTIME / "load.py").write_text("")
    capsys.readouterr()
    assert installer.main(["--root", str(tree), "--check"]) == 1
    assert "is installed, this is" in capsys.readouterr().out
    assert vllm_tree.snapshot(tree) == old
    new = installed(installer, tree)
    assert TARGET + "/load.py" in new and TARGET + "/hook.py" not in new
    assert new[INIT][0] != old[INIT][0] and new[INIT][0].count(b">>> mxk") == new[MXFP4][0].count(b">>> mxk") == 1
    assert installer.main(["--root", str(tree), "--uninstall"]) == 0
    assert vllm_tree.snapshot(tree) == original


def test_a_changed_runtime_is_repaired(installer, tree, capsys):
    first = installed(installer, tree)
    append(tree / TARGET / "env.py", "# changed\n")
    (tree / TARGET / "hook.py").unlink()
    capsys.readouterr()
    assert installer.main(["--root", str(tree), "--check"]) == 1
    assert "missing or changed: ops/mxk_gaudi/env.py, ops/mxk_gaudi/hook.py" in capsys.readouterr().out
    assert installed(installer, tree) == first


def test_a_runtime_that_does_not_compile(installer, tree, capsys):
    (installer.RUNTIME / "hook.py").write_text("def (:\n")
    assert "ops/mxk_gaudi/hook.py: it would not compile" in refused(installer, tree, capsys)
    (installer.RUNTIME / "env.py").unlink()
    assert "has no env.py" in refused(installer, tree, capsys)


def test_links_stay_links(installer, tree):
    shutil.move(tree / INIT, tree / "elsewhere.py")
    (tree / INIT).symlink_to(tree / "elsewhere.py")
    before = vllm_tree.snapshot(tree)
    after = installed(installer, tree)
    assert after[INIT] == before[INIT] and after["elsewhere.py"] != before["elsewhere.py"]


def test_bytecode_is_dropped(installer, tree):
    cached = tree / "vllm_gaudi/__pycache__/__init__.cpython-399.pyc"
    cached.parent.mkdir()
    cached.write_text("stale, and never compared with its source")
    installed(installer, tree)
    assert not cached.exists()


def test_dry_run(installer, tree, capsys):
    before = vllm_tree.snapshot(tree)
    assert installer.main(["--root", str(tree), "--dry-run"]) == 0
    assert vllm_tree.snapshot(tree) == before
    said = capsys.readouterr().out
    assert "\n+++ b/vllm_gaudi/__init__.py\n" in said and "\n+++ b/vllm_gaudi/ops/hpu_mxfp4.py\n" in said
    assert f"would write {tree}/{TARGET}/env.py" in said and "\n-" not in said.replace("\n--- ", "")
    after = installed(installer, tree)
    assert installer.main(["--root", str(tree), "--uninstall", "--dry-run"]) == 0
    assert vllm_tree.snapshot(tree) == after and f"would remove {tree}/{TARGET}/env.py" in capsys.readouterr().out


# ---- blocks that are not as they were written ------------------------------------------------------------------------


@pytest.mark.parametrize("file", [INIT, MXFP4])
@pytest.mark.parametrize("old, new, message", [
    ("env", "environment", "was edited by hand"),
    ("# >>> mxk", "# mxk", "is not whole"),
    ("# <<< mxk", "# mxk", "is not whole"),
    ("# <<< mxk", "# >>> mxk", "is not whole"),
    ("# >>> mxk", "    # >>> mxk", "is not whole"),
    (", text ", ", ", "is not whole"),
    ("mxk E", "mxk F", "is not whole"),
])
def test_edited_blocks(installer, tree, capsys, file, old, new, message):
    installed(installer, tree)
    text = (tree / file).read_text()
    (tree / file).write_text(text.replace(old, new, 1))
    for arguments in ([], ["--check"], ["--uninstall"], ["--dry-run"]):
        said = refused(installer, tree, capsys, *arguments)
        assert message in said and f"{file.replace('vllm_gaudi/', '', 1)}: the mxk block at line" in said


@pytest.mark.parametrize("file", [INIT, MXFP4])
def test_half_there(installer, tree, capsys, file):
    original = vllm_tree.snapshot(tree)
    installed(installer, tree)
    (tree / file).write_bytes(original[file][0])
    assert "only one of the two mxk blocks" in refused(installer, tree, capsys)
    assert "only one of the two mxk blocks" in refused(installer, tree, capsys, "--check")
    assert installer.main(["--root", str(tree), "--uninstall"]) == 0
    assert vllm_tree.snapshot(tree) == original


def test_a_block_twice_or_in_the_other_file(installer, tree, capsys):
    installed(installer, tree)
    text = (tree / INIT).read_text()
    block = text[:text.index("import os\nimport json")]
    (tree / INIT).write_text(block + text)
    assert "is not whole" in refused(installer, tree, capsys)
    (tree / INIT).write_text(text)
    append(tree / "vllm_gaudi/extension/ops.py", "import os\n")  # not a file with blocks: no matter
    (tree / MXFP4).write_text(block + vllm_tree.FILES["ops/hpu_mxfp4.py"])
    assert "ops/hpu_mxfp4.py: the mxk block at line 1 is not whole" in refused(installer, tree, capsys)
    (tree / MXFP4).write_text(vllm_tree.FILES["ops/hpu_mxfp4.py"])
    (tree / INIT).write_text(text.replace("# >>> mxk E1", "# >>> mxk E2"))
    assert "__init__.py: the mxk block at line 1 is not whole" in refused(installer, tree, capsys)


OTHER = "# >>> other X1, version 01234567, text 89abcdef >>>\nother = 1\n# <<< other X1 <<<\n"


@pytest.mark.parametrize("between, kept", [(OTHER, True), (OTHER + OTHER.replace("X1", "X2"), True), ("x = 1\n", False),
                                           (OTHER + "x = 1\n", False), (OTHER[:-8] + "\n", False),
                                           (OTHER.replace("<<< other", "<<< more"), False)])
@pytest.mark.parametrize("file", [INIT, MXFP4])
def test_what_may_stand_between_a_block_and_its_place(installer, tree, capsys, file, between, kept):
    installed(installer, tree)
    text = (tree / file).read_text()
    at = text.index("import os\nimport json") if file == INIT else len(text)
    changed = text[:at] + between + text[at:]
    (tree / file).write_text(changed)
    capsys.readouterr()
    assert installer.main(["--root", str(tree), "--check"]) == (0 if kept else 1)
    name = file.replace("vllm_gaudi/", "", 1)
    assert ("\ninstalled: " if kept else f"missing or changed: {name}\n") in capsys.readouterr().out
    installed(installer, tree)
    assert ((tree / file).read_text() == changed) == kept
    assert installer.main(["--root", str(tree), "--uninstall"]) == 0
    stock = vllm_tree.FILES[name]
    assert (tree / file).read_text() == (between + stock if file == INIT else stock + between)


# ---- uninstall -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edit", [lambda t: t, lambda t: t[:-1], lambda t: t + "\n\n", lambda t: t[:-1] + "  ",
                                  lambda t: t + "if 1:\n    pass"],
                         ids=["newline", "none", "empty lines", "spaces", "indented"])
def test_uninstall_gives_back_every_byte(installer, tmp_path, edit):
    tree = vllm_tree.make(tmp_path / "tree", {"ops/hpu_mxfp4.py": edit, "__init__.py": edit})
    original = vllm_tree.snapshot(tree)
    for _ in range(2):
        installed(installer, tree)
        compile((tree / MXFP4).read_text(), MXFP4, "exec")
        (tree / TARGET / "__pycache__").mkdir()
        (tree / TARGET / "__pycache__/env.cpython-399.pyc").write_text("")
        assert installer.main(["--root", str(tree), "--uninstall"]) == 0
        assert vllm_tree.snapshot(tree) == original
        assert not (tree / TARGET).exists()


def test_uninstall_leaves_what_others_added(installer, tree):
    installed(installer, tree)
    append(tree / MXFP4, "later = 1\n")
    assert installer.main(["--root", str(tree), "--uninstall"]) == 0
    assert (tree / MXFP4).read_text() == vllm_tree.FILES["ops/hpu_mxfp4.py"] + "later = 1\n"


def test_uninstall_without_the_runtime_and_twice(installer, tree, capsys):
    original = vllm_tree.snapshot(tree)
    installed(installer, tree)
    shutil.rmtree(tree / TARGET)
    for said in ("removed from", "nothing to remove"):
        capsys.readouterr()
        assert installer.main(["--root", str(tree), "--uninstall"]) == 0
        assert said in capsys.readouterr().out
        assert vllm_tree.snapshot(tree) == original


def test_foreign_files(installer, tree, capsys):
    installed(installer, tree)
    (tree / TARGET / "notes.txt").write_text("mine")
    (tree / TARGET / "more").mkdir()
    (tree / TARGET / "more/own.py").write_text("mine")
    for arguments in (["--uninstall"], [], ["--check"]):
        assert "files that are not ours: more/own.py, notes.txt" in refused(installer, tree, capsys, *arguments)


def test_a_folder_of_that_name(installer, tree, capsys):
    (tree / TARGET).write_text("")
    assert "is not a folder" in refused(installer, tree, capsys)


# ---- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError(errno.EROFS, "Read-only file system"), KeyboardInterrupt()],
                         ids=["error", "ctrl-c"])
@pytest.mark.parametrize("what", ["install", "upgrade", "uninstall"])
def test_a_failure_at_every_step(installer, tree, capsys, what, error):
    if what != "install":
        installed(installer, tree)
    if what == "upgrade":
        append(installer.RUNTIME / "env.py", "# newer\n")
        (installer.RUNTIME / "hook.py").unlink()
    before = vllm_tree.snapshot(tree)
    arguments = ["--root", str(tree)] + ["--uninstall"] * (what == "uninstall")
    step = 0
    while True:
        step += 1
        with pytest.MonkeyPatch.context() as monkeypatch:
            count = vllm_tree.fail_at(monkeypatch, step, error)
            status = installer.main(arguments)
        if count[0] < step:
            break
        assert status == (130 if isinstance(error, KeyboardInterrupt) else 1), step
        assert vllm_tree.snapshot(tree) == before, step
        assert "no file was changed" in capsys.readouterr().err
    assert status == 0 and step > 10
    assert vllm_tree.snapshot(tree) != before


def test_a_failure_that_cannot_be_undone(installer, tree, capsys, monkeypatch):
    installed(installer, tree)
    append(installer.RUNTIME / "env.py", "# newer\n")
    count, original = [0], os.replace

    def replace(*args):
        count[0] += 1
        if count[0] > 1:
            raise OSError("full")
        return original(*args)

    monkeypatch.setattr(anchored_edits.os, "replace", replace)
    assert installer.main(["--root", str(tree)]) == 1
    said = capsys.readouterr().err
    assert "could not be put back" in said and "INSTALLED" in said and "no file was changed" not in said


def test_what_was_written_is_read_again(installer, tree, capsys, monkeypatch):
    monkeypatch.setattr(anchored_edits.Transaction, "_replace",
                        lambda self, path, data, status: path.write_bytes(data[:-1]))
    before = vllm_tree.snapshot(tree)
    assert installer.main(["--root", str(tree)]) == 1
    assert "it is not what was written" in capsys.readouterr().err
    monkeypatch.undo()
    assert set(vllm_tree.snapshot(tree)) == set(before)


def test_another_python_cannot_compile_it(installer, tree, capsys, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "SyntaxError: so it says")
    monkeypatch.setattr(anchored_edits.subprocess, "run", lambda *args, **keywords: failed)
    assert "does not compile: SyntaxError: so it says" in refused(installer, tree, capsys)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_tree(installer, tree, capsys):
    folders = [tree / "vllm_gaudi", tree / "vllm_gaudi/ops"]
    for folder in folders:
        folder.chmod(0o555)
    refused(installer, tree, capsys)
    folders[1].chmod(0o755)
    refused(installer, tree, capsys)
    folders[0].chmod(0o755)


def test_what_a_killed_install_left(installer, tree):
    (tree / TARGET).mkdir()
    for name in ("INSTALLED", "env.py"):
        installed_file = installer.make_package().runtime[f"ops/mxk_gaudi/{name}"]
        (tree / TARGET / name).write_bytes(installed_file)
    (tree / TARGET / ".mxk-abcdef").write_text("half of a file")
    after = installed(installer, tree)
    assert not [path for path in after if ".mxk-" in path]


# ---- the command -----------------------------------------------------------------------------------------------------


def run(*arguments, **environment):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": "", **environment})


def test_finds_the_package_without_running_it(tree, tmp_path):
    append(tree / INIT, "raise RuntimeError('it was run')\n")
    assert run(PYTHONPATH=str(tree)).returncode == 0
    assert (tree / TARGET / "env.py").exists()
    (tmp_path / "empty/vllm_gaudi").mkdir(parents=True)
    (tmp_path / "module").mkdir()
    (tmp_path / "module/vllm_gaudi.py").write_text("")
    for path in ("", tmp_path / "empty", tmp_path / "module"):
        done = run(PYTHONPATH=str(path))
        assert done.returncode == 1 and "has no package vllm_gaudi; --root says where" in done.stderr


def test_help_and_misuse(tree):
    done = run("--help")
    assert done.returncode == 0 and "example" in done.stdout and "--uninstall" in done.stdout
    assert run("--root").returncode == 2
    done = run("--root", str(tree), "--check", "--uninstall")
    assert done.returncode == 2 and "--check" in done.stderr


def test_the_oldest_python():
    for path in [SCRIPT, PYTHON / "anchored_edits.py", *(PYTHON / "mxk_gaudi").glob("*.py")]:
        ast.parse(path.read_text(), str(path), feature_version=(3, 9))


def trees():
    for entry in filter(None, os.environ.get("MXK_TEST_VLLM_GAUDI_TREES", "").split(":")):
        name, _, path = entry.rpartition("=")
        yield pytest.param(name or Path(path).name, path, id=name or Path(path).name)


@pytest.mark.parametrize("name, path", list(trees()))
def test_real_trees(tmp_path, name, path):
    shutil.copytree(Path(path, "vllm_gaudi"), tmp_path / "vllm_gaudi", symlinks=True)
    before = vllm_tree.snapshot(tmp_path)
    root = ["--root", str(tmp_path)]
    done = run(*root)
    if name in REFUSED:
        assert done.returncode == 1 and "A4 ops/hpu_mxfp4.py" in done.stderr
        assert vllm_tree.snapshot(tmp_path) == before
        return
    assert done.returncode == 0, done.stderr
    after = vllm_tree.snapshot(tmp_path)
    for step in ([], ["--check"], ["--dry-run"]):
        assert run(*root, *step).returncode == 0
        assert vllm_tree.snapshot(tmp_path) == after
    program = "import vllm_gaudi, sys; print(sorted(m for m in sys.modules if m.split('.')[0] in ('torch', 'vllm')))"
    for flag in ("0", "1"):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "MXFP4_TPC_MOE": flag, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout == "[]\n", done.stderr
        assert len(done.stderr.splitlines()) == int(flag), done.stderr
    assert run(*root, "--uninstall").returncode == 0
    assert vllm_tree.snapshot(tmp_path) == before


@pytest.mark.parametrize("arguments", [[], ["--uninstall"]])
def test_nobody_reads_what_was_done(installer, tree, arguments):
    """The files are changed then, so that is what is said."""
    if arguments:
        installer.main(["--root", str(tree)])
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, str(SCRIPT), "--root", str(tree), *arguments], stdout=full,
                              stderr=subprocess.PIPE, text=True)
    whole = installer.main(["--root", str(tree), "--check"]) == 0
    assert ("no file was changed" in done.stderr) == (whole == bool(arguments))
