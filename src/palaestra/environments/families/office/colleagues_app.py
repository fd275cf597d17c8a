"""The app `colleagues`: whom an assistant can ask, what these know, and how they answer.

One verb, `ask`, passes a message to a colleague and returns the reply of their program
(`colleague.py`). What a colleague does for somebody is done in their own name, by the APIs of the
other apps, and counts as a change that the agent has caused. What is said is kept in rows that
count as nobody's change, so it is part of the state, its key and its snapshots.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from importlib.resources import files

from palaestra.environments.families.apps.app import App
from palaestra.environments.families.apps.compiler.api import Api, ApiError, Caller
from palaestra.environments.families.apps.compiler.blueprint import parse
from palaestra.environments.families.apps.compiler.verbs import Verb, verb
from palaestra.environments.families.apps.composing.goal import Call
from palaestra.environments.families.apps.histories.scene import FACTS, Scene
from palaestra.environments.families.apps.state import Row, State
from palaestra.environments.families.desk.user import Act, Intent, Memory
from palaestra.environments.families.office.colleague import Colleague, Fact, Part
from palaestra.environments.families.office.favours import TICKET, favours

NAME = "colleagues"
COLLEAGUE, FACT = "colleagues.colleague", "colleagues.fact"
OPINION, EXCHANGE = "colleagues.opinion", "colleagues.exchange"
ASK = "colleagues.ask"
LONGEST = 2_000  # characters of a message
KNOWN = 2  # facts about each duty that a colleague knows from the beginning


def colleagues_app(others: Iterable[App]) -> App:
    """Return the app, whose colleagues act by the APIs of some other apps."""
    text = (files(__package__) / "colleagues.toml").read_text()
    apis = {api.full_name: api for app in others for api in app.apis.values()}
    return App(parse(text, "colleagues.toml"), (asking(apis),), write_history)


def asking(apis: Mapping[str, Api]) -> Verb:
    """Return the verb by which colleagues are asked, who act by these APIs."""

    @verb
    def ask(call: Caller, email: str, message: str) -> dict[str, str]:
        """Ask a colleague something, or to do what only they may do; they reply.

        Args:
            email: the address of the colleague
            message: about one thing

        Returns:
            reply: string

        Raises:
            404: no colleague of yours has that address
        """
        who = addressed(call, email, message)
        colleague, memory = present_part(call.state, call.person, who["owner"], message)
        intent, exchange = open_exchange(call, who, message)
        if intent.call is not None:
            output = act_as(call, who["owner"], intent.call, apis)
            note_output(call.state, exchange, output, acted=not output)
            intent = Intent(Act.REPORT, output=output)
        turn = number_of_exchanges(call.state, call.person, who["owner"])
        reply = colleague.words(memory, intent, turn)
        close_exchange(call.state, exchange, reply)
        return {"reply": reply}

    return ask


def addressed(call: Caller, email: str, message: str) -> Row:
    """Return the colleague to whom a message goes; raises ApiError 404 or 422."""
    found = call.state.find(COLLEAGUE, email=email)
    if not found or found[0]["owner"] == call.person:
        raise ApiError(404, f"No colleague of yours has the address '{email}'.")
    if not message.strip() or len(message) > LONGEST:
        raise ApiError(422, f"A message has 1 to {LONGEST} characters.")
    return found[0]


def present_part(
    state: State, asker: int, colleague: int, message: str
) -> tuple[Colleague, Memory]:
    """Return a colleague's program for somebody's message, and what it has said to them before."""
    person, me = (state.get("supervisor.person", id) or {} for id in (colleague, asker))
    rows = state.find(FACT, owner=colleague)
    fields = ("what", "topic", "value", "knows", "proof", "proof_label", "ticket")
    before = [one for one in exchanges(state, asker, colleague) if one["reply"]]
    program = Colleague(
        Part(
            colleague,
            str(person["name"]),
            tuple(Fact(*(row[field] for field in fields)) for row in rows),
            {one["subject"]: one["agrees"] for one in state.find(OPINION, owner=colleague)},
            tuple(favours(state, colleague, message)),
            frozenset(one["title"] for one in state.find(TICKET, assignee=me["email"])),
            tuple(one["message"] for one in before),
        )
    )
    memory = Memory()
    for one in before:
        memory = program.after(memory, Intent(Act.ANSWER), one["reply"])
    return program, memory


def exchanges(state: State, asker: int, colleague: int) -> list[Row]:
    """Return what somebody has asked a colleague, in its order."""
    return state.find(EXCHANGE, owner=colleague, asker=asker)


def number_of_exchanges(state: State, asker: int, colleague: int) -> int:
    return len(exchanges(state, asker, colleague))


def open_exchange(call: Caller, who: Row, message: str) -> tuple[Intent, int]:
    """Note a message to a colleague; return what their program would do, and the row's id."""
    program, memory = present_part(call.state, call.person, who["owner"], message)
    intent = program.intent(memory, message)
    due = "\n".join(intent.slots) if intent.call is None else written_call(intent.call)
    row: Row = {"owner": who["owner"], "asker": call.person, "message": message, "due": due}
    row |= {"output": "", "acted": False, "reply": ""}
    number = len(call.state.rows(EXCHANGE))
    with call.state.happening(f"exchange {number}"):
        return intent, call.state.insert(EXCHANGE, row)


def written_call(call: Call) -> str:
    return f"{call.api}({json.dumps(dict(call.arguments), sort_keys=True)})"


def note_output(state: State, exchange: int, output: str, acted: bool) -> None:
    """Note what a call that a colleague made for somebody has answered."""
    row = state.get(EXCHANGE, exchange) or {}
    changed = {"output": f"{row['output']}\n{output}", "acted": row["acted"] or acted}
    with state.happening(f"exchange {exchange}"):
        state.update(EXCHANGE, exchange, changed)


def close_exchange(state: State, exchange: int, reply: str) -> None:
    """Note a colleague's reply."""
    with state.happening(f"exchange {exchange}"):
        state.update(EXCHANGE, exchange, {"reply": reply})


def act_as(call: Caller, colleague: int, made: Call, apis: Mapping[str, Api]) -> str:
    """Make a call as a colleague; return why it was refused, or nothing."""
    person = Caller(call.state, call.blueprints, colleague, call.now, call.advance)
    try:
        apis[made.api].run(person, made.arguments)
    except ApiError as error:
        return error.message
    return ""


def write_history(scene: Scene) -> None:
    """Write who the colleagues are, what each of them looks after, and some of what they know."""
    rng, state = scene.rng, scene.state
    staff = scene.staff()
    duties = _dealt(list(FACTS), len(staff) - 1, rng)
    things = iter(scene.things(KNOWN * len(FACTS)))
    for person, own in zip(staff[1:], duties, strict=True):
        row: Row = {"owner": person.id, "name": person.name, "email": person.email}
        state.insert(COLLEAGUE, row | {"duties": ", ".join(own)})
        for what in own:
            low, high = FACTS[what]
            for _ in range(KNOWN):
                value = str(rng.randint(max(low, 10), high))
                state.insert(FACT, fact_row(person.id, Fact(what, next(things), value)))


def fact_row(colleague: int, fact: Fact) -> Row:
    """Return the row of what a colleague knows."""
    row: Row = {"owner": colleague, "what": fact.what, "topic": fact.topic, "value": fact.value}
    row |= {"knows": fact.knows, "proof": fact.proof, "proof_label": fact.proof_label}
    return row | {"ticket": fact.ticket}


def _dealt(items: list[str], hands: int, rng: random.Random) -> list[list[str]]:
    """Deal items out in a random order."""
    rng.shuffle(items)
    return [items[start::hands] for start in range(hands)]
