"""Apps that nobody wrote: blueprints drawn by a seed, for the split "new-world".

Their names of apps, entities and fields are unlike those of the stock apps, and are chosen so that
what a field holds can be understood. What is drawn is a TOML text as a person could have written
it, and it is parsed as such. The text of seed 3:

    app = "shelter_keeper"
    about = "The cats of a shelter."
    changes_per_minute = 20

    [entities.cat]
    about = "A cat of the shelter."
    owner = "owner"
    unique = [["nickname"]]
    moves.approval = {draft = ["checked"], checked = ["signed", "draft"]}
    search = ["nickname", "corner"]
    fields.owner = {type = "person", by = "service"}
    fields.nickname = {type = "text", least = 1, most = 60}
    fields.rescued = "date"
    fields.tame = {type = "boolean", default = false}
    fields.approval = {type = "choice", choices = ["draft", "checked", "signed"], default = "draft"}
    fields.season = {type = "choice", choices = ["spring", "summer", "autumn", "winter"]}
    fields.corner = {type = "text", most = 60}
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from itertools import pairwise

from palaestra.environments.families.apps.app import App
from palaestra.environments.families.apps.compiler.blueprint import parse

DOMAINS = {
    "apiary": ("hive swarm frame", {"queen_age": "years", "honey": "weight"}),
    "aquarium": ("turtle tank pump", {"fed": "day", "species": "words"}),
    "archive": ("document folder scan", {"century": "rating", "restored": "flag"}),
    "bakery": ("bun recipe oven", {"baked": "day", "flour": "weight"}),
    "brewery": ("brew barrel yeast", {"bitterness": "rating", "bottled": "day"}),
    "campsite": ("pitch tent booking", {"arrives": "day", "shaded": "flag"}),
    "choir": ("song singer rehearsal", {"composer": "words", "sung": "day"}),
    "cinema": ("film screening reel", {"director": "words", "dubbed": "flag"}),
    "clinic": ("patient visit treatment", {"seen": "moment", "insured": "flag"}),
    "dairy": ("cheese cow milking", {"ripened": "day", "fat": "rating"}),
    "expedition": ("camp route tent", {"altitude": "count", "reached": "day"}),
    "farm": ("field crop tractor", {"sown": "day", "irrigated": "flag"}),
    "ferry": ("crossing cabin vessel", {"departs": "moment", "deck": "rating"}),
    "forestry": ("tree stand felling", {"planted": "day", "protected": "flag"}),
    "foundry": ("casting mould alloy", {"poured": "day", "melting_point": "count"}),
    "gallery": ("painting exhibit frame", {"painter": "words", "hung": "day"}),
    "garden": ("plant harvest bed", {"watered": "day", "sunny": "flag"}),
    "greenhouse": ("seedling tray vent", {"sprouted": "day", "heated": "flag"}),
    "herbarium": ("specimen sheet drawer", {"family_name": "words", "pressed": "day"}),
    "hostel": ("dormitory guest locker", {"arrives": "day", "quiet": "flag"}),
    "kennel": ("dog walk collar", {"breed": "words", "vaccinated": "day"}),
    "laboratory": ("sample experiment reagent", {"measured": "moment", "toxic": "flag"}),
    "laundry": ("load garment machine", {"washed": "moment", "delicate": "flag"}),
    "lending": ("gadget loan pledge", {"lent_to": "address", "due": "day"}),
    "lighthouse": ("signal inspection lamp", {"inspected": "day", "range_miles": "count"}),
    "marina": ("boat berth mooring", {"moored": "day", "length": "count"}),
    "museum": ("exhibit tour donor", {"donated": "day", "on_display": "flag"}),
    "observatory": ("star observation telescope", {"observed": "moment", "brightness": "rating"}),
    "orchard": ("apple_tree picking ladder", {"pruned": "day", "yield_kilos": "weight"}),
    "orchestra": ("instrument musician concert", {"tuned": "day", "section": "words"}),
    "pottery": ("vase glaze firing", {"fired": "day", "cracked": "flag"}),
    "printing": ("poster print_run plate", {"printed": "day", "copies": "count"}),
    "quarry": ("block blast crane", {"cut": "day", "hardness": "rating"}),
    "repair": ("device fault spare_part", {"opened": "day", "covered": "flag"}),
    "sawmill": ("log plank blade", {"sawn": "day", "knots": "count"}),
    "shelter": ("cat adoption cage", {"rescued": "day", "tame": "flag"}),
    "stable": ("horse ride saddle", {"shod": "day", "breed": "words"}),
    "theatre": ("play rehearsal costume", {"author": "words", "premiere": "day"}),
    "vineyard": ("vine vintage cask", {"pressed": "day", "sweetness": "rating"}),
    "workshop": ("bench_tool project jig", {"sharpened": "day", "borrowed": "flag"}),
}  # fmt: skip
"""What an app may be about: its entities, and fields that only the first of them has."""

SUFFIXES = ("", "_book", "_desk", "_keeper", "_ledger", "_log", "_planner")

KINDS = {
    "words": '{type = "text", most = 60}',
    "flag": '{type = "boolean", default = false}',
    "day": '"date"',
    "moment": '"time"',
    "count": '{type = "integer", least = 0, most = 500}',
    "weight": '{type = "money", least = 0, most = 1000, about = "in kilograms"}',
    "years": '{type = "integer", least = 0, most = 120, about = "in years"}',
    "rating": '{type = "integer", least = 1, most = 10}',
    "price": '{type = "money", least = 0, most = 5000}',
    "address": '"email"',
    "number": '"phone"',
    "prose": '{type = "text", default = "", free = true}',
}
"""The kinds of fields, and how each is declared."""

COMMON = {
    "keeper": "address",
    "helper": "address",
    "hotline": "number",
    "origin": "words",
    "maker": "words",
    "corner": "words",
    "remark": "prose",
    "worth": "price",
    "deposit": "price",
    "upkeep": "price",
    "pieces": "count",
    "age": "years",
    "heft": "weight",
    "quality": "rating",
    "difficulty": "rating",
    "fragile": "flag",
    "rare": "flag",
    "favourite": "flag",
    "cleaned": "day",
    "acquired": "day",
    "next_check": "moment",
}
"""Fields that suit any entity."""

CHOICES = {
    "size": ("small", "medium", "large"),
    "colour": ("red", "green", "blue", "white", "black"),
    "season": ("spring", "summer", "autumn", "winter"),
    "urgency": ("low", "normal", "high"),
    "shape": ("round", "square", "long"),
    "side": ("left", "right", "middle"),
}

LIVES = {
    "stage": ("planned", "started", "finished"),
    "condition": ("sound", "damaged", "mended"),
    "approval": ("draft", "checked", "signed"),
    "whereabouts": ("stored", "lent", "returned"),
    "progress": ("waiting", "running", "paused", "done"),
}
"""Fields with lawful changes: from each state to the next, from the second also to the first."""

TITLES = ("label", "title", "nickname", "caption")


def generated_app(seed: int) -> App:
    """Return the app that a seed gives; different seeds hardly ever give the same."""
    text = blueprint_text(seed)
    return App(parse(text, f"the generated app {seed}"))


def blueprint_text(seed: int, domains: Sequence[str] = tuple(DOMAINS)) -> str:
    """Return the TOML text of one or two entities; the second refers to the first.

    Args:
        seed: what is drawn.
        domains: what it may be about, of `DOMAINS`.
    """
    rng = random.Random(f"app {seed}")
    domain = rng.choice(domains)
    nouns, special = DOMAINS[domain]
    main, *others = nouns.split()
    entities = [main, rng.choice(others)] if rng.random() < 0.7 else [main]
    plural = " and ".join(f"{_words(entity)}s" for entity in entities)
    lines = [
        f'app = "{domain}{rng.choice(SUFFIXES)}"',
        f'about = "The {plural} of {_with_article(domain)}."',
    ]
    if rng.random() < 0.5:
        lines.append(f"changes_per_minute = {rng.choice((10, 20, 30))}")
    own = dict(rng.sample(list(special.items()), rng.randint(1, 2)))
    for entity in entities:
        lines += ["", f"[entities.{entity}]"]
        lines += [f'about = "{_with_article(entity).capitalize()} of the {domain}."']
        lines += _entity(rng, own, []) if entity == main else _entity(rng, {}, [main])
    return "\n".join(lines) + "\n"


def _entity(rng: random.Random, special: Mapping[str, str], refers: list[str]) -> list[str]:
    """Return the lines of an entity of 4 to 7 fields beside its owner."""
    title = rng.choice(TITLES)
    fields = {title: '{type = "text", least = 1, most = 60}'}
    fields |= {name: KINDS[kind] for name, kind in special.items()}
    fields |= {f"{target}_id": f'{{type = "integer", refers = "{target}"}}' for target in refers}
    head = ['owner = "owner"']
    if rng.random() < 0.7:
        head.append(f'unique = [["{title}"]]')
    if rng.random() < 0.7 and not refers:
        life = rng.choice(list(LIVES))
        states = LIVES[life]
        moves = {state: [after] for state, after in pairwise(states)}
        moves[states[1]].append(states[0])
        inner = ", ".join(f"{state} = {_listed(to)}" for state, to in moves.items())
        head.append(f"moves.{life} = {{{inner}}}")
        fields[life] = f'{{type = "choice", choices = {_listed(states)}, default = "{states[0]}"}}'
    if rng.random() < 0.4:
        fields["recorded"] = '{type = "time", by = "service"}'
    choice = rng.choice(list(CHOICES))
    fields[choice] = f'{{type = "choice", choices = {_listed(CHOICES[choice])}}}'
    wanted = max(rng.randint(4, 7), len(fields) + 1)
    common = rng.sample(list(COMMON), wanted - len(fields))
    fields |= {name: KINDS[COMMON[name]] for name in common}
    searched = [title, *(name for name in fields if name in common and COMMON[name] == "words")]
    head.append(f"search = {_listed(searched)}")
    if rng.random() < 0.3:
        head.append(f"most = {rng.choice((20, 50, 100))}")
    owner = 'fields.owner = {type = "person", by = "service"}'
    return [*head, owner, *(f"fields.{name} = {declared}" for name, declared in fields.items())]


def _listed(words: Sequence[str]) -> str:
    """Return words as a list in TOML."""
    return json.dumps(list(words))


def _words(name: str) -> str:
    return name.replace("_", " ")


def _with_article(name: str) -> str:
    words = _words(name)
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"
