#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the port of Kimi-K2.7 into the vllm-gaudi of an image, or takes it out again. install.sh runs it.

It copies kimi_hpu and the runtime of the kernels to vllm_gaudi/ops/kimi_hpu, and adds a few lines to three files: at
the top of vllm_gaudi/__init__.py and the end of ops/hpu_mxfp4.py for the switch of the kernels, at the end of
models/deepseek_v2.py for the loader. The commits of the image and all that the port relies on are looked at first;
where something is not as it should be, or goes wrong later, no file is changed and the exit status is 1.
"""

import argparse
import ast
import hashlib
import importlib.util
import json
import re
import shutil
import signal
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = HERE.parents[1] / "python"
sys.path[:0] = [str(HERE), str(PYTHON)]

import edits  # noqa: E402
import image  # noqa: E402
from install_mxfp4_tpc_moe import NotRestored, Refused, carry_out, interrupted  # noqa: E402

NAME = "kimi-k2-7/patch.py"
TARGET = "ops/kimi_hpu"
RECORD = "INSTALLED"  # in the target: which files are ours, of whatever version
SOURCES = {"": HERE / "kimi_hpu", "mxk_gaudi/": PYTHON / "mxk_gaudi"}


def find_package(name, root):
    """The folder of a package, which is found without running it."""
    if root:
        folder = Path(root).absolute() / name
        if not folder.is_dir():
            raise Refused(f"there is no folder {folder}; --root is the folder that holds vllm_gaudi/ and vllm/")
        return folder
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise Refused(f"this Python ({sys.executable}) has no package {name}; --root says where it is")
    return Path(list(spec.submodule_search_locations)[0])


class Tree:
    """What is there now. `pristine` is the text of each file without our blocks, None where there is no file."""

    def __init__(self, root):
        self.package = find_package("vllm_gaudi", root)
        self.vllm = find_package("vllm", root)
        self.metadata = [root] if root else sys.path
        self.pristine, self.versions, problems = {}, {}, []
        for file in edits.FILES:
            try:
                data = self.read(file)
                text = None if data is None else data.decode()
                if text and "\r" in text:
                    raise Refused(f"{file}: its lines end in CR LF, or it has a CR")
                self.pristine[file], version = (text, None) if text is None or file not in edits.BLOCKS else \
                    edits.take_out_block(file, text)
                if file in edits.BLOCKS:
                    self.versions[file] = version
            except UnicodeDecodeError as e:
                problems.append(f"{file}: it is not UTF-8 ({e})")
            except Refused as e:
                problems.append(str(e))
        if problems:
            raise Refused("; ".join(problems))
        self.target = self.package / TARGET
        self.ours = self._ours()

    def path(self, file):
        return (self.package / file).resolve()  # what a link points to is edited, not the link

    def read(self, file):
        return self.path(file).read_bytes() if self.path(file).is_file() else None

    def _ours(self):
        """The files of the target; all of them must be ours, but for bytecode."""
        if self.target.is_symlink() or self.target.exists() and not self.target.is_dir():
            raise Refused(f"{self.target} is not a folder")
        present = {str(p.relative_to(self.target)) for p in self.target.rglob("*") if p.is_symlink() or not p.is_dir()}
        present = {p for p in present if not re.search(r"(^|/)__pycache__/[^/]+\.pyc(\.\d+)?$", p)}
        known = {RECORD}
        if RECORD in present:
            try:
                known.update(json.loads((self.target / RECORD).read_text())["files"])
            except (ValueError, KeyError, TypeError) as e:
                raise Refused(f"{self.target / RECORD}: this list of our files cannot be read ({e!r})") from e
        if present - known:
            raise Refused(f"{self.target} has files that are not ours: {', '.join(sorted(present - known))}")
        return present


class Package:
    """What is to be there: contents by path relative to vllm_gaudi/, in the order in which they are written."""

    def __init__(self):
        sources = {f"{below}{p.name}": p.read_bytes()
                   for below, folder in SOURCES.items() for p in sorted(folder.glob("*.py"))}
        for needed in ("switch.py", "loader.py", "mxk_gaudi/env.py"):
            if needed not in sources:
                raise Refused(f"{needed} is missing beside this script, at {HERE} or {PYTHON}")
        digest = hashlib.sha256("".join(body for _, body in edits.BLOCKS.values()).encode())
        for name, data in sources.items():
            digest.update(f"\0{name}\0{len(data)}\0".encode() + data)
        self.version = digest.hexdigest()[:8]
        record = json.dumps({"version": self.version, "files": [RECORD, *sources]}, indent=1) + "\n"
        # The record comes first: what an install that was killed has left is known to be ours.
        self.runtime = {f"{TARGET}/{name}": data for name, data in {RECORD: record.encode(), **sources}.items()}

    def contents(self, tree):
        """The loader and the switch come before the lines that import them. A block that is there stays where it is:
        another installer may have put its own beside it."""
        blocks = {file: tree.read(file) if tree.versions[file] == self.version else
                  edits.add_block(file, tree.pristine[file], self.version).encode()
                  for file in (edits.LOADER, edits.MXFP4, edits.INIT)}
        return {**self.runtime, **blocks}


# ---- what it looks at first ------------------------------------------------------------------------------------------


def check_image(tree):
    """Everything that the port relies on; all that is wrong is said at once."""
    wrong = check_commits(tree) + check_anchors(tree)
    if wrong:
        lines = "".join(f"\n  {line}" for line in wrong)
        raise Refused(f"this image is not vllm-gaudi releases/v0.30.0, which the port is for:{lines}")


def check_commits(tree):
    wrong = []
    for name, package in (("vllm-gaudi", tree.package), ("vllm", tree.vllm)):
        expected = edits.COMMITS[name]
        commit, where = image.commit_of(package, name, tree.metadata)
        if commit is None:
            wrong.append(f"{name}: its commit must be {expected}, and nothing says which it is: no direct_url.json of"
                         " pip, no +g<commit> in its version, and no clone that it is in or was installed from")
        elif not image.is_commit(commit, expected):
            wrong.append(f"{name}: its commit is {commit}, by {where}; it must be {expected}")
        else:
            print(f"ok    {name} {commit}, by {where}")
    return wrong


def check_anchors(tree):
    found = edits.find_anchors(tree.pristine)
    for anchor, what in found.items():
        print(f"{'ok' if what is None else 'MISS':<5} {anchor.id:<4} {anchor.file:<22} {anchor.line}")
    wrong = [f"{anchor.id} {anchor.file}: {what}: '{anchor.line}'" for anchor, what in found.items() if what]
    file = tree.vllm / edits.WRAPPED_FILE
    try:
        what = edits.why_not_wrapped(file.read_text(encoding="utf-8") if file.is_file() else None)
    except (SyntaxError, ValueError) as e:
        what = f"it cannot be read as Python: {e}"
    print(f"{'ok' if what is None else 'MISS':<5} A13  vllm {edits.WRAPPED_CLASS}.{edits.WRAPPED}")
    if what:
        wrong.append(f"A13 vllm/{edits.WRAPPED_FILE}: {what}")
    imports = [node for node in ast.walk(ast.parse(tree.read("ops/__init__.py") or b""))
               if isinstance(node, (ast.Import, ast.ImportFrom))]
    if imports:
        wrong.append("ops/__init__.py imports other modules, which would then be imported before the platform")
    return wrong


# ---- commands --------------------------------------------------------------------------------------------------------


def changes(tree, contents):
    plan = {file: data for file, data in contents.items() if tree.read(file) != data}
    plan.update({f"{TARGET}/{name}": None for name in sorted(tree.ours) if f"{TARGET}/{name}" not in contents})
    return plan


def describe(tree, package, plan):
    """What is there, or None if it is this version, and whole."""
    versions = set(tree.versions.values())
    if versions == {None}:
        return "not installed"
    if None in versions:
        raise Refused("not all of the three kimi_hpu blocks are there: an install was cut short, or one was removed by"
                      " hand; --uninstall takes out the others")
    if versions != {package.version}:
        return f"version {' and '.join(sorted(versions))} is installed, this is {package.version}"
    if plan:
        return f"version {package.version} is installed, but these are missing or changed: {', '.join(plan)}"
    return None


def install(tree, args):
    check_image(tree)
    package = Package()
    contents = package.contents(tree)
    plan = changes(tree, contents)
    state = describe(tree, package, plan)
    if args.check:
        print(state or f"installed: version {package.version} in {tree.package}")
        return 1 if state else 0
    for file, data in contents.items():
        if file.endswith(".py"):
            try:
                compile(data, file, "exec", dont_inherit=True)
            except (SyntaxError, ValueError) as e:
                raise Refused(f"{file}: it would not compile: {e}") from e
    if args.dry_run:
        for file, data in plan.items():
            print(f"would {'remove' if data is None else 'write'} {tree.path(file)}")
        return 0
    if state is None:
        print(f"already installed: version {package.version} in {tree.package}")
        return 0
    carry_out(tree, plan, lambda: verify(tree, package, contents))
    print(f"installed: version {package.version} in {tree.package}")
    return 0


def verify(tree, package, contents):
    for file, data in contents.items():
        if tree.read(file) != data:
            raise Refused(f"{file}: it is not what was written")
        if file in edits.BLOCKS and edits.take_out_block(file, data.decode()) != (tree.pristine[file], package.version):
            raise Refused(f"{file}: the block cannot be taken out again")


def uninstall(tree, args):
    plan = {file: tree.pristine[file].encode() for file in edits.BLOCKS if tree.versions[file]}
    plan.update({f"{TARGET}/{name}": None for name in sorted(tree.ours - {RECORD})})
    if RECORD in tree.ours:  # last, as it says which files are ours
        plan[f"{TARGET}/{RECORD}"] = None
    carry_out(tree, plan)
    shutil.rmtree(tree.target, ignore_errors=True)  # bytecode is left in it, if anything
    print(f"removed from {tree.package}" if plan else f"not installed in {tree.package}: nothing to remove")
    return 0


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", metavar="DIR", help="the folder of vllm_gaudi/ and vllm/; default: of this Python")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--check", action="store_true", help="only say what is there; 0 if this version is, and whole")
    which.add_argument("--uninstall", action="store_true", help="take it out: the files are then as they were")
    which.add_argument("--dry-run", action="store_true", help="look at everything, and only say what would be changed")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, interrupted)
    try:
        tree = Tree(args.root)
        return (uninstall if args.uninstall else install)(tree, args)
    except KeyboardInterrupt:
        print(f"{NAME}: no file was changed: interrupted", file=sys.stderr)
        return 130
    except NotRestored as e:
        print(f"{NAME}: {e}", file=sys.stderr)
        return 1
    except (Refused, OSError, SyntaxError) as e:
        print(f"{NAME}: no file was changed: {e}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
