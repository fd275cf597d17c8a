"""The program that counts a simulated user's mistakes counts those that were planted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from palaestra.core.environment import Action

pytest.importorskip("inspect_ai", reason="needs inspect-ai")
pytest.importorskip("inspect_evals", reason="needs inspect-evals")

from palaestra.core.task import Split
from palaestra.environments.families.tau2.environment import Tau2
from palaestra.environments.families.tau2.user import STOP
from scripts.user_simulators import Conversation, Scripted, Talk, identifiers


class Planted:
    """A user who says given things, whatever the agent says."""

    def __init__(self, *replies: str) -> None:
        self._replies: Iterator[str] = iter(replies)

    async def reply(self, seen: str) -> Action:
        return Action(next(self._replies))


def held(domain: str, *replies: str, number: int = 0) -> Conversation:
    talk = Talk(domain, Tau2.tasks(f"tau2/{domain}:users").task(Split.TEST, number))
    player = Planted(*replies) if replies else Scripted(talk.desk)
    return asyncio.run(talk.hold(player))  # type: ignore[arg-type]


@pytest.mark.parametrize("domain", ["airline", "retail", "telecom"])
def test_a_user_who_follows_the_scenario_makes_no_mistake(domain: str) -> None:
    found = held(domain)
    assert found.solved and found.ended and not found.early
    assert found.stated == found.facts and found.done == found.asked
    assert not (found.invented or found.as_agent or found.refused)
    assert domain != "telecom" or found.asked > 0


def test_an_early_end_is_counted_and_fails() -> None:
    found = held("retail", "Hello.", STOP)
    assert found.early and not found.solved and not found.stated


def test_a_user_without_an_end_is_counted() -> None:
    found = held("retail", *["I am here."] * 50)
    assert not found.ended and not found.solved and found.messages > 3


def test_invented_identifiers_and_the_words_of_an_agent_are_counted() -> None:
    found = held("retail", "My order is #W9999999.", "How can I help you?", "Zip 28236.", STOP)
    assert found.invented == ["w9999999"] and found.as_agent == 1
    assert "28236" in found.stated


def test_a_call_that_was_not_asked_for_is_not_counted_as_done() -> None:
    right = held("telecom")
    wrong = held("telecom", *["check_vpn_status()", "Done."] * 40)
    assert right.done == right.asked > 0 and wrong.done < wrong.asked


def test_identifiers_are_addresses_and_words_with_three_digits() -> None:
    text = "I am mei_kovacs_8020 (a.b@example.com, #W0123456), 2 lamps, 19.99 dollars, 28236."
    assert identifiers(text) == ["mei_kovacs_8020", "a.b@example.com", "w0123456", "28236"]
