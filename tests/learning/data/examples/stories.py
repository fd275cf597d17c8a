"""Short episodes in which every word is one token: observations are states, the policy replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palaestra.core.budget import Usage
from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.episode import Episode, Key, Step
from palaestra.core.graph import Call
from palaestra.core.message import Message, assistant, user
from palaestra.core.model import Finish, Renderer
from palaestra.core.outcome import Outcome, Owner
from palaestra.core.task import Task
from tests.learning.made import Words

STATES = [f"s{n}" for n in range(6)]
REPLIES = [f"{letter}{n}" for letter in "abgt" for n in range(6)]
COMMANDS = ["Command:", "earn", "0", "1", "2", "3", "4", "more", "within", "turns."]
OTHER = ["hint", "task", "oops", "ok.", "who", "me"]
RENDERER = Words([*STATES, *REPLIES, *COMMANDS, *OTHER])
BROKEN = Outcome.error("hang", Owner.ENVIRONMENT)  # no valid result


@dataclass(frozen=True)
class Turn:
    """An observation, and the policy's reply to it."""

    state: str
    reply: str
    valid: bool = True  # whether the world understood it
    acts: bool = True  # false: a thought, no action
    reward: float = 0.0
    prompt: tuple[Message, ...] = ()  # the policy's prompt; by default the state


def story(
    turns: Sequence[Turn | tuple[str, str]],
    *,
    task: str = "train/0",
    phase: str = "rl/1",
    group: int = 0,
    member: int = 0,
    outcome: Outcome | None = None,
    rooted: bool = False,  # each call starts a new conversation
    policy: str = "policy",
    version: int = 0,
    renderer: Renderer = RENDERER,
) -> Episode:
    """An episode as a session would have recorded it."""
    calls: list[Call] = []
    steps: list[Step] = []
    shown: list[Message] = []
    for index, each in enumerate(turns):
        turn = each if isinstance(each, Turn) else Turn(*each)
        new = turn.prompt or (user(turn.state),)
        prompt = renderer.extend(shown, new, True) if shown else renderer.start(new)
        tokens = renderer.reply(turn.reply)
        reply = assistant(turn.reply)
        calls.append(
            Call(
                index=index,
                parent=index - 1 if shown else None,
                role="agent",
                messages=new,
                prompt=tuple(prompt),
                reply=reply,
                completion=tuple(tokens),
                logprobs=tuple(-0.5 - n for n in range(len(tokens))),
                finish=Finish.STOP,
                policy=policy,
                version=version,
            )
        )
        if turn.acts:
            steps.append(
                Step(
                    index=len(steps),
                    call=index,
                    action=Action(turn.reply),
                    transition=Transition(Observation("…"), turn.reward, valid=turn.valid),
                    before=Signals(turn.state),
                )
            )
        shown = [] if rooted else [*shown, *new, reply]
    return Episode(
        key=Key(phase, group, member),
        task=Task(task, "made", 0),
        agent="direct",
        observation=None,
        calls=tuple(calls),
        steps=tuple(steps),
        outcome=outcome or Outcome.success(),
        usage=Usage(turns=len(steps)),
    )


def words(row) -> str:
    """The row in words, without the marks of messages."""
    return RENDERER.text(row.tokens)


def trained_words(row) -> str:
    """Its trained words."""
    return RENDERER.text([t for t, on in zip(row.tokens, row.mask, strict=True) if on])
