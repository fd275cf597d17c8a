"""Git repositories that are made of a list of commits: equal lists give equal ids."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

BRANCH = "main"


@dataclass(frozen=True, slots=True)
class Commit:
    """What somebody changed at a time."""

    author: str
    email: str
    at: datetime
    message: str
    files: Mapping[str, str]  # the new text of each file that it changes, by path


def make_repository(folder: Path, commits: Sequence[Commit]) -> None:
    """Make a bare repository in a folder that does not exist yet, with one branch.

    Raises:
        FileNotFoundError: `git` is not installed.
        subprocess.CalledProcessError: it failed.
    """
    _git("init", "--quiet", "--bare", "--object-format=sha1", "--template=", str(folder))
    _git("--git-dir", str(folder), "symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
    stream = b"".join(_written(commit) for commit in commits)
    _git("--git-dir", str(folder), "fast-import", "--quiet", "--done", given=stream + b"done\n")


def _written(commit: Commit) -> bytes:
    """Return a commit as `git fast-import` reads it."""
    who = f"{commit.author} <{commit.email}> {int(commit.at.timestamp())} +0000"
    lines = [f"commit refs/heads/{BRANCH}\nauthor {who}\ncommitter {who}\n".encode()]
    lines.append(_data(commit.message))
    for path, text in commit.files.items():
        lines += [f"M 100644 inline {path}\n".encode(), _data(text)]
    return b"".join(lines)


def _data(text: str) -> bytes:
    encoded = text.encode()
    return b"data %d\n%b\n" % (len(encoded), encoded)


def _git(*words: str, given: bytes = b"") -> None:
    """Run git without the configuration of a person or of the machine."""
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", *words]
    subprocess.run(command, input=given, check=True, capture_output=True, env=os.environ | alone)
