import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as world from "./world.mjs";

const env = process.env;
const home = mkdtempSync(join(tmpdir(), "codex-"));
const model = `{name="p", base_url="${env.OPENAI_BASE_URL}", env_key="OPENAI_API_KEY", wire_api="responses"}`;
const tools = `{url="${env.PALAESTRA_MCP_URL}", bearer_token_env_var="PALAESTRA_TOKEN"}`;
const settings = {
  model_provider: '"p"',
  "model_providers.p": model,
  "mcp_servers.world": tools,
};
const set = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
const codex = join(import.meta.dirname, "node_modules", ".bin", "codex");
const free = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"];
const done = spawnSync(codex, ["exec", ...free, ...set, "-m", world.model, world.task], {
  cwd: home,
  env: { ...env, CODEX_HOME: home },
  stdio: ["ignore", "inherit", "inherit"],
});
rmSync(home, { recursive: true, force: true });
process.exit(done.status ?? 1);
