"""Messages between players: delivered once, exactly repeatable, and refused in words."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.rare_capabilities import acting_in, observed_by, signals_of
from palaestra.core.session import Session
from palaestra.core.task import Split, TaskSet
from palaestra.environments.channels.channel_file import Board, Channel, Channels
from palaestra.environments.channels.post import Post, Refused
from palaestra.environments.channels.talking import Messages
from palaestra.environments.registry import make, spec
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.core.games import Tally
from tests.core.test_game import same, seated

TALLY = "tests.core.games:Tally"
PLAYERS = ("ann", "bob", "cat")
TASK = TaskSet("game").task(Split.TRAIN, 0)


def post(**channels: Channel) -> Post:
    boards = {"plan": Board(), "locked": Board(writers=("ann",), readers=("ann",), length=3)}
    return Post(Channels(channels=channels or {"all": Channel()}, boards=boards), PLAYERS, 7)


def talking(value: str = "all") -> Messages:
    environment = Messages(Tally(), value)
    environment.reset(TASK)
    return environment


def say(to: str, text: str, **more: Any) -> Action:
    call = ToolCall("send_message", {"to": to, "text": text, **more})
    return Action(str(call), call)


def test_a_message_is_shown_once_at_the_beginning_of_the_recipients_next_turn() -> None:
    world = talking()
    sent = world.step(say("bob", "take 2"))
    assert sent.valid and sent.observation.text == "Sent to bob."
    assert sent.info == {"message": 0, "channel": "all", "to": ["bob"], "bytes": 6}
    assert acting_in(world) == PLAYERS  # it was no move
    assert "take 2" not in observed_by(world, "bob").text  # whose turn had begun
    for move in ("1", "2"):
        world.step(Action(move))
    last = world.step(Action("3"))
    assert last.info["shown"] == {"bob": [0]}
    assert "[all] ann to you: take 2" in observed_by(world, "bob").text
    assert "take 2" not in observed_by(world, "cat").text
    for move in ("1", "2", "3"):
        world.step(Action(move))
    assert "take 2" not in observed_by(world, "bob").text


def test_text_and_act_are_understood_where_actions_are_text() -> None:
    world = talking()
    assert world.step(Action("send_message(to='all', text='hi')")).valid
    assert world.step(Action("act(action='1')", ToolCall("act", {"action": "1"}))).valid
    assert acting_in(world) == ("bob", "cat")
    assert [tool.name for tool in world.tools] == ["act", "send_message"]


@pytest.mark.parametrize(
    ("action", "answer"),
    [
        (say("dan", "hi"), "'dan' does not read 'all'; its readers are bob, cat."),
        (say("ann", "hi"), "'ann' does not read 'all'"),
        (say("bob", " "), "The message is empty."),
        (say("bob", "x" * 2001), "The message has 2001 characters; 2000 are allowed."),
        (say("bob", "hi", channel="radio"), "You may not write to 'radio'; your channels: all."),
        (Action("send_message(hello"), "send_message needs the argument 'to'."),
    ],
)
def test_a_message_that_cannot_be_sent_is_refused_in_words(action: Action, answer: str) -> None:
    world = talking()
    before = signals_of(world)
    refused = world.step(action)
    assert not refused.valid and refused.observation.text.startswith(answer)
    assert signals_of(world) == before


def test_a_player_talks_only_so_often_in_a_turn() -> None:
    world = talking()
    for number in range(4):
        assert world.step(say("bob", str(number))).valid
    assert world.step(say("bob", "more")).observation.text == (
        "You have talked 4 times in this turn; make a move now."
    )
    assert world.step(Action("1")).valid and world.step(say("ann", "mine")).valid


def test_channels_delay_lose_limit_and_shuffle() -> None:
    late = post(slow=Channel(delay=2))
    late.send("ann", "all", "hello", now=0)
    assert late.take("bob", 1) == [] and [x.text for x in late.take("bob", 2)] == ["hello"]
    assert late.take("bob", 3) == []
    small = post(small=Channel(capacity=1))
    small.send("ann", "bob", "one", now=0)
    with pytest.raises(Refused, match="'small' is full for bob: 1 messages wait"):
        small.send("cat", "bob", "two", now=0)
    lossy = post(radio=Channel(loss=0.5))
    for number in range(200):
        lossy.send("ann", "bob", str(number), now=0)
    arrived = [letter.text for letter in lossy.take("bob", 0)]
    assert 70 < len(arrived) < 130 and arrived == sorted(arrived, key=int)
    mixed = post(mixed=Channel(order="random"))
    for number in range(20):
        mixed.send("ann", "bob", str(number), now=0)
    shown = [letter.text for letter in mixed.take("bob", 0)]
    assert sorted(shown, key=int) == [*map(str, range(20))] != shown


def test_a_schema_is_kept() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    typed = post(typed=Channel(content=schema))
    with pytest.raises(Refused, match="The message must be JSON of this schema"):
        typed.send("ann", "bob", "hello", now=0)
    typed.send("ann", "bob", '{"x": 3}', now=0)


def test_conflicting_writes_to_a_board_are_answered_in_words() -> None:
    shared = post()
    assert shared.write("ann", "plan", "goal", "box", None) == 1
    assert shared.write("bob", "plan", "goal", "ball", 1) == 2
    with pytest.raises(Refused, match=r"not at version 1: bob wrote version 2; read it first\."):
        shared.write("ann", "plan", "goal", "key", 1)
    assert shared.read("cat", "plan") == "goal (version 2, bob): ball"
    with pytest.raises(Refused, match="You may not read 'locked'; your boards: plan"):
        shared.read("bob", "locked")
    with pytest.raises(Refused, match="The value has 4 characters; 'locked' takes 3"):
        shared.write("ann", "locked", "k", "long", None)


events = st.lists(
    st.tuples(st.sampled_from(["send", "take", "write"]), st.sampled_from(PLAYERS)), max_size=30
)


@given(events, st.integers(0, 3), st.sampled_from([0.0, 0.4]))
def test_each_message_reaches_each_recipient_at_most_once(
    happens: list[tuple[str, str]], delay: int, loss: float
) -> None:
    """Without loss exactly once, if all look at the end; also where it is saved and restored."""
    shared = post(c=Channel(delay=delay, loss=loss))
    seen: list[tuple[int, str]] = []
    wanted: list[tuple[int, str]] = []
    for now, (what, player) in enumerate(happens):
        if what == "send":
            number, to = shared.send(player, "all", f"at {now}", now)
            wanted += [(number, one) for one in to]
        elif what == "write":
            shared.write(player, "plan", "k", str(now), None)
        else:
            seen += [(x.number, x.recipient) for x in shared.take(player, now)]
        again = post(c=Channel(delay=delay, loss=loss))
        again.restore(json.loads(json.dumps(shared.saved())))
        assert again.saved() == shared.saved()
        shared = again
    for player in PLAYERS:
        seen += [(x.number, x.recipient) for x in shared.take(player, len(happens) + delay)]
    assert len(set(seen)) == len(seen) and set(seen) <= set(wanted)
    assert loss > 0 or sorted(seen) == sorted(wanted)
    assert not any(shared.waiting.values())


def test_mail_is_part_of_state_keys_and_snapshots() -> None:
    world = talking()
    key = world.state_key()
    world.step(say("cat", "later"))
    assert world.state_key() != key
    other = Messages(Tally(), "all")
    other.restore(world.snapshot())
    assert other.state_key() == world.state_key()
    for each in (world, other):
        for move in ("1", "2", "3"):
            each.step(Action(move))
    assert observed_by(world, "cat") == observed_by(other, "cat")
    assert "later" in observed_by(other, "cat").text


class Chatting(Agent):
    """Tells all others its move before it makes it."""

    name = "chatting"

    def __init__(self, move: str) -> None:
        self.move = move
        self.seen: list[str] = []

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        self.seen.append(session.observation.text)
        while not session.over:
            told = await session.act(say("all", f"I take {self.move}"))
            assert told.observation.text.startswith("Sent to")
            self.seen.append((await session.act(self.move)).observation.text)


def test_agents_of_a_session_talk_and_the_record_has_each_message() -> None:
    agents = {name: Chatting(str(n + 1)) for n, name in enumerate(PLAYERS)}

    def once() -> Episode:
        environment = LocalEnvironment(Messages(Tally(), "all"))
        models = {"agent": ScriptedModel([])}
        session = Session(Key("test", 0), TASK, environment, seated(**agents), models)
        return asyncio.run(session.run())

    episode = once()
    assert len(episode.steps) == 18 and episode.results == {"ann": 3.0, "bob": 6.0, "cat": 9.0}
    second = agents["ann"].seen[1]
    assert "[all] bob to you (and 1 more): I take 2" in second and "I take 1" not in second
    messages = [s for s in episode.steps if "message" in s.transition.info]
    assert [s.transition.info["message"] for s in messages] == list(range(9))
    assert same(once()) == same(episode)


def test_a_file_declares_channels_and_boards(tmp_path: Path) -> None:
    file = tmp_path / "talk.toml"
    file.write_text('[channels.up]\nwriters = ["bob"]\nreaders = ["ann"]\n[boards.plan]\n')
    world = make(f"{TALLY}?messages={file}")
    world.reset(TASK)
    assert "(channels: up; boards: plan)" in world.instructions
    assert not world.step(say("bob", "hi")).valid
    assert world.step(Action("1")).valid and world.step(say("ann", "hi")).valid


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "declares no channel and no board"),
        ("[channels.a]\ncapacity = 0\n", "'channels.a.capacity': Input should be greater"),
        ('[channels.a]\nwriters = ["dan"]\n', "'a' names 'dan', who does not play"),
        ("[channels", "is no TOML"),
        ("[channels.a]\nspeed = 3\n", "'channels.a.speed': Extra inputs are not permitted"),
    ],
)
def test_a_bad_file_is_refused_in_a_sentence(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "talk.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=error):
        spec(f"{TALLY}?messages={file}")


def test_one_player_has_nobody_to_talk_to() -> None:
    with pytest.raises(InputError, match="needs several players"):
        spec("probe/umbrella-4?messages=all")
    with pytest.raises(InputError, match="cannot be read"):
        spec(f"{TALLY}?messages=missing.toml")
