"""Knowledge files: entries are found by their phrases, people extend them, mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaestra.core.errors import InputError, UnknownName
from palaestra.core.knowledge_file import BUNDLED, Entry, best_entries, load_entries
from palaestra.core.team_words import answer_parts

ASTHMA = Entry(("wheezing", "cough at night"), "asthma")


def test_the_entries_with_the_most_phrases_are_found() -> None:
    cold = Entry(("cough at night", "a runny nose", "sneezing"), "a cold")
    both = [ASTHMA, cold]
    assert best_entries(both, "Wheezing and cough at night") == [ASTHMA]
    assert best_entries(both, "a runny nose, cough at night") == [cold]
    assert best_entries(both, "sneezing") == []  # less than half of its phrases


def test_an_entry_that_a_person_adds_is_found(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = (BUNDLED / "diseases.toml").read_text()
    file.write_text(text + '[[entry]]\nwhen = ["a metal taste"]\nsay = "lead poisoning"\n')
    assert best_entries(load_entries("diseases"), "a metal taste") == []
    (found,) = best_entries(load_entries(str(file)), "A metal taste")
    assert found.say == "lead poisoning"


def test_the_diseases_that_come_with_it_can_be_told_apart() -> None:
    entries = load_entries("diseases")
    assert len(entries) == 12
    for entry in entries:
        assert list(answer_parts(entry.say)) == ["department", "diagnosis"]
        for left_out in entry.when:
            signs = " ".join(sign for sign in entry.when if sign != left_out)
            assert best_entries(entries, signs) == [entry]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("entry", "is no TOML"),
        ("a = 1", r"must consist of \[\[entry\]\] tables"),
        ("[[entry]]\nwhen = []\nsay = 'x'", "Entry 1 of the file .* is none"),
        ("[[entry]]\nwhen = ['a', 1]\nsay = 'x'", "Entry 1 of the file .* is none"),
        ("[[entry]]\nwhen = ['a']\nsay = ' '", "Entry 1 of the file .* is none"),
        ("[[entry]]\nwhen = ['a']\nsay = 'x'\nif = 'y'", "Entry 1 of the file .* is none"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "file.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=error):
        load_entries(str(file))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UnknownName, match="diseases"):
        load_entries("disease")
