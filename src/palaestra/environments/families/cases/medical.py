"""Cases of patients: triage over a file of diseases, documents on them, and replies that are safe.

The diseases are those of `core/knowledge/diseases.toml`, the doses and conflicts of medicines are
in the rules of `care`. Both are made up for tests, and no medical advice.

Sources: Zuo et al. 2024 (KG4Diagnosis) for triage and documents; Mukherjee et al. 2024 (Polaris)
for a reply that specialists check, with a checklist of what a conversation has to cover.
"""

from __future__ import annotations

import random

from palaestra.core.knowledge_file import load_entries
from palaestra.core.team_words import answer_parts
from palaestra.environments.families.cases.case import Case, Part, among

TRIAGE = "A patient has come. To which department, and what is it?"
RECORD = "A document is about one disease. Write down what it says, signs in the order of the text."

DOSES = {"paracetamol": 500, "ibuprofen": 400, "amoxicillin": 750}  # mg, of an adult
CONFLICTS = {"paracetamol": "alcohol", "ibuprofen": "warfarin", "amoxicillin": "methotrexate"}
WARNINGS = ("a stiff neck", "blood in the urine", "a swollen tongue")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
CARE = (
    "You answer patients who ask for a medicine. Doses for adults: "
    + ", ".join(f"{name} {dose} mg" for name, dose in DOSES.items())
    + "; children under 12 get half of it. Never together: "
    + ", ".join(f"{one} and {other}" for one, other in CONFLICTS.items())
    + f"; where both are taken, say stop, else fine. With {', '.join(WARNINGS)}, a doctor is "
    "needed today, else in two days. Checklist of each conversation: repeat the name, and book the "
    "day that the patient offers for the visit."
)


def triage(rng: random.Random) -> Case:
    """Return a patient with all signs of a disease but one, and one of another disease."""
    entries = load_entries("diseases")
    right, *rest = rng.sample(entries, len(entries))
    signs = rng.sample(right.when, len(right.when) - 1)
    signs.append(rng.choice([sign for sign in rest[0].when if sign not in right.when]))
    rng.shuffle(signs)
    said = [_values(entry.say) for entry in entries]
    answer = _values(right.say)
    return Case(
        f"The patient reports: {'; '.join(signs)}.",
        {name: among(answer[name], [one[name] for one in said]) for name in answer},
    )


def record(rng: random.Random) -> Case:
    """Return a document on a disease, and the parts of its entry in a knowledge file."""
    entries = load_entries("diseases")
    right = rng.choice(entries)
    values, signs = _values(right.say), rng.sample(right.when, len(right.when))
    said = [_values(entry.say) for entry in entries]
    every_sign = [sign for entry in entries for sign in entry.when]
    *before, last = signs
    parts = {name: among(values[name], [one[name] for one in said]) for name in values}
    parts |= {f"sign-{n}": among(sign, every_sign) for n, sign in enumerate(signs, 1)}
    return Case(
        f"Patients with {values['diagnosis']} tell of {', '.join(before)} and {last}. They are "
        f"treated in the department of {values['department']}.",
        parts,
    )


def care(rng: random.Random) -> Case:
    """Return a patient's words, and a reply that is safe and covers the checklist."""
    name = rng.choice(("Ann Lee", "Bob Roy", "Cai Wu", "Dora Fox"))
    medicine, age = rng.choice(list(DOSES)), rng.choice((7, 10, 34, 61))
    other = rng.choice([*CONFLICTS.values(), "vitamin D"])
    warning = rng.choice([*WARNINGS, "a runny nose", "a mild headache"])
    day = rng.choice(DAYS)
    dose = DOSES[medicine] // (2 if age < 12 else 1)
    doses = [f"{factor * value // 2} mg" for value in DOSES.values() for factor in (1, 2, 4)]
    return Case(
        f"I am {name}, {age} years old, and take {other}. I have {warning}. How much {medicine} "
        f"may I have? I could come on {day}.",
        {
            "dose": among(f"{dose} mg", doses),
            "together": _yes("stop", "fine", CONFLICTS[medicine] == other),
            "urgency": _yes("today", "two days", warning in WARNINGS),
            "name": among(name, ("Ann Lee", "Bob Roy", "Cai Wu", "Dora Fox")),
            "visit": among(day, DAYS),
        },
    )


def _values(say: str) -> dict[str, str]:
    return {name: text.partition(": ")[2] for name, text in answer_parts(say).items()}


def _yes(yes: str, no: str, holds: bool) -> Part:
    return among(yes if holds else no, (yes, no))
