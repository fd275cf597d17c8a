"""What a person wrote about an episode outlives the browser, and disturbs no trainer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.store.notes import LONGEST, Notes, labelled, parse_labels
from palaestra.store.run_folder import RunFolder

KEY = Key("test/rl", 17)


def test_a_note_is_read_back_after_reopening_the_run(tmp_path: Path) -> None:
    written = Notes.open(tmp_path).add(KEY, "walks in circles", {"lost_at": "4"})
    assert Notes.open(tmp_path).of(KEY) == [written]
    assert written.text == "walks in circles" and written.labels == {"lost_at": "4"}
    assert Notes.open(tmp_path).of(Key("test/rl", 18)) == []


def test_reading_creates_nothing(tmp_path: Path) -> None:
    assert Notes.open(tmp_path).all() == [] and labelled(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_being_written_takes_notes(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", {}) as run:
        Notes.open(run.path).add(KEY, "while it trains")
        assert [note.text for note in Notes.open(run.path).all()] == ["while it trains"]


def test_the_last_label_holds(tmp_path: Path) -> None:
    notes = Notes.open(tmp_path)
    notes.add(KEY, "", {"good": "yes", "skill": "walk"})
    notes.add(KEY, "on second thought", {"good": "no"})
    notes.add(Key("rl/1", 0, 3), "no label")
    assert labelled(tmp_path) == {KEY: {"good": "no", "skill": "walk"}}


def test_a_removed_note_labels_nothing(tmp_path: Path) -> None:
    notes = Notes.open(tmp_path)
    notes.remove(1)
    notes.remove(notes.add(KEY, "", {"good": "yes"}).id)
    assert labelled(tmp_path) == {} and notes.all() == []


def test_many_writers_lose_no_note(tmp_path: Path) -> None:
    def write(number: int) -> None:
        Notes.open(tmp_path).add(KEY, str(number))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(24)))
    assert sorted(int(note.text) for note in Notes.open(tmp_path).of(KEY)) == list(range(24))


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        ("good", {"good": "yes"}),
        (" good , lost_at = 4 ", {"good": "yes", "lost_at": "4"}),
        ("a=b=c,,=x", {"a": "b=c"}),
        ("", {}),
    ],
)
def test_labels_are_written_as_words_or_pairs(line: str, labels: dict[str, str]) -> None:
    assert parse_labels(line) == labels


def test_text_that_no_file_can_hold_is_kept_as_far_as_it_goes(tmp_path: Path) -> None:
    notes = Notes.open(tmp_path)
    notes.add(KEY, "half \ud800 a character, and a \x00", {"x\udfff": "<script>"})
    assert notes.of(KEY)[0].text == "half ? a character, and a \x00"
    assert notes.of(KEY)[0].labels == {"x?": "<script>"}


@pytest.mark.parametrize("text", ["  \n", "x" * (LONGEST + 1)])
def test_a_note_that_says_nothing_or_too_much_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="The note"):
        Notes.open(tmp_path).add(KEY, text)


def test_a_file_that_holds_no_notes_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.sqlite").write_bytes(b"no database at all, but long enough" * 100)
    with pytest.raises(InputError, match=r"notes\.sqlite"):
        Notes.open(tmp_path).of(KEY)
    with pytest.raises(InputError, match=r"notes\.sqlite"):
        Notes.open(tmp_path).add(KEY, "x")
