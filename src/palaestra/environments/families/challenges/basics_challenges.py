"""Challenges of browser basics: tabs, dialogs, frames, shadow trees, pop-ups, history, menus."""

from __future__ import annotations

import random
from collections.abc import Mapping

from palaestra.environments.families.challenges.challenge import Challenge, Maker, equals
from palaestra.environments.families.challenges.vocabulary import COLOURS, WORDS, token


def second_tab(rng: random.Random) -> Challenge:
    word = token(rng)
    return Challenge(
        "Open the note, which has a tab of its own, and type its word into the field on this page.",
        ("click 'Open the note'", "tab 0", f"type 'Word' '{word}'", "click 'Check'"),
        equals(word),
        ask=lambda asked: word if asked == "note" else None,
    )


def dialogs(rng: random.Random) -> Challenge:
    word, thing = token(rng), rng.choice(("photos", "letters", "songs"))
    keep = rng.random() < 0.5
    question = f"Shall all {thing} be {rng.choice(('kept', 'deleted'))}?"
    agree = ("kept" in question) == keep
    wish = "Nothing may be lost" if keep else f"The {thing} must go"
    return Challenge(
        f"Click Begin, and answer the three dialogs. {wish}; the last dialog asks for the word of "
        "the first one.",
        ("click 'Begin'", "click 'OK'", f"click '{'OK' if agree else 'Cancel'}'",
         f"type '{word}' enter"),
        equals([agree, word]),
        shown={"word": word, "question": question},
    )  # fmt: skip


def frames(rng: random.Random) -> Challenge:
    labels = rng.sample(WORDS, 12)
    wanted = rng.sample(labels, 2)
    return Challenge(
        f"In the innermost frame, click {wanted[0]}, then {wanted[1]}, then Send.",
        (f"click '{wanted[0]}'", f"click '{wanted[1]}'", "click 'Send'"),
        equals(wanted),
        shown={"labels": labels},
    )


def shadow(rng: random.Random) -> Challenge:
    labels, word = rng.sample(WORDS, 5), token(rng)
    wanted = rng.choice(labels)
    return Challenge(
        f"Type {word} into the field of the card {wanted}, and save that card.",
        (f"type '{wanted}' '{word}'", f"click 'Save {wanted}'"),
        equals([wanted, word]),
        shown={"labels": labels},
    )


def pop_up(rng: random.Random) -> Challenge:
    offers = [*zip(rng.sample(WORDS, 6), rng.sample(range(21, 90), 6), strict=True)]
    label, _ = min(offers, key=lambda offer: offer[1])
    return Challenge(
        "Ask for the offers, choose the cheapest in the window that opens, and confirm it here.",
        ("click 'Show offers'", f"click 'Choose {label}'", f"click 'Confirm {label}'"),
        equals(label),
        shown={"offers": offers},
    )


def terms(rng: random.Random) -> Challenge:
    words = [token(rng) for _ in range(40)]
    number = rng.randrange(8, 36)
    return Challenge(
        f"Read the terms to their end. Then type the word of clause {number}, and accept them.",
        ("scroll 'Terms' down 9000", f"type 'Word' '{words[number - 1]}'", "click 'Accept'"),
        equals(words[number - 1]),
        shown={"words": words},
    )


def rooms(rng: random.Random) -> Challenge:
    route = rng.sample(COLOURS, 3)
    trail = [place for room in route for place in (room, "hall")]
    plan = [line for room in route for line in (f"click 'the {room} room'", "back")]
    return Challenge(
        f"From the hall, visit the {route[0]} room, then the {route[1]} room, then the {route[2]} "
        "room. No door leads back, but your browser does. Then click Done in the hall.",
        (*plan, "click 'Done'"),
        equals(trail),
        shown={"rooms": COLOURS},
    )


def context_menu(rng: random.Random) -> Challenge:
    files = [f"{word}.txt" for word in rng.sample(WORDS, 8)]
    (first, second), (do, then) = rng.sample(files, 2), rng.sample(("Share", "Archive", "Lock"), 2)
    return Challenge(
        f"By the menus of the right mouse button: {do.lower()} {first}, then {then.lower()} "
        f"{second}. Nothing else. Then click Done.",
        (f"right '{first}'", f"click '{do}'", f"right '{second}'", f"click '{then}'",
         "click 'Done'"),
        equals([[do, first], [then, second]]),
        shown={"files": files, "items": ["Share", "Rename", "Archive", "Lock", "Delete"]},
    )  # fmt: skip


BASICS: Mapping[str, Maker] = {
    "second-tab": second_tab, "dialogs": dialogs, "frames": frames, "shadow": shadow,
    "pop-up": pop_up, "terms": terms, "rooms": rooms, "context-menu": context_menu,
}  # fmt: skip
