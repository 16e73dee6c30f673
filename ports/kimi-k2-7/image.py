# SPDX-License-Identifier: Apache-2.0
"""Which commit of a package an image has, from what pip and git left in it. Nothing is imported or run for it."""

import importlib.metadata
import json
import re
import urllib.parse
from pathlib import Path

SHORTEST = 7  # digits of an abbreviated commit


def commit_of(package, name, search):
    """(commit, where it stands), both None if nothing says it. `package` is its folder, `search` the folders with
    metadata of distributions. What belongs to the installed files comes first; a clone may have moved on since."""
    for where, find in (("direct_url.json", _recorded), ("its version", _of_version),
                        ("the clone that was installed", _of_source)):
        for distribution in importlib.metadata.distributions(name=name, path=[str(p) for p in search]):
            commit = find(distribution)
            if commit:
                return commit, where
    commit = _head(Path(package).parent)
    return (commit, "the clone it is in") if commit else (None, None)


def is_commit(found, expected):
    """Either may be abbreviated."""
    digits = min(len(found), len(expected))
    return digits >= SHORTEST and found[:digits] == expected[:digits]


def _direct_url(distribution):
    try:
        found = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _recorded(distribution):
    info = _direct_url(distribution).get("vcs_info")
    return _hex(info.get("commit_id")) if isinstance(info, dict) else None


def _of_version(distribution):
    found = re.search(r"\+(?:.*\.)?g([0-9a-f]{7,40})(?:\.|$)", distribution.version or "")
    return found[1] if found else None


def _of_source(distribution):
    url = urllib.parse.urlsplit(_direct_url(distribution).get("url") or "")
    return _head(Path(urllib.parse.unquote(url.path))) if url.scheme == "file" else None


def _head(folder):
    """The commit that is checked out in a clone. git is not asked: the image may lack it, and it refuses the clones of
    other users."""
    try:
        git = folder / ".git"
        if git.is_file():  # of a work tree or a submodule
            git = folder / git.read_text().partition("gitdir:")[2].strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return _hex(head)
        common = git / (git / "commondir").read_text().strip() if (git / "commondir").is_file() else git
        ref = head[len("ref: "):]
        if (common / ref).is_file():
            return _hex((common / ref).read_text().strip())
        packed = (common / "packed-refs").read_text().splitlines()
        return next((_hex(line.split()[0]) for line in packed if line.endswith(" " + ref)), None)
    except (OSError, ValueError):  # ValueError: not text
        return None


def _hex(text):
    return text if isinstance(text, str) and re.fullmatch(r"[0-9a-f]{7,40}", text) else None
