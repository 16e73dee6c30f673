#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the runtime of the MXFP4 kernels into vllm-gaudi, or takes it out again.

It copies the package mxk_gaudi to vllm_gaudi/ops/ and adds a few lines to two files: at the top of
vllm_gaudi/__init__.py, because the environment must be right before habana is imported, and at the end of
ops/hpu_mxfp4.py. Unless MXFP4_TPC_MOE=1 they do nothing. What the runtime relies on is looked for first, as 11 lines
that must be there exactly once; where one is not, or anything else goes wrong, no file is changed and the exit status
is 1.
"""

import argparse
import ast
import difflib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

NAME = "install_mxfp4_tpc_moe.py"
RUNTIME = Path(__file__).resolve().parent / "mxk_gaudi"
INIT, MXFP4, OPS = "__init__.py", "ops/hpu_mxfp4.py", "extension/ops.py"
TARGET = "ops/mxk_gaudi"
RECORD = "INSTALLED"  # in the target: which files are ours, of whatever version
TEMPORARY = ".mxk-"

# Whole lines, with their indentation. E1 goes above A1, E2 to the end of the file of A10; the others are what the
# runtime relies on.
Anchor = namedtuple("Anchor", "id file line")
ANCHORS = (
    Anchor("A1", INIT, "import os"),
    Anchor("A2", INIT, "    from vllm_gaudi.platform import HpuPlatform"),
    Anchor("A3", INIT, "    import vllm_gaudi.ops.hpu_mxfp4  # noqa: F401"),
    Anchor("A4", MXFP4, "class HPUGptOssMxfp4MoEMethod(GptOssMxfp4MoEMethod):"),
    Anchor("A5", MXFP4, "    def process_weights_after_loading(self, layer) -> None:"),
    Anchor("A6", MXFP4, "        layer.moe_op = VllmMixtureOfExpertsOpMXFP4("),
    Anchor("A7", MXFP4, "        layer.moe_op._cache_weight_lists()"),
    Anchor("A8", MXFP4, "    def apply_monolithic("),
    Anchor("A9", MXFP4, "        output = layer.moe_op("),
    Anchor("A10", MXFP4, "mxfp4_module.GptOssMxfp4MoEMethod = HPUGptOssMxfp4MoEMethod"),
    Anchor("A11", OPS, " " * 20 + "return torch.ops.hpu.mixture_of_experts.bias_mxfp4_fused_weights("),
)

E1 = """\
def _mxk():  # above all imports: habana reads the environment once
    try:
        from vllm_gaudi.ops.mxk_gaudi import env
    except Exception as error:  # the engine runs without its kernels too
        import os
        import sys
        if os.environ.get("MXFP4_TPC_MOE") != "1":
            return
        message = f"MXFP4 TPC MoE: the runtime cannot be imported ({error!r}); the stock op is used"
        if os.environ.get("MXK_STRICT") == "1":
            raise RuntimeError(message) from error
        print("WARNING " + message, file=sys.stderr)
    else:
        env.apply()


_mxk()
del _mxk
"""
E2 = """\
def _mxk():
    try:
        from vllm_gaudi.ops.mxk_gaudi import env
    except Exception:  # said at the top of vllm_gaudi/__init__.py
        return
    env.install_hook(HPUGptOssMxfp4MoEMethod)


_mxk()
del _mxk
"""
BLOCKS = {INIT: ("E1", E1), MXFP4: ("E2", E2)}
MARKER = re.compile(r"\s*#\s*(>>>|<<<)\s*mxk\b")
BEGIN = re.compile(r"# >>> mxk (E[12]), version ([0-9a-f]{8}), text ([0-9a-f]{8}) >>>")


class Refused(Exception):
    """Nothing was changed."""


class NotRestored(Exception):
    """The tree is not as it was."""


def short_hash(data):
    return hashlib.sha256(data).hexdigest()[:8]


# ---- text ------------------------------------------------------------------------------------------------------------


def add_block(file, text, version):
    name, body = BLOCKS[file]
    block = f"# >>> mxk {name}, version {version}, text {short_hash(body.encode())} >>>\n{body}# <<< mxk {name} <<<\n"
    if file == INIT:
        anchor = ANCHORS[0].line
        return re.sub(rf"^(?={anchor}[^\S\n]*$)", lambda _: block, text, count=1, flags=re.M)
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
    where = f"{file}: the mxk block at line {markers[0] + 1}"
    if len(markers) != 2 or not begin or begin[1] != name or lines[markers[1]] != f"# <<< mxk {name} <<<":
        raise Refused(f"{where} is not whole: it must be '# >>> mxk {name}, ... >>>' to '# <<< mxk {name} <<<', once")
    first, last = markers
    body = "".join(line + "\n" for line in lines[first + 1:last])
    if short_hash(body.encode()) != begin[3]:
        raise Refused(f"{where} was edited by hand")
    if file == MXFP4 and first and not lines[first - 1]:
        first -= 1  # the empty line came with the block
    return "\n".join(lines[:first] + lines[last + 1:]), begin[2]


def find_anchors(texts):
    """For each anchor None, or what is wrong with it."""
    found = {}
    for anchor in ANCHORS:
        text = texts[anchor.file]
        if text is None:
            found[anchor] = "there is no such file"
            continue
        lines = [line.rstrip() for line in text.split("\n")]
        hits = [i + 1 for i, line in enumerate(lines) if line == anchor.line]
        others = [i + 1 for i, line in enumerate(lines) if line.strip() == anchor.line.strip()]
        if len(hits) == 1:
            found[anchor] = None
        elif hits:
            found[anchor] = f"{len(hits)} hits, at lines {', '.join(map(str, hits))}; there must be one"
        elif others:
            found[anchor] = f"other indentation at line {', '.join(map(str, others))}"
        else:
            found[anchor] = "missing"
    return found


# ---- the tree --------------------------------------------------------------------------------------------------------


def find_root():
    try:
        spec = importlib.util.find_spec("vllm_gaudi")  # finds a package without running it
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations or not spec.origin:
        raise Refused(f"this Python ({sys.executable}) has no package vllm_gaudi; --root says where it is")
    return Path(list(spec.submodule_search_locations)[0]).parent


class Tree:
    """What is there now. `pristine` is the text of each file without our blocks, None where there is no file."""

    def __init__(self, root):
        self.package = Path(root).absolute() / "vllm_gaudi"
        if not self.package.is_dir():
            raise Refused(f"there is no folder {self.package}; --root is the folder that holds vllm_gaudi/")
        self.now, self.pristine, self.versions = {}, {}, {}
        problems = []
        for file in (INIT, MXFP4, OPS):
            try:
                self.now[file], self.pristine[file] = self.read(file), None
                if self.now[file] is not None:
                    text = self.now[file].decode()
                    if "\r" in text:
                        raise Refused(f"{file}: its lines end in CR LF, or it has a CR")
                    self.pristine[file], self.versions[file] = (
                        take_out_block(file, text) if file in BLOCKS else (text, None))
            except UnicodeDecodeError as e:
                problems.append(f"{file}: it is not UTF-8 ({e})")
            except Refused as e:
                problems.append(str(e))
        if problems:
            raise Refused("; ".join(problems))
        self.target = self.package / TARGET
        self.ours = self._ours()

    def path(self, file):
        return Path(os.path.realpath(self.package / file))  # what a link points to is edited, not the link

    def read(self, file):
        path = self.path(file)
        return path.read_bytes() if path.is_file() else None

    def _ours(self):
        """The files of the target; all of them must be ours, but for bytecode."""
        if self.target.is_symlink() or self.target.exists() and not self.target.is_dir():
            raise Refused(f"{self.target} is not a folder")
        if not self.target.exists():
            return set()
        present = {str(p.relative_to(self.target)) for p in self.target.rglob("*") if p.is_symlink() or not p.is_dir()}
        known = {RECORD, *(p.name for p in RUNTIME.glob("*.py"))}
        if RECORD in present:
            try:
                known.update(json.loads((self.target / RECORD).read_text())["files"])
            except (ValueError, KeyError, TypeError) as e:
                raise Refused(f"{self.target / RECORD}: this list of our files cannot be read ({e!r})") from e
        foreign = [f for f in sorted(present - known)
                   if not f.startswith(TEMPORARY) and not re.fullmatch(r"__pycache__/[^/]+\.pyc(\.\d+)?", f)]
        if foreign:
            raise Refused(f"{self.target} has files that are not ours: {', '.join(foreign)}")
        return present

    def check_ops_package(self):
        """E1 imports it in all processes, before anything else."""
        text = self.read("ops/__init__.py") or b""
        if any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.walk(ast.parse(text))):
            raise Refused("ops/__init__.py imports other modules, which would then be imported before the platform")


class Package:
    """What is to be there: contents by path relative to vllm_gaudi/, in the order in which they are written."""

    def __init__(self):
        sources = {p.name: p.read_bytes() for p in sorted(RUNTIME.glob("*.py"))}
        if "env.py" not in sources:
            raise Refused(f"{RUNTIME} has no env.py: the runtime must stand beside this script")
        digest = hashlib.sha256((E1 + E2).encode())
        for name, data in sources.items():
            digest.update(f"\0{name}\0{len(data)}\0".encode() + data)
        self.version = digest.hexdigest()[:8]
        record = json.dumps({"version": self.version, "files": [RECORD, *sources]}, indent=1) + "\n"
        # The record comes first: what an install that was killed has left is known to be ours.
        self.runtime = {f"{TARGET}/{name}": data for name, data in {RECORD: record.encode(), **sources}.items()}

    def contents(self, tree):
        edits = {file: add_block(file, tree.pristine[file], self.version).encode() for file in (MXFP4, INIT)}
        return {**self.runtime, **edits}


# ---- changes ---------------------------------------------------------------------------------------------------------


class Transaction:
    """Changes files one by one, each at once or not at all; undo() puts back what was there."""

    def __init__(self, like):
        self.like = like  # new files get its owner and mode
        self.before = []  # (path, contents or None, stat)

    def write(self, path, data):
        if not path.parent.is_dir():
            self.before.append((path.parent, None, None))
            path.parent.mkdir()
            self._own(path.parent, self.like.parent.stat())
        present = path.exists()
        status = (path if present else self.like).stat()
        self.before.append((path, path.read_bytes() if present else None, status))
        self._replace(path, data, status)

    def remove(self, path):
        self.before.append((path, path.read_bytes(), path.stat()))
        path.unlink()

    def undo(self):
        failed = []
        for path, data, status in reversed(self.before):
            try:
                if data is not None:
                    if not path.exists() or path.read_bytes() != data:
                        self._replace(path, data, status)
                elif path.is_dir():
                    path.rmdir()
                elif path.exists():
                    path.unlink()
            except OSError as e:
                failed.append(f"{path} ({e})")
        if failed:
            raise NotRestored(f"after a failure these could not be put back: {', '.join(failed)}; install vllm-gaudi"
                              " again")

    @staticmethod
    def _own(path, status):
        os.chmod(path, stat.S_IMODE(status.st_mode))
        now = os.stat(path)
        if (now.st_uid, now.st_gid) != (status.st_uid, status.st_gid):
            os.chown(path, status.st_uid, status.st_gid)
            os.chmod(path, stat.S_IMODE(status.st_mode))  # chown may have cleared bits

    def _replace(self, path, data, status):
        handle, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(data)
            self._own(temporary, status)
            os.replace(temporary, path)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise


def drop_bytecode(path):
    """Bytecode that Python need not compare with its source would hide the change."""
    for cached in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        try:
            cached.unlink()
        except OSError:
            pass


def verify(tree, package, contents):
    """The files are what they should be, and another Python can compile them."""
    for file, data in contents.items():
        if tree.path(file).read_bytes() != data:
            raise Refused(f"{file}: it is not what was written")
        if file in BLOCKS and take_out_block(file, data.decode()) != (tree.pristine[file], package.version):
            raise Refused(f"{file}: the block cannot be taken out again")
    sources = [str(tree.path(file)) for file in contents if file.endswith(".py")]
    program = "import sys\nfor p in sys.argv[1:]: compile(open(p, 'rb').read(), p, 'exec')"
    done = subprocess.run([sys.executable, "-I", "-c", program, *sources], capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"a file that was written does not compile: {done.stderr.strip()}")


def carry_out(tree, plan, check=lambda: None):
    """Makes the changes of a plan, {file: contents or None to remove it}, or none."""
    transaction = Transaction(tree.path(MXFP4))
    try:
        for file, data in plan.items():
            if data is None:
                transaction.remove(tree.path(file))
            else:
                transaction.write(tree.path(file), data)
        check()
        for file in plan:
            drop_bytecode(tree.path(file))
    except BaseException:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        transaction.undo()
        raise


def show(tree, plan):
    for file, data in plan.items():
        print(f"would {'remove' if data is None else 'write'} {tree.path(file)}")
    for file in BLOCKS:
        if file in plan:
            texts = [(data or b"").decode().splitlines(keepends=True) for data in (tree.now[file], plan[file])]
            for line in difflib.unified_diff(*texts, f"a/vllm_gaudi/{file}", f"b/vllm_gaudi/{file}"):
                print(line, end="" if line.endswith("\n") else "\n\\ No newline at end of file\n")


# ---- commands --------------------------------------------------------------------------------------------------------


def check_anchors(tree):
    found = find_anchors(tree.pristine)
    for anchor, wrong in found.items():
        print(f"{anchor.id:<4}{'ok' if wrong is None else 'MISS':<5} {anchor.file:<17} {anchor.line}")
    wrong = [f"\n  {anchor.id} {anchor.file}: {what}: '{anchor.line}'" for anchor, what in found.items() if what]
    if wrong:
        raise Refused(f"{len(wrong)} of {len(found)} anchors are not as they should be in {tree.package}:"
                      f"{''.join(wrong)}\n  This vllm-gaudi is not one that the kernels are known to fit")
    tree.check_ops_package()


def changes(tree, contents):
    plan = {file: data for file, data in contents.items() if tree.read(file) != data}
    plan.update({f"{TARGET}/{name}": None for name in sorted(tree.ours)
                 if f"{TARGET}/{name}" not in contents and "__pycache__" not in name})
    return plan


def describe(tree, package, plan):
    versions = {tree.versions.get(file) for file in BLOCKS}
    if versions == {None}:
        return "not installed"
    if None in versions:
        raise Refused("only one of the two mxk blocks is there: an install was cut short, or one was removed by hand; "
                      "--uninstall takes out the other one")
    if versions != {package.version}:
        return f"version {' and '.join(sorted(versions))} is installed, this is {package.version}"
    if plan:
        return f"version {package.version} is installed, but these are missing or changed: {', '.join(plan)}"
    return None


def install(tree, args):
    check_anchors(tree)
    package = Package()
    contents = package.contents(tree)
    plan = changes(tree, contents)
    state = describe(tree, package, plan)
    if args.check:
        print(state or f"installed: version {package.version} in {tree.package}")
        return 1 if state else 0
    if state is None:
        print(f"already installed: version {package.version} in {tree.package}")
        return 0
    for file, data in contents.items():
        if file.endswith(".py"):
            try:
                compile(data, file, "exec", dont_inherit=True)
            except (SyntaxError, ValueError) as e:
                raise Refused(f"{file}: it would not compile: {e}") from e
    print(f"before: {state}")
    if args.dry_run:
        show(tree, plan)
        return 0
    carry_out(tree, plan, lambda: verify(tree, package, contents))
    print(f"installed: version {package.version} in {tree.package}\nMXFP4_TPC_MOE=1 turns the kernels on.")
    return 0


def uninstall(tree, args):
    plan = {file: tree.pristine[file].encode() for file in BLOCKS if tree.versions.get(file)}
    plan.update({f"{TARGET}/{name}": None for name in sorted(tree.ours - {RECORD}) if "__pycache__" not in name})
    if RECORD in tree.ours:  # last, as it says which files are ours
        plan[f"{TARGET}/{RECORD}"] = None
    if args.dry_run:
        show(tree, plan)
        return 0
    carry_out(tree, plan)
    shutil.rmtree(tree.target, ignore_errors=True)  # bytecode is left in it, if anything
    print(f"removed from {tree.package}" if plan else f"not installed in {tree.package}: nothing to remove")
    return 0


def interrupted(number, frame):
    raise KeyboardInterrupt


def main(argv=None):
    summary, _, details = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=f"{details}\nexample, in the image that serves:\n  {NAME} && {NAME} --check",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", metavar="DIR", help="the folder that holds vllm_gaudi/; default: that of this Python")
    parser.add_argument("--check", action="store_true", help="only say what is there; 0 if this version is, and whole")
    parser.add_argument("--uninstall", action="store_true", help="take it out: the files are then as they were")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be changed")
    args = parser.parse_args(argv)
    if args.check and (args.uninstall or args.dry_run):
        parser.error("--check goes with --root only")
    signal.signal(signal.SIGTERM, interrupted)
    try:
        tree = Tree(args.root or find_root())
        return (uninstall if args.uninstall else install)(tree, args)
    except KeyboardInterrupt:
        print(f"{NAME}: interrupted; no file was changed", file=sys.stderr)
        return 130
    except NotRestored as e:
        print(f"{NAME}: {e}", file=sys.stderr)
        return 1
    except (Refused, OSError, SyntaxError) as e:
        print(f"{NAME}: {e}; no file was changed", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
