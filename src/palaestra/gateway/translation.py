"""A program's questions as a session's prompts, and the model's replies as the program's answers.

What the model does not support is left out and named in the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from palaestra.core.message import ToolCall
from palaestra.core.model import Generation, Renderer, Sampling
from palaestra.core.session import Session
from palaestra.core.tool import Tool
from palaestra.gateway import hermes_tags
from palaestra.gateway.http_errors import HTTPError
from palaestra.gateway.program_requests import Answer, Question
from palaestra.gateway.prompts import BuiltPrompt, build_prompt
from palaestra.gateway.reply_history import ReplyHistory
from palaestra.models.renderers.tool_text import written

MIN_TEMPERATURE = 1e-4  # below it, sampling is greedy


class Translation:
    """The translation of one role of a session."""

    def __init__(
        self, session: Session, replies: ReplyHistory, *, temperature: bool, role: str = "agent"
    ) -> None:
        """Translate for one role of the session.

        Args:
            session: the episode.
            replies: its replies; answers are added.
            temperature: whether the program's temperature is used, or else the session's.
            role: whose model replies.
        """
        self.session, self.replies = session, replies
        self._role, self._model = role, session.model_of(role)
        self._temperature = temperature

    @property
    def renderer(self) -> Renderer | None:
        """Return the model's renderer; None if the model exposes no tokens."""
        return self._model.renderer

    @property
    def native(self) -> bool:
        """Return whether the model takes tools, calls and results natively, not as text."""
        return self._model.native_tools

    @property
    def takes_tool_options(self) -> bool:
        """Return whether it takes `tool_choice`, `parallel_tool_calls` and `reasoning_effort`.

        Servers do. A model in this process samples its calls like any other text, unless one is
        required; see `requires_call`.
        """
        return self.native and self.renderer is None

    def requires_call(self, question: Question) -> bool:
        """Return whether a model in this process is held to one call; see `resident.py`."""
        asked = bool(question.tools) and question.tool_choice not in ("auto", "none")
        return asked and self.native and self.session.can_constrain(self._role)

    def prepared(self, question: Question) -> tuple[BuiltPrompt, Sampling]:
        """Return the prompt and the sampling options of a question."""
        prompt = self.built(question)
        if self.renderer is not None and any(message.images for message in prompt.messages):
            raise HTTPError(400, "This model reads text only: leave out the images.", "invalid")
        return prompt, self._sampling(question)

    def built(self, question: Question) -> BuiltPrompt:
        form = None if self._grammar(question) else question.form
        return build_prompt(question, self.replies, native=self.native, form=form)

    def offered(self, question: Question) -> tuple[Tool, ...]:
        """Return the tools to pass to the model natively."""
        return question.tools if self.native else ()

    def _grammar(self, question: Question) -> str | None:
        """Return the grammar that constrains the reply to its form; None: unconstrained."""
        if question.form is None or not self.session.can_constrain(self._role):
            return None
        if self.requires_call(question):
            return None  # a call has the form of its tool
        if question.calls and self.native and not self._calls_as_text:
            return None
        return question.form.grammar(question.tools if question.calls else ())

    @property
    def _calls_as_text(self) -> bool:
        """Return whether the model's calls have the Hermes text format, which the grammar has."""
        call = ToolCall("name", {"argument": 1})
        assert self.renderer is not None  # servers take no grammars
        found = self.renderer.parse(written(call)).tool_calls
        return [(one.name, dict(one.arguments)) for one in found] == [(call.name, call.arguments)]

    def _sampling(self, question: Question) -> Sampling:
        defaults = self._default_sampling
        temperature = question.temperature if self._temperature else None
        limits = [one for one in (question.max_tokens, defaults.max_tokens) if one is not None]
        found = replace(
            defaults,
            max_tokens=min(limits, default=None),
            grammar=self._grammar(question),
            stop=(*defaults.stop, *(stop for stop in question.stop if stop not in defaults.stop)),
            temperature=defaults.temperature
            if temperature is None
            else _usable_temperature(temperature),
        )
        if self.requires_call(question):
            return replace(found, tool_choice=question.tool_choice)
        if not self.takes_tool_options:
            return found
        effort = question.reasoning_effort or defaults.reasoning_effort
        found = replace(found, reasoning_effort=effort)
        if not question.tools:
            return found
        parallel = question.parallel_tool_calls
        return replace(found, tool_choice=question.tool_choice, parallel_tool_calls=parallel)

    @property
    def _default_sampling(self) -> Sampling:
        """Return the session's own sampling options."""
        return self._model.limited(self.session.sampling)

    def answer(self, question: Question, generation: Generation, lost: frozenset[str]) -> Answer:
        """Return a reply as the answer to a program, and record it."""
        index = generation.call
        assert index is not None  # set by the session
        text, calls, stopped = self._parsed(question, generation)
        answer = Answer(
            index=index,
            number=question.number,
            parent=self.session.graph.calls[index].parent,
            generation=generation,
            text=text,
            tool_calls=tuple(
                call if call.id else replace(call, id=f"call_{question.number}_{n}")
                for n, call in enumerate(calls)
            ),
            stopped=stopped,
            tokens=self._tokens(generation),
            ignored=tuple(dict.fromkeys((*question.ignored, *self._unsupported(question, lost)))),
        )
        self.replies.add(answer)
        return answer

    def _parsed(
        self, question: Question, generation: Generation
    ) -> tuple[str, Sequence[ToolCall], str | None]:
        """Return the text of a reply, its calls, and the program's stop string that ended it."""
        text, calls = generation.text, generation.tool_calls
        if calls and not question.calls and self.renderer is not None:
            text, calls = self.renderer.text(generation.tokens), ()  # no one would execute them
        cuts = {text.index(stop): stop for stop in question.stop if stop in text}
        text = text[: min(cuts)] if cuts else text
        if question.calls and not self.native:
            text, found = hermes_tags.parsed(text)
            calls = tuple(found)
        return text, calls, cuts[min(cuts)] if cuts else None

    def _unsupported(self, question: Question, lost: frozenset[str]) -> Iterator[str]:
        """Yield the fields of a question that this session does not support, or not fully."""
        defaults = self._default_sampling
        if defaults.max_tokens is not None and (question.max_tokens or 0) > defaults.max_tokens:
            yield question.field_of("max_tokens")
        if question.temperature not in (None, defaults.temperature) and not self._temperature:
            yield "temperature"
        if question.form is not None and self._grammar(question) is None:
            yield question.form.field
        if question.logprobs and self.renderer is None:
            yield question.field_of("logprobs")
        if question.reasoning_effort not in (None, "none") and not self.takes_tool_options:
            yield question.field_of("reasoning_effort")
        if not ((self.takes_tool_options and question.tools) or self.requires_call(question)):
            if question.parallel_tool_calls is False:
                yield question.field_of("parallel_tool_calls")
            if question.tool_choice not in ("auto", "none"):
                yield "tool_choice"
        yield from map(question.field_of, sorted(lost))

    def _tokens(self, generation: Generation) -> tuple[tuple[str, float], ...]:
        if self.renderer is None:
            return ()
        texts = self.renderer.token_strings(generation.tokens)
        return tuple(zip(texts, generation.logprobs, strict=False))


def _usable_temperature(temperature: float) -> float:
    """Return the temperature, or 0 (greedy) if it is so low that logits would overflow."""
    return temperature if temperature >= MIN_TEMPERATURE else 0.0
