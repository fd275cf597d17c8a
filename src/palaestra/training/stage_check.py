"""Checks of a recipe's stages before a run starts: what each reads, and that all of it is used."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import get_type_hints

from palaestra.agents.registry import make_agent
from palaestra.core.errors import GroupTooSmall, RecipeError, UnknownName
from palaestra.environments.registry import spec
from palaestra.evaluation.statistics.player_results import has_success
from palaestra.learning.data.examples.example import Example
from palaestra.learning.data.examples.preferred import Label, Pair
from palaestra.learning.loop.preference_learning import takes_pairs
from palaestra.learning.methods.algorithms import Method
from palaestra.learning.methods.component import Component, Kind, Need, find
from palaestra.training.adapter_check import check_stage_adapters
from palaestra.training.demonstrations import check_recorded
from palaestra.training.learned_model_sections import ModelOfRun
from palaestra.training.method import check_declared, chosen
from palaestra.training.offline_check import check_labelled, check_own_adapters
from palaestra.training.prompt_check import (
    Tested,
    check_needs_of_prompts,
    check_prompts,
    check_teacher,
    check_tests_agree,
)
from palaestra.training.recipe import Recipe
from palaestra.training.reward_models import check_model_of_run
from palaestra.training.speaker_check import check_speaker, environments_read
from palaestra.training.stage_program import (
    Made,
    RoundEnd,
    Step,
    program,
    steps_of,
)
from palaestra.training.stage_sections import (
    Distil,
    Evaluate,
    Explore,
    Imitate,
    Merge,
    Prefer,
    Reinforce,
    Repeat,
    Reward,
    Value,
)
from palaestra.training.stage_sources import BASE, FromRun, FromSpeaker, FromStage, StagePart
from palaestra.training.stages.reading import compares_speakers
from palaestra.training.usable_parts import refuse_unmet

MADE: dict[object, str] = {list[Example]: "examples", list[Pair]: "pairs", list[Label]: "labels"}
"""What a rule of kind examples returns, in words."""
TEACHES = {"feedback-labels": "labelled", "flattened": "chain", "world-knowledge": "react"}
"""The agent whose prompts and replies are in the examples of a rule, where it is a certain one."""


def check_stages(recipe: Recipe) -> None:
    """Check what the stages of a recipe read and write.

    Raises:
        InputError: the first problem found.
    """
    for part in _repeats(recipe.stage):
        _check_until(part, recipe.environment.id)
    steps = program(recipe)
    _check_names(steps)
    used = _check_reads(recipe, steps)
    _check_used(steps_of(steps), used)
    _check_together(steps_of(steps))
    check_stage_adapters(recipe, steps_of(steps))


def _repeats(stages: Sequence[StagePart]) -> list[Repeat]:
    found = [part for part in stages if isinstance(part, Repeat)]
    return found + [inner for part in found for inner in _repeats(part.stages)]


def _check_until(part: Repeat, environment: str) -> None:
    """Raise InputError unless the rule that ends a repeat reads a result of its own validation."""
    if part.until is None:
        return
    player, players = part.until.player, spec(environment).players
    game = not has_success(environment)
    if game and player is None:
        raise RecipeError(
            f"{part.called}.until reads success, and '{environment}' is a game between players, "
            "which has none; set player, whose mean return is then read."
        )
    if player is not None and not game:
        raise RecipeError(
            f"{part.called}.until reads the return of a player, and '{environment}' has one "
            "success; unset player, and set success or patience."
        )
    if player is not None and player not in players:
        raise UnknownName("player", player, players)
    inside = {one.called: one for one in part.stages}
    named = inside.get(part.until.stage)
    if not isinstance(named, Evaluate):
        raise RecipeError(
            f"{part.called}.until names '{part.until.stage}', which is no evaluation in its "
            f"stages; add one: {{do = 'evaluate', name = '{part.until.stage}', split = "
            "'validation'}."
        )
    if named.split != "validation":
        raise RecipeError(
            f"{part.called}.until would end rounds by results on the {named.split} split, which "
            f"is held out; set split = 'validation' in '{named.called}'."
        )


def _check_names(steps: Sequence[Step | RoundEnd]) -> None:
    """Raise RecipeError if two stages have one name, or one record."""
    parts: dict[str, StagePart] = {}
    records: dict[str, str] = {}
    for step in steps_of(steps):
        if isinstance(step.part, Evaluate) and step.part.name is None:
            continue  # nothing refers to it
        if parts.setdefault(step.name, step.part) is not step.part:
            raise RecipeError(f"Two stages are called '{step.name}'; give one of them a name.")
        if records.setdefault(step.record, step.name) != step.name:
            raise RecipeError(
                f"The stages '{records[step.record]}' and '{step.name}' would both be recorded "
                f"as '{step.record}'; give one of them another name."
            )


# ── what is read ─────────────────────────────────────────────────────────────


def _check_reads(recipe: Recipe, steps: Sequence[Step | RoundEnd]) -> set[str]:
    """Check what each step reads; return the names of the stages that are read."""
    made, used = Made(), set[str]()
    tested: Tested = {}
    every = {step.name: step.part for step in steps_of(steps)}
    for step in steps_of(steps):
        part, who = step.part, f"The stage '{step.name}'"
        if isinstance(part, Merge):
            for name in part.versions:
                _check_version(name, who, made, every)
            used.update(part.versions)
        elif part.trains:
            start = getattr(part, "start", None)
            if start is None:
                used.add(_name_of(made))
            else:
                _check_version(start, who, made, every)
                used.add(start)
        elif getattr(part, "speaker", "policy") == "policy":
            used.add(_name_of(made))
        if isinstance(part, Distil):
            used.update(check_teacher(recipe, part, who, made, every))
        for source in getattr(part, "sources", ()):
            _check_source(recipe, source, who, made, every)
            if isinstance(source, FromStage):
                used.add(source.stage)
                if source.judged is not None:
                    _check_judged(source.judged, who, made, every)
                    used.add(source.judged)
                if source.labelled is not None:
                    check_labelled(source, who, made, every)
                    used.add(source.labelled)
        if isinstance(part, Explore | Evaluate):
            used.update(check_prompts(recipe, part, who, made, every))
        if isinstance(part, Evaluate):
            check_tests_agree(part, who, made, tested)
        if isinstance(part, Explore):
            check_speaker(recipe, part.speaker, who, [recipe.environment.id])
            if part.agent is not None:
                make_agent(part.agent)
            if part.like is not None and part.like not in made.first_tasks:
                raise UnknownName("earlier stage with tasks", part.like, made.first_tasks)
        if isinstance(part, Imitate | Prefer):
            _check_rule(recipe, part, who, made)
        if isinstance(part, Imitate) and part.adapter_rank is not None:
            check_own_adapters(recipe, who)
        weighed = part.advantages if isinstance(part, Imitate) else getattr(part, "steer", None)
        if weighed is not None:
            if weighed.stage not in made.critics:
                raise UnknownName("earlier stage with action values", weighed.stage, made.critics)
            used.add(weighed.stage)
        if isinstance(part, Reinforce) and part.reward_model is not None:
            _check_rewarded(recipe, part, who, made, every)
            if isinstance(part.reward_model, str):
                used.add(part.reward_model)
        if isinstance(part, Value) and recipe.model.quantise is not None:
            raise RecipeError(
                f"{who} has target networks, whose weights move, and model.quantise = "
                f"'{recipe.model.quantise}' leaves none to move; unset it."
            )
        if isinstance(part, Reward) and part.kind == "preference":
            _check_groups(part, who, made)
        made.add(step)
    used.add(_name_of(made))
    return used


def _name_of(made: Made) -> str:
    """Return the name of the stage that made the policy as it is."""
    return next(name for name, versions in made.versions.items() if made.latest in versions)


def _check_version(name: str, who: str, made: Made, every: dict[str, StagePart]) -> None:
    if name in made.versions:
        return
    if name in every and every[name].trains:
        raise RecipeError(f"{who} begins with '{name}', which runs later; move one of them.")
    if name in every:
        raise RecipeError(
            f"{who} begins with '{name}', which writes no version of the policy; name a stage "
            f"that trains, or '{BASE}'."
        )
    raise UnknownName("version of the policy", name, made.versions)


def _check_source(
    recipe: Recipe, source: object, who: str, made: Made, every: dict[str, StagePart]
) -> None:
    if isinstance(source, FromSpeaker):
        check_speaker(recipe, source.speaker, who, source.counts(recipe.environment.id))
    elif isinstance(source, FromRun):
        check_recorded(source)
    elif isinstance(source, FromStage):
        part = every.get(source.stage)
        if isinstance(part, Evaluate):
            raise RecipeError(
                f"{who} would learn from '{source.stage}', whose {part.split} tasks are held out; "
                "name a stage that explores training tasks."
            )
        if source.stage not in made.episodes:
            if part is None:
                raise UnknownName("stage that records episodes", source.stage, made.episodes)
            why = "runs later" if source.stage in _writers(every) else "records no episodes"
            raise RecipeError(f"{who} reads '{source.stage}', which {why}; name another stage.")


def _check_judged(name: str, who: str, made: Made, every: dict[str, StagePart]) -> None:
    """Raise InputError unless that stage has judged, or learned to predict success, by then."""
    if name not in made.judges and name not in made.models:
        raise UnknownName("earlier stage that judges", name, [*made.judges, *made.models])
    part = every[name]
    if isinstance(part, Reward) and part.kind != "success":
        raise RecipeError(
            f"{who} takes outcomes from '{name}', which prefers rollouts and says of none alone "
            "that it succeeded; set its kind = 'success'."
        )


def _check_rewarded(
    recipe: Recipe, part: Reinforce, who: str, made: Made, every: dict[str, StagePart]
) -> None:
    """Raise InputError unless the stage's reward model exists, and can be refreshed if asked."""
    if part.control is not None:
        raise RecipeError(f"{who}: control and reward_model both replace the outcome; unset one.")
    if Need.TREE in Method(chosen(part)).needs:
        raise RecipeError(
            f"{who}: reward_model scores rollouts that share nothing, and the credit rule reads "
            "trees; choose one of them."
        )
    if isinstance(part.reward_model, ModelOfRun):
        check_model_of_run(part.reward_model, recipe.model.name)
        return
    if part.reward_model not in made.models:
        raise UnknownName("earlier reward model", str(part.reward_model), made.models)
    sources = getattr(every[part.reward_model], "sources", ())
    given = any(isinstance(s, FromRun) or getattr(s, "judged", None) for s in sources)
    if part.reward_refresh is not None and given:
        raise RecipeError(
            f"{who} refreshes '{part.reward_model}' with true outcomes of this run, and it learned "
            "from a judge's or from another run; leave out reward_refresh, or let it read a stage "
            "that explores."
        )


def _writers(every: dict[str, StagePart]) -> set[str]:
    made = Made()
    for part in every.values():
        made.add(Step(part))
    return set(made.episodes)


# ── what is learned ──────────────────────────────────────────────────────────


def _check_rule(recipe: Recipe, part: Imitate | Prefer, who: str, made: Made) -> None:
    """Check that a rule of examples makes what the stage learns from, out of what it reads."""
    rule = find(Kind.EXAMPLES, part.examples)
    rule.configured(part.examples_options)
    refuse_unmet(rule.needs_with(part.examples_options), f"{who}, with '{part.examples}',")
    makes = _makes(rule)
    if isinstance(part, Prefer):
        loss = find(Kind.PREFERENCE, part.loss)
        wanted = "pairs" if takes_pairs(loss.configured(part.loss_options)) else "labels"
        if makes not in (None, wanted):
            raise RecipeError(
                f"{who} learns from {wanted} by the loss '{part.loss}', and its rule "
                f"'{part.examples}' makes {makes}; choose another rule or loss."
            )
    elif makes not in (None, "examples"):
        raise RecipeError(
            f"{who} imitates, and its rule '{part.examples}' makes {makes}; let a stage do "
            "'prefer' with them."
        )
    environments = environments_read(recipe, part, made)
    for environment in environments:
        check_declared(rule.needs, environment, f"{who}, with '{part.examples}',")
    if environments != [recipe.environment.id]:
        _check_told(rule, f"{who}, with '{part.examples}',")
    check_needs_of_prompts(recipe, rule.needs, part, who, made)
    _check_agents(recipe, part, who, made, team=Need.ROLES in rule.needs)
    if compares_speakers(rule.function):
        _check_tasks(part, who, made)
    elif Need.ATTEMPT in rule.needs or makes == "pairs":
        _check_groups(part, who, made)


def _check_told(rule: Component, who: str) -> None:
    """Raise RecipeError if a rule speaks of one environment, and reads episodes of others."""
    if {"instructions", "tools"} & signature(rule.function).parameters.keys():
        raise RecipeError(
            f"{who} speaks of the instructions or tools of the run's environment, and reads "
            "episodes of others; leave out levels, or choose another rule."
        )


def _check_agents(
    recipe: Recipe, part: Imitate | Prefer, who: str, made: Made, *, team: bool
) -> None:
    """Raise RecipeError if a rule reads no team's runs, or another agent acts than it teaches."""
    acts = recipe.agent.chosen
    needed = TEACHES.get(part.examples)
    if needed is not None and acts.partition("?")[0] != needed:
        raise RecipeError(
            f"{who}, with '{part.examples}', learns replies of the agent '{needed}', and "
            f"agent.name = '{acts}' acts; set agent.name = '{needed}'."
        )
    reads = signature(find(Kind.EXAMPLES, part.examples).function).parameters
    if "tools" in reads and not spec(recipe.environment.id).tools:
        raise RecipeError(
            f"{who}, with '{part.examples}', learns of tool calls, and '{recipe.environment.id}' "
            "has no tools; choose another rule or another environment."
        )
    if not team:
        return
    recorded = [acts for source in part.sources if isinstance(source, FromSpeaker)]
    for source in part.sources:
        steps = made.read(source) if isinstance(source, FromStage) else []
        recorded += [getattr(step.part, "agent", None) or acts for step in steps]
    if recorded and not any(make_agent(agent).roles for agent in recorded):
        raise RecipeError(
            f"{who}, with '{part.examples}', joins what the roles of a team say, and the agent "
            f"'{recorded[0]}' speaks in one role alone; explore with agent = 'plan', say."
        )


def _makes(rule: Component) -> str | None:
    """Return what a rule makes, in words; None where its function does not say."""
    try:
        return MADE.get(get_type_hints(rule.function).get("return"))
    except NameError:  # a hint that only a type checker can resolve
        return None


def _check_groups(part: Imitate | Prefer | Reward, who: str, made: Made) -> None:
    """Raise GroupTooSmall if a rule that compares attempts reads none of the same task."""
    sizes = [1 if isinstance(source, FromSpeaker) else None for source in part.sources]
    for source in part.sources:
        if isinstance(source, FromStage):
            found = [step.part for step in made.read(source)]
            sizes += [one.group for one in found if isinstance(one, Explore | Reinforce)]
    known = [size for size in sizes if size is not None]
    if known and max(known) < 2 and not any(isinstance(s, FromRun) for s in part.sources):
        raise GroupTooSmall(
            f"{who} compares attempts at the same task, and each was attempted once; explore with "
            "group = 4, say."
        )


def _check_tasks(part: Imitate | Prefer, who: str, made: Made) -> None:
    """Raise RecipeError if a rule that compares speakers reads no two on the same tasks."""
    names = [source.stage for source in part.sources if isinstance(source, FromStage)]
    explored = [
        step.part for s in part.sources if isinstance(s, FromStage) for step in made.read(s)
    ]
    again = [one.like for one in explored if isinstance(one, Explore)]
    if not set(names) & set(again) and not any(isinstance(s, FromRun) for s in part.sources):
        raise RecipeError(
            f"{who}: '{part.examples}' compares speakers at the same tasks; let it read two "
            "stages, of which one explores like the other."
        )


# ── what is used, and what must be equal ─────────────────────────────────────


def _check_used(steps: Sequence[Step], used: set[str]) -> None:
    """Raise RecipeError if a stage records or trains what no later stage reads."""
    for step in steps:
        if step.name in used or isinstance(step.part, Evaluate):
            continue
        what = "trains a version" if step.part.trains else f"writes {step.part.writes}"
        raise RecipeError(
            f"The stage '{step.name}' {what} that no later stage reads; name it in a from or "
            "start, or leave it out."
        )


def _check_together(steps: Sequence[Step]) -> None:
    """Raise RecipeError if stages disagree on what belongs to the whole run."""
    parts = [step.part for step in steps if isinstance(step.part, Reinforce)]
    for key in ("on_update", "actor"):
        values = {getattr(part, key) for part in parts}
        if len(values) > 1:
            raise RecipeError(
                f"Stages that reinforce set {key} differently, and it belongs to the whole run; "
                "give all of them the same."
            )
