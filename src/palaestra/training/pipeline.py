"""The pipeline: runs a recipe's program of stages, from wherever it stopped.

A stage that is done is not run again. The version that it wrote is loaded only when a later stage
begins with it; without a valid checkpoint, the stage learns again from what was recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean

from palaestra.core.errors import PalaestraError
from palaestra.core.task import Split
from palaestra.evaluation.statistics.player_results import signed
from palaestra.runtime.progress import percent
from palaestra.store.recorded_players import phase_players
from palaestra.training.learned_model_sections import ModelOfRun
from palaestra.training.lineage import note_version
from palaestra.training.policy_building import Valued
from palaestra.training.policy_versions import (
    forget_versions,
    is_saved,
    put_version,
    save_present,
    saved_version,
)
from palaestra.training.reward_models import model_of_run, saved_model
from palaestra.training.role_adapters import learners_of
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import (
    Made,
    RoundEnd,
    Step,
    named_versions,
    program,
    steps_of,
    teacher_of,
    versions_read,
    view,
)
from palaestra.training.stage_sections import (
    Distil,
    Evaluate,
    Explore,
    Imitate,
    Judge,
    Label,
    Merge,
    Prefer,
    Reinforce,
    Reward,
    Study,
    Value,
)
from palaestra.training.stage_sources import BASE, StagePart
from palaestra.training.stages.distilling import distillation
from palaestra.training.stages.exploring import explore
from palaestra.training.stages.general_loss import GeneralLoss
from palaestra.training.stages.imitating import imitation
from palaestra.training.stages.labelling import label
from palaestra.training.stages.learning_updates import learned_rows
from palaestra.training.stages.merging import merge
from palaestra.training.stages.passing_verdicts import judge
from palaestra.training.stages.preferring import preference
from palaestra.training.stages.prompt_notes import notes_of
from palaestra.training.stages.refreshing import Refresher
from palaestra.training.stages.reinforcing import reinforcement
from palaestra.training.stages.rewarding import reward
from palaestra.training.stages.studying import study
from palaestra.training.stages.testing import evaluate_policy
from palaestra.training.stages.valuing import guide_of, value


class Pipeline:
    """The program of one run, in progress."""

    def __init__(self, context: RunContext) -> None:
        """Prepare to run the stages; the context's policy is the base."""
        self._context, self._program = context, program(context.whole)
        self._made = Made()
        self._general = GeneralLoss(context)
        self._present = BASE  # the version in the policy now
        self._makers: dict[str, tuple[Step, Made]] = {}  # how a version is made, and from what
        self._valued: Valued | None = None  # the critic of the version in the policy
        self._ended: set[tuple[tuple[tuple[str, int], ...], str]] = set()  # repeats, by their place

    async def run(self) -> Valued | None:
        """Run all steps; leave the last version in the policy, and return its critic, if any."""
        self._check_models_of_runs()
        if BASE in named_versions(self._context.whole) and not is_saved(self._context, BASE):
            save_present(self._context, BASE)
        await self._test_general(BASE)
        for place, step in enumerate(self._program):
            if self._is_over(step):
                continue
            if isinstance(step, RoundEnd):
                if not step.last and self._ends(step):
                    self._ended.add((step.rounds[:-1], step.part.called))
                continue
            if await self._do(step):
                self._forget(place + 1)
        await self._become(self._made.latest)
        self._forget(len(self._program))
        return self._valued

    def _check_models_of_runs(self) -> None:
        """Raise InputError if a stage that is not done names a model that it cannot use."""
        for step in steps_of(self._program):
            named = getattr(step.part, "reward_model", None)
            if isinstance(named, ModelOfRun) and not self._context.accounts.is_done(step.record):
                model_of_run(self._context, named)

    # ── steps ────────────────────────────────────────────────────────────────

    async def _do(self, step: Step) -> bool:
        """Run a step unless it is done; return whether it wrote a version now."""
        context, part = self._of(step, self._made), step.part
        ready = partial(self._become, self._made.latest)
        if isinstance(part, Explore):
            await explore(context, part, self._made, ready)
        elif isinstance(part, Judge):
            await judge(context, part, self._made, ready)
        elif isinstance(part, Label):
            await label(context, part, self._made, ready)
        elif isinstance(part, Reward):
            await reward(context, part, self._made, ready)
        elif isinstance(part, Value):
            await value(context, part, self._made, ready)
        elif isinstance(part, Evaluate):
            notes = notes_of(context, part, self._made)
            latest = self._made.latest
            steer = None
            if part.steer is not None:
                values = self._made.critics[part.steer.stage][-1]
                steer = partial(guide_of, context, values, part.steer.beta)
            await evaluate_policy(context, latest, ready, part.tested, part.tasks, notes, steer)
        else:
            self._makers[step.record] = (step, self._made.copy())
            if not (done := context.accounts.is_done(step.record)):
                await self._make(step.record)
                if self._learned_nothing(step):
                    self._context.reporter.say(
                        f"{step.record} found nothing to learn from; the policy stays as it is"
                    )
            await self._test_general(step.record)
            self._made.add(step)
            return not done
        self._made.add(step)
        return False

    async def _make(self, version: str) -> None:
        """Run the stage that writes a version, or load what it wrote."""
        step, made = self._makers[version]
        context, part = self._of(step, made), step.part
        self._valued = None
        if isinstance(part, Merge):
            begins = made.versions_of(part)
            done = context.accounts.is_done(version)
            if done and (saved := saved_version(context, version)) is not None:
                put_version(context, saved)  # what it averaged may be forgotten
            else:
                for one in begins:
                    if not is_saved(self._context, one):
                        await self._become(one)
                merge(context, begins)
        else:
            start = getattr(part, "start", None)
            begins = [made.latest if start is None else made.versions[start][-1]]
            goes_on = isinstance(part, Reinforce) or context.accounts.is_done(version)
            if not (goes_on and is_saved(context, version)):  # else it loads what it wrote
                teacher = teacher_of(part, made)
                if teacher is not None and not is_saved(context, teacher):
                    await self._become(teacher)
                await self._become(begins[0])
            await self._learn(context, part, made)
        self._present = version
        self._note(step, begins)

    async def _learn(self, context: RunContext, part: StagePart, made: Made) -> None:
        if isinstance(part, Imitate):
            await imitation(context, part, made)
        elif isinstance(part, Prefer):
            await preference(context, part, made)
        elif isinstance(part, Study):
            await study(context, part, made)
        elif isinstance(part, Distil):
            teacher = teacher_of(part, made)
            saved = None if teacher is None else saved_version(context, teacher)
            await distillation(context, part, made, saved)
        else:
            assert isinstance(part, Reinforce)
            refresher = self._rewarded(context, part, made)
            self._valued = await reinforcement(context, part, refresher)

    def _rewarded(self, context: RunContext, part: Reinforce, made: Made) -> Refresher | None:
        """Put the stage's reward model in place; return what refreshes it, if anything does."""
        if part.reward_model is None:
            return None
        if isinstance(part.reward_model, ModelOfRun):
            context.reward_model = model_of_run(context, part.reward_model)
            return None
        record = made.models[part.reward_model][-1]
        by = next(s.part for s in steps_of(self._program) if s.record == record)
        assert isinstance(by, Reward)
        model = context.reward_model = saved_model(context, record, by)
        if part.reward_refresh is None:
            return None
        return Refresher(context, model, record, by, part.reward_refresh)

    async def _test_general(self, version: str) -> None:
        """Measure what a version loses on general text, unless that is done."""
        if self._general.lacks(version):
            await self._become(version)
            self._general.measure(version)

    async def _become(self, version: str) -> None:
        """Make a version the policy, unless it is."""
        if version == self._present:
            return
        if version != BASE:
            await self._make(version)
            return
        saved = saved_version(self._context, BASE)
        if saved is None:
            raise PalaestraError(
                "The checkpoint of the base is gone from the run's folder; begin a new run."
            )
        put_version(self._context, saved)
        self._present, self._valued = BASE, None

    def _of(self, step: Step, made: Made) -> RunContext:
        whole = self._context.whole
        context = self._context.of(
            step.record, view(whole, step.part), learners_of(whole, step.part)
        )
        context.first_task = made.first_task(step.part)
        return context

    # ── rounds ───────────────────────────────────────────────────────────────

    def _is_over(self, step: Step | RoundEnd) -> bool:
        """Return whether the step belongs to a repeat that has ended early."""
        rounds = step.rounds
        return any((rounds[:n], name) in self._ended for n, (name, _) in enumerate(rounds))

    def _ends(self, end: RoundEnd) -> bool:
        """Return whether a repeat ends after a round, and say so."""
        context, name = self._context, end.part.called
        number = end.rounds[-1][1]
        if any(self._learned_nothing(step) for step in self._round(end)):
            context.reporter.say(
                f"{name} ends after round {number} of {end.part.rounds}: nothing was found to "
                "learn from; what was learned before stays"
            )
            return True
        rule = end.part.until
        if rule is None:
            return False
        tested = self._made.tested[rule.stage][-number:]  # in the rounds of this repeat
        found = [self._result(f"{Split.VALIDATION}/{version}", rule.player) for version in tested]
        goal = rule.success if rule.player is None else rule.mean_return
        reached = goal is not None and found[-1] >= goal
        best = max(range(len(found)), key=found.__getitem__)  # the first of equals
        tired = rule.patience is not None and len(found) - 1 - best >= rule.patience
        if reached or tired:
            shown = percent if rule.player is None else signed
            context.reporter.say(
                f"{name} ends after round {number} of {end.part.rounds}: {rule.stage} found "
                f"{shown(found[-1])}, and {shown(max(found))} at best"
            )
        return reached or tired

    def _round(self, end: RoundEnd) -> list[Step]:
        """Return the steps of a round that learn."""
        made = [step for step, _ in self._makers.values()]
        return [step for step in made if step.rounds[: len(end.rounds)] == end.rounds]

    def _learned_nothing(self, step: Step) -> bool:
        learns = isinstance(step.part, Imitate | Prefer | Distil)
        return learns and not learned_rows(self._context, step.record)

    def _result(self, phase: str, player: str | None) -> float:
        """Return the success of a test; in a game the mean return of a player."""
        store = self._context.store
        if player is None:
            own = [one.outcome for one in store.summaries(phase) if one.key.phase == phase]
            return fmean([outcome.solved for outcome in own if outcome.scored] or [0.0])
        games = [
            players for header, players in phase_players(store, phase) if header.outcome.scored
        ]
        return fmean([players[player].total for players in games] or [0.0])

    # ── versions ─────────────────────────────────────────────────────────────

    def _forget(self, place: int) -> None:
        """Remove the checkpoints that no step from `place` on, and no resumption, needs."""
        if not self._context.whole.stage:
            return
        names = {
            name
            for step in self._program[place:]
            if isinstance(step, Step)
            for name in versions_read(step.part)
        }
        whole = {
            name
            for step in self._program[place:]
            if isinstance(step, Step) and isinstance(step.part, Merge) and step.part.rounds == "all"
            for name in step.part.versions
        }
        made = self._made.versions
        needed = {made[name][-1] for name in names if name in made}
        needed |= {record for name in whole for record in made.get(name, [])}
        beside = (*self._made.models.values(), *self._made.critics.values())
        models = (record for records in beside for record in records)
        forget_versions(self._context, {self._made.latest, *needed, *models})

    def _note(self, step: Step, begins: Sequence[str]) -> None:
        context = self._context
        rows = learned_rows(context, step.record)
        if isinstance(step.part, Reinforce):
            count = len(context.store.summaries(f"{step.record}/"))
            rows = {step.record: {"speaker": "policy", "episodes": count}}
        made = self._makers[step.record][1]
        note_version(
            context.store,
            step.record,
            does=str(getattr(step.part, "do", "")),
            start=list(begins),
            teacher=teacher_of(step.part, made),
            rows=rows,
            environment=context.recipe.environment.id,
        )
