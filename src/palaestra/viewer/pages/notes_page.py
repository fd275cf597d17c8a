"""A person's notes about an episode: accepted only from forms of this site."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route

from palaestra.store.notes import Notes, parse_labels
from palaestra.store.queries import Queries, parse_key
from palaestra.viewer.site import Site, run_url

LONGEST = 200_000  # bytes of a form


def routes(site: Site) -> list[Route]:
    """Return the route of notes."""

    async def write(request: Request) -> RedirectResponse:
        """Add the note in the fields `episode`, `text` and `labels`, or delete note `remove`."""
        _check_origin(request)
        fields = await _fields(request)
        name = request.path_params["name"]
        await run_in_threadpool(_write, site, name, fields)
        return RedirectResponse(_back(fields.get("back", ""), run_url(name)), 303)

    return [Route("/run/{name}/notes", write, methods=["POST"])]


def _write(site: Site, name: str, fields: dict[str, str]) -> None:
    notes = Notes.open(site.path(name))
    number, episode = fields.get("remove", ""), fields.get("episode", "")
    if number.isascii() and number.isdigit() and len(number) < 16:
        notes.remove(int(number))
        return
    key = parse_key(episode)
    with site.run(name) as opened:
        if key is None or not Queries(opened.database).has(key):
            raise HTTPException(404, f"There is no episode '{episode}' in {name}.")
    notes.add(key, fields.get("text", ""), parse_labels(fields.get("labels", "")))


def _check_origin(request: Request) -> None:
    """Reject forms from other origins (CSRF)."""
    origin = urlsplit(request.headers.get("origin", ""))
    if not origin.netloc or origin.netloc != request.headers.get("host"):
        raise HTTPException(403, "Notes are accepted only from the pages of this site.")


async def _fields(request: Request) -> dict[str, str]:
    """Return the fields of the sent form."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LONGEST:
            raise HTTPException(413, f"The note is too long; send at most {LONGEST} bytes.")
    try:
        found = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=20)
    except ValueError as error:
        raise HTTPException(400, f"The form cannot be read: {error}.") from None
    return {name: values[-1] for name, values in found.items()}


def _back(wanted: str, otherwise: str) -> str:
    """Return the page of this site to redirect to."""
    inner = wanted.startswith("/") and not wanted.startswith(("//", "/\\"))
    return wanted if inner and wanted.isprintable() else otherwise
