// One answer: its text token by token, with marks, figures, and a picture of its passes.

import { element } from "./dom.js";

const SHOWN_STEPS = 240;

export class Pane {
  constructor(root) {
    this.root = root;
    this.figures = root.querySelector(".figures");
    this.text = root.querySelector(".text");
    this.note = root.querySelector(".inspect");
    this.steps = root.querySelector(".steps");
    this.hint = this.note.innerHTML;
    this.text.addEventListener("pointerover", (event) => this.#inspect(this.#indexOf(event.target)));
    this.text.addEventListener("keydown", (event) => this.#onKey(event));
    this.text.addEventListener("blur", () => this.#inspect(-1));
    this.clear();
  }

  clear() {
    this.tokens = [];
    this.seen = -1;
    this.startedAt = this.firstAt = 0;
    this.text.replaceChildren();
    this.steps.replaceChildren();
    this.note.innerHTML = this.hint;
    this.figures.textContent = "nothing yet";
  }

  start() {
    this.clear();
    this.startedAt = performance.now();
    this.root.classList.add("busy");
    this.figures.textContent = "waiting for the first token";
  }

  add(tokens) {
    this.firstAt ||= performance.now();
    const box = this.text;
    const follow = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    for (const token of tokens) {
      box.append(marked(token));
      this.tokens.push(token);
      this.#mark(token);
    }
    if (follow) box.scrollTop = box.scrollHeight;
    this.#show(this.liveSpeed, this.liveTau, "");
  }

  /** result: the server's own counts and times, which replace what was seen from here. */
  finish(result) {
    this.root.classList.remove("busy");
    const { stats } = result;
    const ended = { length: "cut at the limit", cancelled: "stopped" }[result.finish_reason] ?? "";
    const lossy = result.lossless ? "" : "lossy";
    this.#show(stats.tokens_per_s, stats.tau, [lossy, ended].filter(Boolean).join(" · "));
  }

  /** It ended early: `text` says why. */
  end(text, failed = false) {
    this.root.classList.remove("busy");
    const short = failed ? "failed" : text;
    if (this.tokens.length) this.#show(this.liveSpeed, this.liveTau, short);
    else this.figures.textContent = short;
    if (failed) this.text.append(element("p", { class: "failed", text }));
  }

  get liveSpeed() {
    const seconds = (performance.now() - this.firstAt) / 1e3;
    return this.tokens.length > 1 && seconds > 0 ? (this.tokens.length - 1) / seconds : 0;
  }

  get liveTau() {
    const steps = this.tokens.at(-1)?.step ?? 0;
    return steps ? (this.tokens.length - 1) / steps : 1;
  }

  #show(speed, tau, more) {
    const parts = [[speed.toFixed(1), " tok/s"], [tau.toFixed(2), " per step"], [String(this.tokens.length), " tokens"]];
    this.figures.replaceChildren();
    parts.forEach(([value, unit], place) => this.figures.append(place ? " · " : "", element("b", { text: value }), unit));
    if (more) this.figures.append(` · ${more}`);
  }

  /** A column per pass: hollow for the model's own token, filled for every drafted one that was kept. */
  #mark(token) {
    if (token.step === 0) return;
    if (this.steps.dataset.step !== String(token.step) || !this.steps.lastChild) {
      this.steps.dataset.step = token.step;
      this.steps.append(element("i"));
      if (this.steps.childElementCount > SHOWN_STEPS) this.steps.firstChild.remove();
      this.steps.scrollLeft = this.steps.scrollWidth;
    }
    if (token.from_draft) this.steps.lastChild.append(element("b"));
  }

  #indexOf(target) {
    return [...this.text.children].indexOf(target.closest(".token"));
  }

  #onKey(event) {
    const moves = { ArrowRight: this.seen + 1, ArrowLeft: this.seen - 1, Home: 0, End: this.tokens.length - 1 };
    if (!(event.key in moves) || !this.tokens.length) return;
    event.preventDefault();
    this.#inspect(Math.max(0, Math.min(this.tokens.length - 1, moves[event.key])));
    this.text.children[this.seen].scrollIntoView({ block: "nearest" });
  }

  #inspect(index) {
    this.text.children[this.seen]?.classList.remove("seen");
    this.seen = index;
    if (index < 0) {
      this.note.innerHTML = this.hint;
      return;
    }
    this.text.children[index].classList.add("seen");
    this.note.textContent = describe(this.tokens[index]);
  }
}

/** A drafted token is marked by shape and colour, the space before it is not. */
function marked(token) {
  if (!token.from_draft) return element("span", { class: "token", text: token.text });
  const word = token.text.trimStart();
  const space = token.text.slice(0, token.text.length - word.length);
  return element("span", { class: token.depth > 1 ? "token drafted deep" : "token drafted" }, space, element("mark", { text: word }));
}

function describe(token) {
  const how = token.step === 0 ? "the first, from the prompt's pass"
    : token.from_draft ? `drafted ${token.depth} ahead, confirmed · node ${token.node}` : "the model's own";
  const sure = token.logprob === null ? "" : ` · p ${Math.exp(token.logprob).toFixed(2)}`;
  return `${JSON.stringify(token.text)} · ${how} · pass ${token.step}${sure}`;
}
