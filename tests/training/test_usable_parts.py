"""What is listed trains; what no recipe can use is hidden, says what it lacks, and is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palaestra.cli.main import main
from palaestra.core.errors import RecipeError
from palaestra.learning.methods.algorithms import Method, algorithm
from palaestra.learning.methods.component import Component, Kind, Need, components
from palaestra.training.recipe import load
from palaestra.training.recipe_check import check_recipe
from palaestra.training.usable_parts import UNMET, algorithms, lack, parts
from tests.chosen import mostly_slow
from tests.training.learning import train, weights
from tests.training.runs import write_recipe

SUPPLIED = {  # by every run, or by one whose recipe or environment is chosen for it
    Need.GROUP: ["rl.group=2"],
    Need.OTHERS: ["rl.group=2"],
    Need.TURN_REWARD: ["rl.rewards.invalid=-0.3"],
    Need.VALUE: ["rl.critic.kind=head"],
    Need.ANCHOR: ["environment.id=babyai/GoToObjS4"],
    Need.GREEDY: ["rl.credit=remax"],
    Need.ROLES: ["environment.id=openspiel/kuhn_poker:self"],
    Need.DURATION: [],
    Need.REFERENCE: ["rl.loss_options.beta=0.05"],
    Need.PROGRESS: ["environment.id=babyai/GoToObjS4"],
    Need.PREFERENCE: ["stage=[{do = 'prefer'}]"],
    Need.CONTRIBUTION: ["rl.credit=spa"],
    Need.ACTION_VALUE: ["rl.credit=archer"],
    Need.BELIEF: ["environment.id=questions/things-2"],
    Need.TREE: ["rl.tree.width=2"],
    Need.ADVISOR: ["rl.advisor.after=1"],
    Need.ATTEMPT: ["stage=[{do = 'explore', group = 4}]"],
    Need.GOAL: ["environment.id=gymnasium-goals/Taxi-v4"],
    Need.HINT: ["stage=[{do = 'explore', hints = 'explore', like = 'explore'}]"],
    Need.COMMAND: ["stage=[{do = 'evaluate', commands = 'explore'}]"],
}

CREDIT = {
    "archer": ["rl.utterance_critic.warmup=0", "rl.utterance_critic.updates=2"],
    "igpo": SUPPLIED[Need.BELIEF],
    "igpo_token_baseline": SUPPLIED[Need.BELIEF],
    "malt": ["rl.group=4", *SUPPLIED[Need.TREE]],
    "spa": ["rl.progress_model.warmup=0"],
    "spa_gae": ["rl.progress_model.warmup=0"],
    "waltz": [
        "agent.name=refine?rounds=1",
        "rl.credit_options.feedback=critic",
        "environment.turns=2",
        "agent.max_tokens=6",
    ],
    "mt_grpo": ["rl.rewards.progress=0.5"],
    "mt_grpo_cumulative": ["rl.rewards.progress=0.5"],
}
REWARD = {"intervention": ["rl.advisor.after=1"]}
LOSS = {"decoupled": ["rl.staleness=1"]}
CORRECTION = {
    "rejection": ["rl.correction_options.high=1.0"],
}
FILTER = {"starpo": ["rl.filter_options.share=0.67"], "dapo": ["rl.tasks=6"]}
EXAMPLES = {
    "reward-weighted": ["imitation.examples_options.score=success"],
}
PREFERRED = {"kto": "trajectory-labels"}
CONTRASTED = [
    "imitation=",
    "rl=",
    "stage=[{do = 'explore', name = 'expert', speaker = 'expert', tasks = 16}, "
    "{do = 'explore', like = 'expert', tasks = 16, group = 2}, {do = 'prefer', batch = 1, "
    "from = ['expert', 'explore'], examples = 'contrastive-pairs'}]",
]
HINTED = [
    "imitation=",
    "rl=",
    "stage=[{do = 'explore', tasks = 16, group = 8}, {do = 'explore', name = 'hinted', tasks = 16, "
    "like = 'explore', hints = 'explore', group = 4}, "
    "{do = 'imitate', from = 'hinted', examples = 'distillation'}]",
]
COMMANDED = [
    "imitation=",
    "rl=",
    "stage=[{do = 'explore', tasks = 16}, {do = 'imitate', from = 'explore', examples = "
    "'commands'}, {do = 'evaluate', commands = 'explore', tasks = 2}]",
]
TURNS = ["rl.horizon.turns=[2, 4]", "rl.horizon.every=1"]  # what scaling-inter is named by


def staged(does: str, examples: str, loss: str | None = None) -> list[str]:
    """The recipe's keys by which a stage learns from attempts at the same tasks."""
    how = "" if loss is None else f", loss = '{loss}'"
    learn = f"do = '{does}', from = 'explore', examples = '{examples}', batch = 1{how}"
    stages = f"stage=[{{do = 'explore', tasks = 16, group = 8}}, {{{learn}}}]"
    return ["imitation=", "rl=", stages]


def keys(part: Component) -> list[str]:
    """The recipe's keys by which the part trains."""
    match part.kind:
        case Kind.CREDIT:
            return [f"rl.credit={part.name}", "rl.loss=pg", *CREDIT.get(part.name, [])]
        case Kind.LOSS:
            return [f"rl.loss={part.name}", *LOSS.get(part.name, [])]
        case Kind.REWARD:
            return [f"rl.rewards.{part.name}=-0.3", *REWARD.get(part.name, [])]
        case Kind.CORRECTION:
            own = CORRECTION.get(part.name, [])
            return [f"rl.correction={part.name}", "rl.staleness=1", *own]
        case Kind.FILTER:
            return [f"rl.filter={part.name}", *FILTER.get(part.name, [])]
        case Kind.CURRICULUM if part.name == "scaling-inter":
            return TURNS
        case Kind.CURRICULUM:
            return [f"rl.curriculum.rule={part.name}", "rl.curriculum.tasks=3"]
        case Kind.PREFERENCE:
            return staged("prefer", PREFERRED.get(part.name, "trajectory-pairs"), part.name)
        case Kind.EXAMPLES if part.name == "contrastive-pairs":
            return CONTRASTED
        case Kind.EXAMPLES if Need.HINT in part.needs:
            return HINTED
        case Kind.EXAMPLES if Need.COMMAND in part.needs:
            return COMMANDED
        case Kind.EXAMPLES if Need.PREFERENCE in part.needs:
            return staged("prefer", part.name, "kto" if "labels" in part.name else "dpo")
        case Kind.EXAMPLES if Need.ATTEMPT in part.needs:
            return staged("imitate", part.name)
        case Kind.EXAMPLES:
            studied = ["imitation.demonstrations=16", "imitation.batch=8", "rl.steps=0"]
            studied += SUPPLIED[Need.GOAL] if Need.GOAL in part.needs else []
            return [f"imitation.examples={part.name}", *studied, *EXAMPLES.get(part.name, [])]
    raise AssertionError(f"no recipe key names a {part.kind}")


# need an agent or tools of their own: tests/training/stages/test_example_rules.py trains them
OTHER_WORLDS = {
    "feedback-labels",
    "flattened",
    "granular-skills",
    "needed-tools",
    "world-knowledge",
}
OURS = [  # without what other tests register
    part
    for kind in Kind
    for part in components(kind).values()
    if part.function.__module__.startswith("palaestra.")
]
LISTED = [part for part in OURS if part in parts(part.kind).values()]
HIDDEN = [part for part in OURS if part not in LISTED]


TRAINED = [part for part in LISTED if part.name not in OTHER_WORLDS]
FAST = {  # at least one of each kind; the others are tried in the slow suite
    Kind.CREDIT: ("gigpo",),
    Kind.LOSS: ("dapo",),
    Kind.REWARD: ("outcome",),
    Kind.CORRECTION: ("tis",),
    Kind.FILTER: ("dapo",),
    Kind.CURRICULUM: ("alp",),
    Kind.PREFERENCE: ("step-dpo",),
    Kind.EXAMPLES: ("filtered-cloning",),
}
TYPICAL = [part for part in TRAINED if part.name in FAST[part.kind]]


@pytest.mark.parametrize(
    "part",
    mostly_slow(TRAINED, *TYPICAL),
    ids=[f"{part.kind}-{part.name}" for part in TRAINED],
)
def test_every_listed_part_trains_two_steps(part: Component, start: Path, tmp_path: Path) -> None:
    with train(start, tmp_path, "evaluation.tasks=1", *keys(part)) as run:
        (phase,) = run.database.metric_phases()
        assert len(run.database.metrics(phase)) >= 2
        assert weights(run.path / "final") != weights(start)


def test_a_run_meets_a_need_or_reports_why_not() -> None:
    assert SUPPLIED.keys() | UNMET.keys() == set(Need)
    assert not SUPPLIED.keys() & UNMET.keys()


def key_of(part: Component) -> str:
    """How a recipe would name a part that it cannot use."""
    where = {Kind.CREDIT: "rl.credit", Kind.EXAMPLES: "imitation.examples"}
    where |= {Kind.CURRICULUM: "rl.curriculum.rule", Kind.PREFERENCE: "rl.loss"}
    return f"{where[part.kind]}={part.name}"


@pytest.mark.parametrize("part", HIDDEN, ids=[f"{part.kind}-{part.name}" for part in HIDDEN])
def test_what_no_recipe_can_use_is_refused_with_what_it_lacks(
    part: Component, tmp_path: Path
) -> None:
    given = [key_of(part)]
    if part.kind is Kind.CURRICULUM:
        given.append("rl.curriculum.tasks=3")
    lacking = lack(part.needs)
    assert lacking is not None
    need, _, reason = lacking.partition(": ")
    with pytest.raises(RecipeError) as refused:
        check_recipe(load(str(write_recipe(tmp_path)), given))
    message = str(refused.value)
    assert f"'{part.name}' needs {need}, which a training run cannot supply: {reason}; " in message


def test_what_was_meant_to_be_hidden_is() -> None:
    assert {"spa", "igpo", "archer"} <= set(algorithms())


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, object]]:
    assert main(["list", *words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    return {f"{row.get('kind', '')}{row['name']}": row for row in rows}


@pytest.mark.parametrize("kind", ["algorithms", "curricula"])
def test_lists_hide_what_no_recipe_can_use_unless_asked_for_all(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    some, every = listed(capsys, kind), listed(capsys, kind, "--all")
    assert set(some) == {name for name, row in every.items() if not row["lacks"]}
    for row in every.values():
        assert (row["lacks"] == "") == (lack([Need(need) for need in row["needs"]]) is None)
    assert main(["list", kind]) == 0
    shown = capsys.readouterr().out
    assert (f"palaestra list {kind} --all" in shown) == (len(every) > len(some))
    assert all(row["name"] not in shown.split() for row in every.values() if row["lacks"])


def test_all_chooses_nothing_where_everything_is_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "agents", "--all"]) == 2
    assert "leave it out" in capsys.readouterr().err


def test_experimental_parts_and_combinations_report_it(capsys: pytest.CaptureFixture[str]) -> None:
    rows = listed(capsys, "algorithms")
    assert (rows["supo"]["status"], rows["grpo"]["status"]) == ("experimental", "release")
    assert rows["agentrl"]["status"] == "experimental"  # its normalisation is known from a digest
    assert Method(algorithm("step-grpo")).status == "experimental"
    assert main(["list", "credit"]) == 0
    assert "experimental" in capsys.readouterr().out
