"""Settings: apps that share one world, and the goals of its tasks.

`core`    mail, contacts, calendar and bank: the smallest, of `apps/easy`
`life`    all that a person has, of `apps/life-easy`: also chat, notes, files, payments, a shop,
          and travel
`office`  what colleagues share, of `apps/office-easy`: mail, calendar, chat, files, a tracker, a
          wiki and a repository
`documents`  the smallest, with files, and sheets, letters and PDFs among them
`brand`   what a brand knows, of `apps/brand-easy`: articles with faults, and calls of customers

Goals of `…-challenge` concern apps that the setting lacks: tasks of `life` those of a company, and
tasks of `office` those of a person. The world has both.

One's own apps are a setting, too:

    class Library(Apps):
        setting = Setting.of([App(parse(TEXT), VERBS)], atoms=[Lend])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from palaestra.environments.families.apps.app import App, Suite
from palaestra.environments.families.apps.composing import (
    card_atoms,
    document_atoms,
    knowledge_atoms,
    office_atoms,
    paper_atoms,
    people_atoms,
)
from palaestra.environments.families.apps.composing.crud_atoms import crud_atoms
from palaestra.environments.families.apps.composing.goal import Atom
from palaestra.environments.families.apps.composing.stock_atoms import STOCK, stock_atoms
from palaestra.environments.families.apps.office_formats import require_packages
from palaestra.environments.families.apps.stock import (
    CORE,
    DOCUMENTS,
    LIFE,
    OFFICE,
    stock_app,
    stock_suite,
)

KINDS: tuple[type[Atom], ...] = (
    *STOCK,
    *people_atoms.KINDS,
    *card_atoms.KINDS,
    *paper_atoms.KINDS,
    *office_atoms.KINDS,
    *document_atoms.KINDS,
)
"""All kinds of goals over stock apps; those over any entity come beside."""


@dataclass(frozen=True, eq=False)
class Setting:
    """Apps in one world, and the goals of which its tasks are composed."""

    suite: Suite
    atoms: tuple[Atom, ...]

    @classmethod
    def of(cls, apps: Iterable[App], atoms: Iterable[type[Atom]] = ()) -> Setting:
        """Return a setting of some apps, and of `supervisor`, which is added if it is missing.

        Goals over any entity come beside the given kinds.

        Args:
            apps: at least one of them has an entity with an owner and fields to search.
            atoms: kinds of goals; those whose apps are missing are left out.

        Raises:
            InputError: two apps have one name, or an entity refers to one of a missing app.
        """
        listed = list(apps)
        if all(app.name != "supervisor" for app in listed):
            listed.append(stock_app("supervisor"))
        suite = Suite.of(listed)
        kinds = [kind() for kind in atoms]
        fitting = [atom for atom in kinds if atom.apps <= suite.apps.keys()]
        return cls(suite, (*fitting, *crud_atoms(suite, ids=False)))


def core_atoms(suite: Suite) -> tuple[Atom, ...]:
    """Return the goals of the tasks of `apps/easy`, as far as their apps are there."""
    return (*stock_atoms(suite), *crud_atoms(suite))


@cache
def core() -> Setting:
    suite = stock_suite(CORE)
    return Setting(suite, core_atoms(suite))


@cache
def life() -> Setting:
    return Setting.of([stock_app(name) for name in LIFE], KINDS)


@cache
def office() -> Setting:
    return Setting.of([stock_app(name) for name in OFFICE], KINDS)


@cache
def documents() -> Setting:
    """Return the setting; raises MissingPackage without the packages for documents."""
    require_packages()
    return Setting.of([stock_app(name) for name in DOCUMENTS], KINDS)


@cache
def brand() -> Setting:
    suite = stock_suite(("supervisor", "knowledge"))
    return Setting(suite, tuple(kind() for kind in knowledge_atoms.KINDS))


def _of_unseen(names: Sequence[str], others: Sequence[str]) -> Setting:
    """Return a setting whose goals all concern an app of `others` that is not among `names`."""
    unseen = set(others) - set(names)
    every = Setting.of([stock_app(name) for name in dict.fromkeys((*names, *others))], KINDS)
    return Setting(every.suite, tuple(atom for atom in every.atoms if atom.apps & unseen))


@cache
def life_challenge() -> Setting:
    return _of_unseen(LIFE, OFFICE)


@cache
def office_challenge() -> Setting:
    return _of_unseen(OFFICE, LIFE)


CHALLENGES = {"life": life_challenge, "office": office_challenge}
"""The settings of the ids `apps/SETTING-LEVEL-challenge`."""
SETTINGS = {"": core, "brand": brand, "documents": documents, "life": life, "office": office}
"""The settings of the ids `apps/LEVEL` and `apps/SETTING-LEVEL`."""


def parts(name: str) -> tuple[str, str, str, str]:
    """Return the setting, the level, the kind and the form (what follows ":") that a name says."""
    head, _, form = name.partition(":")
    setting, _, rest = head.partition("-") if head.partition("-")[0] in SETTINGS else ("", "", head)
    level, _, kind = rest.partition("-")
    return setting, level or "easy", kind, form
