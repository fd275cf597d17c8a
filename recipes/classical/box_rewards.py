"""Which sizes of boxes rewards for pointing drive to (GUI-G1, Zhou et al. 2025), on rectangles.

    python recipes/classical/box_rewards.py

For a true square of side 1, prints the side of the predicted squares that earns most in
expectation, by how the centres of predictions scatter: equally for all sizes, or more for larger
ones, as of a policy that is unsure of both. Nothing is sampled: the expectations are integrals.
"""

from __future__ import annotations

from collections.abc import Callable

from palaestra.learning.data.box_rewards import (
    Reward,
    combined,
    expected_reward,
    favoured_size,
    hit,
    iou,
    size_agreement,
)

SIZES = [2 ** (n / 8) for n in range(-16, 17)]  # 1/4 to 4
REWARDS: dict[str, Reward] = {
    "hit": hit,
    "iou": iou,
    "hit + iou": combined(hit, iou),
    "size": size_agreement,
    "hit + iou + size": combined(hit, iou, size_agreement),
}
SCATTER: dict[str, Callable[[float], float]] = {
    "0.1 for all sizes": lambda size: 0.1,
    "0.3 for all sizes": lambda size: 0.3,
    "0.5 for all sizes": lambda size: 0.5,
    "0.5 x side": lambda size: 0.5 * size,
}


def main() -> None:
    print("| scatter of centres | " + " | ".join(REWARDS) + " |")
    print("| --- |" + " --- |" * len(REWARDS))
    for name, scatter in SCATTER.items():
        cells = []
        for reward in REWARDS.values():
            earned = [expected_reward(reward, size, scatter(size)) for size in SIZES]
            best = favoured_size(reward, scatter, SIZES)
            cells.append("any" if max(earned) - min(earned) < 1e-9 else f"{best:.2f}")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
