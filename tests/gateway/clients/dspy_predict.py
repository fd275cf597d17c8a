import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import dspy
import world

model = dspy.LM(f"openai/{world.MODEL}", api_base=os.environ["OPENAI_BASE_URL"], cache=False)
dspy.configure(lm=model)
player = dspy.Predict("observation -> action")
seen = world.TASK
while not world.over:
    seen = world.act(player(observation=seen).action)
