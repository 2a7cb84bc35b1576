import { el } from "./core.js";
import { address, command, commands, main, mark, moment, note, page, pager, projects, query, section, table } from "./show.js";
import { size } from "./format.js";

const path = query.get("path") || "", after = query.get("after") || "", before = query.get("before") || "", version = query.get("version") || "";
const who = (one) => (one.epoch ? `${one.author}:${one.epoch}` : one.author);
const link = (one, text) => el("a", { href: address({ path: one.path, after: null, before: null, version: null }), "data-key": `note ${one.path}` }, text || one.path);
const quarantined = () => mark("!", "quarantined");

function marks(one) {
  if (one.quarantined) return quarantined();
  return one.conflict ? mark("?", "conflict", "ask") : null;
}

function waiting(shape) {
  if (!shape.waiting.length) return null;
  return section("Waiting for a person", note("Agents wrote this, and no agent is given it before somebody approves it."),
    table("Quarantined notes", ["Note", "~Title", "Kind", "#Size", "Written", "Mark", "To type"],
      shape.waiting.map((one) => [link(one), one.title, one.kind, size(one.size), moment(one.at), quarantined(), commands(one.type)]), { quiet: true }));
}

function list(shape) {
  const rows = shape.notes.map((one) => [link(one), one.title, one.kind, who(one), one.action, size(one.size), moment(one.at), marks(one)]);
  const changes = shape.changes.map((one) => [moment(one.at), one.action, link(one), who(one), el("code", {}, one.version || "removed"), one.quarantined ? quarantined() : null]);
  return [
    projects(shape), waiting(shape),
    section("Notes", rows.length ? table("Notes", ["Note", "~Title", "Kind", "By", "Last", "#Size", "When", "Marks"], rows, { quiet: true }) : note("Nothing is known yet: nightcrew mem put semantic/NAME.md"),
      pager({ after: shape.more }, "More notes", !after)),
    changes.length ? section("The newest changes", table("Changes", ["When", "What", "Note", "By", "Version", "Mark"], changes, { quiet: true })) : null,
  ];
}

function one(shape, heading) {
  heading.textContent = shape.path;
  const changes = shape.changes.map((change) => [
    moment(change.at), change.action, who(change),
    change.version ? el("a", { href: address({ version: change.version, before: null }), "data-key": `version ${change.number}` }, change.version) : "removed", size(change.size),
  ]);
  const readers = shape.readers.map((reader) => [reader.task, String(reader.given), String(reader.read), moment(reader.last)]);
  return [
    el("p", {}, el("a", { href: address({ path: null, version: null, before: null }) , "data-key": "back" }, "All notes")),
    shape.quarantined ? el("p", {}, quarantined(), " No agent is given it before somebody approves it.") : null,
    note(`Version ${shape.version}, ${size(shape.bytes)}. What follows was written by others: it is shown as it is, without signs that nobody sees.`),
    el("pre", { class: "foreign", tabindex: "0", role: "region", "aria-label": `Text of ${shape.path}` }, shape.text),
    section("Versions", table("Versions", ["When", "What", "By", "Version", "#Size"], changes, { quiet: true }), pager({ before: shape.older }, "Older versions", !before)),
    readers.length ? section("Who read it", table("Readers", ["Who", "#Before a prompt", "#Asked for", "Last"], readers, { quiet: true })) : null,
    command(`nightcrew mem log -p ${shape.path}`),
  ];
}

main.dataset.of = path ? "note" : "notes";
if (path) page("Note", () => `/data/note?${query}`, one, { live: !version && !before });
else page("Memory", () => `/data/notes?${query}`, list, { live: !after });
