#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernel sources use only intrinsics that are emulated, and nothing that the vendor's compiler chokes on. And what was
assumed about an intrinsic is written down.

  tpc_sources_test.py [ROOT]      checks src/tpc/*.c of the tree at ROOT (default: this one) and the headers of src/tpc
                                  that they include
  tpc_sources_test.py --self-test plants each fault and expects its complaint
"""

import pathlib
import re
import sys
import tempfile

# What looks like an intrinsic when a parenthesis follows.
INTRINSIC = re.compile(
    r"\b((?:v|s|i|b|bv)_[a-z0-9]+_\w+|v_(?:convert|exp|log|sin|cos|tanh|sqrt|rsqrt|reciprocal|sigmoid)\w*|convert_\w+"
    r"|get_dim_\w+|get_index_space_\w+|get_addr|gen_addr|set_\w+|read_lane_id_\w+|read_lfsr\w*|prmt_indx|mov_irf\w*"
    r"|aso|cache_\w+|prefetch|u(?:8|16|32)_udiv\w*|update_addr|event|printf)\s*\("
)
CPP = ("template", "class", "namespace", "auto", "constexpr", "nullptr", "static_cast", "reinterpret_cast", "const_cast",
       "typename", "using", "new", "delete", "throw", "try", "catch", "operator", "decltype", "virtual", "mutable")
# Made of lookups: they halve the local memory and stall the load slot.
LOOKUP = re.compile(r"\b(v_(?:exp|reciprocal|sigmoid|log|sqrt|rsqrt|sin|cos|tanh|div|pow)_\w+|v_\w+_reduce_\w+|\w+_lookup\w*"
                    r"|set_lut_\w+)\s*\(")
LUT_MACRO = "MXK_LUT"


def rows(inc):
    return set(re.findall(r"^X\((\w+),", inc.read_text(), re.M))


def without_comments(text):
    """Comments, strings and character constants become blanks; lines stay."""
    blank = lambda m: re.sub(r"[^\n]", " ", m.group(0))
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def lut_lines(lines):
    """Which lines stand where MXK_LUT is defined or not zero."""
    inside, stack = [], []
    for line in lines:
        m = re.match(r"\s*#\s*(ifdef|ifndef|if|elif|else|endif)\b\s*(.*)", line)
        if m:
            word, rest = m.groups()
            positive = re.fullmatch(r"(?:defined\s*\(?\s*)?%s\s*\)?" % LUT_MACRO, rest.strip()) is not None
            if word in ("ifdef", "if"):
                stack.append((positive, False))
            elif word == "ifndef":
                stack.append((False, positive))
            elif word in ("elif", "else") and stack:
                stack[-1] = (stack[-1][1] if word == "else" else positive, False)
            elif word == "endif" and stack:
                stack.pop()
        inside.append(any(now for now, _ in stack))
    return inside


def complaints(path, known):
    lines = without_comments(path.read_text()).split("\n")
    own = set()
    for line in lines:
        own.update(re.findall(r"^\s*#\s*define\s+(\w+)\(", line))
    lut = lut_lines(lines)
    for number, line in enumerate(lines, 1):
        if re.match(r"\s*#\s*include", line):
            continue
        where = f"{path.name}:{number}"
        for name in LOOKUP.findall(line):
            if not lut[number - 1]:
                yield f"{where}: {name} uses lookups outside #ifdef {LUT_MACRO}"
        for name in INTRINSIC.findall(line):
            if name not in known and name not in own and not LOOKUP.match(name + "("):
                yield f"{where}: {name} is not in intrinsics.inc"
            elif name not in known and lut[number - 1]:
                yield f"{where}: {name} is not in intrinsics.inc"
        for word in CPP:
            if re.search(r"\b%s\b" % word, line):
                yield f"{where}: '{word}' is C++, a kernel is C"


def undocumented(root, inc):
    """Rows whose meaning no public source states, and that docs/emulator.md does not speak of."""
    page = (root / "docs" / "emulator.md").read_text()
    for name, status in re.findall(r"^X\((\w+), \w+, (\w+),", inc.read_text(), re.M):
        if status != "public" and f"`{name}`" not in page:
            yield f"{inc.name}: {name} is {status}, docs/emulator.md does not say what was taken"


def check(root):
    folder = root / "src" / "tpc"
    known = rows(folder / "emu" / "intrinsics.inc")
    paths = sorted(folder.glob("*.c"))
    for path in paths:  # grows while it is walked
        for name in re.findall(r'^\s*#\s*include\s+"(?:[^"]*/)?([^"/]+\.h)"', path.read_text(), re.M):
            if (folder / name).exists() and folder / name not in paths:
                paths.append(folder / name)
    found = [c for p in paths for c in complaints(p, known)]
    return len(paths), found + list(undocumented(root, folder / "emu" / "intrinsics.inc"))


GOOD = """\
#include "tpc/planted.h"
// template <class T>: a comment may say anything, v_f32_magic_b() too
#define MXK_MAC(a, b, c) v_bf16_mac_acc32_b(a, b, c)
#define s_own_helper(x) ((x) + 1)
void main(tensor x, tensor y) {
  int5 at = {0};
  float64 v = v_f32_ld_tnsr_b(at, x);
  v = v_f32_add_b(v, s_own_helper(1));
#ifdef MXK_LUT
  set_lut_256(y);
  bfloat256 q = v_bf16_lookup_2c(i, 0, SW_LUT_PTR, z);
#endif
  v_f32_st_tnsr(at, y, v);
}
"""
BAD = [
    ("  v = v_f32_magic_b(v);", "v_f32_magic_b is not in intrinsics.inc"),
    ("  v = v_f32_add_bb (v, v);", "v_f32_add_bb is not in intrinsics.inc"),
    ("  n = s_u16_ld_g(p);", "s_u16_ld_g is not in intrinsics.inc"),
    ("  at = i_i32_mul(at, at, 1, 0, at);", "i_i32_mul is not in intrinsics.inc"),
    ("  n = get_dim_stride(x, 1);", "get_dim_stride is not in intrinsics.inc"),
    ("  set_dim_size(x, 1, 2);", "set_dim_size is not in intrinsics.inc"),
    ("  n = u32_udiv(a, b, 0, 0);", "u32_udiv is not in intrinsics.inc"),
    ("  read_lane_id_8b_b();", "read_lane_id_8b_b is not in intrinsics.inc"),
    ("  mov_irf(at);", "mov_irf is not in intrinsics.inc"),
    ("  cache_lock();", "cache_lock is not in intrinsics.inc"),
    ("  v = v_exp_f32(v);", "v_exp_f32 uses lookups outside #ifdef MXK_LUT"),
    ("  v = v_reciprocal_f32(v);", "v_reciprocal_f32 uses lookups"),
    ("  v = v_f32_reduce_add(v);", "v_f32_reduce_add uses lookups"),
    ("  v = v_sigmoid_f32(v);", "v_sigmoid_f32 uses lookups"),
    ("  q = v_bf16_lookup_2c(i, 0, 8, z);", "v_bf16_lookup_2c uses lookups"),
    ("  set_lut_256(y);", "set_lut_256 uses lookups"),
    ("#ifndef MXK_LUT\n  set_lut_256(y);\n#endif", "set_lut_256 uses lookups"),
    ("#ifdef MXK_LUT\n#else\n  set_lut_256(y);\n#endif", "set_lut_256 uses lookups"),
    ("#ifdef MXK_LUT\n  v_f32_lookup_1c(i, 0, 8, z);\n#endif", "v_f32_lookup_1c is not in intrinsics.inc"),
] + [(f"  {word} x;", f"'{word}' is C++") for word in CPP]


def self_test():
    tree = pathlib.Path(__file__).resolve().parent.parent
    inc = tree / "src" / "tpc" / "emu" / "intrinsics.inc"
    page = (tree / "docs" / "emulator.md").read_text()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "src" / "tpc"
        (folder / "emu").mkdir(parents=True)
        (folder / "emu" / "intrinsics.inc").write_text(inc.read_text())
        (pathlib.Path(name) / "docs").mkdir()
        (pathlib.Path(name) / "docs" / "emulator.md").write_text(page)
        (folder / "emu" / "not_a_kernel.h").write_text("template <class T> auto v_f32_magic_b();\n")
        (folder / "host.h").write_text("namespace n { template <class T> auto f(); }\n")  # no kernel includes it
        (folder / "kernel.c").write_text(GOOD)
        count, found = check(pathlib.Path(name))
        assert count == 1 and not found, found
        for text, want in BAD:
            for suffix in (".c", ".h"):
                planted = folder / f"planted{suffix}"
                planted.write_text(text + "\n")
                found = check(pathlib.Path(name))[1]
                assert len(found) == 1 and want in found[0], (text, want, found)
                assert found[0].startswith(planted.name + ":"), found
                planted.unlink()
        (pathlib.Path(name) / "docs" / "emulator.md").write_text(page.replace("`v_f32_sub_b`", ""))
        found = check(pathlib.Path(name))[1]
        assert found == ["intrinsics.inc: v_f32_sub_b is inferred, docs/emulator.md does not say what was taken"], found
    print(f"{len(BAD) + 1} planted faults found, none where there is none")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    count, found = check(root)
    print("\n".join(found) if found else f"{count} kernel sources, nothing to complain about")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
