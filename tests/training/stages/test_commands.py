"""Commands in prompts: stated when exploring and testing, and learned in hindsight."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from palaestra.core.episode import Episode
from palaestra.learning.data.examples.return_conditioning import Command, hindsight
from palaestra.learning.data.rewards import Shaping
from palaestra.store.run_folder import RunFolder
from palaestra.training.loop_plan import shaping
from palaestra.training.recipe import load
from palaestra.training.run_context import typical_turns
from tests.training.runs import recorded_episodes, weights_hash
from tests.training.stages.made import HEAD, IMITATE, resumed, run_stages, written

COMMANDED = (
    HEAD
    + IMITATE
    + """
[[stage]]
do = "repeat"
rounds = 2
stages = [
  {do = "explore", commands = ["imitate", "explore"], tasks = 8, group = 2},
  {do = "imitate", name = "obey", from = ["imitate", "explore"], examples = "commands"},
]

[[stage]]
do = "evaluate"
commands = ["imitate", "explore"]
"""
)
STATED = re.compile(r"\nCommand: earn (\S+) more within (\d+) turns\.$")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_stages(tmp_path_factory.mktemp("commanded"), COMMANDED)[0]


def episodes(run: Path, phase: str) -> list[Episode]:
    with RunFolder.read(run) as opened:
        return opened.database.episodes(phase)


def stated(episode: Episode) -> list[Command]:
    """The command of each prompt."""
    found = []
    for call in episode.calls:
        match = STATED.search(call.messages[-1].text)
        assert match is not None
        found.append(Command(float(match[1]), int(match[2])))
    return found


def rewards(run: Path) -> Shaping:
    recipe = load(str(written(run.parent, COMMANDED)))
    return shaping(recipe.rl, typical_turns(recipe.environment.id), recipe.seed)


@pytest.mark.slow
def test_each_prompt_states_what_is_left_to_earn(run: Path) -> None:
    earned = rewards(run)
    for phase in ("explore-1", "explore-2", "test/obey-2"):
        for episode in episodes(run, phase):
            first, *later = stated(episode)
            now = first
            turns = earned.trajectory(episode, "policy").turns
            for turn, command in zip(turns, later, strict=False):
                now = now.after(turn.reward)
                assert command.horizon == now.horizon
                assert command.wanted == pytest.approx(now.wanted, abs=0.02)


def test_rollouts_of_a_task_share_a_command_and_tasks_differ(run: Path) -> None:
    found = {(e.key.group, stated(e)[0]) for e in episodes(run, "explore-2")}
    assert len(found) == 8
    best = [rewards(run).trajectory(e, "expert").total for e in episodes(run, "demonstrations")]
    assert all(min(best) - 0.1 <= command.wanted <= max(best) + 0.2 for _, command in found)


def test_other_prompts_state_none(run: Path) -> None:
    for phase in ("demonstrations", "test/base"):
        for episode in episodes(run, phase):
            assert not any("Command:" in m.text for c in episode.calls for m in c.messages)


def test_the_vocabulary_holds_commands(run: Path) -> None:
    texts = (run / "vocabulary" / "tokenizer.json").read_text()
    assert "Command" in texts and "turns" in texts


def test_a_command_in_hindsight_is_what_was_earned() -> None:
    assert str(hindsight([0.0, -0.05, 0.9], 1, 3)) == "Command: earn 0.85 more within 2 turns."


def test_a_finished_run_is_resumed_to_the_same(run: Path) -> None:
    before, recorded = weights_hash(run), recorded_episodes(run)
    resumed(run)
    assert weights_hash(run) == before and recorded_episodes(run) == recorded
