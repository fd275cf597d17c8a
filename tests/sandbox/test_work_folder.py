"""The work folder, accessed from outside."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.errors import InputError
from palaestra.sandbox.base import WORK
from palaestra.sandbox.work_folder import Folder, inside

MOST = 2**20
names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8)
paths = st.lists(names.filter(lambda name: name not in (".", "..")), min_size=1, max_size=3)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "work").mkdir()
    return Folder(tmp_path / "work")


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(paths, st.binary(max_size=64)), max_size=5))
def test_saving_and_restoring_changes_nothing(written: list[tuple[list[str], bytes]]) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        first, second = Folder(Path(one)), Folder(Path(other))
        for parts, data in written:
            try:
                first.write("/".join(parts), data)
            except InputError:
                continue  # a file has the path of a needed folder
        second.write("to be gone", b"x")
        second.restore(first.save(MOST))
        assert second.files() == first.files()
        assert second.save(MOST) == first.save(MOST)
        assert all(second.read(path) == first.read(path) for path in first.files())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["..", ".", "", "a", "b"]), max_size=6))
def test_a_path_leads_inside_or_is_refused(parts: list[str]) -> None:
    path = "/".join(parts)
    lexical = os.path.normpath("/deep/" + path.lstrip("/")) if path else "/deep"
    try:
        found = inside(path)
    except InputError:
        return
    assert lexical == "/".join(["/deep", *found]) and ".." not in found


def test_equal_folders_save_to_equal_bytes_whenever_they_were_written(folder: Folder) -> None:
    folder.write("b/c", b"2")
    folder.write("a", b"1")
    before = folder.save(MOST)
    os.utime(folder.path / "a", (1, 1))
    folder.restore(before)
    assert folder.save(MOST) == before


def test_links_that_stay_inside_are_followed_and_kept(folder: Folder) -> None:
    folder.write("real/file", b"data")
    os.symlink("real", folder.path / "near")
    os.symlink(f"{WORK}/real/file", folder.path / "far")
    os.link(folder.path / "real/file", folder.path / "twin")
    assert folder.read("near/file") == folder.read("far") == b"data"
    saved = folder.save(MOST)
    folder.restore(saved)
    assert folder.save(MOST) == saved and folder.read("near/file") == b"data"
    assert (folder.path / "twin").stat().st_nlink == 2


def test_links_in_a_ring_are_refused(folder: Folder) -> None:
    os.symlink("b", folder.path / "a")
    os.symlink("a", folder.path / "b")
    with pytest.raises(InputError, match="too many links"):
        folder.read("a")


def test_writing_never_goes_through_a_link(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("safe")
    os.symlink(tmp_path / "outside", folder.path / "link")
    os.symlink(tmp_path, folder.path / "folder")
    folder.write("link", b"new")
    with pytest.raises(InputError):
        folder.write("folder/outside", b"new")
    assert (tmp_path / "outside").read_text() == "safe" and folder.read("link") == b"new"


def test_holes_in_files_do_not_fill_the_memory_of_who_saves(folder: Folder) -> None:
    with open(folder.path / "hole", "wb") as file:
        file.truncate(50 * MOST)
    with pytest.raises(InputError, match="disk_bytes"):
        folder.save(MOST)


def test_folders_without_permissions_and_of_any_depth_are_emptied(folder: Folder) -> None:
    at = os.open(folder.path, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.fchmod(at, 0)
    os.close(at)
    assert folder.files() == {}
    folder.empty()
    assert os.listdir(folder.path) == []


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "a\0b", "", ".", WORK])
def test_a_file_outside_or_without_a_name_is_refused(folder: Folder, name: str) -> None:
    with pytest.raises(InputError):
        folder.write(name, b"x")


def test_an_archive_from_elsewhere_cannot_lead_out(folder: Folder, tmp_path: Path) -> None:
    for name, link in (("../evil", None), ("/evil", None), ("a", "../../x"), ("a", "/etc/passwd")):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            entry = tarfile.TarInfo(name)
            if link is not None:
                entry.type, entry.linkname = tarfile.SYMTYPE, link
            archive.addfile(entry)
        try:
            folder.restore(stream.getvalue())
        except InputError:
            continue
        assert os.listdir(folder.path) == []
    assert os.listdir(tmp_path) == ["work"]


def test_rubbish_is_no_archive(folder: Folder) -> None:
    folder.write("kept", b"x")
    with pytest.raises(InputError, match="no saved work folder"):
        folder.restore(b"rubbish" * 200)
    assert folder.read("kept") == b"x"
