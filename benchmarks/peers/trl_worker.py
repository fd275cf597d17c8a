"""TRL's GRPOTrainer, as a peer's worker: one optimiser step per question.

The trainer runs in a thread of its own, so that its state lives on between questions; its
rollout function waits for the next one. What is asked for is either a step on recorded
episodes, or a whole step: rollouts in the environment, with transformers' `generate` in
batches turn by turn, and learning. The clock runs from the question's arrival in the rollout
function to the updated weights.

TRL's options are chosen for speed on a processor: weights in bf16, no autocast, no gradient
checkpointing, the fused optimiser, no reference model, one step per batch of rollouts. Of
passes of 2, 8 and 16 rows, those of 8 took the least processor time; on a graphics processor
all rows make one pass. With torch.compile the first step took ten minutes, so it is left out.
Runs in the peer's environment (see serving.py), with palaestra's environments and renderer on
its path: both sides see and say the same tokens.
"""

from __future__ import annotations

import queue
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from palaestra.core.environment import Action
from palaestra.core.message import assistant, system, user
from palaestra.core.task import Split
from palaestra.environments.registry import make, tasks
from palaestra.models.renderers.chatml import ChatMLRenderer

Request = dict[str, Any]
Episode = dict[str, Any]
END = "<|im_end|>"
AT_ONCE = 8  # rows in a forward and backward pass, on a processor


class Steps(TrainerCallback):
    """Hands out what each step took."""

    def __init__(self, answers: queue.Queue[Request | BaseException]) -> None:
        self.answers = answers
        self.started = 0.0
        self.ended = 0.0
        self.tokens = 0

    def on_step_end(self, *arguments: Any, **more: Any) -> None:
        self.ended = time.perf_counter()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        if logs and "grad_norm" in logs:
            seconds, norm = self.ended - self.started, float(logs["grad_norm"])
            self.answers.put({"seconds": seconds, "gradient_norm": norm, "tokens": self.tokens})


class Conversation:
    """One rollout, in the words and tokens that palaestra's direct agent has too."""

    def __init__(self, environment: str, number: int, renderer: ChatMLRenderer) -> None:
        self.world, self.renderer = make(environment), renderer
        seen = self.world.reset(tasks(environment).task(Split.TRAIN, number))
        self.messages = [system(self.world.instructions), user(seen.text)]
        self.tokens = renderer.start(self.messages)
        self.first = len(self.tokens)
        self.mask = [0] * self.first
        self.over = self.solved = False

    def say(self, reply: list[int]) -> None:
        """Act, and read what came of it; what follows the reply's end is padding."""
        ends = [i for i, token in enumerate(reply) if token in self.renderer.end_tokens]
        reply = reply[: ends[0] + 1] if ends else reply
        self.tokens += reply
        self.mask += [1] * len(reply)
        text = self.renderer.text(reply)
        transition = self.world.step(Action(text.strip()))
        self.over, self.solved = transition.terminated, transition.success
        self.messages.append(assistant(text))
        seen = [user(transition.observation.text)]
        added = self.renderer.extend(self.messages, seen, closed=bool(ends))
        self.messages += seen
        self.tokens += added
        self.mask += [0] * len(added)

    def episode(self) -> Episode:
        """Up to the last sampled token."""
        self.world.close()
        last = len(self.mask) - self.mask[::-1].index(1)
        return {
            "prompt": self.tokens[: self.first],
            "completion": self.tokens[self.first : last],
            "mask": self.mask[self.first : last],
            "return": float(self.solved),
        }


class Trainer:
    """A trainer waiting for questions."""

    def __init__(self, settings: Request) -> None:
        self.questions: queue.Queue[Request] = queue.Queue()
        self.answers: queue.Queue[Request | BaseException] = queue.Queue()
        self.settings, self.steps = settings, Steps(self.answers)
        threading.Thread(target=self._run, daemon=True).start()

    def ask(self, request: Request) -> Request:
        self.questions.put(request)
        answer = self.answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _run(self) -> None:
        try:
            self._trainer().train()
        except BaseException as error:
            self.answers.put(error)

    def _trainer(self) -> GRPOTrainer:
        given = self.settings
        folder = Path(given["model"])
        rollouts = given["tasks"] * given["group"]
        at_once = rollouts if torch.cuda.is_available() else AT_ONCE
        self.tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "tokenizer.json"), pad_token=END, eos_token=END
        )
        config = GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            use_cpu=not torch.cuda.is_available(),
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=at_once,
            gradient_accumulation_steps=rollouts // at_once,
            num_generations=given["group"],
            max_completion_length=1024,
            temperature=1.0,
            beta=0.0,
            loss_type="grpo",
            epsilon=0.2,
            learning_rate=given["learning_rate"],
            lr_scheduler_type="constant",
            optim="adamw_torch_fused",
            adam_beta1=given["betas"][0],
            adam_beta2=given["betas"][1],
            weight_decay=0.0,
            max_grad_norm=given["clip_norm"],
            max_steps=1_000_000,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            shuffle_dataset=False,
            dataloader_pin_memory=False,
        )
        return GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16),
            args=config,
            reward_funcs=lambda completions, earned, **more: list(earned),
            train_dataset=Dataset.from_dict({"prompt": ["a task"] * given["tasks"]}),
            processing_class=self.tokenizer,
            rollout_func=self._rollout,
            callbacks=[self.steps],
        )

    def _rollout(self, prompts: list[str], trainer: GRPOTrainer) -> Request:
        request = self.questions.get()
        self.steps.started = time.perf_counter()
        episodes = request.get("episodes")
        if episodes is None:
            episodes = self._lived(request["step"], trainer)
        assert len(episodes) == len(prompts), f"{len(prompts)} episodes are wanted"
        self.steps.tokens = sum(len(e["prompt"]) + len(e["completion"]) for e in episodes)
        return {
            "prompt_ids": [e["prompt"] for e in episodes],
            "completion_ids": [e["completion"] for e in episodes],
            "logprobs": [[0.0] * len(e["completion"]) for e in episodes],  # not read
            "env_mask": [e["mask"] for e in episodes],
            "earned": [e["return"] for e in episodes],
        }

    def _lived(self, step: int, trainer: GRPOTrainer) -> list[Episode]:
        """Rollouts of a step: all that are not over are asked together, turn after turn."""
        given = self.settings
        renderer = ChatMLRenderer.from_folder(Path(given["model"]))
        conversations = [
            Conversation(given["environment"], step * given["tasks"] + task, renderer)
            for task in range(given["tasks"])
            for _ in range(given["group"])
        ]
        model = trainer.model
        model.eval()
        for _ in range(given["turns"]):
            going = [c for c in conversations if not c.over]
            if not going:
                break
            width = max(len(c.tokens) for c in going)
            pad = self.tokenizer.pad_token_id
            ids = torch.tensor([[pad] * (width - len(c.tokens)) + c.tokens for c in going])
            mask = torch.tensor(
                [[0] * (width - len(c.tokens)) + [1] * len(c.tokens) for c in going]
            )
            with torch.no_grad():
                replies = model.generate(
                    ids.to(model.device),
                    attention_mask=mask.to(model.device),
                    do_sample=True,
                    temperature=1.0,
                    top_k=0,
                    max_new_tokens=given["reply"],
                    eos_token_id=self.tokenizer.eos_token_id,
                    pad_token_id=pad,
                )
            for conversation, reply in zip(going, replies[:, width:].tolist(), strict=True):
                conversation.say(reply)
        model.train()
        return [c.episode() for c in conversations]


_trainers: list[Trainer] = []


def answer(request: Request) -> Request:
    """{"settings"} and {"episodes"} or {"step"} to {"seconds", "gradient_norm", "tokens"}."""
    if not _trainers:
        _trainers.append(Trainer(request["settings"]))
    return _trainers[0].ask(request)
