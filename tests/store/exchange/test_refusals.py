"""Files that cannot be read: one sentence each, which names the file, the reason and the remedy."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError, MissingPackage, RunVersionMismatch, UnknownName
from palaestra.store.exchange import archive, plain_json
from palaestra.store.exchange.atif import trajectory, write_atif
from palaestra.store.exchange.detect import READERS, detect, read_episodes
from palaestra.store.exchange.episode_schema import episode_document, write_json
from palaestra.store.exchange.inspect_log import write_inspect
from palaestra.store.exchange.otel import trace, write_otel
from tests.store import samples

HERE = Path(__file__).parent
START = datetime(2026, 1, 1, tzinfo=UTC)
ONE = samples.episode(Key("rl/1", 0))


def read(path: Path, format: str) -> list[Episode]:
    return list(read_episodes(path, format))


def put(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("format", READERS)
def test_a_missing_an_empty_and_a_foreign_file_are_refused(format: str, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "prose").write_text("Dear Sir or Madam,\n")
    put(tmp_path / "other", {"name": "a document of something else"})
    for name in ("missing", "empty", "prose", "other"):
        with pytest.raises(InputError) as refused:
            read(tmp_path / name, format)
        output = str(refused.value)
        assert str(tmp_path / name) in output and "\n" not in output, output
        assert output.endswith(".")


@pytest.mark.parametrize("name", ["x.eval", "x.json", "otel.jsonl", "atif.jsonl", "json.jsonl"])
def test_a_file_that_was_cut_off_is_refused_and_nothing_of_it_is_lost_in_silence(
    name: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    format = file.stem if file.suffix == ".jsonl" else "inspect"
    episodes = [samples.episode(Key("rl/1", group)) for group in range(3)]
    if format == "inspect":
        write_inspect(file, episodes, START)
    else:
        writers = {"atif": write_atif, "json": write_json}
        if format == "otel":
            write_otel(file, episodes, START)
        else:
            writers[format](file, episodes)
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(
        InputError, match=r"cut off|neither an archive nor complete JSON|not a complete archive"
    ):
        read(file, format)


@pytest.mark.parametrize("version", [1, 2, 99, "two", None, True])
def test_episodes_of_another_format_are_refused_with_the_reason(
    version: Any, tmp_path: Path
) -> None:
    own = episode_document(ONE) | {"format": version}
    shown = trajectory(ONE)
    shown["extra"][plain_json.REST]["format"] = version
    for format, document in (("json", own), ("atif", shown)):
        with pytest.raises(RunVersionMismatch, match=r"reads format 3.*export it again"):
            read(put(tmp_path / f"{format}.jsonl", document), format)


@pytest.mark.parametrize(
    ("version", "remedy"), [(1, "inspect log convert"), (3, "update palaestra")]
)
def test_a_log_of_another_version_of_inspect_is_refused_with_the_remedy(
    version: int, remedy: str, tmp_path: Path
) -> None:
    log = json.loads((HERE / "inspect-sums.json").read_text()) | {"version": version}
    with pytest.raises(RunVersionMismatch, match=remedy):
        read(put(tmp_path / "x.json", log), "inspect")


def test_a_newer_trajectory_is_refused_and_every_older_one_is_read(tmp_path: Path) -> None:
    document = trajectory(ONE)
    for minor in range(9):
        file = put(tmp_path / "x.json", document | {"schema_version": f"ATIF-v1.{minor}"})
        assert read(file, "atif") == [ONE]
    for version in ("ATIF-v1.9", "ATIF-v2.0", "1.7"):
        with pytest.raises(InputError, match="update palaestra"):
            read(put(tmp_path / "x.json", document | {"schema_version": version}), "atif")


def test_what_lacks_a_field_is_refused_by_the_name_of_the_field(tmp_path: Path) -> None:
    document = trajectory(ONE)
    del document["steps"][0]["message"]
    with pytest.raises(InputError, match="'message'"):
        read(put(tmp_path / "x.json", document), "atif")
    document = episode_document(ONE)
    document["calls"][0]["version"] = "three"
    with pytest.raises(InputError, match=r"calls\.version"):
        read(put(tmp_path / "x.json", document), "json")


def test_spans_without_words_are_refused(tmp_path: Path) -> None:
    file = put(tmp_path / "x.jsonl", trace(ONE, START, "1.36"))
    with pytest.raises(InputError, match=r"contains no texts.*1\.37"):
        read(file, "otel")


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "x.eval", "w") as other:
        other.writestr("notes.txt", "no log")
    with pytest.raises(InputError, match=r"no header\.json"):
        read(tmp_path / "x.eval", "inspect")


def test_a_damaged_member_is_refused_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "x.eval"
    write_inspect(file, [ONE], START)
    content = bytearray(file.read_bytes())
    content[60:90] = bytes(30)
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"samples/rl/1/0_epoch_1\.json cannot be read"):
        read(file, "inspect")


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive.importlib, "import_module", _missing)
    with pytest.raises(MissingPackage, match=r"palaestra\[analysis\]"):
        read(HERE / "inspect-sums.eval", "inspect")


def test_what_a_file_holds_is_found_out_and_what_cannot_be_imported_is_explained(
    tmp_path: Path,
) -> None:
    assert detect(HERE / "inspect-sums.eval") == detect(HERE / "inspect-sums.json") == "inspect"
    with pytest.raises(InputError, match="lack actions and rewards"):
        detect(put(tmp_path / "chat.jsonl", {"messages": []}))
    with pytest.raises(InputError, match="none of the formats"):
        detect(put(tmp_path / "list.json", [1, 2]))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    with pytest.raises(InputError, match="is a run already"):
        detect(tmp_path / "run")
    with pytest.raises(UnknownName, match="Did you mean 'inspect'"):
        read(tmp_path / "x", "inspct")


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path: Path) -> None:
    write_json(tmp_path / "x.jsonl", [ONE])

    def failing() -> Any:
        yield ONE
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError):
        write_json(tmp_path / "x.jsonl", failing())
    assert read(tmp_path / "x.jsonl", "json") == [ONE]
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]
    with pytest.raises(InputError, match="no such folder"):
        write_json(tmp_path / "no such folder" / "x.jsonl", [ONE])


def _missing(name: str) -> Any:
    raise ImportError(name)
