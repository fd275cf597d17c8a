"""Challenges of workflow: forms, a cart, a calendar, a mailbox, files, logins, tables."""

from __future__ import annotations

import calendar
import random
from collections.abc import Mapping
from typing import Any

from palaestra.environments.families.challenges.challenge import Challenge, Maker, equals
from palaestra.environments.families.challenges.vocabulary import MONTHS, PEOPLE, WORDS, token


def registration(rng: random.Random) -> Challenge:
    person, family = rng.choice(PEOPLE), rng.choice(WORDS).title()
    word, length = rng.choice(WORDS), rng.randrange(14, 20)
    day, month, year = rng.randrange(1, 29), rng.randrange(1, 13), rng.randrange(1950, 2005)
    fixed = {
        "name": f"{person} {family}",
        "mail": f"{person}.{family}@mail.example".lower(),
        "birthday": f"{day:02}.{month:02}.{year}",
        "news": False,
    }
    password = f"{word.title()}7".ljust(length, "x")

    def proof(given: Any) -> bool:
        if not isinstance(given, dict) or not isinstance(given.get("password"), str):
            return False
        secret, others = given["password"], {key: given.get(key) for key in fixed}
        good = len(secret) == length and word in secret.lower() and secret.lower() != secret
        return others == fixed and good and any(map(str.isdigit, secret))

    return Challenge(
        f"Register {fixed['name']}, born on {day} {MONTHS[month - 1]} {year}, with the address "
        f"{fixed['mail']}, without the newsletter. The password is yours, by the page's rules.",
        (f"type 'Name' '{fixed['name']}'", f"type 'E-mail' '{fixed['mail']}'",
         f"type 'Birthday' '{fixed['birthday']}'", f"type 'Password' '{password}'",
         "click 'Send me the newsletter'", "click 'Register'"),
        proof,
        shown={"word": word, "length": length},
    )  # fmt: skip


def shopping(rng: random.Random) -> Challenge:
    goods, coupon = rng.sample(WORDS, 8), token(rng).upper()
    cart = {word: rng.randrange(1, 4) for word in rng.sample(goods, 2)}
    (first, few), (second, many) = cart.items()
    delivery = rng.choice(("By post", "By courier", "Collect"))
    plan = [f"click 'Add {word}'" for word, number in cart.items() for _ in range(number)]
    return Challenge(
        f"Refuse cookies. Buy {few} × {first} and {many} × {second} with the coupon at the foot of "
        f"the page; delivery: {delivery.lower()}.",
        ("click 'Refuse all'", *plan, f"type 'Coupon' '{coupon}'",
         f"select 'Delivery' '{delivery}'", "click 'Buy'"),
        equals({"cookies": "refused", "cart": cart, "coupon": coupon, "delivery": delivery}),
        shown={"goods": goods, "coupon": coupon},
    )  # fmt: skip


def date_picker(rng: random.Random) -> Challenge:
    ahead, weekday, which = rng.randrange(3, 12), rng.randrange(7), rng.randrange(4)
    month = 1 + ahead
    weeks = calendar.Calendar().monthdayscalendar(2026, month)
    day = [week[weekday] for week in weeks if week[weekday]][which]
    order = ("first", "second", "third", "fourth")[which]
    return Challenge(
        f"Book a table for the {order} {calendar.day_name[weekday]} of {MONTHS[month - 1]} 2026.",
        (*["click 'Next month'"] * ahead, f"click 'the {day} button'", "click 'Book'"),
        equals([2026, month, day]),
        shown={"months": MONTHS},
    )


def wizard(rng: random.Random) -> Challenge:
    steps = {
        "Goes to": ["Sea", "Mountains", "City", "Desert"],
        "Travels by": ["Train", "Bus", "Ship", "Bicycle"],
        "Sleeps in": ["Hotel", "Hostel", "Tent", "Cabin"],
        "Brings": ["Camera", "Umbrella", "Books", "Skates"],
    }
    order = rng.sample([*steps], len(steps))
    wanted = {step: rng.choice(steps[step]) for step in order}
    told = "; ".join(sorted(f"{step}: {choice}" for step, choice in wanted.items()))
    plan = [line for choice in wanted.values() for line in (f"click '{choice}'", "click 'Next'")]
    return Challenge(
        f"Plan this journey, step by step, and order it. {told}.",
        (*plan, "click 'Order'"),
        equals(wanted),
        shown={"steps": [[step, rng.sample(steps[step], 4)] for step in order]},
    )


def inbox(rng: random.Random) -> Challenge:
    people = rng.sample(PEOPLE, 4)
    mails = [
        {"from": people[n % 4], "about": f"The {word}", "text": f"The number is {token(rng)}."}
        for n, word in enumerate(rng.sample(WORDS, 12))
    ]
    rng.shuffle(mails)
    sender = rng.choice(people)
    old = [mail["about"] for mail in mails if mail["from"] == sender]
    asked = rng.choice([mail for mail in mails if mail["from"] != sender])
    number = asked["text"].removeprefix("The number is ").removesuffix(".")
    return Challenge(
        f"Archive all mails from {sender}, and no other. Then type the number that "
        f"{asked['from']} sent in the mail about {asked['about'].lower()}, and send it.",
        (*(f"click 'Choose {about}'" for about in old), "click 'Archive'",
         f"click '{asked['about']}'", f"type 'Number' '{number}'", "click 'Send'"),
        equals([sorted(old), number]),
        shown={"mails": mails},
    )  # fmt: skip


def receipt(rng: random.Random) -> Challenge:
    orders = rng.sample(range(1000, 10000), 5)
    texts = {f"receipt-{order}.txt": f"Order {order}, paid: {token(rng)}" for order in orders}
    name = rng.choice([*texts])
    return Challenge(
        f"Download the receipt of order {name[8:12]}, and upload it.",
        (f"click 'Receipt of order {name[8:12]}'", f"upload 'Receipt' '{name}'", "click 'Send'"),
        equals(texts[name]),
        shown={"orders": orders},
        downloads={file: text.encode() for file, text in texts.items()},
    )


def two_factor(rng: random.Random) -> Challenge:
    user, password = rng.choice(PEOPLE).lower(), token(rng)
    pins = [f"{rng.randrange(10**6):06}" for _ in range(20)]  # of the first, second … request

    def pin(asked: Any) -> str | None:
        return pins[asked] if type(asked) is int and 0 <= asked < len(pins) else None

    def proof(given: Any) -> bool:
        if not isinstance(given, list) or len(given) != 4:
            return False
        return given[:2] == [user, password] and given[3] is not None and given[3] == pin(given[2])

    return Challenge(
        f"Sign in as {user} with the password {password} and the PIN that your phone shows. A PIN "
        "holds for 30 seconds.",
        (f"type 'User' '{user}'", f"type 'Password' '{password}'", "click 'Open my phone'",
         "tab close", f"type 'PIN' '{pins[0]}'", "click 'Sign in'"),
        proof,
        ask=pin,
    )  # fmt: skip


def table_edit(rng: random.Random) -> Challenge:
    rows = [[word, str(rng.randrange(10, 100))] for word in rng.sample(WORDS, 8)]
    (changed, old), (gone, _) = rng.sample(rows, 2)
    new = str(int(old) + 100)
    return Challenge(
        f"Change the stock of {changed} to {new} (a double click opens a cell, Enter closes it), "
        f"delete the row of {gone}, and save.",
        (f"double 'Stock of {changed}'", "press 'Control+a'", f"type '{new}' enter",
         f"click 'Delete {gone}'", "click 'Save'"),
        equals([[word, new if word == changed else n] for word, n in rows if word != gone]),
        shown={"rows": rows},
    )  # fmt: skip


WORKFLOW: Mapping[str, Maker] = {
    "registration": registration, "shopping": shopping, "date-picker": date_picker,
    "wizard": wizard, "inbox": inbox, "receipt": receipt, "two-factor": two_factor,
    "table-edit": table_edit,
}  # fmt: skip
