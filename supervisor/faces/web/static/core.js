// What every page shares: elements, requests, events, ages, keys. What came from the server is only ever text here.

const KEY = `nightcrew-key`;
export const readOnly = document.documentElement.hasAttribute("data-read-only");

function takeKey() {
  const found = /^#key=([0-9a-f]{64})$/.exec(location.hash);
  if (found) {
    localStorage.setItem(KEY, found[1]);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return localStorage.getItem(KEY) || "";
}
const key = takeKey();

// Elements ---------------------------------------------------------------------------------------------------------------------------

/** An element. `attrs`: attributes, `on...` listeners, `class`, and `dataset`; children are nodes or texts. */
export function el(tag, attrs = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attrs)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(made.dataset, value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((one) => one !== null && one !== undefined && one !== ""));
  return made;
}

/** Set a text, only when it is another: what did not change is not painted, and not read aloud again. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Make `parent` hold exactly `nodes`, in their order; those that are there already stay what they are. */
export function arrange(parent, nodes) {
  let at = parent.firstChild;
  for (const node of nodes) {
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/** One line of spans (`wire.lines`) as nodes. Classes and colours are the server's own; the texts are strangers'. */
export function line(spans, tag = "div") {
  const made = document.createElement(tag);
  for (const [text, classes, ink, paper] of spans) {
    if (!classes && !ink && !paper) {
      made.append(text);
      continue;
    }
    const span = document.createElement("span");
    if (classes) span.className = classes;
    if (/^#[0-9a-f]{6}$/.test(ink || "")) span.style.color = ink;
    if (/^#[0-9a-f]{6}$/.test(paper || "")) span.style.backgroundColor = paper;
    span.textContent = text;
    made.append(span);
  }
  return made;
}

// Saying -----------------------------------------------------------------------------------------------------------------------------

let silence = 0;

/** Say it to the person, by eye and by ear. */
export function say(text, bad = false) {
  const said = document.getElementById("said");
  said.className = bad ? "bad" : "good";
  said.textContent = text;
  clearTimeout(silence);
  silence = setTimeout(() => { said.textContent = ""; }, bad ? 12000 : 6000);
}

// Asking the server ------------------------------------------------------------------------------------------------------------------

const utf8 = new TextEncoder();

/** Whether who answers at this address is the server of this session. The port may be another program's by now: it gets no key. */
async function proven() {
  if (!key) return true;
  const nonce = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const answer = await fetch(`/data/proof?nonce=${nonce}`);
  const { proof = "", error } = await answer.json();
  if (!answer.ok) throw new Error(String(error));
  const mac = await crypto.subtle.importKey("raw", utf8.encode(key), { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
  const bytes = Uint8Array.from(String(proof).match(/../g) || [], (pair) => parseInt(pair, 16));
  return crypto.subtle.verify("HMAC", mac, bytes, utf8.encode(`proof\0${location.host}\0${nonce}`));
}

async function ask(method, path, body) {
  if (!(await proven())) throw new Error("another program answers at this address: nothing was sent to it");
  const headers = { "X-Nightcrew-Key": key };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const shape = await answer.json();
  if (!answer.ok) throw new Error(shape.error || `the server said ${answer.status}`);
  return shape;
}

/** JSON of an address of ours. Throws an Error with the server's sentence. */
export const get = (path) => ask("GET", path);
export const post = (path, body) => ask("POST", path, body);

/** Do what a person asked, and say what came of it. True when it was done. */
export async function act(verb, body) {
  if (readOnly) {
    say("this server only shows: it was started with --read-only", true);
    return false;
  }
  try {
    say((await post(`/act/${verb}`, body)).said);
    return true;
  } catch (error) {
    say(error.message, true);
    return false;
  }
}

// Events -----------------------------------------------------------------------------------------------------------------------------

let skew = 0;

/** Seconds of the server's clock. */
export const now = () => Date.now() / 1000 + skew;

/**
 * Follow topics: `told(topic, state, changed)` is called with all that is known of one, and the set of keys that changed. Missing
 * connections come back by themselves; the head of the page says how it is. Returns what ends it.
 */
export function follow(topics, told) {
  const states = new Map(topics.map((topic) => [topic, new Map()]));
  let source = null, last = "", again = 0, quiet = 0, ended = false;

  function alive() {
    clearTimeout(quiet);
    quiet = setTimeout(() => { linked(false); source.close(); later(); }, 40000);
    linked(true);
  }
  function take(event, whole) {
    const said = JSON.parse(event.data), state = states.get(said.topic);
    last = event.lastEventId;
    alive();
    if (!state) return;
    const changed = new Set(Object.keys(said.set));
    if (whole) {
      for (const name of state.keys()) if (!(name in said.set)) { changed.add(name); state.delete(name); }
    }
    for (const name of said.drop || []) { changed.add(name); state.delete(name); }
    for (const [name, value] of Object.entries(said.set)) state.set(name, value);
    told(said.topic, state, changed);
  }
  function later() {
    if (ended) return;
    clearTimeout(again);
    again = setTimeout(connect, 1000);
  }
  async function connect() {
    const ours = await proven().catch(() => false);
    if (ended) return;
    if (!ours) {
      linked(false);
      later();
      return;
    }
    const asked = new URLSearchParams({ key });
    for (const topic of topics) asked.append("topic", topic);
    if (last) asked.set("after", last);
    source = new EventSource(`/events?${asked}`);
    source.addEventListener("state", (event) => take(event, true));
    source.addEventListener("delta", (event) => take(event, false));
    for (const kind of ["hello", "beat"]) {
      source.addEventListener(kind, (event) => { skew = JSON.parse(event.data).now - Date.now() / 1000; alive(); });
    }
    source.addEventListener("error", () => {
      linked(false);
      source.close();
      later();
    });
  }
  connect();
  return () => { ended = true; clearTimeout(again); clearTimeout(quiet); source?.close(); };
}

function linked(yes) {
  const link = document.getElementById("link");
  link.className = yes ? "on" : "off";
  setText(link, yes ? (readOnly ? "live, read only" : "live") : "not connected; trying again");
}

// Words ------------------------------------------------------------------------------------------------------------------------------

/** `7s`, `4m10s`, `2h05m`, `3d`. */
export function age(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${String(s % 60).padStart(2, "0")}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${String(Math.floor(s / 60) % 60).padStart(2, "0")}m`;
  return `${Math.floor(s / 86400)}d`;
}

/** Time of day of a moment, of another day its date: `14:05`, `21 Nov`, `2025-11`. */
export function moment(seconds) {
  const then = new Date(seconds * 1000), today = new Date(now() * 1000);
  if (then.toDateString() === today.toDateString()) return `${String(then.getHours()).padStart(2, "0")}:${String(then.getMinutes()).padStart(2, "0")}`;
  if (then.getFullYear() === today.getFullYear()) return `${then.getDate()} ${"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ")[then.getMonth()]}`;
  return `${then.getFullYear()}-${String(then.getMonth() + 1).padStart(2, "0")}`;
}

// Keys -------------------------------------------------------------------------------------------------------------------------------

/** Have keys do things: `{ "w": () => ... }`. Not while somebody types, and not with Ctrl, Alt or Meta. */
export function keys(map) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
    if (event.target.closest("input:not([type=checkbox]), textarea, select, dialog, [contenteditable]")) return;
    const does = map[event.key];
    if (!does) return;
    if (event.target.closest(event.key === "Enter" ? "button, a" : event.key === " " ? "button, input" : "#none")) return;
    event.preventDefault();
    does(event);
  });
}

/** Ask for a yes: a dialog that has the keys, and gives them back. */
export function confirm(question, yes = "Yes") {
  return dialog((close) => [
    el("p", {}, question),
    el("menu", {}, el("button", { type: "button", class: "first", onclick: () => close(false) }, "No"),
      el("button", { type: "button", class: "strong", onclick: () => close(true) }, yes)),
  ], { y: true, n: false });
}

/** Ask for a text; null when nothing is to be done. */
export function askText(label, { value = "", lines = 1, done = "Send" } = {}) {
  return dialog((close) => {
    const field = lines > 1 ? el("textarea", { rows: lines, "aria-label": label }) : el("input", { type: "text", "aria-label": label, autocomplete: "off" });
    field.value = value;
    const form = el("form", {}, el("label", {}, el("span", {}, label), field),
      el("menu", {}, el("button", { type: "button", onclick: () => close(null) }, "Leave"), el("button", { class: "strong" }, done)));
    form.addEventListener("submit", (event) => { event.preventDefault(); close(field.value); });
    field.addEventListener("keydown", (event) => {
      if (lines > 1 && event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); close(field.value); }
    });
    return [form];
  });
}

/** Ask whether to merge a result, with the branch and the size that the server says; null when it cannot be taken, which is said. */
export async function confirmMerge(task) {
  try {
    return await confirm((await get(`/data/merge?task=${encodeURIComponent(task)}`)).question, "Merge");
  } catch (error) {
    say(error.message, true);
    return null;
  }
}

/** A dialog; `made` gives its nodes, and is given what closes it with a value. `letters` close it with theirs. */
export function dialog(made, letters = {}) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    const box = document.createElement("dialog");
    const close = (value) => { box.close(); box.remove(); if (before && before.isConnected) before.focus(); resolve(value); };
    box.append(...made(close));
    box.addEventListener("cancel", (event) => { event.preventDefault(); close(null); });
    box.addEventListener("keydown", (event) => {
      if (event.key in letters && !event.ctrlKey && !event.metaKey) { event.preventDefault(); close(letters[event.key]); }
    });
    document.body.append(box);
    box.showModal();
    (box.querySelector("input, textarea, .first, .strong") || box).focus();
  });
}
