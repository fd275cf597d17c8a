"""Temporal logic: formulas are parsed as written, and progression equals their semantics."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.errors import InputError
from palaestra.core.obligations import Monitor, fulfilled, initial, progress
from palaestra.core.temporal_logic import (
    FALSE,
    TRUE,
    And,
    Atom,
    Formula,
    Moment,
    Next,
    Or,
    Release,
    Until,
    holds,
    negated,
    parse,
    trace_of,
)
from tests.core.small import Acting, run_episode

ACTIONS = ("a", "b", "c")
MOMENTS = [Moment(seen, action) for seen in ("", "fire") for action in ACTIONS]
LEAVES = st.sampled_from(
    [TRUE, FALSE, Atom("a"), Atom("b", wanted=False), Atom("fire", of_seen=True)]
)
TRACES = st.lists(st.sampled_from(MOMENTS), max_size=5)


def _larger(inner: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
    pairs = [st.builds(kind, inner, inner) for kind in (And, Or, Until, Release)]
    return st.one_of(st.builds(Next, inner, st.booleans()), *pairs)


FORMULAS = st.recursive(LEAVES, _larger, max_leaves=6)
OF_ACTIONS = st.recursive(
    st.sampled_from([TRUE, Atom("a"), Atom("b"), Atom("a", wanted=False)]), _larger, max_leaves=6
)


@settings(max_examples=300, deadline=None)
@given(FORMULAS, TRACES)
def test_progression_is_the_direct_semantics(formula: Formula, trace: list[Moment]) -> None:
    state = initial(formula)
    for moment in trace:
        state = progress(state, lambda atom, moment=moment: atom.holds(moment))
    assert fulfilled(state) is holds(formula, trace)


@settings(deadline=None)
@given(FORMULAS, TRACES)
def test_a_negation_holds_exactly_where_the_formula_does_not(
    formula: Formula, trace: list[Moment]
) -> None:
    assert holds(negated(formula), trace) is not holds(formula, trace)
    assert negated(negated(formula)) == formula


@settings(max_examples=60, deadline=None)
@given(st.recursive(LEAVES.filter(lambda leaf: leaf != TRUE), _larger, max_leaves=4))
def test_the_distance_is_the_length_of_the_shortest_trace_that_satisfies(formula: Formula) -> None:
    traces = (t for n in range(4) for t in product(MOMENTS, repeat=n))
    shortest = next((len(trace) for trace in traces if holds(formula, trace)), None)
    try:
        found = Monitor(formula).distance(initial(formula))
    except InputError:
        found = None
    assert found == shortest if shortest is not None or found is None else found > 3


@settings(max_examples=150, deadline=None)
@given(OF_ACTIONS, st.integers(1, 4), st.randoms(use_true_random=False))
def test_allowed_actions_satisfy_the_formula_in_time(formula, turns, rng) -> None:
    """This holds while the environment always offers the same actions."""
    shorter = (t for n in range(turns + 1) for t in product(ACTIONS, repeat=n))
    possible = any(holds(formula, [Moment("", a) for a in trace]) for trace in shorter)
    try:
        monitor = Monitor(formula)
    except InputError:
        assert not possible
        return
    trace: list[Moment] = []
    while len(trace) < turns:
        allowed = monitor.allowed("", ACTIONS, turns - len(trace))
        if not allowed:
            break
        trace.append(Moment("", rng.choice(allowed)))
        monitor.advance(trace[-1])
    assert holds(formula, trace) or not possible


@pytest.mark.parametrize(
    ("text", "trace", "wanted"),
    [
        ("G(!pickup) & F(drop)", "go drop go", True),
        ("G(not pickup) and F drop", "go pickup drop", False),
        ("not pickup U unlock", "go unlock pickup", True),
        ("!pickup W unlock", "go go", True),
        ("!pickup U unlock", "go go", False),
        ("G(open -> X close)", "open close open", False),
        ("G(open -> N close)", "open close open", True),
        ("F(/go .*/)", "look", False),
        ("'look' and X X true", "look look", False),
        ("F(a and N false)", "a b a", True),  # the last moment
        ("a or b and c", "a", True),  # `and` binds more than `or`
        ("a -> b -> c", "b", True),
        ("pick-up->drop", "drop", True),
        ("GO", "go", True),
        ("a R b", "b b", True),
        ("a R b", "b a", False),
    ],
)
def test_what_formulas_mean(text: str, trace: str, wanted: bool) -> None:
    moments = [Moment("", action) for action in trace.split()]
    assert holds(parse(text), moments) is wanted


def test_texts_and_patterns_look_at_the_whole_action_and_anywhere_in_what_is_seen() -> None:
    moment = [Moment("There is a Fire, 12 steps away.", " Go North ")]
    for text in ("'go north'", "/go .*/", "seen fire", "seen /\\d+ steps/", "seen 'a fire'"):
        assert holds(parse(text), moment), text
    for text in ("go", "'north'", "/go/", "seen smoke", "seen /steps$/"):
        assert not holds(parse(text), moment), text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("G(", r"at its end: expected a word"),
        ("a b", r"at 'b': expected an operator or the end"),
        ("(a", r"at its end: expected '\)'"),
        ("a ^ b", r"at ' \^ b'"),
        ("/(/", "regular expression"),
        ("", "at its end"),
        ("F U", "at 'U'"),
    ],
)
def test_a_syntax_error_names_its_position(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse(text)


def test_a_formula_that_contradicts_itself_is_refused() -> None:
    for text in ("false", "G a and F b", "X true and N false", "a and b"):
        with pytest.raises(InputError, match="contradicts itself"):
            Monitor(parse(text))


def test_too_many_observation_atoms_are_refused() -> None:
    with pytest.raises(InputError, match="7 properties of observations"):
        Monitor(parse(" or ".join(f"seen s{n}" for n in range(7))))


def test_what_must_come_is_forced_at_the_last_moment_and_not_before() -> None:
    monitor = Monitor(parse("F drop and G(!fall)"))
    assert monitor.allowed("", ["go", "drop", "fall"], 2) == ["go", "drop"]
    assert monitor.allowed("", ["go", "drop", "fall"], None) == ["go", "drop"]
    assert monitor.allowed("", ["go", "drop", "fall"], 1) == ["drop"]
    assert monitor.allowed("", ["go", "fall"], 1) == []


def test_the_trace_of_an_episode_pairs_each_action_with_what_was_seen_before_it() -> None:
    trace = trace_of(run_episode(Acting("up", "fall")))
    assert [moment.action for moment in trace] == ["up", "fall"]
    assert [moment.seen[:17] for moment in trace] == ["You are on step 0", "You are on step 1"]
    assert holds(parse("seen 'step 0' and X fall"), trace)
