"""Measures of an episode: counted by hand, missing where the episode does not say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.budget import Usage
from palaestra.core.environment import Signals
from palaestra.core.episode import Episode
from palaestra.core.errors import UnknownName
from palaestra.core.graph import Call
from palaestra.core.message import assistant
from palaestra.core.model import Finish
from palaestra.evaluation.statistics.episode_metrics import (
    METRICS,
    breakdown,
    context_use,
    invalid_rate,
    largest_prompt,
    loop_rate,
    looped,
    progress,
    repeated,
    repetition_rate,
    seconds_per_turn,
    summarise,
    task_means,
)
from palaestra.evaluation.statistics.intervals import mean_interval, wilson
from tests.evaluation.made import CRASH, FAILURE, SUCCESS, episode


def through(states: str | None, actions: str, progress: list[float] | None = None) -> Episode:
    """An episode whose turns begin in these states (a letter each) and take these actions."""
    recorded = episode("eval/test", 0, FAILURE, list(actions))
    steps = tuple(
        replace(
            step,
            before=Signals(
                state_key=states[i] if states else None, progress=progress[i] if progress else None
            ),
        )
        for i, step in enumerate(recorded.steps)
    )
    return replace(recorded, steps=steps)


def call(index: int, parent: int | None, prompt: int, completion: int) -> Call:
    return Call(
        index=index,
        parent=parent,
        role="agent",
        messages=(),
        prompt=tuple(range(prompt)),
        reply=assistant("go"),
        completion=tuple(range(completion)),
        logprobs=(-0.5,) * completion,
        finish=Finish.STOP,
        policy="tiny",
        version=0,
    )


def test_a_repetition_is_the_same_action_in_the_same_state() -> None:
    recorded = through("ABAAB", "xxxyx")
    assert repeated(recorded) == [False, False, True, False, True]
    assert repetition_rate(recorded) == 2 / 5


def test_without_a_state_key_the_state_is_what_was_last_seen() -> None:
    same = episode("eval/test", 0, FAILURE, ["a", "a", "b", "a"], seen="A wall.")
    # The first observation also states the mission, so it is not seen again.
    assert repeated(same) == [False, False, False, True]


def test_a_loop_is_a_turn_that_begins_where_an_earlier_one_began() -> None:
    recorded = through("ABACC", "abcde")
    assert looped(recorded) == [False, False, True, False, True]
    assert loop_rate(recorded) == 2 / 5
    assert loop_rate(episode("eval/test", 0, FAILURE)) is None


@given(st.text("AB", min_size=1, max_size=12), st.data())
def test_every_repetition_is_in_a_loop(states: str, data: st.DataObject) -> None:
    actions = data.draw(st.text("xy", min_size=len(states), max_size=len(states)))
    recorded = through(states, actions)
    again, back = repeated(recorded), looped(recorded)
    assert back is not None
    assert all(b or not a for a, b in zip(again, back, strict=True))
    assert sum(back) == len(states) - len(set(states))


def test_progress_is_the_most_that_was_reached() -> None:
    recorded = through("ABC", "abc", [0.0, 0.75, 0.5])
    assert progress(replace(recorded, progress=0.25)) == 0.75
    assert progress(replace(recorded, progress=1.0)) == 1.0
    assert progress(episode("eval/test", 0, SUCCESS)) is None


def test_shares_of_an_episode_without_a_step_are_missing() -> None:
    empty = episode("eval/test", 0, FAILURE, [])
    assert invalid_rate(empty) is repetition_rate(empty) is seconds_per_turn(empty) is None
    assert invalid_rate(episode("eval/test", 0, FAILURE, list("abcd"), invalid=[1])) == 0.25


def test_latency_is_time_per_turn() -> None:
    recorded = episode("eval/test", 0, FAILURE, list("abcd"))
    assert seconds_per_turn(replace(recorded, usage=Usage(4, 10, 5, 6.0))) == 1.5


def test_the_largest_prompt_counts_the_whole_conversation_before_the_reply() -> None:
    recorded = episode("eval/test", 0, FAILURE)
    calls = (call(0, None, 10, 3), call(1, 0, 4, 2), call(2, None, 12, 1))
    assert largest_prompt(replace(recorded, calls=calls)) == 10 + 3 + 4
    assert context_use(68)(replace(recorded, calls=calls)) == 0.25
    assert largest_prompt(recorded) is context_use(68)(recorded) is None
    assert largest_prompt(replace(recorded, calls=(call(0, None, 0, 0),))) is None


def test_every_metric_measures_a_plain_episode() -> None:
    recorded = episode("eval/test", 0, SUCCESS, ["a", "b"])
    values = {name: measure(recorded) for name, measure in METRICS.items()}
    assert values["success"] == values["reward"] == 1
    assert values["turns"] == 2


def test_measures_are_averaged_over_repeats_first_and_broken_episodes_are_missing() -> None:
    episodes = [
        episode("eval/test", 0, SUCCESS, ["a"] * 2),
        episode("eval/test", 0, FAILURE, ["a"] * 4, member=1),
        episode("eval/test", 1, FAILURE, ["a"] * 6),
        episode("eval/test", 2, CRASH, ["a"] * 99),
    ]
    assert task_means(episodes, METRICS["turns"]) == {0: 3, 1: 6}
    found = summarise(episodes, METRICS["turns"])
    assert (found.mean, found.tasks) == (4.5, 2)
    assert found.interval == mean_interval([3, 6])
    assert summarise(episodes, METRICS["progress"]).mean is None
    alone = summarise(episodes[:2], METRICS["turns"])
    assert (alone.mean, alone.interval, alone.tasks) == (3, None, 1)


def marked(group: int, solved: bool, difficulty: int | None, labels: dict[str, str]) -> Episode:
    recorded = episode("eval/test", group, SUCCESS if solved else FAILURE)
    parameters = {} if difficulty is None else {"difficulty": difficulty}
    return replace(recorded, task=replace(recorded.task, parameters=parameters), labels=labels)


def test_success_is_broken_down_by_parameter_label_or_environment() -> None:
    episodes = [
        marked(0, True, 1, {"skill": "walk"}),
        marked(1, False, 1, {"skill": "open"}),
        marked(2, False, 2, {"skill": "open"}),
        marked(3, False, None, {}),
    ]
    by_difficulty = breakdown(episodes, "difficulty")
    assert list(by_difficulty) == ["", "1", "2"]
    assert by_difficulty["1"].success == wilson(1, 2)
    by_skill = breakdown(episodes, "skill")
    assert by_skill["walk"].success == wilson(1, 1)
    assert by_skill["open"].success == wilson(0, 2)
    assert breakdown(episodes, "environment")["babyai/GoToLocal"].success == wilson(1, 4)
    assert sum(part.episodes for part in by_skill.values()) == 4


def test_a_part_in_which_everything_broke_has_no_rate() -> None:
    broken = replace(marked(0, True, 3, {}), outcome=CRASH)
    assert breakdown([broken], "difficulty")["3"].success is None


def test_breaking_down_by_what_no_episode_has_is_refused_with_what_there_is() -> None:
    with pytest.raises(UnknownName, match="difficulty"):
        breakdown([marked(0, True, 1, {"skill": "walk"})], "dificulty")
    assert breakdown([], "skill") == {}
