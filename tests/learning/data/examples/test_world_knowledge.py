"""World knowledge: what the attempts at a task teach, as thoughts before the actions."""

from dataclasses import replace

from palaestra.agents.direct import DirectAgent
from palaestra.agents.react import ReActAgent
from palaestra.core.episode import Key
from palaestra.learning.data.examples.world_knowledge import task_knowledge, world_knowledge
from palaestra.learning.data.rows import rows_of
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import Stairs, renderer, run_episode
from tests.learning.data.examples.shops import trained


def climb(*actions, member=0):
    model = ScriptedModel(actions, renderer=renderer(), name="policy")
    made = run_episode(DirectAgent(), model, Stairs(2))
    return replace(made, key=Key("explore", 0, member))


GOOD, BAD = climb("up", "up"), climb("up", "fall", member=1)


def learned(*episodes, **options):
    return world_knowledge(episodes, "policy", renderer(), Stairs.instructions, **options)


def test_the_knowledge_of_a_success_and_a_failure_by_hand():
    (example,) = learned(GOOD, BAD)
    assert trained(example.row) == [
        "Thought: Do: up, up. Not: fall. up 1/2\nAction: up",
        "Thought: up 1/1 fall 0/1\nAction: up",
    ]


def test_either_knowledge_may_be_left_out():
    assert trained(learned(GOOD, BAD, of_task=False)[0].row)[0] == "Thought: up 1/2\nAction: up"
    assert trained(learned(GOOD, BAD, of_state=False)[0].row) == [
        "Thought: Do: up, up. Not: fall.\nAction: up",
        "Thought: \nAction: up",
    ]


def test_a_failure_that_only_stopped_too_early_left_nowhere():
    assert task_knowledge(GOOD, [replace(BAD, steps=BAD.steps[:1])]) == "Do: up, up."


def test_failures_and_other_tasks_are_not_imitated_and_teach_nothing_here():
    other = replace(BAD, key=Key("explore", 1, 0))
    (example,) = learned(GOOD, other)
    assert trained(example.row)[0] == "Thought: Do: up, up. up 1/1\nAction: up"


def test_the_row_is_that_of_the_agent_react_which_says_the_same():
    (example,) = learned(GOOD, BAD)
    said = ScriptedModel(trained(example.row), renderer=renderer(), name="policy")
    (row,) = rows_of(run_episode(ReActAgent(), said, Stairs(2)), "policy")
    assert (example.row.tokens, example.row.mask) == (row.tokens, row.mask)
