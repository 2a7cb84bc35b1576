import { el } from "./core.js";
import { address, commands, mark, moment, note, page, pager, projects, query, state, table } from "./show.js";

const thread = query.get("thread") || "", before = query.get("before") || "", box = query.get("box") || "";

function marks(one) {
  const due = one.needs_reply_by && !one.answered ? [mark(one.overdue ? "!" : "?", one.overdue ? "reply overdue" : "needs a reply", one.overdue ? "bad" : "ask")] : [];
  const urgent = one.priority !== "normal" ? [mark("·", one.priority, "off")] : [];
  return due.length + urgent.length || one.why ? el("span", { class: "marks" }, ...due, ...urgent, one.why) : null;
}

function row(one) {
  const open = el("a", { href: address({ thread: one.thread, before: null }), "data-key": one.id }, one.subject || "(no subject)");
  return [moment(one.sent), one.from, one.to, one.type, open, state(one.state), marks(one), String(one.tokens), commands(one.type_in)];
}

function list(shape) {
  const boxes = el("nav", { class: "choice", "aria-label": "Which mail" },
    el("a", { href: address({ box: null, before: null }), "aria-current": box ? null : "true", "data-key": "all" }, "All"), " ",
    el("a", { href: address({ box: "person", before: null }), "aria-current": box ? "true" : null, "data-key": "mine" }, "For you, unread"));
  return [
    projects(shape), boxes,
    shape.mails.length ? table("Mail, the newest first", ["Sent", "From", "To", "Type", "~Subject", "State", "Marks", "#Tokens", "To type"], shape.mails.map(row), { quiet: true })
      : note(box ? "Nothing waits for you." : "Nobody wrote to anybody yet."),
    pager({ before: shape.older }, "Older mail", !before),
  ];
}

function message(one) {
  return el("article", { class: "mail" }, el("h2", {}, one.subject || "(no subject)"),
    el("p", { class: "note" }, moment(one.sent) || "", ` ${one.from} to ${one.to}, ${one.type} `, state(one.state), " ", marks(one) || ""),
    one.text ? el("pre", { class: "foreign", tabindex: "0", role: "region", "aria-label": `Words of ${one.id}` }, one.text) : note("Its words are gone."));
}

function whole(shape) {
  return [
    el("p", {}, el("a", { href: address({ thread: null }), "data-key": "back" }, "All mail")),
    note("Written by others. To look here claims nothing: what waits for an agent, or for you, goes on waiting."),
    shape.cut ? note("Only the newest messages of this thread are shown.") : null,
    ...shape.mails.map(message),
  ];
}

if (thread) page("Thread", () => `/data/thread?${query}`, whole);
else page("Mail", () => `/data/mails?${query}`, list, { live: !before });
