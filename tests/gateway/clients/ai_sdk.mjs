import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, tool } from "ai";
import { z } from "zod";
import * as world from "./world.mjs";

const openai = createOpenAI({
  baseURL: process.env.OPENAI_BASE_URL,
  apiKey: process.env.OPENAI_API_KEY,
});
const act = tool({
  description: "Act in the world.",
  inputSchema: z.object({ action: z.string() }),
  execute: world.act,
});
await generateText({
  model: openai(world.model), // the responses API, with references to items
  system: world.system,
  prompt: world.task,
  tools: { act },
  stopWhen: stepCountIs(4),
});
