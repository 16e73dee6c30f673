# SPDX-License-Identifier: Apache-2.0
"""Where an op library finds what it is compiled and linked against."""

import os
import pathlib


def get_include_dir():
    return str(pathlib.Path(__file__).resolve().parents[4] / "bridge" / "include")


def get_lib_dir():
    return os.environ["MXK_STANDIN_LIB"]
