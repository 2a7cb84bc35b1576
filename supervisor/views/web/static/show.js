// What the pages of rows and charts share: nodes of what the server drew, tables, moments, commands to type. Texts are only ever texts.
import { el, get, say } from "./core.js";
import { clock, date } from "./format.js";

export const main = document.getElementById("main");

/** The nodes of elements as `drawing.py` makes them: a text, or `[tag, attributes, ...children]`. */
export const nodes = (made) => made.map(node);

function node(made) {
  if (typeof made === "string") return made;
  const [tag, attrs, ...children] = made;
  switch (tag) {
    case "table": return table(children[0], children[1], children[2].map((cells) => cells.map((cell) => cell && node(cell))));
    case "time": return moment(attrs.at);
    case "command": return command(children[0]);
    case "load": return (loaded ||= loader(children[0], attrs.href));
  }
  return el(tag, attrs, ...nodes(children));
}

let loaded = null;

/** A button that shows what the server draws at `path`: asked for when somebody wants it, and kept until the page is left. */
function loader(label, path) {
  const answer = el("div", { role: "status", class: "verdict" }), button = el("button", { type: "button" }, label);
  button.addEventListener("click", async () => {
    button.disabled = true;
    answer.replaceChildren("checking…");
    try {
      answer.replaceChildren(...nodes((await get(path)).nodes));
    } catch (error) {
      answer.replaceChildren(el("p", { class: "trouble" }, error.message));
    }
    button.disabled = false;
  });
  return el("div", {}, button, answer);
}

/** Put `fresh` nodes in the place of what is there; what had the focus keeps it, and what was opened stays open (both by `data-key`). */
export function redraw(parent, fresh) {
  const focus = document.activeElement?.closest?.("[data-key]")?.dataset.key;
  const opened = new Set([...parent.querySelectorAll("details[data-key][open]")].map((one) => one.dataset.key));
  parent.replaceChildren(...fresh);
  for (const one of parent.querySelectorAll("details[data-key]")) if (opened.has(one.dataset.key)) one.open = true;
  if (focus !== undefined && focus !== null) [...parent.querySelectorAll("[data-key]")].find((one) => one.dataset.key === focus)?.focus();
}

/**
 * `heads`: texts; those that begin with `#` are of numbers, those with `~` of long texts. `rows`: lists of cells, each a text or a node. On a narrow screen each row is
 * a card whose cells have their heads beside them.
 */
export function table(caption, heads, rows) {
  const names = heads.map((one) => one.replace(/^[#~](?=.)/, ""));
  const kind = heads.map((one) => (one.length > 1 ? { "#": "number", "~": "long" }[one[0]] : "") || "");
  const head = el("tr", { role: "row" }, ...names.map((name, at) => el("th", { scope: "col", role: "columnheader", class: kind[at] || null }, name)));
  const lines = rows.map((cells) => el("tr", { role: "row" }, ...cells.map((cell, at) => {
    const empty = cell === null || cell === "";
    return el("td", { role: "cell", class: [kind[at], empty ? "none" : ""].join(" ").trim() || null, "data-head": names[at] }, empty ? "–" : cell);
  })));
  return el("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption },
    el("table", { class: "sheet", role: "table" },
      el("caption", { class: "sr" }, caption),
      el("thead", { role: "rowgroup" }, head), el("tbody", { role: "rowgroup" }, ...lines)));
}

/** A command to type, with a button that copies it. */
function command(text) {
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

/** A moment (RFC 3339, or seconds since 1970) by the local clock. */
export function moment(at) {
  const when = new Date(typeof at === "number" ? at * 1000 : at);
  if (Number.isNaN(when.getTime())) return String(at);
  const text = date(when) === date(new Date()) ? clock(when) : `${date(when)} ${clock(when).slice(0, 5)}`;
  return el("time", { datetime: when.toISOString(), title: when.toISOString() }, text);
}
