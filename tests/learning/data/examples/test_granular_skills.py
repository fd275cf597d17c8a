"""Granular skills: seven kinds of questions about recorded tool calls."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.environment import Action, Observation
from palaestra.core.episode import Key
from palaestra.core.errors import InputError, RecipeError
from palaestra.core.message import ToolCall
from palaestra.learning.data.examples.example import Example
from palaestra.learning.data.examples.granular_skills import (
    QUESTIONS,
    Skill,
    granular_skills,
    in_ratio,
)
from palaestra.learning.data.rows import Row
from palaestra.learning.methods.component import Kind, find
from tests.core.small import renderer
from tests.learning.data.examples.shops import CHEAP, LOOK, SELL, TOOLS, asked, trained, visit
from tests.learning.data.examples.stories import story


def skills(*episodes, **options):
    found = granular_skills(episodes, "policy", renderer(), TOOLS, **options)
    return [(asked(example.row), *trained(example.row)) for example in found]


def answers(skill, *episodes):
    question = QUESTIONS[skill].partition("{")[0]
    return [answer for before, answer in skills(*episodes) if question in before]


VISIT = visit("greet()", LOOK, SELL)


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


def test_calls_by_hand():
    assert [json.loads(one) for one in answers(Skill.NAMES, VISIT)] == [
        ["greet", "look_up", "sell"]
    ]
    assert [json.loads(one) for one in answers(Skill.PARAMETERS, VISIT)] == [
        {}, {"thing": "lamp"}, {"price": 40},
    ]  # fmt: skip
    assert answers(Skill.NEXT, VISIT) == ["look_up", "sell"]
    assert [json.loads(one) for one in answers(Skill.CHAINING, VISIT)] == [
        [call("greet"), call("look_up", thing="lamp"), call("sell", price=40)]
    ]
    # 40 is only known from the second call; the lamp was in the request
    assert [json.loads(one) for one in answers(Skill.NESTED, VISIT)] == [
        [call("greet"), call("look_up", thing="lamp"), call("sell", price="$2")]
    ]


def test_a_question_stands_after_the_recorded_prompt():
    found = {answer: before for before, answer in skills(VISIT)}
    assert "A customer wants the lamp." in found["sell"] and "costs 40." in found["sell"]
    assert found["sell"].rstrip().endswith("assistant")
    assert "costs 40." not in found['["greet", "look_up", "sell"]']


def in_words(episode, at, text, seen):
    """The episode with a step that is a reply in words."""
    step = episode.steps[at]
    spoken = replace(
        step,
        action=Action(text),
        transition=replace(step.transition, observation=Observation(seen)),
    )
    said = episode.calls[at]
    reply = replace(said.reply, parts=(replace(said.reply.parts[0], text=text),))
    calls = [*episode.calls[:at], replace(said, reply=reply), *episode.calls[at + 1 :]]
    return replace(episode, steps=(*episode.steps[:at], spoken), calls=tuple(calls))


def test_a_reply_in_words_ends_a_request_and_is_learned_as_it_stands():
    spoken = in_words(visit("greet()", LOOK, SELL), 2, "It costs 40.", "Thanks.")
    (found,) = [one for one in skills(spoken) if one[1] == "It costs 40."]
    assert "costs 40." in found[0]
    assert answers(Skill.CHAINING, spoken) == [
        json.dumps([call("greet"), call("look_up", thing="lamp")])
    ]


def test_several_calls_of_one_reply_are_parallel():
    steps = (
        VISIT.steps[0],
        replace(VISIT.steps[1], call=0, action=Action(LOOK, ToolCall("look_up", {"thing": "x"}))),
        VISIT.steps[2],
    )
    together = replace(VISIT, steps=steps)
    assert [json.loads(one) for one in answers(Skill.PARALLEL, together)] == [
        [call("greet"), call("look_up", thing="x")]
    ]
    assert answers(Skill.PARALLEL, VISIT) == []
    assert answers(Skill.NEXT, together) == ["sell"]


def test_failures_teach_no_calls():
    assert skills(visit(CHEAP)) == []


COUNTS = st.dictionaries(st.sampled_from(list(Skill)), st.integers(0, 40), min_size=1)
PARTS = st.dictionaries(st.sampled_from(list(Skill)), st.integers(1, 5), min_size=1)


@given(COUNTS, PARTS, st.integers(0, 3))
def test_ratios_are_exact_and_as_large_as_they_can_be(counts, parts, seed):
    found = {skill: [] for skill in Skill} | {
        skill: [Example(Row(Key(skill, n), [], [], [], [])) for n in range(count)]
        for skill, count in counts.items()
    }
    if any(counts.get(skill, 0) < part for skill, part in parts.items()):
        with pytest.raises(InputError, match="is more than the"):
            in_ratio(found, parts, seed)
        return
    kept = in_ratio(found, parts, seed)
    sizes = {skill: len(examples) for skill, examples in kept.items()}
    (unit,) = {size / parts[skill] for skill, size in sizes.items()}
    assert any(counts.get(skill, 0) < (unit + 1) * part for skill, part in parts.items())
    drawn = Counter(example.row.key for examples in kept.values() for example in examples)
    assert set(drawn.values()) <= {1}


def test_a_ratio_names_skills_and_their_parts():
    assert len(skills(VISIT, ratio={"names": 1, "next": 2})) == 3
    assert skills(visit(CHEAP), ratio={"names": 1}) == []  # no success, nothing to divide
    rule = find(Kind.EXAMPLES, "granular-skills")
    with pytest.raises(RecipeError, match="'nams', which does not exist; skills: nested"):
        rule.configured({"ratio": {"nams": 1}})
    with pytest.raises(RecipeError, match=r"ratio.names = 0 must be a whole number"):
        rule.configured({"ratio": {"names": 0}})


def test_episodes_without_tools_are_refused():
    with pytest.raises(InputError, match="No tool was called"):
        granular_skills([story([("s0", "a0")])], "policy", renderer(), TOOLS)
