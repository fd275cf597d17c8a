"""What a stage reads: the episodes of its sources, by who speaks in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

from palaestra.agents.registry import agent_class
from palaestra.agents.search.base import SearchAgent
from palaestra.core.episode import Episode
from palaestra.environments.registry import make
from palaestra.learning.data.examples.example import Example
from palaestra.learning.data.examples.hints import StepHints, stated_hints
from palaestra.learning.data.examples.labels import as_it_ended, understood
from palaestra.learning.data.examples.preferred import Label, Pair
from palaestra.learning.data.examples.retokenizing import retokenized
from palaestra.learning.data.examples.search_traces import without_search
from palaestra.learning.data.rows import Row
from palaestra.training.demonstrations import RECORDED, recorded_demonstrations
from palaestra.training.judged_outcomes import with_judged_outcomes
from palaestra.training.loop_plan import shaping
from palaestra.training.proxy_labels import with_proxy_labels
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made, Step
from palaestra.training.stage_sections import Explore
from palaestra.training.stage_sources import FromRun, FromSpeaker, FromStage, Source, StagePart
from palaestra.training.stages.recording import fitting, record

HINTS = "hints/"  # documents: the hints of each stage that explored with some
SCRIPTED = ("expert", "policy", "random")  # speakers that reply in the policy's own tokens

Rule = Callable[..., Sequence[Any]]
"""A part of kind examples, with its options: (episodes, policy, …) -> examples, pairs or labels."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Episodes in which one speaker replies."""

    speaker: str  # under which its calls are recorded
    episodes: list[Episode]
    counted: bool = True  # whether no other stage has counted their tokens


async def read(context: RunContext, sources: Sequence[Source], made: Made) -> list[Shown]:
    """Return the episodes of sources, in their order; record those that a speaker is to show.

    Raises:
        InputError: a speaker cannot show anything, or nothing fits into the model's context.
    """
    found: list[Shown] = []
    own = 0
    for source in sources:
        if isinstance(source, FromSpeaker):
            own += 1
            phase = own_phase(context.record, own)
            counts = source.counts(context.recipe.environment.id)
            episodes = await record(context, phase, source.speaker, counts)
            found.append(_shown(context, source.speaker, episodes))
        elif isinstance(source, FromRun):
            found.append(Shown(RECORDED, recorded_demonstrations(context, source)))
        else:
            found += of_stage(context, source, made)
    return found


def own_phase(record: str, number: int = 1) -> str:
    """Return the phase of the episodes that a stage records from its `number`-th speaker."""
    phase = "demonstrations" if record == "imitation" else f"{record}/demonstrations"
    return phase if number == 1 else f"{phase}-{number}"


def of_stage(context: RunContext, source: FromStage, made: Made) -> list[Shown]:
    """Return the episodes that a stage recorded; none if it has not run."""
    found = []
    for step in made.read(source):
        for speaker, phases in _phases(context, step):
            episodes = [e for phase in phases for e in context.store.episodes(phase)]
            if _searches(step.part):
                episodes = [without_search(episode) for episode in episodes]
            one = _shown(context, speaker, episodes, counted=False)
            if source.judged is not None:
                given = with_judged_outcomes(
                    context, made, source.judged, one.episodes, one.speaker
                )
                one = replace(one, episodes=given)
            if source.labelled is not None:
                named = with_proxy_labels(context, made, source.labelled, one.episodes, one.speaker)
                one = replace(one, episodes=named)
            found.append(one)
    return found


def _searches(part: StagePart) -> bool:
    """Return whether a stage's agent tries actions that it does not take."""
    agent = part.agent if isinstance(part, Explore) else None
    return agent is not None and issubclass(agent_class(agent), SearchAgent)


def _phases(context: RunContext, step: Step) -> list[tuple[str, list[str]]]:
    """Return the phases that a stage recorded, by who speaks in them."""
    part, own = step.part, step.record
    if isinstance(part, Explore):
        return [(part.speaker, [own])]
    speakers = [s.speaker for s in getattr(part, "sources", ()) if isinstance(s, FromSpeaker)]
    if speakers:
        return [(speaker, [own_phase(own, n)]) for n, speaker in enumerate(speakers, 1)]
    steps = re.compile(re.escape(own) + r"/\d+")
    return [("policy", [phase for phase in context.store.phases() if steps.fullmatch(phase)])]


def _shown(
    context: RunContext, speaker: str, episodes: list[Episode], *, counted: bool = True
) -> Shown:
    """Return a speaker's episodes in the policy's tokens, without those that are too long."""
    if speaker not in SCRIPTED:
        renderer = context.policy.renderer
        episodes = [retokenized(episode, speaker, renderer) for episode in episodes]
    name = context.policy.name if speaker == "policy" else speaker
    return Shown(name, fitting(episodes, context), counted)


# ── what rules make of them ──────────────────────────────────────────────────


def chosen(context: RunContext, rule: Rule, shown: Sequence[Shown]) -> list[Any]:
    """Return what a rule makes of episodes, speaker by speaker; without what is too long.

    Most rules compare the episodes of one speaker with each other, and not with those of another.
    What they join from several episodes may be longer than the model's context.
    """
    speakers = dict.fromkeys(one.speaker for one in shown)
    together = {
        speaker: [e for one in shown if one.speaker == speaker for e in one.episodes]
        for speaker in speakers
    }
    given = _given(context, rule)
    if compares_speakers(rule):
        found = list(rule(together, **given))
    else:
        found = [x for name, of in together.items() for x in rule(of, name, **given)]
    limit = context.recipe.model.context
    kept = [item for item in found if all(len(r.tokens) <= limit for r in rows_of_items([item]))]
    if left := len(found) - len(kept):
        context.reporter.say(
            f"{left} of {len(found)} examples left out: longer than model.context = {limit}"
        )
    return kept


def compares_speakers(rule: Rule) -> bool:
    """Return whether a rule takes the episodes of all speakers at once."""
    return "shown" in signature(rule).parameters


def _given(context: RunContext, rule: Rule) -> dict[str, Any]:
    """Return the arguments of a rule that are the run's, and no options."""
    wanted = signature(rule).parameters
    own: dict[str, Any] = {
        "renderer": context.policy.renderer,
        "shaping": shaping(context.recipe.rl, context.turns, context.recipe.seed),
        "judges": (understood, as_it_ended),
        "hints": hints_in(context),
    }
    if wanted.keys() & {"instructions", "tools"}:
        own |= _told(context.recipe.environment.id)
    return {name: value for name, value in own.items() if name in wanted}


def hints_in(context: RunContext) -> Callable[[Episode], Sequence[str]]:
    """Return what finds the hints in the prompts of a recorded episode, word for word."""
    known: dict[str, StepHints] = {}

    def find(episode: Episode) -> Sequence[str]:
        phase = episode.key.phase
        if phase not in known:
            known[phase] = context.store.get(HINTS + phase) or {}
        return stated_hints(episode, known[phase])

    return find


def _told(environment: str) -> dict[str, Any]:
    """Return an environment's instructions and tools, by the names of arguments of rules."""
    built = make(environment)
    try:
        return {"instructions": built.instructions, "tools": built.tools}
    finally:
        built.close()


def rows_of_items(items: Sequence[Example | Pair | Label]) -> list[Row]:
    """Return the rows that examples, pairs or labels train."""
    found: list[Row] = []
    for item in items:
        if isinstance(item, Example):
            found.append(item.row)
        elif isinstance(item, Pair):
            found += [*item.chosen, *item.rejected]
        else:
            found += item.response
    return found
