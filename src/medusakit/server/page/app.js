// The page: runs the playground, looks at the server's state every second.

import { cancelRequest, generate, getState, setKey } from "./api.js";
import { byId, setText } from "./dom.js";
import { Pane } from "./pane.js";
import { Meter, showState, showStatus } from "./panels.js";

const POLL_MS = 1000;
const panes = { medusa: new Pane(byId("medusa")), plain: new Pane(byId("plain")) };
const meter = new Meter();
let running = null; // the AbortController of what runs

byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!running) run();
});
byId("stop").addEventListener("click", () => running?.abort());
byId("key").addEventListener("input", (event) => setKey(event.target.value));
byId("key").addEventListener("change", look);
byId("examples").addEventListener("click", (event) => {
  if (event.target.tagName !== "BUTTON") return;
  byId("prompt").value = event.target.textContent;
  byId("prompt").focus();
});
document.querySelectorAll("[name=way]").forEach((input) =>
  input.addEventListener("change", () => { byId("panes").dataset.way = way(); }));
byId("acceptance").addEventListener("change", () => {
  if (byId("acceptance").value !== "exact" && Number(byId("temperature").value) === 0) byId("temperature").value = "0.7";
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault(); // else a focused button would be pressed too
  byId("form").requestSubmit();
});
byId("theme").addEventListener("click", () => {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try { localStorage.setItem("theme", theme); } catch { /* then it lasts as long as the page */ }
  showTheme();
});

showTheme();
look();
setInterval(() => { if (!document.hidden) look(); }, POLL_MS);

function way() {
  return document.querySelector("[name=way]:checked").value;
}

/** One after the other, so that each has the machine to itself; the same seed for both. */
async function run() {
  const prompt = byId("prompt").value.trim();
  if (!prompt) {
    byId("prompt").focus();
    setText("verdict", "Type a prompt first.");
    return;
  }
  running = new AbortController();
  byId("run").disabled = true;
  byId("stop").disabled = false;
  setText("verdict", "");
  const names = way() === "both" ? ["medusa", "plain"] : [way()];
  names.forEach((name) => panes[name].clear());
  const body = request(prompt);
  const results = {};
  for (const name of names) {
    results[name] = await answer(panes[name], { ...body, medusa: { off: name === "plain", acceptance: body.medusa.acceptance } });
    if (!results[name]) break;
  }
  if (results.medusa && results.plain) compare(results.medusa, results.plain);
  running = null;
  byId("run").disabled = false;
  byId("stop").disabled = true;
}

function request(prompt) {
  return {
    messages: [{ role: "user", content: prompt }],
    max_tokens: Number(byId("max-tokens").value) || 160,
    temperature: Number(byId("temperature").value) || 0,
    seed: Math.floor(Math.random() * 2 ** 31),
    medusa: { acceptance: byId("acceptance").value },
  };
}

/** The result, or null where it did not come to its end. */
async function answer(pane, body) {
  pane.start();
  try {
    const id = `page-${crypto.getRandomValues(new Uint32Array(1))[0].toString(16)}`;
    let result = null;
    for await (const document of generate(body, id, running.signal)) {
      if (document.tokens) pane.add(document.tokens);
      result = document.result ?? result;
    }
    if (!result) throw new Error("the connection ended before the answer did");
    pane.finish(result);
    return result;
  } catch (error) {
    if (error.name === "AbortError") pane.end("stopped");
    else pane.end(error.message, true);
    if (error.status === 401) byId("key").focus();
    return null;
  }
}

function compare(medusa, plain) {
  const ratio = medusa.stats.tokens_per_s / plain.stats.tokens_per_s;
  const [left, right] = [panes.medusa.tokens, panes.plain.tokens];
  const parted = left.findIndex((token, place) => token.token_id !== right[place]?.token_id);
  const same = parted < 0 && left.length === right.length;
  if (Number.isFinite(ratio)) {
    setText("ratio", `${ratio.toFixed(2)}×`);
    setText("ratio-note", "the last run here");
  }
  const speed = Number.isFinite(ratio) ? `Medusa decoded ${ratio.toFixed(2)} times as fast. ` : "";
  const where = `They part at token ${(parted < 0 ? right.length : parted) + 1}`;
  const why = medusa.lossless ? ": a tie between two scores, or a fault; “medusa verify” tells which." : ", as lossy acceptance may.";
  setText("verdict", speed + (same ? `Both say the same, all ${left.length} tokens of it.` : where + why));
}

async function look() {
  try {
    const state = await getState();
    if (state.scheduler) meter.look(state.scheduler.totals, performance.now());
    showStatus(state.status, state.status === "ready" ? "ready" : "loading");
    showState(state, meter, cancel);
  } catch (error) {
    showStatus(error.status === 401 ? "needs an API key" : error.status ? error.message : "no connection", "bad");
  }
}

async function cancel(id) {
  try {
    await cancelRequest(id);
  } catch (error) {
    if (error.status !== 404) showStatus(error.message, "bad"); // 404: it has just ended by itself
  }
  look();
}

function showTheme() {
  const dark = document.documentElement.dataset.theme === "dark";
  byId("theme").setAttribute("aria-pressed", String(dark));
}
