import { createAnthropic } from "@ai-sdk/anthropic";
import { stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import * as world from "./world.mjs";

const anthropic = createAnthropic({
  baseURL: process.env.ANTHROPIC_BASE_URL + "/v1",
  apiKey: process.env.ANTHROPIC_API_KEY,
});
const act = tool({
  description: "Act in the world.",
  inputSchema: z.object({ action: z.string() }),
  execute: world.act,
});
await streamText({
  model: anthropic(world.model),
  system: world.system,
  prompt: world.task,
  tools: { act },
  stopWhen: stepCountIs(4),
}).consumeStream();
