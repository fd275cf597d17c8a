"""Feedback labels: bad attempts stand under the bad label, and nothing else changes."""

from dataclasses import replace

import pytest

from palaestra.agents.direct import DirectAgent
from palaestra.agents.labelled import BAD, GOOD, LabelledAgent
from palaestra.core.errors import InputError
from palaestra.core.outcome import Outcome
from palaestra.learning.data.examples.feedback_labels import feedback_labels
from palaestra.learning.data.rows import rows_of
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import Stairs, renderer, run_episode
from tests.learning.data.examples.shops import asked, trained
from tests.learning.data.examples.stories import BROKEN


def climb(*actions, agent=None):
    model = ScriptedModel(actions, renderer=renderer(), name="policy")
    return run_episode(agent or LabelledAgent(), model, Stairs(2))


GOOD_RUN, BAD_RUN = climb("up", "up"), climb("up", "fall")


def learned(*episodes, **options):
    return feedback_labels(episodes, "policy", renderer(), **options)


def test_a_good_attempt_stays_as_it_was_recorded():
    (example,) = learned(GOOD_RUN)
    assert [example.row] == rows_of(GOOD_RUN, "policy")
    assert GOOD in asked(example.row)


def test_a_bad_attempt_is_learned_under_the_bad_label():
    (example,) = learned(BAD_RUN, weight=0.5)
    assert BAD in asked(example.row) and GOOD not in asked(example.row)
    assert trained(example.row) == ["up", "fall"]
    assert example.weight == 0.5
    (row,) = rows_of(BAD_RUN, "policy")
    same = [(t, lp) for t, lp, on in zip(row.tokens, row.logprobs, row.mask, strict=True) if on]
    again = zip(example.row.tokens, example.row.logprobs, example.row.mask, strict=True)
    assert [(t, lp) for t, lp, on in again if on] == same


def test_labels_differ_in_nothing_but_the_verdict():
    undone = replace(GOOD_RUN, outcome=Outcome.failure())
    (bad,), (good,) = learned(undone), learned(GOOD_RUN)
    assert renderer().text(bad.row.tokens).replace(BAD, GOOD) == renderer().text(good.row.tokens)


def test_episodes_without_a_valid_result_are_left_out():
    assert learned(replace(GOOD_RUN, outcome=BROKEN)) == []


def test_prompts_without_a_label_are_refused():
    with pytest.raises(InputError, match="hold no label; record it with the agent 'labelled'"):
        learned(climb("up", "up", agent=DirectAgent()))
