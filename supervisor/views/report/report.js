"use strict";
(() => {
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const charts = JSON.parse(document.getElementById("charts").textContent);

  // --- charts: rows of horizontal spans; uPlot gives the scales, the axes and the canvas ---

  const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif";
  const COLORS = { per: "accent", plain: "tint", work: "accent", setup: "setup", held: "held", bad: "high" };
  const TALL = { medium: 0.85, low: 0.7 }; // of a bar: severities differ by height where a piece is too narrow for its sign
  const SIGNS = { high: "▲", medium: "◆", low: "●", bad: "✗" };
  const pen = document.createElement("canvas").getContext("2d");
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const measure = text => { pen.font = FONT; return pen.measureText(text).width; };

  function shorten(text, room, keep) {
    if (measure(text) <= room) return text;
    let low = 0, high = text.length;
    const cut = size => (keep === "tail" ? `…${text.slice(text.length - size)}` : `${text.slice(0, size)}…`);
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (measure(cut(middle)) <= room) low = middle; else high = middle - 1;
    }
    return cut(low);
  }

  // Where a span lies, in pixels of the plot: of the canvas when `canvas`, else of the page.
  function place(u, chart, [row, lane, begin, end, style], canvas) {
    const left = u.valToPos(begin, "x", canvas), right = u.valToPos(end, "x", canvas);
    const step = Math.abs(u.valToPos(1, "y", canvas) - u.valToPos(0, "y", canvas));
    const height = (step * 0.64) / chart.lanes;
    const tall = height * (TALL[style] ?? 1), top = u.valToPos(row, "y", canvas) - step * 0.32 + lane * height + height - tall;
    return { left, top, width: Math.max(right - left, canvas ? uPlot.pxRatio : 1), height: tall - (chart.lanes > 1 ? 1 : 0) };
  }

  function fill(ctx, style, box) {
    ctx.fillStyle = color(COLORS[style] ?? style);
    if (style !== "held") return ctx.fillRect(box.left, box.top, box.width, box.height);
    ctx.save(); // held: hatched, so that it is no work even without colours
    ctx.beginPath();
    ctx.rect(box.left, box.top, box.width, box.height);
    ctx.clip();
    const step = 4 * uPlot.pxRatio;
    for (let x = box.left - box.height; x < box.left + box.width; x += step) {
      ctx.beginPath();
      ctx.moveTo(x, box.top + box.height);
      ctx.lineTo(x + box.height, box.top);
      ctx.lineTo(x + box.height + step / 2, box.top);
      ctx.lineTo(x + step / 2, box.top + box.height);
      ctx.fill();
    }
    ctx.restore();
  }

  function paint(u, chart) {
    const { ctx } = u;
    ctx.save();
    ctx.font = `600 ${11 * uPlot.pxRatio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    for (const span of chart.spans) {
      const box = place(u, chart, span, true), style = span[4], sign = SIGNS[style];
      fill(ctx, style, box);
      if (!sign && chart.lanes === 1) continue;
      const outside = chart.lanes > 1; // beside its bar, since a score of 0 has none
      const room = outside ? Infinity : box.width, gap = Math.min(4, room / uPlot.pxRatio / 8) * uPlot.pxRatio;
      const full = style === "bad" ? sign : `${sign ?? ""} ${span[3] - span[2]}`.trim();
      const text = [full, sign].find(one => one && ctx.measureText(one).width + 2 * gap <= room);
      if (!text) continue;
      ctx.fillStyle = color(outside ? "muted" : "paper");
      ctx.fillText(text, box.left + gap + (outside ? box.width : 0), box.top + box.height / 2);
    }
    ctx.restore();
  }

  function tooltip(u, chart) {
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    u.over.append(tip);
    const move = event => {
      const edge = u.over.getBoundingClientRect(), x = event.clientX - edge.left, y = event.clientY - edge.top;
      const hit = chart.spans.find(span => {
        const box = place(u, chart, span, false);
        return x >= box.left - 2 && x <= box.left + box.width + 2 && y >= box.top && y <= box.top + box.height;
      });
      tip.hidden = !hit;
      if (!hit) return;
      tip.textContent = hit[5];
      const left = Math.max(0, Math.min(x + 12, edge.width - tip.offsetWidth)), above = y - tip.offsetHeight - 8;
      tip.style.transform = `translate(${left}px, ${above < 0 ? y + 16 : above}px)`;
    };
    u.over.addEventListener("pointermove", move);
    u.over.addEventListener("pointerdown", move);
    u.over.addEventListener("pointerleave", () => { tip.hidden = true; });
  }

  function draw(holder) {
    const chart = charts[holder.dataset.chart], width = holder.clientWidth;
    if (!chart || !width) return;
    const rows = chart.rows.length, step = chart.lanes > 1 ? 34 : 26;
    const beside = Object.values(charts).filter(other => other.unit && other.unit === chart.unit); // panels on one scale begin at one place
    const room = Math.min(Math.max(...[chart, ...beside].flatMap(one => one.rows).map(measure)) + 2, width * (width < 600 ? 0.4 : 0.34));
    const labels = chart.rows.map(text => shorten(text, room, chart.keep));
    const grid = { stroke: color("line"), width: 1 };
    holder.replaceChildren();
    const u = new uPlot({
      width,
      height: rows * step + 34,
      padding: [2, chart.lanes > 1 ? 40 : 22, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      series: [{}, { show: true, paths: () => null, points: { show: false } }],
      scales: { x: { time: false, range: () => [0, chart.max] }, y: { dir: -1, range: () => [-0.5, rows - 0.5] } },
      axes: [
        { stroke: color("muted"), font: FONT, grid, ticks: { show: false }, size: 30, space: 60, incrs: [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 36000].filter(step => chart.unit || step >= 1),
          values: (_, ticks) => ticks.map(at => (chart.unit ? duration(at) : `${at}`)) },
        { stroke: color("ink"), font: FONT, grid: { show: false }, ticks: { show: false }, size: room + 12, gap: 8,
          splits: () => labels.map((_, index) => index), values: () => labels },
      ],
      hooks: { draw: [u => paint(u, chart)] },
    }, [[0, chart.max], [null, null]], holder);
    tooltip(u, chart);
  }

  document.documentElement.classList.add("scripts");
  const holders = all(".chart");
  const redraw = () => holders.forEach(draw);
  redraw();
  let drawnAt = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === drawnAt) return; // a phone's address bar comes and goes: only the width matters
    drawnAt = innerWidth;
    requestAnimationFrame(redraw);
  });
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", redraw);

  // --- the findings' filter ---

  const form = document.querySelector(".filter");
  if (form) {
    const rows = all(".findings tbody tr").map(row => ({
      row,
      severity: row.cells[0].textContent.trim(),
      perspective: row.cells[4].textContent.trim(),
      text: row.textContent.toLowerCase(),
    }));
    const apply = () => {
      const { perspective, severity, text } = form.elements;
      const words = text.value.toLowerCase().split(/\s+/);
      let shown = 0;
      for (const one of rows) {
        const fits = (!perspective.value || one.perspective === perspective.value) && (!severity.value || one.severity === severity.value)
          && words.every(word => one.text.includes(word));
        one.row.hidden = !fits;
        shown += fits;
      }
      form.querySelector("output").textContent = shown === rows.length ? `${shown} shown` : `${shown} of ${rows.length} shown`;
    };
    form.hidden = false;
    form.addEventListener("input", apply);
    form.addEventListener("submit", event => event.preventDefault());
    apply();
  }
})();
