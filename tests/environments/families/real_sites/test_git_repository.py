"""A repository is made of commits: Git has them all, and equal lists give equal ids."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import which

import pytest

from palaestra.environments.families.real_sites.git_repository import Commit, make_repository

if which("git") is None:
    pytest.skip("needs the program git", allow_module_level=True)

AT = datetime(2025, 3, 1, 12, tzinfo=UTC)
COMMITS = (
    Commit("ann", "ann@x.example", AT, "Begin", {"a.txt": "one\n", "b/ü.txt": "zwei\n"}),
    Commit("bob", "bob@x.example", AT + timedelta(days=1), "Say: “more”", {"a.txt": "one\ntwo"}),
)


def said(folder: Path, *words: str) -> str:
    command = ["git", "--git-dir", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_git_has_the_files_the_authors_and_the_times(tmp_path: Path) -> None:
    folder = tmp_path / "one.git"
    make_repository(folder, COMMITS)
    log = said(folder, "log", "--format=%an %ae %at %ct %s").splitlines()
    first, second = int(AT.timestamp()), int(AT.timestamp()) + 86400
    assert log == [
        f"bob bob@x.example {second} {second} Say: “more”",
        f"ann ann@x.example {first} {first} Begin",
    ]
    assert said(folder, "show", "HEAD:a.txt") == "one\ntwo"
    assert said(folder, "show", "HEAD~1:b/ü.txt") == "zwei\n"
    assert said(folder, "fsck", "--strict") == ""


def test_equal_commits_have_equal_ids_whatever_a_person_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = []
    for number, commits in enumerate((COMMITS, COMMITS, (replace(COMMITS[0], author="eve"),))):
        (tmp_path / f"{number}.gitconfig").write_text(f"[user]\n\tname = person {number}\n")
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / f"{number}.gitconfig"))
        make_repository(tmp_path / f"{number}.git", commits)
        ids.append(said(tmp_path / f"{number}.git", "rev-parse", "HEAD"))
    assert ids[0] == ids[1] != ids[2]
