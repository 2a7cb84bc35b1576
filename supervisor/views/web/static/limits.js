import uPlot from "/static/uplot.js";
import { el, follow, setText } from "./core.js";
import { main, moment, nodes, redraw, table } from "./show.js";
import { clock, duration, percent, short } from "./format.js";

// Charts over time. Each is drawn by uPlot, named by letters as well as by colours, and has a table with the same figures.

if (!document.querySelector('link[href="/static/uPlot.min.css"]')) document.head.append(el("link", { rel: "stylesheet", href: "/static/uPlot.min.css" }));

const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif";
const ROWS = 20;
const probe = el("span", { hidden: true });
main.append(probe);
/** A colour of the style sheet, as a canvas takes it. */
function ink(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}
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

const UNITS = { short, duration, percent: (value) => percent(value), count: (value) => String(Math.round(value)) };

/**
 * One figure, as `drawing.limits` describes it. Each of a variant's `series` has a `name`, a `letter`, an `ink` (the name of a colour), `values`
 * (null: nobody knows), and may have `stack` (it lies on those before it), `hatched`, `dash` or `bars`; `bands` have `begin`, `end` (null: now) and
 * a `letter`. Of several variants a person chooses one.
 */
class Chart {
  constructor(spec) {
    this.words = UNITS[spec.unit];
    this.holder = el("div", { class: "plot", role: "img" });
    this.legend = el("ul", { class: "legend" });
    this.nothing = el("p", { class: "note" }, spec.empty);
    this.rows = el("div", {});
    this.table = el("details", { class: "figures" }, el("summary", {}, "The same as a table"), this.rows);
    this.table.addEventListener("toggle", () => this.tell());
    this.caption = el("figcaption", {});
    this.select = el("select", {});
    this.choice = el("p", { class: "choice" }, el("label", {}, `${spec.choice} `, this.select));
    this.select.addEventListener("change", () => { this.kept = this.select.value; this.update(this.ends, this.spec); });
    this.node = el("figure", { class: spec.height < 200 ? "chart" : "chart wide" }, this.choice, this.caption, this.holder, this.nothing, this.legend, this.table);
    this.plot = null;
    this.made = "";
    new ResizeObserver(() => this.fit()).observe(this.holder);
    charts.add(this);
  }

  update(ends, spec) {
    this.ends = ends;
    this.spec = spec;
    this.options(spec.variants.map((one) => one.name));
    this.shape = spec.variants.find((one) => one.name === this.select.value) || spec.variants[0] || { title: spec.title, series: [] };
    this.title = this.shape.title;
    setText(this.caption, this.title);
    this.holder.setAttribute("aria-label", this.title);
    const some = ends.length > 1 && this.shape.series.some((one) => one.values.some((value) => value !== null && (spec.most || value !== 0)));
    this.nothing.hidden = some;
    this.holder.hidden = this.legend.hidden = this.table.hidden = !some;
    if (!some) return;
    this.explain();
    this.tell();
    const made = JSON.stringify(this.shape.series.map(({ values, ...rest }) => rest));
    if (made !== this.made) { this.made = made; this.repaint(); } else if (this.plot) this.plot.setData(this.data());
  }

  options(names) {
    this.choice.hidden = names.length < 2;
    if (JSON.stringify(names) === this.names) return;
    this.names = JSON.stringify(names);
    this.select.replaceChildren(...names.map((name) => el("option", {}, name)));
    if (names.includes(this.kept)) this.select.value = this.kept;
  }

  /** What uPlot draws: those that are stacked from the top of the pile to its bottom, then the lines. */
  drawn() {
    const piled = this.shape.series.filter((one) => one.stack), lines = this.shape.series.filter((one) => !one.stack);
    return [...[...piled].reverse(), ...lines];
  }

  data() {
    const sums = new Map(), sum = this.ends.map(() => 0);
    for (const one of this.shape.series.filter((each) => each.stack)) {
      one.values.forEach((value, at) => { sum[at] += value || 0; });
      sums.set(one, [...sum]);
    }
    return [this.ends, ...this.drawn().map((one) => sums.get(one) || one.values)];
  }

  repaint() {
    if (!this.shape || !this.made) return;
    const width = this.holder.clientWidth;
    if (!width) return;
    this.plot?.destroy();
    const grid = { stroke: ink("line"), width: 1 }, axis = { stroke: ink("muted"), font: FONT, grid, ticks: { show: false } };
    const top = (u, low, high) => [0, Math.max(this.spec.least || 1, this.spec.most || (high || 0) * 1.08)];
    this.plot = new uPlot({
      width, height: this.spec.height, padding: [10, 18, 0, 0], legend: { show: false }, cursor: { drag: { x: false, y: false }, points: { show: false } },
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
    const paths = one.bars ? uPlot.paths.bars({ size: [0.8, 12] }) : undefined;
    return {
      stroke: color, width: 2, dash: one.dash, paths, fill: one.bars ? fill : undefined, spanGaps: false,
      points: { show: !one.bars, size: one.dash ? 3 : 4, filter: lonely },
    };
  }

  /** When a breaker was not closed: hatched, with its letter. */
  bands(u) {
    const { ctx } = u, { left, top, width, height } = u.bbox;
    for (const band of this.shape.bands || this.spec.bands) {
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
    else if (width !== this.plot.width) this.plot.setSize({ width, height: this.spec.height });
  }

  /** What each is, and its value where the pointer is, or the newest. */
  explain(at = null) {
    const last = this.ends.length - 1;
    const parts = this.shape.series.map((one) => {
      let place = at ?? last;
      if (at === null) while (place > 0 && one.values[place] === null) place -= 1;
      const value = one.values[place], swatch = el("b", { class: `swatch ${one.hatched ? "hatched" : ""} ${one.stack || one.bars ? "" : one.dash ? "dashed" : "solid"}`, "aria-hidden": "true" }, one.letter);
      swatch.style.setProperty("--of", `var(--${one.ink})`);
      return el("li", {}, swatch, ` ${one.name} `, el("span", { class: "value" }, value === null || value === undefined ? "–" : this.words(value)));
    });
    const when = at === null ? [] : [el("li", { class: "value" }, moment(this.ends[at]))];
    this.legend.replaceChildren(...parts, ...when);
  }

  point(u) {
    const at = u.cursor.idx;
    if (at !== this.pointed) { this.pointed = at; this.explain(at ?? null); }
  }

  tell() {
    if (!this.table.open || !this.shape) return;
    const { ends } = this, { series } = this.shape, newest = ends.map((_, at) => at).reverse().slice(0, ROWS);
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

const trouble = el("p", { class: "trouble", role: "alert", hidden: true });
const tiles = el("div", {}), figures = el("div", { class: "charts" }), tables = el("div", {}), drawn = new Map();
main.classList.add("sheet");
main.append(el("h1", {}, "Limits"), trouble, tiles, figures, tables);

follow(["limits"], (topic, state) => {
  const shape = Object.fromEntries(state);
  trouble.hidden = !shape.trouble;
  setText(trouble, shape.trouble || "");
  if (!shape.tiles) return;
  for (const spec of shape.charts) {
    if (!drawn.has(spec.key)) {
      drawn.set(spec.key, new Chart(spec));
      figures.append(drawn.get(spec.key).node);
    }
    drawn.get(spec.key).update(shape.ends, spec);
  }
  redraw(tiles, nodes(shape.tiles));
  redraw(tables, nodes(shape.tables));
  main.dataset.ready = "1";
});
