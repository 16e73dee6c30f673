#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does a C compiler take the kernels as they go to the card, without the emulation?

The emulation compiles them as C++, where other things are allowed. Here clang parses them as C, with vectors as its own
vector types and every intrinsic declared with the result type that the emulation gives it. Parameters are not declared:
the card's compiler fills in those that are left out, which C cannot.

  tpc_c_test.py CLANG [FLAG...]
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

TYPES = """\
#define VECTOR(type, n) type __attribute__((ext_vector_type(n)))
typedef VECTOR(float, 64) float64;
typedef VECTOR(int, 64) int64;
typedef VECTOR(unsigned, 64) uint64;
typedef VECTOR(short, 128) short128;
typedef VECTOR(unsigned short, 128) ushort128;
typedef VECTOR(__bf16, 128) bfloat128;
typedef VECTOR(signed char, 256) char256;
typedef VECTOR(unsigned char, 256) uchar256;
typedef VECTOR(char, 256) minihalf256; /* a type of its own, which is all that is asked of it */
typedef VECTOR(int, 5) int5;
typedef struct { unsigned char bits[8]; } bool64;
typedef struct { unsigned char bits[32]; } bool256;
#define PAIR(name, half) typedef struct { half v1, v2; } name;
PAIR(float128, float64) PAIR(int128, int64) PAIR(uint128, uint64) PAIR(bfloat256, bfloat128) PAIR(short256, short128)
PAIR(ushort256, ushort128) PAIR(char512, char256) PAIR(uchar512, uchar256)
typedef struct { unsigned v1, v2; } uint32_t_pair_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef unsigned char uint8_t;
typedef int tensor;
#define __global
#define __local__
#define main kernel_main
float as_float();
int as_int();
"""


def declarations():
    header = (SRC / "tpc/emu/intrinsics.h").read_text()
    names = re.findall(r"^X\((\w+),", (SRC / "tpc/emu/intrinsics.inc").read_text(), re.M)
    switches = re.search(r"^enum : int (\{.*?^\};)", header, re.M | re.S).group(1)
    macros = re.findall(r"^#define (?:MkWr|V_LANE_ID).*$", header, re.M)
    lines = [TYPES, "enum " + switches, *macros]
    for name in names:
        result = re.search(r"^((?:__global )?\w+\*?) %s\(" % name, header, re.M)
        if not result:
            sys.exit(f"intrinsics.h has no {name}")
        lines.append(f"{result.group(1)} {name}();")
    return "\n".join(lines) + "\n"


def main():
    clang, flags = sys.argv[1], sys.argv[2:]
    kernels = sorted((SRC / "tpc").glob("mxk_*.c"))
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        decls = pathlib.Path(folder) / "decls.h"
        decls.write_text(declarations())
        command = [clang, "-fsyntax-only", "-x", "c", "-std=gnu17", "-Wall", "-Werror", "-Wno-unused-function",
                   "-Wno-psabi", "-Wno-deprecated-non-prototype", "-I", SRC, "-I", ROOT / "include", "-include", decls]
        for extra in ([], ["-DMXK_UNPACK=1"], ["-DMXK_UPPER_BYTES_CLEAR"]):
            for kernel in kernels:
                if subprocess.run([*command, *extra, *flags, kernel]).returncode:
                    failed.append(" ".join([kernel.name, *extra]))
    if failed or not kernels:
        sys.exit("not taken as C: " + ", ".join(failed))
    print(f"{len(kernels)} kernels are C")


if __name__ == "__main__":
    main()
