"""What README and documentation count is what the code has."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from palaestra.agents import agent_listing as agents
from palaestra.environments import environment_listing as environments
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.families.terminal.tasks import FAMILIES
from palaestra.environments.family_table import FAMILIES as REGISTERED
from palaestra.learning.methods.component import Kind, components

ROOT = Path(__file__).parents[2]
MEASURED = {"results", "decisions"}  # what was so on its day
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "SPECIFICATION.md", "recipes/README.md")),
    *sorted(p for p in ROOT.glob("docs/**/*.md") if p.parent.name not in MEASURED),
]
ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60}
COUNTED = (
    "credit rules|losses|corrections|filters|curricula|algorithms|rules|clauses|agents|concepts|"
    "families|environments|worlds"
)
CLAIM = re.compile(rf"\b(\d+|[A-Za-z]+(?:-[a-z]+)?)(?: [a-z]+)?? ({COUNTED})\b")


def ours(kind: Kind) -> int:
    """The parts of a kind, without those that other tests and the tutorials register."""
    return sum(p.function.__module__.startswith("palaestra.") for p in components(kind).values())


def family(name: str) -> str:
    """The family of an environment's id."""
    return name.partition("/")[0]


def families() -> int:
    return len({entry.family for entry in environments.entries()})


def suite() -> list[str]:
    """The environments of suites/small.toml."""
    read = tomllib.loads((ROOT / "suites/small.toml").read_text())
    return [entry["environment"] for entry in read["entries"]]


def code_worlds() -> int:
    """Count the families of environments whose actions are programs."""
    return len({"datascience", "programs", "repository", "terminal"} & set(REGISTERED))


def worlds_of_recipes() -> int:
    found = [tomllib.loads(p.read_text()) for p in ROOT.glob("recipes/worlds/*.toml")]
    return len({family(recipe["environment"]["id"]) for recipe in found})


COUNTS: dict[str, Callable[[], int]] = {
    "credit rules": lambda: ours(Kind.CREDIT),
    "losses": lambda: ours(Kind.LOSS),
    "corrections": lambda: ours(Kind.CORRECTION),
    "filters": lambda: ours(Kind.FILTER),
    "clauses": lambda: len(CLAUSES),
    "agents": lambda: len(agents.entries()),
    "concepts": lambda: len(list(ROOT.glob("docs/concepts/*.md"))),
    "families of environments": families,
}
"""By what is counted, wherever it is."""

OF_THEIR_OWN: dict[tuple[str, str], Callable[[], int]] = {
    ("docs/code_worlds.md", "families of environments"): code_worlds,
    ("docs/code_worlds.md", "families"): lambda: len(FAMILIES),
    ("docs/evaluation/running.md", "environments"): lambda: len(suite()),
    ("docs/evaluation/running.md", "families"): lambda: len(set(map(family, suite()))),
    ("docs/evaluation/statistics.md", "rules"): lambda: 3,  # those of the text
    ("recipes/README.md", "families"): worlds_of_recipes,
}
"""By document and what is counted in it."""


def number(word: str) -> int | None:
    """What a word or figure counts; None if it is no number."""
    tens, _, ones = word.lower().partition("-")
    if tens.isdigit():
        return int(tens)
    if tens in TENS and (not ones or ones in ONES):
        return TENS[tens] + (ONES.index(ones) if ones else 0)
    return ONES.index(tens) if tens in ONES and not ones else None


def claims(document: Path) -> list[tuple[str, int]]:
    """What a document counts, and how many it says there are; ones are mostly no counts."""
    text = " ".join(re.sub(r"!\[[^\]]*\]", "", document.read_text()).split())
    found = []
    for match in CLAIM.finditer(text):
        many, after = number(match[1]), text[match.end() :]
        whole = re.match(r" of (worlds|environments)\b", after)
        if many is not None and many > 1:
            found.append((match[2] + (whole[0] if whole else ""), many))
    return found


def test_numbers_are_read_in_figures_and_words() -> None:
    words = ("19", "Eight", "twenty-eight", "forty", "many", "well-known")
    assert [number(word) for word in words] == [19, 8, 28, 40, None, None]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_counted_is_there_as_often(document: Path) -> None:
    name = str(document.relative_to(ROOT))
    for what, many in claims(document):
        count = OF_THEIR_OWN.get((name, what)) or COUNTS.get(what)
        assert count is not None, f"{name} counts {many} {what}: say here what these are"
        assert many == count(), f"{name} says {many} {what}"


def test_the_counts_that_readers_look_for_are_found() -> None:
    found = [claim for document in DOCUMENTS for claim, _ in claims(document)]
    assert {"credit rules", "clauses", "agents", "concepts", "families of environments"} <= set(
        found
    )
