"""What holds for the layout of the source tree: file names, and names of modules in strings."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "palaestra"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FAMILIES = SOURCE / "environments" / "families"

SHARED_BASENAMES = {
    "__init__": "Python's own",
    "base": "what the other files of its folder build on",
    "registry": "the parts of its folder by name",
    "app": "the web application of its package: the gateway's and the viewer's",
}
"""Basenames that several folders may have, and the one thing that each means."""

NAMED_AS_THEIR_FOLDER = {
    "gateway": "the gateway itself: one address for all sessions of a process",
}
"""Modules that may be named as a package, and why."""

NAMED = re.compile(r"palaestra(?!\.json)(?:\.\w+)+(?::\w+)?")
QUOTED = re.compile(rf"""["']{NAMED.pattern}["']""")  # only files with one are parsed: it is slow


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def layers() -> dict[str, int]:
    """The height of each package: it may import from lower ones."""
    [contract] = [
        found for found in PROJECT["tool"]["importlinter"]["contracts"] if found["type"] == "layers"
    ]
    rows = [row.split(" : ") for row in contract["layers"]]
    return {name: -depth for depth, row in enumerate(rows) for name in row}


@cache
def names_in_strings() -> list[tuple[Path, str]]:
    """Each string of the source that is the name of a module, or of something in one."""
    return [
        (path, node.value)
        for path in modules()
        if QUOTED.search(text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and NAMED.fullmatch(node.value)
    ]


def file_of(module: str) -> Path | None:
    """The file of a module or package of ours; None if there is none."""
    path = SOURCE.joinpath(*module.split(".")[1:])
    found = [path.with_suffix(".py"), path / "__init__.py"]
    return next((file for file in found if file.is_file()), None)


def problem(user: Path, name: str) -> str | None:
    """What is wrong with a name in a string of that file; None: nothing."""
    module, _, attribute = name.partition(":")
    file = file_of(module)
    if file is None:
        return f"there is no module {module}"
    if attribute:
        defined = [getattr(node, "name", None) for node in ast.parse(file.read_text()).body]
        if attribute not in defined:
            return f"{module} defines no {attribute}"
    if user == SOURCE / "__init__.py":
        return None  # lazy names: importing palaestra imports none of them
    height, mine = layers(), user.relative_to(SOURCE).parts[0].removesuffix(".py")
    other = module.split(".")[1]
    if other != mine and height[other] >= height[mine]:
        return f"{mine} may not use {other}"
    return None


def test_no_basename_means_two_things() -> None:
    """Files of a family are read within their folder, which distinguishes them."""
    homes = defaultdict(list)
    for path in modules():
        if not path.is_relative_to(FAMILIES) and path.stem not in SHARED_BASENAMES:
            homes[path.stem].append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_no_module_is_named_as_a_package() -> None:
    packages = {path.parent.name for path in modules() if path.stem == "__init__"}
    outside = [path for path in modules() if not path.is_relative_to(FAMILIES)]
    named = {path.stem for path in outside} & packages
    assert named == set(NAMED_AS_THEIR_FOLDER)


@pytest.mark.parametrize("name", sorted(SHARED_BASENAMES))
def test_a_basename_that_may_be_shared_is_shared(name: str) -> None:
    assert sum(path.stem == name for path in modules()) > 1


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for path in modules()}
    assert [str(path) for path in sorted(folders) if not (path / "__init__.py").is_file()] == []


def test_names_of_modules_in_strings_resolve_and_keep_the_layers() -> None:
    found = [
        f"{path.relative_to(SOURCE)}: {name}: {why}"
        for path, name in names_in_strings()
        if (why := problem(path, name)) is not None
    ]
    assert found == []


def test_every_registry_is_looked_at() -> None:
    looked_at = {str(path.relative_to(SOURCE)) for path, _ in names_in_strings()}
    assert looked_at >= {
        "__init__.py",
        "agents/registry.py",
        "environments/family_table.py",
        "learning/methods/component.py",
    }


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("palaestra.agents.react:ReActAgent", None),
        ("palaestra.agents.react:NoSuchAgent", "defines no NoSuchAgent"),
        ("palaestra.agents.no_such_module", "no module"),
        ("palaestra.learning.loop.learner:Learner", "agents may not use learning"),
        ("palaestra.environments.registry", "agents may not use environments"),
    ],
)
def test_a_wrong_name_is_noticed(name: str, why: str | None) -> None:
    found = problem(SOURCE / "agents" / "registry.py", name)
    assert found is None if why is None else found is not None and why in found


def test_entry_points_name_what_is_there() -> None:
    project = PROJECT["project"]
    points = {**project["scripts"], **project["entry-points"]["pytest11"]}
    assert [target for target in points.values() if file_of(target.partition(":")[0]) is None] == []


def test_package_data_is_there() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["palaestra"]
    assert [pattern for pattern in patterns if not any(SOURCE.glob(pattern))] == []


def test_what_is_no_python_is_packaged() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["palaestra"]
    packaged = {path for pattern in patterns for path in SOURCE.glob(pattern)}
    other = {path for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".py"}
    left = {path for path in other - packaged if "__pycache__" not in path.parts}
    assert [str(path) for path in sorted(left)] == []
