import { el, get } from "./core.js";
import { command, main, mark, moment, note, page, pager, query, section, table } from "./show.js";
import { duration } from "./format.js";

const view = query.get("of") === "journal" ? "journal" : "audit", before = query.get("before") || "";
const task = (one) => (one.task ? el("a", { href: `/agent/${one.task.split("/").map(encodeURIComponent).join("/")}` }, one.epoch ? `${one.task}:${one.epoch}` : one.task) : null);

function tabs() {
  const tab = (name, text) => el("a", { href: name === "audit" ? "/audit" : "/audit?of=journal", "aria-current": view === name ? "true" : null, "data-key": name }, text);
  return el("nav", { class: "choice", "aria-label": "Which records" }, tab("audit", "Audit log"), " ", tab("journal", "Journal"));
}

// The check reads all that was ever recorded, so it is made when somebody asks, and its answer stays until the page is left.
const answer = el("div", { role: "status", class: "verdict" });
const button = el("button", { type: "button" }, "Check the chain and the rows");
button.addEventListener("click", async () => {
  button.disabled = true;
  answer.replaceChildren(note("checking…"));
  try {
    answer.replaceChildren(...verdict(await get("/data/audit-verify")));
  } catch (error) {
    answer.replaceChildren(el("p", { class: "trouble" }, error.message));
  }
  button.disabled = false;
});

function verdict(found) {
  const rows = Object.entries(found.proven).map(([name, number]) => `${number} rows of the ${name}`).join(", ");
  const newer = Object.entries(found.newer).filter(([, number]) => number).map(([name, number]) => `${number} of the ${name}`).join(", ");
  const where = found.table ? `${found.table}${found.row ? `, row ${found.row}` : ""}: ` : found.line ? `line ${found.line}: ` : "";
  const said = found.whole ? `${found.records} records${rows ? `, ${rows}` : ""}, in ${duration(found.took_s)}` : `${where}${found.why}`;
  return [
    el("p", {}, found.whole ? mark("D", "whole", "good") : mark("!", "not whole"), ` ${said}`),
    newer ? note(`newer rows, which no record proves yet: ${newer}`) : null, ...found.warnings.map((text) => el("p", {}, mark("?", text, "ask"))),
  ].filter(Boolean);
}

function log(shape) {
  const rows = shape.records.map((one) => [
    String(one.seq), moment(one.at), one.who, one.anchor ? mark("A", one.event, "ask") : one.event, task(one), one.said,
    el("span", { class: "chain" }, el("code", {}, one.prev), " → ", el("code", {}, one.mac)),
  ]);
  return [
    tabs(), section("Is it whole?", button, answer, command("nightcrew audit verify")),
    section("Records", note(`The head says that the log ends at record ${shape.head ?? "–"}. Each record has the mark of the one before; anchors prove rows of the journal and of the account.`),
      shape.foreign ? el("p", {}, mark("!", `${shape.foreign} lines here are no records of ours`)) : null,
      table("Records, the newest first", ["#", "When", "Who", "What", "Task", "~More", "Chain"], rows, { quiet: true }), pager({ before: shape.older }, "Older records", !before)),
  ];
}

function journal(shape) {
  const rows = shape.rows.map((one) => [String(one.seq), moment(one.at), one.kind, one.event, task(one), one.said]);
  return [tabs(), table("The journal, the newest first", ["#", "When", "Kind", "What", "Task", "~More"], rows, { quiet: true }), pager({ before: shape.older }, "Older rows", !before)];
}

main.dataset.of = view;
page(view === "audit" ? "Audit" : "Journal", () => `/data/${view}?${new URLSearchParams(before ? { before } : {})}`, view === "audit" ? log : journal, { live: !before });
