"""Suites: TOML that is checked, and a hash over what results depend on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import InputError
from palaestra.environments.registry import make, tasks
from palaestra.evaluation.running.suite import Entry, Limits, Suite, differences, load

SUITES = sorted((Path(__file__).parents[3] / "suites").glob("*.toml"))

TEXT = """
name = "two"
version = 3
metrics = ["success", "turns"]

[limits]
seconds = 60

[[entries]]
environment = "probe/umbrella-4"
tasks = 3
weight = 0.5

[[entries]]
environment = "probe/memory-4"
split = "validation"
tasks = [0, 7]
repeats = 2
turns = 9
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "suite.toml"
    file.write_text(text)
    return file


def suite(*entries: Entry, version: int = 1, limits: Limits = Limits()) -> Suite:  # noqa: B008
    return Suite(name="made", version=version, entries=entries, limits=limits)


def entry(environment: str = "probe/umbrella-4", **given: object) -> Entry:
    return Entry.model_validate({"environment": environment, "tasks": 4, **given})


def test_a_suite_is_read_from_toml(tmp_path: Path) -> None:
    found = load(written(tmp_path, TEXT))
    assert (found.name, found.version, found.limits.seconds) == ("two", 3, 60)
    assert [e.numbers for e in found.entries] == [(0, 1, 2), (0, 7)]
    assert found.title == f"two v3 ({found.hash[:8]})"


@pytest.mark.parametrize(
    ("before", "after", "output"),
    [
        ('name = "two"', "", "the key 'name' is missing"),
        ("weight = 0.5", "wieght = 0.5", "no key 'entries.0.wieght'"),
        ("weight = 0.5", "weight = 0", "entries.0.weight: input should be greater than 0"),
        ("tasks = 3", "tasks = 0", "entries.0.tasks"),
        ("tasks = [0, 7]", "tasks = [7, 7]", "a number is listed twice"),
        ("tasks = [0, 7]", "tasks = []", "the list is empty"),
        ('split = "validation"', 'split = "dev"', "entries.1.split"),
        ('"turns"]', '"luck"]', "there is no 'luck'; known: success"),
        ('"probe/memory-4"\nsplit = "validation"', '"probe/umbrella-4"', "is listed twice"),
        ("version = 3", "version = ", "not valid TOML"),
    ],
)
def test_a_mistake_is_named(before: str, after: str, output: str, tmp_path: Path) -> None:
    assert before in TEXT
    with pytest.raises(InputError) as raised:
        load(written(tmp_path, TEXT.replace(before, after)))
    assert output in str(raised.value)
    assert "suite.toml" in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml"):
        load(tmp_path / "none.toml")


@given(st.permutations([entry("a/1"), entry("b/2", tasks=[3, 1]), entry("c/3", weight=2.0)]))
def test_the_order_of_entries_does_not_change_the_hash(entries: list[Entry]) -> None:
    ordered = [entry("a/1"), entry("b/2", tasks=[1, 3]), entry("c/3", weight=2.0)]
    assert suite(*entries).hash == suite(*ordered).hash


def test_a_count_and_the_list_of_its_numbers_hash_alike() -> None:
    assert suite(entry(tasks=3)).hash == suite(entry(tasks=[2, 0, 1])).hash


def test_what_is_only_shown_does_not_change_the_hash() -> None:
    one = suite(entry())
    assert one.hash == one.model_copy(update={"summary": "words", "metrics": ("reward",)}).hash


@pytest.mark.parametrize(
    ("changed", "output"),
    [
        (suite(entry(tasks=5)), "probe/umbrella-4 (test): tasks 4 (0, 1, 2, 3) against 5"),
        (suite(entry(weight=2.0)), "weight 1.0 against 2.0"),
        (suite(entry(turns=3)), "turns None against 3"),
        (suite(entry(repeats=2)), "repeats 1 against 2"),
        (suite(entry(max_tokens=16)), "max_tokens None against 16"),
        (suite(entry(split="validation")), "only one of them has probe/umbrella-4 (test)"),
        (suite(entry(), version=2), "version 1 against 2"),
        (suite(entry(), limits=Limits(tokens=99)), "limits.tokens None against 99"),
    ],
)
def test_whatever_changes_the_hash_is_reported(changed: Suite, output: str) -> None:
    one = suite(entry())
    assert one.hash != changed.hash
    assert any(
        reason.startswith(output) or output in reason for reason in differences(one, changed)
    )
    assert differences(one, suite(entry())) == []


@pytest.mark.parametrize("file", SUITES, ids=lambda file: file.stem)
def test_the_suites_of_the_repository_name_worlds_and_tasks_that_exist(file: Path) -> None:
    found = load(file)
    assert found.name == file.stem
    for one in found.entries:
        make(one.environment).close()
        count = tasks(one.environment).count(one.split)
        assert count is None or max(one.numbers) < count
        assert 8 <= len(one.numbers) <= 16


def test_there_is_a_suite_of_eight_families() -> None:
    small = load(next(file for file in SUITES if file.stem == "small"))
    assert len({one.environment.partition("/")[0] for one in small.entries}) >= 8
