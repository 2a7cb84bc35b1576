import uPlot from "/uplot.js";
import { el, follow, setText } from "./core.js";
import { main, moment, nodes, redraw, table } from "./show.js";
import { clock, duration, percent, short } from "./format.js";

// Charts over time. Each is drawn by uPlot, named by letters as well as by colours, and has a table with the same figures.

if (!document.querySelector('link[href="/uplot.css"]')) document.head.append(el("link", { rel: "stylesheet", href: "/uplot.css" }));

const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif";
const ROWS = 20;
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const charts = new Set();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((one) => one.repaint()));

function hatch(color, step, paper = "") {
  const tile = document.createElement("canvas"), side = step * Math.ceil(devicePixelRatio || 1);
  tile.width = tile.height = side;
  const pen = tile.getContext("2d");
  if (paper) {
    pen.fillStyle = paper;
    pen.fillRect(0, 0, side, side);
  }
  pen.strokeStyle = color;
  pen.lineWidth = Math.max(1, side / 6);
  pen.beginPath();
  for (const at of [-side / 2, side / 2, side * 1.5]) { pen.moveTo(at - side, side * 1.5); pen.lineTo(at + side, -side / 2); }
  pen.stroke();
  return pen.createPattern(tile, "repeat");
}

/**
 * One figure. `update({ends, series, bands, step})`: `ends` in seconds since 1970; each of `series` has a `name`, a `letter`, an `ink` (the name of
 * a colour), `values` (null: nobody knows), and may have `stack` (it lies on those before it), `hatched`, `dash`, `wide` or `bars`; `bands` have `begin`,
 * `end` (null: now) and a `letter`. `words` makes a text of a value.
 */
class Chart {
  constructor(title, words, { height = 200, least = 1, most = null, zero = false, empty = "nothing yet" } = {}) {
    this.words = words;
    this.height = height;
    this.least = least;
    this.most = most;
    this.zero = zero;
    this.holder = el("div", { class: "plot", role: "img", "aria-label": title });
    this.legend = el("ul", { class: "legend" });
    this.nothing = el("p", { class: "note" }, empty);
    this.rows = el("div", {});
    this.table = el("details", { class: "figures" }, el("summary", {}, "The same as a table"), this.rows);
    this.table.addEventListener("toggle", () => this.tell());
    this.caption = el("figcaption", {}, title);
    this.title = title;
    this.node = el("figure", { class: "chart" }, this.caption, this.holder, this.nothing, this.legend, this.table);
    this.plot = null;
    this.made = "";
    this.shape = null;
    new ResizeObserver(() => this.fit()).observe(this.holder);
    charts.add(this);
  }

  rename(title) {
    this.title = title;
    setText(this.caption, title);
    this.holder.setAttribute("aria-label", title);
  }

  update(shape) {
    this.shape = shape;
    const some = shape.ends.length > 1 && shape.series.some((one) => one.values.some((value) => value !== null && (this.zero || value !== 0)));
    this.nothing.hidden = some;
    this.holder.hidden = this.legend.hidden = this.table.hidden = !some;
    if (!some) return;
    this.explain();
    this.tell();
    const made = JSON.stringify(shape.series.map(({ values, ...rest }) => rest));
    if (made !== this.made) { this.made = made; this.repaint(); } else if (this.plot) this.plot.setData(this.data());
  }

  /** What uPlot draws: those that are stacked from the top of the pile to its bottom, then the lines. */
  drawn() {
    const piled = this.shape.series.filter((one) => one.stack), lines = this.shape.series.filter((one) => !one.stack);
    return [...[...piled].reverse(), ...lines];
  }

  data() {
    const sums = new Map(), sum = this.shape.ends.map(() => 0);
    for (const one of this.shape.series.filter((each) => each.stack)) {
      one.values.forEach((value, at) => { sum[at] += value || 0; });
      sums.set(one, [...sum]);
    }
    return [this.shape.ends, ...this.drawn().map((one) => sums.get(one) || one.values)];
  }

  repaint() {
    if (!this.shape || !this.made) return;
    const width = this.holder.clientWidth;
    if (!width) return;
    this.plot?.destroy();
    const grid = { stroke: ink("line"), width: 1 }, axis = { stroke: ink("muted"), font: FONT, grid, ticks: { show: false } };
    const top = (u, low, high) => [0, Math.max(this.least, this.most ?? (high || 0) * 1.08)];
    this.plot = new uPlot({
      width, height: this.height, padding: [10, 18, 0, 0], legend: { show: false }, cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: true }, y: { range: top } },
      axes: [{ ...axis, size: 28, space: 70, incrs: [60, 120, 300, 600, 900], values: (u, ticks) => ticks.map((at) => clock(new Date(at * 1000)).slice(0, 5)) },
        { ...axis, size: 56, values: (u, ticks) => ticks.map((value) => this.words(value)) }],
      series: [{}, ...this.drawn().map((one) => this.series(one))],
      hooks: { drawClear: [(u) => this.bands(u)], draw: [(u) => this.letters(u)], setCursor: [(u) => this.point(u)] },
    }, this.data(), this.holder);
  }

  series(one) {
    const color = ink(one.ink), fill = one.hatched ? hatch(color, one.hatched, ink("paper")) : color;
    if (one.stack) return { stroke: ink("paper"), width: 1, fill, points: { show: false }, spanGaps: true };
    const paths = one.bars ? uPlot.paths.bars({ size: [0.8, 12] }) : one.steps ? uPlot.paths.stepped({ align: -1 }) : undefined;
    return {
      stroke: color, width: one.scroll || 2, dash: one.dash, paths, fill: one.bars ? fill : undefined, spanGaps: false,
      points: { show: !one.bars, size: one.dash ? 3 : 4, filter: lonely },
    };
  }

  /** When a breaker was not closed: hatched, with its letter. */
  bands(u) {
    const { ctx } = u, { left, top, width, height } = u.bbox;
    for (const band of this.shape.bands || []) {
      const begin = Math.max(left, u.valToPos(band.begin, "x", true)), end = Math.min(left + width, band.end === null ? left + width : u.valToPos(band.end, "x", true));
      if (end <= begin) continue;
      ctx.save();
      ctx.fillStyle = hatch(ink("band"), 8);
      ctx.fillRect(begin, top, Math.max(2, end - begin), height);
      ctx.fillStyle = ink("ink");
      ctx.font = `bold ${11 * uPlot.pxRatio}px system-ui, sans-serif`;
      ctx.textBaseline = "top";
      ctx.fillText(band.letter, begin + 2, top + 2);
      ctx.restore();
    }
  }

  /** The letter of each pile where it is highest, of each line at its end. */
  letters(u) {
    const { ctx } = u, data = u.data, last = data[0].length - 1;
    ctx.save();
    ctx.font = `600 ${11 * uPlot.pxRatio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "center";
    this.drawn().forEach((one, index) => {
      let at = last;
      const values = one.values;
      if (one.stack) values.forEach((value, place) => { if ((value || 0) > (values[at] || 0)) at = place; });
      else while (at > 0 && values[at] === null) at -= 1;
      const sum = data[index + 1][at], value = values[at];
      if (value === null || value === undefined || sum === null) return;
      const y = u.valToPos(one.stack ? sum - value / 2 : sum, "y", true), x = u.valToPos(data[0][at], "x", true);
      const tall = Math.abs(u.valToPos(0, "y", true) - u.valToPos(value, "y", true));
      if (one.stack && tall < 12 * uPlot.pxRatio) return;
      const inside = Math.min(u.bbox.left + u.bbox.width - 8 * uPlot.pxRatio, Math.max(u.bbox.left + 8 * uPlot.pxRatio, x));
      ctx.lineWidth = 3 * uPlot.pxRatio;
      ctx.strokeStyle = ink("paper");
      ctx.strokeText(one.letter, inside, y - (one.stack ? 0 : 9 * uPlot.pxRatio));
      ctx.fillStyle = ink("ink");
      ctx.fillText(one.letter, inside, y - (one.stack ? 0 : 9 * uPlot.pxRatio));
    });
    ctx.restore();
  }

  fit() {
    const width = this.holder.clientWidth;
    if (!width || !this.shape) return;
    if (!this.plot) this.repaint();
    else if (width !== this.plot.width) this.plot.setSize({ width, height: this.height });
  }

  /** What each is, and its value where the pointer is, or the newest. */
  explain(at = null) {
    const last = this.shape.ends.length - 1;
    const parts = this.shape.series.map((one) => {
      let place = at ?? last;
      if (at === null) while (place > 0 && one.values[place] === null) place -= 1;
      const value = one.values[place], swatch = el("b", { class: `swatch ${one.hatched ? "hatched" : ""} ${one.stack || one.bars ? "" : one.dash ? "dashed" : "solid"}`, "aria-hidden": "true" }, one.letter);
      swatch.style.setProperty("--of", `var(--${one.ink})`);
      return el("li", {}, swatch, ` ${one.name} `, el("span", { class: "value" }, value === null || value === undefined ? "–" : this.words(value)));
    });
    const when = at === null ? [] : [el("li", { class: "value" }, moment(this.shape.ends[at]))];
    this.legend.replaceChildren(...parts, ...when);
  }

  point(u) {
    const at = u.cursor.idx;
    if (at !== this.pointed) { this.pointed = at; this.explain(at ?? null); }
  }

  tell() {
    if (!this.table.open || !this.shape) return;
    const { ends, series } = this.shape, newest = ends.map((_, at) => at).reverse().slice(0, ROWS);
    const rows = newest.map((at) => [moment(ends[at]), ...series.map((one) => (one.values[at] === null || one.values[at] === undefined ? null : this.words(one.values[at])))]);
    const kept = this.rows.querySelector(".scroll")?.scrollTop || 0;
    this.rows.replaceChildren(table(`${this.title}: the newest ${rows.length} steps`, ["Until", ...series.map((one) => `#${one.letter} ${one.name}`)], rows));
    this.rows.querySelector(".scroll").scrollTop = kept;
  }
}

/** A point that has no neighbours would not be seen as a line. */
function lonely(u, index) {
  const values = u.data[index], found = [];
  for (let at = 0; at < values.length; at += 1) if (values[at] !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null) found.push(at);
  return found;
}

// The page

const INKS = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"], UNITS = { requests: "requests a minute", input: "input tokens a minute", output: "output tokens a minute", tokens: "tokens a minute" };
const WAITS = { wait: "Waiting for its turn", first_byte: "To the first byte", total: "The whole turn" };

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
  const { ends = [], charts = [], bands: breakers = [], waits, rates } = shape;
  trouble.hidden = !shape.trouble;
  setText(trouble, shape.trouble || "");
  if (!shape.tiles) return;
  options(charts);
  const one = charts.find((each) => `${each.pool} ${each.dimension}` === choice.value) || charts[0];
  const bands = (pool) => breakers.filter((each) => !pool || each.pool === pool);
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
  redraw(tiles, nodes(shape.tiles));
  redraw(tables, nodes(shape.tables));
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

follow(["limits"], (topic, found) => { shape = Object.fromEntries(found); draw(); });
