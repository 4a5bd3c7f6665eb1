// Two charts of a verdict: the score under each solver against its cost, and where the safe step is.

/** The size of a chart: that of its place, so that letters are as large on a phone as on a desk. */
function boxOf(place) {
  const width = clampTo(place.clientWidth || 860, 300, 940);
  return { width, height: width < 560 ? 280 : 340, left: 68, right: width < 560 ? 18 : 104, top: 16, bottom: 46 };
}

/** From values to positions along an axis of pixels; logarithmic where values span powers. */
function scale(low, high, from, to, logarithmic) {
  const f = logarithmic ? Math.log2 : (value) => value;
  const span = f(high) - f(low) || 1;
  return (value) => from + ((f(value) - f(low)) / span) * (to - from);
}

/** Whether scores are drawn by their powers: errors, as long as all are positive. */
const byPowers = (record, scores) => record.kind === "errors" && scores.every((score) => score > 0);

function powersOfTen(low, high) {
  const ticks = [];
  for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power++) ticks.push(Number(`1e${power}`));
  const every = Math.ceil(ticks.length / 7);
  return ticks.length > 1 ? ticks.filter((_, i) => i % every === 0) : [low, Math.sqrt(low * high), high];
}

/** Round numbers between two values. */
function ticksBetween(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++) ticks.push(n * step);
  return ticks;
}

function powersBetween(low, high) {
  const powers = [];
  for (let power = Math.ceil(Math.log2(low) - 1e-9); power <= Math.log2(high) + 1e-9; power++) powers.push(2 ** power);
  const every = Math.ceil(powers.length / 9);
  return powers.filter((_, i) => i % every === 0);
}

function drawAxes(svg, box, { x, y, xTicks, yTicks, xWords, yWords, xTitle, yTitle }) {
  const { left, top, width, height, right, bottom } = box;
  for (const tick of yTicks) {
    svg.append(
      draw("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), stroke: "var(--line)" }),
      draw("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end", class: "faint", text: yWords(tick) }),
    );
  }
  let end = -Infinity; // where the last name ended: one that would touch it is left out
  for (const tick of [...xTicks].sort((a, b) => x(a) - x(b))) {
    const [text, half] = [xWords(tick), 3.8 * xWords(tick).length];
    if (x(tick) - half < end + 4) continue;
    svg.append(draw("text", { x: x(tick), y: height - bottom + 20, "text-anchor": "middle", class: "faint", text }));
    end = x(tick) + half;
  }
  svg.append(
    draw("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle", text: xTitle }),
    draw("text", { x: -(top + height - bottom) / 2, y: 11, transform: "rotate(-90)", "text-anchor": "middle", text: yTitle }),
  );
}

const METHOD_SHAPES = { euler: 0, midpoint: 3, rk4: 1, heun: 2 };

/** A mark of a method, as an SVG path around the origin. */
function markPath(kind, r) {
  if (kind === 1) return `M0,${-1.2 * r}L${1.1 * r},${0.8 * r}L${-1.1 * r},${0.8 * r}Z`;
  if (kind === 2) return `M${-r},${-r}H${r}V${r}H${-r}Z`;
  if (kind === 3) return `M0,${-1.3 * r}L${1.3 * r},0L0,${1.3 * r}L${-1.3 * r},0Z`;
  if (kind === 4) return `M0,${1.2 * r}L${1.1 * r},${-0.8 * r}L${-1.1 * r},${-0.8 * r}Z`;
  return `M${-r},0A${r},${r} 0 1 1 ${r},0A${r},${r} 0 1 1 ${-r},0Z`;
}

function methodsOf(lines) {
  const names = [...new Set(lines.map((line) => line.method))];
  let next = 4;
  return new Map(names.map((name) => [name, METHOD_SHAPES[name] ?? next++ % 5]));
}

function accuracyWords(record, accurate) {
  const word = isOfFlowAlone(record) ? "" : accurate ? "counts: " : "does not count: ";
  return word + (accurate ? "at least as accurate" : "less accurate");
}

function lineWords(record, line, own) {
  const words = [`${line.solver}${own ? " (its own)" : ""}`, `${metricName(record)}: ${scoreWords(record, line.metric)}`];
  if (line.evaluations) words.push(`evaluations: ${line.evaluations}`);
  if (isNumber(line.agreement_reference)) words.push(`same as the flow: ${(100 * line.agreement_reference).toFixed(1)}%`);
  if (isNumber(line.error)) words.push(`distance from the flow: ${roughWords(line.error)}`);
  if (!own) words.push(accuracyWords(record, line.counts));
  return words.join("\n");
}

/** The range of scores: those that count, the flow, the band; others only as far as they leave these readable. */
function scoreRange(record, lines, band) {
  const near = lines.filter((line) => line.counts || line.solver === record.own.solver).map((line) => line.metric);
  if (isNumber(record.reference?.metric)) near.push(record.reference.metric);
  let [low, high] = [Math.min(...near, band[0]), Math.max(...near, band[1])];
  const reach = 3 * (high - low);
  for (const { metric } of lines) {
    if (metric > low - reach) low = Math.min(low, metric);
    if (metric < high + reach) high = Math.max(high, metric);
  }
  const room = 0.06 * (high - low || 1);
  const top = isShare(record) && record.kind !== "movement" ? Math.min(1.02, high + room) : high + room;
  return [low - room, top];
}

/** The same where they are drawn by their powers: all of them. */
function powerRange(scores) {
  const known = scores.filter((score) => isNumber(score) && score > 0);
  return [Math.min(...known) / 1.5, Math.max(...known) * 1.5];
}

/** Scores that count as the same as the own solver's. */
function bandOf(record) {
  const { metric } = record.own;
  if (record.band && record.band.every(isNumber)) return record.band;
  const limit = Math.abs(record.threshold);
  return [metric - limit, metric + limit];
}

function metricChart(place, record) {
  const all = [record.own, ...(record.table || []).filter((line) => line.solver !== record.own.solver)];
  const lines = all.filter((line) => isNumber(line.metric) && !line.failed);
  if (!lines.length) return;
  const counted = lines.every((line) => line.evaluations > 0);
  const position = (line) => (counted ? line.evaluations : line.precision);
  const xs = lines.map(position);
  const band = bandOf(record);
  const powers = byPowers(record, lines.map((line) => line.metric));
  const [low, high] = powers ? powerRange([...lines.map((line) => line.metric), ...band, record.reference?.metric]) : scoreRange(record, lines, band);
  const box = boxOf(place);
  const { left, right, top, bottom, width, height } = box;
  const x = scale(Math.min(...xs) * 0.85, Math.max(...xs) * 1.18, left, width - right, true);
  const y = scale(low, high, height - bottom, top, powers);
  const title = `${metricName(record)} under each solver against its cost`;
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": title });
  const [bottomOfBand, topOfBand] = [y(Math.max(low, band[0])), y(Math.min(high, band[1]))];
  svg.append(draw("rect", { x: left, width: width - left - right, y: topOfBand, height: Math.max(0, bottomOfBand - topOfBand), fill: "var(--band)" }));
  drawAxes(svg, box, {
    x, y, xTicks: powersBetween(Math.min(...xs), Math.max(...xs)), yTicks: powers ? powersOfTen(low, high) : ticksBetween(low, high, 5),
    xWords: (tick) => (counted ? String(tick) : stepWords(tick)), yWords: (tick) => tickWords(record, tick),
    xTitle: counted ? "cost: evaluations of the field for one sample" : record.precision_name || "step", yTitle: metricName(record),
  });
  if (isNumber(record.reference?.metric)) addFlowLine(svg, box, y(record.reference.metric));
  const shapes = methodsOf(lines);
  addMethodLines(svg, lines, shapes, (line) => x(position(line)), (line) => clampTo(y(line.metric), top, height - bottom));
  addPoints(svg, record, lines, shapes, (line) => x(position(line)), (line) => clampTo(y(line.metric), top, height - bottom));
  place.replaceChildren(svg, chartLegend(record, shapes, isNumber(record.reference?.metric) && !hasMargin(box)));
}

const clampTo = (value, low, high) => Math.max(low, Math.min(high, value));

/** Whether there is room beside the chart for words; else the legend has them. */
const hasMargin = (box) => box.right > 50;

function addFlowLine(svg, box, at) {
  svg.append(draw("line", { x1: box.left, x2: box.width - box.right, y1: at, y2: at, stroke: "var(--ink)", "stroke-dasharray": "7 4", "stroke-width": 1.5 }));
  if (hasMargin(box)) svg.append(draw("text", { x: box.width - box.right + 98, y: at + 4, "text-anchor": "end", class: "halo", text: "the flow itself" }));
}

function addMethodLines(svg, lines, shapes, px, py) {
  for (const method of shapes.keys()) {
    const own = lines.filter((line) => line.method === method).sort((a, b) => px(a) - px(b));
    const path = own.map((line, i) => `${i ? "L" : "M"}${px(line).toFixed(1)},${py(line).toFixed(1)}`).join("");
    svg.append(draw("path", { d: path, fill: "none", stroke: "var(--coarse)", "stroke-width": 1, opacity: 0.6 }));
  }
}

function addPoints(svg, record, lines, shapes, px, py) {
  const order = [...lines].sort((a, b) => px(a) - px(b));
  const points = order.map((line) => {
    const own = line.solver === record.own.solver;
    const colour = own ? "var(--ink)" : line.counts ? "var(--counts)" : "var(--coarse)";
    const mark = draw("path", { d: markPath(shapes.get(line.method), own ? 9 : 6), fill: own ? colour : "var(--paper)", stroke: colour, "stroke-width": 2.2 });
    const around = draw("circle", { r: 13, fill: "transparent" });
    const element = draw("g", { class: "point", transform: `translate(${px(line).toFixed(1)} ${py(line).toFixed(1)})` }, around, mark);
    svg.append(element);
    return { element, words: lineWords(record, line, own) };
  });
  describePoints(points);
}

function legendItem(mark, text) {
  return make("li", {}, draw("svg", { viewBox: "-9 -9 18 18", "aria-hidden": "true" }, mark), text);
}

function chartLegend(record, shapes, withFlow) {
  const items = [...shapes].map(([name, kind]) =>
    legendItem(draw("path", { d: markPath(kind, 5), fill: "none", stroke: "var(--muted)", "stroke-width": 2 }), name));
  const square = (colour) => draw("rect", { x: -6, y: -6, width: 12, height: 12, fill: colour });
  const factor = bandOf(record)[1] / record.own.metric; // of mean squares, that of their roots squared
  const limit = record.kind === "errors" ? `${Number((Number.isFinite(factor) ? factor : record.threshold).toPrecision(3))} times` : isShare(record) ? pointsWords(+(100 * record.threshold).toFixed(2)) : Number(Number(record.threshold).toPrecision(3));
  if (withFlow) items.push(legendItem(draw("line", { x1: -9, x2: 9, y1: 0, y2: 0, stroke: "var(--ink)", "stroke-dasharray": "7 4", "stroke-width": 2 }), "the flow itself"));
  items.push(
    legendItem(draw("circle", { r: 8, fill: "var(--ink)" }), `its own solver: ${record.own.solver}`),
    legendItem(square("var(--counts)"), `${accuracyWords(record, true)} as its own`),
    legendItem(square("var(--coarse)"), accuracyWords(record, false)),
    legendItem(square("var(--band)"), `counts as the same: within ${limit}`),
  );
  return make("ul", { class: "legend" }, ...items);
}

/** The share of samples on which each step of the training method agrees with the flow; the safe ones stand on green. */
function safeChart(place, record) {
  const ladder = record.safe.ladder.map((rung) => (Array.isArray(rung) ? rung : [rung.precision, rung.agreement]));
  const xs = ladder.map(([precision]) => precision);
  const shares = ladder.map(([, share]) => share);
  const box = { ...boxOf(place), top: 32 }; // above the curve there is room for a name
  const { left, right, top, bottom, width, height } = box;
  const x = scale(Math.max(...xs) * 1.3, Math.min(...xs) * 0.77, left, width - right, true);
  const low = Math.max(0, Math.min(...shares) - 0.05);
  const y = scale(low, 1.01, height - bottom, top, false);
  const title = `outputs that are the same as the flow's, against the ${record.precision_name}`;
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": title });
  const safe = record.safe.precision;
  if (isNumber(safe)) {
    const from = x(safe) - 14;
    const late = from > width / 2;
    svg.append(
      draw("rect", { x: from, width: width - right - from, y: top, height: height - bottom - top, fill: "var(--good-back)" }),
      draw("text", {
        x: late ? width - right : from, y: 18, "text-anchor": late ? "end" : "start",
        text: `safe: ${precisionWords(record, safe)} and finer`, style: "fill: var(--good); font-weight: 650",
      }),
    );
  }
  drawAxes(svg, box, {
    x, y, xTicks: xs, yTicks: ticksBetween(low, 1, 5), xWords: (tick) => precisionWords(record, tick),
    yWords: (tick) => `${+(100 * tick).toFixed(1)}%`, xTitle: `${record.precision_name} of ${record.own.method}, from coarse to fine`, yTitle: "same as the flow",
  });
  const path = ladder.map(([p, share], i) => `${i ? "L" : "M"}${x(p)},${y(share)}`).join("");
  svg.append(draw("path", { d: path, fill: "none", stroke: "var(--muted)", "stroke-width": 1.5 }));
  const coarseFirst = [...ladder].sort((a, b) => b[0] - a[0]);
  describePoints(coarseFirst.map(([precision, share]) => {
    const own = Math.abs(precision / record.own.precision - 1) < 1e-6;
    const isSafe = isNumber(safe) && precision <= safe * (1 + 1e-9);
    const colour = own ? "var(--ink)" : isSafe ? "var(--good)" : "var(--muted)";
    const mark = draw("circle", { r: own ? 9 : 6, fill: own ? colour : "var(--paper)", stroke: colour, "stroke-width": 2.2 });
    const element = draw("g", { class: "point", transform: `translate(${x(precision)} ${y(share)})` }, draw("circle", { r: 13, fill: "transparent" }), mark);
    svg.append(element);
    const words = `${record.precision_name} ${precisionWords(record, precision)}${own ? " (its own)" : ""}\nsame as the flow: ${(100 * share).toFixed(1)}%\n${isSafe ? "safe" : "not safe"}`;
    return { element, words };
  }));
  const words = "Safe is what the verdict's rule calls the same as the flow, for all samples together; single ones may differ.";
  const bySample = isShare(record) && record.kind !== "movement";
  place.replaceChildren(svg, ...(bySample ? [] : [make("p", { class: "caption", text: words })]));
}
