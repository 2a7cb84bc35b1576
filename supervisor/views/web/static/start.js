// A new task: in which repository, for which kind of agent, and what it is to do. Sent as JSON, as every act; no form goes anywhere.

import { act, dialog, el, get, say } from "./core.js";

/** Ask for a task and start it. */
export async function newTask() {
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
