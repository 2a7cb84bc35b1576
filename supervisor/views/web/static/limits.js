import { el, follow, setText } from "./core.js";
import { Chart } from "./charts.js";
import { main, mark, moment, note, redraw, section, state, table } from "./show.js";
import { duration, money, percent, short } from "./format.js";

const INKS = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"], UNITS = { requests: "requests a minute", input: "input tokens a minute", output: "output tokens a minute", tokens: "tokens a minute" };
const WAITS = { wait: "Waiting for its turn", first_byte: "To the first byte", total: "The whole turn" };
const letter = (one) => (one.state === "open" ? "O" : "½");

const trouble = el("p", { class: "trouble", role: "alert", hidden: true });
const tiles = el("div", {}), tables = el("div", {});
const choice = el("select", {}), chosen = el("p", { class: "choice" }, el("label", {}, "Limit ", choice));
const used = new Chart("Tokens a minute", short, { height: 260, empty: "Nothing was sent in the last half hour." });
const admitted = new Chart("Admissions and the queue", (value) => String(Math.round(value)), { least: 4, empty: "Nothing was sent in the last half hour." });
const waited = new Chart("Waits", duration, { least: 0.5, empty: "Nothing ended in the last half hour." });
const cached = new Chart("Input read from the provider's cache", (value) => percent(value), { height: 150, least: 1, most: 1, zero: true, empty: "No input in the last half hour." });
const worth = new Chart("Tokens for a dollar", short, { height: 150, empty: "Nothing with a known price in the last half hour." });
const kinds = el("fieldset", { class: "choice" }, el("legend", {}, "Seconds of"), ...Object.entries(WAITS).map(([name, text]) => {
  const input = el("input", { type: "radio", name: "wait", value: name });
  input.checked = name === "wait";
  input.addEventListener("change", () => draw());
  return el("label", {}, input, ` ${text}`);
}));
choice.addEventListener("change", () => { choice.dataset.kept = choice.value; draw(); });

main.classList.add("sheet");
main.append(el("h1", {}, "Limits"), trouble, tiles, chosen, used.node, admitted.node, kinds, waited.node, el("div", { class: "pair" }, cached.node, worth.node), tables);

let shape = {};

function draw() {
  const { ends = [], charts = [], breakers = [], waits, rates } = shape;
  trouble.hidden = !shape.trouble;
  setText(trouble, shape.trouble || "");
  if (!ends.length && !shape.now) return;
  options(charts);
  const one = charts.find((each) => `${each.pool} ${each.dimension}` === choice.value) || charts[0];
  const bands = (pool) => breakers.filter((each) => !pool || each.pool === pool).map((each) => ({ begin: each.begin, end: each.end, letter: letter(each) }));
  if (one) used.rename(`${UNITS[one.dimension][0].toUpperCase()}${UNITS[one.dimension].slice(1)} of ${one.pool}, by agent, in the minute before`);
  used.update({ ends, bands: bands(one?.pool), series: one ? pile(one) : [] });
  if (rates) {
    admitted.update({ ends, bands: bands(), series: [
      { name: "admitted a minute", letter: "A", ink: "c1", bars: true, values: rates.admitted }, { name: "waiting now", letter: "Q", ink: "c2", values: rates.queued, wide: 2 },
      { name: "429 of the provider's", letter: "P", ink: "c6", dash: [2, 3], values: rates.upstream_429 }, { name: "429 of ours", letter: "N", ink: "c4", dash: [6, 4], values: rates.our_429 },
    ] });
    cached.update({ ends, bands: [], series: [{ name: "read from the cache", letter: "C", ink: "c3", values: rates.cache_hits }] });
    worth.update({ ends, bands: [], series: [{ name: "tokens for a dollar", letter: "T", ink: "c1", values: rates.tokens_per_usd }] });
  }
  if (waits) {
    const kind = kinds.querySelector("input:checked").value, of = waits[kind];
    waited.rename(`${WAITS[kind]}: seconds`);
    waited.update({ ends, bands: bands(), series: [
      { name: "P50", letter: "50", ink: "c1", values: of.p50 }, { name: "P95", letter: "95", ink: "c2", dash: [8, 4], values: of.p95 }, { name: "P99", letter: "99", ink: "c6", dash: [2, 3], values: of.p99 },
    ] });
  }
  redraw(tiles, now(shape.now));
  redraw(tables, lists(shape));
  main.dataset.ready = "1";
}

function options(charts) {
  const names = charts.map((one) => `${one.pool} ${one.dimension}`);
  chosen.hidden = names.length < 2;
  if (JSON.stringify(names) === choice.dataset.names) return;
  choice.dataset.names = JSON.stringify(names);
  choice.replaceChildren(...charts.map((one) => el("option", { value: `${one.pool} ${one.dimension}` }, `${one.pool}: ${UNITS[one.dimension]}`)));
  choice.value = names.includes(choice.dataset.kept) ? choice.dataset.kept : names[0] ?? "";
}

function pile(one) {
  const agents = one.agents.map((agent, at) => ({ name: agent.name, letter: String.fromCharCode(65 + at), ink: INKS[at % INKS.length], stack: true, values: agent.used }));
  return [
    ...agents,
    { name: "reserved for what is under way", letter: "R", ink: "muted", stack: true, hatched: 6, values: one.reserved },
    { name: "used by others outside", letter: "X", ink: "ink", stack: true, hatched: 10, values: one.outside },
    { name: "limit", letter: "limit", ink: "ink", dash: [10, 4], wide: 2, values: one.limit },
  ];
}

function now(found) {
  if (!found || !found.running) return [];
  const figures = found.figures, queued = found.lanes.reduce((sum, lane) => sum + lane.queued, 0), delay = Math.max(0, ...found.lanes.map((lane) => lane.delay_s || 0));
  const left = found.pools.map((pool) => pool.exhausted_in_s).filter((one) => one !== null), open = found.pools.filter((pool) => pool.breaker !== "closed").length;
  const facts = [
    ["Breakers", open ? mark("!", `${open} not closed`) : mark("D", "all closed", "good")],
    ["Forecast", left.length ? `empty in ${duration(Math.min(...left))}` : "not running out"],
    ["Waiting", `${queued}`], ["A new request waits", delay >= 1 ? duration(delay) : "not at all"],
    ["Cache", percent(figures?.cache_hits) || "–"], ["Tokens for a dollar", short(figures?.tokens_per_usd) || "–"],
    ["Tonight", found.tonight_usd === null || found.tonight_usd === undefined ? "no cap" : `${money(found.tonight_usd)} of ${money(found.caps?.cost_per_night)}`],
  ];
  return [
    el("dl", { class: "tiles" }, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    ...(found.problems || []).map((text) => el("p", {}, mark("!", text))),
  ];
}

const three = (of) => (of && of.p50 !== null ? [of.p50, of.p95, of.p99].map((value) => (value === null ? "–" : value < 9.95 ? value.toFixed(1) : value.toFixed(0))).join(" / ") : null);

function lists({ now: found, breakers }) {
  const made = [];
  if (found && found.running) made.push(section("Limits now", pools(found.pools)), section("Agents now", agents(found)));
  if (breakers && breakers.length) {
    const rows = breakers.map((one) => [one.pool, one.breaker, state(one.state), moment(one.begin), one.end === null ? "now" : moment(one.end), one.why]);
    made.push(section("When a breaker was not closed", table("Breakers", ["Limit", "Breaker", "State", "From", "To", "~Why"], rows, { quiet: true })));
  }
  if (found && !found.running) made.push(note("What only a running gateway knows is not here: limits, reservations, the use of others, the queue."));
  return made;
}

function pools(found) {
  const rows = found.flatMap((pool) => (pool.dimensions.length ? pool.dimensions : [null]).map((one) => [
    pool.key, one ? one.name : null, state(pool.breaker), pool.breaker_why || (pool.opens_in_s === null ? null : `tries again in ${duration(pool.opens_in_s)}`), one ? short(one.limit_per_minute) : null,
    one ? short(one.reserved) : null, one ? short(one.outside_per_minute) : null, one ? percent(one.saturation) : null, pool.exhausted_in_s === null ? null : duration(pool.exhausted_in_s), String(pool.in_flight),
  ]));
  return table("Limits now", ["Limit", "Of", "Breaker", "~Why", "#A minute", "#Reserved", "#Others", "#Used", "#Empty in", "#Under way"], rows, { quiet: true });
}

function agents(found) {
  const rows = found.agents.map((one) => [
    one.name, one.task_class, short(one.used_tpm), short(one.share_tpm), one.place ? `#${one.place}` : null, one.queued ? duration(one.waiting_s) : null,
    three(one.figures?.wait), three(one.figures?.first_byte), three(one.figures?.total), one.figures ? money(one.figures.cost_usd) || `>${money(one.figures.known_usd)}` : null, percent(one.figures?.cache_hits),
  ]);
  return el("div", {}, table("Agents now: P50 / P95 / P99 in seconds", ["Agent", "Class", "#A minute", "#Share", "Place", "#Waits", "#Wait", "#First byte", "#Turn", "#Cost", "#Cache"], rows, { quiet: true }),
    found.more_agents ? note(`and ${found.more_agents} more: nightcrew gateway status`) : null);
}

follow(["limits"], (topic, found) => { shape = Object.fromEntries(found); draw(); });
