# SPDX-License-Identifier: Apache-2.0
"""The stand-in for the PyTorch bridge, and the op libraries on it.

A process has one mode, one plugin and one op library, and opens the device once, so each test runs in a process of its
own. Environment, set by ctest: PYTHONPATH, MXK_STANDIN_LIB (plugins), MXK_STANDIN_OP (op libraries of the variant glm),
MXK_STANDIN_KERNELS (the emulated kernel library).
"""

import ctypes
import functools
import importlib.metadata
import os
import pathlib
import time
import traceback
import types

import torch

BOTH = ("1", "0")  # PT_HPU_LAZY_MODE
OPS = os.environ["MXK_STANDIN_OP"]
KERNELS = os.environ["MXK_STANDIN_KERNELS"]


def in_process(*modes, **environment):
    """The test runs once for each mode, in a fork of this process, which has torch but neither bridge nor device."""

    def decorate(body):
        @functools.wraps(body)
        def test():
            for mode in modes:
                if (child := os.fork()) == 0:
                    result = 1
                    try:
                        variables = {"PT_HPU_LAZY_MODE": mode, "GC_KERNEL_PATH": KERNELS} | environment
                        for name, value in variables.items():
                            os.environ.pop(name, None)
                            if value is not None:
                                os.environ[name] = value
                        body()
                        result = 0
                    except BaseException:
                        traceback.print_exc()
                    finally:
                        os._exit(result)
                assert os.waitpid(child, 0)[1] == 0, f"with PT_HPU_LAZY_MODE={mode}: see stderr"

        return test

    return decorate


def lazy():
    return os.environ["PT_HPU_LAZY_MODE"] == "1"


def bridge(ops=True):
    import habana_frameworks.torch  # noqa: F401

    if ops:
        load("lazy" if lazy() else "pt2")


def load(mode):
    torch.ops.load_library(f"{OPS}/libmxk_op_{mode}.so")


def refused(what, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except RuntimeError as e:
        assert what in str(e), f"expected '{what}', got: {e}"
    else:
        raise AssertionError(f"expected '{what}', but nothing was refused")


def unpack(weight, scale):
    """[..., n / 2] and [..., n / 32] to the exact numbers, element by element."""
    value = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)
    codes = torch.stack([weight & 15, weight >> 4], dim=-1).flatten(-2).long()
    return value[codes] * torch.exp2(scale.double() - 127).repeat_interleave(32, dim=-1)


def rel_l2(got, want):
    return float((got.cpu().double() - want).norm() / want.norm())


class Layer:
    """A layer of the variant glm, experts 4 to 7 of it local, and a call with routes to others, too."""

    T, k, E, K, I, first = 3, 4, 4, 1024, 512, 4

    def __init__(self):
        g = torch.Generator().manual_seed(7)
        byte = {"dtype": torch.uint8, "generator": g}
        self.w13 = torch.randint(0, 256, (self.E, 2 * self.I, self.K // 2), **byte)
        self.s13 = torch.randint(118, 123, (self.E, 2 * self.I, self.K // 32), **byte)
        self.w2 = torch.randint(0, 256, (self.E, self.K, self.I // 2), **byte)
        self.s2 = torch.randint(118, 123, (self.E, self.K, self.I // 32), **byte)
        self.x = torch.randn(self.T, self.K, generator=g).bfloat16()
        self.ids = torch.tensor([[4, 7, 5, 9], [-1, 6, 3, 6], [7, 4, 8, 0]], dtype=torch.int32)
        self.weights = torch.rand(self.T, self.k, generator=g).bfloat16().float()

    def permuted(self):
        return self.x.view(self.T, self.K // 512, 128, 4).transpose(2, 3).reshape(self.T, self.K)

    def reference(self, activate=None, b13=None, b2=None, step=lambda v: v):
        """In double, but for `a`, which is bf16; `step` may round what the other steps give, too."""
        activate = activate or (lambda gu: torch.nn.functional.silu(gu[: self.I]) * gu[self.I :])
        y = torch.zeros(self.T, self.K, dtype=torch.float64)
        for t in range(self.T):
            for slot in range(self.k):
                e = int(self.ids[t, slot]) - self.first
                if 0 <= e < self.E:
                    gu = unpack(self.w13[e], self.s13[e]) @ self.x[t].double() + (0 if b13 is None else b13[e].double())
                    d = unpack(self.w2[e], self.s2[e]) @ activate(step(gu)).bfloat16().double()
                    y[t] += step(self.weights[t, slot].double() * step(d + (0 if b2 is None else b2[e].double())))
        return y

    def call(self, x=None):
        op, on = torch.ops.custom_op, lambda t: t.to("hpu")
        a = op.mxk_w13x(on(self.permuted()) if x is None else x, on(self.w13), on(self.s13), on(self.ids), self.first)
        return a, op.mxk_w2x(a, on(self.w2), on(self.s2), on(self.ids), on(self.weights), self.first)

    def stock(self, name="mxfp4_fused_weights", **change):
        lists = {"w12": self.w13, "w3": self.w2, "d_scale_w12": self.s13, "d_scale_w3": self.s2}
        arguments = {key: list(value.to("hpu")) for key, value in lists.items()} | {
            "hidden_states": self.x.to("hpu"),
            "expert_routing_table": self.ids.to("hpu"),
            "router_weights": self.weights.bfloat16().to("hpu"),
            "permuted_weights": True,
            "activation": "silu",
            "experts_min": self.first,
            "experts_max": self.first + self.E - 1,
        }
        arguments = {key: value for key, value in (arguments | change).items() if value is not None}
        return getattr(torch.ops.hpu.mixture_of_experts, name)(**arguments)


def run_node(guid, tensors, params=()):
    """The same node without PyTorch; the last tensor is its output."""
    types = {torch.uint8: 1 << 3, torch.bfloat16: 1 << 8, torch.int32: 1 << 10, torch.float32: 1 << 12}
    direct = ctypes.CDLL(f"{OPS}/libstandin_direct.so")
    sizes = [size for t in tensors for size in t.shape]
    message = ctypes.create_string_buffer(1000)
    code = direct.run_node(
        KERNELS.encode(),
        guid.encode(),
        len(tensors) - 1,
        (ctypes.c_int * len(tensors))(*[types[t.dtype] for t in tensors]),
        (ctypes.c_int * len(tensors))(*[t.dim() for t in tensors]),
        (ctypes.c_uint64 * len(sizes))(*sizes),
        (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors]),
        (ctypes.c_int32 * len(params))(*params),
        len(params),
        message,
        ctypes.c_size_t(len(message)),
    )
    assert code == 0, message.value.decode()
    return tensors[-1]


# ---- the device ------------------------------------------------------------------------------------------------------


@in_process(*BOTH, GC_KERNEL_PATH=None)
def test_tensors():
    bridge(ops=False)
    assert not torch.hpu.is_initialized()
    x = torch.ones(3, device="hpu")
    assert torch.hpu.is_initialized()
    assert x.device == torch.device("hpu:0") and repr(x) == "tensor([1., 1., 1.], device='hpu:0')"
    assert x.cpu().device.type == "cpu" and x.to("hpu") is x
    host = torch.arange(24.0).reshape(4, 6)
    y = host.to("hpu")
    assert torch.equal(y.cpu(), host) and torch.equal(y, host.to("hpu")) and not torch.equal(y, y + 1)
    for f in (
        lambda t: t * 2 + t.sum() / 3,
        lambda t: t[1:3, ::2],
        lambda t: t[[0, 2]],
        lambda t: t[t > 5],
        lambda t: t.reshape(2, 3, 4).permute(2, 0, 1).contiguous().view(-1),
        lambda t: t.unfold(1, 2, 2),
        lambda t: torch.cat([t, t.bfloat16().float()]).view(torch.uint8),
        lambda t: torch.nn.functional.pad(t, (0, 4)) @ torch.ones(10, 2, device=t.device),
        lambda t: torch.topk(torch.softmax(t, -1), 2).indices,
        lambda t: t.clone().zero_().index_add_(0, torch.tensor([1], device=t.device), t[:1]),
    ):
        got = f(y)
        assert got.device.type == "hpu" and torch.equal(got.cpu(), f(host))
    z = torch.empty_like(y)
    z.t().copy_(host.t())
    z[1] = 5
    assert z[1].tolist() == [5] * 6 and z[2, 3].item() == 15
    view = z.view(-1)[6:12]
    view.add_(1)
    assert z[1, 0].item() == 6, "a view has the memory of its base"
    assert z.resize_(2, 20).shape == (2, 20) and torch.empty(0, device="hpu").numel() == 0
    assert torch.hpu.is_available() and torch.hpu.device_count() == 1


@in_process(*BOTH)
def test_package():
    bridge(ops=False)
    import habana_frameworks.torch.core as htcore
    from habana_frameworks.torch.utils.lib_utils import get_include_dir, get_lib_dir

    htcore.mark_step()
    assert importlib.metadata.version("habana-torch-plugin").endswith("+standin")
    headers = {p.name for p in pathlib.Path(get_include_dir()).iterdir()}
    libraries = {p.name for p in pathlib.Path(get_lib_dir()).iterdir()}
    assert headers == {"hpu_custom_op.h", "hpu_custom_op_pt2.h"}
    assert libraries == {"libhabana_pytorch_plugin.so", "libhabana_pytorch2_plugin.so"}
    assert hasattr(torch.hpu, "HPUGraph") == lazy(), "graphs are for lazy mode"
    begin, end = (torch.hpu.Event(enable_timing=True) for _ in range(2))
    refused("must be recorded", begin.elapsed_time, end)
    stream = torch.hpu.Stream()
    with torch.hpu.stream(stream):
        assert torch.hpu.current_stream() is stream
        begin.record()
        time.sleep(0.01)
        end.record()
    assert torch.hpu.current_stream() is torch.hpu.default_stream()
    torch.hpu.synchronize()
    assert 10 <= begin.elapsed_time(end) < 10000


@in_process("1", MXK_STANDIN_LIB=None)
def test_no_plugin():
    try:
        import habana_frameworks.torch  # noqa: F401
    except ImportError as e:
        assert "MXK_STANDIN_LIB" in str(e)
    else:
        raise AssertionError("imported without a plugin")


# ---- ops -------------------------------------------------------------------------------------------------------------


@in_process(*BOTH)
def test_ops():
    bridge()
    layer, first = Layer(), [Layer.first]
    a, y = layer.call()
    inputs = [layer.permuted(), layer.w13, layer.s13, layer.ids]
    wanted_a = run_node("mxk_w13x", [*inputs, torch.empty_like(a.cpu())], first)
    other = torch.ops.custom_op.mxk_w13x(*[t.to("hpu") for t in inputs], 0)
    assert torch.equal(other.cpu(), run_node("mxk_w13x", [*inputs, torch.empty_like(wanted_a)], [0]))
    inputs = [wanted_a, layer.w2, layer.s2, layer.ids, layer.weights]
    assert torch.equal(a.cpu().view(torch.int16), wanted_a.view(torch.int16))
    assert torch.equal(y.cpu(), run_node("mxk_w2x", [*inputs, torch.empty_like(y.cpu())], first))
    assert rel_l2(y, layer.reference()) < 1.75e-3
    assert y.device.type == "hpu" and y.dtype == torch.bfloat16 and y.shape == (layer.T, layer.K)

    weights = torch.ops.custom_op.mxk_deq(layer.w2.to("hpu"), layer.s2.to("hpu"))
    assert weights.dtype == torch.bfloat16 and torch.equal(weights.cpu().double(), unpack(layer.w2, layer.s2))

    codes, numbers = torch.arange(256, dtype=torch.uint8)[None], torch.arange(64.0)[None]
    out = torch.ops.custom_op.mxk_selfcheck(codes.to("hpu"), numbers.to("hpu")).cpu()
    ops = ctypes.CDLL(f"{OPS}/libmxk_op_{'lazy' if lazy() else 'pt2'}.so")
    want, tolerance = torch.empty_like(out), torch.empty(out.shape[0])
    ops.mxk_expected_selfcheck(ctypes.c_void_p(want.data_ptr()), ctypes.c_void_p(tolerance.data_ptr()))
    exact = tolerance == 0
    assert torch.equal(out[exact].view(torch.int32), want[exact].view(torch.int32))
    torch.testing.assert_close(out[~exact], want[~exact], rtol=float(tolerance.max()), atol=0)


@in_process(*BOTH)
def test_arguments():
    bridge()
    layer, deq = Layer(), torch.ops.custom_op.mxk_deq
    w, s = layer.w2.to("hpu"), layer.s2.to("hpu")
    refused("w must be uint8, it is Int", deq, w.int(), s)
    refused("it has 2 dimensions", deq, w[0], s)
    refused("s must be", deq, w, s[:, :, 1:].contiguous())
    refused("must be contiguous", deq, w.transpose(1, 2).contiguous().transpose(1, 2), s)
    refused("first_expert", torch.ops.custom_op.mxk_w2x, layer.call()[0], w, s, layer.ids.to("hpu"),
            layer.weights.to("hpu"), -1)
    refused("s is on cpu, w on hpu", deq, w, s.cpu())
    refused("'CPU' backend", deq, w.cpu(), s.cpu())


@in_process(*BOTH)
def test_meta():
    bridge()
    layer, deq = Layer(), torch.ops.custom_op.mxk_deq
    out = deq(layer.w2.to("meta"), layer.s2.to("meta"))
    assert out.device.type == "meta" and out.dtype == torch.bfloat16 and out.shape == (layer.E, layer.K, layer.I)
    refused("w must be uint8", deq, layer.w2.to("meta").int(), layer.s2.to("meta"))


# ---- the bridge's rules ----------------------------------------------------------------------------------------------


@in_process("1")
def test_legacy_rules():
    bridge()
    torch.ops.load_library(f"{OPS}/libstandin_broken_ops.so")
    codes = torch.arange(256, dtype=torch.uint8, device="hpu")[None]
    numbers = torch.arange(64.0, device="hpu")[None]
    broken, selfcheck = torch.ops.standin_test, torch.ops.custom_op.mxk_selfcheck
    refused("lists no such kernel", broken.no_kernel, codes, numbers)
    refused("answers INCOMPATIBLE_INPUT_SIZE", broken.twin, codes, numbers[:, :32])
    out = selfcheck(codes, numbers)
    assert torch.equal(selfcheck(codes, numbers).view(torch.int32), out.view(torch.int32))
    refused("standin_test::twin: inputs Byte[1, 256] Float[1, 64] were also those of custom_op::mxk_selfcheck",
            broken.twin, codes, numbers)
    refused("1 are described, 2 were passed", broken.one_too_few, codes, numbers)
    refused("Indexes must be unique", broken.not_unique, codes, numbers)
    refused("the first input must be a tensor", broken.scalar_first, codes, numbers)
    refused("takes only tensors and scalars", broken.list, codes, numbers)
    refused("standin_test::unknown isn't registered", broken.unknown, codes, numbers)


@in_process("1")
def test_kernel_path_is_read_once():
    bridge()
    w = torch.zeros(1, 512, 256, dtype=torch.uint8, device="hpu")
    os.environ["GC_KERNEL_PATH"] = "/nonexistent"
    assert torch.ops.custom_op.mxk_deq(w, w[:, :, :16].contiguous()).abs().max().item() == 0


def no_device():
    bridge(ops=False)
    refused("Path is not a regular file", torch.ones, 3, device="hpu")
    os.environ["GC_KERNEL_PATH"] = KERNELS
    refused("Path is not a regular file", torch.ones, 3, device="hpu")


test_kernel_path_list = in_process("1", GC_KERNEL_PATH=f"{KERNELS}:{KERNELS}")(no_device)
test_kernel_path_directory = in_process("0", GC_KERNEL_PATH=os.path.dirname(KERNELS))(no_device)


@in_process("1", GC_KERNEL_PATH=__file__)
def test_kernel_path_is_no_library():
    bridge(ops=False)
    refused("cannot be loaded", torch.ones, 3, device="hpu")


@in_process(*BOTH, GC_KERNEL_PATH=None)
def test_no_kernel_path():
    bridge()
    w = torch.zeros(1, 512, 256, dtype=torch.uint8, device="hpu")
    refused("mxk_deq: GC_KERNEL_PATH was not set when", torch.ops.custom_op.mxk_deq, w, w[:, :, :16].contiguous())


@in_process(*BOTH)
def test_mode():
    torch._register_device_module("hpu", types.SimpleNamespace(_lazy_init=lambda: None))  # the bridge would, and load
    load("pt2" if lazy() else "lazy")
    w = torch.zeros(1, 512, 256, dtype=torch.uint8).to("hpu")
    refused("works only with PT_HPU_LAZY_MODE=", torch.ops.custom_op.mxk_deq, w, w[:, :, :16].contiguous())


@in_process(*BOTH)
def test_both_libraries():
    bridge()
    layer = Layer()
    w, s = layer.w2.to("hpu"), layer.s2.to("hpu")
    torch.ops.custom_op.mxk_deq(w, s)
    load("pt2" if lazy() else "lazy")
    refused("a second mxk op library", torch.ops.custom_op.mxk_deq, w, s)
    refused("are both in this process", torch.ones, 3, device="hpu")


# ---- graphs ----------------------------------------------------------------------------------------------------------


@in_process("1")
def test_graph():
    bridge()
    layer = Layer()
    x, total = layer.permuted().to("hpu"), torch.zeros(layer.T, layer.K, device="hpu")
    graph = torch.hpu.HPUGraph()
    refused("has not been captured", graph.replay)
    with torch.hpu.graph(graph):
        y = layer.call(x)[1]
        part = y[1:]  # a view stays one
        total.add_(y)
        sign = torch.sign(part.float())
    first = y.clone()
    assert torch.equal(y, layer.call()[1])
    x.mul_(-2)
    graph.replay()
    assert torch.equal(y, layer.call(x)[1]) and not torch.equal(y, first)
    assert torch.equal(part, y[1:]) and torch.equal(sign, torch.sign(y[1:].float()))
    assert torch.equal(total, first.float() + y.float())
    refused("has been captured already", graph.capture_begin)

    other = torch.hpu.HPUGraph()
    other.capture_begin()
    refused("cannot be captured", x.cpu)
    refused("cannot be captured", x[0, 0].item)
    refused("capture is under way", graph.replay)
    other.capture_end()
    refused("is not being captured", other.capture_end)
    other.replay()


@in_process("0")
def test_compile():
    bridge()
    layer = Layer()
    x, w, s, ids = (t.to("hpu") for t in (layer.permuted(), layer.w13, layer.s13, layer.ids))

    def f(x, ids):
        return torch.ops.custom_op.mxk_w13x(x, w, s, ids, layer.first).float() * 2 + 1

    want = f(x, ids)
    for backend in ("eager", "aot_eager", "hpu_backend"):
        torch._dynamo.reset()
        assert torch.equal(torch.compile(f, backend=backend, fullgraph=True)(x, ids), want), backend
    torch._dynamo.reset()
    sizes = torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)
    for T in (2, 3):
        assert torch.equal(sizes(x[:T].contiguous(), ids[:T].contiguous()), want[: T * layer.k])

    # Registered with PyTorch alone, as an op is that registers with the bridge when it is first called.
    own = torch.library.Library("custom_op", "FRAGMENT")
    own.define("mxk_late(Tensor x) -> Tensor")
    for key in ("HPU", "Meta"):
        own.impl("mxk_late", lambda x: torch.empty_like(x), key)
    late = torch.compile(lambda x: torch.ops.custom_op.mxk_late(x), backend="hpu_backend", fullgraph=True)
    refused("custom_op::mxk_late isn't registered in KernelRegistry", late, x)


# ---- the stock ops ---------------------------------------------------------------------------------------------------


@in_process("1")
def test_stock():
    bridge(ops=False)
    layer = Layer()
    y = layer.stock()
    assert y.device.type == "hpu" and y.dtype == torch.bfloat16
    assert 3e-3 < rel_l2(y, layer.reference()) < 1e-2
    stepwise = layer.reference(step=lambda v: v.bfloat16().double()).bfloat16().double()
    assert rel_l2(y, stepwise) < 5e-4, "it rounds at every step"
    whole = {"d_scale_w12": None, "d_scale_w3": None, "w12": list(unpack(layer.w13, layer.s13).bfloat16().to("hpu")),
             "w3": list(unpack(layer.w2, layer.s2).bfloat16().to("hpu"))}
    assert torch.equal(layer.stock("fused_weights", **whole), y), "unpacked before or inside: the same"

    b13 = torch.randn(layer.E, 2 * layer.I).bfloat16()
    b2 = torch.randn(layer.E, layer.K).bfloat16()
    bias = {"w12_bias": list(b13.to("hpu")), "w3_bias": list(b2.to("hpu")), "activation": None}

    def swiglu(gu, limit, alpha):
        gate, up = gu[0::2].clamp(max=limit), gu[1::2].clamp(-limit, limit)
        return gate * torch.sigmoid(alpha * gate) * (up + 1)

    y = layer.stock("bias_mxfp4_fused_weights", **bias)
    assert rel_l2(y, layer.reference(lambda gu: swiglu(gu, 7, 1.702), b13, b2)) < 1e-2
    y = layer.stock("bias_mxfp4_fused_weights", alpha=1.0, limit=0.5, **bias)
    assert rel_l2(y, layer.reference(lambda gu: swiglu(gu, 0.5, 1.0), b13, b2)) < 1e-2


@in_process("1")
def test_stock_arguments():
    bridge(ops=False)
    layer = Layer()
    w, s, ids = (list(layer.w13.to("hpu")), list(layer.s13.to("hpu")), layer.ids.to("hpu"))
    refused("w12 must be 4 tensors, they are 3", layer.stock, w12=w[:3])
    refused("d_scale_w12 must be [1024, 32], it is [1024, 31]", layer.stock, d_scale_w12=[t[:, 1:] for t in s])
    refused("w12 must be torch.uint8", layer.stock, w12=[t.int() for t in w])
    refused("must be 5 tensors", layer.stock, experts_max=layer.first + layer.E)
    refused("router_weights must be bf16", layer.stock, router_weights=layer.weights.to("hpu"))
    refused("expert_routing_table must be int32", layer.stock, expert_routing_table=ids.float())
    refused("hidden_states must be bf16", layer.stock, hidden_states=layer.x.float().to("hpu"))
    refused("activation must be silu", layer.stock, activation="swiglu")
    refused("permuted_weights", layer.stock, permuted_weights=False)
