import Anthropic from "@anthropic-ai/sdk";
import * as world from "./world.mjs";

const client = new Anthropic();
const tool = { name: "act", description: "Act in the world.", input_schema: world.schema };
const talk = [{ role: "user", content: world.task }];
while (!world.state.over) {
  const reply = await client.messages.create({
    model: world.model,
    max_tokens: 200,
    system: world.system,
    messages: talk,
    tools: [tool],
  });
  talk.push({ role: "assistant", content: reply.content });
  const results = [];
  for (const block of reply.content) {
    if (block.type !== "tool_use") continue;
    const content = await world.act(block.input);
    results.push({ type: "tool_result", tool_use_id: block.id, content });
  }
  talk.push({ role: "user", content: results });
}
