// What a task changed: what speaks against it, one line a file, then the files; a click on a line's number comments it.

import { act, arrange, askText, confirm, el, line, readOnly, say } from "./core.js";
import { nodes } from "./show.js";

export class Diff {
  constructor(task) {
    this.task = task;
    this.about = el("ul", { class: "about" });
    this.review = el("div", { class: "review" });
    this.stat = el("ul", { class: "stat", "aria-label": "Files" });
    this.files = el("div", {});
    this.made = new Map();
    this.node = el("div", {}, this.about, this.review, this.stat, this.files);
    this.files.addEventListener("click", ({ target }) => {
      const path = target.closest("section")?.dataset.path;
      if (target.matches(".at")) this.ask(path, Number(target.textContent));
      else if (target.dataset.number) act("drop-comment", { task, number: Number(target.dataset.number) });
    });
    this.files.addEventListener("keydown", (event) => {
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!by || !event.target.matches(".at")) return;
      event.preventDefault();
      const all = [...this.files.querySelectorAll(".at")];
      all[all.indexOf(event.target) + by]?.focus();
    });
  }

  take(state, changed) {
    if (state.has("why")) {
      arrange(this.about, [el("li", { class: "faint" }, state.get("why"))]);
      for (const part of [this.review, this.stat, this.files]) arrange(part, []);
      this.made.clear();
      return;
    }
    if (changed.has("about")) this.showAbout(state.get("about"));
    for (const name of changed) this.made.delete(name);
    const files = state.get("order").map((name) => {
      if (!this.made.has(name)) this.made.set(name, file(state.get(name)));
      return this.made.get(name);
    });
    arrange(this.files, files.map((one) => one.node));
    arrange(this.stat, files.map((one) => one.stat));
  }

  showAbout(about) {
    this.tip = about.tip;
    arrange(this.about, nodes(about.head));
    const button = (text, does, kind = "") => el("button", { type: "button", class: kind, onclick: does }, text);
    arrange(this.review, readOnly ? [] : [
      about.waiting ? button(`Send ${about.waiting} to the agent`, () => this.send(), "strong") : el("span", { class: "muted" }, "A line's number takes a comment."),
      ...(about.final ? [button("Accept", () => this.decide("accepted")), button("Reject", () => this.decide("rejected"), "danger")] : []),
    ]);
  }

  async ask(path, at) {
    if (readOnly) return say("this server only shows", true);
    const text = await askText(`Comment to ${path}:${at}`, { lines: 4, done: "Keep" });
    if (text && text.trim()) await act("comment", { task: this.task, tip: this.tip, path, line: at, text });
  }

  async send() {
    const text = await askText("Send the comments, with these words (or none)", { lines: 3, done: "Send" });
    if (text !== null) await act("send-comments", { task: this.task, text });
  }

  async decide(verdict) {
    const text = verdict === "rejected" ? await askText("Reject it, because", { done: "Reject" }) : (await confirm("Accept this result? Nothing is merged by that; Take does it.", "Accept") ? "" : null);
    if (text !== null) await act("verdict", { task: this.task, tip: this.tip, verdict, text });
  }
}

function file(one) {
  const rows = one.lines.map((made) => (typeof made[0] === "string" ? nodes([made])[0] : row(...made)));
  const node = el("section", { class: "file", "aria-label": one.shown, "data-path": one.path }, ...nodes(one.head),
    el("div", { class: "code", tabindex: "0", role: "region", "aria-label": `Lines of ${one.shown}` }, el("table", {}, el("tbody", {}, ...rows))), ...nodes(one.tail));
  node.querySelector(".at")?.setAttribute("tabindex", "0"); // one stop a file for the tab key; arrows go from line to line
  const [stat] = nodes([one.stat]);
  stat.querySelector("a").addEventListener("click", (event) => { event.preventDefault(); node.scrollIntoView(); });
  return { node, stat };
}

function row(old, fresh, sign, spans) {
  const number = fresh === null ? "" : el("button", { type: "button", class: "at", title: "Comment this line", "aria-label": `Comment line ${fresh}`, tabindex: "-1" }, String(fresh));
  return el("tr", { class: { "+": "plus-line", "-": "minus-line" }[sign] }, el("td", { class: "num" }, String(old ?? "")), el("td", { class: "num" }, number),
    el("td", { class: "sign" }, sign.trim()), line(spans, "td"));
}
