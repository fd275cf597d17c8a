"""Distribution: the Dockerfile, and the required contents of a wheel.

`make dist` builds and tries the wheel and the sdist; here is what can be said without a network.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def tracked(folder: str) -> list[Path]:
    command = ["git", "ls-files", "-z", folder]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_the_dockerfile_is_what_hadolint_wants() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    found = str(linter) if linter.exists() else shutil.which("hadolint")
    if found is None:
        pytest.skip("hadolint is not installed; the extra dev has it for Linux on x86-64")
    done = subprocess.run([found, "Dockerfile"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_dockerfile_copies_what_there_is_and_names_extras_that_there_are() -> None:
    text = (ROOT / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE):
        for name in line.split():
            assert (ROOT / name).exists(), name
    extras = re.search(r'^ARG EXTRAS="(.+)"$', text, re.MULTILINE)
    assert extras is not None
    assert set(extras[1].split(",")) <= PROJECT["project"]["optional-dependencies"].keys()


def test_a_wheel_takes_every_file_of_the_package_along() -> None:
    package = ROOT / "src/palaestra"
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["palaestra"]
    taken = {path for pattern in patterns for path in package.glob(pattern)}
    modules = {".py"}
    left = [p for p in tracked("src/palaestra") if p.suffix not in modules and p not in taken]
    assert not left


# ── constraints.txt ──────────────────────────────────────────────────────────


def pins() -> dict[str, Version]:
    """The exact versions of constraints.txt, by normalized name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def named(*extras: str) -> Iterator[Requirement]:
    """The requirements of palaestra itself and of some extras, without its own name."""
    optional = PROJECT["project"]["optional-dependencies"]
    listed = PROJECT["project"]["dependencies"] + [one for name in extras for one in optional[name]]
    yield from map(Requirement, listed)


def test_every_package_that_setup_and_trackers_name_has_an_exact_version() -> None:
    found, extras = pins(), ["babyai", "dev", "ray", "serving", "textworld", "trackio", "viewer"]
    assert [one.name for one in named(*extras) if canonicalize_name(one.name) not in found] == []


@pytest.mark.parametrize("distribution", sorted(pins()))
def test_an_exact_version_is_one_that_its_users_accept(distribution: str) -> None:
    try:
        wanted = requires(distribution) or []
    except PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed")
    found = pins()
    for requirement in map(Requirement, wanted):
        version = found.get(canonicalize_name(requirement.name))
        plain = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if version is not None and plain:
            assert version in requirement.specifier, f"{distribution} wants {requirement}"
