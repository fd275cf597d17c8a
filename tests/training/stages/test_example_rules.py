"""Rules of examples in stages: teams, knowledge, tools; and one sentence where they cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaestra.agents.labelled import GOOD
from palaestra.core.errors import InputError
from palaestra.store.run_folder import RunFolder
from tests.training.stages.made import HEAD, IMITATE, recipe_of, run_stages

TEAM = """
[[stage]]
do = "explore"
name = "team"
speaker = "expert"
agent = "plan"
tasks = 12

[[stage]]
do = "imitate"
from = "team"
examples = "flattened"
epochs = 4
learning_rate = 3e-3
"""
CHAIN = ("agent.name=chain", "agent.max_tokens=48", "evaluation.tasks=2")
KNOWING = """
[[stage]]
do = "explore"
tasks = 6
group = 3

[[stage]]
do = "imitate"
name = "keep"
from = "explore"
examples = "world-knowledge"
learning_rate = 1e-3
"""
LABELLED = """
[[stage]]
do = "explore"
tasks = 6
group = 2

[[stage]]
do = "imitate"
name = "keep"
from = "explore"
examples = "feedback-labels"
learning_rate = 1e-3
"""
REACT = ("agent.name=react", "agent.max_tokens=48", "evaluation.tasks=2")
ASKING = """
[[stage]]
do = "explore"
tasks = 4
group = 2
speaker = "expert"

[[stage]]
do = "imitate"
from = "explore"
examples = "{0}"
epochs = 1
"""


def test_a_teams_runs_are_learned_by_one_policy_that_speaks_for_all(tmp_path: Path) -> None:
    run, _ = run_stages(tmp_path, HEAD + TEAM, *CHAIN)
    with RunFolder.read(run) as opened:
        team = opened.database.episodes("team")
        tested = opened.database.episodes("test/imitation")
        (learned,) = opened.database.get("lineage")
    assert {call.role for episode in team for call in episode.calls} == {"planner", "agent"}
    assert {episode.agent for episode in team} == {"plan"}
    assert learned["rows"]["team"]["rows"] == 12  # a row an episode
    assert {call.role for episode in tested for call in episode.calls} == {"agent"}


@pytest.mark.slow
def test_knowledge_is_said_before_the_action_that_is_taken(tmp_path: Path) -> None:
    run, said = run_stages(tmp_path, HEAD + IMITATE + KNOWING, *REACT)
    with RunFolder.read(run) as opened:
        solved = sum(e.outcome.solved for e in opened.database.episodes("explore"))
        (_, learned) = opened.database.get("lineage")
    if solved:
        assert learned["rows"]["explore"]["rows"] == solved
    else:
        assert "keep found nothing to learn from" in said


def test_failures_are_learned_under_a_label_and_the_policy_acts_under_the_other(
    tmp_path: Path,
) -> None:
    run, _ = run_stages(tmp_path, HEAD + IMITATE + LABELLED, "agent.name=labelled")
    with RunFolder.read(run) as opened:
        (_, learned) = opened.database.get("lineage")
        tested = opened.database.episodes("test/keep")
    assert learned["rows"]["explore"]["rows"] == 12  # all of them
    assert all(GOOD in episode.calls[0].messages[0].text for episode in tested)


@pytest.mark.parametrize("rule", ["needed-tools", "granular-skills"])
def test_tool_calls_of_an_environment_of_ones_own_are_learned(tmp_path: Path, rule: str) -> None:
    shop = ("environment.id=tests.training.stages.shops:Shop", "agent.max_tokens=24")
    run, _ = run_stages(tmp_path, HEAD + ASKING.format(rule), *shop, "evaluation.tasks=2")
    with RunFolder.read(run) as opened:
        (learned,) = opened.database.get("lineage")
    rows = learned["rows"]["explore"]["rows"]
    # needed-tools: a row an episode; skills: names, two arguments, the next, the chain, the nest
    assert rows == 8 * (1 if rule == "needed-tools" else 6)


@pytest.mark.parametrize(
    ("stages", "keys", "words"),
    [
        (
            TEAM,
            ("agent.name=plan",),
            "learns replies of the agent 'chain', and agent.name = 'plan'",
        ),
        (
            TEAM.replace('agent = "plan"\n', ""),
            CHAIN,
            "the agent 'chain' speaks in one role alone; explore with agent = 'plan'",
        ),
        (TEAM.replace('"plan"', '"plann"'), CHAIN, "no agent 'plann'. Did you mean 'plan'"),
        (IMITATE + LABELLED, (), "learns replies of the agent 'labelled'"),
        (ASKING.format("needed-tools"), (), "and 'babyai/GoToObjS4' has no tools"),
        (ASKING.format("granular-skills"), (), "and 'babyai/GoToObjS4' has no tools"),
        (
            ASKING.format("granular-skills") + "examples_options = {ratio = {nams = 1}}\n",
            ("environment.id=tests.training.stages.shops:Shop",),
            "the skill 'nams', which does not exist",
        ),
        (ASKING.format("world-knowledge"), (), "learns replies of the agent 'react'"),
        (ASKING.format("world-knowledge").replace("group = 2\n", ""), REACT, "attempted once"),
    ],
)
def test_rules_without_what_they_read_are_refused_in_one_sentence(
    tmp_path: Path, stages: str, keys: tuple[str, ...], words: str
) -> None:
    with pytest.raises(InputError) as refused:
        recipe_of(tmp_path, HEAD + stages, *keys)
    assert words in str(refused.value) and "\n" not in str(refused.value)
