"""Journeys and splices: attempts joined at equal environment states."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import InputError
from palaestra.core.message import assistant, user
from palaestra.core.outcome import Outcome
from palaestra.learning.data.examples.journey import Studied, journeys, linearised, shortcuts
from palaestra.learning.data.examples.mistakes import futile
from palaestra.learning.data.examples.splice import splices
from palaestra.learning.data.rows import rows_of
from palaestra.learning.methods.component import Kind, find
from tests.core.small import renderer as chatml
from tests.learning.data.examples.stories import RENDERER, STATES, Turn, story, trained_words, words
from tests.learning.made import Words

FAILURE = Outcome.failure()
WORDING = {"reflection": "oops", "answer": "ok."}


def bad(member=0, **more):
    """a0, then the invalid b1, then b2."""
    turns = [Turn("s0", "a0"), Turn("s1", "b1", valid=False), Turn("s1", "b2")]
    return story(turns, member=member, outcome=FAILURE, **more)


def good(member=1, **more):
    return story([("s0", "a0"), ("s1", "g1"), ("s2", "g2")], member=member, **more)


class Careful(Words):
    """Remembers what it was asked to encode."""

    def __init__(self):
        super().__init__(RENDERER.words[3:])
        self.encoded = []

    def reply(self, text):
        self.encoded.append(text)
        return super().reply(text)

    def start(self, messages, tools=()):
        self.encoded += [message.text for message in messages]
        return super().start(messages)


# ── splices ──────────────────────────────────────────────────────────────────


def test_a_splice_is_the_bad_prefix_a_reflection_and_the_good_suffix():
    (example,) = splices([bad(), good()], "policy", RENDERER, **WORDING)
    assert words(example.row) == "s0 a0 s1 b1 s1 oops ok. g1 s2 g2"
    assert trained_words(example.row) == "oops g1 g2"  # the prefix is not trained, as released
    assert example.row.key == bad().key


@pytest.mark.parametrize(
    ("studied", "expected"),
    [
        (Studied.ALL, "a0 b1 oops g1 g2"),
        (Studied.RIGHT, "a0 oops g1 g2"),
        (Studied.TAIL, "oops g1 g2"),
    ],
)
def test_what_of_a_splice_is_trained_can_be_chosen(studied, expected):
    row = linearised([bad(), good()], "policy", RENDERER, studied=studied, **WORDING)
    assert words(row) == "s0 a0 s1 b1 s1 oops ok. g1 s2 g2"
    assert trained_words(row) == expected


def test_a_splice_is_made_of_the_recorded_tokens_of_both_episodes():
    renderer = Careful()
    first, second = bad(), good()
    row = linearised([first, second], "policy", renderer, **WORDING)
    assert renderer.encoded == ["oops", "ok."]
    head = first.graph.tokens(1) + list(first.calls[2].prompt)
    tail = [*second.calls[1].completion, *second.calls[2].prompt, *second.calls[2].completion]
    joint = RENDERER.reply("oops") + RENDERER.extend([assistant("oops")], [user("ok.")], True)
    assert row.tokens == head + joint + tail


def test_the_calls_of_a_splice_are_numbered_along_the_row():
    row = linearised([bad(), good()], "policy", RENDERER, **WORDING)
    numbers = [call for call, on in zip(row.calls, row.mask, strict=True) if on]
    assert numbers == sorted(numbers)
    assert set(numbers) == {0, 1, 2, 3, 4}


def test_attempts_that_never_meet_are_not_spliced():
    elsewhere = story([("s3", "g1"), ("s4", "g2")], member=1)
    assert splices([bad(), elsewhere], "policy", RENDERER) == []


def test_an_attempt_without_a_mistake_or_ending_with_it_is_not_spliced():
    flawless = story([("s0", "a0"), ("s1", "b2")], outcome=FAILURE)
    sudden = story([("s0", "a0"), Turn("s1", "b1", valid=False)], outcome=FAILURE)
    assert splices([flawless, good()], "policy", RENDERER) == []
    assert splices([sudden, good()], "policy", RENDERER) == []


def test_only_clearly_better_attempts_of_the_same_group_are_spliced_in():
    scores = {0: 0.1, 1: 0.6, 2: 0.4}

    def count(episodes, **more):
        more |= {"score": lambda e: scores[e.key.member]}
        return len(splices(episodes, "policy", RENDERER, **more))

    assert count([bad(0), good(1)]) == 1
    assert count([bad(0), good(1)], gap=0.55) == 0
    assert count([bad(0), good(1)], alpha=0.6) == 0
    assert count([bad(0), good(2)]) == 0
    assert count([bad(0), good(1, group=7)]) == 0


def test_the_good_attempt_goes_on_from_its_last_visit():
    wandering = story(
        [("s0", "a0"), ("s1", "a1"), ("s2", "a2"), ("s1", "g1"), ("s3", "g2")], member=1
    )
    (example,) = splices([bad(), wandering], "policy", RENDERER, **WORDING)
    assert trained_words(example.row) == "oops g1 g2"


def test_a_thought_before_the_good_action_comes_along():
    thinking = story([Turn("s0", "a0"), Turn("s1", "t1", acts=False), Turn("s1", "g1")], member=1)
    (example,) = splices([bad(), thinking], "policy", RENDERER, **WORDING)
    assert trained_words(example.row) == "oops t1 g1"


def test_a_policy_can_name_its_own_first_mistake():
    detour = story([("s0", "a0"), ("s1", "b1"), ("s2", "b2"), ("s3", "b3")], outcome=FAILURE)
    (example,) = splices(
        [detour, good()], "policy", RENDERER, mistakes=lambda episode, policy: {1}, **WORDING
    )
    assert words(example.row) == "s0 a0 s1 b1 s2 oops ok. g2"


def test_prompts_that_do_not_only_grow_cannot_be_spliced():
    with pytest.raises(InputError, match="only grow"):
        splices([bad(rooted=True), good(rooted=True)], "policy", RENDERER)


# ── journeys ─────────────────────────────────────────────────────────────────


def test_a_journey_tells_several_attempts_and_trains_the_errors_too():
    first = story([("s0", "b0"), ("s0", "b1"), ("s3", "b2")], member=0, outcome=FAILURE)
    second = story([("s0", "a0"), ("s1", "b3"), ("s1", "b4")], member=1, outcome=FAILURE)
    third = story([("s0", "a0"), ("s1", "g1"), ("s2", "g2")], member=2)
    row = linearised([first, second, third], "policy", RENDERER, mistakes=futile, **WORDING)
    assert words(row) == "s0 b0 s0 oops ok. a0 s1 b3 s1 oops ok. g1 s2 g2"
    assert trained_words(row) == "b0 oops a0 b3 oops g1 g2"


def test_one_journey_per_group_with_the_failures_that_meet():
    apart = story(
        [("s4", "b0"), Turn("s5", "b1", valid=False), ("s5", "b2")], member=0, outcome=FAILURE
    )
    made = [apart, bad(1), good(2), bad(3, group=1), good(4, group=2)]
    (example,) = journeys(made, "policy", RENDERER, **WORDING)
    assert words(example.row) == "s0 a0 s1 b1 s1 oops ok. g1 s2 g2"


def test_no_more_failures_are_reported_than_asked_for():
    again = [
        story([Turn("s0", "b0", valid=False), Turn("s0", f"b{n}")], member=n, outcome=FAILURE)
        for n in range(1, 5)
    ]
    for most in (1, 2, 3):
        (example,) = journeys([*again, good(5)], "policy", RENDERER, most=most, **WORDING)
        assert trained_words(example.row).split().count("oops") == most


def test_alone_the_success_is_no_journey():
    assert journeys([good()], "policy", RENDERER) == []


# ── shortcuts ────────────────────────────────────────────────────────────────


def test_a_shortcut_leaves_out_what_led_back():
    made = story([("s0", "a0"), ("s1", "b1"), ("s2", "b2"), ("s1", "g1"), ("s3", "g2")])
    (example,) = shortcuts([made], "policy")
    assert words(example.row) == "s0 a0 s1 g1 s3 g2"
    assert trained_words(example.row) == "a0 g1 g2"


def test_a_shortcut_keeps_the_thought_of_the_last_visit():
    made = story(
        [
            Turn("s0", "t0", acts=False),
            Turn("s0", "b0"),
            Turn("s0", "t1", acts=False),
            Turn("s0", "g0"),
        ]
    )
    (example,) = shortcuts([made], "policy")
    assert trained_words(example.row) == "t1 g0"


def test_shortcuts_are_found_by_their_name():
    part = find(Kind.EXAMPLES, f"{shortcuts.__module__}:shortcuts")
    assert set(part.options) == {"least", "score"}


@given(st.lists(st.sampled_from(STATES), min_size=1, max_size=8))
def test_a_shortcut_visits_no_state_twice_and_every_straight_episode_is_its_own(path):
    made = story([(state, f"a{n % 6}") for n, state in enumerate(path)])
    (example,) = shortcuts([made], "policy")
    visited = [word for word in words(example.row).split() if word in STATES]
    assert len(visited) == len(set(visited))
    assert (visited[0], visited[-1]) == (path[0], path[-1])
    if len(set(path)) == len(path):
        assert [example.row] == rows_of(made, "policy")


def test_failures_have_no_shortcut():
    assert shortcuts([bad()], "policy") == []


# ── a real renderer ──────────────────────────────────────────────────────────


def test_in_chatml_a_splice_reads_as_the_conversation_rendered_whole():
    first, second = bad(renderer=chatml()), good(renderer=chatml())
    row = linearised([first, second], "policy", chatml(), **WORDING)
    shown = ["s0", "a0", "s1", "b1", "s1", "oops", "ok.", "g1", "s2", "g2"]
    speakers = [user, assistant] * 5
    whole = chatml().start([act(text) for act, text in zip(speakers, shown, strict=True)])
    assert row.tokens == whole[: len(row.tokens)]
    assert chatml().text(whole[len(row.tokens) :]) == "\nassistant\n"


def test_in_chatml_a_shortcut_reads_as_the_conversation_rendered_whole():
    made = story([("s0", "a0"), ("s1", "b1"), ("s0", "g0")], renderer=chatml())
    (example,) = shortcuts([made], "policy")
    whole = chatml().start([user("s0"), assistant("g0")])
    assert example.row.tokens == whole[: len(example.row.tokens)]
