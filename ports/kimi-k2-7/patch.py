#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the port of Kimi-K2.7 into the vllm-gaudi of an image, or takes it out again. install.sh runs it.

It copies kimi_hpu and the runtime of the kernels to vllm_gaudi/ops/kimi_hpu, and adds a few lines to three files: at
the top of vllm_gaudi/__init__.py and the end of ops/hpu_mxfp4.py for the switch of the kernels, at the end of
models/deepseek_v2.py for the loader. The commits of the image and all that the port relies on are looked at first;
where something is not as it should be, or goes wrong later, no file is changed and the exit status is 1.
"""

import argparse
import signal
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = HERE.parents[1] / "python"
sys.path[:0] = [str(HERE), str(PYTHON)]

import edits  # noqa: E402
import image  # noqa: E402
from anchored_edits import (  # noqa: E402
    NotRestored, Package, Refused, Tree, carry_out, changes, check_compiles, describe, find_anchors, find_package,
    imports_modules, interrupted, read_sources, show, tell, uninstall, verify)

NAME = "kimi-k2-7/patch.py"
SOURCES = {"": HERE / "kimi_hpu", "mxk_gaudi/": PYTHON / "mxk_gaudi"}


class Image(Tree):
    """vllm-gaudi, which is edited, with vLLM and what pip recorded of both."""

    def __init__(self, root):
        holds = "vllm_gaudi/ and vllm/"
        package = find_package("vllm_gaudi", root, holds)
        self.vllm = find_package("vllm", root, holds)
        self.metadata = [root] if root else sys.path
        super().__init__(edits.EDITS, package, read_sources(SOURCES))


def make_package():
    sources = read_sources(SOURCES)
    for needed in ("switch.py", "loader.py", "mxk_gaudi/env.py"):
        if needed not in sources:
            raise Refused(f"{needed} is missing beside this script, at {HERE} or {PYTHON}")
    return Package(edits.EDITS, sources)


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
    found = find_anchors(edits.ANCHORS, tree.pristine)
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
    if imports_modules(tree.read("ops/__init__.py"), "ops/__init__.py"):
        wrong.append("ops/__init__.py imports other modules, which would then be imported before the platform")
    return wrong


# ---- commands --------------------------------------------------------------------------------------------------------


def install(tree, args):
    check_image(tree)
    package = make_package()
    contents = package.contents(tree)
    plan = changes(tree, contents)
    state = describe(tree, package, plan)
    if args.check:
        print(state or f"installed: version {package.version} in {tree.package}")
        return 1 if state else 0
    check_compiles(contents)
    if args.dry_run:
        show(tree, plan)
        return 0
    if state is None:
        print(f"already installed: version {package.version} in {tree.package}")
        return 0
    carry_out(tree, plan, lambda: verify(tree, package, contents))
    tell(f"installed: version {package.version} in {tree.package}")
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
        tree = Image(args.root)
        return uninstall(tree) if args.uninstall else install(tree, args)
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
