"""Labels: responses that are good or bad alone, as KTO learns from them.

Source: KTO (Ethayarajh et al. 2024); single steps of games in MaKTO (Ye et al. 2025), labelled by
rules, votes or how the game ended. Its labelling rules are not verified: the stages below are a
proposal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.learning.data.examples.example import Score, scoring, usable
from palaestra.learning.data.examples.preferred import Label, Response
from palaestra.learning.data.examples.replies import Reply, history, replies, reply_row
from palaestra.learning.data.rows import Row, refuse_images, rows_of
from palaestra.learning.methods.component import Kind, Need, Status, component

Judge = Callable[[Episode, Reply], bool | None]
"""Whether a reply is desirable; None where this judge cannot decide."""


def understood(episode: Episode, reply: Reply) -> bool | None:
    """Judge a reply undesirable if one of its actions was invalid; else abstain."""
    return None if all(step.transition.valid for step in reply.steps) else False


def as_it_ended(episode: Episode, reply: Reply) -> bool | None:
    """Judge by how the episode ended: noisy, for a lost game holds many good moves."""
    return episode.outcome.solved


def voted(votes: Mapping[tuple[Key, int], Sequence[bool]], *, quorum: float = 0.5) -> Judge:
    """Judge by more than `quorum` of the votes on (rollout, call); abstain on ties or no votes."""

    def judge(episode: Episode, reply: Reply) -> bool | None:
        cast = votes.get((episode.key, reply.call.index), ())
        ayes = sum(cast)
        if ayes > quorum * len(cast):
            return True
        return False if len(cast) - ayes > quorum * len(cast) else None

    return judge


@component(
    Kind.EXAMPLES,
    "step-labels",
    source="Ye et al. 2025 (MaKTO)",
    status=Status.EXPERIMENTAL,
    needs=[Need.PREFERENCE],
)
def step_labels(episodes: Sequence[Episode], policy: str, judges: Sequence[Judge]) -> list[Label]:
    """Label single replies after their history by the first judge that does not abstain.

    Args:
        episodes: of any tasks; those without a valid result are left out.
        policy: whose replies are labelled.
        judges: asked in this order; replies on which all abstain are left out.
    """
    found: list[Label] = []
    for episode in usable(episodes, policy):
        graph = episode.graph
        for reply in replies(episode, policy):
            verdicts = (judge(episode, reply) for judge in judges)
            desirable = next((verdict for verdict in verdicts if verdict is not None), None)
            if desirable is not None:
                row = reply_row(episode.key, history(graph, reply.call), reply.call)
                found.append(Label((row,), desirable))
    return found


@component(
    Kind.EXAMPLES,
    "trajectory-labels",
    source="Ethayarajh et al. 2024 (KTO)",
    status=Status.EXPERIMENTAL,
    needs=[Need.PREFERENCE],
)
def trajectory_labels(
    episodes: Sequence[Episode], policy: str, *, least: float = 1.0, score: Score | str = "success"
) -> list[Label]:
    """Label whole rollouts, desirable where they score at least `least` (multi-turn KTO).

    Episodes without a valid result are left out.
    """
    score = scoring(score)
    return [
        Label(tuple(rows_of(episode, policy)), score(episode) >= least)
        for episode in usable(episodes, policy)
    ]


def mismatched(labels: Sequence[Label]) -> list[Response]:
    """Pair each label's question with the response of the next label that has another question.

    KTO estimates its reference point from these rows: only their log-probabilities are used. A
    question is everything before the first trained token of a response.

    Raises:
        InputError: all labels have the same question.
    """
    questions = [_question(label.response[0]) for label in labels]
    found: list[Response] = []
    for here, question in enumerate(questions):
        order = [*range(here + 1, len(labels)), *range(here)]
        other = next((i for i in order if questions[i] != question), None)
        if other is None:
            raise InputError(
                "KTO's reference point needs responses to at least two different questions; give "
                "labels of several tasks or states in one batch."
            )
        found.append(tuple(_after(question, row) for row in labels[other].response))
    return found


def balance(desirable: int, undesirable: int) -> tuple[float, float]:
    """Return weights of desirable and undesirable labels for KTO, so that neither dominates.

    Source: Ethayarajh et al. 2024 and TRL: `weight_d * n_d / (weight_u * n_u)` belongs in
    [1, 4/3]. Weights of 1 stay if they satisfy this already; else the weight that is too small is
    raised to the nearer bound.

    Raises:
        InputError: there are none of one kind.
    """
    if desirable < 1 or undesirable < 1:
        raise InputError(
            f"{desirable} desirable and {undesirable} undesirable labels cannot be balanced; give "
            "some of each."
        )
    ratio = desirable / undesirable
    return max(1.0, 1.0 / ratio), max(1.0, ratio * 3 / 4)


def _question(row: Row) -> list[int]:
    refuse_images(row.images, "KTO")
    return row.tokens[: row.mask.index(True)]


def _after(question: Sequence[int], row: Row) -> Row:
    """Return a row's tokens from its first trained one on, after another question."""
    start, n = row.mask.index(True), len(question)
    return Row(
        row.key,
        [*question, *row.tokens[start:]],
        [*[False] * n, *row.mask[start:]],
        [*[0.0] * n, *row.logprobs[start:]],
        [*[-1] * n, *row.calls[start:]],
        [*[0] * n, *row.versions[start:]],
        row.roles,
    )
