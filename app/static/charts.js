// Charts: each [data-chart] names a JSON document of columns and is drawn by uPlot, with colours
// from the style sheet. The sentence and the table beside a chart are the server's.
"use strict";

window.nightlaneCharts = (() => {
  const REFRESH_MS = 1000;
  const HEIGHT = { learning: 300 };
  const PLAIN_HEIGHT = 220;
  const drawn = new Map(); // node → {plot, shape, busy, again}
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--chart-${name}`).trim();
  }

  function text(value, unit) {
    if (value == null) return "";
    if (unit === "share") return `${(value * 100).toFixed(1)} %`;
    return `${Number(value.toPrecision(4))}${unit ? ` ${unit}` : ""}`;
  }

  function tick(value, unit) {
    return unit === "share" ? `${Number((value * 100).toPrecision(3))} %` : String(Number(value.toPrecision(4)));
  }

  function heightOf(node) {
    return HEIGHT[node.closest("[data-name]").dataset.name] ?? PLAIN_HEIGHT;
  }

  function lineOf(line, band) {
    return {
      label: line.label,
      scale: line.axis,
      stroke: colour(line.colour),
      width: line.marks ? 2 : 1.5,
      spanGaps: true,
      points: { show: line.marks, size: 7, fill: colour(line.colour) },
      value: (_, value, __, index) => {
        const ends = line.marks && index != null && value != null ? band.map((edge) => edge[index]) : [];
        return text(value, line.unit) + (ends.length && ends[0] != null ? ` (${text(ends[0], line.unit)} to ${text(ends[1], line.unit)})` : "");
      },
    };
  }

  function scaleOf(lines) {
    // Shares end on round fifths, so that the picture does not jump with each new value.
    const share = lines.every((line) => line.unit === "share");
    if (!share) return { range: (_, low, high) => uPlot.rangeNum(low, high, 0.1, true) };
    return { range: (_, low, high) => [Math.max(0, Math.floor((low - 0.02) * 5) / 5), Math.min(1, Math.ceil((high + 0.02) * 5) / 5)] };
  }

  // A thin line at each gate, a dashed one at the step that held-out picked, and at each gate a
  // thick one as long as the gap between pool and held-out.
  function drawGates(plot, entry) {
    const { gates, gaps, selected } = entry.drawing;
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    for (const step of selected == null || gates.includes(selected) ? gates : [...gates, selected]) {
      const x = Math.round(plot.valToPos(step, "x", true));
      ctx.strokeStyle = colour(step === selected ? "b" : "gate");
      ctx.setLineDash(step === selected ? [6, 4] : []);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      if (step !== selected) continue;
      ctx.fillStyle = colour("b");
      ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
      const room = bbox.left + bbox.width - x > 80 * devicePixelRatio;
      ctx.textAlign = room ? "left" : "right";
      ctx.fillText("selected", x + (room ? 6 : -6) * devicePixelRatio, bbox.top + bbox.height - 8 * devicePixelRatio);
    }
    ctx.setLineDash([]);
    ctx.lineWidth = 4 * devicePixelRatio;
    ctx.strokeStyle = colour("gap");
    for (const [step, pool, heldout] of gaps) {
      const x = Math.round(plot.valToPos(step, "x", true));
      ctx.beginPath();
      ctx.moveTo(x, plot.valToPos(pool, "left", true));
      ctx.lineTo(x, plot.valToPos(heldout, "left", true));
      ctx.stroke();
    }
    ctx.restore();
  }

  function options(node, entry) {
    const { drawing } = entry;
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: colour("ink"), grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, font };
    const axes = [{ ...axis, label: drawing.x_label, labelSize: 16, size: 30, labelFont: font }];
    const scales = { x: { time: false } };
    for (const side of ["left", "right"]) {
      const lines = drawing.lines.filter((line) => line.axis === side);
      if (!lines.length) continue;
      scales[side] = scaleOf(lines);
      const right = side === "right";
      axes.push({
        ...axis,
        scale: side,
        side: right ? 1 : 3,
        size: 58,
        stroke: right ? colour(lines[0].colour) : colour("ink"),
        grid: { ...axis.grid, show: !right },
        values: (_, values) => values.map((value) => tick(value, lines[0].unit)),
      });
    }
    const series = [{ label: drawing.x_label }, ...drawing.lines.map((line) => lineOf(line, drawing.band))];
    const bands = [];
    if (drawing.band.length) {
      const [low, high] = [series.length, series.length + 1];
      const edge = { scale: "left", stroke: "transparent", points: { show: false }, spanGaps: true, class: "edge" };
      series.push({ ...edge }, { ...edge });
      bands.push({ series: [high, low], fill: colour("band") });
    }
    const hooks = drawing.band.length ? { drawAxes: [(plot) => drawGates(plot, entry)] } : {};
    return { width: node.clientWidth, height: heightOf(node), axes, scales, series, bands, hooks, cursor: { y: false } };
  }

  function columns(drawing) {
    return [drawing.x, ...drawing.lines.map((line) => line.values), ...drawing.band];
  }

  function draw(node, drawing) {
    const entry = drawn.get(node);
    entry.drawing = drawing;
    node.classList.toggle("has-values", drawing.x.length > 0);
    if (!drawing.x.length) return;
    const shape = drawing.lines.map((line) => line.label).join();
    if (entry.plot && entry.shape === shape) {
      entry.plot.setData(columns(drawing));
      return;
    }
    entry.plot?.destroy(); // a line has got its first value
    entry.shape = shape;
    entry.plot = new uPlot(options(node, entry), columns(drawing), node);
  }

  async function load(node) {
    const entry = drawn.get(node);
    if (entry.busy) {
      entry.again = true;
      return;
    }
    entry.busy = true;
    try {
      const answer = await fetch(node.dataset.chart, { headers: { Accept: "application/json" } });
      if (answer.ok) draw(node, await answer.json());
    } catch {
      // The connection's own words say that the cockpit does not answer.
    }
    setTimeout(() => {
      entry.busy = false;
      if (entry.again) {
        entry.again = false;
        load(node);
      }
    }, REFRESH_MS);
  }

  const resized = new ResizeObserver((changes) => {
    for (const { target } of changes) drawn.get(target)?.plot?.setSize({ width: target.clientWidth, height: heightOf(target) });
  });

  function mount() {
    for (const node of document.querySelectorAll("[data-chart]")) {
      if (drawn.has(node)) continue;
      drawn.set(node, {});
      resized.observe(node);
      load(node);
    }
    for (const [node, entry] of drawn) {
      if (node.isConnected) continue;
      resized.unobserve(node);
      entry.plot?.destroy();
      drawn.delete(node);
    }
  }

  function refresh() {
    for (const node of drawn.keys()) load(node);
  }

  dark.addEventListener("change", () => {
    for (const [node, entry] of drawn) {
      if (!entry.plot) continue;
      entry.plot.destroy();
      delete entry.plot;
      draw(node, entry.drawing);
    }
  });
  document.addEventListener("DOMContentLoaded", mount);
  return { mount, refresh };
})();
