// What /v1/state says, in pictures and tables.

import { byId, element, percent, setText, svg } from "./dom.js";
import { drawTree } from "./tree.js";

const MAX_DEPTHS = 8;
const HISTORY = 60; // polls
const PHASES = [["forward_s", "forward", "the model's pass"], ["draft_s", "draft", "drafting"], ["other_s", "rest", "walk, commit, text"]];

/** Tokens per second from two looks at the server's counters. */
export class Meter {
  speeds = [];
  #before = null;

  look(totals, atMs) {
    const tokens = totals.generated_tokens;
    if (this.#before && tokens >= this.#before.tokens) {
      this.speeds.push((1e3 * (tokens - this.#before.tokens)) / (atMs - this.#before.atMs));
      this.speeds.splice(0, this.speeds.length - HISTORY);
    }
    this.#before = { tokens, atMs };
  }
}

export function showState(state, meter, onCancel) {
  showCard(state);
  const { scheduler } = state;
  if (!scheduler) return;
  showTiles(state, scheduler, meter);
  showDepths(scheduler.totals);
  showSplit(scheduler.totals);
  showTree(state.tree ?? []);
  showRequests(scheduler.jobs, onCancel);
}

export function showStatus(text, kind) {
  byId("status").dataset.status = kind;
  setText("status", text);
}

function showCard({ model, version, scheduler }) {
  if (!model) return;
  const drafting = !scheduler?.speculation ? "speculation off" : scheduler.drafting ? model.drafter : `${model.drafter}, resting`;
  const texts = [model.name, model.weights, drafting, `${model.context} tokens`];
  const list = byId("card");
  if (list.textContent !== texts.join("")) list.replaceChildren(...texts.map((text) => element("li", { text })));
  setText("version", `medusakit ${version}`);
}

function showTiles({ last_minute: minute }, scheduler, meter) {
  const speed = meter.speeds.at(-1) ?? 0;
  setText("speed", speed >= 100 ? speed.toFixed(0) : speed.toFixed(1));
  setText("tau", minute.tokens_per_step?.toFixed(2) ?? "–");
  setText("flight", `${scheduler.running} of ${scheduler.max_rows}`);
  setText("waiting", scheduler.waiting ? `${scheduler.waiting} waiting` : "none waiting");
  const top = Math.max(...meter.speeds, 1);
  const points = meter.speeds.map((value, place) => `${(120 * (place + HISTORY - meter.speeds.length)) / (HISTORY - 1)} ${26 - (23 * value) / top}`);
  if (points.length < 2) return;
  const line = `M${points.join("L")}`;
  const first = points[0].split(" ")[0];
  byId("spark").replaceChildren(svg("path", { class: "under", d: `${line}L120 28L${first} 28Z` }), svg("path", { d: line }));
}

function showDepths({ accepted_by_depth: accepted, offered_by_depth: offered }) {
  const rows = offered.slice(0, MAX_DEPTHS).map((count, place) => {
    const share = count ? accepted[place] / count : 0;
    const bar = element("i");
    bar.style.width = `${100 * share}%`;
    return element("tr", {},
      element("th", { scope: "row", text: String(place + 1) }),
      element("td", {}, element("div", { class: "track" }, bar)),
      element("td", { text: percent(share), title: `${accepted[place]} of ${count} steps` }));
  });
  if (!rows.length) rows.push(element("tr", {}, element("td", { class: "none", text: "Nothing was drafted yet." })));
  byId("depths").replaceChildren(...rows);
}

function showSplit(totals) {
  const steps = Object.values(totals.steps).reduce((sum, count) => sum + count, 0);
  const seconds = PHASES.reduce((sum, [key]) => sum + totals[key], 0);
  if (!steps || !seconds) return;
  setText("step-time", `${((1e3 * seconds) / steps).toFixed(1)} ms a step, over ${steps.toLocaleString("en")} steps since the start`);
  const bars = PHASES.map(([key, name]) => {
    const bar = element("i", { class: name });
    bar.style.flex = `${totals[key] / seconds} 0 0`;
    return bar;
  });
  byId("split").replaceChildren(...bars);
  byId("split-list").replaceChildren(...PHASES.flatMap(([key, name, text]) => [
    element("i", { class: name }), element("dt", { text }),
    element("dd", { text: `${((1e3 * totals[key]) / steps).toFixed(1)} ms` }),
    element("dd", { class: "soft", text: percent(totals[key] / seconds) })]));
}

function showTree(nodes) {
  if (!nodes.length) return;
  const best = nodes.reduce((a, b) => (b.accepted > a.accepted ? b : a));
  setText("tree-note", `Every step checks a tree of guesses in one pass. The more often a guess was right where it was tried, ` +
    `the warmer its node; the more steps went along a branch, the thicker it is. The best guess was right ${percent(best.accepted / best.offered)} of the time.`);
  drawTree(byId("tree"), nodes);
}

function showRequests(jobs, onCancel) {
  const body = byId("requests");
  const focused = document.activeElement?.dataset?.request;
  const rows = jobs.map((job) => {
    const button = element("button", { class: "quiet", type: "button", "data-request": job.request_id ?? "", "aria-label": `Cancel ${job.request_id ?? job.id}`, text: "Cancel" });
    button.disabled = !job.request_id;
    button.addEventListener("click", () => onCancel(job.request_id));
    const texts = [job.speculation ? job.state : `${job.state}, plain`, `${job.age_s.toFixed(1)} s`, job.num_prompt_tokens, job.num_tokens, job.tau.toFixed(2)];
    return element("tr", {}, element("td", {}, element("code", { text: job.request_id ?? `job ${job.id}` })),
      ...texts.map((text) => element("td", { text })), element("td", {}, button));
  });
  if (!rows.length) rows.push(element("tr", {}, element("td", { class: "none", colspan: "7", text: "None." })));
  body.replaceChildren(...rows);
  if (focused) body.querySelector(`[data-request="${CSS.escape(focused)}"]`)?.focus();
}
