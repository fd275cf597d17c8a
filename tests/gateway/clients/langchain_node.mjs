import { HumanMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import { ChatOpenAI } from "@langchain/openai";
import * as world from "./world.mjs";

const tool = { name: "act", description: "Act in the world.", parameters: world.schema };
const model = new ChatOpenAI({
  model: world.model,
  configuration: { baseURL: process.env.OPENAI_BASE_URL },
}).bindTools([{ type: "function", function: tool }]);
const talk = [new SystemMessage(world.system), new HumanMessage(world.task)];
while (!world.state.over) {
  const reply = await model.invoke(talk);
  talk.push(reply);
  for (const call of reply.tool_calls) {
    talk.push(new ToolMessage({ content: await world.act(call.args), tool_call_id: call.id }));
  }
}
