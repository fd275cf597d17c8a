"""Labels: responses that are good or bad alone, as KTO learns from them.

Source: KTO (Ethayarajh et al. 2024); single steps of games in MaKTO (Ye et al. 2025), labelled by
rules, votes or how the game ended. Its labelling rules are not verified: the stages below are a
proposal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.learning.component import Kind, Need, Status, component
from palaestra.learning.examples.example import Score, scoring, usable
from palaestra.learning.examples.preferred import Label, Response
from palaestra.learning.examples.replies import Reply, history, replies, reply_row
from palaestra.learning.rows import Row, rows_of

Judge = Callable[[Episode, Reply], bool | None]
"""Whether a reply is desirable; None where this judge cannot tell."""


def understood(episode: Episode, reply: Reply) -> bool | None:
    """Undesirable where the world did not understand an action; else it cannot tell."""
    return None if all(step.transition.valid for step in reply.steps) else False


def as_it_ended(episode: Episode, reply: Reply) -> bool | None:
    """As the episode ended: noisy, for a lost game holds many good moves."""
    return episode.outcome.solved


def voted(votes: Mapping[tuple[Key, int], Sequence[bool]], *, quorum: float = 0.5) -> Judge:
    """As more than `quorum` of the votes on (rollout, call) say; ties and unvoted: cannot tell."""

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
    """Single replies after their history, labelled by the first judge that can tell.

    Args:
        episodes: of any tasks; those without a valid result are left out.
        policy: whose replies are labelled.
        judges: asked in this order; replies of which none can tell are left out.
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
    """Whole rollouts, desirable where they score at least `least` (multi-turn KTO).

    Episodes without a valid result are left out.
    """
    score = scoring(score)
    return [
        Label(tuple(rows_of(episode, policy)), score(episode) >= least)
        for episode in usable(episodes, policy)
    ]


def mismatched(labels: Sequence[Label]) -> list[Response]:
    """Each label's question with the response of the next label that answers another question.

    What KTO estimates its reference point from: only log-probabilities are taken of these rows.
    A question is what stands before the first trained token of a response.

    Raises:
        InputError: all labels answer one question.
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
    """Weights of desirable and undesirable labels for KTO, so that neither outweighs the other.

    Source: Ethayarajh et al. 2024 and TRL: `weight_d * n_d / (weight_u * n_u)` belongs in
    [1, 4/3]. Weights of 1 stay where they do that already; else the side that is too light is
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
    return row.tokens[: row.mask.index(True)]


def _after(question: Sequence[int], row: Row) -> Row:
    """What a row says from its first trained token on, after another question."""
    start, n = row.mask.index(True), len(question)
    return Row(
        row.key,
        [*question, *row.tokens[start:]],
        [*[False] * n, *row.mask[start:]],
        [*[0.0] * n, *row.logprobs[start:]],
        [*[-1] * n, *row.calls[start:]],
        [*[0] * n, *row.versions[start:]],
    )
