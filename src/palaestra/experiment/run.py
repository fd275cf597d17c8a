"""A training run from a recipe to a report: start it, or take it up where it stopped."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from palaestra.core.environment import Capability
from palaestra.core.journal import derive_seed
from palaestra.core.task import Split
from palaestra.environments.registry import make, tasks
from palaestra.evaluation import presentation, report
from palaestra.experiment import machine, stages
from palaestra.experiment.policy import build_policy, export, export_critic, save_tokenizer
from palaestra.experiment.progress import Reporter
from palaestra.experiment.recipe import Recipe
from palaestra.experiment.setting import Setting
from palaestra.models.tiny import learn_vocabulary
from palaestra.models.weights import prepare
from palaestra.store.disk import replacing
from palaestra.store.run import RunFolder

VOCABULARY_WORLDS = 64  # training worlds whose words the tiny transformer's vocabulary covers


async def execute(recipe: Recipe, run: RunFolder, reporter: Reporter) -> report.Report:
    """Run every stage that is not done yet; what is done is taken from the run folder."""
    torch.set_num_threads(machine.torch_threads())
    if recipe.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or CUDA devices refuse
        torch.use_deterministic_algorithms(True)
    setting, valued = Setting(recipe, run, reporter), None
    setting.store.put("machine", machine.as_document())
    setting.policy = build_policy(recipe, origin(recipe, run, reporter))
    if recipe.imitation.demonstrations or recipe.rl.steps:
        setting.check_memory()
    async with setting.started():
        await stages.test(setting, "base")
        if recipe.imitation.demonstrations:
            await stages.imitation(setting)
            await stages.test(setting, "imitation")
        if recipe.rl.steps:
            valued = await stages.reinforcement(setting)
            await stages.test(setting, "rl")
        with replacing(final_model(run), "The trained policy") as folder:
            export(setting.policy, recipe, folder)
        if valued is not None:
            with replacing(run.path / "final-value", "The critic") as folder:
                export_critic(valued, recipe, folder, final_model(run))
        setting.count_time()
    return write_report(run)


def write_report(run: RunFolder) -> report.Report:
    """Write the report of what there is so far into the run folder."""
    folder = final_model(run)
    built = report.build(run.database, run.path, model=folder if folder.is_dir() else None)
    presentation.write(built, run.path)
    return built


def final_model(run: RunFolder) -> Path:
    """Where the trained policy lies, as a Hugging Face checkpoint."""
    return run.path / "final"


def origin(recipe: Recipe, run: RunFolder, reporter: Reporter) -> Path:
    """The checkpoint folder from which the policy starts."""
    if recipe.model.name != "tiny":
        return prepare(recipe.model.name, reporter.say)
    folder = run.path / "vocabulary"
    if not (folder / "tokenizer_config.json").is_file():
        tokenizer = learn_vocabulary(words_of(recipe))
        with replacing(folder, "The vocabulary") as fresh:
            save_tokenizer(tokenizer, fresh)
    return folder


def words_of(recipe: Recipe) -> list[str]:
    """What some training worlds say along their experts' ways, or their first words."""
    environment = make(recipe.environment.id)
    drawn = tasks(recipe.environment.id)
    texts = [environment.instructions]
    for index in range(VOCABULARY_WORLDS):
        start = derive_seed("vocabulary", recipe.seed) % 1_000_000_000
        texts.append(environment.reset(drawn.task(Split.TRAIN, start + index)).text)
        if Capability.ORACLE in environment.capabilities:
            for action in environment.oracle():
                texts += [action.text, environment.step(action).observation.text]
    environment.close()
    return texts
