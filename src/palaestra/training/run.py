"""A training run from recipe to report: start it, or resume it where it stopped."""

from __future__ import annotations

from pathlib import Path

from palaestra.core.environment import Capability
from palaestra.core.episode import derive_seed
from palaestra.core.task import Split
from palaestra.environments.registry import make, tasks
from palaestra.evaluation.reports import report, report_files
from palaestra.models.local.networks import way_of
from palaestra.models.local.tiny import learn_vocabulary
from palaestra.models.registry import REVISIONS, RUNS_BY, dropping_thoughts
from palaestra.rollout.runner import Elsewhere
from palaestra.runtime import machine
from palaestra.runtime.progress import Reporter
from palaestra.store.disk import replacing
from palaestra.store.run_folder import RunFolder
from palaestra.training.actor import Engines
from palaestra.training.pipeline import Pipeline
from palaestra.training.policy_building import (
    build_policy,
    checked_origin,
    export,
    export_critic,
    prepare_torch,
    write_vocabulary,
)
from palaestra.training.ranks import Team
from palaestra.training.recipe import Recipe
from palaestra.training.recipe_check import check_processes
from palaestra.training.run_context import VOCABULARY, RunContext
from palaestra.training.stage_program import environments_recorded, of_rollouts, trains
from palaestra.training.stages.prompt_notes import added_texts

VOCABULARY_TASKS = 64  # training tasks whose texts the tiny transformer's vocabulary covers


async def execute(
    recipe: Recipe,
    run: RunFolder,
    reporter: Reporter,
    team: Team | None = None,
    *,
    elsewhere: Elsewhere | None = None,
    engines: Engines | None = None,
) -> report.Report:
    """Run every stage that is not done yet; results of finished stages are in the run folder.

    Args:
        recipe: of the run.
        run: its folder, locked by this process.
        reporter: receives progress.
        team: processes that learn together; None: this one learns alone.
        elsewhere: makes the sessions if other processes run them; None: they run here.
        engines: act in the rollouts of RL; None: this process, or `rl.actor`.

    Raises:
        InputError: a part of the recipe cannot work in several processes.
    """
    check_processes(recipe, together=team is not None, elsewhere=elsewhere is not None)
    prepare_torch(recipe)
    context = RunContext(recipe, run, reporter, team, elsewhere=elsewhere, engines=engines)
    context.store.put("machine", machine.as_document())
    context.policy = build_policy(of_rollouts(recipe), origin(recipe, run, reporter))
    context.store.put(RUNS_BY, {recipe.model.name: way_of(context.policy.network)})
    if context.policy.renderer.drops_thoughts:
        reporter.say(dropping_thoughts(recipe.model.name))
    if trains(recipe):
        context.check_memory()
    async with context.started():
        valued = await Pipeline(context).run()
        with replacing(final_model(run), "The trained policy") as folder:
            export(context.policy, recipe, folder)
        if valued is not None:
            with replacing(run.path / "final-value", "The critic") as folder:
                export_critic(valued, recipe, folder, final_model(run))
        context.accounts.count_time()
    return write_report(run)


def write_report(run: RunFolder) -> report.Report:
    """Write the report of the results so far into the run folder."""
    folder = final_model(run)
    built = report.build(run.database, run.path, model=folder if folder.is_dir() else None)
    report_files.write(built, run.path)
    return built


def final_model(run: RunFolder) -> Path:
    """Return the folder of the trained policy, a Hugging Face checkpoint."""
    return run.path / "final"


def origin(recipe: Recipe, run: RunFolder, reporter: Reporter) -> Path:
    """Return the checkpoint folder from which the policy starts."""
    if recipe.model.name != "tiny":
        recorded = run.database.get(REVISIONS) or {}  # runs of older versions have none
        return checked_origin(recipe, recorded, reporter.say)
    folder = run.path / VOCABULARY
    if not (folder / "tokenizer_config.json").is_file():
        tokenizer = learn_vocabulary(vocabulary_texts(recipe))
        with replacing(folder, "The vocabulary") as fresh:
            write_vocabulary(recipe, tokenizer, fresh)
    return folder


def vocabulary_texts(recipe: Recipe) -> list[str]:
    """Return texts of some training tasks: first observations, and all along an oracle's plan."""
    texts, actions = list[str](), list[str]()
    for name in environments_recorded(recipe):
        told, done = _texts_of(name, recipe.seed)
        texts += told
        actions += done
    return [*texts, *added_texts(recipe, actions)]


def _texts_of(name: str, seed: int) -> tuple[list[str], list[str]]:
    """Return the texts of an environment's training tasks, and the actions among them."""
    environment = make(name)
    available = tasks(name)
    texts, actions = [environment.instructions], list[str]()
    for index in range(VOCABULARY_TASKS):
        start = derive_seed("vocabulary", seed) % 1_000_000_000
        texts.append(environment.reset(available.task(Split.TRAIN, start + index)).text)
        if Capability.ORACLE in environment.spec.capabilities:
            for action in environment.oracle():
                actions.append(action.text)
                texts += [action.text, environment.step(action).observation.text]
    environment.close()
    return texts, actions
