#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The MANIFEST of a build: what is in its folder and what it was made with. JSON, the same for the same build.

    manifest.py check DIR         may build.sh replace DIR? It must be empty, or a build and nothing else
    manifest.py write DIR TABLE.json OBJECTS STOCK NAME=VERSION...

OBJECTS is the folder with the kernels' ELF files, STOCK the stock library.

sha256 of a kernel is that of its ELF file, in which tpc-clang puts the source text and the command line too: it changes
with any comment or path. code_sha256 is that of the machine code alone, the sections .text and .tpc_metadata.
"""

import hashlib
import json
import os
import struct
import sys

NAME = "MANIFEST"
CODE = (".text", ".tpc_metadata")


class Refused(Exception):
    pass


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def sections(data):
    """(name, bytes) of each section of an ELF file, of either class; little-endian, for whatever machine."""
    if data[:4] != b"\x7fELF" or len(data) < 64 or data[4] not in (1, 2) or data[5] != 1:
        raise Refused("it is not a little-endian ELF file")
    wide = data[4] == 2
    offset, = struct.unpack_from("<Q" if wide else "<I", data, 40 if wide else 32)
    size, count, names = struct.unpack_from("<HHH", data, 58 if wide else 46)
    if offset + count * size > len(data):
        raise Refused("it ends inside of its list of sections")
    headers = []
    for i in range(count):
        fields = struct.unpack_from("<IIQQQQ" if wide else "<IIIIII", data, offset + i * size)
        headers.append((fields[0], fields[1], fields[4], fields[5]))  # name, type, offset, size
    strings = headers[names][2] if count else 0
    for name, kind, begin, length in headers:
        text = data[strings + name:data.index(b"\0", strings + name)].decode()
        nobits = kind == 8
        if not nobits and begin + length > len(data):
            raise Refused(f"it ends inside of its section {text}")
        yield text, b"" if nobits else data[begin:begin + length]


def code_sha256(data):
    found = {}
    try:
        for name, content in sections(data):
            if name in CODE:
                found[name] = found.get(name, b"") + content
    except (struct.error, ValueError, IndexError):
        raise Refused("it is a broken ELF file") from None
    for name in CODE:
        if not found.get(name):
            raise Refused(f"it has no section {name}")
    return hashlib.sha256(b"".join(found[name] for name in CODE)).hexdigest()


def kernel_sums(path):
    with open(path, "rb") as f:
        data = f.read()
    try:
        return {"sha256": hashlib.sha256(data).hexdigest(), "code_sha256": code_sha256(data)}
    except Refused as e:
        raise Refused(f"{os.path.basename(path)}, as tpc-clang made it: {e}") from None


def check(folder):
    """Raises Refused if the folder is there and holds anything but an earlier build."""
    if not os.path.lexists(folder):
        return
    if not os.path.isdir(folder):
        raise Refused(f"{folder} is not a folder")
    names = set(os.listdir(folder))
    if not names:
        return
    try:
        with open(os.path.join(folder, NAME), encoding="utf-8") as f:
            manifest = json.load(f)
        known = {NAME, *manifest["files"]} if "mxk" in manifest["versions"] else None
    except (OSError, ValueError, KeyError, TypeError):
        known = None
    if known is None:
        raise Refused(f"{folder} is neither empty nor an earlier build (it has no {NAME} of one)")
    if names - known:
        raise Refused(f"{folder} is an earlier build, but has other files too: {', '.join(sorted(names - known))}")


def write(folder, table, objects, stock, versions):
    kernels = {kernel["name"]: kernel_sums(os.path.join(objects, kernel["name"] + ".o")) for kernel in table["kernels"]}
    manifest = {
        "variant": table["variant"],
        "extra_kernels": table["extra_kernels"],
        "versions": versions,
        "files": {name: sha256(os.path.join(folder, name)) for name in sorted(os.listdir(folder))},
        "kernels": kernels,
        "stock": {"path": stock, "sha256": sha256(stock), "guids": table["stock_guids"]},
    }
    with open(os.path.join(folder, NAME), "w", encoding="utf-8") as f:
        json.dump(manifest, f, indent=2)
        f.write("\n")


def main():
    command, folder, *rest = sys.argv[1:]
    try:
        if command == "check":
            check(folder)
        else:
            table, objects, stock, *versions = rest
            with open(table, encoding="utf-8") as f:
                write(folder, json.load(f), objects, stock, dict(version.split("=", 1) for version in versions))
    except Refused as e:
        sys.exit(f"build.sh: {e}; nothing was built")


if __name__ == "__main__":
    main()
