"""A person's notes about an episode: accepted only from forms of this site."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route

from palaestra.store.notes import Notes, parse_labels
from palaestra.store.queries import Queries, parse_key
from palaestra.viewer.access import check_origin, form_fields
from palaestra.viewer.site import Site, run_url


def routes(site: Site) -> list[Route]:
    """Return the route of notes."""

    async def write(request: Request) -> RedirectResponse:
        """Add the note in the fields `episode`, `text` and `labels`, or delete note `remove`."""
        check_origin(request, "Notes")
        fields = await form_fields(request, "note")
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


def _back(wanted: str, otherwise: str) -> str:
    """Return the page of this site to redirect to."""
    inner = wanted.startswith("/") and not wanted.startswith(("//", "/\\"))
    return wanted if inner and wanted.isprintable() else otherwise
