"""Two cooks in a kitchen of Overcooked-AI: one dispatcher for both, or each by itself.

`overcooked/LAYOUT-N`: a dispatcher says in each step what both cooks do (`cook1: east; cook2:
interact`), and N soups that are ordered at the start are due after 100 N steps.
`overcooked/LAYOUT-N-every-T`: an order arrives every T steps and is due 100 steps later, so a
smaller T is a heavier load. With `:each` at the end every cook is a player, both move at the same
time, and both get the common return. All forms have the same tasks; seeds vary where the cooks
start.

The return is the share of orders that were delivered in time; its mean over the loads of a layout
is the collaboration score of Gong et al. 2023 ("MindAgent: Emergent Gaming Interaction"). Success
is all orders.

Source of the kitchens: Carroll et al. 2019 ("On the Utility of Learning about Humans for Human-AI
Coordination"), the package `overcooked-ai`: its layouts, recipes, and rules of a step. Ours are the
words, and the orders with their due steps: the package has soups that may be served without end.
`planner.py` has the oracle.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from palaestra.core.environment import Action, Capability, Observation, Spec, Stakes, Transition
from palaestra.core.task import Task
from palaestra.core.team_words import joint_plan, parts_of
from palaestra.environments.base import without_parameters
from palaestra.environments.families.overcooked.kitchen import (
    COOKS,
    LAYOUTS,
    MOVES,
    STAY,
    Kitchen,
)
from palaestra.environments.families.overcooked.orders import LOADS, NAMES, Orders
from palaestra.environments.families.overcooked.planner import Moves, plan
from palaestra.environments.shared.oracle_plan import OraclePlan
from palaestra.environments.simultaneous import Round, Simultaneous

EACH = ":each"  # the form in which every cook is a player
RULES = (
    "Two cooks work in a kitchen. In a step a cook turns to a direction and walks one cell that "
    "way if it is free floor, or uses what it faces ('interact'): it takes an onion, a dish, or a "
    "thing from a counter into empty hands, puts a thing on an empty counter or an onion into a "
    "pot, starts a pot with empty hands, fills a dish at a pot whose soup is ready, or serves a "
    "soup at the serving window. A pot takes 3 onions and cooks for 20 steps once it is started. "
    "Only soups of 3 onions are ordered. Cooks that would share a cell or swap cells both stay. "
    "Cells are (x, y): x counts from west to east, y from north to south."
)
CHOICES = ", ".join(MOVES)


class Overcooked(Simultaneous, id="overcooked", capabilities={"state_key", "snapshot", "progress"}):
    """One kitchen, for one dispatcher or for a player per cook."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        layout, _, load = name.removesuffix(EACH).partition("-")
        self._layout, self._orders = layout, Orders.named(load)
        self._kitchen = Kitchen(layout)
        self._delivered: set[int] = set()  # orders
        self._plan = OraclePlan()
        self._vain: list[str] = []  # cooks whose moves had no effect in the last step

    @classmethod
    def names(cls) -> list[str]:
        return [
            f"{layout}-{load}{form}" for layout in LAYOUTS for load in NAMES for form in ("", EACH)
        ]

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        """Return the spec with the players, the horizon as the typical turns of each, and oracles.

        Heavy loads have none: the planner, in which one cook works at a time, is too slow.
        """
        spec = super().spec_of(name)
        orders = Orders.named(name.removesuffix(EACH).partition("-")[2])
        steps = orders.horizon
        if not 0 < orders.every < LOADS[0]:
            spec = replace(spec, capabilities=spec.capabilities | {Capability.ORACLE})
        if not name.endswith(EACH):
            return replace(spec, typical_turns=steps)
        return replace(
            spec,
            players=COOKS,
            stakes=Stakes("common", forfeit=0.0, idle=STAY),
            typical_turns=steps * len(COOKS),
        )

    @property
    def instructions(self) -> str:
        kitchen = f"{RULES}\n{self._kitchen.plan()}\nOrders: {self._orders.rule}\n"
        if self._each:
            return f"{kitchen}Both cooks move at the same time. Reply with one move: {CHOICES}."
        return (
            f"{kitchen}Reply with what both cooks do in one step, such as: cook1: east; cook2: "
            f"interact. A cook that you leave out stays. The moves are: {CHOICES}."
        )

    def begin(self, task: Task) -> None:
        """Place the cooks; raise InputError for a task with parameters."""
        without_parameters(task, "choose a kitchen by its name instead")
        self._kitchen.start(random.Random(f"overcooked {self._layout} {task.seed}"))
        self._delivered, self._vain = set(), []
        self._plan.clear()

    def step(self, action: Action) -> Transition:
        self._plan.record(action.text)
        return super().step(action)

    def movers(self) -> Sequence[str]:
        closed = self._orders.closed(self._kitchen.steps, self._delivered)
        return () if closed else self.spec.players

    def refusal(self, player: str, action: Action) -> str | None:
        try:
            self._moves(player, action.text)
        except ValueError as reason:
            return str(reason)
        return None

    def play(self, moves: Mapping[str, Action]) -> Round:
        chosen = dict.fromkeys(COOKS, STAY)
        for player in self.spec.players:
            chosen |= self._moves(player, moves[player].text)
        served, self._vain = self._kitchen.step([chosen[cook] for cook in COOKS])
        new = self._orders.open(self._kitchen.steps, self._delivered)[:served]
        self._delivered.update(new)
        success = len(self._delivered) == self._orders.count
        return Round(
            dict.fromkeys(self.spec.players, len(new) / self._orders.count),
            success=success,
            truncated=not success and not self.movers(),
        )

    def observe(self, player: str) -> Observation:
        vain = [f"The move of {cook} had no effect." for cook in self._vain]
        return Observation("\n".join([self._heading(), self._kitchen.describe(), *vain]))

    def progress(self) -> float:
        """Return the share of the orders that were delivered."""
        return len(self._delivered) / self._orders.count

    def oracle(self) -> list[Action]:
        """Return the planner's moves from here; empty if they do not deliver all orders in time."""
        if Capability.ORACLE not in self.spec.capabilities:
            self._undeclared(Capability.ORACLE)
        return self._plan.remaining(self._planned) if self.movers() else []

    def planned_moves(self, *first: Moves) -> tuple[list[Moves], bool]:
        """Return the planner's moves of both cooks from the last round on.

        Args:
            first: moves of the next step that are not the planner's.

        Returns:
            The moves of each step, and whether they deliver all orders in time.
        """
        kitchen, done = Kitchen(self._layout), set(self._delivered)
        kitchen.load(self._kitchen.dump())
        for moves in first:
            served, _ = kitchen.step(moves)
            done.update(self._orders.open(kitchen.steps, done)[:served])
        found, done = plan(kitchen, self._orders, done)
        return [*first, *found], len(done) == self._orders.count

    def sample_action(self, rng: random.Random) -> Action:
        """Sample any move of each cook."""
        moves = {cook: rng.choice(list(MOVES)) for cook in COOKS}
        return Action(moves[COOKS[0]] if self._each else joint_plan(moves))

    def save_round(self) -> bytes:
        state = [self._kitchen.dump(), sorted(self._delivered), self._vain]
        return json.dumps(state, sort_keys=True).encode()

    def load_round(self, state: bytes) -> None:
        kitchen, delivered, self._vain = json.loads(state)
        self._kitchen.load(kitchen)
        self._delivered = set(delivered)
        self._plan.clear()

    # ── details ──────────────────────────────────────────────────────────────

    def _planned(self) -> list[str]:
        """Return the actions of the planner's solution; the first cook's move may be pending."""
        moves, solved = self.planned_moves()
        if self._pending:
            (made,) = self._moves(COOKS[0], self._pending[COOKS[0]].text).values()
            if not moves or moves[0][0] != made:
                moves, solved = self.planned_moves((made, STAY))
        if not solved:
            return []
        if not self._each:
            return [joint_plan(dict(zip(COOKS, pair, strict=True))) for pair in moves]
        return [move for pair in moves for move in pair][len(self._pending) :]

    @property
    def _each(self) -> bool:
        return self.spec.name.endswith(EACH)

    def _moves(self, player: str, text: str) -> dict[str, str]:
        """Return the moves in a player's action, by cook; raises ValueError with the reason."""
        parts = [(player, text)] if self._each else parts_of(text)
        if not parts:
            raise ValueError(f"The plan is empty; write {COOKS[0]}: {STAY}.")
        found: dict[str, str] = {}
        for name, part in parts:
            cook, move = name.lower(), part.strip().lower().rstrip(".")
            if cook not in COOKS:
                raise ValueError(f"'{name}' is no cook; write {' or '.join(COOKS)}, and a move.")
            if cook in found:
                raise ValueError(f"{cook} has two moves; leave one.")
            if move not in MOVES:
                raise ValueError(f"'{part}' is no move; write one of these: {CHOICES}.")
            found[cook] = move
        return found

    def _heading(self) -> str:
        step, orders = self._kitchen.steps, self._orders
        late = orders.late(step, self._delivered)
        so_far = f"{len(self._delivered)} of {orders.count} orders delivered, {late} too late"
        if not self.movers():
            return f"The kitchen is closed after {step} steps: {so_far}."
        due = [orders.due(order) for order in orders.open(step + 1, self._delivered)]
        times = f"{len(due)}, due by step {', '.join(map(str, due))}" if due else "none"
        return f"Step {step + 1} of {orders.horizon}: {so_far}; open: {times}."
