import world
from openai import OpenAI

prompt = world.TASK
while not world.over:
    reply = OpenAI().completions.create(model=world.MODEL, prompt=prompt, logprobs=0)
    prompt += reply.choices[0].text + "\n" + world.act(reply.choices[0].text)
