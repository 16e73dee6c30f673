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
import signal
import sys
from pathlib import Path

PYTHON = Path(__file__).resolve().parent
sys.path.insert(0, str(PYTHON))

from anchored_edits import (  # noqa: E402
    Anchor, Block, Edits, NotRestored, Package, Refused, Tree, carry_out, changes, check_compiles, describe,
    find_anchors, find_package, imports_modules, interrupted, read_sources, show, tell, uninstall, verify)

NAME = "install_mxfp4_tpc_moe.py"
RUNTIME = PYTHON / "mxk_gaudi"
INIT, MXFP4, OPS = "__init__.py", "ops/hpu_mxfp4.py", "extension/ops.py"

# Whole lines, with their indentation. E1 goes above A1, E2 to the end of the file of A10; the others are what the
# runtime relies on.
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
EDITS = Edits(
    tag="mxk", target="ops/mxk_gaudi", like=MXFP4, anchors=ANCHORS,
    blocks={INIT: Block("E1", ANCHORS[0].line, E1), MXFP4: Block("E2", None, E2)},
    partly="only one of the two mxk blocks is there: an install was cut short, or one was removed by hand; --uninstall"
           " takes out the other one")


def find_tree(root):
    return Tree(EDITS, find_package("vllm_gaudi", root, "vllm_gaudi/"), read_sources({"": RUNTIME}))


def make_package():
    sources = read_sources({"": RUNTIME})
    if "env.py" not in sources:
        raise Refused(f"{RUNTIME} has no env.py: the runtime must stand beside this script")
    return Package(EDITS, sources)


def check_tree(tree):
    found = find_anchors(ANCHORS, tree.pristine)
    for anchor, wrong in found.items():
        print(f"{anchor.id:<4}{'ok' if wrong is None else 'MISS':<5} {anchor.file:<17} {anchor.line}")
    wrong = [f"\n  {anchor.id} {anchor.file}: {what}: '{anchor.line}'" for anchor, what in found.items() if what]
    if wrong:
        raise Refused(f"{len(wrong)} of {len(found)} anchors are not as they should be in {tree.package}:"
                      f"{''.join(wrong)}\n  This vllm-gaudi is not one that the kernels are known to fit")
    # E1 imports it in all processes, before anything else.
    if imports_modules(tree.read("ops/__init__.py"), "ops/__init__.py"):
        raise Refused("ops/__init__.py imports other modules, which would then be imported before the platform")


def install(tree, args):
    check_tree(tree)
    package = make_package()
    contents = package.contents(tree)
    plan = changes(tree, contents)
    state = describe(tree, package, plan)
    if args.check:
        print(state or f"installed: version {package.version} in {tree.package}")
        return 1 if state else 0
    if state is None:
        print(f"already installed: version {package.version} in {tree.package}")
        return 0
    check_compiles(contents)
    print(f"before: {state}")
    if args.dry_run:
        show(tree, plan)
        return 0
    carry_out(tree, plan, lambda: verify(tree, package, contents))
    tell(f"installed: version {package.version} in {tree.package}\nMXFP4_TPC_MOE=1 turns the kernels on.")
    return 0


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
        tree = find_tree(args.root)
        return uninstall(tree, args.dry_run) if args.uninstall else install(tree, args)
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
