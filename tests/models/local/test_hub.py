"""Models of the hub, by its real client against a small server with the hub's routes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from palaestra.core.errors import InputError
from palaestra.models.local.checkpoint_format import read_network
from palaestra.models.local.hub import HubName
from palaestra.models.local.weights import Checkpoint, obtain, ready
from tests.models.local.checkpoints import same_weights, split, write_checkpoint
from tests.models.local.hub_server import Hub, Repository, serving, use

FIRST, SECOND = "a" * 40, "b" * 40


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving(Hub()) as found:
        use(found, tmp_path / "cache", monkeypatch)
        monkeypatch.setenv("PALAESTRA_CACHE", str(tmp_path / "ours"))
        yield found


def test_an_id_is_downloaded_once_and_its_commit_is_known(hub: Hub, tmp_path: Path) -> None:
    network = write_checkpoint(tmp_path / "theirs")
    (tmp_path / "theirs" / "pytorch_model.bin").write_bytes(b"not needed")
    hub.add("lab/small", tmp_path / "theirs", FIRST)
    said: list[str] = []
    found = obtain("lab/small", said.append)
    assert found == Checkpoint(found.folder, FIRST) and found.folder.name == FIRST
    assert same_weights(read_network(found.folder, torch.float32), network)
    assert not (found.folder / "pytorch_model.bin").exists()
    assert len(said) == 1 and said[0].startswith("downloading lab/small from the hub: 4 files, ")
    hub.asked.clear()
    assert obtain("lab/small", said.append) == found and len(said) == 1
    assert not any("/resolve/" in line for line in hub.asked)
    assert ready("lab/small") == found.folder


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub: Hub, tmp_path: Path) -> None:
    old, new = (write_checkpoint(tmp_path / name, seed) for seed, name in enumerate("on"))
    folders = {FIRST: tmp_path / "o", SECOND: tmp_path / "n"}
    hub.models["lab/small"] = Repository(folders, {"main": SECOND, "v1": FIRST})
    for name, network, commit in (
        ("lab/small", new, SECOND),
        ("lab/small@v1", old, FIRST),
        (f"lab/small@{FIRST}", old, FIRST),
    ):
        found = obtain(name, print)
        assert found.revision == commit
        assert same_weights(read_network(found.folder, torch.float32), network)
    hub.asked.clear()
    obtain(f"lab/small@{FIRST}", print)
    assert hub.asked == []  # a commit never changes


def test_a_run_goes_on_with_the_revision_that_it_recorded(hub: Hub, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "o")
    write_checkpoint(tmp_path / "n", 1)
    hub.add("lab/small", tmp_path / "o", FIRST)
    began = obtain("lab/small", print)
    hub.models["lab/small"] = Repository(
        {FIRST: tmp_path / "o", SECOND: tmp_path / "n"}, {"main": SECOND}
    )
    assert obtain("lab/small", print, began.revision) == began
    assert obtain("lab/small", print).revision == SECOND


def test_shards_are_downloaded_with_their_index(hub: Hub, tmp_path: Path) -> None:
    network = write_checkpoint(tmp_path / "theirs")
    split(tmp_path / "theirs", 3)
    hub.add("lab/small", tmp_path / "theirs")
    found = obtain("lab/small", print)
    assert len(list(found.folder.glob("*.safetensors"))) == 3
    assert same_weights(read_network(found.folder, torch.float32), network)


def test_without_a_connection_the_cache_is_used(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "theirs")
    hub.add("lab/small", tmp_path / "theirs")
    found = obtain("lab/small", print)
    use(hub, tmp_path / "cache", monkeypatch, offline=True)
    assert obtain("lab/small", print) == found
    with pytest.raises(InputError, match="while HF_HUB_OFFLINE is set; unset it"):
        obtain("lab/other", print)
    hub.url = "http://127.0.0.1:9"
    use(hub, tmp_path / "cache", monkeypatch)
    assert obtain("lab/small", print) == found
    with pytest.raises(InputError, match="the hub cannot be reached; check the connection"):
        obtain("lab/other", print)


def test_what_the_hub_refuses_is_one_sentence_with_the_remedy(hub: Hub, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "theirs")
    hub.add("lab/closed", tmp_path / "theirs", gated=True)
    hub.add("lab/open", tmp_path / "theirs")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "config.json").write_text("{}")
    hub.add("lab/pickled", tmp_path / "bin")
    for name, words in (
        ("lab/closed", "'lab/closed' is gated; ask for access .* `hf auth login`"),
        ("lab/nothing", "is no folder here, and the hub has no such model .* check the name"),
        ("lab/open@v9", "has no revision 'v9' on the hub; give one of its branches"),
        ("lab/pickled", "has no safetensors on the hub; .* GGUF"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            obtain(name, print)
        assert "\n" not in str(caught.value)


def test_weights_that_are_not_the_hubs_are_refused(hub: Hub, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "theirs")
    hub.add("lab/small", tmp_path / "theirs")
    hub.spoilt.add("model.safetensors")
    with pytest.raises(InputError, match=r"model\.safetensors' .* its SHA-256 on the hub; delete"):
        obtain("lab/small", print)


@pytest.mark.slow
def test_a_download_that_breaks_off_is_refused_and_continues(hub: Hub, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "theirs")
    hub.add("lab/small", tmp_path / "theirs")
    hub.cut.add("model.safetensors")
    with pytest.raises(InputError, match="start again to continue"):
        obtain("lab/small", print)
    hub.cut.clear()
    assert obtain("lab/small", print).revision == "a" * 40


def test_names_of_the_hub_and_paths_are_told_apart() -> None:
    assert HubName.parse("Qwen/Qwen3-0.6B") == HubName("Qwen/Qwen3-0.6B")
    assert HubName.parse("lab/small@refs/pr/1") == HubName("lab/small", "refs/pr/1")
    for name in ("small", "./lab/small", "/lab/small", "a/b/c", "~/lab", "lab/", "lab/small@"):
        assert HubName.parse(name) is None


def test_a_folder_goes_before_the_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "lab" / "small")
    monkeypatch.chdir(tmp_path)
    assert obtain("lab/small", print) == Checkpoint(Path("lab/small"), None)
    assert hub.asked == []
