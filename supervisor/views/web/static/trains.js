import { el } from "./core.js";
import { commands, moment, note, page, pager, projects, query, section, state, table } from "./show.js";

const before = query.get("before") || "";

function train(one) {
  const rows = one.entries.map((entry) => [
    String(entry.position), entry.task, entry.title, state(entry.state), entry.reason, (entry.files || []).join(", "),
    el("code", {}, (entry.staged || entry.commit || "").slice(0, 12)), commands(entry.type),
  ]);
  const more = one.more_entries ? note(`and ${one.more_entries} more: nightcrew land --status`) : null;
  return el("section", { class: "train" },
    el("h2", {}, `${one.train} into ${one.into} `, state(one.state)), note(one.said), commands(one.type),
    table(`Results of ${one.train}`, ["#", "Task", "~Title", "State", "~Why", "~Files", "Commit", "To type"], rows, { quiet: true }), more,
    el("p", { class: "note" }, "began ", moment(one.began) || "", ", changed ", moment(one.changed) || "", `; gates: ${one.gates.join("; ") || "none"}`));
}

function group(one) {
  const column = one.heads.indexOf("state") + 1;
  const rows = one.cells.map((cells) => cells.map((cell, at) => (cell === "-" ? null : at === column ? state(cell) : cell)));
  return el("div", { class: "group" }, el("h3", {}, one.group, " ", state(one.state)), note(one.said), commands(one.commands),
    table(`Candidates of ${one.group}`, ["Place", ...one.heads.map((name) => name[0].toUpperCase() + name.slice(1))], rows, { quiet: true }),
    one.why.length ? el("details", { "data-key": `why ${one.group}` }, el("summary", {}, "Why they stand so"), el("ul", {}, ...one.why.map((text) => el("li", {}, text)))) : null);
}

page("Trains and candidates", () => `/data/trains?${query}`, (shape) => [
  projects(shape),
  ...(shape.trains.length ? shape.trains.map(train) : [note("No train of merges yet. To try one: nightcrew land --ready --dry-run")]),
  pager({ before: shape.older }, "Older trains", !before),
  shape.groups.length ? section("Groups of candidates", ...shape.groups.map(group)) : null,
], { live: !before });
