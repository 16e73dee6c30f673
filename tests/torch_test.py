# SPDX-License-Identifier: Apache-2.0
"""The PyTorch ops for CPUs: values, opcheck, torch.compile, refusals. tests/torch.cmake says how it is run."""

import ctypes
import itertools
import json
import os
import signal
import subprocess
import sys
import threading

import pytest
import torch

import mxk
from mxk import ops

LIBRARY = str(ops.load())
VARIANTS = {v["name"]: v for v in json.loads(
    subprocess.run([os.environ["MXK_CLI"], "variants", "--json"], check=True, capture_output=True).stdout)["variants"]}
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
SEED = 20
GATE = 2e-3  # 1.75e-3 and room for the luck of a few hundred outputs


class Problem:
    """A layer and a batch of random bytes; shapes that the TPC kernels' limits allow too."""

    def __init__(self, variant, T=5, k=3, E=4, first=2):
        v = self.v = VARIANTS[variant]
        g = torch.Generator().manual_seed(SEED)
        self.variant, self.first = variant, first
        self.T, self.k, self.E = T, k, E
        self.K = K = 288 if variant == "gptoss" else 512
        self.I = I = 320 if variant == "gptoss" else 512
        self.x = torch.randn(T, K, generator=g).bfloat16()
        # Some of other ranks, -1, and some twice in a row.
        self.ids = torch.randint(-1, first + E + 2, (T, k), generator=g, dtype=torch.int32)
        self.ids[0] = first
        self.weights = torch.rand(T, k, generator=g)
        self.w13, self.s13 = self.packed(g, 2 * I, K)
        self.w2, self.s2 = self.packed(g, K, I)
        self.bias13 = torch.randn(E, 2 * I, generator=g) if v["bias"] else None
        self.bias2 = torch.randn(E, K, generator=g) if v["bias"] else None

    def packed(self, g, rows, columns):
        return (torch.randint(0, 256, (self.E, rows, columns // 2), generator=g, dtype=torch.uint8),
                torch.randint(117, 124, (self.E, rows, columns // 32), generator=g, dtype=torch.uint8))

    def arguments(self):
        return (self.x, self.ids, self.weights, self.w13, self.s13, self.w2, self.s2, self.bias13, self.bias2,
                self.variant, self.first)

    def decode(self):
        return torch.ops.mxk.moe_decode(*self.arguments())

    def reference(self):
        """Double precision but for the rounding of the activations; straight from docs/semantics.md."""
        p = self.v["act_params"]
        limit = float("inf") if p["limit"] is None else p["limit"]
        y = torch.zeros(self.T, self.k, self.K, dtype=torch.float64)
        for t, slot in itertools.product(range(self.T), range(self.k)):
            e = int(self.ids[t, slot]) - self.first
            if not 0 <= e < self.E:
                continue
            h = dequantize(self.w13[e], self.s13[e]) @ self.x[t].double()
            if self.bias13 is not None:
                h += self.bias13[e]
            g, u = (h[0::2], h[1::2]) if self.v["rows"] == "interleaved" else h.chunk(2)
            g, u = g.clamp(max=limit), u.clamp(-limit, limit)
            a = (g * torch.sigmoid(p["alpha"] * g) * (u + p["shift"])).float().bfloat16().double()
            d = dequantize(self.w2[e], self.s2[e]) @ a
            y[t, slot] = d if self.bias2 is None else d + self.bias2[e]
        if self.v["per_route"]:
            return y
        return (y * self.weights.double()[:, :, None]).sum(1)

    # The two kernels' ops: activations padded and permuted, biases laid out anew.
    def w13_arguments(self):
        bias = [] if self.bias13 is None else [relaid(self.bias13)]
        return (permuted(self.x), self.w13, self.s13, self.ids, *bias, self.first)

    def w2_arguments(self, a):
        bias = [] if self.bias2 is None else [relaid(self.bias2)]
        return (a, self.w2, self.s2, self.ids, self.weights, *bias, self.first)

    def ops(self):
        return (getattr(torch.ops.custom_op, self.v["w13_kernel"]).default,
                getattr(torch.ops.custom_op, self.v["w2_kernel"]).default)


def dequantize(w, s):
    codes = torch.stack((w & 15, w >> 4), -1).flatten(-2).long()
    return E2M1.double()[codes] * torch.pow(2.0, s.double() - 127).repeat_interleave(32, -1)


def permuted(x):
    rows, n = x.shape
    padded = torch.zeros(rows, -(-n // 512) * 512, dtype=x.dtype)
    padded[:, :n] = x
    out = torch.empty_like(padded)
    for i in range(padded.shape[1]):
        out[:, i // 512 * 512 + i % 4 * 128 + i % 512 // 4] = padded[:, i]
    return out


def relaid(bias):
    E, rows = bias.shape
    return bias.view(E, rows // 8, 8).transpose(1, 2).contiguous()


def rel_l2(got, want):
    return float((got.double() - want).norm() / want.norm())


@pytest.fixture(params=VARIANTS)
def problem(request):
    return Problem(request.param)


def test_the_table_of_the_library_is_that_of_the_cli():
    lib = ctypes.CDLL(LIBRARY)
    lib.mxk_variants_json.restype = ctypes.c_char_p
    assert json.loads(lib.mxk_variants_json()) == list(VARIANTS.values())


def test_moe_decode_against_double_precision(problem):
    y = problem.decode()
    want = problem.reference()
    assert y.dtype == torch.bfloat16 and y.shape == want.shape
    assert rel_l2(y, want) <= GATE
    wrong = want.clone()
    wrong.view(-1, problem.K)[0] *= 1.05
    assert rel_l2(y, wrong) > GATE, "the gate would not notice"


@pytest.mark.parametrize("T", [1, 2, 7, 40])
def test_any_number_of_tokens_and_each_row_alone(T):
    p = Problem("gptoss", T=T)
    y = p.decode()
    assert rel_l2(y, p.reference()) <= GATE
    for t in range(T):
        one = torch.ops.mxk.moe_decode(p.x[t:t + 1], p.ids[t:t + 1], p.weights[t:t + 1], *p.arguments()[3:])
        assert torch.equal(one[0], y[t])


def test_other_types_of_the_small_inputs(problem):
    p, y = problem, problem.decode()
    p.ids = p.ids.long()
    assert torch.equal(p.decode(), y)
    skipped = p.ids < 0
    for nobody in (2**40 + p.first, -2**63, 2**63 - 1):  # no int32
        p.ids = torch.where(skipped, torch.full_like(p.ids, nobody), p.ids)
        assert torch.equal(p.decode(), y)
    p.weights = p.weights.bfloat16()
    assert rel_l2(p.decode(), p.reference()) <= GATE
    if p.bias13 is not None:
        p.bias13, p.bias2 = p.bias13.bfloat16(), p.bias2.bfloat16()
        assert rel_l2(p.decode(), p.reference()) <= GATE


def test_small_inputs_may_be_views(problem):
    p, y = problem, problem.decode()
    wide = torch.zeros(p.T, 2 * p.K, dtype=p.x.dtype)
    wide[:, ::2] = p.x
    p.x, p.ids, p.weights = wide[:, ::2], p.ids.t().contiguous().t(), p.weights.t().contiguous().t()
    assert torch.equal(p.decode(), y)


def test_no_tokens_and_no_local_routes(problem):
    p = problem
    p.ids.fill_(p.first + p.E)
    assert torch.equal(p.decode(), torch.zeros_like(p.decode()))
    p.x, p.ids, p.weights = p.x[:0], p.ids[:0], p.weights[:0]
    assert p.decode().shape[0] == 0


def test_biases_may_be_absent():
    p = Problem("gptoss")
    p.bias2 = None
    assert rel_l2(p.decode(), p.reference()) <= GATE
    p.bias13 = None
    assert rel_l2(p.decode(), p.reference()) <= GATE


def test_the_kernels_ops_are_the_layer_bit_for_bit(problem):
    w13, w2 = problem.ops()
    a = w13(*problem.w13_arguments())
    assert a.shape == (problem.T * problem.k, -(-problem.I // 512) * 512)
    skipped = (problem.ids.flatten() < problem.first) | (problem.ids.flatten() >= problem.first + problem.E)
    assert skipped.any() and not a[skipped].any()
    assert torch.equal(w2(*problem.w2_arguments(a)), problem.decode())


def test_deq_is_exact():
    w = torch.arange(256, dtype=torch.uint8).repeat_interleave(16).view(1, 256, 16)  # a row of 32 for each byte
    for s in range(256):
        out = torch.ops.custom_op.mxk_deq(w, torch.full((1, 256, 1), s, dtype=torch.uint8))
        want = dequantize(w, torch.full((1, 256, 1), s, dtype=torch.uint8)).bfloat16()
        assert out.isnan().all() if s == 255 else torch.equal(out, want)


def test_selfcheck_gives_the_rows_that_python_can_ask_for():
    want = torch.empty(56, 64)
    tolerance = torch.empty(56)
    ctypes.CDLL(LIBRARY).mxk_expected_selfcheck(ctypes.c_void_p(want.data_ptr()), ctypes.c_void_p(tolerance.data_ptr()))
    codes, numbers = torch.arange(256, dtype=torch.uint8).view(1, 256), torch.arange(64.0).view(1, 64)
    got = torch.ops.custom_op.mxk_selfcheck(codes, numbers)
    assert torch.equal(got.view(torch.int32), want.view(torch.int32))  # some are NaN
    assert (tolerance >= 0).all() and tolerance.max() <= 1e-6


def all_calls():
    for variant in VARIANTS:
        p = Problem(variant)
        w13, w2 = p.ops()
        yield f"{variant}-moe_decode", torch.ops.mxk.moe_decode.default, p.arguments()
        yield f"{variant}-w13", w13, p.w13_arguments()
        yield f"{variant}-w2", w2, p.w2_arguments(w13(*p.w13_arguments()))
    p = Problem("glm")
    yield "deq", torch.ops.custom_op.mxk_deq.default, (p.w13, p.s13)
    yield "selfcheck", torch.ops.custom_op.mxk_selfcheck.default, (torch.zeros(1, 256, dtype=torch.uint8),
                                                                   torch.zeros(1, 64))


@pytest.mark.parametrize("name,op,arguments", [pytest.param(*c, id=c[0]) for c in all_calls()])
def test_opcheck(name, op, arguments):
    # Some numbers of the self-check are NaN, which the last test takes for different.
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(op, arguments, test_utils=tests[:3] if name == "selfcheck" else tests)


def test_meta_gives_the_shape_and_refuses_what_the_call_would(problem):
    w13, w2 = problem.ops()
    a = w13(*problem.w13_arguments())
    for op, arguments in ((torch.ops.mxk.moe_decode, problem.arguments()), (w13, problem.w13_arguments()),
                          (w2, problem.w2_arguments(a))):
        meta = [t.to("meta") if isinstance(t, torch.Tensor) else t for t in arguments]
        real, fake = op(*arguments), op(*meta)
        assert (fake.shape, fake.dtype, fake.device.type) == (real.shape, real.dtype, "meta")
        meta[0] = meta[0].float()
        with pytest.raises(RuntimeError, match="must be"):
            op(*meta)


def test_one_tensor_on_meta_is_refused(problem):
    for i, t in enumerate(problem.arguments()):
        if isinstance(t, torch.Tensor):
            mixed = [*problem.arguments()]
            mixed[i] = t.to("meta")
            with pytest.raises(RuntimeError, match="is on (meta|cpu), x on"):
                torch.ops.mxk.moe_decode(*mixed)
    w13, _ = problem.ops()
    x, weight, *rest = problem.w13_arguments()
    with pytest.raises(RuntimeError, match="w13 is on meta, x on cpu"):
        w13(x, weight.to("meta"), *rest)


@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compile(dynamic):
    def layer(x, ids, weights):
        return mxk.moe_decode(x * 2, ids, weights, p.w13, p.s13, p.w2, p.s2, p.bias13, p.bias2, variant="gptoss",
                              first_expert=p.first) + 1

    p = Problem("gptoss", T=8)
    compiled = torch.compile(layer, fullgraph=True, dynamic=dynamic)
    for T in (8, 3, 5):
        arguments = p.x[:T], p.ids[:T], p.weights[:T]
        assert torch.equal(compiled(*arguments), layer(*arguments))


def test_torch_compile_of_the_kernels_ops():
    p = Problem("muse")
    w13, w2 = p.ops()
    compiled = torch.compile(lambda *a: w2(*p.w2_arguments(w13(*a))), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*p.w13_arguments()), p.decode())


@pytest.mark.parametrize("backend", ["ref", "stock", "generic"])
def test_backends_by_name(backend, monkeypatch):
    monkeypatch.setenv("MXK_BACKEND", backend)
    p = Problem("glm")
    assert rel_l2(p.decode(), p.reference()) <= (1e-2 if backend == "stock" else GATE)


def test_a_backend_that_is_none_is_an_error(monkeypatch):
    monkeypatch.setenv("MXK_BACKEND", "nonesuch")
    with pytest.raises(RuntimeError, match="nonesuch"):
        Problem("glm").decode()


def test_stock_has_no_stages(monkeypatch):
    monkeypatch.setenv("MXK_BACKEND", "stock")
    p = Problem("glm")
    with pytest.raises(RuntimeError, match="whole layers only"):
        p.ops()[0](*p.w13_arguments())


def test_threads_change_nothing(problem):
    threads = torch.get_num_threads()
    try:
        results = []
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            results.append(problem.decode())
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(r, results[0]) for r in results)


def test_a_child_process_computes_too():
    p = Problem("glm")
    want = p.decode()
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(p.decode(), want) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_children_of_a_process_that_computes():
    """A lock that another thread holds while the process forks must not be held in the child for ever."""
    p = Problem("glm")
    want, stop = p.decode(), threading.Event()

    def work():
        while not stop.is_set():
            p.decode()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                os._exit(0 if torch.equal(p.decode(), want) else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()


def test_calls_of_any_shapes_one_after_the_other():
    """Engines are made for what was seen before too, as long as there is memory for it."""
    for T, k, E in ((3, 2, 4), (1, 4, 2), (64, 1, 1), (2, 3, 8)):
        p = Problem("glm", T=T, k=k, E=E, first=0)
        assert rel_l2(p.decode(), p.reference()) <= GATE
    many = torch.zeros(1 << 20, 32).bfloat16()
    ids, weights = torch.full((1 << 20, 1), -1), torch.zeros(1 << 20, 1)
    byte = lambda *shape: torch.zeros(shape, dtype=torch.uint8)
    layer = byte(1, 64, 16), byte(1, 64, 1), byte(1, 32, 16), byte(1, 32, 1)
    assert not torch.ops.mxk.moe_decode(many, ids, weights, *layer, None, None, "glm", 0).any()
    one = many[:1], torch.full((1, 4096), 0), torch.zeros(1, 4096)
    assert not torch.ops.mxk.moe_decode(*one, *layer, None, None, "glm", 0).any()


def replace(p, **changes):
    for name, change in changes.items():
        setattr(p, name, change(getattr(p, name)))


@pytest.mark.parametrize("changes,message", [
    (dict(x=lambda t: t.float()), "x must be .*BFloat16"),
    (dict(x=lambda t: t[0]), "x must have 2 dimensions"),
    (dict(x=lambda t: t[:, :-32].contiguous()), "w13 must be"),
    (dict(ids=lambda t: t.short()), "topk_ids must be"),
    (dict(ids=lambda t: t[:-1]), "topk_ids must be"),
    (dict(weights=lambda t: t[:, :-1]), "topk_weights must be"),
    (dict(weights=lambda t: t.double()), "topk_weights must be"),
    (dict(w13=lambda t: t.int()), "w13 must be"),
    (dict(w13=lambda t: t[:, :-2]), "w13 must be"),
    (dict(w13=lambda t: t.transpose(0, 1).contiguous().transpose(0, 1)), "w13 must be contiguous"),
    (dict(s13=lambda t: t[:, :, :-1]), "s13 must be"),
    (dict(w2=lambda t: t[:, :, ::2]), "must be"),
    (dict(s2=lambda t: t[:-1]), "s2 must be"),
    (dict(bias13=lambda t: t[:, :-1]), "bias13 must be"),
    (dict(bias2=lambda t: t.double()), "bias2 must be"),
    (dict(variant=lambda _: "glm"), "has no bias"),
    (dict(variant=lambda _: "nonesuch"), "nonesuch.*gptoss, glm"),
    (dict(first=lambda _: -1), "first_expert=-1"),
    (dict(first=lambda _: 2**31), "first_expert=2147483648"),
])
def test_what_moe_decode_refuses(changes, message):
    p = Problem("gptoss")
    replace(p, **changes)
    with pytest.raises(RuntimeError, match=message):
        p.decode()


@pytest.mark.parametrize("index,change,message", [
    (0, lambda t: t.float(), "x must be bfloat16"),
    (0, lambda t: t[:, :-1], "x must be .*multiple of 512 is 512 here"),
    (1, lambda t: t[0], "w13 must be .* dimensions"),
    (1, lambda t: t.transpose(0, 1).contiguous().transpose(0, 1), "w13 must be contiguous"),
    (2, lambda t: t[:, :, :-1], "s13 must be"),
    (3, lambda t: t.long(), "ids must be int32"),
    (3, lambda t: t[:-1], "x must be|ids must be"),
    (4, lambda t: -1, "first_expert=-1"),
])
def test_what_the_kernels_ops_refuse(index, change, message):
    p = Problem("glm")
    arguments = list(p.w13_arguments())
    arguments[index] = change(arguments[index])
    with pytest.raises(RuntimeError, match=message):
        p.ops()[0](*arguments)


def test_the_kernels_ops_have_the_limits_of_the_kernels():
    p = Problem("glm", T=17)
    with pytest.raises(RuntimeError, match="T=17"):
        p.ops()[0](*p.w13_arguments())
    assert rel_l2(p.decode(), p.reference()) <= GATE  # moe_decode has not


def test_a_missing_library_is_told(tmp_path):
    env = dict(os.environ, MXK_OP_LIBRARY=str(tmp_path / "libmxk_op_cpu.so"))
    run = subprocess.run([sys.executable, "-c", "import mxk; mxk.ops.load()"], env=env, capture_output=True, text=True)
    assert run.returncode == 1 and "ImportError" in run.stderr and "pip install ." in run.stderr


def test_a_library_for_another_torch_is_not_loaded(tmp_path):
    other = tmp_path / "libmxk_op_cpu.so"
    mark = b"mxk op library for torch "
    data = open(LIBRARY, "rb").read()
    at = data.index(mark) + len(mark)
    other.write_bytes(data[:at] + b"1" + data[at + 1:])
    env = dict(os.environ, MXK_OP_LIBRARY=str(other))
    run = subprocess.run([sys.executable, "-c", "import mxk"], env=env, capture_output=True, text=True)
    assert run.returncode == 1 and "was built for torch 1" in run.stderr
