"""The gallery: albums of drawn pictures, about which no text says anything.

/            albums
/album/3     its pictures
/picture/3-1.svg
"""

from __future__ import annotations

import random
from functools import lru_cache

from palaestra.browser.sites import Request, Response
from palaestra.environments.families.real_sites.application import OpenSite
from palaestra.environments.families.real_sites.atlas import drawings
from palaestra.environments.families.real_sites.atlas.drawings import KINDS, LETTERS, Album
from palaestra.environments.families.real_sites.atlas.own_site import OwnSite
from palaestra.environments.families.real_sites.atlas.page_blocks import (
    Frame,
    Links,
    Picture,
    Words,
    drawing,
)

HOST = "http://gallery.example"
OF_A_KIND = 4  # albums of each kind of pictures


class Gallery(OwnSite):
    """Albums have the same numbers, pages and look in every world, and other pictures."""

    name = "gallery"
    menu = (("Albums", "/"),)

    def frame(self, seed: int) -> Frame:
        return super().frame(0)  # the look must not tell one world from another

    def answer(self, site: OpenSite, request: Request, frame: Frame) -> Response:
        numbers = {str(number): number for number in albums()}
        match request.method, request.path.strip("/").split("/"):
            case "GET", [""]:
                links = {f"Album {number}": album_path(number) for number in albums()}
                return frame.page("Gallery", Words("Albums of pictures."), Links(links))
            case "GET", ["album", number] if number in numbers:
                return _album(frame, numbers[number], album(site.seed, numbers[number]))
            case "GET", ["picture", name]:
                number, _, which = name.removesuffix(".svg").partition("-")
                if number in numbers and which.isascii() and which.isdecimal():
                    pictures = album(site.seed, numbers[number]).pictures
                    if int(which) < len(pictures):
                        return drawing(pictures[int(which)])
        return frame.missing(request.path)


def albums() -> dict[int, str]:
    """Return the kind of each album, by its number."""
    return dict(enumerate((kind for kind in KINDS for _ in range(OF_A_KIND)), 1))


def album_path(number: int) -> str:
    return f"/album/{number}"


@lru_cache(maxsize=256)
def album(seed: int, number: int) -> Album:
    """Return an album of a world: the question by its number, the pictures by the world, too."""
    question = random.Random(f"question {number}")
    hidden = random.Random(f"pictures {seed} {number}")
    return KINDS[albums()[number]](question, hidden)


def _album(frame: Frame, number: int, found: Album) -> Response:
    several = len(found.pictures) > 1
    blocks: list[Words | Picture] = []
    for index in range(len(found.pictures)):
        words = f"Picture {LETTERS[index]}" if several else "Picture"
        source = f"/picture/{number}-{index}.svg"
        blocks += [Words(words), Picture(source, words.lower(), drawings.SIZE)]
    return frame.page(f"Album {number}", *blocks)
