"""Strategies that draw gestures."""

from __future__ import annotations

from hypothesis import strategies as st

from palaestra.core.gesture import Gesture, Id, Mark, Point, Target, Words
from palaestra.core.gestures.key_names import KEYS, MODIFIERS

TEXTS = st.text(st.characters(), min_size=1, max_size=12)  # lone surrogates, too
FLOATS = st.floats(-1e6, 1e6) | st.integers(-5000, 5000).map(float)
SHARES = st.floats(0, 1)
POINTS = st.builds(Point, FLOATS, FLOATS) | st.builds(Point, SHARES, SHARES, st.just("shares"))
TARGETS: st.SearchStrategy[Target] = st.one_of(
    st.builds(Id, TEXTS),
    st.builds(Id, st.from_regex(r"[a-z]?[0-9]{1,4}", fullmatch=True)),
    st.builds(Mark, st.integers(1, 10**6)),
    POINTS,
    st.builds(Words, TEXTS),
)
PLAIN_CHARACTERS = st.characters(codec="utf-8").filter(lambda one: one.isprintable() and one != " ")
KEY = st.sampled_from(sorted(KEYS)) | PLAIN_CHARACTERS
CHORDS = st.builds(
    lambda held, key: "+".join([*held, key]),
    st.lists(st.sampled_from(MODIFIERS), unique=True, max_size=3),
    KEY,
)
AMOUNTS = st.tuples(FLOATS, FLOATS).filter(any)
NO_TARGET = st.none()


def typed(targets: st.SearchStrategy[Target | None]) -> st.SearchStrategy[Gesture]:
    return st.one_of(
        st.builds(
            lambda target, text, enter, clear: Gesture(
                "type", target, text=text, enter=enter, clear=clear
            ),
            targets,
            TEXTS,
            st.booleans(),
            st.booleans(),
        ),
        st.builds(lambda target: Gesture("type", target, clear=True), targets),
        st.builds(lambda target: Gesture("type", target, enter=True), targets),
    )


EVERY = st.one_of(
    st.builds(Gesture, st.sampled_from(["click", "double", "right"]), TARGETS | NO_TARGET),
    st.builds(Gesture, st.just("hover"), TARGETS),
    typed(TARGETS | NO_TARGET),
    st.builds(
        lambda target, keys: Gesture("press", target, text=keys), TARGETS | NO_TARGET, CHORDS
    ),
    st.builds(
        lambda target, amount, unit: Gesture("scroll", target, amount=amount, unit=unit),
        TARGETS | NO_TARGET,
        AMOUNTS,
        st.sampled_from(["pixels", "pages"]),
    ),
    st.builds(lambda start, end: Gesture("drag", start, end), TARGETS | NO_TARGET, TARGETS),
    st.builds(
        lambda kind, target, text: Gesture(kind, target, text=text),
        st.sampled_from(["select", "upload"]),
        TARGETS,
        TEXTS,
    ),
    st.builds(
        lambda kind, text: Gesture(kind, text=text),
        st.sampled_from(["go", "open", "say", "answer", "give up"]),
        TEXTS,
    ),
    st.sampled_from(
        [
            Gesture("back"),
            Gesture("forward"),
            Gesture("home"),
            Gesture("answer"),
            Gesture("give up"),
        ]
    ),
    st.builds(
        lambda text: Gesture("tab", text=text),
        st.sampled_from(["new", "close"]) | st.integers(0, 99).map(str),
    ),
    st.builds(lambda seconds: Gesture("wait", amount=(seconds, 0.0)), st.floats(0, 1e6)),
)
