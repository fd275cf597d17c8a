"""Words of teams: replies and parts are found as they were put together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.team_words import ASKED, Reply, answer_parts, proposal, replies_in

WORD = st.text("abcxyz", min_size=1, max_size=6)
LINE = st.lists(WORD, min_size=1, max_size=4).map(" ".join)
SAID = st.lists(
    st.tuples(WORD, st.lists(LINE, min_size=1, max_size=3).map("\n".join), st.booleans()),
    max_size=4,
)


@given(SAID, st.sampled_from(sorted(ASKED)))
def test_replies_of_several_lines_are_found_in_what_a_member_sees(
    said: list[tuple[str, str, bool]], asked: str
) -> None:
    lines = [proposal(name, text) if does else f"{name}: {text}" for name, text, does in said]
    seen = "\n".join(["A task", *lines, ASKED[asked]])
    assert replies_in(seen) == [Reply(*one) for one in said]


def test_what_a_team_did_ends_a_reply() -> None:
    seen = f"ann: hello\nYour team did: north\nA room\nbob proposes: up\n{ASKED['propose']}"
    assert replies_in(seen) == [Reply("ann", "hello", False), Reply("bob", "up", True)]


@given(st.dictionaries(WORD, LINE, min_size=1))
def test_parts_are_found_in_one_line(values: dict[str, str]) -> None:
    whole = {key: f"{key}: {text}" for key, text in values.items()}
    assert answer_parts("; ".join(whole.values())) == whole


def test_parts_of_a_module_keep_their_lines() -> None:
    module = "import math\ndef f(x):\n    y = 1; z = 2\n    return x\nassert f(1)\nassert f(2) == 2"
    assert answer_parts(module) == {
        "import": "import math",
        "def": "def f(x):\n    y = 1; z = 2\n    return x",
        "assert": "assert f(1)\nassert f(2) == 2",
    }
