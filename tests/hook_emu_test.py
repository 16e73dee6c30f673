# SPDX-License-Identifier: Apache-2.0
"""The hook from the first line of a serving process on: builds of build.sh, the stand-in for the card's PyTorch, layers
on torch.device("hpu"), the kernels emulated. MXK_GAUDI_BUILDS is the folder of the builds. What runs where is seen in
the results: the emulated kernels are closer to fp32 than the stock op can be."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BUILDS = Path(os.environ["MXK_GAUDI_BUILDS"])
HERE = Path(__file__).parent

PROGRAM = """\
import json, logging, math, os, sys
lines = []
handler = logging.Handler()
handler.emit = lambda record: lines.append(record.getMessage())
logging.getLogger("vllm").addHandler(handler)
logging.getLogger("vllm").setLevel(logging.INFO)
from mxk_gaudi import env, family
name, rank = sys.argv[1], 1
switch = env.GPT_OSS if name == "gptoss" else family.SWITCHES[name]
result = env.apply(switch)  # what vllm_gaudi/__init__.py does
import torch, habana_frameworks.torch
import hook_fakes as fakes
from mxk import reference
problem = fakes.Problem(switch.variant, rank=rank, ranks=2)
cls = fakes.method_class()
if name == "gptoss":
    env.install_hook(cls)  # what vllm_gaudi/ops/hpu_mxfp4.py does
else:
    made = family.Family(switch, rows="stacked", limit=math.inf, prefill_flag="GLM_MXK_PREFILL")
    made.install(cls)
problem.layer.to("hpu")
method = cls("gpt_oss")
method.process_weights_after_loading(problem.layer)

def run(x, logits):
    return method.apply_monolithic(problem.layer, x, logits)

if not switch.lazy:
    run = torch.compile(run, backend="hpu_backend", dynamic=False)
errors, stock = {}, []
for T in (1, 3, switch.tokens + 1):
    before = len(problem.layer.moe_op.calls)
    y = run(problem.x(T).to("hpu"), problem.logits(T).to("hpu"))
    assert y.device.type == "hpu"
    errors[T] = reference.accuracy(problem.reference(*problem.call(T)), y).rel_l2
    stock += [T] * (len(problem.layer.moe_op.calls) - before)
devices = sorted({b.device.type for b in problem.layer.buffers()})
print(json.dumps({"errors": list(errors.values()), "stock": stock, "lines": lines, "devices": devices,
                  "version": result.version, "disabled": result.disabled}))
"""


def serve(name, build, **environment):
    inherited = {n: v for n, v in os.environ.items() if not n.startswith(("PT_", "GC_"))}
    path = os.pathsep.join([str(HERE), str(HERE / "standin" / "python"), os.environ["PYTHONPATH"]])
    done = subprocess.run([sys.executable, "-c", PROGRAM, name], capture_output=True, text=True, timeout=600,
                          env={**inherited, "PYTHONPATH": path, "GC_KERNEL_PATH": os.environ["MXK_STOCK_TPC_LIB"],
                               **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("on", ["1", "0"])
def test_gptoss(on):
    found = serve("gptoss", "gptoss", MXFP4_TPC_MOE=on, HPU_MXFP4_NATIVE="1", PT_HPU_LAZY_MODE="1",
                  MXFP4_TPC_MOE_LIB=str(BUILDS / "gptoss"))
    if on == "0":
        assert found["stock"] == [1, 3, 33] and found["lines"] == [] and min(found["errors"]) > 2e-3
        return
    assert found["stock"] == [33] and max(found["errors"][:2]) <= 2e-3 < found["errors"][2], found
    assert found["devices"] == ["hpu"]
    assert found["lines"] == [
        f"MXFP4 TPC MoE installed: mxk_tpc gptoss-v8-{found['version']}",
        "MXFP4 TPC MoE enabled (E_local=8 K=544 I=160, <= 32 tokens, experts 8 to 15 of 16)"]


@pytest.mark.parametrize("mode", [None, "0"])
def test_mimo_in_compile_mode(mode):
    variables = {} if mode is None else {"PT_HPU_LAZY_MODE": mode}
    found = serve("mimo", "glm", MIMO_MXK="1", MIMO_MXK_LIB=str(BUILDS / "glm"), **variables)
    assert found["stock"] == [17] and max(found["errors"][:2]) <= 2e-3 < found["errors"][2], found
    assert found["lines"][1].startswith("MiMo MXK enabled (E_local=8 K=512 I=512, <= 16 tokens")


def test_glm_with_prefill():
    found = serve("glm", "glm", GLM_MXK="1", GLM_MXK_LIB=str(BUILDS / "glm"), PT_HPU_LAZY_MODE="1", GLM_MXK_PREFILL="1")
    assert found["stock"] == [] and max(found["errors"][:2]) <= 2e-3 < found["errors"][2] < 8e-3, found


def test_another_build():
    found = serve("gptoss", "glm", MXFP4_TPC_MOE="1", HPU_MXFP4_NATIVE="1", PT_HPU_LAZY_MODE="1",
                  MXFP4_TPC_MOE_LIB=str(BUILDS / "glm"))
    assert found["stock"] == [1, 3, 33] and "was built for the variant glm" in found["disabled"]
