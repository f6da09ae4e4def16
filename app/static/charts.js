// Charts: each [data-chart] names a JSON document of columns and is drawn by uPlot, with colours
// from the style sheet: at once where it is seen, else when the browser has nothing better to do.
// One with data-follows-address takes axis, part and smoothing from the page's address and says when
// somebody drags over it. Arrow keys read a chart value by value. The sentence and the table beside a
// chart are the server's, the room for it the style sheet's.
"use strict";

window.nightlaneCharts = (() => {
  const REFRESH_MS = 1000;
  const drawn = new Map(); // node → {plot, shape, busy, again}
  const palette = new Map(); // asked once: every look at a style makes the browser work it out anew
  let first = null; // the charts seen at first, until each of them is drawn
  const HIDDEN = { points: { show: false }, spanGaps: true, class: "edge" };
  const TICKS = [...Array(13).keys()].flatMap((power) => [1, 2, 5].map((times) => Number(`${times}e${power - 3}`))); // 0.001 to 5e9 apart
  const WHOLE = TICKS.filter(Number.isInteger);
  const PAGE_KEYS = 10; // values that Page Up and Page Down pass over
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function colour(name) {
    if (!palette.has(name)) {
      const style = getComputedStyle(document.documentElement);
      // A chart's own, or one that means the same on every page: a run's slot, good, bad, warn.
      const found = style.getPropertyValue(`--chart-${name}`) || style.getPropertyValue(`--${name}`);
      palette.set(name, found.trim());
    }
    return palette.get(name);
  }

  function text(value, unit) {
    if (value == null) return "";
    if (unit === "share") return `${(value * 100).toFixed(1)} %`;
    const whole = Number.isInteger(value) || Math.abs(value) >= 1e4; // as the sentence below the chart
    return `${whole ? Math.round(value) : Number(value.toPrecision(4))}${unit ? ` ${unit}` : ""}`;
  }

  // Ticks are round numbers, however close they stand; ten digits drop what binary fractions add.
  function tick(value, unit) {
    return unit === "share" ? `${Number((value * 100).toPrecision(10))} %` : String(Number(value.toPrecision(10)));
  }

  // A place on the x axis, as the page around the chart writes numbers, whatever the browser's
  // language: steps and tokens whole, minutes and hours to three decimals.
  function placeOf(value) {
    return String(Number(value.toFixed(3)));
  }

  // For the longest of some numbers at an axis, in CSS pixels: a digit of its font takes less than 8.
  function roomOf(texts) {
    return 8 * Math.max(0, ...texts.map((text) => text.length));
  }

  function heightOf(node) {
    return parseFloat(getComputedStyle(node).getPropertyValue("--drawn"));
  }

  function lineOf(line, band, faint) {
    return {
      label: line.label,
      scale: line.axis,
      stroke: colour(line.colour),
      alpha: faint ? 0.4 : 1,
      width: faint ? 1 : 1.5,
      dash: line.dash,
      spanGaps: !line.holes && !line.gaps, // where nobody measured, or no number, nothing is drawn
      points: { show: (plot, index) => line.marks || alone(plot.data[index]) || cut(line, plot.data[index]), size: 6, fill: colour(line.colour) },
      paths: line.joined === false ? () => null : undefined,
      value: (_, value, __, index) => said(line, value, band, index),
    };
  }

  // A line through one point is none.
  function alone(values) {
    return values.reduce((found, value) => found + (value != null), 0) === 1;
  }

  // A value between two gaps is no line either; among many, nobody looks for one.
  function cut(line, values) {
    return line.gaps && values.length < 100;
  }

  // Of a stretch of steps its lowest and highest value too, of a gate its interval.
  function said(line, value, band, index) {
    const edges = line.marks ? band : line.low ? [line.low, line.high] : [];
    const ends = index != null && value != null ? edges.map((edge) => edge[index]) : [];
    return text(value, line.unit) + (ends.length && ends[0] != null ? ` (${text(ends[0], line.unit)} to ${text(ends[1], line.unit)})` : "");
  }

  // Of a line in the legend: its colour, its dashes, its points.
  function sample(line) {
    if (!line) return "";
    const ink = colour(line.colour);
    const dash = line.dash?.length ? line.dash : [1, 0];
    const ends = dash.map((_, index) => dash.slice(0, index + 1).reduce((sum, length) => sum + length));
    const pieces = ends.map((end, index) => `${index % 2 ? "transparent" : ink} ${end - dash[index]}px ${end}px`);
    const layers = line.marks ? [`radial-gradient(circle, ${ink} 3px, transparent 3.5px)`] : [];
    if (line.joined !== false) layers.push(`repeating-linear-gradient(90deg, ${pieces}) center / 100% 2px no-repeat`);
    return layers.join();
  }

  // The address says how; a chart of one moment (memory, a comparison) does not ask it.
  function asked(node) {
    return "followsAddress" in node.dataset ? new URL(location.href).searchParams : new URLSearchParams();
  }

  function addressOf(node) {
    const address = new URL(node.dataset.chart, location.href);
    const wanted = asked(node);
    for (const name of ["axis", "from", "to", "smooth"]) {
      if (wanted.has(name)) address.searchParams.set(name, wanted.get(name));
    }
    return address;
  }

  function smoothing(node) {
    const share = Number(asked(node).get("smooth") ?? 0);
    return share > 0 && share < 1 ? share : 0;
  }

  // Exponential moving average, its beginning not pulled towards zero. That of a part goes on from
  // what the steps before it left behind.
  function smoothed({ values, start }, share) {
    let [sum, weight] = start ?? [0, 0];
    return values.map((value) => {
      if (value == null) return null;
      sum = share * sum + (1 - share) * value;
      weight = share * weight + (1 - share);
      return sum / weight;
    });
  }

  // Where uPlot sees no value of an edge it fills nothing: a part between two gates has none.
  function filled(values, x) {
    const found = [...values];
    let before = -1;
    values.forEach((value, at) => {
      if (value == null) return;
      for (let between = before + 1; before >= 0 && between < at; between++) {
        const share = (x[between] - x[before]) / (x[at] - x[before]) || 0;
        found[between] = values[before] + share * (value - values[before]);
      }
      before = at;
    });
    return found;
  }

  // A run's charts come with the ends of their axes; a log axis has those of what is above zero.
  function scaleOf(side, entry, log) {
    if (!log) return { range: (_, low, high) => entry.drawing.ends?.[side] ?? uPlot.rangeNum(low, high, 0.1, true) };
    return { distr: 3, log: 10, range: (_, low, high) => (low > 0 ? uPlot.rangeLog(low, high, 10, true) : [0.1, 1]) };
  }

  function isLog(node) {
    return asked(node).get("scale") === "log";
  }

  // A tick at each gate on the lower edge, a whole line at the step that was chosen. A gate alone has
  // no area to be its interval: it bears it as a line.
  function drawGates(plot, entry) {
    const { gates, selected } = entry.drawing;
    const { ctx, bbox } = plot;
    const bottom = bbox.top + bbox.height;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    const upright = (at, from, to) => {
      const x = Math.round(plot.valToPos(at, "x", true)) + devicePixelRatio / 2;
      ctx.beginPath();
      ctx.moveTo(x, from);
      ctx.lineTo(x, to);
      ctx.stroke();
    };
    ctx.strokeStyle = colour("frame");
    for (const step of gates) upright(step, bottom, bottom - 5 * devicePixelRatio);
    if (selected != null) {
      const x = plot.valToPos(selected, "x", true);
      ctx.strokeStyle = ctx.fillStyle = colour("held");
      upright(selected, bbox.top, bottom);
      ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
      const room = x - bbox.left > 60 * devicePixelRatio;
      ctx.textAlign = room ? "right" : "left";
      ctx.fillText("chosen", x + (room ? -6 : 6) * devicePixelRatio, bottom - 10 * devicePixelRatio);
    }
    const [low, high] = entry.drawing.band;
    const only = low.findIndex((edge) => edge != null);
    if (only >= 0 && only === low.findLastIndex((edge) => edge != null)) {
      ctx.lineWidth = 1.5 * devicePixelRatio;
      ctx.strokeStyle = colour("b");
      upright(entry.drawing.x[only], ...[low, high].map((edge) => plot.valToPos(edge[only], "left", true)));
    }
    ctx.restore();
  }

  // A warning: a dotted line at its step under its number. The gate that was chosen: a larger dot.
  // What is no number: a small x below.
  function drawFlags(plot, entry) {
    const { ctx, bbox } = plot;
    const [bottom, px] = [bbox.top + bbox.height, devicePixelRatio];
    ctx.save();
    ctx.lineWidth = px;
    ctx.font = `600 ${11 * px}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.strokeStyle = colour("warn");
    for (const [at, number] of entry.drawing.flags ?? []) {
      const x = Math.round(plot.valToPos(at, "x", true));
      ctx.setLineDash([px, 3 * px]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bottom);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.fillStyle = colour("warn-wash");
      ctx.fillRect(x - 8 * px, bbox.top, 16 * px, 15 * px);
      ctx.strokeRect(x - 8 * px, bbox.top, 16 * px, 15 * px);
      ctx.fillStyle = colour("warn");
      ctx.fillText(String(number), x, bbox.top + 8 * px);
    }
    const held = entry.drawing.lines.find((line) => line.marks && line.axis === "left");
    const chosen = held?.values[entry.drawing.x.indexOf(entry.drawing.selected)];
    if (chosen != null) {
      ctx.fillStyle = colour(held.colour);
      ctx.beginPath();
      ctx.arc(plot.valToPos(entry.drawing.selected, "x", true), plot.valToPos(chosen, "left", true), 5 * px, 0, 2 * Math.PI);
      ctx.fill();
    }
    ctx.strokeStyle = colour("bad");
    const lost = new Set(entry.drawing.lines.flatMap((line) => line.gaps ?? []));
    for (const place of lost) {
      const x = Math.round(plot.valToPos(entry.drawing.x[place], "x", true));
      const y = bottom - 5 * px;
      ctx.beginPath();
      for (const side of [-1, 1]) {
        ctx.moveTo(x - 3 * px, y - side * 3 * px);
        ctx.lineTo(x + 3 * px, y + side * 3 * px);
      }
      ctx.stroke();
    }
    ctx.restore();
  }

  // Attempts, warm-up, gates and waits: a paper behind the lines, its name where there is room.
  function drawShades(plot, entry) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    for (const [label, first, last] of entry.drawing.shades ?? []) {
      const begin = Math.max(bbox.left, plot.valToPos(first, "x", true));
      const end = Math.min(bbox.left + bbox.width, plot.valToPos(last, "x", true));
      if (end <= begin) continue;
      ctx.fillStyle = colour("grid");
      ctx.fillRect(begin, bbox.top, end - begin, bbox.height);
      ctx.fillStyle = colour("ink");
      if (ctx.measureText(label).width + 8 < end - begin) ctx.fillText(label, begin + 4, bbox.top + 13 * devicePixelRatio);
    }
    ctx.restore();
  }

  function options(node, entry) {
    const { drawing } = entry;
    const [share, log] = [smoothing(node), isLog(node)];
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: colour("ink"), grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, font };
    const named = (label) => (label ? { label, labelSize: 16, labelFont: font } : {});
    const axes = [
      {
        ...axis,
        ...named(drawing.x_label),
        grid: { show: false },
        size: 24,
        values: (_, values) => values.map(placeOf),
        incrs: () => (entry.drawing.x.every(Number.isInteger) ? WHOLE : TICKS), // nothing is at step 1.5
        space: (_, __, low, high) => Math.max(50, 16 + roomOf([placeOf(low), placeOf(high)])),
      },
    ];
    const scales = { x: { time: false, range: (_, low, high) => entry.drawing.range ?? [low, high] } };
    for (const side of ["left", "right"]) {
      const lines = drawing.lines.filter((line) => line.axis === side);
      if (!lines.length) continue;
      scales[side] = scaleOf(side, entry, log);
      const right = side === "right";
      const { unit } = lines[0];
      axes.push({
        ...axis,
        ...named(unit === "share" ? "" : unit),
        scale: side,
        side: right ? 1 : 3,
        size: (_, values) => Math.max(40, 10 + roomOf((values ?? []).filter((one) => one != null))),
        stroke: right ? colour(lines[0].colour) : colour("ink"),
        grid: { ...axis.grid, show: !right },
        values: (_, values) => values.map((value) => (value == null ? null : tick(value, unit))),
      });
    }
    const place = { label: drawing.x_label, value: (_, value) => (value == null ? "" : placeOf(value)) };
    const series = [place, ...drawing.lines.map((line) => lineOf(line, drawing.band, share && !line.marks))];
    const bands = [];
    const pair = (scale, fill) => {
      const [low, high] = [series.length, series.length + 1];
      series.push({ ...HIDDEN, scale, stroke: "transparent" }, { ...HIDDEN, scale, stroke: "transparent" });
      bands.push({ series: [high, low], fill });
    };
    if (drawing.band.length) pair("left", colour("band"));
    for (const line of drawing.lines) {
      if (line.low) pair(line.axis, `color-mix(in srgb, ${colour(line.colour)} 28%, transparent)`);
    }
    for (const line of drawing.lines) {
      if (share && !line.marks) series.push({ ...HIDDEN, spanGaps: !line.gaps, scale: line.axis, stroke: colour(line.colour), width: 2, dash: line.dash });
    }
    const hooks = {
      drawAxes: [(plot) => drawShades(plot, entry), ...(drawing.band.length ? [(plot) => drawGates(plot, entry)] : [])],
      draw: [(plot) => drawFlags(plot, entry), () => stands(node)],
      setSelect: [(plot) => zoom(plot, entry)],
    };
    const drag = { x: "followsAddress" in node.dataset, y: false, setScale: false };
    const legend = { markers: { width: 0, fill: (_, index) => sample(drawing.lines[index - 1]) } };
    const beside = document.getElementById(node.dataset.readings); // its values stand there, not below it
    if (beside) legend.mount = (_, table) => beside.replaceChildren(table);
    // One cursor for all charts of a run along the same axis.
    const sync = "followsAddress" in node.dataset ? { key: drawing.x_label, filters: { pub: (type) => type === "mousemove" } } : {};
    // Half of the last number stands beyond the plot; an axis at the right has room for it.
    const beyond = () => Math.max(25, 4 + roomOf([placeOf(entry.drawing.range?.[1] ?? entry.drawing.x.at(-1))]) / 2);
    const padding = [null, (_, __, [, right]) => (right ? 0 : beyond()), null, null];
    return { width: entry.width ?? node.clientWidth, height: heightOf(node), padding, axes, scales, series, bands, hooks, legend, cursor: { y: false, drag, sync } };
  }

  // What another line measured elsewhere interrupts nothing: uPlot joins over undefined, not over null.
  function joined(line, values) {
    const gaps = new Set(line.gaps);
    return gaps.size ? values.map((value, index) => (value == null && !gaps.has(index) ? undefined : value)) : values;
  }

  function columns(node, drawing) {
    const share = smoothing(node);
    const found = [
      ...drawing.lines.map((line) => joined(line, line.values)),
      ...(drawing.range ? drawing.band.map((edge) => filled(edge, drawing.x)) : drawing.band),
      ...drawing.lines.flatMap((line) => (line.low ? [line.low, line.high] : [])),
      ...drawing.lines.flatMap((line) => (share && !line.marks ? [joined(line, smoothed(line, share))] : [])),
    ];
    // On a log axis there is no place for zero and what is below it.
    return [drawing.x, ...(isLog(node) ? found.map((values) => values.map((value) => (value > 0 ? value : value == null ? value : null))) : found)];
  }

  // --- zoom: the dragged part, in steps, is asked for again, with more detail ---

  function zoom(plot, entry) {
    const { left, width } = plot.select;
    if (width < 8) return;
    const steps = entry.drawing.steps ?? entry.drawing.x;
    const [from, to] = [plot.posToIdx(left), plot.posToIdx(left + width)].map((index) => steps[index]);
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (to > from) document.dispatchEvent(new CustomEvent("nightlane:zoom", { detail: { from, to } }));
  }

  // --- keys: a line at one value, and what stands there in words ---

  function frame(node, entry) {
    if (entry.readout) return;
    node.tabIndex = 0;
    node.setAttribute("role", "group");
    node.setAttribute("aria-roledescription", "chart");
    node.setAttribute("aria-label", `${node.dataset.title ?? entry.drawing.title}: left and right arrow keys read the values`);
    entry.said = document.createElement("p");
    entry.said.className = "drawn quiet";
    entry.readout = document.createElement("p");
    entry.readout.className = "readout";
    entry.readout.setAttribute("aria-live", "polite");
    node.append(entry.said, entry.readout);
    node.addEventListener("keydown", (event) => walk(event, entry));
    node.addEventListener("blur", () => leave(entry));
  }

  function walk(event, entry) {
    const { plot, drawing } = entry;
    if (!plot || event.ctrlKey || event.metaKey || event.altKey) return;
    const [first, last] = seen(drawing);
    const now = entry.at ?? (event.key === "ArrowLeft" || event.key === "PageUp" ? last + 1 : first - 1);
    const to = {
      ArrowRight: now + 1,
      ArrowLeft: now - 1,
      PageDown: now + PAGE_KEYS,
      PageUp: now - PAGE_KEYS,
      Home: first,
      End: last,
    }[event.key];
    if (event.key === "Escape") leave(entry);
    if (to === undefined) return;
    event.preventDefault();
    entry.at = Math.min(last, Math.max(first, to));
    plot.setCursor({ left: plot.valToPos(drawing.x[entry.at], "x"), top: 0 }, true, true);
    const values = drawing.lines
      .filter((line) => line.values[entry.at] != null || line.gaps?.includes(entry.at))
      .map((line) => `${line.label} ${said(line, line.values[entry.at], drawing.band, entry.at) || "not a number"}`);
    entry.readout.textContent = `${drawing.x_label} ${placeOf(drawing.x[entry.at])}: ${values.join(", ")}`;
  }

  // The first and the last place of the part; a part without any has those on both sides of it.
  function seen({ x, range }) {
    const whole = [0, x.length - 1];
    if (!range) return whole;
    const part = [x.findIndex((at) => at >= range[0]), x.findLastIndex((at) => at <= range[1])];
    return part[0] >= 0 && part[0] <= part[1] ? part : whole;
  }

  function leave(entry) {
    if (entry.at === undefined) return;
    delete entry.at;
    entry.plot?.setCursor({ left: -10, top: -10 }, true, true);
    entry.readout.textContent = "";
  }

  function draw(node, drawing) {
    const entry = drawn.get(node);
    entry.drawing = drawing;
    node.classList.toggle("has-values", drawing.x.length > 0);
    if (!drawing.x.length) {
      entry.plot?.destroy();
      delete entry.plot;
      stands(node);
      return;
    }
    frame(node, entry);
    const share = smoothing(node);
    const coarse = share && drawing.lines.some((line) => line.low && !line.marks);
    const below = isLog(node) && drawing.lines.some((line) => line.values.some((value) => value != null && value <= 0));
    entry.said.textContent = (drawing.said ?? "") + (below ? "; what is not above zero has no place on a log axis" : "") + (coarse ? "; smoothed point by point, so a closer look smooths over fewer steps" : "");
    const shape = JSON.stringify([share, isLog(node), drawing.x_label, drawing.lines.map((line) => [line.label, Boolean(line.low), Boolean(line.gaps)])]);
    if (entry.plot && entry.shape === shape) {
      entry.plot.setData(columns(node, drawing));
    } else {
      entry.plot?.destroy(); // a line has got its first value, or is drawn another way
      entry.shape = shape;
      entry.plot = new uPlot(options(node, entry), columns(node, drawing), (plot, ready) => {
        node.prepend(plot.root);
        ready();
      });
    }
  }

  // For who measures: when every chart that is seen at first has its lines on the canvas, and when
  // the frame with them has been made.
  function stands(node) {
    if (!first?.delete(node) || first.size) return;
    first = null;
    performance.mark("charts-drawn");
    requestAnimationFrame(() => setTimeout(() => performance.mark("charts-shown")));
  }

  async function load(node) {
    const entry = drawn.get(node);
    if (entry.busy) {
      entry.again = true;
      return;
    }
    entry.busy = true;
    const mine = (entry.asked = (entry.asked ?? 0) + 1);
    try {
      const answer = await fetch(addressOf(node), { headers: { Accept: "application/json" } });
      const drawing = answer.ok ? await answer.json() : null;
      if (mine !== entry.asked) return; // of the address that was: another part is asked for by now
      if (drawing) draw(node, drawing);
    } catch {
      // The connection's own words say that the cockpit does not answer.
      if (mine !== entry.asked) return;
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
    for (const { target, contentRect } of changes) {
      const entry = drawn.get(target);
      if (!entry) continue;
      entry.width = contentRect.width;
      // The first call tells of the width that it was drawn with.
      if (entry.plot && entry.plot.width !== entry.width) entry.plot.setSize({ width: entry.width, height: heightOf(target) });
    }
  });
  const idle = window.requestIdleCallback ?? setTimeout;

  // All are measured before one is drawn: a look behind each drawing would lay out the page again.
  function mount() {
    const seen = [];
    for (const node of document.querySelectorAll("[data-chart]")) {
      // What is folded away is drawn when it is opened.
      if (drawn.has(node) || node.closest("details:not([open])")) continue;
      const { top, bottom } = node.getBoundingClientRect();
      drawn.set(node, { width: node.clientWidth });
      if (top < innerHeight && bottom >= 0) seen.push(node);
      else idle(() => begin(node));
    }
    first ??= seen.length ? new Set(seen) : null;
    seen.forEach(begin);
    for (const [node, entry] of drawn) {
      if (node.isConnected) continue;
      resized.unobserve(node);
      entry.plot?.destroy();
      drawn.delete(node);
    }
  }

  function begin(node) {
    const entry = drawn.get(node);
    if (!entry) return;
    resized.observe(node);
    if (entry.drawing || entry.busy) return;
    load(node);
  }

  function refresh() {
    for (const node of drawn.keys()) load(node);
  }

  // At once, whatever was asked for lately: a person has moved a control.
  function reload() {
    for (const [node, entry] of drawn) {
      if (!("followsAddress" in node.dataset)) continue;
      entry.busy = false;
      load(node);
    }
  }

  function redraw() {
    for (const [node, entry] of drawn) {
      if (!entry.plot) continue;
      entry.plot.destroy();
      delete entry.plot;
      draw(node, entry.drawing);
    }
  }

  dark.addEventListener("change", () => {
    palette.clear();
    redraw();
  });
  mount();
  return { mount, refresh, reload, redraw };
})();
