# SPDX-License-Identifier: Apache-2.0
"""The hook around the real vllm_gaudi/ops/hpu_mxfp4.py of the trees that MXK_TEST_VLLM_GAUDI_TREES names (paths or
name=path, by colon), with modules of ours in the place of those that it imports. Trees without it are left out."""

import os
from pathlib import Path

import hook_fakes as fakes
import pytest
import torch

from mxk import reference
from mxk_gaudi import env, hook


def trees():
    for entry in filter(None, os.environ.get("MXK_TEST_VLLM_GAUDI_TREES", "").split(":")):
        name, _, path = entry.rpartition("=")
        file = Path(path, "vllm_gaudi/ops/hpu_mxfp4.py")
        if file.is_file():
            yield pytest.param(file, id=name or Path(path).name)


@pytest.fixture(params=trees())
def method_class(request, monkeypatch):
    fakes.turn_on(monkeypatch)
    config = fakes.stub_modules(monkeypatch)
    names = {"__name__": "vllm_gaudi.ops.hpu_mxfp4"}
    exec(compile(request.param.read_text(), str(request.param), "exec"), names)
    names["HPUGptOssMxfp4MoEMethod"].config_of_test = config
    return names["HPUGptOssMxfp4MoEMethod"]


def served(method_class, problem):
    method = method_class(problem.layer.moe_config)
    method.process_weights_after_loading(problem.layer)
    return method


@pytest.mark.parametrize("rank", [0, 1])
def test_calls(method_class, monkeypatch, rank):
    log = fakes.Log(monkeypatch)
    stock_problem, problem = (fakes.Problem(rank=rank, ranks=2) for _ in range(2))
    stock = served(method_class, stock_problem)
    hook.install(method_class)
    method = served(method_class, problem)
    first = 8 * rank
    assert log.taken() == [
        f"MXFP4 TPC MoE installed: mxk_tpc gptoss-v8-{fakes.VERSION}",
        f"MXFP4 TPC MoE enabled (E_local=8 K=544 I=160, <= 32 tokens, experts {first} to {first + 7} of 16)"]
    for T in (1, 2, 8, 32, 33):
        x, logits = problem.x(T).view(T, 1, -1), problem.logits(T)
        y = method.apply_monolithic(problem.layer, x, logits)
        expected = stock.apply_monolithic(stock_problem.layer, x, logits)
        assert y.shape == x.shape and y.dtype == torch.bfloat16
        calls = problem.layer.moe_op.calls
        assert len(calls) == (T > 32), "only calls of many tokens reach the stock op"
        if T > 32:
            assert torch.equal(y, expected) and calls[0][3] is True
            continue
        want = problem.reference(*problem.call(T))
        ours, theirs = (reference.accuracy(want, v.view(T, -1)).rel_l2 for v in (y, expected))
        assert ours <= 2e-3 < theirs
    assert log.taken() == []


def test_off(method_class, monkeypatch):
    fakes.turn_off(monkeypatch)
    before = dict(vars(method_class))
    hook.install(method_class)
    env.install_hook(method_class)
    assert dict(vars(method_class)) == before
    problem = fakes.Problem()
    served(method_class, problem)
    assert "forward" not in vars(problem.layer.moe_op)


def test_another_model(method_class, monkeypatch):
    log = fakes.Log(monkeypatch)
    method_class.config_of_test.model_type = "llama4"
    hook.install(method_class)
    problem = fakes.Problem()
    served(method_class, problem)
    assert "forward" not in vars(problem.layer.moe_op)
    assert log.taken()[1:] == ["MXFP4 TPC MoE: the model type is llama4; the hook is for gpt_oss; the stock op is used"]
