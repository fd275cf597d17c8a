"""A small server with the routes of the Hugging Face hub that its client uses to download a model.

Routes, headers and error codes as documented for the hub's API and as `huggingface_hub` reads them:
model info, the tree of files, and `resolve` with the commit, the ETag (the SHA-256 of large files)
and the size. No real hub was at hand to compare with.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest


@dataclass
class Repository:
    """A model of the hub: its commits by branch, tag or hash, and the files of each."""

    folders: dict[str, Path]  # by commit
    refs: dict[str, str]  # commits by branch or tag
    gated: bool = False

    def commit(self, revision: str) -> str | None:
        return revision if revision in self.folders else self.refs.get(revision)


@dataclass
class Hub:
    """A hub with some models; `asked` lists the requests, `spoilt` the files sent with an error."""

    models: dict[str, Repository] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    spoilt: set[str] = field(default_factory=set)
    cut: set[str] = field(default_factory=set)  # files whose sending breaks off
    url: str = ""

    def add(self, id: str, folder: Path, commit: str = "a" * 40, **more: bool) -> None:
        self.models[id] = Repository({commit: folder}, {"main": commit}, **more)


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Serve the hub on a free port while the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer()

        def do_HEAD(self) -> None:
            self.answer()

        def log_message(self, format: str, *args: object) -> None:
            pass

        def answer(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append(f"{self.command} {path}")
            parts = path.strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                self.describe("/".join(parts[2:4]), parts[4:])
            elif "resolve" in parts:
                self.resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
            else:
                self.send(404, b"")

        def find(self, id: str, revision: str) -> tuple[Repository, str] | None:
            """Return the model and the commit, or answer with the hub's error."""
            model = hub.models.get(id)
            if model is None:  # the hub does not tell strangers that a private model exists
                self.send(401, b"", **{"X-Error-Code": "RepoNotFound"})
                return None
            commit = model.commit(revision)
            if commit is None:
                self.send(404, b"", **{"X-Error-Code": "RevisionNotFound"})
                return None
            return model, commit

        def describe(self, id: str, rest: list[str]) -> None:
            revision = "/".join(rest[1:]) if rest else "main"
            found = self.find(id, revision)
            if found is None:
                return
            model, commit = found
            files = [entry(file) for file in sorted(model.folders[commit].iterdir())]
            if rest[:1] == ["tree"]:
                self.send(200, json.dumps(files).encode())
                return
            siblings = [{"rfilename": file["path"], "size": file["size"]} for file in files]
            about = {"id": id, "sha": commit, "siblings": siblings, "tags": [], "private": False}
            self.send(200, json.dumps(about).encode())

        def resolve(self, id: str, revision: str, name: str) -> None:
            found = self.find(id, revision)
            if found is None:
                return
            model, commit = found
            if model.gated:
                self.send(403, b"", **{"X-Error-Code": "GatedRepo"})
                return
            file = model.folders[commit] / name
            if not file.is_file():
                self.send(404, b"", **{"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
                return
            content = file.read_bytes()
            headers = {"X-Repo-Commit": commit, "ETag": f'"{etag(file)}"'}
            if name in hub.spoilt:
                content = content[:-1] + bytes([content[-1] ^ 1])
            self.send(200, content, cut=name in hub.cut, **headers)

        def send(self, status: int, content: bytes, cut: bool = False, **headers: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content[: len(content) // 2] if cut else content)
            if cut:
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def use(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch, *, offline: bool = False) -> None:
    """Let the client of this process use the hub, as HF_ENDPOINT, HF_HUB_CACHE and others would.

    The client reads these variables when it is imported, which happened long ago.
    """
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)


def etag(file: Path) -> str:
    """Return the SHA-256 of large files (here: of weights), git's SHA-1 of others."""
    content = file.read_bytes()
    if file.suffix == ".safetensors":
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def entry(file: Path) -> dict[str, object]:
    """Return a file as the tree of a model lists it."""
    size = file.stat().st_size
    found: dict[str, object] = {"type": "file", "path": file.name, "size": size, "oid": etag(file)}
    if file.suffix == ".safetensors":
        found["lfs"] = {"oid": etag(file), "size": size, "pointerSize": 130}
    return found
