"""Context distillation: hinted replies, learnt without the hint."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import InputError
from palaestra.core.message import user
from palaestra.learning.data.examples.distillation import distilled
from palaestra.learning.data.examples.rerendering import rerendered
from palaestra.learning.data.rows import rows_of
from tests.learning.data.examples.stories import BROKEN, RENDERER, Turn, story, trained_words, words


def hinted(**more):
    """The second of three prompts holds a hint."""
    return story(
        [
            Turn("s0", "a0"),
            Turn("s1", "a1", prompt=(user("s1 hint"),)),
            Turn("s2", "a2"),
        ],
        **more,
    )


def test_the_same_replies_follow_prompts_without_the_hint():
    (example,) = distilled([hinted()], "policy", RENDERER, lambda episode: [" hint"])
    assert words(example.row) == "s0 a0 s1 a1 s2 a2"


def test_only_replies_that_a_hint_could_have_shaped_are_trained():
    (example,) = distilled([hinted()], "policy", RENDERER, lambda episode: [" hint"])
    assert trained_words(example.row) == "a1 a2"
    found = distilled([hinted(rooted=True)], "policy", RENDERER, lambda episode: [" hint"])
    assert [trained_words(example.row) for example in found] == ["a1"]


def test_the_rows_keep_the_hinted_log_probabilities():
    (example,) = distilled([hinted()], "policy", RENDERER, lambda episode: [" hint"])
    kept = [lp for lp, on in zip(example.row.logprobs, example.row.mask, strict=True) if on]
    assert kept == [lp for call in hinted().calls[1:] for lp in call.logprobs]


def test_a_message_that_is_only_the_hint_is_left_out():
    made = story([Turn("s0", "a0", prompt=(user("hint"), user("s0")))])
    (example,) = distilled([made], "policy", RENDERER, lambda episode: ["hint"])
    assert example.row == rows_of(story([("s0", "a0")]), "policy")[0]


def test_hints_come_from_the_episode():
    made = replace(hinted(), labels={"hint": " hint"})

    def hints(episode):
        return [episode.labels["hint"]] if "hint" in episode.labels else []

    plain = story([("s0", "a0")], member=1)
    assert len(distilled([made, plain], "policy", RENDERER, hints)) == 1


def test_a_hint_that_stands_nowhere_is_an_error():
    with pytest.raises(InputError, match="is in no prompt"):
        distilled([hinted()], "policy", RENDERER, lambda episode: ["other words"])


def test_a_prompt_that_was_nothing_but_a_hint_is_an_error():
    made = story([Turn("s0", "a0", prompt=(user("hint"),))])
    with pytest.raises(InputError, match="is empty after the edit"):
        distilled([made], "policy", RENDERER, lambda episode: ["hint"])


def test_episodes_without_a_valid_result_teach_nothing():
    assert distilled([hinted(outcome=BROKEN)], "policy", RENDERER, lambda episode: [" hint"]) == []


@given(
    st.lists(st.tuples(st.sampled_from(["s0", "s1"]), st.sampled_from(["a0", "a1 a2"])), max_size=5)
)
def test_rerendering_without_an_edit_gives_the_recorded_rows(turns):
    for rooted in (False, True):
        made = story(turns, rooted=rooted)
        again = rerendered(made, "policy", RENDERER, lambda call: call.messages)
        assert again == rows_of(made, "policy")
