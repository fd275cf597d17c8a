"""Episodes with proxy labels: what was seen stays, actions are replaced, tokens are rendered."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.model import Finish
from palaestra.learning.data.examples.action_free import actions_of, states_of, with_labels
from palaestra.learning.data.examples.goal_relabelling import hindsight_goals
from palaestra.learning.data.rows import rows_of
from tests.learning.data.examples.test_goal_relabelling import RENDERER, WALKS, shown, trained, walk


def phrase(action) -> str:
    return action.text


def labelled(episode, labels):
    return with_labels(episode, "policy", labels, phrase, RENDERER)


def test_states_are_what_was_seen_before_and_after_without_the_goal() -> None:
    episode = walk(["s0", "s1", "s2"], invalid=[1])
    assert states_of(episode, "policy") == {0: ("s0", "s1"), 1: ("s1", "s1")}
    assert actions_of(episode, "policy") == {0: "a0", 1: "a1"}
    assert states_of(episode, "expert") == actions_of(episode, "expert") == {}


@given(WALKS)
def test_true_labels_give_the_episode_back_token_for_token(cells) -> None:
    episode = walk(cells)
    again = labelled(episode, actions_of(episode, "policy"))
    for ours, theirs in zip(rows_of(again, "policy"), rows_of(episode, "policy"), strict=True):
        assert (ours.tokens, ours.mask, ours.calls) == (theirs.tokens, theirs.mask, theirs.calls)
    assert again.steps == episode.steps and again.outcome == episode.outcome


@given(WALKS, st.data())
def test_other_labels_change_the_replies_and_nothing_that_was_seen(cells, data) -> None:
    episode = walk(cells)
    names = st.sampled_from(["a7", "a8", "a9"])
    labels = {call: data.draw(names) for call in actions_of(episode, "policy")}
    again = labelled(episode, labels)
    assert actions_of(again, "policy") == labels
    assert states_of(again, "policy") == states_of(episode, "policy")
    (row,) = rows_of(again, "policy")
    assert trained(row) == list(labels.values())
    (own,) = rows_of(episode, "policy")
    seen = [word for word in shown(own).split() if word not in trained(own)]
    assert [word for word in shown(row).split() if word not in trained(row)] == seen


def test_a_reply_that_was_cut_off_ends_where_its_label_does() -> None:
    episode = walk(["s0", "s1"])
    call = replace(episode.calls[0], completion=episode.calls[0].completion[:-1])
    cut = replace(episode, calls=(replace(call, finish=Finish.LENGTH),))
    (row,) = rows_of(labelled(cut, {0: "a3"}), "policy")
    assert row.tokens[-1] in RENDERER.end_tokens and row.mask[-1]


def test_rules_read_labelled_episodes_as_any_others() -> None:
    again = labelled(walk(["s0", "s1", "s2"]), {0: "a5", 1: "a6"})
    found = hindsight_goals([again], "policy", RENDERER)
    assert [trained(example.row) for example in found] == [["a5"], ["a5", "a6"]]
