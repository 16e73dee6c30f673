#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gate of build.sh: the library lists the stock library's kernels untouched, then exactly those of this build.

    gate_guids.py LIBRARY STOCK TABLE.json

The graph compiler finds a stock kernel by what the stock library wrote into its entry, so an entry that changed in any
byte may become another kernel.
"""

import ctypes
import json
import os
import sys

GAUDI2 = 3
ENTRY = 80  # sizeof(GuidInfo): a name of 64 bytes, 56 bits of hash and 8 of the graph compiler, properties
NAME, HASH = 64, 7


class Failed(Exception):
    pass


def guids(path):
    """The entries of a kernel library for Gaudi 2, as the graph compiler asks for them: first how many, then all."""
    try:
        function = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL).GetKernelGuids
    except (OSError, AttributeError) as e:
        raise Failed(f"{path} is no TPC kernel library: {e}") from None
    function.argtypes = [ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint32), ctypes.c_void_p]
    function.restype = ctypes.c_uint32
    count = ctypes.c_uint32(0)
    if code := function(GAUDI2, count, None):
        raise Failed(f"{path}: GetKernelGuids answers {code} when it is asked how many kernels there are")
    entries = ctypes.create_string_buffer(max(count.value, 1) * ENTRY)
    given = count.value
    if given and (code := function(GAUDI2, count, entries)):
        raise Failed(f"{path}: GetKernelGuids answers {code} when it is asked for {given} kernels")
    if count.value > given:
        raise Failed(f"{path}: GetKernelGuids says {given} kernels first, then {count.value}")
    return [entries.raw[i * ENTRY:(i + 1) * ENTRY] for i in range(count.value)]


def name_of(entry):
    return entry[:NAME].split(b"\0")[0].decode("ascii", "replace")


def hash_of(entry):
    return int.from_bytes(entry[NAME:NAME + HASH], "little")


def check(library, stock, names):
    """Raises Failed unless `library` lists `stock`, then `names`."""
    for i, (got, want) in enumerate(zip(library, stock)):
        if got != want:
            at = next(b for b in range(ENTRY) if got[b] != want[b])
            raise Failed(f"entry {i} is the stock library's '{name_of(want)}' changed in byte {at}, or another kernel: "
                         f"'{name_of(got)}'")
    if len(library) < len(stock):
        raise Failed(f"{len(library)} kernels are listed, the stock library alone has {len(stock)}; the first that is "
                     f"missing is '{name_of(stock[len(library)])}'")
    ours = [name_of(entry) for entry in library[len(stock):]]
    if ours != names:
        raise Failed(f"after the stock library's {len(stock)} kernels there must be {', '.join(names)}; there is "
                     f"{', '.join(ours) or 'nothing'}")
    taken = {hash_of(entry) for entry in stock} | {0}
    for entry in library[len(stock):]:
        if hash_of(entry) in taken:
            raise Failed(f"the hash of '{name_of(entry)}' is {hash_of(entry):#x}, which is 0 or that of another kernel")
        taken.add(hash_of(entry))


def main():
    library, stock, table = sys.argv[1:]
    with open(table, encoding="utf-8") as f:
        names = [kernel["name"] for kernel in json.load(f)["kernels"]]
    os.environ["MXK_STOCK_TPC_LIB"] = stock  # which the library loads when it is asked
    try:
        check(guids(library), guids(stock), names)
    except Failed as e:
        sys.exit(f"{os.path.basename(library)}: {e}")


if __name__ == "__main__":
    main()
