"""Components: registered by a decorator, found by name, configured by a recipe's options."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from palaestra.core.errors import InputError, RecipeError, UnknownName
from palaestra.learning.credit.returns import drgrpo, rloo
from palaestra.learning.credit.rule import Credit, broadcast
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.losses.trained_tokens import Unit
from palaestra.learning.methods import component as registry
from palaestra.learning.methods.component import (
    Component,
    Kind,
    Need,
    Status,
    component,
    components,
    find,
)
from tests.learning.credit.made import batch

HERE = __name__

RULE = '''
from palaestra.learning.methods.component import Kind, Need, Status, component
from palaestra.learning.credit.rule import broadcast


@component(Kind.CREDIT, "first", source="a test", status=Status.OURS, needs=[Need.GROUP])
def first(batch, *, weight: float = 2.0):
    """The first rollout wins.

    Whatever the others do.
    """
    return broadcast(batch, [weight] + [0.0] * (len(batch) - 1))


def plain(batch):
    return broadcast(batch, [0.0] * len(batch))
'''


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten afterwards."""
    components(Kind.CREDIT)
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))


def unregistered(batch: Sequence[Trajectory], *, value: float = 1.0) -> Credit:
    return broadcast(batch, [value] * len(batch))


NO_FUNCTION = 1.0


def run(folder: Path, *command: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The installed script, in a folder; `path` is where packages are looked for besides."""
    script = Path(sys.executable).with_name("palaestra")
    assert script.exists(), "the package is not installed"
    own = {"PALAESTRA_RUNS": str(folder / "runs"), "OMP_NUM_THREADS": "1"}
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(script), *command],
        cwd=folder,
        env={**inherited, **own, **({"PYTHONPATH": str(path)} if path else {})},
        capture_output=True,
        text=True,
        timeout=120,
    )


# By name


def test_a_registered_function_is_found_by_name_and_stays_a_function(registered: None) -> None:
    @component(
        Kind.CREDIT, "even", source="a test", status=Status.OURS, needs=[Need.GROUP, Need.VALUE]
    )
    def even(batch: Sequence[Trajectory], *, value: float = 1.0) -> Credit:
        """All rollouts are worth the same.

        More about it.
        """
        return broadcast(batch, [value] * len(batch))

    found = find(Kind.CREDIT, "even")
    assert found is components(Kind.CREDIT)["even"]
    assert (found.kind, found.name, found.function) == (Kind.CREDIT, "even", even)
    assert (found.source, found.status) == ("a test", Status.OURS)
    assert found.needs == {Need.GROUP, Need.VALUE}
    assert found.summary == "All rollouts are worth the same."
    assert found.options == {"value": 1.0}
    assert even(batch([0, 0]), value=2.0).advantages[1].tolist() == [2.0]


def test_parts_of_different_kinds_may_share_a_name() -> None:
    credit, loss = find(Kind.CREDIT, "grpo"), find(Kind.LOSS, "grpo")
    assert (credit.kind, loss.kind) == (Kind.CREDIT, Kind.LOSS)
    assert credit.function is not loss.function
    assert "rloo" not in components(Kind.LOSS)


@pytest.mark.parametrize("kind", Kind)
def test_components_are_listed_in_alphabetical_order(kind: Kind) -> None:
    names = list(components(kind))
    assert names and names == sorted(names)


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(UnknownName, match=r"no credit 'rlo'\. Did you mean 'rloo'\?"):
        find(Kind.CREDIT, "rlo")


# By module and function


def test_a_registered_function_is_itself_by_its_path_too() -> None:
    found = find(Kind.CREDIT, "palaestra.learning.credit.returns:rloo")
    assert found is find(Kind.CREDIT, "rloo")


def test_an_unregistered_function_is_found_by_its_path_and_needs_nothing() -> None:
    found = find(Kind.CREDIT, f"{HERE}:unregistered")
    assert found == Component(
        Kind.CREDIT,
        name=f"{HERE}:unregistered",
        function=unregistered,
        source=f"{HERE}:unregistered",
        status=Status.OURS,
        needs=frozenset(),
    )
    assert (found.summary, found.options) == ("", {"value": 1.0})
    assert found.configured({"value": 3.0})(batch([0])).advantages[0].tolist() == [3.0]
    assert found.name not in components(Kind.CREDIT)


@pytest.mark.parametrize(
    "name",
    [
        f"{HERE}:missing",
        f"{HERE}:NO_FUNCTION",
        f"{HERE}.deeper:unregistered",
        "no_such_module:rule",
        "palaestra.no_such_module:rule",
        "palaestra:",
        ":rule",
        ".relative:rule",
        "a:b:c",
    ],
)
def test_a_path_to_nothing_is_an_unknown_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    with pytest.raises(UnknownName, match="There is no credit"):
        find(Kind.CREDIT, name)
    assert sys.path == before


def test_a_module_that_cannot_be_imported_reports_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needy_credit.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"'needy_credit:rule' cannot be .*'no_such_package'"):
        find(Kind.CREDIT, "needy_credit:rule")


@pytest.mark.slow
def test_the_script_finds_a_rule_in_the_folder_it_runs_in(tmp_path: Path) -> None:
    (tmp_path / "my_credit.py").write_text("import wave\nfrom my_helpers import *\n")
    (tmp_path / "my_helpers.py").write_text(RULE)
    (tmp_path / "wave.py").write_text("raise AssertionError('it hides the one of Python')\n")
    train = ["train", "--dry-run", "quick", "--json", "--set"]
    for rule in ("first", "plain"):
        done = run(tmp_path, *train, f"rl.credit=my_credit:{rule}")
        assert done.returncode == 0, done.stderr
    missing = run(tmp_path, *train, "rl.credit=my_credit:second")
    assert missing.returncode == 2
    assert "There is no credit 'my_credit:second'." in missing.stderr


# Packages


@pytest.mark.slow
def test_a_package_adds_parts_by_an_entry_point(tmp_path: Path) -> None:
    site, folder = tmp_path / "site", tmp_path / "folder"
    about = site / "plugged-1.0.dist-info"
    about.mkdir(parents=True)
    folder.mkdir()
    (site / "plugged_credit.py").write_text(RULE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[palaestra.learning]\nrules = plugged_credit\n")

    rows = listed(run(folder, "list", "credit", "--json", path=site))
    assert rows["first"] == {
        "name": "first",
        "needs": ["groups"],
        "summary": "The first rollout wins.",
        "source": "a test",
        "status": "ours",
        "options": {"weight": 2.0},
    }
    assert listed(run(folder, "list", "credit", "--json")).keys() == rows.keys() - {"first"}


def listed(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)}


def test_modules_and_packages_are_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    find(Kind.CREDIT, "rloo")
    monkeypatch.setattr(registry, "entry_points", lambda group: pytest.fail("looked again"))
    assert find(Kind.CREDIT, "rloo").function is rloo


# Options


def options(
    batch: Sequence[Trajectory],
    *,
    ratio: float = 0.5,
    count: int = 3,
    switch: bool = True,
    word: str = "mean",
    unit: str = Unit.TOKEN,
    cap: float | None = None,
    sizes: tuple[int, ...] = (5, 8),
) -> dict[str, Any]:
    """Gives back what it was given."""
    return {name: value for name, value in locals().items() if name != "batch"}


PART = Component(Kind.CREDIT, "made", options, "a test", Status.OURS, frozenset())


def test_without_options_the_function_is_the_registered_one() -> None:
    assert find(Kind.CREDIT, "drgrpo").configured({}) is drgrpo


def test_an_option_that_does_not_exist_is_answered_with_those_that_do() -> None:
    with pytest.raises(
        RecipeError, match=r"'gae' has no option 'gama'; it has: gamma, lam, whiten"
    ):
        find(Kind.CREDIT, "gae").configured({"gama": 1.0})
    with pytest.raises(RecipeError, match=r"'rloo' has no option 'gamma'; it has: none\."):
        find(Kind.CREDIT, "rloo").configured({"gamma": 1.0})


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ratio", [0.25, 1, 0, -3]),
        ("count", [1, 0, -3]),
        ("switch", [True, False]),
        ("word", ["median", ""]),
        ("unit", ["turn", Unit.ROLLOUT]),
        ("cap", [1.0, 2, None]),
        ("sizes", [[1, 2], (1, 2), []]),
    ],
)
def test_a_value_of_the_defaults_type_reaches_the_function(name: str, values: list[Any]) -> None:
    for value in values:
        assert PART.configured({name: value})([])[name] == value


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("ratio", ["x", "0.5", True, None, [0.5]], r"a finite number \(by default 0\.5\)"),
        ("ratio", [math.nan, math.inf, -math.inf, 10**400], r"a finite number \(by default"),
        ("cap", ["any", True, [1]], r"a finite number \(by default None\)"),
        ("count", [1.5, 2.0, "3", True, None], r"a whole number \(by default 3\)"),
        ("switch", [1, 0, "true", None], r"true or false \(by default True\)"),
        ("word", [1, True, None, ["mean"]], r"a text \(by default mean\)"),
        ("unit", [1, False, None], r"a text \(by default token\)"),
        ("sizes", [1, "12", None, [1, 2.5]], r"a list, each a whole number \(by default \(5, 8"),
    ],
)
def test_a_value_of_another_type_is_refused(name: str, values: list[Any], expected: str) -> None:
    for value in values:
        with pytest.raises(RecipeError, match=rf"'made' cannot take {name} = .*must be {expected}"):
            PART.configured({name: value})


def test_a_recipe_with_a_wrong_value_is_refused_before_anything_starts(tmp_path: Path) -> None:
    done = run(tmp_path, "train", "quick", "--set", "rl.credit=gae", "rl.credit_options.gamma=x")
    assert done.returncode == 2
    assert done.stderr == (
        "palaestra: The credit 'gae' cannot take gamma = 'x': it must be a number in [0, 1] "
        "(by default 1.0).\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", Kind)
def test_the_defaults_of_every_part_fit_themselves(kind: Kind) -> None:
    for part in components(kind).values():
        part.configured(part.options)
