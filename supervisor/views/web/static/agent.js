// One agent: what it shows now, what it changed, what it said. A page is followed only while it is in sight.

import { act, arrange, el, follow, get, goOn, keys, kill, line, now, readOnly, say, send, setText, take } from "./core.js";
import { Diff } from "./diff.js";
import { age, brief } from "./format.js";

const task = decodeURIComponent(location.pathname.slice("/agent/".length));
const PAGES = [["screen", "Screen"], ["diff", "Diff"], ["transcript", "Transcript"], ["log", "Log"], ["history", "Timeline"], ["resources", "Resources"]];
const main = document.getElementById("main");

// The head

const letter = el("span", { class: "letter", role: "img" }), heading = el("h1", {}, task), title = el("span", { class: "title" });
const menu = el("menu", { "aria-label": "Acts" }), facts = el("p", { class: "now" });
const asks = el("p", {}), question = el("div", { class: "question", role: "alert", hidden: true }, asks);
const button = (text, key, does, kind = "") => el("button", { type: "button", class: kind, onclick: does }, text, el("kbd", { "aria-hidden": "true" }, key));
let row = null, known = null;

const pauses = button("Pause", "p", hold);
const acts = { send: button("Send", "s", write), pause: pauses, kill: button("Kill", "k", end, "danger"), retry: button("Retry", "r", retry), take: button("Take", "t", merge, "strong"), more: button("Go on", "f", more) };
question.append(el("menu", {}, button("Allow", "a", () => answer(true), "strong"), button("Deny", "d", () => answer(false))));
main.append(el("div", { class: "who" }, letter, heading, title, menu), facts, question);

function show() {
  const is = row || known;
  if (!is) return;
  const running = is.state === "running", final = !["waiting", "ready", "running", "paused", "parked"].includes(is.state);
  setText(letter, row ? row.letter : is.state[0].toUpperCase());
  letter.style.color = row ? row.color : "var(--muted)";
  letter.setAttribute("aria-label", row ? row.means : is.state);
  setText(heading, is.name);
  setText(title, is.title);
  title.title = is.title;
  document.title = `${row && row.asks ? "(!) " : ""}${is.name} - nightcrew`;
  setText(pauses.firstChild, is.paused ? "Resume" : "Pause");
  const takable = row && row.letter === "T";
  arrange(menu, readOnly ? [] : [takable && acts.take, running && acts.send, !final && pauses, final && acts.more, final && acts.retry, !final && acts.kill].filter(Boolean));
  question.hidden = !(row && row.asks);
  setText(asks, row ? row.asks : "");
  question.querySelector("menu").hidden = readOnly;
  says();
}
function says() {
  const is = row || known;
  if (!is) return;
  const took = known && known.ended && known.since ? `, took ${age(known.ended - known.since)}` : "";
  const lasted = is.ended ? `ended ${brief(is.ended, now())}${took}` : is.since ? age(now() - is.since) : "";
  const said = [is.id, is.kind, is.state, is.epoch ? `attempt ${is.epoch}` : "", lasted, is.branch, is.why || (row && !row.asks ? row.says : "")].filter(Boolean);
  while (facts.children.length < said.length) facts.append(el("span"));
  while (facts.children.length > said.length) facts.lastChild.remove();
  said.forEach((text, at) => setText(facts.children[at], text));
}
setInterval(says, 1000);

const look = () => get(`/data/task?task=${encodeURIComponent(task)}`).then((found) => { known = found; show(); }).catch((error) => say(error.message, true));
look();
follow(["crew"], (topic, state, changed) => {
  if (!changed.has(`row:${task}`) && row) return;
  const before = row;
  row = state.get(`row:${task}`) || null;
  if (before && !row) look();
  show();
});

// Lines

class Lines {
  constructor(name, label) {
    this.node = el("div", { class: `lines ${name}`, tabindex: "0", role: "region", "aria-label": label });
    this.name = name;
    this.shown = new Map();
    this.widest = 0;
  }
  take(state, changed) {
    const { first, count, ends } = state.get("lines");
    const below = this.node.scrollHeight - this.node.scrollTop - this.node.clientHeight < 40;
    for (const key of changed) if (key.startsWith("l:")) this.shown.delete(key);
    const nodes = [];
    for (let at = first; at < first + count; at += 1) {
      const key = `l:${at}`;
      if (!this.shown.has(key)) this.shown.set(key, line(state.get(key)));
      nodes.push(this.shown.get(key));
    }
    arrange(this.node, nodes);
    if (this.name === "screen") this.fit(state, first, count);
    if (ends && (below || !this.was)) this.node.scrollTop = this.node.scrollHeight;
    this.was = true;
  }
  /** A screen as wide as its pane: smaller letters rather than half a line. */
  fit(state, first, count) {
    let widest = 40;
    for (let at = first; at < first + count; at += 1) widest = Math.max(widest, state.get(`l:${at}`).reduce((sum, span) => sum + span[0].length, 0));
    const room = this.node.clientWidth - 28;
    if (room > 0) this.node.style.fontSize = `${Math.max(6, Math.min(13, room / widest / 0.605)).toFixed(2)}px`;
  }
}

// Tabs

const tabs = PAGES.map(([name, label], at) => el("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panel", title: `key ${at + 1}`, onclick: () => open(name) }, label));
const list = el("div", { role: "tablist", "aria-label": "Pages of this agent" }, ...tabs);
const panel = el("div", { role: "tabpanel", id: "panel" });
const typed = el("input", { type: "text", placeholder: "Type a line to the agent, Enter sends it", "aria-label": "A line to the agent", autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
const typing = el("form", { class: "typing" }, typed, el("button", {}, "Send"));
main.append(list, panel);
typing.addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = typed.value;
  if (text && await act("send", { tasks: [task], text })) typed.value = "";
});
list.addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  event.preventDefault();
  const at = tabs.indexOf(document.activeElement);
  const to = (at + by + tabs.length) % tabs.length;
  open(PAGES[to][0]);
  tabs[to].focus();
});

let leave = () => {}, opened = "", shownPage = null;
function open(name) {
  if (opened === name) return;
  opened = name;
  history.replaceState(null, "", `${location.pathname}#${name}`);
  tabs.forEach((tab, at) => {
    const here = PAGES[at][0] === name;
    tab.setAttribute("aria-selected", String(here));
    tab.tabIndex = here ? 0 : -1;
  });
  panel.setAttribute("aria-labelledby", `tab-${name}`);
  watch();
}

/** Follow the page that is open, while somebody can see it: the server looks at a pane only then. */
function watch() {
  leave();
  leave = () => {};
  if (document.hidden) return;
  const label = PAGES.find(([name]) => name === opened)[1];
  if (opened === "diff") {
    if (!(shownPage instanceof Diff)) shownPage = new Diff(task);
    const diff = shownPage;
    arrange(panel, [diff.node]);
    leave = follow([`diff:${task}`], (topic, state, changed) => diff.take(state, changed));
    return;
  }
  const lines = new Lines(opened, `${label} of ${heading.textContent}`);
  shownPage = lines;
  arrange(panel, opened === "screen" && !readOnly ? [lines.node, typing] : [lines.node]);
  leave = follow([`page:${opened}:${task}`], (topic, state, changed) => {
    lines.take(state, changed);
    typing.hidden = !(row && row.state === "running");
  });
}
document.addEventListener("visibilitychange", watch);
const asked = location.hash.slice(1);
open(PAGES.some(([name]) => name === asked) ? asked : "screen");

// Acts

function write() {
  if (opened === "screen" && !typing.hidden && typing.isConnected) return typed.focus();
  return send([task], heading.textContent);
}
const answer = (allow) => (row && row.asks ? act("answer", { task, asked: row.asks, allow }) : say(`${heading.textContent} asks nothing`, true));
function hold() { return act("hold", { tasks: [task], back: !(row || known).paused }); }
function end() { return kill([task]); }
function merge() { return take(task); }
function more() { return goOn(task, heading.textContent); }
async function retry() { await act("retry", { tasks: [task] }); look(); }
typed.addEventListener("keydown", (event) => { if (event.key === "Escape") { typed.blur(); tabs[0].focus(); } });
keys({
  ...Object.fromEntries(PAGES.map(([name], at) => [String(at + 1), () => open(name)])),
  a: () => answer(true), d: () => answer(false), s: write, p: hold, k: end, r: retry, t: merge, f: more, Escape: () => { location.href = "/"; },
});
