"""Stages in recipes: what is accepted, and one clear sentence for what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaestra.cli.dry_run import toml
from palaestra.core.errors import InputError
from palaestra.training.recipe import check, load, read_recorded
from palaestra.training.recipe_check import check_recipe
from palaestra.training.stage_program import program, steps_of
from tests.training.stages.made import HEAD, IMITATE, ROUNDS, recipe_of, written

EXPLORE = '[[stage]]\ndo = "explore"\ntasks = 4\n'


def refusal(folder: Path, text: str, *keys: str) -> str:
    with pytest.raises(InputError) as refused:
        recipe_of(folder, text, *keys)
    message = str(refused.value)
    assert "\n" not in message
    return message


def stage(text: str) -> str:
    return f"[[stage]]\n{text}\n"


def in_rounds(until: str) -> str:
    stages = "{do = 'explore'}, {do = 'imitate', name = 'k', from = 'explore'}"
    check = "{do = 'evaluate', name = 'v', split = 'validation'}"
    return stage(f"do = 'repeat'\nrounds = 2\nuntil = {until}\nstages = [{stages}, {check}]")


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        # what each key takes
        (stage("do = 'explor'"), "'explor'. did you mean 'explore'"),
        (stage("tasks = 4"), "stage[1] lacks the key 'do'; it is one of: explore, "),
        (stage("do = 'imitate'"), "The recipe lacks the key 'stage[1].from'"),
        (IMITATE + "epocs = 2\n", "'stage[1].epocs'. Did you mean 'stage[1].epochs'"),
        (IMITATE.replace("6", "0"), "'stage[1].epochs' cannot be 0"),
        (IMITATE.replace("expert", "teacher"), "no model 'teacher'"),
        (IMITATE + "name = 'all'\n", "'stage[1].name' cannot be 'all': it means something else"),
        (IMITATE + "name = 'a b'\n", "use letters, digits, _ and -"),
        (stage("do = 'study'\ninstructions = false"), "there is nothing to study"),
        (stage("do = 'merge'\nfrom = 'base'"), "a merge of one version changes nothing"),
        (IMITATE + stage("do = 'repeat'\nrounds = 2\nstages = []"), "stage[2].stages"),
        # what is read
        (stage("do = 'imitate'\nfrom = 'explore'"), "stage that records episodes 'explore'"),
        (
            IMITATE + stage("do = 'prefer'\nfrom = 'explore'") + EXPLORE,
            "'explore', which runs later",
        ),
        (IMITATE + stage("do = 'prefer'\nfrom = 'x'"), "no stage that records episodes 'x'"),
        (EXPLORE + stage("do = 'imitate'\nfrom = 'explore'\nstart = 'x'"), "policy 'x'"),
        (
            EXPLORE + stage("do = 'imitate'\nfrom = 'explore'\nstart = 'explore'"),
            "'explore', which writes no version of the policy",
        ),
        (
            IMITATE
            + stage("do = 'evaluate'\nname = 'v'\nsplit = 'validation'")
            + stage("do = 'imitate'\nname = 'more'\nfrom = 'v'"),
            "would learn from 'v', whose validation tasks are held out",
        ),
        # what is used
        (IMITATE + EXPLORE, "'explore' writes episodes that no later stage reads"),
        (
            IMITATE
            + EXPLORE
            + stage("do = 'imitate'\nname = 'two'\nfrom = 'explore'\nstart = 'base'").replace(
                "from = 'explore'", "from = {speaker = 'expert'}"
            ),
            "'explore' writes episodes that no later stage reads",
        ),
        (
            IMITATE
            + stage("do = 'imitate'\nname = 'two'\nfrom = {speaker = 'expert'}\nstart = 'base'"),
            "'imitate' trains a version that no later stage reads",
        ),
        (IMITATE + IMITATE, "Two stages are called 'imitate'"),
        # what is learned
        (
            EXPLORE + stage("do = 'prefer'\nfrom = 'explore'"),
            "each was attempted once; explore with group = 4",
        ),
        (
            EXPLORE + stage("do = 'imitate'\nfrom = 'explore'\nexamples = 'splices'"),
            "each was attempted once",
        ),
        (
            EXPLORE + stage("do = 'imitate'\nfrom = 'explore'\nexamples = 'trajectory-pairs'"),
            "makes pairs; let a stage do 'prefer'",
        ),
        (
            EXPLORE + stage("do = 'prefer'\nfrom = 'explore'\nloss = 'kto'"),
            "learns from labels by the loss 'kto', and its rule 'trajectory-pairs' makes pairs",
        ),
        (EXPLORE + stage("do = 'prefer'\nfrom = 'explore'\nloss = 'dpoo'"), "'dpoo'"),
        (
            EXPLORE + stage("do = 'imitate'\nfrom = 'explore'\nexamples = 'commands'"),
            "teaches to obey commands, and no stage states one; set commands in one",
        ),
        (IMITATE + stage("do = 'reinforce'\ngroup = 1"), "rl.group = 1"),
        (IMITATE + stage("do = 'reinforce'\nalgorithm = 'loops'"), "'loops'"),
        (
            IMITATE + stage("do = 'reinforce'\nreward_model = 'reward'"),
            "no earlier reward model 'reward'",
        ),
        (
            EXPLORE + stage("do = 'imitate'\nfrom = {stage = 'explore', judged = 'j'}"),
            "no earlier stage that judges 'j'",
        ),
        (
            EXPLORE.replace("tasks = 4", "group = 4")
            + stage("do = 'reward'\nfrom = 'explore'\nkind = 'preference'")
            + stage("do = 'imitate'\nfrom = {stage = 'explore', judged = 'reward'}"),
            "says of none alone that it succeeded",
        ),
        (
            EXPLORE + stage("do = 'judge'\nfrom = 'explore'\njudge = 'seen:x'"),
            "'judge' writes verdicts that no later stage reads",
        ),
        (
            EXPLORE + stage("do = 'reward'\nfrom = 'explore'"),
            "'reward' writes a reward model that no later stage reads",
        ),
        (
            EXPLORE
            + stage("do = 'reward'\nfrom = 'explore'\nkind = 'preference'")
            + stage("do = 'reinforce'\nreward_model = 'reward'"),
            "each was attempted once",
        ),
        (
            EXPLORE + stage("do = 'imitate'\nfrom = 'explore'\nadvantages = {beta = 1.0}"),
            "no earlier stage with action values 'value'",
        ),
        (
            EXPLORE + stage("do = 'value'\nfrom = 'explore'"),
            "'value' writes action values that no later stage reads",
        ),
        (
            IMITATE + stage("do = 'reinforce'\nreward_refresh = {every = 2}"),
            "reward_refresh needs a reward model of this run",
        ),
        (
            EXPLORE
            + stage("do = 'judge'\nfrom = 'explore'\njudge = 'seen:x'")
            + stage("do = 'reward'\nfrom = {stage = 'explore', judged = 'judge'}")
            + stage("do = 'reinforce'\nreward_model = 'reward'\nreward_refresh = {every = 1}"),
            "refreshes 'reward' with true outcomes of this run, and it learned from a judge's",
        ),
        (
            IMITATE + stage("do = 'reinforce'\nreward_model = {run = 'runs/none'}"),
            "runs/none",
        ),
        (
            IMITATE + stage("do = 'reinforce'\nutterance_critic = {updates = 2}"),
            "rl.utterance_critic has no effect: rl.credit = 'rloo' reads no action values",
        ),
        (
            IMITATE
            + stage("do = 'reinforce'\nalgorithm = 'archer'")
            + "[agent]\nreasoning_tokens = 4\n",
            "cannot read those whose reasoning was cut: unset agent.reasoning_tokens",
        ),
        (
            "[training]\nweights = 'lora'\nlora_rank = 2\nadapters = {planner = {}}\n"
            "[agent]\nname = 'meta'\n" + IMITATE + stage("do = 'reinforce'\nalgorithm = 'archer'"),
            "the adapters of other roles learn here; let only the agent's learn",
        ),
        # rounds
        (
            IMITATE
            + stage(
                "do = 'repeat'\nrounds = 2\nuntil = {stage = 'evaluate', patience = 1}\n"
                "stages = [{do = 'explore'}, {do = 'imitate', name = 'k', from = 'explore'}, "
                "{do = 'evaluate'}]"
            ),
            "would end rounds by results on the test split, which is held out",
        ),
        (
            IMITATE
            + stage(
                "do = 'repeat'\nrounds = 2\nuntil = {stage = 'v', success = 0.5}\n"
                "stages = [{do = 'explore'}, {do = 'imitate', name = 'k', from = 'explore'}]"
            ),
            "names 'v', which is no evaluation in its stages",
        ),
        (
            IMITATE
            + stage(
                "do = 'repeat'\nrounds = 2\nuntil = {stage = 'v'}\nstages = [{do = 'explore'}]"
            ),
            "until needs success or patience",
        ),
        (
            IMITATE + in_rounds("{stage = 'v', player = 'white', patience = 1}"),
            "reads the return of a player, and 'babyai/GoToObjS4' has one success",
        ),
        (
            IMITATE + in_rounds("{stage = 'v', player = 'white', success = 0.5}"),
            "until.player has a mean_return and no success; set mean_return",
        ),
        (
            IMITATE + in_rounds("{stage = 'v', mean_return = 0.5}"),
            "until.mean_return needs the player whose return it is; set player",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(tmp_path: Path, stages: str, words: str) -> None:
    message = refusal(tmp_path, HEAD + stages)
    assert words.lower() in message.lower(), message


def test_fresh_replies_are_not_sampled_while_others_act(tmp_path: Path) -> None:
    keys = "do = 'reinforce'\nalgorithm = 'archer'\nasynchronous = true\nstaleness = 1"
    message = refusal(tmp_path, HEAD + IMITATE + stage(keys), "deterministic=false")
    assert "fresh replies, which are sampled step by step: unset rl.asynchronous" in message


def test_tables_beside_stages_have_no_effect_and_are_refused(tmp_path: Path) -> None:
    words = refusal(tmp_path, HEAD + IMITATE + "[rl]\nsteps = 3\n")
    assert "the table rl has no effect beside stages" in words
    words = refusal(tmp_path, HEAD + IMITATE + "[imitation]\nepochs = 3\n")
    assert "does 'imitate'" in words
    assert "minutes has no effect on stages" in refusal(tmp_path, HEAD + IMITATE, "minutes=3")


def test_stages_that_belong_together_must_agree(tmp_path: Path) -> None:
    two = stage("do = 'reinforce'\nname = 'a'") + stage(
        "do = 'reinforce'\nname = 'b'\nstaleness = 1\nasynchronous = true\non_update = 'keep'"
    )
    words = refusal(tmp_path, HEAD + IMITATE + two, "deterministic=false")
    assert "set on_update differently" in words


def test_a_recorded_recipe_is_the_same_recipe(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, ROUNDS)
    assert read_recorded(recipe.model_dump(mode="json")) == recipe


def test_a_recipe_printed_as_toml_is_the_same_recipe(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, ROUNDS)
    assert load(str(written(tmp_path / "again", toml(recipe)))) == recipe


def test_keys_of_stages_are_overridden_by_the_stages_names(tmp_path: Path) -> None:
    keys = (
        "stage.improve.rounds=3",
        "stage.keep.epochs=5",
        "stage.reinforce.loss_options.beta=0.1",
    )
    recipe = recipe_of(tmp_path, ROUNDS, *keys, "stage.reinforce.algorithm=grpo")
    steps = {step.record: step.part for step in steps_of(program(recipe))}
    assert steps["keep-3"].epochs == 5  # type: ignore[attr-defined]
    assert steps["rl"].loss_options == {"beta": 0.1}  # type: ignore[attr-defined]
    assert "no stage 'kep'. Did you mean 'keep'" in refusal(tmp_path, ROUNDS, "stage.kep.epochs=5")
    assert "add one of its keys" in refusal(tmp_path, ROUNDS, "stage.keep=5")


def test_a_recipe_without_stages_is_a_program_too() -> None:
    steps = steps_of(program(load("quick")))
    assert [step.name for step in steps] == [
        "evaluate", "imitate", "evaluate", "reinforce", "evaluate",
    ]  # fmt: skip
    assert [step.record for step in steps if step.part.trains] == ["imitation", "rl"]
    check_recipe(check(load("quick").model_dump(mode="json")))


def test_steps_in_rounds_are_recorded_with_the_rounds_numbers(tmp_path: Path) -> None:
    records = [step.record for step in steps_of(program(recipe_of(tmp_path, ROUNDS)))]
    assert records == [
        "evaluate", "imitation",
        "explore-1", "prefer-1", "keep-1", "check-1",
        "explore-2", "prefer-2", "keep-2", "check-2",
        "merge", "rl", "evaluate",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("until", "words"),
    [
        ("{stage = 'v', success = 0.5}", "is a game between players, which has none; set player"),
        ("{stage = 'v', player = 'dan', patience = 1}", "no player 'dan'"),
        ("{stage = 'v', player = 'player1', mean_return = 0.5}", ""),
    ],
)
def test_rounds_of_a_game_end_by_the_return_of_a_player(
    tmp_path: Path, until: str, words: str
) -> None:
    keys = ("environment.id=openspiel/kuhn_poker:self", "agent.name=players")
    text = HEAD + in_rounds(until)
    if words:
        assert words in refusal(tmp_path, text, *keys)
    else:
        recipe_of(tmp_path, text, *keys)
