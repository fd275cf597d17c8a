"""A reference is written for the language of the pages: labels change, what people wrote stays."""

from __future__ import annotations

from palaestra.browser.sites import Request, Response
from palaestra.environments.families.real_sites.application import Application, OpenSite, Variant
from palaestra.environments.families.real_sites.label_translation import translated
from palaestra.environments.families.real_sites.task_template import Deed, SiteTask, WrongEnd

WORDS = {"Save": "Sichern", "Colour": "Farbe", "red": "rot", "first": "erste", "field": "Feld"}


class Glossary(Application):
    """A site whose labels are those of a glossary."""

    name = "glossary"

    def open(self, seed: int) -> OpenSite:
        raise NotImplementedError

    def respond(self, site: OpenSite, request: Request) -> Response:
        raise NotImplementedError

    def label(self, text: str) -> str:
        return WORDS.get(text, text)


TASK = SiteTask(
    "Save the colour red.",
    deeds=(
        Deed(
            (
                "go 'http://glossary.example/Save'",
                "select 'the Colour list' 'red'",
                "select 'Colour list' 'red'",
                "type 'Colour field' 'Save' clear",
                "type 'second textbox' 'red' enter",
                "click [7]",
            )
        ),
    ),
    wrong=(WrongEnd(("click 'first Save button'",), "Save"),),
)


def test_labels_and_options_are_translated_and_nothing_else() -> None:
    found = translated(TASK, Glossary(Variant(language="de")))
    assert found.deeds[0].gestures == (
        "go 'http://glossary.example/Save'",
        "select 'the Colour list' 'rot'",
        "select 'Farbe list' 'rot'",
        "type 'Farbe field' 'Save' clear",
        "type 'second textbox' 'red' enter",
        "click [7]",
    )
    assert found.wrong == (WrongEnd(("click 'first Sichern button'",), "Save"),)
    assert found.goal == TASK.goal


def test_english_stays_as_it_is() -> None:
    assert translated(TASK, Glossary()) is TASK
