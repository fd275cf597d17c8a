"""The protocol of a layered network: members answer in layers and rate the layer before theirs.

In the first layer all members propose an action, and see nothing of each other. Before each next
layer its members rate the distinct answers of the layer before, from 0 to 5; those whose answers
were rated best answer again (chance, which follows from the seed, decides between equals). A layer
in which enough answers are equal decides at once, and the last layer decides by plurality.

What each member contributed is its Agent Importance Score. Members of layer t are i, those of the
next layer that rated them are j, and r is the rating that j gave to the answer of i:

    w[t, i, j] = r[t, i, j] / sum over i' of r[t, i', j]           (equal, if all of them are 0)
    I[T, i] = 1/m for the m members whose answer was taken in the last layer T, 0 for others
    I[t, i] = sum over j of w[t, i, j] * I[t + 1, j]
    I[i] = sum over t of I[t, i]

Each layer's scores sum to 1. The mean over a run's turns says whom a team needs
(`palaestra team RUN`).

Source: DyLAN, Liu et al. 2023. There a reply holds answer and ratings at once, and another model
ranks the answers that stay; here a rating is a reply of its own, and the ratings decide who stays.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from palaestra.core.team_words import ASKED, PASS
from palaestra.environments.teams.protocol import ONE_EACH, Protocol
from palaestra.environments.teams.protocol_tables import Network
from palaestra.environments.teams.team_file import Team
from palaestra.environments.teams.votes import different, majority, parse_ratings, plain

Weights = Mapping[str, Mapping[str, float]]  # of members of one layer, by rater in the next one


@dataclass(slots=True)
class Forward:
    """Where the network is within one of the team's turns."""

    number: int  # of the turn in the episode
    active: list[str]  # members of the present layer, in the order of the file
    left: list[str]  # those that have not replied yet
    rating: bool = False  # whether they rate the answers of the layer before theirs
    replies: dict[str, str] = field(default_factory=dict)
    answers: list[dict[str, str]] = field(default_factory=list)  # of complete layers, by member
    weights: list[dict[str, dict[str, float]]] = field(default_factory=list)  # one entry fewer


class LayeredNetwork(Protocol):
    """The layered network of one team in one episode."""

    def __init__(self, team: Team, network: Network, seed: int) -> None:
        """Begin the first turn."""
        self.team, self.network, self.seed = team, network, seed
        self.turn = Forward(0, [*team.members], [*team.members])

    def begin_turn(self, observation: str | None = None, state: str | None = None) -> None:
        members = self.team.members
        self.turn = Forward(self.turn.number + 1, [*members], [*members])

    def next(self) -> list[str]:
        return [*self.turn.left]

    def asked(self, player: str = "") -> str:
        """Return what all members of the layer are asked for."""
        if not self.turn.rating:
            return ASKED["propose"]
        lines = [f"{number}: {text}" for number, text in enumerate(self._choices(), 1)]
        return "\n".join([*lines, ASKED["rate"]])

    def refusal(self, text: str, player: str = "") -> str | None:
        if not text.strip():
            return "The reply is empty."
        if not self.turn.rating or plain(text) == PASS:
            return None
        return None if parse_ratings(text, len(self._choices())) else self.asked()

    def kind(self, player: str, text: str) -> str:
        if plain(text) == PASS:
            return "pass"
        return "rate" if self.turn.rating else "propose"

    def take(self, player: str, text: str) -> str | None:
        """Take a member's answer or ratings; return the action once a layer has decided on one."""
        turn = self.turn
        turn.left.remove(player)
        turn.replies[player] = text
        if turn.left:
            return None
        replies, turn.replies = turn.replies, {}
        if turn.rating:
            self._rated(replies)
            return None
        found = {member: text for member, text in replies.items() if plain(text) != PASS}
        if not found:  # nobody answered: the layer before decides
            return majority([*turn.answers[-1].values()]) if turn.answers else PASS
        turn.answers.append(found)
        if len(turn.answers) == self.network.layers or self._agreed(found):
            return majority([*found.values()])
        turn.rating, turn.left = True, [*turn.active]
        return None

    def halt(self) -> str | None:
        return None  # nobody talks

    def facts(self) -> dict[str, Any]:
        """Return the members' importance in the turn that was decided, and its layers."""
        answers = self.turn.answers
        if not answers:
            return {}
        layers = importance(answers, self.turn.weights[: len(answers) - 1])
        total = {m: sum(layer.get(m, 0.0) for layer in layers) for m in self.team.members}
        return {"importance": total, "layers": len(layers)}

    def sample(self, rng: random.Random, action: Callable[[], str], player: str = "") -> str:
        if not self.turn.rating:
            return action()
        return ", ".join(str(rng.randrange(6)) for _ in self._choices())

    def ideal(self, action: str, player: str = "") -> str:
        if not self.turn.rating:
            return action
        return ", ".join("5" if plain(text) == plain(action) else "0" for text in self._choices())

    def most_replies(self, each: Mapping[str, int] = ONE_EACH) -> int:
        replies = sorted((each.get(member, 1) for member in self.team.members), reverse=True)
        kept = sum(replies[: self.network.keep])
        return 2 * sum(replies) + kept + 2 * kept * (self.network.layers - 2)

    def key(self) -> tuple[object, ...]:
        turn = self.turn
        layers = turn.answers, turn.weights
        return turn.number, turn.active, turn.left, turn.rating, turn.replies, *layers

    def saved(self) -> Any:
        return asdict(self.turn)

    def restore(self, saved: Any) -> None:
        self.turn = Forward(**saved)

    # ── details ──────────────────────────────────────────────────────────────

    def _choices(self) -> list[str]:
        return different([*self.turn.answers[-1].values()])

    def _agreed(self, answers: Mapping[str, str]) -> bool:
        """Return whether more than the share `consensus` of the answers are equal."""
        texts = [plain(text) for text in answers.values()]
        return max(map(texts.count, texts)) > self.network.consensus * len(texts)

    def _rated(self, replies: Mapping[str, str]) -> None:
        """Weigh the last answers by the ratings, and begin the next layer with the best."""
        turn, choices = self.turn, [plain(text) for text in self._choices()]
        answers = {m: choices.index(plain(text)) for m, text in turn.answers[-1].items()}
        weights = {}
        for rater, text in replies.items():
            given = parse_ratings(text, len(choices)) or [0.0] * len(choices)  # (pass)
            weights[rater] = normalised({m: given[choice] for m, choice in answers.items()})
        score = {m: sum(each.get(m, 0.0) for each in weights.values()) for m in turn.active}
        ranked = [*turn.active]
        random.Random(f"kept {self.seed} {turn.number} {len(turn.answers)}").shuffle(ranked)
        best = sorted(ranked, key=lambda m: -score[m])[: self.network.keep]
        turn.weights.append(weights)
        turn.active = [member for member in turn.active if member in best]
        turn.rating, turn.left = False, [*turn.active]


def normalised(ratings: Mapping[str, float]) -> dict[str, float]:
    """Return ratings of at least 0 as shares of their sum; equal shares if all of them are 0."""
    total = sum(ratings.values())
    if total == 0:
        return dict.fromkeys(ratings, 1 / len(ratings))
    return {member: rating / total for member, rating in ratings.items()}


def importance(
    answers: Sequence[Mapping[str, str]], weights: Sequence[Weights]
) -> list[dict[str, float]]:
    """Return the importance of each member in each layer, by the equations above.

    Args:
        answers: by member, of each layer; the last one's most frequent answer was taken.
        weights: of the answers of each layer but the last, by rater; each rater's sum to 1.
    """
    taken = plain(majority([*answers[-1].values()]))
    right = [member for member, text in answers[-1].items() if plain(text) == taken]
    found = [{m: (m in right) / len(right) for m in answers[-1]}]
    for layer, rated in zip(reversed(answers[:-1]), reversed(weights), strict=True):
        after = found[0]
        found.insert(0, {i: sum(rated[j][i] * after[j] for j in after) for i in layer})
    return found
