#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the mxk binary given as argv[1] the way a user would: every command, its JSON, its exit codes, its errors.

Standard library only. The answers of `mxk run` are compared with a few lines of plain Python that follow the published
semantics, so this test shares no arithmetic with the code it tests.
"""
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

MXK = os.path.abspath(sys.argv[1])
SIZES = {"U8": 1, "BF16": 2, "F32": 4, "I32": 4, "I64": 8}


def mxk(*args, expect=0, **env):
    """Runs it; returns (stdout, stderr). Fails unless the exit status is the expected one."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MXK_")}
    environment.update(env)
    command = " ".join(["mxk", *map(str, args)])
    p = subprocess.run([MXK, *map(str, args)], capture_output=True, text=True, env=environment, timeout=300)
    if p.returncode != expect:
        raise AssertionError(f"{command}: exit {p.returncode}, expected {expect}\n{p.stdout}{p.stderr}")
    if expect and not p.stderr and "PARITY FAIL" not in p.stdout:
        raise AssertionError(f"{command}: failed without a word on stderr")
    return p.stdout, p.stderr


def check(condition, text):
    if not condition:
        raise AssertionError(text)


# ---- safetensors, bf16 -------------------------------------------------------------------------------------------


def write_safetensors(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}"""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        check(len(data) == SIZES[dtype] * math.prod(shape), f"{name}: wrong size in the test itself")
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def read_safetensors(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack_from("<Q", data)[0]
    out = {}
    for name, t in json.loads(data[8 : 8 + n]).items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            out[name] = (t["dtype"], t["shape"], data[8 + n + a : 8 + n + b])
    return out


def to_bf16(x):
    u = struct.unpack("<I", struct.pack("<f", x))[0]
    return (u + 0x7FFF + ((u >> 16) & 1)) >> 16


def from_bf16(b):
    return struct.unpack("<f", struct.pack("<I", b << 16))[0]


def bf16(x):
    return from_bf16(to_bf16(x))


def pack_bf16(values):
    return struct.pack(f"<{len(values)}H", *map(to_bf16, values))


def floats(tensor):
    dtype, _, data = tensor
    if dtype == "F32":
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    return [from_bf16(b) for b in struct.unpack(f"<{len(data) // 2}H", data)]


# ---- a layer and its semantics -----------------------------------------------------------------------------------

E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


class Layer:
    def __init__(self, seed, E, K, I, bias):
        r = random.Random(seed)
        self.E, self.K, self.I = E, K, I
        self.w13, self.w2 = r.randbytes(E * 2 * I * K // 2), r.randbytes(E * K * I // 2)
        self.s13 = bytes(r.choice((119, 120, 121)) for _ in range(E * 2 * I * K // 32))
        self.s2 = bytes(r.choice((119, 120, 121)) for _ in range(E * K * I // 32))
        self.b13 = [bf16(r.gauss(0, 0.3)) for _ in range(E * 2 * I)] if bias else None
        self.b2 = [bf16(r.gauss(0, 0.3)) for _ in range(E * K)] if bias else None

    def fused(self, path):
        E, K, I = self.E, self.K, self.I
        t = {
            "w13_weight": ("U8", [E, 2 * I, K // 2], self.w13),
            "w13_weight_scale": ("U8", [E, 2 * I, K // 32], self.s13),
            "w2_weight": ("U8", [E, K, I // 2], self.w2),
            "w2_weight_scale": ("U8", [E, K, I // 32], self.s2),
        }
        if self.b13:
            t["w13_bias"] = ("BF16", [E, 2 * I], pack_bf16(self.b13))
            t["w2_bias"] = ("BF16", [E, K], pack_bf16(self.b2))
        write_safetensors(path, t)

    def gptoss(self, path):
        E, K, I = self.E, self.K, self.I
        p = "model.layers.0.mlp.experts."
        write_safetensors(
            path,
            {
                p + "gate_up_proj_blocks": ("U8", [E, 2 * I, K // 32, 16], self.w13),
                p + "gate_up_proj_scales": ("U8", [E, 2 * I, K // 32], self.s13),
                p + "gate_up_proj_bias": ("BF16", [E, 2 * I], pack_bf16(self.b13)),
                p + "down_proj_blocks": ("U8", [E, K, I // 32, 16], self.w2),
                p + "down_proj_scales": ("U8", [E, K, I // 32], self.s2),
                p + "down_proj_bias": ("BF16", [E, K], pack_bf16(self.b2)),
            },
        )

    @staticmethod
    def dot(w, s, row, n, x):
        total = 0.0
        for i in range(n):
            code = w[(row * n + i) // 2] >> (4 * (i % 2)) & 15
            total += E2M1[code] * 2.0 ** (s[(row * n + i) // 32] - 127) * x[i]
        return total

    def expert(self, e, x, variant):
        """Output of one expert for one token, unweighted."""
        K, I = self.K, self.I
        gu = [self.dot(self.w13, self.s13, e * 2 * I + j, K, x) for j in range(2 * I)]
        if self.b13:
            gu = [v + b for v, b in zip(gu, self.b13[e * 2 * I :])]
        interleaved = variant["rows"] == "interleaved"
        g, u = (gu[0::2], gu[1::2]) if interleaved else (gu[:I], gu[I:])
        p = variant["act_params"]
        limit = math.inf if p["limit"] is None else p["limit"]
        h = []
        for a, b in zip(g, u):
            a, b = min(a, limit), max(-limit, min(b, limit))
            h.append(bf16(a / (1 + math.exp(-p["alpha"] * a)) * (b + p["shift"])))
        y = [self.dot(self.w2, self.s2, e * K + j, I, h) for j in range(K)]
        return [v + b for v, b in zip(y, self.b2[e * K :])] if self.b2 else y


def reference(layer, variant, x, ids, weights, first):
    out = []
    for t, row in enumerate(ids):
        total = [0.0] * layer.K
        for slot, e in enumerate(row):
            local = first <= e < first + layer.E
            y = layer.expert(e - first, x[t], variant) if local else [0.0] * layer.K
            if variant["per_route"]:
                out += y
            elif local:
                total = [a + weights[t][slot] * b for a, b in zip(total, y)]
        if not variant["per_route"]:
            out += total
    return out


def rel_l2(y, ref):
    check(len(y) == len(ref), f"{len(y)} values, expected {len(ref)}")
    norm = math.sqrt(sum(r * r for r in ref))
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(y, ref))) / norm


# ---- tests -------------------------------------------------------------------------------------------------------


def write_input(path, x, ids, weights, x_type="BF16", id_type="I32", w_type="F32"):
    T, K, k = len(x), len(x[0]), len(ids[0])
    flat = lambda rows: [v for row in rows for v in row]
    pack = lambda dtype, v: pack_bf16(v) if dtype == "BF16" else struct.pack(f"<{len(v)}f", *v)
    write_safetensors(
        path,
        {
            "x": (x_type, [T, K], pack(x_type, flat(x))),
            "topk_ids": (id_type, [T, k], struct.pack(f"<{T * k}{'i' if id_type == 'I32' else 'q'}", *flat(ids))),
            "topk_weights": (w_type, [T, k], pack(w_type, flat(weights))),
        },
    )


def test_run(variants):
    r = random.Random(1)
    E, K, I, first = 3, 96, 32, 5
    ids = [[5, 7, -1], [6, 6, 7], [4, 8, 2**31 - 1], [7, 0, 5]]  # local and not, twice the same, none local
    x = [[bf16(r.gauss(0, 1)) for _ in range(K)] for _ in ids]
    weights = [[bf16(r.random()) for _ in row] for row in ids]
    for v in variants:
        layer = Layer(7, E, K, I, v["bias"])
        layer.fused("layer.safetensors")
        ref = reference(layer, v, x, ids, weights, first)
        run = ["run", "--variant", v["name"], "--layer", "layer.safetensors", "--first-expert", first]
        run += ["--input", "in.safetensors", "--output", "out.safetensors"]
        shape = [len(ids), 3, K] if v["per_route"] else [len(ids), K]
        width = 3 * K if v["per_route"] else K
        write_input("in.safetensors", x, ids, weights)
        for dtype, name, gate in (("f32", "F32", 2e-4), ("bf16", "BF16", 4e-3)):
            mxk(*run, "--out-dtype", dtype)
            y = read_safetensors("out.safetensors")["y"]
            check(y[0] == name and y[1] == shape, f"{v['name']}: y is {y[:2]}")
            error = rel_l2(floats(y), ref)
            check(error < gate, f"{v['name']} {dtype}: rel_l2 {error}")
            check(not any(floats(y)[2 * width : 3 * width]), f"{v['name']}: a token without local routes is not zero")
        default = read_safetensors("out.safetensors")["y"][2]
        # The same values as other types give the same bytes; ids that int32 cannot hold are skipped.
        wide = [[e if 5 <= e < 8 else 2**40 + 6 for e in row] for row in ids]
        write_input("in.safetensors", x, wide, weights, "F32", "I64", "BF16")
        _, err = mxk(*run, "--backend", "generic", "--threads", 1)
        check("rounded" not in err, "values that bf16 holds were reported as rounded")
        mxk(*run)
        check(read_safetensors("out.safetensors")["y"][2] == default, f"{v['name']}: result depends on the input types")
        write_input("in.safetensors", [[a + 1e-4 for a in row] for row in x], ids, weights, "F32")
        _, err = mxk(*run)
        check("values of 'x' were rounded to bf16" in err, "rounding of x is not reported")
        empty = {"x": ("BF16", [0, K], b""), "topk_ids": ("I32", [0, 3], b""), "topk_weights": ("F32", [0, 3], b"")}
        write_safetensors("in.safetensors", empty)
        mxk(*run)
        y = read_safetensors("out.safetensors")["y"]
        check(y[1] == ([0, 3, K] if v["per_route"] else [0, K]) and not y[2], f"no tokens: y is {y[:2]}")


def test_run_gptoss_names(variants):
    gptoss = next(v for v in variants if v["name"] == "gptoss")
    layer = Layer(3, 2, 32, 64, True)
    layer.fused("fused.safetensors")
    layer.gptoss("hf.safetensors")
    write_input("in.safetensors", [[0.5] * 32], [[1, 0]], [[0.25, 0.75]])
    for source in ("fused", "hf"):
        run = ["run", "--variant", "gptoss", "--layer", source + ".safetensors"]
        mxk(*run, "--input", "in.safetensors", "--output", source + ".y")
    a, b = (read_safetensors(n + ".y")["y"] for n in ("fused", "hf"))
    check(a == b, "fused and gpt-oss names give different results")
    ref = reference(layer, gptoss, [[0.5] * 32], [[1, 0]], [[0.25, 0.75]], 0)
    check(rel_l2(floats(a), ref) < 4e-3, "gpt-oss names: wrong result")


def test_run_errors():
    Layer(7, 2, 64, 32, False).fused("plain.safetensors")
    Layer(7, 2, 64, 32, True).fused("biased.safetensors")
    write_input("good.safetensors", [[1.0] * 64], [[0, 1]], [[0.5, 0.5]])
    good = read_safetensors("good.safetensors")
    with open("kept.y", "wb") as f:
        f.write(b"old")

    def run(expect, word, *more, variant="glm", layer="plain.safetensors", given="good.safetensors", out="kept.y", **e):
        files = ["--layer", layer, "--input", given, "--output", out]
        _, err = mxk("run", "--variant", variant, *files, *more, expect=expect, **e)
        check(word in err, f"expected '{word}' in: {err}")
        with open("kept.y", "rb") as f:
            check(f.read() == b"old", "a failed run changed the output file")

    def with_tensor(**changes):
        tensors = {**good, **changes}
        write_safetensors("bad.safetensors", {n: t for n, t in tensors.items() if t})
        return "bad.safetensors"

    run(1, "bias", layer="biased.safetensors")
    run(1, "nowhere", layer="nowhere")
    run(1, "nowhere", given="nowhere")
    run(1, "nowhere", out="nowhere/y")
    run(1, "topk_ids", given=with_tensor(topk_ids=None))
    run(1, "'x' is I32", given=with_tensor(x=("I32", [1, 64], bytes(256))))
    run(1, "two dimensions", given=with_tensor(x=("BF16", [64], bytes(128))))
    run(1, "K=32", given=with_tensor(x=("BF16", [1, 32], bytes(64))))
    run(1, "token counts differ", given=with_tensor(x=("BF16", [2, 64], bytes(256))))
    run(1, "topk_weights", given=with_tensor(topk_weights=("F32", [1, 1], bytes(4))))
    with open("junk", "wb") as f:
        f.write(b"\xff" * 64)
    run(1, "junk", layer="junk")
    run(1, "junk", given="junk")
    run(2, "no layer 3", "--layer-index", 3)
    run(2, "--variant", variant="nope")
    run(2, "--backend", "--backend", "nope")
    run(2, "nope", MXK_BACKEND="nope")
    run(2, "--threads", "--threads", "two")
    run(2, "--threads", "--threads", -1)
    run(2, "--first-expert", "--first-expert", "1e9x")
    run(2, "--out-dtype", "--out-dtype", "f16")
    check(sorted(f for f in os.listdir(".") if "tmp" in f) == [], "temporary files are left")
    # A link is followed, and stays one; a message nobody can read does not change the exit status.
    os.symlink("target.y", "link.y")
    plain = ["run", "--variant", "glm", "--layer", "plain.safetensors", "--output", "link.y", "--input"]
    mxk(*plain, "good.safetensors", expect=1)  # to nowhere
    with open("target.y", "wb"):
        pass
    mxk(*plain, "good.safetensors")
    check(os.path.islink("link.y") and read_safetensors("target.y")["y"][1] == [1, 64], "the link was not followed")
    with open("/dev/full", "w") as full:
        code = subprocess.run([MXK, *plain, "nowhere"], stderr=full, stdout=subprocess.DEVNULL).returncode
    check(code == 1, f"exit {code} where stderr cannot be written")
    small = ["--layers", 2, "--experts", 2, "--hidden", 64, "--intermediate", 32]
    mxk("make-checkpoint", "two", "--variant", "glm", *small)
    run(2, "0-1", layer="two")
    files = ["--layer", "two", "--layer-index", 1, "--input", "good.safetensors", "--output", "two.y"]
    mxk("run", "--variant", "glm", *files)
    wanted = [b["name"] for b in json.loads(mxk("info", "--json")[0])["backends"] if not b["supported"]]
    if wanted:
        run(1, wanted[0], "--backend", wanted[0])


def test_info():
    j = json.loads(mxk("info", "--json")[0])
    check(j["backend"] and j["threads"] >= 1 and j["machine"]["cpus_usable"] >= 1, "info --json lacks the basics")
    check([b["name"] for b in j["backends"] if b["chosen"]] == [j["backend"]], "chosen backend is not marked")
    check(all(b["supported"] or b["reason"] for b in j["backends"]), "a backend says no without a reason")
    text = mxk("info", MXK_BACKEND="ref", MXK_BACKND="x")[0]
    check("MXK_BACKEND forces 'ref'" in text, "a forced slow backend is not pointed out")
    check("did you mean MXK_BACKEND?" in text, "a misspelt variable is not pointed out")
    check("does not exist" in mxk("info", MXK_BACKEND="nope")[0], "an unknown backend is not pointed out")
    env = json.loads(mxk("env", "--json", MXK_BACKEND="generic")[0])
    check(env["variables"] == {"MXK_BACKEND": "generic"} and env["backend"] == "generic", "env: variables")
    for key in ("version", "compiler", "build_type", "machine", "backends"):
        check(key in env, f"env lacks {key}")
    mxk("info", "nowhere", expect=1)


def test_checkpoint_and_check(variants):
    small = ["--experts", 8, "--hidden", 64, "--intermediate", 32]
    for v in variants:
        name = v["name"]
        mxk("make-checkpoint", name, "--variant", name, *small, "--seed", 5)
        layer = json.loads(mxk("info", name, "--json")[0])["checkpoint"]["layers"][0]
        check((layer["E"], layer["K"], layer["I"]) == (8, 64, 32), f"{name}: made {layer}")
        out, _ = mxk("check", "--variant", name, "--checkpoint", name, "--e-local", 4, "--tokens", "1,3")
        check(out.endswith(f"[{name}] PARITY PASS\n"), out)
        mxk("make-checkpoint", name, "--variant", name, *small, expect=1)
    check("gptoss" in layer["variants"] or layer["refused"], "info gives no reason")
    glm = ["check", "--variant", "glm", "--checkpoint", "glm"]
    out, _ = mxk(*glm, "--tokens", "2", "--backend", "generic,ref", "--json")
    j = json.loads(out)
    check(j["verdict"] == "PASS" and {c["backend"] for c in j["cases"]} == {"generic", "ref", "stock"}, "check --json")
    bad = Layer(7, 4, 64, 32, False)
    bad.s2 = b"\xff" + bad.s2[1:]  # NaN
    bad.fused("nan.safetensors")
    out, err = mxk("check", "--variant", "glm", "--checkpoint", "nan.safetensors", "--tokens", "8")
    check(out.endswith("[glm] PARITY PASS\n") and "infinite or NaN" in err, out + err)
    mxk("make-checkpoint", "none", "--variant", "glm", "--hidden", 33, expect=2)
    mxk("make-checkpoint", "none", "--variant", "glm", "--seed", -1, expect=2)
    check(not os.path.exists("none"), "a refused checkpoint was begun")
    mxk("check", "--variant", "nope", expect=2)
    mxk(*glm, "--e-local", 9, expect=2)
    mxk("check", "--variant", "glm", "--layer", 0, expect=2)
    mxk(*glm, "--layer", 4, expect=2)
    mxk(*glm, "--tokens", "1,x", expect=2)
    mxk(*glm, "--tokens", "0", expect=2)
    mxk(*glm, "--backend", "nope", expect=2)
    mxk(*glm, expect=2, MXK_BACKEND="nope")
    mxk("check", "--variant", "glm", "--checkpoint", "nowhere", expect=1)


def test_bench():
    mxk("make-checkpoint", "b", "--variant", "glm", "--experts", 8, "--hidden", 512, "--intermediate", 512)
    common = ["bench", "--variant", "glm", "--checkpoint", "b", "--tokens", "2,4", "--min-runs", 1]
    out, _ = mxk(*common, "--json", "kernel.json")
    check("% floor" in out and "rel_l2" in out, out)
    mxk(*common, "--impl", "stock", "--json", "stock.json")
    rows = json.loads(mxk(*common[:-3], 2, "--routing", "random", "--min-runs", 1, "--json", "-")[0])["rows"]
    check(rows[0]["T"] == 2 and 0 < rows[0]["rel_l2"] < 1.75e-3, f"rows: {rows}")
    out, _ = mxk("bench", "--compare", "kernel.json", "stock.json")
    check("x stock" in out and len(out.splitlines()) == 6, out)
    pairs = json.loads(mxk("bench", "--compare", "stock.json", "kernel.json", "--json", "-")[0])
    check(pairs["baseline"] == "stock" and [r["T"] for r in pairs["rows"]] == [2, 4], f"compare: {pairs}")
    mxk(*common, "--threads", 1, "--routing", "hot", "--json", "other.json")
    _, err = mxk("bench", "--compare", "stock.json", "other.json", expect=1)
    check("routing" in err, err)
    mxk("bench", "--compare", "stock.json", "nowhere", expect=1)
    mxk("bench", "--compare", "stock.json", "b/config.json", expect=1)
    mxk("bench", "--compare", "stock.json", expect=2)
    mxk("bench", expect=2)
    mxk(*common, "--impl", "nope", expect=2)
    mxk(*common, "--impl", "stock", "--backend", "generic", expect=2)
    mxk(*common, "--json", "nowhere/file", expect=1)
    mxk(*common, expect=2, MXK_BACKEND="stock")
    bad = Layer(7, 4, 64, 32, False)
    bad.s2 = b"\xff" * len(bad.s2)
    bad.fused("nan.safetensors")
    _, err = mxk("bench", "--variant", "glm", "--checkpoint", "nan.safetensors", "--tokens", 64, expect=1)
    check("not timed" in err, err)


def test_bench_counts_emulated_kernels():
    """tpc-emu is counted, not timed; nothing that is predicted may look like a measurement."""
    names = [b["name"] for b in json.loads(mxk("info", "--json")[0])["backends"]]
    common = ["bench", "--variant", "glm", "--checkpoint", "b"]
    if "tpc-emu" not in names:
        mxk(*common, "--backend", "tpc-emu", expect=2)
        return
    out, _ = mxk(*common, "--backend", "tpc-emu", "--tokens", "1,3", "--json", "slots.json")
    check("predicted, issue-bound, not measured" in out and "floor" not in out and "GB/s" not in out, out)
    with open("slots.json") as f:
        report = json.load(f)
    check(report["backend"] == "tpc-emu" and report["meaning"] == "predicted, issue-bound, not measured", "meaning")
    check([r["T"] for r in report["rows"]] == [1, 3], f"rows: {report['rows']}")
    for r in report["rows"]:
        for kernel in ("w13", "w2"):
            n = r["slots"][kernel]
            check(n["total"] == n["load"] + n["spu"] + n["vpu"] + n["store"] > 0, f"slots: {n}")
            check(n["vpu"] / 24 <= n["busiest_tpc"] < n["vpu"], f"busiest: {n}")
            check(7 < r["vector_ops_per_chunk_row_and_route"][kernel] < 30, f"vector operations: {r}")
        check(0 < r["rel_l2"] < 1.75e-3 and r["routes"] == 8 * r["T"] and 0 < r["experts"] <= 8, f"row: {r}")
        per_route = r["predicted_issue_us"] / r["routes"]
        check(abs(r["predicted_issue_us_per_route"] / per_route - 1) < 1e-9, f"per route: {r}")
        check(abs(r["predicted_hbm_read_us"] - r["bytes"] / 2.2e6) < 1e-6 * r["bytes"], f"HBM: {r}")
        check(not {"us", "gbps", "floor_us", "p10"} & set(r), f"a prediction has the name of a measurement: {r}")
    check(not any(n.endswith("_us") and not n.startswith("predicted") for n in report["rows"][0]), "names")
    again = json.loads(mxk(*common, "--tokens", 1, "--json", "-", MXK_BACKEND="tpc-emu")[0])
    check(again["rows"][0] == report["rows"][0], "a count differs from run to run")
    _, err = mxk("bench", "--compare", "slots.json", "kernel.json", expect=1)
    check("predicted" in err, err)
    _, err = mxk(*common, "--backend", "tpc-emu", "--tokens", 17, expect=1)
    check("T=17" in err, err)
    _, err = mxk("bench", "--variant", "glm", "--backend", "tpc-emu", "--checkpoint", "nan.safetensors", expect=1)
    check("K=64" in err, err)  # beyond the limits of the variant
    mxk(*common, "--backend", "tpc-emu", "--impl", "stock", expect=2)
    mxk(*common, "--backend", "tpc-emu", "--json", "nowhere/file", expect=1)
    bad = Layer(7, 8, 512, 512, False)
    bad.s2 = b"\xff" * len(bad.s2)
    bad.fused("nan512.safetensors")
    bad = ["bench", "--variant", "glm", "--backend", "tpc-emu", "--checkpoint", "nan512.safetensors", "--tokens", 1]
    _, err = mxk(*bad, "--json", "kept.json", expect=1)
    check("not counted" in err and not os.path.exists("kept.json"), err)
    out, _ = mxk("check", "--variant", "glm", "--checkpoint", "b", "--backend", "tpc-emu", "--tokens", "1,3")
    check(out.endswith("[glm] PARITY PASS\n") and "tpc-emu" in out, out)


def test_usage(variants):
    check(len(variants) >= 5 and {"name", "rows", "act", "limits", "serving"} <= set(variants[0]), "variants --json")
    out, _ = mxk("variants")
    check(all(v["name"] in out for v in variants), out)
    check(mxk("--version")[0].startswith("mxk "), "--version")
    mxk(expect=2)
    mxk("nope", expect=2)
    mxk("info", "--nope", expect=2)
    for command in ("variants", "info", "env", "make-checkpoint", "check", "bench", "run"):
        check("Example:" in mxk(command, "--help")[0], f"{command} --help has no example")
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            p = subprocess.run([MXK, "variants"], stdout=full, stderr=subprocess.PIPE)
        check(p.returncode == 1, "a full disk goes unnoticed")


def main():
    variants = json.loads(mxk("variants", "--json")[0])["variants"]
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        for test, args in (
            (test_usage, [variants]),
            (test_info, []),
            (test_run, [variants]),
            (test_run_gptoss_names, [variants]),
            (test_run_errors, []),
            (test_checkpoint_and_check, [variants]),
            (test_bench, []),
            (test_bench_counts_emulated_kernels, []),
        ):
            try:
                test(*args)
            except AssertionError as e:
                sys.exit(f"FAILED {test.__name__}: {e}")
            print(f"ok {test.__name__}", flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main()
