import OpenAI from "openai";
import * as world from "./world.mjs";

const tool = { name: "act", description: "Act in the world.", parameters: world.schema };
const talk = [
  { role: "system", content: world.system },
  { role: "user", content: world.task },
];
while (!world.state.over) {
  const reply = await new OpenAI().chat.completions.create({
    model: world.model,
    messages: talk,
    tools: [{ type: "function", function: tool }],
  });
  const message = reply.choices[0].message;
  talk.push(message);
  for (const call of message.tool_calls) {
    const seen = await world.act(JSON.parse(call.function.arguments));
    talk.push({ role: "tool", tool_call_id: call.id, content: seen });
  }
}
