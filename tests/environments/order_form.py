"""An order form of a shop: a small application with a mouse, a keyboard, elements and a picture."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from palaestra.core.element import Box, Element
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Id, Kind, Point, Target
from palaestra.core.gestures.gesture_line import write_line
from palaestra.core.gestures.gesture_tools import TOOLS, gesture_in
from palaestra.core.gestures.locating import element_of, point_of
from palaestra.core.rare_capabilities import Elemental, Pictured
from palaestra.core.task import Task
from palaestra.environments.snapshots import opened, sealed

SIZE = (240, 160)
NAMES, SIZES = ("Ann", "Bob", "Eve Ng"), ("small", "medium", "large")
KINDS: tuple[Kind, ...] = ("click", "type", "select", "scroll", "wait", "give up")
OVER = Transition(Observation("It is over."), valid=False)


@dataclass
class Form:
    """What the page holds."""

    name: str = ""
    size: str = ""
    agreed: bool = False
    focus: str = ""  # the id of the element with the focus
    alert: str = ""
    down: float = 0.0  # how far the page is scrolled; the terms lie below
    said: str = ""  # what came of the last gesture
    over: bool = False
    solved: bool = False


class OrderForm(
    Environment,
    Pictured,
    Elemental,
    capabilities={"elements", "picture", "state_key", "snapshot", "progress", "oracle"},
    typical_turns=8,
):
    """Fill in the name and the size that the task asks for, agree to the terms, and order."""

    instructions = "Order by gestures, such as: click [12], type [12] 'text', select [12] 'large'."

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.wanted, self.form = ("", ""), Form()

    def reset(self, task: Task) -> Observation:
        rng = random.Random(task.seed)
        self.wanted, self.form = (rng.choice(NAMES), rng.choice(SIZES)), Form()
        self.form.said = self._goal
        return Observation(f"{self._goal}\nThe form is empty.")

    @property
    def _goal(self) -> str:
        return f"Order the {self.wanted[1]} size for {self.wanted[0]}."

    def step(self, action: Action) -> Transition:
        if self.form.over:
            return OVER
        before = replace(self.form)
        try:
            gesture = gesture_in(action)
            self.form.said = "Done."
            self._do(gesture)
        except InputError as wrong:
            self.form = before
            return Transition(Observation(str(wrong)), valid=False)
        form = self.form
        return Transition(
            Observation(form.said), float(form.solved), terminated=form.over, success=form.solved
        )

    def _do(self, gesture: Gesture) -> None:
        form = self.form
        if gesture.kind not in KINDS:
            raise InputError(f"This form takes {', '.join(KINDS)}, not {gesture.kind}.")
        if gesture.kind == "scroll":
            by = gesture.amount[1] * (SIZE[1] if gesture.unit == "pages" else 1)
            form.down = min(max(form.down + by, 0.0), 100.0)
            return
        if gesture.kind == "give up":
            form.over = True
            return
        if gesture.kind == "wait":
            return
        form.focus = self._hit(gesture.target) if gesture.target is not None else form.focus
        match gesture.kind, form.focus:
            case "type", "name":
                form.name = (form.name if not gesture.clear else "") + gesture.text
            case "select", "size" if gesture.text in SIZES:
                form.size = gesture.text
            case "click", "agree":
                form.agreed = not form.agreed
            case "click", "order":
                self._order()
            case "click", _:
                pass
            case _:
                raise InputError(f"Nothing can do `{write_line(gesture)}` there.")

    def _hit(self, target: Target) -> str:
        """The id of what is at a target's point, as with a real mouse."""
        x, y = point_of(target, self.elements(), SIZE)
        found = element_of(Point(x, y), self.elements())
        return found.parent or found.id if found.role == "StaticText" else found.id

    def _order(self) -> None:
        form = self.form
        form.alert = "" if form.name and form.size and form.agreed else "Something is missing."
        if not form.alert:
            form.over, form.solved = True, (form.name, form.size) == self.wanted
            form.said = "Thank you." if form.solved else "We sent something else."

    def elements(self) -> Sequence[Element]:
        form = self.form
        page = [
            Element("page", "RootWebArea", "Shop", box=Box(0, 0, *map(float, SIZE))),
            Element("title", "heading", "Order", states=("level=1",), parent="page"),
            Element("hello", "StaticText", "Order", box=_box(0, form), parent="title"),
            self._field("name", "textbox", "Name", 1, form.name),
            self._field("size", "combobox", "Size", 2, form.size),
            self._field("agree", "checkbox", "I agree", 3, "", form.agreed),
            self._field("order", "button", "Order", 4, ""),
            Element("order-text", "StaticText", "Order", box=_box(4, form, 4), parent="order"),
        ]
        if form.alert:
            page.append(Element("alert", "alert", form.alert, box=_box(5, form), parent="page"))
        return [*page, Element("terms", "link", "Terms", box=_box(8, form), parent="page")]

    def _field(
        self, id: str, role: str, name: str, row: int, value: str, checked: bool = False
    ) -> Element:
        states = [
            *(["checked"] if checked else []),
            *(["focused"] if self.form.focus == id else []),
        ]
        return Element(id, role, name, value, tuple(states), _box(row, self.form), "page")

    def caption(self) -> str:
        return self.form.said

    def picture(self) -> bytes:
        from PIL import Image, ImageDraw

        image = Image.new("RGB", SIZE, "white")
        draw = ImageDraw.Draw(image)
        for element in self.elements():
            box = element.box
            if box is not None:
                fill = "#ddddff" if "checked" in element.states else None
                corner = (box.x + box.width - 1, box.y + box.height - 1)
                draw.rectangle((box.x, box.y, *corner), outline="black", fill=fill)
                draw.text((box.x + 3, box.y + 3), element.value or element.name, fill="black")
        file = io.BytesIO()
        image.save(file, "PNG")
        return file.getvalue()

    def state_key(self) -> str:
        return json.dumps([self.wanted, asdict(self.form)])

    def snapshot(self) -> bytes:
        return sealed("order", "1", self.state_key().encode())

    def restore(self, snapshot: bytes) -> None:
        (name, size), form = json.loads(opened(snapshot, "order", "1"))
        self.wanted, self.form = (name, size), Form(**form)

    def progress(self) -> float:
        form = self.form
        done = (form.name == self.wanted[0]) + (form.size == self.wanted[1]) + form.agreed
        return 1.0 if form.solved else done / 4

    def oracle(self) -> list[Action]:
        form, plan = self.form, []
        if form.over:
            return []
        if form.down:
            plan.append(Gesture("scroll", amount=(0, -form.down)))
        if form.name != self.wanted[0]:
            plan.append(Gesture("type", Id("name"), text=self.wanted[0], clear=True))
        if form.size != self.wanted[1]:
            plan.append(Gesture("select", Id("size"), text=self.wanted[1]))
        if not form.agreed:
            plan.append(Gesture("click", Id("agree")))
        plan.append(Gesture("click", Id("order")))
        return [Action(write_line(gesture)) for gesture in plan]

    def sample_action(self, rng: random.Random) -> Action:
        shown = [element.id for element in self.elements() if element.box is not None]
        text = rng.choice(NAMES)
        gestures = [
            Gesture("click", Id(rng.choice(shown))),
            Gesture("scroll", amount=(0, rng.choice((-50, 50)))),
            *([Gesture("type", Id("name"), text=text, clear=True)] if "name" in shown else []),
            *([Gesture("select", Id("size"), text=rng.choice(SIZES))] if "size" in shown else []),
        ]
        return Action(write_line(rng.choice(gestures)))


class OrderFormOfTools(OrderForm):
    """The same form, whose gestures are calls of tools."""

    tools = tuple(TOOLS[kind] for kind in KINDS)

    def oracle(self) -> list[Action]:
        return [_called(action) for action in super().oracle()]

    def sample_action(self, rng: random.Random) -> Action:
        return _called(super().sample_action(rng))


def _called(action: Action) -> Action:
    from palaestra.core.gestures.gesture_tools import call_of

    call = call_of(gesture_in(action))
    return Action(str(call), call)


def _box(row: int, form: Form, inset: float = 0) -> Box | None:
    """Where a row of the page is in the picture; None: nowhere."""
    top = 4 + 20 * row - form.down
    if not 0 <= top <= SIZE[1] - 18:
        return None
    return Box(4 + inset, top + inset, 120 - 2 * inset, 18 - 2 * inset)
