#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# `pip install .` as a user types it, in a new virtual environment that has nothing but torch, and a layer through what
# it installed. python_package_test.sh PYTHON (one with torch)
set -euo pipefail
python=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset PYTHONPATH MXK_OP_LIBRARY MXK_BACKEND

"$python" -m venv "$dir/venv"
# The packages of PYTHON are seen, not copied: torch is large.
"$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent.parent)' \
  >"$dir/venv/$(cd "$dir/venv" && echo lib/python*/site-packages)/torch.pth"
# From a copy, so that nothing is left in the source tree, and none of it can be what is imported.
mkdir "$dir/source"
(cd "$root" && cp -r CMakeLists.txt cmake include src python pyproject.toml README.md LICENSE "$dir/source")
"$dir/venv/bin/pip" install --quiet --disable-pip-version-check "$dir/source"
rm -rf "$dir/source"
cd "$dir"
"$dir/venv/bin/python" - <<'END'
import mxk, torch

assert mxk.__file__.startswith(__import__("sys").prefix), mxk.__file__
torch.manual_seed(1)
T, k, E, K, I = 3, 2, 4, 64, 96
byte = lambda *shape: torch.randint(0, 256, shape, dtype=torch.uint8)
scale = lambda *shape: torch.full(shape, 120, dtype=torch.uint8)
y = mxk.moe_decode(torch.randn(T, K).bfloat16(), torch.randint(0, E, (T, k)), torch.rand(T, k), byte(E, 2 * I, K // 2),
                   scale(E, 2 * I, K // 32), byte(E, K, I // 2), scale(E, K, I // 32), variant="glm")
assert y.shape == (T, K) and y.isfinite().all() and y.any(), y
print("pip install . works")
END
"$dir/venv/bin/pip" uninstall --quiet --yes mxk
"$dir/venv/bin/python" -c 'import mxk' 2>/dev/null && { echo "pip uninstall left the package behind"; exit 1; }
exit 0
