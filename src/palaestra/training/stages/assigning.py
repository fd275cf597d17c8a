"""Which adapter learns each reply that a stage reads: by its role, or by clusters of calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.model import is_of
from palaestra.learning.data.adapter_replies import learned_by, rechosen, speaking
from palaestra.learning.data.call_clusters import fit_router, last_message
from palaestra.training.adapter_sections import Clusters, roles_trained
from palaestra.training.role_adapters import learning
from palaestra.training.run_context import RunContext
from palaestra.training.stages.reading import Shown

CLUSTERS = "clusters/"  # documents: what each stage's clusters are
SHOWN = 3  # messages of each cluster that are kept as examples
LONGEST = 200  # characters of such a message


def assigned(context: RunContext, part: object, shown: Sequence[Shown]) -> list[Shown]:
    """Return episodes in which only the replies that the stage's adapters learn are the speaker's.

    Args:
        context: of the stage; its policy may have a router, which assigns the calls of roles
            without an adapter of their own.
        part: the stage's table.
        shown: the episodes that it reads.

    Raises:
        InputError: a role that the stage trains never spoke.
    """
    router, own = context.policy.router, context.recipe.training.adapters
    found = list(shown)
    if router is not None:

        def choice(call: Call) -> str | None:
            if call.role in own:
                return call.role
            return router.choose(call.role, call.tools, last_message(call))

        found = [replace(x, episodes=rechosen(x.episodes, x.speaker, choice)) for x in found]
    check_speakers(part, {x.speaker: x.episodes for x in found}, f"what '{context.record}' reads")
    network = context.policy.network
    trained = learning(context.recipe, context.learners).values()
    return [replace(x, episodes=learned_by(x.episodes, x.speaker, network, trained)) for x in found]


def check_speakers(part: object, episodes: dict[str, list[Episode]], where: str) -> None:
    """Raise InputError if a role that a stage trains has no reply in episodes.

    Args:
        part: the stage's table.
        episodes: by speaker.
        where: what they are, in words.
    """
    spoke = [role for name, of in episodes.items() for role in speaking(of, name)]
    for role in roles_trained(part) or ():
        if role not in spoke:
            raise InputError(
                f"The role '{role}' never spoke in {where}, so its adapter has nothing to learn "
                f"(who spoke: {', '.join(dict.fromkeys(spoke)) or 'none'}); leave '{role}' out of "
                "train, or choose an agent or episodes in which it speaks."
            )


def find_clusters(context: RunContext, part: Clusters, shown: Sequence[Shown]) -> None:
    """Give the policy a router of the calls in episodes, unless it has one already.

    Raises:
        InputError: there are fewer kinds of calls than clusters.
    """
    if context.policy.router is not None:
        return
    calls = [
        call
        for one in shown
        for episode in one.episodes
        for call in episode.calls
        if is_of(call.policy, one.speaker) and call.role not in context.recipe.training.adapters
    ]
    seed = context.stage_seed
    router = fit_router(calls, part.clusters, part.fallback, seed)
    context.policy.router = router
    found: dict[str, list[Call]] = {name: [] for name in (*part.names, "")}
    for call in calls:
        chosen = router.choose(call.role, call.tools, last_message(call))
        found[chosen or ""].append(call)
    context.store.put(CLUSTERS + context.record, {n or "none": _about(c) for n, c in found.items()})
    sizes = ", ".join(f"{name} {len(found[name])}" for name in part.names)
    context.reporter.say(
        f"{context.record}: {len(calls)} calls in {part.clusters} clusters ({sizes}); "
        f"{len(found[''])} fit none"
    )


def _about(calls: Sequence[Call]) -> dict[str, Any]:
    """Return what a cluster's calls are: their number, who is asked, and what most often."""
    texts = Counter(last_message(call)[:LONGEST] for call in calls)
    return {
        "calls": len(calls),
        "roles": dict(Counter(call.role for call in calls)),
        "messages": [text for text, _ in texts.most_common(SHOWN)],
    }
