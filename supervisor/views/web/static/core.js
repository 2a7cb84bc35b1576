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
let key = takeKey();

// Elements

const SVG = new Set(["svg", "path", "line", "rect", "text", "title"]);

/** An element. `attrs`: attributes, `on...` listeners, `class`, and `dataset`; children are nodes or texts. */
export function el(tag, attrs = {}, ...children) {
  const made = SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
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

const color = (name) => (name[0] === "k" ? `var(--${name})` : name);

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
    if (ink) span.style.color = color(ink);
    if (paper && paper !== "k0") {
      span.style.backgroundColor = color(paper);
      if (paper[0] === "k") span.style.color = "var(--raised)"; // readable on it, whatever colour was asked for
    }
    span.textContent = text;
    made.append(span);
  }
  return made;
}

// Saying

let silence = 0;

/** Say it to the person, by eye and by ear. */
export function say(text, bad = false) {
  const said = document.getElementById("said");
  said.className = bad ? "bad" : "good";
  said.textContent = text;
  clearTimeout(silence);
  silence = setTimeout(() => { said.textContent = ""; }, bad ? 12000 : 6000);
}

// Asking the server

const utf8 = new TextEncoder();

/** Whether who answers at this address is the server of this session. The port may be another program's by now: it gets no key. */
async function proven() {
  key = localStorage.getItem(KEY) || key; // another page may have entered anew
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
const post = (path, body) => ask("POST", path, body);

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

// Events

// A browser gives a server six connections, whatever the number of its pages. So one page holds the stream of all of them: the one that has
// the lock `LEADS`. The others say by a channel what they follow, and hear there what came. When that page goes, the next one has the lock.

const LEADS = "nightcrew-events", PAGE = "nightcrew-page-", QUIET_MS = 40000, TOPICS_MAX = 64;
const me = Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");
const channel = navigator.locks && "BroadcastChannel" in self ? new BroadcastChannel(LEADS) : null;
const followers = new Set();
const forever = new Promise(() => {});
let skew = 0, begun = false, leader = null, isLinked = false, silent = 0;

/** Seconds of the server's clock. */
export const now = () => Date.now() / 1000 + skew;

/**
 * Follow topics: `told(topic, state, changed)` is called with all that is known of one, and the set of keys that changed. Missing
 * connections come back by themselves; the head of the page says how it is. Returns what ends it.
 */
export function follow(topics, told) {
  const one = { states: new Map(topics.map((topic) => [topic, new Map()])), told };
  followers.add(one);
  begin();
  want(topics);
  return () => { followers.delete(one); want([]); };
}

function begin() {
  if (begun) return;
  begun = true;
  if (!channel) {
    leader = lead();
    return;
  }
  channel.onmessage = (event) => hear(event.data);
  navigator.locks.request(PAGE + me, () => forever);
  navigator.locks.request(LEADS, () => {
    leader = lead();
    want([]);
    channel.postMessage({ is: "who" });
    return forever;
  });
  addEventListener("pagehide", () => { followers.clear(); want([]); });
  setInterval(() => { if (!isLinked && !document.hidden && !leader) channel.postMessage({ is: "try" }); }, 2000);
}

/** Say what this page follows; of `fresh` topics all that is known is sent to it. */
function want(fresh) {
  const said = { is: "want", from: me, topics: [...new Set([...followers].flatMap((one) => [...one.states.keys()]))], fresh };
  if (leader) leader.wants(said);
  else channel?.postMessage(said);
}

function hear(said) {
  if (said.to && said.to !== me) return;
  switch (said.is) {
    case "who": return want([]);
    case "want": return leader?.wants(said);
    case "try": return leader?.connect();
    case "link":
      if (said.skew !== undefined) skew = said.skew;
      return said.on ? alive() : linked(false);
    case "said":
      alive();
      for (const one of followers) if (one.states.has(said.topic)) tell(one, said);
  }
}

function alive() {
  clearTimeout(silent);
  silent = setTimeout(() => linked(false), QUIET_MS);
  linked(true);
}

function tell({ states, told }, said) {
  const state = states.get(said.topic);
  told(said.topic, state, changes(state, said));
}

/** Bring a state up to date; the names of what changed. */
function changes(state, said) {
  const changed = new Set(Object.keys(said.set));
  const gone = said.whole ? [...state.keys()].filter((name) => !(name in said.set)) : said.drop || [];
  for (const name of gone) { changed.add(name); state.delete(name); }
  for (const [name, value] of Object.entries(said.set)) state.set(name, value);
  return changed;
}

/** The stream of all pages, which this page holds from now on. */
function lead() {
  const pages = new Map(), states = new Map();
  let source = null, asked = [], again = 0, quiet = 0, less = 0, trying = false;

  function spread(said) {
    channel?.postMessage(said);
    hear(said);
  }
  const wanted = () => [...new Set([...pages.values()].flat())].slice(-TOPICS_MAX);

  function wants({ from, topics, fresh }) {
    if (topics.length) pages.set(from, topics);
    else pages.delete(from);
    for (const topic of fresh) {
      if (!states.has(topic)) continue;
      const said = { is: "said", to: from, topic, whole: true, set: Object.fromEntries(states.get(topic)) };
      if (from === me) hear(said);
      else channel.postMessage(said);
    }
    if (wanted().some((topic) => !asked.includes(topic))) reconnect();
    else {
      connect();
      clearTimeout(less);
      less = setTimeout(() => { if (wanted().length < asked.length) reconnect(); }, 2000);
    }
  }
  function reconnect() {
    source?.close();
    source = null;
    asked = [];
    connect();
  }
  function lost() {
    source?.close();
    source = null;
    spread({ is: "link", on: false });
    clearTimeout(again);
    again = setTimeout(connect, 1000);
  }
  function heard() {
    clearTimeout(quiet);
    quiet = setTimeout(lost, QUIET_MS);
  }
  function came(event, whole) {
    const said = JSON.parse(event.data);
    heard();
    if (!states.has(said.topic)) states.set(said.topic, new Map());
    changes(states.get(said.topic), { ...said, whole });
    spread({ ...said, is: "said", whole });
  }
  async function forget() {
    const { held } = await navigator.locks.query();
    const living = new Set(held.map((lock) => lock.name));
    for (const page of pages.keys()) if (page !== me && !living.has(PAGE + page)) wants({ from: page, topics: [], fresh: [] });
  }
  async function connect() {
    if (source || trying) return;
    trying = true;
    const ours = await proven().catch(() => false);
    trying = false;
    if (!ours) return lost();
    if (source || !wanted().length) return;
    asked = wanted();
    for (const topic of states.keys()) if (!asked.includes(topic)) states.delete(topic);
    const query = new URLSearchParams({ key });
    for (const topic of asked) query.append("topic", topic);
    const made = source = new EventSource(`/events?${query}`);
    made.addEventListener("state", (event) => came(event, true));
    made.addEventListener("delta", (event) => came(event, false));
    for (const kind of ["hello", "beat"]) {
      made.addEventListener(kind, (event) => {
        heard();
        spread({ is: "link", on: true, skew: JSON.parse(event.data).now - Date.now() / 1000 });
        if (channel) forget();
      });
    }
    made.addEventListener("error", () => { if (source === made) lost(); });
  }
  return { wants, connect };
}

function linked(yes) {
  isLinked = yes;
  const link = document.getElementById("link");
  link.className = yes ? "on" : "off";
  setText(link, yes ? (readOnly ? "live, read only" : "live") : "not connected; trying again");
}

// Keys

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

// Acts that ask before they do something; `name` is what the person calls the tasks.

export async function send(tasks, name) {
  const text = await askText(`To ${name}`);
  if (text) await act("send", { tasks, text });
}
export async function kill(tasks) {
  const what = tasks.length === 1 ? `${tasks[0]} and everything that it` : `${tasks.length} tasks and everything that they`;
  if (await confirm(`End ${what} started? What was done so far is kept.`, "End")) await act("kill", { tasks });
}
export async function take(task) {
  try {
    const { question } = await get(`/data/merge?task=${encodeURIComponent(task)}`);
    if (await confirm(question, "Merge")) await act("take", { task });
  } catch (error) {
    say(error.message, true);
  }
}
export async function goOn(task, name) {
  const text = await askText(`More words for ${name}`, { lines: 6 });
  if (text && text.trim()) await act("go-on", { task, text });
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
