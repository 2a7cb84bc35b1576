import { el } from "./core.js";
import { address, main, mark, moment, page, pager, query, state, table } from "./show.js";

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

page("Runs", () => `/data/runs?${new URLSearchParams(before ? { before } : {})}`, (shape) => [
  shape.runs.length ? table("Runs, the newest first", ["Run", "~Title", "Tasks", "Submitted", "Marks", "~Repository"], shape.runs.map(row), { quiet: true })
    : el("p", { class: "note" }, "No run yet. To begin one: nightcrew run PLAN, or nightcrew start."),
  pager({ before: shape.older }, "Older runs", !before),
], { live: !before });
main.dataset.page = address({});
