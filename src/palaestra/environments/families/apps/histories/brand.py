"""A brand's articles with known faults, its taxonomy of intents, its rules, and recorded calls.

Each product has an article about each of some topics. To some of them another one is added: a
duplicate, which says the same in other words; a contradiction, which states another value and is as
valid; or an outdated one, which states another value and is no longer valid, and so contradicts
nothing. Which is which stands in `knowledge.truth`, which no API shows. After CXMArena (Garg et al.
2025), where a model writes the articles and the noise.
"""

from __future__ import annotations

import random

from palaestra.environments.families.apps.histories.scene import Scene
from palaestra.environments.families.apps.state import Row

PRODUCTS = 8
FAULTS = ("duplicate", "contradiction", "outdated")
CALLS = 12
BREACH = 0.35  # of the rules of a call are broken
TOPICS: dict[str, tuple[tuple[int, int], tuple[tuple[str, str], ...]]] = {
    "returns": (
        (14, 60),
        (
            ("How long can the {0} be returned?", "It can be sent back within {1} days."),
            ("Sending back the {0}", "Customers have {1} days to send it back, from its delivery."),
            ("The {0}: when we take it back", "We take it back for {1} days after it arrived."),
        ),
    ),
    "warranty": (
        (6, 48),
        (
            ("How long is the warranty of the {0}?", "The warranty holds for {1} months."),
            ("Repairs of the {0} for free", "For {1} months we repair it at no cost."),
            ("If the {0} breaks", "Whatever breaks in {1} months is covered by the warranty."),
        ),
    ),
    "delivery": (
        (2, 15),
        (
            ("When does the {0} arrive?", "It arrives {1} days after it was ordered."),
            ("Delivery of the {0}", "From the order to the door it takes {1} days."),
            ("How soon do we send the {0}?", "Customers have it in their hands in {1} days."),
        ),
    ),
}
"""What articles are about: between which numbers the value lies, and titles and texts."""

QUESTIONS = {
    "returns": "After how many days is it too late to give the {0} back?",
    "warranty": "For how many months is a fault of the {0} put right free of charge?",
    "delivery": "How many days does somebody wait who has ordered the {0}?",
}
"""How customers ask about each topic."""

FILLERS = (
    "Please have the number of the order at hand.",
    "This is the same in all countries.",
    "Our shops can tell more.",
    "Nothing has to be signed.",
)
INTENTS = {
    "Orders > Delivery > Late parcel": "My {0} should have been here last week.",
    "Orders > Delivery > Damaged parcel": "The box of the {0} was crushed when it came.",
    "Orders > Delivery > Wrong address": "You are sending the {0} to where I lived before.",
    "Orders > Change > Cancel": "I do not want the {0} any more; stop the order.",
    "Orders > Change > Other quantity": "I have ordered one {0}, and I need two.",
    "Billing > Invoice > Missing": "I have no invoice for the {0}.",
    "Billing > Invoice > Wrong amount": "The invoice of the {0} is higher than its price was.",
    "Billing > Payment > Card declined": "I cannot pay for the {0}; it does not take my card.",
    "Billing > Payment > Charged twice": "The money for the {0} has left my account two times.",
    "Account > Access > Forgotten password": "I cannot recall what to type in to see my {0} order.",
    "Account > Data > Delete account": "When the {0} is here, erase all that you know about me.",
}
"""Paths of the taxonomy, with what a customer says who calls about it."""

RULES: tuple[tuple[str, str, str], ...] = (
    ("Greet with the name of the brand.", "Good morning, this is {brand}.", "Yes?"),
    ("Ask for the customer number.", "May I have your customer number?", "One moment, please."),
    (
        "Promise no money.",
        "I will look into it and write to you.",
        "I promise that you will get money for that.",
    ),
    ("Ask whether there is anything else.", "Can I do anything else for you?", "So much for that."),
    ("Thank the customer at the end.", "Thank you for calling.", "That is all then."),
)
"""Each rule, what is said where it is kept, and where it is broken."""


def knowledge(scene: Scene) -> None:
    """Write all that the brand has; the first person works there."""
    things = scene.things(PRODUCTS + 1)
    _articles(scene, things[1:])
    rng, state = scene.rng, scene.state
    intents = {path: state.insert("knowledge.intent", {"path": path}) for path in sorted(INTENTS)}
    rules = [state.insert("knowledge.rule", {"says": rule}) for rule, _, _ in RULES]
    for number in range(CALLS):
        path, brand = rng.choice(sorted(INTENTS)), things[0].title()
        broken = [rng.random() < BREACH for _ in RULES]
        said = [
            (wrong if broke else right).format(brand=brand)
            for (_, right, wrong), broke in zip(RULES, broken, strict=True)
        ]
        asked = f"{INTENTS[path].format(rng.choice(things[1:]))}"
        known = f"It is {rng.randint(10_000, 99_999)}." if not broken[1] else "Of course."
        agent, customer = ("Agent: {}".format, "Customer: {}".format)
        lines = [agent(said[0]), customer(asked), agent(said[1]), customer(known), agent(said[2])]
        lines += [agent(said[3]), customer("No."), agent(said[4])]
        row: Row = {"number": f"C-{1001 + number}", "words": "\n".join(lines)}
        call = state.insert("knowledge.call", row)
        _true(scene, "intent", call, intents[path])
        for rule, broke in zip(rules, broken, strict=True):
            if broke:
                _true(scene, "breach", call, rule)


def _articles(scene: Scene, things: list[str]) -> None:
    rng = scene.rng
    roles = {topic: _roles(at, rng) for at, topic in enumerate(TOPICS)}
    drafts = []
    for number, (thing, topic) in enumerate((t, topic) for t in things for topic in TOPICS):
        (low, high), ways = TOPICS[topic]
        role, value = roles[topic].pop(), rng.randint(low, high)
        other = rng.choice([n for n in range(low, high + 1) if n != value])
        one, two = rng.sample(ways, 2)
        drafts.append((number, role, thing, topic, one, value, "2027"))
        if role != "plain":
            again = value if role == "duplicate" else other
            year = "2025" if role == "outdated" else "2027"
            drafts.append((number, role, thing, topic, two, again, year))
    rng.shuffle(drafts)
    written: dict[int, list[int]] = {}
    owner = scene.people[0].id
    for number, _, thing, _, (title, text), value, year in drafts:
        day = f"{year}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        words = f"{text.format(thing, value)} {rng.choice(FILLERS)}"
        row: Row = {"owner": owner, "title": title.format(thing), "text": words}
        row |= {"valid_until": day, "status": "current"}
        written.setdefault(number, []).append(scene.state.insert("knowledge.article", row))
    for number, role, thing, topic, *_ in {draft[0]: draft for draft in drafts}.values():
        ids = sorted(written[number])
        _true(scene, role, ids[0], ids[-1], f"{topic} {thing}")


def _roles(topic: int, rng: random.Random) -> list[str]:
    """Draw the roles of a topic's articles, one for each product: three plain, five with faults.

    Each topic has each fault, and over all three topics there are five of each.
    """
    roles = ["plain"] * 3 + [*FAULTS] * 2
    roles.remove(FAULTS[topic])
    return rng.sample(roles, len(roles))


def _true(scene: Scene, kind: str, one: int, other: int, topic: str = "") -> None:
    row: Row = {"kind": kind, "one": one, "other": other, "topic": topic}
    scene.state.insert("knowledge.truth", row)
