#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which kernels a build has, read from the tables that the C++ code is made from (variants.inc, kernels.inc).

    kernel_table.py --cxx CXX --variant NAME --stock LIBRARY --json FILE [--extra-rows FILE --extra-guids GUID...]

Prints the kernels of a variant, one on a line and in the order of the table, and writes them to FILE with what the
gates and the manifest need: the inputs and parameters of each. Refuses extra kernels whose rows or names cannot be.
Run where the folders src and include are.
"""

import argparse
import json
import re
import subprocess
import sys

import gate_guids

# Each row on a line of its own: a marker, then its fields. Strings keep names from being expanded.
PROBE = """
#include "mxk/variants.inc"
#define MXK_ROW(name, w13, w2, deq, ...) @variant_row #name #w13 #w2 deq
MXK_VARIANTS(MXK_ROW)
#define X(name, users, kernel, emulation, parameters, units, in, out) \\
  @kernel_row #name #users #kernel emulation parameters in
#include "tpc/kernels.inc"
"""
VARIANT = re.compile(r'variant_row "(\w+)" "(\w+)" "(\w+)" (\d+)')
KERNEL = re.compile(r'kernel_row "(\w+)" "(\w+)" "(\w+)" (\d+) ("[^"]*") \((.*)\)')
OPERAND = re.compile(r'\{\s*"([^"]*)"\s*,\s*(\w+)\s*,\s*\{')
MAX_NAME = 63  # of a kernel; the interface has 64 bytes for it


class Refused(Exception):
    def __init__(self, message, status=1):
        super().__init__(message)
        self.status = status


def dimensions(text):
    """How many elements a list in braces has, from just behind its opening brace."""
    depth, commas = 1, 0
    for c in text:
        depth += (c in "({") - (c in ")}")
        commas += c == "," and depth == 1
        if depth == 0:
            return commas + 1
    raise Refused("a tensor in a row of the kernel table has no closing brace")


def read(cxx, extra_rows=None):
    """The rows of both tables, as text that the preprocessor made."""
    command = [cxx, "-E", "-P", "-std=c++20", "-x", "c++", "-I", "src", "-I", "include", "-I", ".", "-"]
    if extra_rows:
        command.append(f'-DMXK_EXTRA_KERNELS="{extra_rows}"')
    done = subprocess.run(command, input=PROBE, capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"the kernel table cannot be read:\n{done.stderr}")
    variants, kernels = {}, []
    for row in " ".join(done.stdout.split()).split("@"):
        if match := VARIANT.match(row):
            name, w13, w2, deq = match.groups()
            variants[name] = {"w13": {w13}, "w2": {w2}, "deq": {"mxk_deq"} if int(deq) else set()}
        elif match := KERNEL.match(row):
            name, users, kernel, emulation, parameters, inputs = match.groups()
            kernels.append({
                "name": name, "users": users, "kernel": kernel, "emulation": int(emulation) != 0,
                "parameters": [p for p in parameters.strip('"').split(",") if p],
                "inputs": [[m[1], m[2], dimensions(inputs[m.end():])] for m in OPERAND.finditer(inputs)],
            })
        elif "_row" in row:
            raise Refused(f"a row of the kernel table is not understood: {row}")
    return variants, kernels


def used(kernel, variant):
    if kernel["emulation"]:
        return False
    return kernel["users"] in ("always", "extra") or kernel["kernel"] in variant[kernel["users"]]


def check_names(own, guids, stock):
    """Extra kernels have names that nobody else has."""
    ours = {kernel["name"] for kernel in own}
    for i, guid in enumerate(guids):
        if not re.fullmatch(r"[A-Za-z_]\w*", guid, re.A) or len(guid) > MAX_NAME:
            raise Refused(f"--extra-kernel: '{guid}' must be a name in C of at most {MAX_NAME} characters")
        if guid in ours:
            raise Refused(f"--extra-kernel: {guid} is the name of a kernel of mxk")
        if guid in guids[:i]:
            raise Refused(f"--extra-kernel: {guid} is there twice")
        if guid in stock:
            raise Refused(f"--extra-kernel: {guid} is the name of a kernel of the stock library")


def check_rows(rows, guids):
    """One row for each of them, with its name."""
    names = [row["name"] for row in rows]
    if names != guids:
        raise Refused(f"--extra-kernel: each glue.inc must have one row, called like its kernel; the kernels are "
                      f"{', '.join(guids)}, the rows {', '.join(names) or 'none'}")
    for row in rows:
        names = [name for name, *_ in row["inputs"]] + row["parameters"]
        wrong = [name for name in names if not re.fullmatch(r"[A-Za-z_]\w*", name, re.A) or names.count(name) > 1]
        if wrong:
            raise Refused(f"--extra-kernel: '{wrong[0]}' in the row of {row['name']} must be a name, and once in it")
        if row["users"] != "extra" or row["emulation"]:
            raise Refused(f"--extra-kernel: the row of {row['name']} must be 'extra' and not emulation only, it is "
                          f"'{row['users']}', {int(row['emulation'])}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cxx", required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--stock", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--extra-rows")
    parser.add_argument("--extra-guids", nargs="+", default=[])
    args = parser.parse_args()
    try:
        variants, kernels = read(args.cxx)
        if args.variant not in variants:
            raise Refused(f"there is no variant '{args.variant}', but {', '.join(variants)}", 2)
        stock = [gate_guids.name_of(entry) for entry in gate_guids.guids(args.stock)]
        if args.extra_guids:
            check_names(kernels, args.extra_guids, stock)
            own = len(kernels)
            kernels = read(args.cxx, args.extra_rows)[1]
            check_rows(kernels[own:], args.extra_guids)
        chosen = [kernel for kernel in kernels if used(kernel, variants[args.variant])]
        taken = [kernel["name"] for kernel in chosen if kernel["name"] in stock]
        if taken:
            raise Refused(f"{args.stock} already has {', '.join(taken)}: it is not a stock library, and must be one")
    except (Refused, gate_guids.Failed) as e:
        print(f"build.sh: {e}; nothing was built", file=sys.stderr)
        sys.exit(getattr(e, "status", 1))
    with open(args.json, "w", encoding="utf-8") as f:
        json.dump({"variant": args.variant, "extra_kernels": args.extra_guids, "stock_guids": len(stock),
                   "kernels": chosen}, f)
    print(*(kernel["name"] for kernel in chosen), sep="\n")


if __name__ == "__main__":
    main()
