"""Recorded episodes with what was shown at each turn, for exports of demonstrations.

Elements and pictures are not recorded. The recorded actions are repeated in the episode's
environment instead, which is compared with the record (`TurnReplay`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from palaestra.core.element import Element
from palaestra.core.environment import Action, Capability, Sight
from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture
from palaestra.core.gestures.dialects import dialect, read_single
from palaestra.core.gestures.gesture_line import read_line
from palaestra.core.gestures.gesture_tools import gesture_of
from palaestra.core.rare_capabilities import caption_of, sight_of
from palaestra.core.task import Split
from palaestra.environments.shared.png_images import size_of
from palaestra.environments.wrappers.knobs import split
from palaestra.evaluation.attribution.turn_replay import EnvironmentFactory, TurnReplay
from palaestra.store.exchange.weblinx_export import ShownEpisode, ShownTurn, demonstration_name

SPLITS = {Split.TRAIN: "train", Split.VALIDATION: "valid", Split.TEST: "test_iid"}


def gesture_of_action(environment: str, action: Action) -> Gesture | None:
    """Return the gesture that a recorded action of an environment is; None if it is none."""
    with suppress(InputError):
        named = split(environment)[1].get("dialect")
        if named is not None:
            with suppress(InputError):
                return read_single(action.text, dialect(named))
        return gesture_of(action.call) if action.call else read_line(action.text)
    return None


def shown_episodes(
    episodes: Iterable[Episode], make_env: EnvironmentFactory
) -> Iterator[ShownEpisode]:
    """Yield episodes with what was shown before each valid action.

    The user's words are the caption of the first observation; the address is that of the
    environment, as pages tell no other.

    Raises:
        InputError: an environment shows no elements with boxes, differs from the record, or cannot
            be replayed.
        EnvironmentFault: one crashed.
    """
    before: TurnReplay | None = None  # stays open: what environments share ends with the last one
    try:
        for episode in episodes:
            replay = TurnReplay.of(episode, make_env)
            if before is not None:
                before.close()
            before = replay
            yield _shown(replay)
    finally:
        if before is not None:
            before.close()


def _shown(replay: TurnReplay) -> ShownEpisode:
    episode = replay.episode
    id = episode.task.environment
    if Capability.ELEMENTS not in replay.env.spec.capabilities:
        raise InputError(
            f"'{id}' shows no elements, so its episodes are no demonstrations on pages; export "
            "those of an environment that does."
        )
    first = replay.guarded(lambda: caption_of(replay.at(0)))
    size = (0, 0)
    turns: list[ShownTurn] = []
    for index, step in enumerate(episode.steps):
        gesture = gesture_of_action(id, step.action)
        if gesture is None or not step.transition.valid:
            continue
        sight = _sight(replay, index)
        size = _window(id, sight.elements)
        picture = None if sight.picture is None else sight.picture.data
        if picture is not None:
            size = size_of(picture)
        turns.append(ShownTurn(gesture, sight.elements, picture))
    return ShownEpisode(
        name=demonstration_name(f"{id} {episode.key}"),
        instruction=first,
        url=f"http://{split(id)[0]}",
        size=size,
        split=SPLITS[episode.task.split],
        turns=turns,
    )


def _sight(replay: TurnReplay, turn: int) -> Sight:
    environment = replay.at(turn)
    return replay.guarded(lambda: sight_of(environment))


def _window(environment: str, elements: tuple[Element, ...]) -> tuple[int, int]:
    """Return the width and height of what holds all boxes, in pixels."""
    boxes = [element.box for element in elements if element.box is not None]
    if not boxes:
        raise InputError(
            f"'{environment}' shows elements without boxes; export episodes of an environment with "
            "a picture, such as web/…:browser."
        )
    return round(max(b.x + b.width for b in boxes)), round(max(b.y + b.height for b in boxes))
