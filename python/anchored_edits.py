# SPDX-License-Identifier: Apache-2.0
"""Edits an installed package at anchored lines, all or nothing, and undoes it to the byte.

An installer brings its tables as Edits: the lines that it relies on, the blocks that it adds to files, and the folder
of the package that holds its own modules. Several may edit one package, and leave it in any order.
"""

import ast
import difflib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path

RECORD = "INSTALLED"  # in the target: which files are ours, of whatever version
TEMPORARY = ".mxk-"

Anchor = namedtuple("Anchor", "id file line")  # a whole line with its indentation, exactly once in its file
Block = namedtuple("Block", "name above body")  # goes above the line `above`, or to the end of its file if that is None
# A block of any installer.
BLOCK = re.compile(r"^# >>> (\w+ \w+), version [0-9a-f]{8}, text [0-9a-f]{8} >>>\n(?:.*\n)*?# <<< \1 <<<(?:\n|\Z)",
                   re.M)


class Refused(Exception):
    """Nothing was changed."""


class NotRestored(Exception):
    """The tree is not as it was."""


def interrupted(number, frame):
    """For SIGTERM: what was changed is undone as after Ctrl-C."""
    raise KeyboardInterrupt


def short_hash(data):
    return hashlib.sha256(data).hexdigest()[:8]


# ---- text ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Edits:
    """The tables of an installer. Files are relative to the package."""

    tag: str  # in the markers of its blocks
    target: str  # the folder of its modules
    like: str  # new files get the owner and the mode of this one
    anchors: tuple
    blocks: dict  # {file: Block}; the last one is written first
    partly: str  # what to say where some blocks are there, and others are not

    @property
    def files(self):
        return tuple(dict.fromkeys(anchor.file for anchor in self.anchors))

    def block(self, file, version):
        name, _, body = self.blocks[file]
        return f"# >>> {self.tag} {name}, version {version}, text {short_hash(body.encode())} >>>\n{body}" \
               f"# <<< {self.tag} {name} <<<\n"

    def add_block(self, file, text, version):
        block, above = self.block(file, version), self.blocks[file].above
        if above is not None:
            return re.sub(rf"^(?={re.escape(above)}[^\S\n]*$)", lambda _: block, text, count=1, flags=re.M)
        # Without a line break at its end the file gets one, and the block has none: so it shows how the file was.
        return f"{text}\n{block}" if text.endswith("\n") else f"{text}\n\n{block[:-1]}"

    def take_out_block(self, file, text):
        """The text as it was without our block, and the version of the block; None if there is none."""
        tag, name = self.tag, self.blocks[file].name
        lines = text.split("\n")
        markers = [i for i, line in enumerate(lines) if re.match(rf"\s*#\s*(>>>|<<<)\s*{tag}\b", line)]
        if not markers:
            return text, None
        begin = re.fullmatch(rf"# >>> {tag} {name}, version ([0-9a-f]{{8}}), text ([0-9a-f]{{8}}) >>>",
                             lines[markers[0]])
        where = f"{file}: the {tag} block at line {markers[0] + 1}"
        if len(markers) != 2 or not begin or lines[markers[1]] != f"# <<< {tag} {name} <<<":
            raise Refused(f"{where} is not whole: it must be '# >>> {tag} {name}, ... >>>' to '# <<< {tag} {name} <<<',"
                          " once")
        first, last = markers
        body = "".join(line + "\n" for line in lines[first + 1:last])
        if short_hash(body.encode()) != begin[2]:
            raise Refused(f"{where} was edited by hand")
        if self.blocks[file].above is None and first and not lines[first - 1]:
            first -= 1  # the empty line came with the block
        return "\n".join(lines[:first] + lines[last + 1:]), begin[1]

    def in_place(self, file, text, version):
        """Our block is where it belongs, with at most blocks of other installers between it and that place."""
        above = self.blocks[file].above
        _, found, after = text.partition(self.block(file, version)[:-1])
        after = BLOCK.sub("", after).lstrip("\n")
        return bool(found) and (not after if above is None else after.partition("\n")[0].rstrip() == above)


def find_anchors(anchors, texts):
    """For each anchor None, or what is wrong with it."""
    found = {}
    for anchor in anchors:
        text = texts[anchor.file]
        if text is None:
            found[anchor] = "there is no such file"
            continue
        lines = [line.rstrip() for line in text.split("\n")]
        hits = [str(i + 1) for i, line in enumerate(lines) if line == anchor.line]
        others = [str(i + 1) for i, line in enumerate(lines) if line.strip() == anchor.line.strip()]
        if len(hits) == 1:
            found[anchor] = None
        elif hits:
            found[anchor] = f"{len(hits)} hits, at lines {', '.join(hits)}; there must be one"
        else:
            found[anchor] = f"other indentation at line {', '.join(others)}" if others else "missing"
    return found


def imports_modules(source, name):
    try:
        nodes = ast.walk(ast.parse(source or b""))
        return any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in nodes)
    except (SyntaxError, ValueError) as e:  # ValueError: a null byte, before Python 3.12
        raise Refused(f"{name}: Python cannot read it: {e}") from e


def tell(text):
    """What was done. That nobody reads it is no failure: the files are changed."""
    try:
        print(text, flush=True)
    except OSError:
        sys.stdout = open(os.devnull, "w")  # nor is it one when Python ends


# ---- the tree --------------------------------------------------------------------------------------------------------


def find_package(name, root, holds):
    """The folder of a package, which is found without running it. `holds`: what the folder --root must have."""
    if root:
        folder = Path(root).absolute() / name
        if not folder.is_dir():
            raise Refused(f"there is no folder {folder}; --root is the folder that holds {holds}")
        return folder
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations or not spec.origin:
        raise Refused(f"this Python ({sys.executable}) has no package {name}; --root says where it is")
    return Path(list(spec.submodule_search_locations)[0])


def read_sources(folders):
    """{path below the target: contents} of the modules in {prefix: folder}."""
    return {f"{prefix}{p.name}": p.read_bytes()
            for prefix, folder in folders.items() for p in sorted(folder.glob("*.py"))}


class Tree:
    """What is there now. `pristine` is the text of each file without our blocks, None where there is no file."""

    def __init__(self, edits, package, sources):
        self.edits, self.package = edits, package
        self.now, self.pristine, self.versions = {}, {}, dict.fromkeys(edits.blocks)
        problems = []
        for file in edits.files:
            try:
                self.now[file], self.pristine[file] = self.read(file), None
                if self.now[file] is not None:
                    self.pristine[file] = text = self.now[file].decode()
                    if "\r" in text:
                        raise Refused(f"{file}: its lines end in CR LF, or it has a CR")
                    if file in edits.blocks:
                        self.pristine[file], self.versions[file] = edits.take_out_block(file, text)
            except UnicodeDecodeError as e:
                problems.append(f"{file}: it is not UTF-8 ({e})")
            except Refused as e:
                problems.append(str(e))
        if problems:
            raise Refused("; ".join(problems))
        self.target = self.package / edits.target
        self.ours = self._ours(sources)

    def path(self, file):
        return Path(os.path.realpath(self.package / file))  # what a link points to is edited, not the link

    def read(self, file):
        path = self.path(file)
        return path.read_bytes() if path.is_file() else None

    def _ours(self, sources):
        """The files of the target without bytecode; all of them must be ours."""
        if self.target.is_symlink() or self.target.exists() and not self.target.is_dir():
            raise Refused(f"{self.target} is not a folder")
        present = {str(p.relative_to(self.target)) for p in self.target.rglob("*") if p.is_symlink() or not p.is_dir()}
        known = {RECORD, *sources}
        if RECORD in present:
            try:
                known.update(json.loads((self.target / RECORD).read_text())["files"])
            except (ValueError, KeyError, TypeError) as e:
                raise Refused(f"{self.target / RECORD}: this list of our files cannot be read ({e!r})") from e
        caches = {os.path.join(os.path.dirname(name), "__pycache__") for name in known}
        present = {name for name in present
                   if os.path.dirname(name) not in caches or not re.search(r"\.pyc(\.\d+)?$", name)}
        foreign = sorted(name for name in present - known if not os.path.basename(name).startswith(TEMPORARY))
        if foreign:
            raise Refused(f"{self.target} has files that are not ours: {', '.join(foreign)}")
        return present


class Package:
    """What is to be there: contents by path relative to the package, in the order in which they are written."""

    def __init__(self, edits, sources):
        self.edits = edits
        digest = hashlib.sha256("".join(block.body for block in edits.blocks.values()).encode())
        for name, data in sources.items():
            digest.update(f"\0{name}\0{len(data)}\0".encode() + data)
        self.version = digest.hexdigest()[:8]
        record = json.dumps({"version": self.version, "files": [RECORD, *sources]}, indent=1) + "\n"
        # The record comes first: what an install that was killed has left is known to be ours.
        self.runtime = {f"{edits.target}/{name}": data for name, data in {RECORD: record.encode(), **sources}.items()}

    def contents(self, tree):
        """The modules come before the blocks that import them. A block that is in its place stays there, as another
        installer may have put its own beside it."""
        return {**self.runtime, **{file: self._edited(tree, file) for file in reversed(self.edits.blocks)}}

    def _edited(self, tree, file):
        if self.edits.in_place(file, tree.now[file].decode(), self.version):
            return tree.now[file]
        return self.edits.add_block(file, tree.pristine[file], self.version).encode()


def changes(tree, contents):
    """The plan of an install: {file: contents or None to remove it}."""
    plan = {file: data for file, data in contents.items() if tree.read(file) != data}
    target = tree.edits.target
    plan.update({f"{target}/{name}": None for name in sorted(tree.ours) if f"{target}/{name}" not in contents})
    return plan


def describe(tree, package, plan):
    """What is there, or None if it is this version, and whole."""
    versions = set(tree.versions.values())
    if versions == {None}:
        return "not installed"
    if None in versions:
        raise Refused(tree.edits.partly)
    if versions != {package.version}:
        return f"version {' and '.join(sorted(versions))} is installed, this is {package.version}"
    if plan:
        return f"version {package.version} is installed, but these are missing or changed: {', '.join(plan)}"
    return None


# ---- changes ---------------------------------------------------------------------------------------------------------


class Transaction:
    """Changes files one by one, each at once or not at all; undo() puts back what was there."""

    def __init__(self, like):
        self.like = like  # new files get its owner and mode
        self.before = []  # (path, contents or None, stat)

    def write(self, path, data):
        if not path.parent.is_dir():
            self.before.append((path.parent, None, None))
            path.parent.mkdir()
            self._own(path.parent, self.like.parent.stat())
        present = path.exists()
        status = (path if present else self.like).stat()
        self.before.append((path, path.read_bytes() if present else None, status))
        self._replace(path, data, status)

    def remove(self, path):
        self.before.append((path, path.read_bytes(), path.stat()))
        path.unlink()

    def undo(self):
        failed = []
        for path, data, status in reversed(self.before):
            try:
                if data is not None:
                    if not path.exists() or path.read_bytes() != data:
                        self._replace(path, data, status)
                elif path.is_dir():
                    path.rmdir()
                elif path.exists():
                    path.unlink()
            except OSError as e:
                failed.append(f"{path} ({e})")
        if failed:
            raise NotRestored(f"after a failure these could not be put back: {', '.join(failed)}; install vllm-gaudi"
                              " again")

    @staticmethod
    def _own(path, status):
        os.chmod(path, stat.S_IMODE(status.st_mode))
        now = os.stat(path)
        if (now.st_uid, now.st_gid) != (status.st_uid, status.st_gid):
            os.chown(path, status.st_uid, status.st_gid)
            os.chmod(path, stat.S_IMODE(status.st_mode))  # chown may have cleared bits

    def _replace(self, path, data, status):
        handle, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(data)
            self._own(temporary, status)
            os.replace(temporary, path)
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise


def drop_bytecode(path):
    """Bytecode that Python need not compare with its source would hide the change."""
    for cached in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        try:
            cached.unlink()
        except OSError:
            pass


def check_compiles(contents):
    for file, data in contents.items():
        if file.endswith(".py"):
            try:
                compile(data, file, "exec", dont_inherit=True)
            except (SyntaxError, ValueError) as e:
                raise Refused(f"{file}: it would not compile: {e}") from e


def verify(tree, package, contents):
    """The files are what they should be, and another Python can compile them."""
    for file, data in contents.items():
        if tree.read(file) != data:
            raise Refused(f"{file}: it is not what was written")
        if file in tree.edits.blocks and \
                tree.edits.take_out_block(file, data.decode()) != (tree.pristine[file], package.version):
            raise Refused(f"{file}: the block cannot be taken out again")
    sources = [str(tree.path(file)) for file in contents if file.endswith(".py")]
    program = "import sys\nfor p in sys.argv[1:]: compile(open(p, 'rb').read(), p, 'exec')"
    done = subprocess.run([sys.executable, "-I", "-c", program, *sources], capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"a file that was written does not compile: {done.stderr.strip()}")


def carry_out(tree, plan, check=lambda: None):
    """Makes the changes of a plan, {file: contents or None to remove it}, or none."""
    transaction = Transaction(tree.path(tree.edits.like))
    try:
        for file, data in plan.items():
            if data is None:
                transaction.remove(tree.path(file))
            else:
                transaction.write(tree.path(file), data)
        check()
        for file in plan:
            drop_bytecode(tree.path(file))
    except BaseException:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        transaction.undo()
        raise


def show(tree, plan):
    for file, data in plan.items():
        print(f"would {'remove' if data is None else 'write'} {tree.path(file)}")
    for file in tree.edits.blocks:
        if file in plan:
            texts = [(data or b"").decode().splitlines(keepends=True) for data in (tree.now[file], plan[file])]
            name = f"{tree.package.name}/{file}"
            for line in difflib.unified_diff(*texts, f"a/{name}", f"b/{name}"):
                print(line, end="" if line.endswith("\n") else "\n\\ No newline at end of file\n")


def uninstall(tree, dry_run=False):
    blocks, target = tree.edits.blocks, tree.edits.target
    plan = {file: tree.pristine[file].encode() for file in blocks if tree.versions[file]}
    plan.update({f"{target}/{name}": None for name in sorted(tree.ours - {RECORD})})
    if RECORD in tree.ours:  # last, as it says which files are ours
        plan[f"{target}/{RECORD}"] = None
    if dry_run:
        show(tree, plan)
        return 0
    carry_out(tree, plan)
    shutil.rmtree(tree.target, ignore_errors=True)  # bytecode is left in it, if anything
    tell(f"removed from {tree.package}" if plan else f"not installed in {tree.package}: nothing to remove")
    return 0
