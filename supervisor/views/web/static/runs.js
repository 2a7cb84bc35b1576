// All runs, and one of them.

import { el } from "./core.js";
import { address, command, commands, main, mark, moment, note, page, pager, query, section, state, table } from "./show.js";
import { duration, money, short } from "./format.js";

// All of them

const before = query.get("before") || "";

function counts(run) {
  const parts = Object.entries(run.counts).map(([name, number]) => el("span", { class: "count" }, state(name), ` ${number}`));
  return el("span", { class: "counts" }, ...parts);
}

function marks(run) {
  const night = run.night ? [mark("N", `night, ${run.night.state}: ${run.night.terms}`, "ask")] : [];
  const written = run.reports.map((kind) => mark("R", kind === "night" ? "night report" : "report", "good"));
  return el("span", { class: "marks" }, ...night, ...written, run.archived ? mark("–", "archived", "off") : "");
}

function row(run) {
  return [el("a", { href: `/run/${encodeURIComponent(run.id)}`, "data-key": run.id }, run.id), run.title, counts(run), moment(run.submitted), marks(run), run.root];
}

// One

const run = decodeURIComponent(location.pathname.slice("/run/".length));
const after = query.get("after") || "";
const REPORTS = { report: "Report of the run", night: "Report of the night" };

function tiles(shape) {
  const spent = shape.spent;
  if (!spent) return note("No request of this run went through the gateway, or its account cannot be read.");
  const cost = spent.cost_usd === null ? `more than ${money(spent.known_usd)}` : money(spent.cost_usd);
  const facts = [
    ["Cost", cost], ["Tokens", short(spent.tokens)], ["from the cache", short(spent.cache_read)], ["Requests", String(spent.requests)],
    ["Waited for tokens", duration(spent.wait_s)], ["Under way", String(spent.under_way)],
  ];
  return el("dl", { class: "tiles" }, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function tasks(shape) {
  const heads = ["Task", "State", "~What", "Kind", "#Time", "#Queue", "#Tokens wait", "#Person", "#Tokens", "#Cost", "Changes", "Started"];
  const rows = shape.tasks.map((one) => [
    el("a", { href: `/agent/${one.id.split("/").map(encodeURIComponent).join("/")}`, "data-key": one.id }, one.name), state(one.state),
    el("span", {}, el("bdi", {}, one.title), one.why ? " " : "", one.why ? el("bdi", { class: "note" }, one.why) : ""), one.kind, duration(one.seconds), duration(one.queue_s), duration(one.tokens_s), duration(one.human_s),
    short(one.tokens), money(one.cost_usd), one.files === null ? null : `${one.files} files +${one.plus} −${one.minus}`, moment(one.started),
  ]);
  return table("Tasks, in the plan's order", heads, rows, { quiet: true });
}

function waits(found) {
  if (!found) return null;
  const rows = found.top.map((one) => [one.task, one.kind, one.whom, String(one.waits), duration(one.seconds), duration(one.longest_s)]);
  return section("What agents waited for", note(found.said), table("The longest waits", ["Who", "Kind", "For whom", "#Times", "#Together", "#Longest"], rows, { quiet: true }));
}

function group(one) {
  return el("div", { class: "group" }, el("h3", {}, one.group), note(one.said), commands(one.commands));
}

function head(shape) {
  const one = shape.run, night = one.night;
  return [
    el("p", { class: "lead" }, el("strong", {}, one.title), " ", ...Object.entries(one.counts).map(([name, number]) => el("span", { class: "count" }, state(name), ` ${number} `))),
    note(`${one.root}, from ${one.base} (${one.base_oid.slice(0, 12)})`),
    night ? el("p", {}, mark("N", `night, ${night.state}: ${night.terms}`, "ask"), night.why ? ` ${night.why}` : "") : null,
  ];
}

function reports(shape) {
  const links = shape.run.reports.map((one) => el("li", {}, el("a", { href: one.href, target: "_blank", rel: "noopener", "data-key": one.kind }, REPORTS[one.kind])));
  const again = shape.run.night ? `nightcrew night report ${shape.run.id}` : `nightcrew report ${shape.run.id}`;
  return section("Reports", links.length ? el("ul", { class: "links" }, ...links) : note("None was written yet. This writes one:"), command(again));
}

if (location.pathname.startsWith("/run/")) {
  page("Run", () => `/data/run?${new URLSearchParams(after ? { run, after } : { run })}`, (shape, heading) => {
    heading.textContent = `Run ${shape.run.id}`;
    return [
      ...head(shape), tiles(shape), section("Tasks", tasks(shape), pager({ after: shape.more }, "More tasks", !after)),
      shape.groups.length ? section("Groups of candidates", ...shape.groups.map(group)) : null, waits(shape.waits), reports(shape),
    ];
  });
} else {
  page("Runs", () => `/data/runs?${new URLSearchParams(before ? { before } : {})}`, (shape) => [
    shape.runs.length ? table("Runs, the newest first", ["Run", "~Title", "Tasks", "Submitted", "Marks", "~Repository"], shape.runs.map(row), { quiet: true })
      : el("p", { class: "note" }, "No run yet. To begin one: nightcrew run PLAN, or nightcrew start."),
    pager({ before: shape.older }, "Older runs", !before),
  ], { live: !before });
  main.dataset.page = address({});
}
