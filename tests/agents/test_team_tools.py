"""Members that are no models: they look things up and run programs."""

from __future__ import annotations

import pytest

from palaestra.agents.registry import make_agent
from palaestra.agents.team_tools.executor import Said, said_in, verdict_on
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.team_words import ASKED
from palaestra.sandbox.factory import kinds

SANDBOX = "bubblewrap" if kinds()["bubblewrap"] is None else "unsafe"


def test_a_program_and_its_tests_are_found_among_what_members_say() -> None:
    seen = (
        "Return the double.\nmanager: be quick\nauthor proposes: ```python\ndef f(x):\n"
        f"    return 2 * x\n```\ntester: assert f(1) == 2\nassert f(0) == 0\n{ASKED['talk']}"
    )
    assert said_in(seen) == Said(
        "def f(x):\n    return 2 * x", "assert f(1) == 2\nassert f(0) == 0"
    )
    assert said_in("Nothing.") == Said("", "")


@pytest.mark.parametrize(
    ("program", "tests", "reply"),
    [
        ("def f(x):\n    return 2 * x", "assert f(1) == 2", "accept"),
        (
            "def f(x):\n    return x",
            "assert f(1) == 2",
            "wrong: the tests ended with AssertionError assert f(1) == 2",
        ),
        ("def f(", "", "wrong: the program ended with SyntaxError: '(' was never closed"),
    ],
)
def test_a_program_is_accepted_if_no_test_fails(program: str, tests: str, reply: str) -> None:
    assert verdict_on(program, tests, SANDBOX, 5.0) == reply


def test_a_program_that_does_not_end_is_stopped() -> None:
    assert verdict_on("while True:\n    pass", "", SANDBOX, 0.5).startswith(
        "wrong: the program ended"
    )


def test_bad_options() -> None:
    with pytest.raises(UnknownName, match="diseases"):
        make_agent("lookup?file=disease")
    with pytest.raises(InputError, match="needs file"):
        make_agent("lookup")
    with pytest.raises(InputError, match="greater than 0"):
        make_agent("executor?seconds=0")
