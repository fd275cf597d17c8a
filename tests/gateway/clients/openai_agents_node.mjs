import { Agent, run, setTracingDisabled, tool } from "@openai/agents";
import { z } from "zod";
import * as world from "./world.mjs";

setTracingDisabled(true);
const act = tool({
  name: "act",
  description: "Act in the world.",
  parameters: z.object({ action: z.string() }),
  execute: world.act,
});
const agent = new Agent({
  name: "player",
  instructions: world.system,
  model: world.model,
  tools: [act],
});
await run(agent, world.task, { maxTurns: 9 });
