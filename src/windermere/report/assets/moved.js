// How outputs move from the flow's: a histogram of distances, and which decisions change into which.

function movedFigure(record, scene, rung) {
  const place = make("div", { class: "bars" });
  if (rung.moved) place.append(histogram(scene, rung));
  if (rung.confusion) place.append(confusion(rung));
  return place;
}

/** How far outputs lie from the flow's, as shares of the spread of all outputs. */
function histogram(scene, rung) {
  const [width, height, left, bottom] = [420, 220, 8, 42];
  const total = rung.moved.reduce((sum, count) => sum + count, 0) || 1;
  const highest = Math.max(...rung.moved);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `how far outputs move with ${rung.solver}` });
  const step = (width - 2 * left) / rung.moved.length;
  const points = rung.moved.map((count, i) => {
    const tall = (count / highest) * (height - bottom - 24);
    const bar = draw("rect", { x: left + i * step + 1, width: step - 2, y: height - bottom - tall, height: Math.max(tall, count ? 1 : 0), rx: 2, fill: "var(--counts)" });
    const whole = draw("rect", { x: left + i * step, width: step, y: 12, height: height - bottom - 12, fill: "transparent" });
    const element = draw("g", {}, whole, bar);
    svg.append(element);
    const [from, to] = [scene.bins[i], scene.bins[i + 1]].map((power) => `${Number((100 * 10 ** power).toPrecision(2))}%`);
    return { element, words: `${((100 * count) / total).toFixed(1)}% of samples\nmove by ${i === 0 ? `less than ${to}` : i === rung.moved.length - 1 ? `more than ${from}` : `${from} to ${to}`} of the outputs' spread` };
  });
  scene.bins.forEach((power, i) => {
    if (Number.isInteger(power) && power % 2 === 0) {
      svg.append(draw("text", { x: left + i * step, y: height - bottom + 18, "text-anchor": i ? "middle" : "start", class: "faint", text: `${Number((100 * 10 ** power).toPrecision(1))}%` }));
    }
  });
  svg.append(
    draw("line", { x1: left, x2: width - left, y1: height - bottom, y2: height - bottom, stroke: "var(--coarse)" }),
    draw("text", { x: width / 2, y: height - 4, "text-anchor": "middle", text: "distance from the flow's output, of the outputs' spread" }),
  );
  describePoints(points);
  return make("div", {}, make("h4", { text: `Distances with ${rung.solver}` }), svg);
}

/** Rows: the class under this solver; columns: the class under the flow. */
function confusion(rung) {
  const count = rung.confusion.length;
  const head = make("tr", {}, make("td", {}), ...rung.confusion.map((_, i) => make("th", { scope: "col", text: `flow: ${i}` })));
  const rows = rung.confusion.map((row, i) =>
    make("tr", {}, make("th", { scope: "row", text: `solver: ${i}` }), ...row.map((cell, j) => make("td", { class: i === j ? "same" : cell ? null : "zero", text: String(cell) }))));
  const all = rung.confusion.flat().reduce((sum, cell) => sum + cell, 0);
  const same = Array.from({ length: count }, (_, i) => rung.confusion[i][i]).reduce((sum, cell) => sum + cell, 0);
  const caption = make("caption", { text: `Decisions with ${rung.solver} (rows) and under the flow (columns): ${all - same} of ${all} differ.` });
  const table = make("table", { class: "confusion" }, caption, make("thead", {}, head), make("tbody", {}, ...rows));
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Decisions that change" }, table);
}
