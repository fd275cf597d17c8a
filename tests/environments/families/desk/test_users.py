"""Users: what the program says, and how a model that plays one is audited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

import palaestra as pa
from palaestra.agents.direct import DirectAgent
from palaestra.agents.players import Seats
from palaestra.core.budget import Budget
from palaestra.core.environment import Action
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import EnvironmentFault
from palaestra.core.message import Message
from palaestra.core.outcome import Owner, Status
from palaestra.core.session import Session
from palaestra.environments.families.desk import audit
from palaestra.environments.families.desk.drawing import DESKS, drawn
from palaestra.environments.families.desk.environment import Desk
from palaestra.environments.families.desk.sides import AGENT, USER
from palaestra.environments.families.desk.user import PATIENCE, Act, Intent, Memory, Program
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.environments.families.desk.test_desk import number_of, task_of


def program(desk: str, kind: str) -> Program:
    task = task_of(desk, number_of(desk, kind))
    made = DESKS[desk]
    return Program(drawn(desk, task.seed).scenario, made.slots, made.gestures, task.seed)


NEW = Memory()  # of a user who has only opened


def act(user: Program, text: str, memory: Memory = NEW) -> Act:
    return user.intent(memory, text).act


# ── the program ──────────────────────────────────────────────────────────────


def test_users_answer_what_they_are_asked() -> None:
    user = program("orders", "cancel")
    asked = user.intent(Memory(), "What are your e-mail and your post code, please?")
    assert asked == Intent(Act.ANSWER, ("email", "postcode"))
    said = user.words(Memory(), asked, 1)
    known = user.scenario.known
    assert known["email"] in said and known["postcode"] in said
    assert user.after(Memory(), asked, said).told == ("email", "postcode")
    assert known["email"] not in user.words(Memory(), Intent(Act.ANSWER, ("postcode",)), 1)


def test_users_forget() -> None:
    user = program("orders", "move")
    asked = user.intent(Memory(), "What is the order number?")
    said = user.words(Memory(), asked, 1)
    assert asked.slots == ("order_number",) and "order number" in said
    assert not any(letter.isdigit() for letter in said)


def test_a_wish_changes_when_it_is_to_be_confirmed_and_then_no_more() -> None:
    user = program("orders", "exchange")
    assert user.scenario.change is not None
    memory = Memory()
    change = user.intent(memory, "Shall I go ahead?")
    assert change.act is Act.CHANGE
    said = user.words(memory, change, 2)
    assert user.scenario.change.facts[-1] in said
    memory = user.after(memory, change, said)
    assert user.wish(memory) is user.scenario.change
    assert act(user, "Shall I go ahead?", memory) is Act.CONFIRM


def test_users_deny_what_is_not_theirs() -> None:
    user = program("orders", "cancel")
    number = user.scenario.known["order_number"]
    other = "W1111" if number != "W1111" else "W2222"
    assert act(user, f"I will cancel order {number}. Shall I go ahead?") is Act.CONFIRM
    assert act(user, f"I will cancel order {other}. Shall I go ahead?") is Act.DENY


def test_users_come_up_with_a_second_wish_and_then_hang_up() -> None:
    user = program("orders", "move")
    assert act(user, "That is done. Is there anything else?") is Act.NEXT
    assert act(user, "That is done. Is there anything else?", Memory(wish=1)) is Act.STOP
    assert act(user, "I am sorry, I cannot do that.", Memory(wish=1)) is Act.STOP


def test_users_act_on_their_phones_one_thing_at_a_time() -> None:
    user = program("telephone", "offline")
    for text, api, arguments in (
        ("Please switch airplane mode off.", "phone.set_airplane_mode", {"on": False}),
        ("Enable your mobile data.", "phone.set_mobile_data", {"on": True}),
        ("Could you turn on mobile data?", "phone.set_mobile_data", {"on": True}),
        (
            "Please use phone_set_mobile_data(on=True) on your phone.",
            "phone.set_mobile_data",
            {"on": True},
        ),
        ("Then restart it.", "phone.restart", {}),
        ("Check the status of your phone.", "phone.show_status", {}),
    ):
        found = user.intent(Memory(), text)
        assert found.act is Act.DO and found.call is not None, text
        assert (found.call.api, dict(found.call.arguments)) == (api, arguments)
    assert act(user, "Turn airplane mode off and restart your phone.") is Act.ONE


@pytest.mark.parametrize(
    ("text", "act_of_user"),
    [
        ("Could you please give me your email and postcode so that I can find you?", Act.ANSWER),
        ("To proceed, I need your e-mail address.", Act.ANSWER),
        ("Can you confirm your postcode?", Act.ANSWER),
        ("I can cancel it for you. Would you like me to proceed?", Act.CONFIRM),
        ("Please confirm: cancel the order and refund the price.", Act.CONFIRM),
        ("Your order has been cancelled.", Act.STOP),
        ("I have now cancelled it, and refunded 39.", Act.STOP),
        ("I'm sorry, but that is not possible once it has shipped.", Act.STOP),
        ("Is there anything else I can do?", Act.STOP),
        ("Let me look at that.", Act.AGAIN),
        ("Your identity has been verified.", Act.AGAIN),
    ],
)
def test_how_messages_are_read(text: str, act_of_user: Act) -> None:
    assert act(program("orders", "cancel"), text) is act_of_user


def test_users_lose_their_patience() -> None:
    user, memory = program("hotel", "cancel"), Memory()
    for _ in range(PATIENCE - 1):
        intent = user.intent(memory, "The weather is fine.")
        assert intent.act is Act.AGAIN
        memory = user.after(memory, intent, "")
    assert act(user, "The weather is fine.", memory) is Act.STOP


def test_wordings_and_personas_vary_with_the_seed() -> None:
    ways = set()
    for count in range(0, 200, 10):  # all of them are cancellations
        task = task_of("orders", count)
        made = drawn("orders", task.seed).scenario
        seen = Desk("orders").reset(task).text
        for text in (*made.wishes[0].words, made.name):
            way = made.wishes[0].words.index(text) if text != made.name else "name"
            seen = seen.replace(text, f"<{way}>")
        ways.add(seen)
    assert len(ways) > 6  # of 4 personas, 2 greetings and 2 wordings


# ── a model as the user ──────────────────────────────────────────────────────


def test_what_the_program_says_is_no_fault() -> None:
    for desk in DESKS:
        env = Desk(f"{desk}:users")
        for number in range(12):
            env.reset(task_of(f"{desk}:users", number))
            assert [env.step(action) for action in env.oracle()][-1].success


def opened(kind: str = "cancel", desk: str = "orders") -> Desk:
    """Return a conversation with a user as a player, before the user has spoken."""
    env = Desk(f"{desk}:users")
    env.reset(task_of(f"{desk}:users", number_of(desk, kind)))
    return env


def number(env: Desk) -> str:
    return env.drawn.scenario.known["order_number"]


LIES: list[tuple[str, Callable[[Desk], list[str]], str]] = [
    ("invents", lambda e: ["Please cancel my order W000111."], "invented 'w000111'"),
    (
        "invents what it forgot",
        lambda e: [f"Cancel {number(e)}.", "Your email?", "It is someone@else.example."],
        "invented 'someone@else.example'",
    ),
    (
        "tells too early",
        lambda e: [f"Cancel order {number(e)}. I am {e.drawn.scenario.known['email']}."],
        "before it was due",
    ),
    (
        "stops too soon",
        lambda e: [f"Cancel order {number(e)}.", "Your email?", "hang_up()"],
        "hung up too soon",
    ),
    (
        "declines its wish",
        lambda e: [f"Cancel order {number(e)}.", "Shall I go ahead?", "No, do not."],
        "declined what they want",
    ),
    (
        "holds back",
        lambda e: ["Cancel my order.", "I am sorry, I cannot do that.", "hang_up()"],
        "never told",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("what", "moves", "fault"), LIES, ids=[lie[0] for lie in LIES])
def test_a_user_who_lies_is_the_environments_fault(what, moves, fault) -> None:
    env = opened()
    *before, last = moves(env)
    for text in before:
        assert env.step(Action(text)).valid
    with pytest.raises(EnvironmentFault, match=fault) as found:
        env.step(Action(last))
    assert found.value.kind == "user"


def test_a_user_may_hold_back_for_a_while_and_say_it_in_other_words() -> None:
    env = opened()
    known = env.drawn.scenario.known
    for text in (
        "Good morning! I have a problem with an order.",
        "Which order number is it?",
        f"The one called {known['order_number']}; I want it cancelled.",
        "And your email address?",
        f"Of course, that would be {known['email'].upper()}.",
    ):
        assert env.step(Action(text)).valid
    assert set(env.memory.told) >= {"order_number", "email"}


def test_a_user_who_agrees_to_what_they_do_not_want_or_acts_unasked_is_at_fault() -> None:
    env = opened("exchange")
    env.step(Action(" ".join(env.drawn.scenario.wishes[0].words)))
    env.step(Action("Shall I go ahead?"))
    with pytest.raises(EnvironmentFault, match="agreed to what they do not want"):
        env.step(Action("Yes, go ahead."))
    env = opened("offline", "telephone")
    assert env.step(Action("phone_show_status()")).valid
    env.step(Action("I have no internet."))
    env.step(Action("Please disable airplane mode and restart your phone."))
    assert env.step(Action("phone_set_airplane_mode(on=False)")).valid
    assert env.step(Action("phone_restart()")).valid
    env.step(Action("I did both."))
    env.step(Action("Good."))
    with pytest.raises(EnvironmentFault, match="nobody asked for"):
        env.step(Action("phone_restart()"))


def test_dates_may_be_said_in_many_ways() -> None:
    user = program("hotel", "cancel")
    year, month, day = user.scenario.known["birthday"].split("-")
    asked = Intent(Act.ANSWER, ("birthday",))
    said = f"On {day}/{month}/{year}."
    assert audit.fault_of_message(user, NEW, asked, said, "Your birthday?", []) is None


def conversation(user: Callable[[Sequence[Message]], str]) -> Episode:
    """Run an episode in which a script plays the agent, and another one the user."""
    task = task_of("orders:users", number_of("orders", "cancel"))
    agent = ScriptedModel(lambda messages: "May I have your email address?")
    session = Session(
        Key("desk", 0, 0),
        task,
        LocalEnvironment(Desk("orders:users")),
        Seats({AGENT: DirectAgent(), USER: DirectAgent()}),
        {AGENT: agent, USER: ScriptedModel(user)},
        budget=Budget(turns=12),
    )
    return asyncio.run(session.run())


def test_an_episode_with_a_lying_user_has_no_valid_result() -> None:
    episode = conversation(lambda messages: "My order is W000111.")
    outcome = episode.outcome
    assert (outcome.status, outcome.kind, outcome.owner) == (
        Status.ERROR,
        "user",
        Owner.ENVIRONMENT,
    )
    assert not outcome.scored and "W000111".lower() in outcome.detail


def test_an_expert_and_the_program_talk_through_the_front_door(tmp_path) -> None:
    results = pa.evaluate(
        ["desk/telephone", "desk/hotel:users"],
        model="expert",
        n=3,
        run=tmp_path / "run",
        workers=0,
        progress=False,
    )
    assert results.complete and results.excluded == 0
    assert results.success == 1.0
