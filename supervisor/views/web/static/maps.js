import { el } from "./core.js";
import { command, mark, moment, note, page, pager, query, state, table } from "./show.js";
import { duration, many } from "./format.js";

const skip = query.get("skip") || "";

function bar(one) {
  const ended = one.done + one.failed, part = one.total ? ended / one.total : 0;
  const meter = el("progress", { max: String(one.total || 1), value: String(ended), "aria-label": `Items of ${one.title || one.id} that have ended` });
  return el("p", { class: "bar" }, meter, ` ${ended} of ${one.total} (${Math.floor(100 * part)}%)`);
}

function map(one) {
  if (one.trouble) return el("section", { class: "map" }, el("h2", {}, one.id), el("p", { class: "trouble" }, one.trouble));
  const left = one.left_s ? `, about ${duration(one.left_s)} left` : "";
  const pace = one.item_s ? `${duration(one.item_s)} an item${left}` : "nothing was measured yet";
  const workers = one.workers.map((worker) => [worker.task, String(worker.epoch), String(worker.shard), String(worker.items)]);
  const failures = one.failures.map((failure) => [failure.item, String(failure.tries), failure.why]);
  return el("section", { class: "map" },
    el("h2", {}, one.title || one.id, " ", state(one.state)), bar(one),
    el("p", { class: "note" }, `${one.done} done, ${one.failed} failed, ${one.waiting} to do; ${pace}; began `, moment(one.began) || "", one.ended ? ", ended " : "", moment(one.ended) || ""),
    one.why ? el("p", {}, mark("!", one.why)) : null,
    workers.length ? table(`${many(workers.length, "worker")} at work`, ["Worker", "#Attempt", "#Shard", "#Items"], workers) : null,
    failures.length ? el("details", { "data-key": `failed ${one.id}` }, el("summary", {}, `The first ${many(failures.length, "item")} that failed`),
      table(`Items of ${one.title || one.id} that failed`, ["~Item", "#Tries", "~Why"], failures, { quiet: true })) : null,
    one.run ? el("p", {}, el("a", { href: `/run/${encodeURIComponent(one.run)}`, "data-key": `run ${one.id}` }, `Its run ${one.run}`)) : null,
    one.failed && one.run ? command(`nightcrew status ${one.run}`) : null);
}

page("Maps", () => `/data/maps?${query}`, (shape) => [
  ...(shape.maps.length ? shape.maps.map(map) : [note("Nothing was mapped yet: nightcrew map --help")]),
  pager({ skip: shape.older }, "Older maps", !skip),
], { live: !skip });
