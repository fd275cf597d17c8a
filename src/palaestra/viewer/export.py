"""Export of any page as one self-contained file: `?export=1`.

Style sheets and pictures are embedded; scripts and links to other pages of the site are removed.
Page templates escape all text of an episode, so every tag in a page comes from a template.
"""

from __future__ import annotations

import asyncio
import base64
import re
from html import unescape
from urllib.parse import unquote, urlsplit

from markupsafe import escape
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palaestra.viewer.site import REQUEST

_POLICY = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
)
_SCRIPT = re.compile(r"<script\b[^>]*>.*?</script>", re.S | re.I)
_SHEET = re.compile(r'<link rel="stylesheet" href="([^"]+)">')
_PICTURE = re.compile(r'(<img\b[^>]*?\bsrc=")(/[^"]*)(")')
_LINK = re.compile(r'(<a\b[^>]*?)\s+href="(?!#)[^"]*"')
_FORM = re.compile(r'<form\b[^>]*\bmethod="post".*?</form>', re.S | re.I)


class Export:
    """The middleware that answers GET requests with `export` by the page as a file."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope) if scope["type"] == "http" else None
        if request is None or request.method != "GET" or "export" not in request.query_params:
            await self._app(scope, receive, send)
            return
        code, kind, body = await self._fetch(scope)
        if code == 200 and kind.startswith("text/html"):
            body = (await self._embedded(scope, body.decode())).encode()
            name = re.sub(r"[^\w.-]+", "-", request.url.path, flags=re.A).strip("-.") or "runs"
            headers = {"Content-Disposition": f'attachment; filename="palaestra-{name}.html"'}
            await Response(body, code, headers, media_type=kind)(scope, receive, send)
            return
        await Response(body, code, media_type=kind)(scope, receive, send)

    async def _embedded(self, scope: Scope, page: str) -> str:
        """Embed style sheets and pictures in the page."""
        outer = REQUEST.get()
        page = _SCRIPT.sub("", page)
        page = _FORM.sub("", page)
        page = _LINK.sub(r"\1", page)
        for sheet in dict.fromkeys(_SHEET.findall(page)):
            _, _, style = await self._fetch(_at(scope, sheet))
            text = style.decode().replace("</", "<\\/")
            page = page.replace(
                f'<link rel="stylesheet" href="{sheet}">', f"<style>\n{text}</style>"
            )
        for _, source, _ in dict.fromkeys(_PICTURE.findall(page)):
            code, kind, picture = await self._fetch(_at(scope, unescape(source)))
            if code == 200:
                data = f"data:{kind};base64,{base64.b64encode(picture).decode()}"
                page = page.replace(f'src="{source}"', f'src="{data}"')
        REQUEST.set(outer)
        source = escape(f"{scope['path']}?{scope['query_string'].decode('latin-1')}")
        note = f"<!-- saved from palaestra view: {str(source).replace('--', '- -')} -->"
        return page.replace("<head>", f"<head>\n{_POLICY}\n{note}", 1)

    async def _fetch(self, scope: Scope) -> tuple[int, str, bytes]:
        """Return status, media type and body of the site's response."""
        code, kind, parts = 500, "", []

        async def collect(message: Message) -> None:
            nonlocal code, kind
            if message["type"] == "http.response.start":
                headers = {k.decode().lower(): v.decode() for k, v in message["headers"]}
                code, kind = message["status"], headers.get("content-type", "")
            else:
                parts.append(message.get("body", b""))

        unread: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Message:
            return unread.pop() if unread else await asyncio.Future()  # the client stays connected

        await self._app(scope, receive, collect)
        return code, kind, b"".join(parts)


def _at(scope: Scope, url: str) -> Scope:
    """Return the scope of a request for another URL of the site."""
    split = urlsplit(url)
    raw = {"raw_path": split.path.encode(), "query_string": split.query.encode()}
    return {**scope, "path": unquote(split.path), **raw}
