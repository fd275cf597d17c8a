"""A learned model of the next page, and a site that exists only in it.

The model is a language model: its prompt is a page as text and an action, its reply how many lines
of the page stay, and the lines that follow them. It never reads the task. `ImaginedSite` takes the
first page of a task from the real site and all others from the model: what a click leads to, which
clicks are refused, and whether a button was pressed. An action is judged by the page that was
imagined, as one is by the real page.

Source: DynaWeb 2026 (model-based reinforcement learning of web agents; known from its abstract).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from palaestra.core.environment import (
    Action,
    AsyncEnvironment,
    Observation,
    Signals,
    Transition,
)
from palaestra.core.episode import Episode, Key
from palaestra.core.message import Message, user
from palaestra.core.model import Prompt, Sampling
from palaestra.core.task import Task
from palaestra.learning.compute.master_weights import Optimisation
from palaestra.learning.compute.weight_selection import everything
from palaestra.learning.data.examples.example import Example
from palaestra.learning.data.rows import Row
from palaestra.learning.loop.imitation import ImitationPlan, batches_of, imitate
from palaestra.learning.loop.learner import Learner
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.tiny import tiny_network
from palaestra.models.renderers.chatml import ChatMLRenderer
from recipes.web.shelter import ShelterTasks

TITLE, DONE = "Shelter", "Done: "  # how pages begin; any other text refuses an action
CONTEXT, LONGEST = 256, 96  # tokens: of a visit, and of a reply of the model


@dataclass(frozen=True, slots=True)
class Visit:
    """An action on a page, and what followed: another page, or the first words of a refusal."""

    page: str
    action: str
    after: str


def is_page(text: str) -> bool:
    """Return whether a text is a page of the site, and not the refusal of an action."""
    return text.startswith((TITLE, DONE))


def page_in(observation: str) -> str:
    """Return what the site shows: an observation without the task, which is its first line."""
    page = observation.partition("\n")[2]
    return page if is_page(page) else observation


def change(page: str, after: str) -> str:
    """Return how many first lines of a page stay, and the lines that follow them."""
    old, new = page.split("\n"), after.split("\n")
    kept = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(old))
    kept = min(kept, len(new))
    return "\n".join([str(kept), *new[kept:]])


def changed(page: str, reply: str) -> str:
    """Return the text after a change; the reply itself where it does not say how many lines stay.

    What the model replies may be anything; a text that is no page refuses the action.
    """
    first, *rest = reply.split("\n")
    if not first.isdecimal():
        return reply
    return "\n".join([*page.split("\n")[: int(first)], *rest])


def visits_of(episodes: Iterable[Episode]) -> list[Visit]:
    """Return the visits of episodes on the real site, in order."""
    found = []
    for episode in episodes:
        assert episode.observation is not None
        page = page_in(episode.observation.text)
        for step in episode.steps:
            after = page_in(step.transition.observation.text)
            after = after if is_page(after) else after.partition(" '")[0]
            found.append(Visit(page, step.action.text, after))
            page = after if is_page(after) else page
    return found


def agrees(imagined: str, real: str) -> bool:
    """Return whether an imagined page has the elements of the real one, in whatever order.

    The site orders its buttons by the task's seed, which no page tells.
    """
    return sorted(imagined.split("\n")) == sorted(real.split("\n"))


class PageModel:
    """A tiny transformer that imagines the text after an action."""

    def __init__(self, tokenizer: Tokenizer, seed: int, width: int = 96) -> None:
        self._renderer = ChatMLRenderer(tokenizer)
        network = tiny_network(
            tokenizer.get_vocab_size(), layers=2, width=width, heads=4, context=CONTEXT, seed=seed
        )
        self._model = ResidentModel("pages", network, self._renderer, context=CONTEXT)
        self._imagined: dict[tuple[str, str], str] = {}

    def learn(self, visits: Sequence[Visit], plan: ImitationPlan, seed: int) -> float:
        """Learn from visits; return the loss of the last update, in nats per token."""
        optimisation = Optimisation(learning_rate=plan.learning_rate)
        learner = Learner(self._model, everything(self._model.network), optimisation)
        examples = [Example(self._row(number, visit)) for number, visit in enumerate(visits)]
        loss = math.nan
        for _, _, update in imitate(learner, batches_of(examples, plan, seed), plan):
            loss = update.loss
        learner.close()
        self._imagined.clear()
        return loss

    def _row(self, number: int, visit: Visit) -> Row:
        prompt = self._renderer.start(_question(visit.page, visit.action))
        reply = self._renderer.reply(change(visit.page, visit.after))
        read, told = len(prompt), len(reply)
        return Row(
            Key("visits", number),
            [*prompt, *reply],
            [False] * read + [True] * told,
            [0.0] * (read + told),
            [-1] * read + [0] * told,
            [0] * (read + told),
        )

    async def after(self, page: str, action: str) -> str:
        """Imagine the text after an action: the likeliest one."""
        asked = (page, action)
        if asked not in self._imagined:
            messages = _question(page, action)
            tokens = tuple(self._renderer.start(messages))
            sampling = Sampling(temperature=0.0, max_tokens=LONGEST)
            reply = await self._model.generate(Prompt(messages, tokens, sampling, seed=0))
            self._imagined[asked] = changed(page, reply.text)
        return self._imagined[asked]


def _question(page: str, action: str) -> list[Message]:
    return [user(f"{page}\n> {action}")]


class ImaginedSite(AsyncEnvironment):
    """The tasks of the shelter on a site whose pages a model imagines."""

    instructions = ShelterTasks.instructions
    tools = ()
    capabilities = frozenset()

    def __init__(self, kind: str, pages: PageModel) -> None:
        self._real, self._pages = ShelterTasks(kind), pages
        self._goal, self._page = "", ""

    async def reset(self, task: Task) -> tuple[Observation, Signals]:
        first = self._real.reset(task)
        self._goal = first.text.partition("\n")[0]
        self._page = page_in(first.text)
        return first, Signals()

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        after = await self._pages.after(self._page, action.text)
        if not is_page(after):
            return Transition(Observation(after), valid=False), Signals()
        self._page = after
        over, success = after.startswith(DONE), after == f"{DONE}{self._real.asked}"
        shown = Observation(f"{self._goal}\n{after}")
        transition = Transition(shown, float(success), terminated=over, success=success)
        return transition, Signals()

    async def oracle(self) -> list[Action]:
        return []

    async def admissible(self) -> list[str]:
        return []

    async def close(self) -> None:
        self._real.close()
