#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the functions that libmxk_tpc.so shows because the stock kernel library shows them.

Who loads a kernel library may ask it for more than the six functions that entry_points.cc has. For every other
function that the stock library exports this makes a trampoline in x86-64 assembly: the first call asks
mxk_stock_resolve() (stock.cc) for the stock library's function, every call jumps there with the registers and the
stack as they came in. The signature need not be known. A function that the stock library of the machine does not have
returns 0. Not kept across the first call: the upper halves of vector arguments wider than 16 bytes.

Also writes the version script of the library: the six, and these.

    passthrough.py LIBRARY --asm OUT.S --map OUT.map [--nm NM]
"""

import argparse
import re
import subprocess
import sys

SIX = [
    "GetKernelGuids",
    "InstantiateTpcKernel",
    "GetShapeInference",
    "GetSupportedDataLayouts",
    "GetLibVersion",
    "GetSuggestedManipulation",
]

# Not functions of the stock library, but of the C and C++ runtime that it was built with. A trampoline of that name
# would be what our own code calls.
RUNTIME = re.compile(r"_init$|_fini$|__|_ZZ?N?K?S|_ZN?K?9__gnu_cxx|_ZN10__cxxabi|_Zn[wa]|_Zd[la]|_ZG")
CODE = {"T", "W", "i"}  # global, weak, chosen at load time

HEAD = """\
/* SPDX-License-Identifier: Apache-2.0
 * Made by passthrough.py. Do not edit. */
  .text

/* The stock library has no such function. */
  .type mxk_passthrough_zero, @function
mxk_passthrough_zero:
  endbr64
  xorl %eax, %eax
  xorl %edx, %edx
  pxor %xmm0, %xmm0
  pxor %xmm1, %xmm1
  ret
  .size mxk_passthrough_zero, .-mxk_passthrough_zero

/* r11: the name. (rsp): where the address goes, and above it the stack of the call. Arguments may be in six general
 * registers and eight vector registers; rax counts the vectors of a variadic call, r10 is a static chain. */
  .type mxk_passthrough_first, @function
mxk_passthrough_first:
  .cfi_startproc
  .cfi_def_cfa_offset 16
  pushq %rbp
  .cfi_def_cfa_offset 24
  .cfi_offset %rbp, -24
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  andq $-16, %rsp
  subq $192, %rsp
  movq %rdi, (%rsp)
  movq %rsi, 8(%rsp)
  movq %rdx, 16(%rsp)
  movq %rcx, 24(%rsp)
  movq %r8, 32(%rsp)
  movq %r9, 40(%rsp)
  movq %rax, 48(%rsp)
  movq %r10, 56(%rsp)
  movaps %xmm0, 64(%rsp)
  movaps %xmm1, 80(%rsp)
  movaps %xmm2, 96(%rsp)
  movaps %xmm3, 112(%rsp)
  movaps %xmm4, 128(%rsp)
  movaps %xmm5, 144(%rsp)
  movaps %xmm6, 160(%rsp)
  movaps %xmm7, 176(%rsp)
  movq %r11, %rdi
  call mxk_stock_resolve
  leaq mxk_passthrough_zero(%rip), %r11
  testq %rax, %rax
  cmovneq %rax, %r11
  movq 8(%rbp), %rax
  movq %r11, (%rax)
  movq (%rsp), %rdi
  movq 8(%rsp), %rsi
  movq 16(%rsp), %rdx
  movq 24(%rsp), %rcx
  movq 32(%rsp), %r8
  movq 40(%rsp), %r9
  movq 48(%rsp), %rax
  movq 56(%rsp), %r10
  movaps 64(%rsp), %xmm0
  movaps 80(%rsp), %xmm1
  movaps 96(%rsp), %xmm2
  movaps 112(%rsp), %xmm3
  movaps 128(%rsp), %xmm4
  movaps 144(%rsp), %xmm5
  movaps 160(%rsp), %xmm6
  movaps 176(%rsp), %xmm7
  movq %rbp, %rsp
  popq %rbp
  .cfi_def_cfa %rsp, 16
  leaq 8(%rsp), %rsp
  .cfi_def_cfa_offset 8
  jmp *%r11
  .cfi_endproc
  .size mxk_passthrough_first, .-mxk_passthrough_first
  .hidden mxk_stock_resolve
"""

TRAMPOLINE = """\

  .globl {name}
  .type {name}, @function
{name}:
  .cfi_startproc
  endbr64
  movq .Lslot{i}(%rip), %r11
  testq %r11, %r11
  je 1f
  jmp *%r11
1:
  leaq .Lslot{i}(%rip), %r11
  pushq %r11
  .cfi_def_cfa_offset 16
  leaq .Lname{i}(%rip), %r11
  jmp mxk_passthrough_first
  .cfi_endproc
  .size {name}, .-{name}
"""


def functions(library, nm):
    """The names of the functions that the library exports, sorted, without those that are not to be passed on."""
    out = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    names, data = set(), []
    for line in out.splitlines():
        fields = line.split()
        if len(fields) < 2:
            continue
        kind, name = fields[-2], fields[-1].split("@")[0]
        if name in SIX or RUNTIME.match(name):
            continue
        if kind in CODE:
            if not re.fullmatch(r"[A-Za-z_.$][\w.$]*", name):
                sys.exit(f"passthrough.py: {library}: cannot name the function {name!r} in assembly")
            names.add(name)
        elif kind not in "Aw":
            data.append(name)
    if data:
        print(f"passthrough.py: {len(data)} data symbols of {library} are not passed on: {', '.join(data[:5])}",
              file=sys.stderr)
    return sorted(names)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("--asm", required=True)
    parser.add_argument("--map", required=True)
    parser.add_argument("--nm", default="nm")
    args = parser.parse_args()
    names = functions(args.library, args.nm)
    with open(args.asm, "w", encoding="utf-8") as f:
        f.write(HEAD)
        for i, name in enumerate(names):
            f.write(TRAMPOLINE.format(i=i, name=name))
        f.write('\n  .section .rodata.str1.1, "aMS", @progbits, 1\n')
        for i, name in enumerate(names):
            f.write(f'.Lname{i}: .string "{name}"\n')
        f.write("\n  .bss\n  .balign 8\n")
        for i in range(len(names)):
            f.write(f".Lslot{i}: .zero 8\n")
        f.write('\n  .section .note.GNU-stack, "", @progbits\n')
    with open(args.map, "w", encoding="utf-8") as f:
        f.write("/* SPDX-License-Identifier: Apache-2.0\n * Made by passthrough.py. Do not edit. */\n{\n  global:\n")
        for name in SIX + names:
            f.write(f'    "{name}";\n')
        f.write("  local:\n    *;\n};\n")


if __name__ == "__main__":
    main()
