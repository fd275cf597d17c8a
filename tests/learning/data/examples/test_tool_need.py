"""Know or need: calls are learned where no other success of the task did without the tool."""

import pytest

from palaestra.core.errors import InputError
from palaestra.learning.data.examples.tool_need import Knowledge, labelled, needed_tools
from tests.learning.data.examples.shops import CHEAP, LOOK, SELL, TOOLS, trained, visit
from tests.learning.data.examples.stories import story

ASKING, KNOWING = visit(LOOK, SELL), visit(SELL, member=1)


def learned(*episodes):
    return [trained(example.row) for example in needed_tools(episodes, "policy", TOOLS)]


def test_a_call_is_needless_where_another_attempt_succeeded_without_it():
    assert learned(ASKING, KNOWING) == [[SELL], [SELL]]
    assert labelled([ASKING, KNOWING], "policy", TOOLS) == [
        {0: Knowledge.KNOWN, 1: Knowledge.NEEDED},
        {0: Knowledge.NEEDED},
    ]


def test_a_call_that_every_success_made_is_needed():
    assert learned(ASKING, visit(LOOK, SELL, member=1)) == [[LOOK, SELL], [LOOK, SELL]]


def test_failures_without_the_call_do_not_make_it_needless():
    failed = visit(CHEAP, member=1)
    assert not failed.outcome.solved
    assert learned(ASKING, failed) == [[LOOK, SELL]]


def test_other_tasks_decide_nothing():
    assert learned(ASKING, visit(SELL, group=1)) == [[LOOK, SELL], [SELL]]


def test_a_needless_call_stays_as_context():
    (example, _) = needed_tools([ASKING, KNOWING], "policy", TOOLS)
    (whole,) = needed_tools([ASKING], "policy", TOOLS)
    assert example.row.tokens == whole.row.tokens


def test_invalid_calls_are_no_calls():
    wrong = visit("look_up()", SELL)
    assert labelled([wrong], "policy", TOOLS) == [{1: Knowledge.NEEDED}]


def test_episodes_without_tools_are_refused():
    with pytest.raises(InputError, match="No tool was called in any of 1 episodes"):
        needed_tools([story([("s0", "a0")])], "policy", TOOLS)
    assert needed_tools([], "policy", TOOLS) == []
