"""Triples join a knowledge file once they are checked against it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.agents.registry import make_agent
from palaestra.cli.main import main
from palaestra.core.errors import InputError
from palaestra.core.knowledge_file import Entry, load_entries
from palaestra.core.knowledge_triples import (
    Triple,
    added,
    file_text,
    refusal,
    relations_of,
    triples_in,
)

KNOWN = [Entry(("wheezing", "cough at night"), "department: pulmonology; diagnosis: asthma")]
LINE = "department: {}; diagnosis: {}; sign-1: {}; sign-2: {}"


def test_a_line_is_triples_about_its_subject() -> None:
    assert triples_in(
        LINE.format("cardiology", "angina", "pain", "cold sweat"), relations_of(KNOWN)
    ) == [
        Triple("angina", "department", "cardiology"),
        Triple("angina", "sign", "pain"),
        Triple("angina", "sign", "cold sweat"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LINE.format("cardiology", "angina", "pain", "cold sweat"), None),
        (LINE.format("Pulmonology", "Asthma.", "wheezing", "a tight chest"), None),
        (
            LINE.format("cardiology", "asthma", "pain", "wheezing"),
            "department; the file says pulmonology of asthma, not cardiology.",
        ),
        (
            "department: cardiology; diagnosis: angina; cause: stress; sign-1: pain",
            "'cause' is no relation of the file; use department, diagnosis, sign.",
        ),
        ("diagnosis: angina; sign-1: pain", "department is missing."),
        ("department: cardiology; diagnosis: angina", "sign is missing."),
        ("department: cardiology; diagnosis: ; sign: pain", "diagnosis is missing."),
        (
            "department: cardiology; department: neurology; diagnosis: angina; sign: pain",
            "department is said twice; say one.",
        ),
        ("angina", "'angina' is no relation of the file; use department, diagnosis, sign."),
    ],
)
def test_what_a_file_cannot_take_is_refused_with_the_reason(text: str, reason: str | None) -> None:
    assert refusal(text, KNOWN) == reason


WORDS = st.text("abc ", min_size=1, max_size=6).map(str.strip).filter(bool)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS), max_size=8))
def test_a_file_that_takes_lines_never_contradicts_itself(lines: list[tuple[str, ...]]) -> None:
    entries = KNOWN
    for line in lines:
        text = LINE.format(*line)
        if refusal(text, entries) is None:
            entries = added(entries, text)
            assert refusal(text, entries) is None
            assert added(entries, text) == entries  # it knows all of it now
    subjects = [entry.say.rpartition(": ")[2] for entry in entries]
    assert len(subjects) == len(set(subjects))
    assert entries[0].when[:2] == KNOWN[0].when  # nothing is lost


def test_a_file_without_parts_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "tips.toml").write_text('[[entry]]\nwhen = ["rain"]\nsay = "take an umbrella"\n')
    with pytest.raises(InputError, match="'take an umbrella' does not say the parts"):
        make_agent(f"curator?file={tmp_path / 'tips.toml'}")


def test_what_a_team_extracted_joins_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An extractor that errs in departments, and a file of one disease, which refuses them."""
    file, run, more = tmp_path / "known.toml", tmp_path / "run", tmp_path / "more.toml"
    bundled = load_entries("diseases")
    file.write_text(file_text(bundled[:1]))
    asked = ["eval", "--env", "cases/record", "--team", "extraction", "-n", "40", "--workers", "0"]
    model = "extractor=reader?right.department=0.3"
    assert main([*asked, "--role", model, "--model", "null", "--run", str(run)]) == 0
    capsys.readouterr()
    given = ["agents", "knowledge", str(run), "--file", str(file), "--to", str(more)]
    assert main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    entries = load_entries(str(more))
    assert found["entries"] == len(entries) == found["new"] + 1 > 6
    assert all("the file says" in one["reason"] for one in found["refused"]) and found["refused"]
    signs = {entry.say.rpartition(": ")[2]: set(entry.when) for entry in bundled}
    assert all(set(entry.when) == signs[entry.say.rpartition(": ")[2]] for entry in entries)
    assert main(given) == 2
    assert "exists; name a new file" in capsys.readouterr().err
