#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Are the kernels right on this machine? Compares a layer with fp32 on the CPU; run_parity.sh runs all of it.

  --impl kernel   mxk_selfcheck, then the errors of our kernels and of the stock op against fp32: PARITY PASS; where the
                  variant has mxk_deq, that against an exact unpack, and prefill through it: PREFILL PASS
  --impl sig      two calls of one shape in one graph give what they give alone, bit for bit: SIG_DEVICE PASS
  --impl stock    the error of the stock op alone; nothing is judged

Exit status: 0 passed, 1 failed, 2 wrong usage.
"""

import argparse
import ctypes
import os
import sys
from pathlib import Path

os.environ.setdefault("PT_HPU_LAZY_MODE", "1")  # before torch, which may bring the bridge with it

import torch  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from mxk import problem, reference  # noqa: E402
from mxk_gaudi.library import MxkError  # noqa: E402

PREFILL_LIMIT = 1.25  # times the error of the stock op, which does the same after its own unpacking
RMS = (1.0, 4.0)  # 4 drives the clamps of the activations


class Check:
    """One run: its cases so far, and the first that failed."""

    def __init__(self, args, device, source):
        self.args, self.device, self.source = args, device, source
        self.layer = source.layer.to(device.torch)
        self.rows, self.failure = [], None

    def require(self, ok, what):
        if not ok and self.failure is None:
            self.failure = what

    def tokens(self):
        return self.args.tokens or problem.default_tokens(self.device.variant)

    def batches(self, tokens, routings, rms=RMS):
        return [self.source.batch(T, routing, level) for T in tokens for level in rms for routing in routings]

    def references(self, batches):
        return reference.run(self.source.layer, [b.tensors for b in batches])

    def run(self, function, batch):
        tensors = self.device.to(batch)
        return self.device.together(lambda: function(*tensors)).cpu()


def selfcheck(check):
    """Every step of the kernels whose meaning is not public, alone: a row that differs says where a machine does."""
    library = ctypes.CDLL(str(check.device.library))
    expected, tolerance = torch.empty(56, 64), torch.empty(56)
    library.mxk_expected_selfcheck(ctypes.c_void_p(expected.data_ptr()), ctypes.c_void_p(tolerance.data_ptr()))
    codes = torch.arange(256).to(torch.uint8).view(1, 256).to(check.device.torch)
    numbers = torch.arange(64).float().view(1, 64).to(check.device.torch)
    got = check.device.together(lambda: torch.ops.custom_op.mxk_selfcheck(codes, numbers)).cpu()
    close = (got - expected).abs() <= tolerance.unsqueeze(1) * expected.abs()
    close &= tolerance.unsqueeze(1) > 0  # else all bits: some rows hold NaN and -0
    wrong = (~close & (got.view(torch.int32) != expected.view(torch.int32))).any(1).nonzero().flatten().tolist()
    print(f"mxk_selfcheck: {56 - len(wrong)} of 56 rows as expected" + (f"; wrong: {wrong}" if wrong else ""))
    check.require(not wrong, f"mxk_selfcheck: rows {wrong} differ; mxk_selfcheck.c says what each is")


def compare(check, implementations):
    """Errors against fp32 of some of kernel and stock, in that order; the kernel is judged."""
    routings = [*problem.ROUTINGS] + ["router"] * bool(check.source.router)
    batches = check.batches(check.tokens(), routings)
    heads = "".join(f"  {name + ' rel_l2':>13} {'worst row':>10}" for name in implementations)
    print(f"   T  RMS  routing  routes{heads}" + "  kernel to stock" * (len(implementations) > 1))
    for batch, want in zip(batches, check.references(batches)):
        results = {name: check.run(getattr(check.layer, name), batch) for name in implementations}
        row = {"T": len(batch.x), "rms": batch.rms, "routing": batch.routing, "routes": batch.routes}
        line = f"{row['T']:4} {batch.rms:4.0f}  {batch.routing:<7} {batch.routes:7}"
        for name, y in results.items():
            error = reference.accuracy(want, y)
            row |= {f"{name}_rel_l2": error.rel_l2, f"{name}_worst": error.worst}
            line += f"  {error.rel_l2:13.2e} {error.worst:10.2e}"
            if name == "kernel":
                limit = row["limit"] = reference.gate(want)
                check.require(
                    reference.passes(error, limit) and y.dtype == torch.bfloat16 and y.shape == want.shape,
                    f"T={row['T']} RMS={batch.rms:g} routing={batch.routing}: rel_l2 {error.rel_l2:.3g}"
                    f" (limit {limit:.3g}), worst row {error.row} {error.worst:.3g}"
                    f" (limit {reference.GATE_ROW * limit:.3g}), {error.not_finite} values of the reference not finite",
                )
        if len(results) > 1:
            row["kernel_to_stock"] = reference.accuracy(results["stock"].float(), results["kernel"]).rel_l2
            line += f"  {row['kernel_to_stock']:15.2e}"
        check.rows.append(row)
        print(line, flush=True)


def parity(check):
    selfcheck(check)
    compare(check, ("kernel", "stock"))


def stock(check):
    compare(check, ("stock",))


def signatures(check):
    """A bridge that finds recipes by the shapes of inputs alone gives a second op, or a second call, the first one's
    result. So: all ops of the variant in one graph, twice, with different data; and the results must be right, which
    equal ones need not be."""
    for T in check.tokens():
        pair = [check.source.batch(T, "local", 1.0, stream) for stream in (0, 1)]
        tensors = [check.device.to(b) for b in pair]
        extra = [lambda: ()] * 2
        if check.device.variant.deq:
            extra = [lambda e=e: check.layer.dequantize(e) for e in (0, check.layer.E - 1)]

        def call(i):
            return (check.layer.kernel(*tensors[i]), *extra[i]())

        both = check.device.together(lambda: (*call(0), *call(1)))
        both = [y.cpu() for y in both]
        alone = [y.cpu() for i in (0, 1) for y in check.device.together(lambda: call(i))]
        same = [torch.equal(a, b) for a, b in zip(both, alone)]
        half = len(both) // 2
        wants = check.references(pair)
        errors = [reference.accuracy(want, both[i * half]) for i, want in enumerate(wants)]
        right = all(reference.passes(e, reference.gate(want)) for e, want in zip(errors, wants))
        shown = " ".join(f"{e.rel_l2:.2e}" for e in errors)
        print(f"   T={T:<3} {sum(same)} of {len(same)} results as alone, rel_l2 {shown}")
        check.rows.append({"T": T, "equal": sum(same), "results": len(same), "rel_l2": [e.rel_l2 for e in errors]})
        if not all(same):
            check.require(False, f"T={T}: result {same.index(False)} of two calls differs from that of the call alone")
        check.require(right, f"T={T}: rel_l2 {shown}: a call gave another's result")


def prefill(check):
    layer, cpu = check.layer, check.source.layer
    for e in sorted({0, layer.E // 2, layer.E - 1}):
        got = check.device.together(lambda: layer.dequantize(e))
        want = [reference.unpack_bf16(cpu.w13[e], cpu.s13[e]), reference.unpack_bf16(cpu.w2[e], cpu.s2[e])]
        same = [torch.equal(g.cpu().view(torch.int16), w.view(torch.int16)) for g, w in zip(got, want)]
        print(f"mxk_deq of expert {e}: {'equal to an exact unpack, bit for bit' if all(same) else 'differs'}")
        check.require(all(same), f"mxk_deq of expert {e} differs from an exact unpack")
    tokens = [256, 1024, 4096] if check.device.name == "hpu" else [16, 64]  # --tokens are those of decode
    print("   T  routes  prefill rel_l2  stock rel_l2  prefill to stock")
    batches = [check.source.working_batch(T, "random") for T in tokens]
    for batch, want in zip(batches, check.references(batches)):
        y, other = check.run(layer.prefill, batch), check.run(layer.stock, batch)
        error, limit = reference.accuracy(want, y), reference.accuracy(want, other)
        apart = reference.accuracy(other.float(), y).rel_l2
        T = len(batch.x)
        print(f"{T:4} {batch.routes:7} {error.rel_l2:15.2e} {limit.rel_l2:13.2e} {apart:17.2e}", flush=True)
        row = {"T": T, "routes": batch.routes, "prefill_rel_l2": error.rel_l2, "stock_rel_l2": limit.rel_l2}
        check.rows.append(row | {"prefill_to_stock": apart})
        check.require(
            error.rel_l2 <= PREFILL_LIMIT * limit.rel_l2 and not error.not_finite,
            f"T={T}: prefill is {error.rel_l2:.3g} from fp32, the stock op on the same weights {limit.rel_l2:.3g}"
            f" (limit {PREFILL_LIMIT} times that)",
        )


# What each checks, by the name of its verdict; None: there is none.
IMPLEMENTATIONS = {
    "kernel": {"PARITY": parity, "PREFILL": prefill},
    "sig": {"SIG_DEVICE": signatures},
    "stock": {None: stock},
}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    problem.add_arguments(parser, "--experts")
    parser.add_argument("--impl", choices=IMPLEMENTATIONS, default="kernel")
    args = parser.parse_args(arguments)
    try:
        device, source, about = problem.open_problem(args)
        print("\n".join(f"[{args.variant}] {args.impl} on {args.device}: {line}" for line in about), flush=True)
        verdicts, rows = {}, {}
        for name, function in IMPLEMENTATIONS[args.impl].items():
            if name == "PREFILL" and not device.variant.deq:
                continue
            check = Check(args, device, source)
            function(check)
            rows[name or "STOCK"] = check.rows
            if check.failure is not None:
                print(f"first failure: {check.failure}")
            if name:
                verdicts[name] = check.failure is None
                print(f"[{args.variant}] {name} {'PASS' if verdicts[name] else 'FAIL'}", flush=True)
        if args.json:
            report = {"impl": args.impl, "device": args.device, "problem": source.to_json(), "rows": rows}
            problem.write_json(args.json, report | {"passed": verdicts})
    except (MxkError, RuntimeError) as e:
        print(f"parity_hpu.py: {e}", file=sys.stderr)
        return 1
    return 0 if all(verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
