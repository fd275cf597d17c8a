import instructor
import world
from openai import OpenAI
from pydantic import BaseModel


class Act(BaseModel):
    action: str


client = instructor.from_openai(OpenAI())
talk = [{"role": "system", "content": world.SYSTEM}, {"role": "user", "content": world.TASK}]
while not world.over:
    reply = client.chat.completions.create(model=world.MODEL, messages=talk, response_model=Act)
    talk.append({"role": "user", "content": world.act(reply.action)})
