"""Trees of rollouts: beginnings are shared, each sample is trained once, kills change nothing."""

from __future__ import annotations

import asyncio
import io
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from palaestra.core.episode import Episode, Event, Key
from palaestra.core.errors import InputError
from palaestra.core.task import Task
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.data.rows import rows_of
from palaestra.learning.data.trees import own_tokens, with_parents
from palaestra.rollout.runner import Job
from palaestra.runtime.progress import Reporter
from palaestra.store import checkpoint
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import check, load
from palaestra.training.recipe_check import check_recipe
from palaestra.training.reinforcement_section import Tree
from palaestra.training.rollout_trees import Branches, beginning, parent, waves
from palaestra.training.run import execute
from tests.training.learning import train, weights
from tests.training.runs import write_recipe

TREE = ["rl.credit=malt", "rl.credit_options.siblings=true", "rl.group=4", "rl.tree.after=[1, 2]"]
TREES = st.builds(
    lambda width, after: Tree(width=width, after=tuple(sorted(after))),
    st.integers(2, 3),
    st.sets(st.integers(1, 6), min_size=1, max_size=3),
)


def jobs(tree: Tree, roots: int = 2) -> list[Job]:
    task = Task("train/0", "made", 0)
    return [Job(Key("rl/1", 0, member), task) for member in range(roots * tree.leaves)]


@given(TREES)
def test_a_rollout_branches_off_an_earlier_one_of_an_earlier_wave(tree: Tree) -> None:
    order = waves(tree, jobs(tree))
    assert sorted(job.key.member for wave in order for job in wave) == list(range(2 * tree.leaves))
    wave_of = {job.key.member: number for number, wave in enumerate(order) for job in wave}
    for member, number in wave_of.items():
        origin = parent(tree, member)
        assert (origin is None) == (number == 0)
        if origin is not None:
            assert origin[0] < member and wave_of[origin[0]] < number


@given(TREES)
def test_every_reply_after_a_branching_has_width_siblings(tree: Tree) -> None:
    """Follow each leaf to the member that sampled its reply at each depth."""

    def owner(member: int, depth: int) -> int:
        origin = parent(tree, member)
        return member if origin is None or depth >= origin[1] else owner(origin[0], depth)

    for level, after in enumerate(tree.after):
        before = Counter(owner(member, after - 1) for member in range(2 * tree.leaves))
        later = Counter(owner(member, after) for member in range(2 * tree.leaves))
        assert len(later) == tree.width * len(before)
        assert set(later.values()) == {tree.width ** (len(tree.after) - level - 1)}


def sampled_once(episodes: Sequence[Episode]) -> None:
    """Check that the rows of a group train each of its samples once."""
    trained: Counter[tuple[int, int]] = Counter()
    for episode in episodes:
        for row in rows_of(episode, "policy"):
            for call in {c for c in row.calls if c >= 0}:
                trained[episode.key.member, call] += 1
    samples = {
        (e.key.member if call.shared_by is None else call.shared_by, call.index)
        for e in episodes
        for call in e.calls
    }
    assert set(trained) == samples and set(trained.values()) == {1}


def test_a_group_is_a_tree_whose_samples_are_trained_once(start: Path, tmp_path: Path) -> None:
    with train(start, tmp_path, *TREE) as run:
        (_, step), _ = run.database.metrics("rl")
        every = run.database.episodes("rl/1")
    groups = [[e for e in every if e.key.group == group] for group in range(3)]
    for group in groups:
        sampled_once(group)
        first, *others = group
        assert all(call.shared_by is None for call in first.calls)
        for episode in others:
            shared = [call for call in episode.calls if call.shared_by is not None]
            assert len(shared) < len(episode.calls)
            assert (len(shared) > 0) == (len(first.calls) > 1)
            for call in shared:
                origin = group[call.shared_by or 0].calls[call.index]
                assert (call.prompt, call.completion) == (origin.prompt, origin.completion)
        found = with_parents([Shaping(20).trajectory(e, "policy") for e in group], group)
        if len(first.calls) > 1:
            assert len({t.parents[0] for t in found}) == 1
        assert len({t.parents for t in found}) == len(group)
    assert step["sampled_tokens"] == sum(own_tokens(e)[1] for e in every)
    rows = [row for e in every for row in rows_of(e, "policy")]
    assert step["sampled_tokens"] == sum(row.trained for row in rows)


def test_a_branch_off_a_short_rollout_samples_at_least_its_last_reply(
    start: Path, tmp_path: Path
) -> None:
    with train(start, tmp_path, *TREE, "rl.steps=1") as run:
        episode = run.database.episodes("rl/1")[0]
    count = len(episode.calls)
    for replies in (1, count - 1, count, count + 7):
        events = beginning(episode, replies)
        calls = [event for event in events if hasattr(event, "completion")]
        assert len(calls) == min(replies, count - 1)
        assert len(events) - len(calls) == sum(s.calls_before <= len(calls) for s in episode.steps)


class Recorded:
    """A store that holds the events of rollouts."""

    def __init__(self) -> None:
        self.events: dict[Key, list[Event]] = {}

    def past(self, key: Key) -> list[Event]:
        return list(self.events.get(key, []))

    def append(self, key: Key, event: Event) -> None:
        self.events.setdefault(key, []).append(event)

    def forget(self, key: Key) -> None:
        self.events.pop(key, None)

    def episode(self, key: Key) -> Episode | None:
        return None

    def finish(self, episode: Episode) -> None:
        """Keep nothing more."""


def test_what_a_branch_shares_is_recorded_once_wherever_it_was_interrupted(
    start: Path, tmp_path: Path
) -> None:
    with train(start, tmp_path, *TREE, "rl.steps=1") as run:
        longest = max(run.database.episodes("rl/1"), key=lambda e: len(e.calls))
    shared, key = beginning(longest, len(longest.calls) - 1), Key("rl/9", 0, 1)
    assert len(shared) > 2
    for recorded in range(len(shared) + 1):
        store = Recorded()
        store.events[key] = list(shared[:recorded])
        branches = Branches(store, {key: shared})
        assert branches.past(key) == shared == store.events[key]
        own = longest.calls[-1]
        branches.append(key, own)
        assert branches.past(key) == [*shared, own]
    assert Branches(Recorded(), {}).past(key) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_was_killed_within_a_tree_ends_with_the_same_weights(
    seed: int, start: Path, tmp_path: Path
) -> None:
    with train(start, tmp_path, *TREE) as run:
        path, whole = run.path, weights(run.path / "final")
        before = run.database.episodes("rl/2")
    rng = random.Random(seed)
    with RunFolder.open(path) as run:
        stages = [row for row in run.database.get("stages") or [] if "rl" not in row["name"]]
        run.database.put("stages", stages)
        checkpoint.remove(run.checkpoints, "rl-000002")
        for episode in before:
            if rng.random() < 0.5:
                run.database.forget(episode.key)
        shutil.rmtree(path / "final")
        recipe = check(dict(run.database.get("recipe") or {}))
        asyncio.run(execute(recipe, run, Reporter(Console(file=io.StringIO()))))
    assert weights(path / "final") == whole


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["rl.tree.width=3"], "rl.tree has no effect: .* reads no trees"),
        (["rl.credit=malt", "rl.tree.width=3"], "no multiple of the 3 rollouts"),
        (["rl.credit=malt", "rl.tree.after=[2, 1]"], "must rise"),
        (
            ["rl.credit=malt", "deterministic=false", "rl.quorum=2"],
            "quorum is for rollouts that share nothing",
        ),
        (["rl.credit=malt", "rl.advisor.after=1"], "advisor is for rollouts that share nothing"),
        (["rl.credit=malt + gae"], "share nothing"),
        (["rl.credit=malt + remax"], "share nothing"),
        (["rl.credit=malt", "agent.name=reflexion"], "cannot share beginnings"),
    ],
)
def test_what_cannot_be_a_tree_is_reported_before_anything_starts(
    keys: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        check_recipe(load(str(write_recipe(tmp_path)), keys))
