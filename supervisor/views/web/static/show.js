// What the pages that show rows share: tables, pages of them, moments, amounts, commands to type. Texts are only ever texts.
import { el, follow, get, say, setText } from "./core.js";
import { clock, date } from "./format.js";

export const query = new URLSearchParams(location.search);
export const main = document.getElementById("main");

/** The address of this page, or of `path`, with these words changed; a word that is null is left out. */
export function address(changes, path = location.pathname) {
  const words = new URLSearchParams(path === location.pathname ? query : "");
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") words.delete(name);
    else words.set(name, value);
  }
  const text = words.toString();
  return text ? `${path}?${text}` : path;
}

// The page

/**
 * A page that is made of the JSON of `data`: `draw(shape)` gives its nodes. With `live` it is asked for anew after each commit. What is
 * wrong stands on the page as a sentence.
 */
export function page(title, data, draw, { live = true } = {}) {
  const heading = el("h1", {}, title), trouble = el("p", { class: "trouble", role: "alert", hidden: true }), body = el("div", { class: "body" });
  main.append(heading, trouble, body);
  main.classList.add("sheet");
  let known = "", version = "", asking = false, again = false, retry = 0;
  async function look() {
    if (asking) { again = true; return; }
    asking = true;
    try {
      const path = data(), shape = await get(version ? `${path}${path.includes("?") ? "&" : "?"}seen=${version}` : path), text = JSON.stringify(shape);
      trouble.hidden = true;
      if (text !== known) { known = text; redraw(body, draw(shape, heading)); }
    } catch (error) {
      trouble.hidden = false;
      setText(trouble, error.message);
      clearTimeout(retry);
      if (live) retry = setTimeout(look, 5000);
    }
    main.dataset.ready = "1";
    asking = false;
    if (again) { again = false; setTimeout(look, 200); }
  }
  look();
  if (live) {
    // The server gives an answer to all who ask for the same: what is asked for after a commit must be another question.
    follow(["ledger"], (topic, state) => { version = encodeURIComponent(state.get("version") || ""); look(); });
    document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
  }
  return look;
}

/** Put `nodes` in the place of what is there; what had the focus keeps it, and what was opened stays open (both by `data-key`). */
export function redraw(parent, nodes) {
  const focus = document.activeElement?.closest?.("[data-key]")?.dataset.key;
  const opened = new Set([...parent.querySelectorAll("details[data-key][open]")].map((one) => one.dataset.key));
  parent.replaceChildren(...nodes.filter((one) => one !== null && one !== undefined));
  for (const one of parent.querySelectorAll("details[data-key]")) if (opened.has(one.dataset.key)) one.open = true;
  if (focus !== undefined && focus !== null) [...parent.querySelectorAll("[data-key]")].find((one) => one.dataset.key === focus)?.focus();
}

export const section = (title, ...nodes) => el("section", {}, el("h2", {}, title), ...nodes);
export const note = (text) => el("p", { class: "note" }, text);

/** Which project is shown; nothing where there is only one. */
export function projects(shape) {
  if ((shape.projects || []).length < 2) return null;
  const choice = el("select", { "data-key": "project" }, ...shape.projects.map((one) => {
    const option = el("option", { value: one.id }, `${one.name}  ${one.root}`);
    option.selected = one.id === shape.project;
    return option;
  }));
  choice.addEventListener("change", () => { location.href = address({ project: choice.value, before: null, after: null, path: null, thread: null }); });
  return el("p", { class: "choice" }, el("label", {}, "Project ", choice));
}

/** Links to the page of older rows, and back to the first. */
export function pager(changes, words, isFirst) {
  const links = [];
  if (!isFirst) links.push(el("a", { href: address(Object.fromEntries(Object.keys(changes).map((name) => [name, null]))), "data-key": "first" }, "First page"));
  if (Object.values(changes).every((one) => one !== null && one !== undefined)) links.push(el("a", { href: address(changes), rel: "next", "data-key": "older" }, words));
  return links.length ? el("nav", { class: "pager", "aria-label": "Pages of rows" }, ...links) : null;
}

// Tables

/**
 * `heads`: texts; those that begin with `#` are of numbers, those with `~` of long texts. `rows`: lists of cells, each a text or a node. On a narrow screen each row is
 * a card whose cells have their heads beside them.
 */
export function table(caption, heads, rows, { quiet = false } = {}) {
  const names = heads.map((one) => one.replace(/^[#~](?=.)/, ""));
  const kind = heads.map((one) => (one.length > 1 ? { "#": "number", "~": "long" }[one[0]] : "") || "");
  const head = el("tr", { role: "row" }, ...names.map((name, at) => el("th", { scope: "col", role: "columnheader", class: kind[at] || null }, name)));
  const lines = rows.map((cells) => el("tr", { role: "row" }, ...cells.map((cell, at) => {
    const empty = cell === null || cell === undefined || cell === "";
    return el("td", { role: "cell", class: [kind[at], empty ? "none" : ""].join(" ").trim() || null, "data-head": names[at] }, empty ? "–" : cell);
  })));
  return el("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption },
    el("table", { class: "sheet", role: "table" },
      el("caption", { class: quiet ? "hidden" : null }, caption),
      el("thead", { role: "rowgroup" }, head), el("tbody", { role: "rowgroup" }, ...lines)));
}

const LETTERS = {
  done: "D", failed: "F", cancelled: "C", expired: "E", skipped: "S", quarantined: "!", running: "W", ready: "q", waiting: "a", paused: "p", parked: "l",
  landed: "D", passed: "D", ejected: "F", repairing: "W", staged: "W", stopped: "!", moving: "W", empty: "–", contained: "S", clashes: "F", making: "W",
  "nothing new": "S", lost: "F", wanted: "q", unwanted: "C", dropped: "C", ended: "D", open: "!", closed: "D", "half-open": "?", closing: "W",
  new: "q", accepted: "q", given: "W", read: "D", bounced: "F",
};
const INKS = { D: "good", F: "bad", "!": "bad", "?": "ask", W: "work", q: "wait", a: "wait", l: "wait", p: "wait", C: "off", E: "off", S: "off", "–": "off" };

/** A state as its letter and its word. */
export function state(word) {
  const letter = LETTERS[word] || "·";
  return el("span", { class: `state ${INKS[letter] || "off"}` }, el("b", { "aria-hidden": "true" }, letter), ` ${word}`);
}

/** A mark that a person has to see: its letter, and its word. */
export const mark = (letter, word, ink = "bad") => el("span", { class: `state ${ink}` }, el("b", { "aria-hidden": "true" }, letter), ` ${word}`);

/** A command to type, with a button that copies it. */
export function command(text) {
  const button = el("button", { type: "button", class: "copy", "aria-label": `Copy ${text}`, "data-key": `copy ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      say(`copied: ${text}`);
    } catch {
      getSelection().selectAllChildren(button.previousSibling);
      say("it is selected: this browser lets no page copy");
    }
  });
  return el("span", { class: "command" }, el("code", {}, text), button);
}
export const commands = (texts) => (texts && texts.length ? el("div", { class: "commands" }, ...texts.map(command)) : null);

// Words

/** A moment (RFC 3339, or seconds since 1970) by the local clock. */
export function moment(at) {
  if (at === null || at === undefined || at === "" || at === 0) return null;
  const when = new Date(typeof at === "number" ? at * 1000 : at);
  if (Number.isNaN(when.getTime())) return String(at);
  const text = date(when) === date(new Date()) ? clock(when) : `${date(when)} ${clock(when).slice(0, 5)}`;
  return el("time", { datetime: when.toISOString(), title: when.toISOString() }, text);
}
