// What the scripts of Node's clients share: the session's world, as a tool.
export const task = process.env.PALAESTRA_TASK;
export const model = process.env.PALAESTRA_MODEL;
export const system =
  "You act in a world by calling its tool, one call after the other, until it is over.";
export const schema = {
  type: "object",
  properties: { action: { type: "string" } },
  required: ["action"],
};
export const state = { over: false };

export async function act({ action }) {
  const answer = await fetch(process.env.PALAESTRA_WORLD_URL + "/step", {
    method: "POST",
    headers: { Authorization: "Bearer " + process.env.PALAESTRA_TOKEN },
    body: JSON.stringify({ action }),
  });
  if (!answer.ok) {
    state.over = true;
    return "It is over.";
  }
  const step = await answer.json();
  state.over = step.over;
  return step.observation;
}
