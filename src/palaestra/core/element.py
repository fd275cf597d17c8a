"""Elements: what a page or a screen shows, as a list of roles, names and boxes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels of the picture; the origin is its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def centre(self) -> tuple[float, float]:
        """The point in the middle."""
        return self.x + self.width / 2, self.y + self.height / 2

    def contains(self, x: float, y: float) -> bool:
        """Return whether a point lies inside; the right and lower edges lie outside."""
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height


@dataclass(frozen=True, slots=True)
class Element:
    """One element of an interface: a button, a field, a heading, some text.

    Roles, names and states are those of WAI-ARIA 1.2 (https://www.w3.org/TR/wai-aria-1.2/).
    """

    id: str  # stable within an episode: the same element keeps its id
    role: str  # "button", "textbox", "link", "StaticText" …
    name: str = ""  # its accessible name
    value: str = ""  # what a field holds
    states: tuple[str, ...] = ()  # "checked", "disabled", "focused", "level=2" …, sorted
    box: Box | None = None  # None: it is not in the picture
    parent: str | None = None  # the id of the element around it; None: it is the root
    inside: tuple[float, float] | None = None  # a point of it; None: the middle of its box is one

    @property
    def point(self) -> tuple[float, float] | None:
        """The point at which to act on it; None: it is not in the picture."""
        return self.inside or (self.box.centre if self.box is not None else None)
