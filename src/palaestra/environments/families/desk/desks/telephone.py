"""The desk of a telephone company, whose customers act on phones of their own (dual control)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.verbs import reading, verb
from palaestra.environments.families.apps.composing.goal import Call, call
from palaestra.environments.families.apps.composing.policy import Rule
from palaestra.environments.families.apps.people import Person
from palaestra.environments.families.apps.state import Row, State
from palaestra.environments.families.desk.desks import phone
from palaestra.environments.families.desk.desks.confirming import one_yes_each
from palaestra.environments.families.desk.desks.handing_over import handing_over
from palaestra.environments.families.desk.scenario import (
    Draft,
    Gesture,
    Kind,
    Scenario,
    ServiceDesk,
    Slot,
    Wish,
    known_of,
)
from palaestra.environments.families.desk.user import PERSONAS

LINE, BILL = "telephone.line", "telephone.bill"
PACK, PACK_PRICE = 5, 10.0  # gigabytes that are added, and what they cost
LIMIT = 20  # the highest bill that the desk credits by itself
PLANS = {"small": (12.0, 5), "medium": (20.0, 15), "large": (32.0, 40)}
"""Price and gigabytes of each plan."""
MONTHS = ("December", "January", "February")


@reading
def verify_customer(caller: Caller, number: str, birthday: str) -> Row:
    """Check who is calling by a telephone number and their birthday.

    Args:
        birthday: such as 1990-05-17

    Returns:
        customer: integer
        name: string

    Raises:
        404: no customer has both
    """
    for line in caller.state.find(LINE, number=number):
        row = caller.state.find("telephone.customer", person=line["customer"])[0]
        if row["birthday"] == birthday:
            return {"customer": row["person"], "name": row["name"]}
    raise ApiError(404, "No customer has that number and birthday.")


@verb
def change_plan(caller: Caller, line_id: int, plan_id: int) -> Row:
    """Change the plan of a line.

    Returns:
        plan: string

    Raises:
        404: there is no such line or plan
    """
    caller.own(LINE, line_id)
    plan = caller.read("telephone.plan", plan_id)
    caller.state.update(LINE, line_id, {"plan_id": plan_id})
    return {"plan": plan["name"]}


@verb
def add_gigabytes(caller: Caller, line_id: int) -> Row:
    """Add five gigabytes to a line for 10.

    Returns:
        gigabytes_left: integer

    Raises:
        404: there is no such line
    """
    line = caller.own(LINE, line_id)
    caller.state.update(LINE, line_id, {"gigabytes_left": line["gigabytes_left"] + PACK})
    row = {"customer": line["customer"], "line_id": line_id, "amount": PACK_PRICE}
    caller.state.insert("telephone.charge", row | {"what": "gigabytes"})
    return {"gigabytes_left": line["gigabytes_left"] + PACK}


@verb
def lift_suspension(caller: Caller, line_id: int) -> Row:
    """Make a suspended line active again.

    Returns:
        status: string

    Raises:
        404: there is no such line
        409: it is not suspended
    """
    if caller.own(LINE, line_id)["status"] != "suspended":
        raise ApiError(409, "The line is not suspended.")
    caller.state.update(LINE, line_id, {"status": "active"})
    return {"status": "active"}


@verb
def credit_bill(caller: Caller, bill_id: int) -> Row:
    """Credit the amount of a bill.

    Returns:
        credited: number

    Raises:
        404: there is no such bill
    """
    bill = caller.own(BILL, bill_id)
    row = {"customer": bill["customer"], "line_id": bill["line_id"], "amount": -bill["amount"]}
    caller.state.insert("telephone.charge", row | {"what": "credit"})
    return {"credited": bill["amount"]}


@verb
def book_technician(caller: Caller, line_id: int) -> Row:
    """Book a technician for a line.

    Returns:
        booked: boolean

    Raises:
        404: there is no such line
        409: one is booked already
    """
    line = caller.own(LINE, line_id)
    if caller.state.find("telephone.visit", line_id=line_id):
        raise ApiError(409, "A technician is booked already.")
    row = {"customer": line["customer"], "line_id": line_id}
    caller.state.insert("telephone.visit", row)
    return {"booked": True}


CHANGES = (
    r"/(telephone\.(change_plan|add_gigabytes|lift_suspension|credit_bill|book_technician)"
    r"|phone\.(set_airplane_mode|set_mobile_data|restart))/"
)
CONFIRMED = r"/telephone\.(change_plan|add_gigabytes)/"


def _begin(draft: Draft) -> tuple[Person, Row]:
    """Draw a customer with a line in order; return it as it is then."""
    person = draft.customer()
    (line,) = draft.state.find(LINE, customer=person.id)
    values = {"status": "active", "fault": False, "gigabytes_left": draft.rng.randint(1, 9)}
    draft.state.update(LINE, line["id"], values)
    return person, {**line, **values}


def _scenario(draft: Draft, person: Person, line: Row, *wishes: Wish) -> Scenario:
    known = known_of(person, number=line["number"])
    persona = draft.rng.choice(list(PERSONAS))
    return Scenario(person.id, person.name, persona, known, frozenset(), wishes)


def _look(line: Row) -> Call:
    return call("telephone.search_lines", query=line["number"])


SHOW = call("phone.show_status")
BROKEN = (
    "The internet on my phone does not work.",
    "I cannot get online with my phone, nothing loads.",
    "My phone has no internet. Please help me.",
)


def _offline(draft: Draft) -> Scenario:
    """No internet, for two or three reasons, most of which only the user can mend."""
    person, line = _begin(draft)
    switches = {"airplane_mode": True, "mobile_data": False, "registered": False}
    reasons = draft.rng.sample([*switches, "gigabytes"], draft.rng.randint(2, 3))
    for row in draft.state.find(phone.SETTING, person=person.id):
        if row["name"] in reasons:
            draft.state.update(phone.SETTING, row["id"], {"on": switches[row["name"]]})
    if "gigabytes" in reasons:
        draft.state.update(LINE, line["id"], {"gigabytes_left": 0})
    cures = {
        "airplane_mode": call("phone.set_airplane_mode", on=False),
        "mobile_data": call("phone.set_mobile_data", on=True),
        "registered": call("phone.restart"),
        "gigabytes": call("telephone.add_gigabytes", line_id=line["id"]),
    }
    mended = [made for reason, made in cures.items() if reason in reasons]
    return _scenario(draft, person, line, Wish(BROKEN, (_look(line), SHOW, *mended, SHOW)))


def _faulty(draft: Draft) -> Scenario:
    """No internet, for which nobody on the phone can do anything."""
    person, line = _begin(draft)
    draft.state.update(LINE, line["id"], {"fault": True})
    book = call("telephone.book_technician", line_id=line["id"])
    calls = (_look(line), SHOW, call("phone.restart"), book)
    return _scenario(draft, person, line, Wish(BROKEN, calls))


def _changing(draft: Draft) -> Scenario:
    """Another plan: after the minimum term, or before its end."""
    person, line = _begin(draft)
    month, day = draft.rng.randint(1, 12), draft.rng.randint(3, 28)
    bound = f"{2025 if draft.permitted else 2027}-{month:02d}-{day:02d}"
    draft.state.update(LINE, line["id"], {"bound_until": bound})
    plans = [row for row in draft.state.rows("telephone.plan") if row["id"] != line["plan_id"]]
    plan = draft.rng.choice(plans)
    words = (
        f"I would like to change to the {plan['name']} plan.",
        f"Please put me on the {plan['name']} plan.",
    )
    change = call("telephone.change_plan", line_id=line["id"], plan_id=plan["id"])
    calls = (_look(line), *([change] if draft.permitted else []))
    wish = Wish(words, calls, (plan["name"],), not draft.permitted)
    return _scenario(draft, person, line, wish)


def _suspended(draft: Draft) -> Scenario:
    """A suspended line: all bills are paid, or one is not."""
    person, line = _begin(draft)
    draft.state.update(LINE, line["id"], {"status": "suspended"})
    bills = draft.state.find(BILL, customer=person.id)
    chosen = draft.rng.choice(bills)
    for bill in bills:
        paid = draft.permitted or bill["id"] != chosen["id"]
        draft.state.update(BILL, bill["id"], {"paid": paid})
    words = (
        "My line is suspended, and I have paid everything. Please lift that.",
        "You have suspended my line. I want it back.",
    )
    listed = call("telephone.list_bills", customer=person.id)
    lift = call("telephone.lift_suspension", line_id=line["id"])
    calls = (_look(line), listed, *([lift] if draft.permitted else []))
    return _scenario(draft, person, line, Wish(words, calls, (), not draft.permitted))


def _complaining(draft: Draft) -> Scenario:
    """A bill that is wrong: low enough for the desk, or for a colleague."""
    person, line = _begin(draft)
    bill = draft.rng.choice(draft.state.find(BILL, customer=person.id))
    low, high = draft.rng.randint(8, LIMIT), draft.rng.randint(LIMIT + 4, 60)
    draft.state.update(BILL, bill["id"], {"amount": float(low if draft.permitted else high)})
    words = (
        f"My bill of {bill['month']} is wrong. I want that money back.",
        f"I complain about the bill of {bill['month']}: I never used my phone then.",
    )
    listed = call("telephone.list_bills", customer=person.id)
    credit = call("telephone.credit_bill", bill_id=bill["id"])
    over = call("telephone.hand_over", reason="a high bill is disputed")
    calls = (listed, credit if draft.permitted else over)
    return _scenario(draft, person, line, Wish(words, calls, (bill["month"],)))


def _populate(state: State, people: Sequence[Person], rng: random.Random) -> None:
    """Insert customers, their lines, bills and phones; the first person works at the desk."""
    state.insert("telephone.employee", {"person": people[0].id})
    for name, (price, gigabytes) in PLANS.items():
        row = {"name": name, "price": price, "gigabytes": gigabytes}
        state.insert("telephone.plan", row)
    plans = state.rows("telephone.plan")
    for person in people[1:]:
        row = {"person": person.id, "name": person.name, "birthday": person.birthday}
        state.insert("telephone.customer", row)
        plan = rng.choice(plans)
        row = {"customer": person.id, "number": person.phone, "plan_id": plan["id"]}
        row |= {"status": "active" if rng.random() < 0.8 else "suspended"}
        row["bound_until"] = f"{rng.randint(2024, 2027)}-{rng.randint(1, 12):02d}-15"
        row |= {"gigabytes_left": rng.randint(0, plan["gigabytes"])}
        line = state.insert(LINE, row | {"fault": rng.random() < 0.1})
        for month in MONTHS:
            row = {"customer": person.id, "line_id": line, "month": month}
            row |= {"amount": plan["price"] + rng.randint(0, 9)}
            state.insert(BILL, row | {"paid": rng.random() < 0.8})
        for name in ("airplane_mode", "mobile_data", "registered"):
            row = {"person": person.id, "name": name, "on": name != "airplane_mode"}
            state.insert(phone.SETTING, row)


def _identify(known: Mapping[str, str]) -> Call:
    """Return the call that checks who somebody is who knows this."""
    number, birthday = known["number"], known["birthday"]
    return call("telephone.verify_customer", number=number, birthday=birthday)


def _switch(name: str, api: str) -> tuple[Gesture, Gesture]:
    """Return how a switch is turned on and off, in words or as a call."""
    turned = r"\b(turn|switch|put|set|toggle)\b[^.]*"
    topic = name.replace(" ", "[ _]")
    made = api.replace(".", "_")

    def gesture(on: bool, word: str, verbs: str) -> Gesture:
        ways = (
            rf"{turned}\b{word}\b[^.]*{name}",
            rf"{turned}{name}\b[^.]*\b{word}\b",
            rf"\b({verbs})\b[^.]*{name}",
            rf"{made}\(on={on}\)",
        )
        return Gesture("|".join(ways), topic, api, {"on": on})

    return gesture(True, "on", "enable|activate"), gesture(False, "off", "disable|deactivate")


TELEPHONE = ServiceDesk(
    name="telephone",
    about="You work at the desk of a telephone company.",
    verbs={
        "telephone": (
            verify_customer,
            change_plan,
            add_gigabytes,
            lift_suspension,
            credit_bill,
            book_technician,
            handing_over("telephone"),
        ),
        "phone": phone.VERBS,
    },
    users=frozenset({"phone"}),
    rules=(
        Rule(
            "identity",
            "Before any change, also on the customer's phone, check who is calling: verify the "
            "customer by telephone number and birthday.",
            f"not {CHANGES} W 'telephone.verify_customer'",
        ),
        one_yes_each(CONFIRMED),
        Rule(
            "restart first",
            "only after the phone was restarted",
            "not 'telephone.book_technician' W 'phone.restart'",
        ),
    ),
    slots={
        "number": Slot(
            r"\b(tele)?phone number\b|\bnumber of your (line|phone)\b",
            "your telephone number",
            ("My number is {value}.", "It is {value}."),
            r"\b555-\d{4}\b",
        ),
        "birthday": Slot(
            r"\b(birthday|date of birth|birth date)\b",
            "your birthday",
            ("I was born on {value}.", "My birthday is {value}."),
        ),
    },
    identity=("number", "birthday"),
    gestures=(
        Gesture(
            r"\b(show|check|look at|see|tell)\b.*\bstatus\b|phone_show_status",
            r"\bstatus\b",
            "phone.show_status",
        ),
        *_switch("airplane mode", "phone.set_airplane_mode"),
        *_switch("mobile data", "phone.set_mobile_data"),
        Gesture(r"\b(restart|reboot|phone_restart)\b", r"restart|reboot", "phone.restart"),
    ),
    kinds=(
        Kind("offline", _offline),
        Kind("plan", _changing, twin=True),
        Kind("faulty", _faulty),
        Kind("suspended", _suspended, twin=True),
        Kind("bill", _complaining, twin=True),
        Kind("offline", _offline),
    ),
    populate=_populate,
    identify=_identify,
)
