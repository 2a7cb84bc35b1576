// The crew in its groups. A row stays the same element while its task is shown, so focus, marks and a reader's place stay too.

import { act, arrange, dialog, el, follow, get, goOn, keys, kill, now, readOnly, say, send, setText, take } from "./core.js";
import { age, brief } from "./format.js";

const main = document.getElementById("main");
const facts = el("dl", { class: "facts", "aria-label": "Figures" });
const troubles = el("ul", { class: "troubles", role: "alert" });
const filter = el("input", { type: "search", placeholder: "Filter", "aria-label": "Filter by words of a name, a kind, a title, a group", autocomplete: "off" });
const chosenMenu = el("menu", { "aria-label": "Of all that are marked" });
const begin = el("button", { type: "button", class: "strong", hidden: readOnly, onclick: newTask }, "New task", el("kbd", {}, "n"));
const help = el("button", { type: "button", class: "help", "aria-label": "Keys" }, "Keys", el("kbd", {}, "?"));
const groups = el("div", {});
const empty = el("p", { class: "empty", hidden: true });
main.append(el("h1", { class: "sr" }, "The crew"), facts, troubles, el("div", { class: "tools" }, filter, begin, chosenMenu, help), groups, empty);

const rows = new Map(), sections = new Map(), marked = new Set();
let state = new Map(), selected = "", asking = new Set(), first = true;
follow(["crew"], (topic, found, changed) => {
  state = found;
  if (changed.has("facts")) showFacts(found.get("facts"));
  if (changed.has("troubles")) arrange(troubles, found.get("troubles").map((text) => el("li", {}, text)));
  for (const key of changed) if (key.startsWith("row:")) update(key.slice(4), found.get(key));
  layOut();
});

function showFacts(list) {
  arrange(facts, list.map((one) => el("div", { class: one.bad ? "bad" : "" }, el("dt", {}, one.name), el("dd", {}, one.value))));
}

// Rows

function made(id) {
  const row = {
    id, mark: el("input", { type: "checkbox", tabindex: "-1" }), letter: el("span", { class: "letter", role: "img" }),
    word: el("span", { class: "word" }), name: el("a", { class: "name", href: `/agent/${id}` }), age: el("span", { class: "age" }),
    title: el("span", { class: "title" }), says: el("span", { class: "said" }), menu: el("menu", {}),
  };
  row.text = el("span", { class: "says" }, row.title, row.says);
  row.node = el("li", { class: "row" }, row.mark, row.letter, row.word, row.name, row.age, row.text, row.menu);
  row.mark.addEventListener("change", () => mark(id, row.mark.checked));
  row.name.addEventListener("focus", () => { selected = id; });
  row.node.addEventListener("click", (event) => { if (!event.target.closest("a, button, input")) row.name.focus(); });
  row.node.addEventListener("dblclick", (event) => { if (!event.target.closest("a, button, input")) row.name.click(); });
  return row;
}

function update(id, facts) {
  if (!facts) {
    rows.delete(id);
    marked.delete(id);
    return;
  }
  if (!rows.has(id)) rows.set(id, made(id));
  const row = rows.get(id);
  row.facts = facts;
  setText(row.letter, facts.letter);
  row.letter.title = facts.means;
  row.letter.setAttribute("aria-label", facts.means);
  row.letter.style.color = row.word.style.color = facts.color;
  setText(row.name, facts.name);
  setText(row.word, facts.word);
  setText(row.title, facts.title);
  setText(row.says, facts.says);
  row.text.title = [facts.title, facts.says].filter(Boolean).join("\n");
  row.mark.setAttribute("aria-label", `Mark ${facts.name}`);
  row.name.title = `${facts.id}  ${facts.title}`;
}

function buttons(row, group) {
  const wanted = readOnly ? "" : group === "needs me" ? (row.facts.asks ? "answer" : "look") : group === "to take" ? "take" : "";
  arrange(row.text, group === "needs me" ? [row.says, row.title] : [row.title, row.says]);
  if (row.shown === wanted) return;
  row.shown = wanted;
  const button = (text, does, kind = "") => el("button", { type: "button", class: kind, "aria-label": `${text} ${row.facts.name}`, onclick: does }, text);
  arrange(row.menu, wanted === "answer" ? [button("Allow", () => answer(row, true), "strong"), button("Deny", () => answer(row, false))]
    : wanted === "take" ? [button("Take", () => take(row.id))] : []);
}

function fits(facts, group) {
  const said = `${facts.id} ${facts.name} ${facts.kind} ${facts.title} ${facts.says} ${facts.place} ${group}`.toLowerCase();
  return filter.value.toLowerCase().split(/\s+/).every((word) => said.includes(word));
}

function layOut() {
  const focused = document.activeElement, shown = [];
  for (const section of state.get("sections") || []) {
    const found = section.rows.map((id) => rows.get(id)).filter((row) => row && fits(row.facts, section.group));
    if (found.length) shown.push(group(section, found));
  }
  arrange(groups, shown);
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  const all = (state.get("sections") || []).some((one) => one.rows.length);
  empty.hidden = shown.length > 0;
  setText(empty, all ? `Nothing holds "${filter.value}". Esc shows all.` : "Nothing runs yet. New task begins one here; in a terminal, in a repository: nightcrew start 'What to do', nightcrew run PLAN, or nightcrew analyze.");
  title();
  tick();
  chosen();
}

function group(section, found) {
  if (!sections.has(section.group)) {
    const made = { count: el("span", {}), place: el("span", { class: "of" }), list: el("ul", { class: "rows" }), more: el("p", { class: "more" }), places: new Map() };
    const id = `g-${section.group.replace(" ", "-")}`;
    made.node = el("section", { class: section.group === "needs me" ? "group asks" : "group", "aria-labelledby": id },
      el("h2", { id }, section.group, made.count, made.place), made.list, made.more);
    sections.set(section.group, made);
  }
  const one = sections.get(section.group);
  for (const row of found) buttons(row, section.group);
  arrange(one.list, section.place ? found.map((row) => row.node) : placed(one, found));
  setText(one.place, section.place);
  setText(one.count, String(section.total));
  const left = filter.value ? 0 : section.left;
  one.more.hidden = left <= 0;
  setText(one.more, `and ${left} more: nightcrew status --all`);
  return one.node;
}

/** The rows of a group with the headings of their repositories and runs; a heading stays the same element while its text is shown. */
function placed(section, found) {
  const shown = [], used = new Map();
  found.forEach((row, at) => {
    const text = row.facts.place;
    if (text && (at === 0 || found[at - 1].facts.place !== text)) {
      const key = `${text}\0${used.get(text) || 0}`;
      used.set(text, (used.get(text) || 0) + 1);
      if (!section.places.has(key)) section.places.set(key, el("li", { class: "place" }, text));
      shown.push(section.places.get(key));
    }
    shown.push(row.node);
  });
  return shown;
}

/** Who needs a person is in the title of the tab, and is read aloud when somebody comes to it. */
function title() {
  const needs = (state.get("sections") || []).find((one) => one.group === "needs me");
  const ids = new Set(needs ? needs.rows : []);
  document.title = ids.size ? `(${ids.size}) nightcrew` : "nightcrew";
  const fresh = [...ids].filter((id) => !asking.has(id) && rows.has(id));
  if (!first && fresh.length) say(`${fresh.map((id) => rows.get(id).facts.name).join(", ")} needs you`);
  first = false;
  asking = ids;
}

function tick() {
  const at = now();
  for (const row of rows.values()) {
    if (!row.node.isConnected) continue;
    if (row.facts.ended !== null) setText(row.age, brief(row.facts.ended, now()));
    else setText(row.age, row.facts.since === null ? "" : age(at - row.facts.since));
  }
}
setInterval(tick, 1000);

// Selecting

const inOrder = () => [...groups.querySelectorAll(".row")].map((node) => [...rows.values()].find((row) => row.node === node));
const current = () => { const row = rows.get(selected); return row && row.node.isConnected ? row : null; };

function move(by) {
  const order = inOrder(), at = order.indexOf(current());
  const to = order[at < 0 ? (by > 0 ? 0 : order.length - 1) : Math.max(0, Math.min(order.length - 1, at + by))];
  if (to) { to.name.focus(); to.node.scrollIntoView({ block: "nearest" }); }
}

function mark(id, yes) {
  if (yes) marked.add(id); else marked.delete(id);
  chosen();
}

function chosen() {
  for (const row of rows.values()) {
    row.mark.checked = marked.has(row.id);
    row.node.classList.toggle("marked", marked.has(row.id));
  }
  if (chosenMenu.dataset.count === String(marked.size)) return;
  chosenMenu.dataset.count = String(marked.size);
  const button = (text, does, kind = "") => el("button", { type: "button", class: kind, onclick: does }, text);
  arrange(chosenMenu, marked.size === 0 || readOnly ? [] : [el("span", { class: "muted" }, `${marked.size} marked`), button("Send", sendAll), button("Pause", hold),
    button("Retry", retry), button("Kill", killAll, "danger"), button("Clear", clear)]);
}

function clear() {
  marked.clear();
  filter.value = "";
  layOut();
}

/** All that are marked, or the selected one; says so when there is none. */
function targets() {
  const found = marked.size ? [...marked].map((id) => rows.get(id)) : current() ? [current()] : [];
  if (!found.length) say("no task is selected", true);
  return found;
}
const ids = (found) => found.flatMap((row) => row.facts.tasks);
const named = (found) => (ids(found).length === 1 ? found[0].facts.name : `${ids(found).length} tasks`);

// Acts

/** Do something with all that are marked, or the selected one. */
function withAll(does) {
  const found = targets();
  if (found.length) return does(ids(found), found);
}
/** Do something with the selected one, whatever is marked. */
const withOne = (does) => (current() ? does(current().id, current().facts.name) : say("no task is selected", true));
const sendAll = () => withAll((tasks, found) => send(tasks, named(found)));
const hold = () => withAll((tasks, found) => act("hold", { tasks, back: !found.every((row) => row.facts.paused) }));
const retry = () => withAll((tasks) => act("retry", { tasks }));
const killAll = () => withAll(kill);
async function answer(row, allow) {
  if (!row) return say("no task is selected", true);
  if (!asking.has(row.id)) return say(`${row.facts.name} asks nothing`, true);
  await act("answer", { task: row.id, asked: row.facts.asks, allow });
}
function nextAsking() {
  const order = inOrder().filter((row) => asking.has(row.id)), at = order.indexOf(current());
  if (order.length) order[(at + 1) % order.length].name.focus(); else say("nobody needs you");
}

const KEYS = [
  ["↑ ↓", "select a task"], ["Enter", "look at it: screen, diff, log"], ["w", "the next one who needs me"], ["a d", "allow or deny what it asks"], ["s", "send a line"],
  ["n", "a new task"], ["f", "more words for it, as its next prompt"], ["t", "take its result; asks first"], ["p", "pause, or let go on"], ["k", "end it; asks first"], ["r", "run again"],
  ["space", "mark it: the keys are for all that are marked"], ["/", "filter"], ["Esc", "clear marks and filter"], ["?", "these keys"],
];
const showHelp = () => dialog((close) => [el("h2", {}, "Keys"), el("table", {}, el("tbody", {}, ...KEYS.map(([key, does]) => el("tr", {}, el("td", {}, el("kbd", {}, key)), el("td", {}, does))))),
  el("menu", {}, el("button", { type: "button", class: "strong", onclick: () => close(null) }, "Close"))]);

filter.addEventListener("input", layOut);
filter.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { event.preventDefault(); clear(); move(0); }
  if (event.key === "Enter" || event.key === "ArrowDown") { event.preventDefault(); selected = ""; move(1); }
});
help.addEventListener("click", showHelp);
const page = () => Math.max(1, Math.floor(innerHeight / 40) - 4);
keys({
  ArrowDown: () => move(1), ArrowUp: () => move(-1), PageDown: () => move(page()), PageUp: () => move(-page()), Home: () => move(-1e6), End: () => move(1e6),
  w: nextAsking, a: () => answer(current(), true), d: () => answer(current(), false), s: sendAll, n: () => (readOnly ? say("this server only shows", true) : newTask()), f: () => withOne(goOn), t: () => withOne(take), p: hold, k: killAll, r: retry,
  " ": () => { if (current()) { mark(selected, !marked.has(selected)); move(1); } }, "/": () => filter.focus(), Escape: clear, "?": showHelp,
});

// A new task: in which repository, for which kind of agent, and what it is to do. Sent as JSON, as every act; no form goes anywhere.

/** Ask for a task and start it. */
async function newTask() {
  let offered;
  try {
    offered = await get("/data/begin");
  } catch (error) {
    say(error.message, true);
    return;
  }
  if (!offered.repositories.length) say("no repository is known yet: nightcrew start in a terminal, in a repository, once", true);
  else if (!offered.kinds.length) say("no agent is installed here: nightcrew kinds ls", true);
  else {
    const asked = await dialog((close) => fields(offered, close));
    if (asked) await act("start", asked);
  }
}

function fields({ kinds, repositories }, close) {
  const choice = (label, values) => el("select", { "aria-label": label }, ...values.map((value) => el("option", { value }, value)));
  const prompt = el("textarea", { rows: 6, "aria-label": "What to do", required: true });
  const repo = choice("Repository", repositories), kind = choice("Agent", kinds);
  const name = el("input", { type: "text", "aria-label": "Name", placeholder: kinds[0], autocomplete: "off" });
  const base = el("input", { type: "text", "aria-label": "Starts from", placeholder: "HEAD", autocomplete: "off" });
  const send = () => { if (prompt.value.trim()) close({ prompt: prompt.value, repo: repo.value, kind: kind.value, name: name.value.trim(), base: base.value.trim() }); else prompt.focus(); };
  kind.addEventListener("change", () => { name.placeholder = kind.value; });
  prompt.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); send(); } });
  const labelled = (text, field) => el("label", {}, el("span", {}, text), field);
  const form = el("form", { class: "new" }, el("h2", {}, "New task"), labelled("What to do", prompt), labelled("Repository", repo),
    el("div", { class: "beside" }, labelled("Agent", kind), labelled("Name", name), labelled("Starts from", base)),
    el("p", { class: "muted" }, "It works by itself, in a worktree of its own, from the newest commit."),
    el("menu", {}, el("button", { type: "button", onclick: () => close(null) }, "Leave"), el("button", { class: "strong" }, "Start")));
  form.addEventListener("submit", (event) => { event.preventDefault(); send(); });
  return [form];
}
