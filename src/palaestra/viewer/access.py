"""Who may use a local site: allowed host names, tokens, and forms of the site's own pages."""

from __future__ import annotations

import hmac
from urllib.parse import parse_qs, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palaestra.runtime.visible_text import visible
from palaestra.viewer.site import POLICY, REQUEST

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, forms would not send their origin
    "Cache-Control": "no-store",
}
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
LONGEST = 200_000  # bytes of a form


def cookie(port: int) -> str:
    """Return the name of the token's cookie: it holds the port, as cookies are shared by ports."""
    return f"palaestra-{port}"


class HostGuard:
    """The middleware that sets the security headers, and answers only at this machine's names.

    A foreign page whose host name resolves to this machine (DNS rebinding) sends a host name that
    is not allowed.
    """

    command = "palaestra view"  # that printed the address

    def __init__(self, app: ASGIApp, names: frozenset[str] | None = LOOPBACK) -> None:
        """Take the allowed host names of this machine; None: any."""
        self._app, self._names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        request = Request(scope)
        response = self._rejection(request)
        REQUEST.set(request)
        await (response or self._app)(scope, receive, send_guarded)

    def _rejection(self, request: Request) -> Response | None:
        name, _ = host_of(request)
        if self._names is None or name in self._names:
            return None
        return PlainTextResponse(
            f"The host name '{visible(name)}' is not allowed; "
            f"open the address that `{self.command}` printed.",
            403,
        )


class Guard(HostGuard):
    """The middleware that also authenticates requests.

    Every user of this machine can reach the site, and so can foreign pages in the user's browser.
    So every response needs the token. The browser sends it for pages of this site and for links
    to it (SameSite=Lax), never for forms or scripts of another site; forms must also have the
    same origin (`check_origin`).
    """

    def __init__(self, app: ASGIApp, token: str, names: frozenset[str] | None) -> None:
        super().__init__(app, names)
        self._token = token

    def _rejection(self, request: Request) -> Response | None:
        if (rejection := super()._rejection(request)) is not None:
            return rejection
        cookie_name = cookie(host_of(request)[1])
        if self._is_token(request.query_params.get("token", "")):
            response = RedirectResponse(request.url.remove_query_params("token"))
            response.set_cookie(cookie_name, self._token, httponly=True, samesite="lax")
            return response
        if self._is_token(request.cookies.get(cookie_name, "")):
            return None
        return PlainTextResponse(
            "The token is missing; open the address that `palaestra view` printed, "
            "with its ?token=….",
            403,
        )

    def _is_token(self, given: str) -> bool:
        return same_secret(given, self._token)


def same_secret(given: str, secret: str) -> bool:
    """Return whether a text is a secret, in a time that says nothing about the secret."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def host_of(request: Request) -> tuple[str, int]:
    """Return host name and port of the request; an empty name if the header is malformed."""
    try:
        host = urlsplit(f"//{request.headers.get('host', '')}")
        return host.hostname or "", host.port or 80
    except ValueError:
        return "", 80


def check_origin(request: Request, what: str) -> None:
    """Reject forms from other origins (CSRF), which would send `what`."""
    origin = urlsplit(request.headers.get("origin", ""))
    if not origin.netloc or origin.netloc != request.headers.get("host"):
        raise HTTPException(403, f"{what} are accepted only from the pages of this site.")


async def form_fields(request: Request, what: str) -> dict[str, str]:
    """Return the fields of the sent form, which is a `what`."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LONGEST:
            raise HTTPException(413, f"The {what} is too long; send at most {LONGEST} bytes.")
    try:
        found = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=20)
    except ValueError as error:
        raise HTTPException(400, f"The form cannot be read: {error}.") from None
    return {name: values[-1] for name, values in found.items()}
