"""Messages as data: a player's inbox."""

from __future__ import annotations

from palaestra.agents.direct import DirectAgent
from palaestra.agents.players import Seats
from palaestra.core.agent import Agent
from palaestra.core.mail import Mail, inbox
from palaestra.core.message import ToolCall
from palaestra.core.session import Session
from palaestra.environments.registry import make
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.test_game import play


class Talking(Agent):
    """Sends messages in its first turn, and keeps what is in its inbox at each turn."""

    name = "talking"

    def __init__(self, *sends: str | ToolCall) -> None:
        self.sends, self.inboxes = sends, list[list[Mail]]()

    async def run(self, session: Session) -> None:
        for send in self.sends:
            await session.act(send)
        while not session.over:
            self.inboxes.append(session.inbox)
            await session.act("1")


def test_a_player_has_the_messages_that_it_was_shown_in_order() -> None:
    call = ToolCall("send_message", {"to": "bob, cat", "text": "naïve"})
    ann = Talking("send_message(to='bob', text='take 2')", call)
    bob = Talking("send_message(to='cat', text='yes')")
    agents = Seats({"ann": ann, "bob": bob, "cat": DirectAgent()})
    model = ScriptedModel(lambda messages: "3")
    episode = play(make("tests.core.games:Tally?messages=all"), agents, {"agent": model})
    first = Mail(0, "all", "ann", ("bob",), "take 2", sent=0, shown=5)
    second = Mail(1, "all", "ann", ("bob", "cat"), "naïve", sent=1, shown=5)
    assert bob.inboxes == [[], [first, second], [first, second]]
    assert inbox(episode.steps, "bob") == [first, second]
    assert [mail.text for mail in inbox(episode.steps, "cat")] == ["naïve", "yes"]
    assert inbox(episode.steps, "ann") == []
