"""Results of steps that need no JSON are what JSON would have made of them."""

from __future__ import annotations

from datetime import date
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.environment import Observation, Signals, Transition
from palaestra.core.message import Text
from palaestra.rollout.guarded_environment import STEPPED
from palaestra.rollout.plain_steps import MOST, as_received

LONE = "\ud800"  # a surrogate, which has no encoding
TEXTS = st.text(max_size=4) | st.just(LONE)
NUMBERS = st.floats() | st.integers(-(2**70), 2**70) | st.booleans()
ODD = st.sampled_from([Text("x"), date(2024, 1, 2), b"y", object(), (1, "z"), {1: 2}, {3}, LONE])
VALUES = st.recursive(
    st.none() | NUMBERS | st.text(max_size=4) | ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
FLAGS = st.booleans() | st.just("no")
SIGNALS = st.builds(
    Signals,
    st.none() | TEXTS,
    st.none() | NUMBERS,
    st.none() | st.just("bob") | st.just(3),
    st.just(()) | st.just(("ann",)) | st.just(["ann"]),
)
TRANSITIONS = st.builds(
    Transition,
    st.builds(Observation, TEXTS | st.just(3), others=st.just({}) | st.just({"ann": "hello"})),
    NUMBERS,
    FLAGS,
    info=st.dictionaries(st.text(max_size=3) | st.integers(), VALUES, max_size=3) | VALUES,
    rewards=st.just({}) | st.just({"ann": 1.0}),
)


def through_json(transition: Any, signals: Signals) -> Any:
    try:
        return STEPPED.load(STEPPED.dump((transition, signals, None)))[0]
    except ValueError:
        return ValueError


@given(TRANSITIONS, SIGNALS)
def test_a_step_is_received_as_its_json_would_be(transition: Transition, signals: Signals) -> None:
    try:
        received: Any = as_received(transition, signals)
    except ValueError:
        received = ValueError
    if received is not None:
        assert repr(received) == repr(through_json(transition, signals))


def test_nearly_all_steps_need_no_json() -> None:
    info = {"team": {"said": [[1, "ann"]], "heard": {"bob": [0]}}, "score": 0.5}
    step = Transition(Observation("I see you."), 1.0, info=info)
    assert as_received(step, Signals(turn="bob", together=("ann",))) == step


def test_what_the_environment_keeps_and_alters_is_copied() -> None:
    kept: dict[str, list[int]] = {"seen": [1]}
    received = as_received(Transition(Observation(""), info=kept), Signals())
    kept["seen"].append(2)
    assert received is not None and received.info == {"seen": [1]}


def test_large_results_are_left_to_the_count_of_bytes() -> None:
    long = "a" * (MOST + 1)
    assert as_received(Transition(Observation(long)), Signals()) is None
    assert as_received(Transition(Observation(""), info={"all": long}), Signals()) is None
