"""A foreign agent: a program that uses OpenAI's SDK, evaluated and recorded without a change.

`play` is the whole program. It reads only environment variables and does not import palaestra;
any other language or framework works as well. palaestra starts it once for each episode.
Needs the SDK and the gateway: pip install openai 'palaestra[serving]'
Run it: python examples/foreign_agent.py
"""

import json
import os
import sys
from urllib.request import Request, urlopen

from openai import OpenAI


def play() -> None:
    """Call the model and act in the environment at its URL until the episode is over."""
    headers = {
        "Authorization": f"Bearer {os.environ['PALAESTRA_TOKEN']}",
        "Content-Type": "application/json",
    }
    model = OpenAI()  # reads OPENAI_BASE_URL and OPENAI_API_KEY
    messages = [{"role": "user", "content": os.environ["PALAESTRA_TASK"]}]
    over = False
    while not over:
        answer = model.chat.completions.create(model="any", messages=messages, max_tokens=8)
        reply = answer.choices[0].message.content or ""
        action = json.dumps({"action": reply.strip()}).encode()
        request = Request(f"{os.environ['PALAESTRA_WORLD_URL']}/step", action, headers)
        with urlopen(request) as response:
            step = json.load(response)
        messages.append({"role": "assistant", "content": reply})
        messages.append({"role": "user", "content": step["observation"]})
        over = step["over"]


def evaluate() -> None:
    """Evaluate the program with a small language model, and with the expert."""
    import palaestra as pa

    program = pa.command([sys.executable, __file__, "play"])
    results = pa.evaluate("probe/umbrella-4", agent=program, model=["smollm2-135m", "expert"], n=2)
    print(results)

    # All calls of the program were recorded, with the sampled tokens.
    episode = results.episodes[0]
    episode.show()
    for call in episode.calls:
        branch = "begins" if call.parent is None else f"continues call {call.parent}"
        tokens = [
            f"{number}:{p:.2f}" for number, p in zip(call.completion, call.logprobs, strict=True)
        ]
        print(f"call {call.index} {branch}: {call.reply.text!r} = {' '.join(tokens)}")
    # The same program can be trained: pa.train(agent={"command": "python FILE play"})


if __name__ == "__main__":
    play() if sys.argv[1:] == ["play"] else evaluate()
