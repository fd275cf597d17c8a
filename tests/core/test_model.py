"""A reply keeps all its fields when the session numbers it; a model's limit fills a gap only."""

from dataclasses import fields, replace

from palaestra.core.message import ToolCall
from palaestra.core.model import Finish, Generation, Sampling
from palaestra.models.scripted.scripted_model import ScriptedModel

REPLY = Generation(
    text="go",
    tokens=(1, 2),
    logprobs=(-0.5, -0.25),
    finish=Finish.LENGTH,
    policy="policy",
    version=3,
    prompt_tokens=4,
    computed_tokens=5,
    seconds=6.0,
    versions=(3, 4),
    sampled_tokens=7,
    entropies=(0.1, 0.2),
    call=8,
    tool_calls=(ToolCall("look", {"at": "it"}, "call-1"),),
    reasoning="because",
    signature="signed",
    forced=(1,),
    answer_logprobs=(-0.75,),
)


def test_a_numbered_reply_differs_in_its_number_only() -> None:
    bare = Generation("", (), (), Finish.STOP, "", 0)
    assert all(getattr(REPLY, field.name) != getattr(bare, field.name) for field in fields(REPLY))
    assert REPLY.numbered(9) == replace(REPLY, call=9)


def test_a_models_limit_holds_where_the_sampling_has_none() -> None:
    model = ScriptedModel(["go"])
    assert model.limited(Sampling(temperature=0.5)) == Sampling(0.5, model.max_tokens)
    assert model.limited(Sampling(max_tokens=9)) == Sampling(max_tokens=9)
