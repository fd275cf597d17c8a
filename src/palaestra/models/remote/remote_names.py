"""Names of remote models: provider, model, server, options and key in one string.

`openai:gpt-5-mini`, `anthropic:claude-opus-4-5` and `azure:DEPLOYMENT` are models of the provider
itself, with the API key in OPENAI_API_KEY, ANTHROPIC_API_KEY or AZURE_OPENAI_API_KEY. Any other
server is named by its URL, and its key by the environment variable that holds it:
`openai:qwen3@http://localhost:8000/v1?concurrency=8&rpm=60#API_KEY`. The options:

`concurrency=N`   at most N requests at once, and fewer while the server is overloaded
`rpm=N`           at most N requests in any minute
`tpm=N`           at most N tokens in any minute, of prompts and replies
`timeout=S`       seconds to wait for one response
`attempts=N`      attempts before giving up
`cache=FILE`      store replies in FILE; an identical request is not sent again
`logprobs=on`     ask for the log-probabilities of the replies, and record them
`stream=on|off`   whether replies are streamed
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from palaestra.core.errors import InputError, UnknownName
from palaestra.models.remote.anthropic_protocol import ANTHROPIC
from palaestra.models.remote.endpoint import api_key
from palaestra.models.remote.openai_protocol import API_VERSION, AZURE, COMPATIBLE, OPENAI
from palaestra.models.remote.rate_limiter import Limits, shared_limiter
from palaestra.models.remote.remote_model import RemoteModel
from palaestra.models.remote.response_cache import ResponseCache

PROTOCOLS = {protocol.scheme: protocol for protocol in (OPENAI, ANTHROPIC, AZURE)}
"""Scheme to protocol, for the provider's own servers."""

OPTIONS = {
    "attempts": "a whole number above 0",
    "cache": "a file",
    "concurrency": "a whole number above 0",
    "logprobs": "on",
    "rpm": "a whole number above 0",
    "stream": "on or off",
    "timeout": "seconds above 0",
    "tpm": "a whole number above 0",
}
"""Option to the values that it takes."""

_NAME = re.compile(
    rf"(?P<scheme>{'|'.join(PROTOCOLS)}):(?P<model>.+?)(?:@(?P<url>https?://[^?#]+))?"
    r"(?:\?(?P<options>[^#]*))?(?:#(?P<key>[A-Za-z_]\w*))?"
)


def parse_remote(name: str) -> RemoteModel:
    """Return the model of a name such as `openai:gpt-5-mini` or `openai:qwen3@http://localhost/v1`.

    Without a URL the model is the provider's own, and so are the environment variables of the key
    and of the base URL. With a URL the part after `#` names the variable of the key; without it no
    key is sent, so a key never goes to a URL for which it was not named. Models of one process
    with the same server, model, key and limits share a rate limiter.

    Raises:
        UnknownName: there is no such option.
        InputError: the name has another form, an option's value is invalid, or a variable is not
            set.
        MissingPackage: the provider's SDK is not installed.
    """
    match = _NAME.fullmatch(name)
    if match is None or not _names_a_server(match["model"], match["url"]):
        raise InputError(
            f"'{name}' names no remote model; write openai:MODEL, anthropic:MODEL or "
            "azure:DEPLOYMENT for the provider's own, or openai:MODEL@URL for any server that "
            "speaks its protocol, for example openai:qwen3@http://localhost:8000/v1, and append "
            "#VARIABLE if the environment variable VARIABLE holds an API key."
        )
    protocol = PROTOCOLS[match["scheme"]]
    options = _Options.of(name, match["options"])
    url, key = match["url"], match["key"]
    if url is None:
        url = os.environ.get(protocol.url, "").strip() or None
        key = key or protocol.key
        api_key(key, f"'{name}'")
    protocol.check_package()
    if protocol is AZURE:
        _check_azure(name, url)
    elif protocol is OPENAI and url is not None:
        protocol = COMPATIBLE
    server = f"{match['scheme']}:{match['model']}@{url or ''}#{key or ''}"
    return RemoteModel(
        match["model"],
        url,
        protocol=protocol,
        key=key,
        limiter=shared_limiter(server, options.limits),
        cache=None if options.cache is None else ResponseCache(options.cache),
        **options.others,
    )


@dataclass(frozen=True, slots=True)
class _Options:
    """The parsed options of a name."""

    limits: Limits
    cache: Path | None
    others: dict[str, Any]  # arguments of RemoteModel

    @classmethod
    def of(cls, name: str, query: str | None) -> _Options:
        """Parse the text between `?` and `#`; None means there is no `?`."""
        found: dict[str, str] = {}
        for part in () if query is None else query.split("&"):
            option, _, value = part.partition("=")
            if option not in OPTIONS:
                raise UnknownName("option of remote models", option, OPTIONS)
            if option in found:
                raise InputError(f"'{name}' sets '{option}' twice; set it once.")
            if not _fits(OPTIONS[option], value):
                raise InputError(f"'{part}' in '{name}' is invalid; give {OPTIONS[option]}.")
            found[option] = value
        bounds = {name: int(found[name]) for name in ("concurrency", "rpm", "tpm") if name in found}
        others: dict[str, Any] = {}
        if "attempts" in found:
            others["attempts"] = int(found["attempts"])
        if "timeout" in found:
            others["timeout"] = float(found["timeout"])
        if "stream" in found:
            others["stream"] = found["stream"] == "on"
        if "logprobs" in found:
            others["logprobs"] = True
        cache = Path(found["cache"]).expanduser() if "cache" in found else None
        return cls(Limits(**bounds), cache, others)


def _fits(takes: str, value: str) -> bool:
    if takes == "a file":
        return bool(value)
    if takes in ("on", "on or off"):
        return value in takes.split(" or ")
    if takes == "a whole number above 0":
        return value.isascii() and value.isdecimal() and int(value) > 0
    return re.fullmatch(r"\d+(\.\d+)?|\.\d+", value) is not None and float(value) > 0


def _names_a_server(model: str, url: str | None) -> bool:
    """Return whether the URL has a host; without a URL, whether none was intended."""
    if url is None:
        return not set(model).intersection("@?# ") and "://" not in model
    try:
        return bool(httpx.URL(url).host)
    except httpx.InvalidURL:
        return False


def _check_azure(name: str, url: str | None) -> None:
    if url is None:
        raise InputError(
            f"'{name}' names no server; set the environment variable '{AZURE.url}' to the "
            "resource's URL, or write azure:DEPLOYMENT@URL."
        )
    if not os.environ.get(API_VERSION):
        raise InputError(
            f"'{name}' needs the environment variable '{API_VERSION}'; set it to a version of "
            "Azure's API, such as 2024-10-21."
        )
