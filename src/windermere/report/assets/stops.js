// The stops of the slider: solvers that all models on the page were tried with, from coarse to fine, then the flow.

const nameOfRung = (record, rung) => {
  if (rung.flow) return "the flow";
  if (rung.steps) return rung.steps === 1 ? "1 step" : `${rung.steps} steps`;
  return rung.solver;
};

/** What makes rungs of two models the same stop. */
const keyOfRung = (rung) => (rung.flow ? "flow" : rung.steps ? `steps ${rung.steps}` : `${rung.method} ${rung.precision}`);

const shortOfRung = (record, rung) => (rung.flow ? "flow" : rung.steps ? String(rung.steps) : precisionWords(record, rung.precision));

/** Stops of the entries { record, scene }: each a name and the index of its rung in every scene. */
function makeStops(entries) {
  const [first] = entries;
  const keys = entries.map(({ scene }) => scene.rungs.map(keyOfRung));
  const common = first.scene.rungs.map((rung, i) => ({ rung, i })).filter(({ i }) => keys.every((some) => some.includes(keys[0][i])));
  const stops = common.map(({ rung, i }) => {
    const rungs = keys.map((some) => some.indexOf(keys[0][i]));
    return {
      name: nameOfRung(first.record, rung), short: shortOfRung(first.record, rung), rungs, flow: Boolean(rung.flow),
      trained: entries.map(({ scene }, e) => scene.own === rungs[e]),
    };
  });
  if (stops.some((stop) => stop.trained.every(Boolean))) return stops;
  const own = { name: "as trained", short: "trained", rungs: entries.map(({ scene }) => scene.own), flow: false, trained: entries.map(() => true), apart: true };
  return [own, ...stops];
}

const trainedStop = (stops) => Math.max(0, stops.findIndex((stop) => stop.trained.every(Boolean)));

/** The score of a model along the slider, with a mark that moves; a click goes there. */
function makeCurve(record, scene, stops, entry, range, choose) {
  const place = make("div", { class: "curve" });
  const curve = { element: place, stop: 0, mark: () => {}, show(stop) { curve.stop = stop; curve.mark(stop); } };
  drawnToFit(place, () => {
    curve.mark = drawCurve(place, record, scene, stops, entry, range, choose);
    curve.mark(curve.stop);
  });
  return curve;
}

function drawCurve(place, record, scene, stops, entry, range, choose) {
  const [width, height, left, right, top, bottom] = [clampTo(place.clientWidth, 280, 1200), 132, 55, 14, 12, 22];
  const x = (i) => left + (stops.length > 1 ? i / (stops.length - 1) : 0.5) * (width - left - right);
  const powers = byPowers(record, range);
  const y = scale(range[0], range[1], height - bottom, top, powers);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": curveWords(record, scene, stops, entry) });
  for (const tick of powers ? powersOfTen(...range).filter((_, i, all) => i % Math.ceil(all.length / 4) === 0) : ticksBetween(range[0], range[1], 3)) {
    svg.append(
      draw("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), stroke: "var(--line)" }),
      draw("text", { x: left - 12, y: y(tick) + 4, "text-anchor": "end", text: tickWords(record, tick) }),
    );
  }
  const known = stops.map((stop, i) => ({ i, score: scene.rungs[stop.rungs[entry]].score, stop })).filter(({ score }) => isNumber(score));
  const ladder = known.filter(({ stop }) => !stop.apart);
  svg.append(draw("path", { d: ladder.map(({ i, score }, k) => `${k ? "L" : "M"}${x(i)},${y(score)}`).join(""), fill: "none", stroke: "var(--coarse)", "stroke-width": 2 }));
  const every = Math.ceil((stops.length * 52) / width);
  const clear = (i) => x(i) - x(0) > 6.3 * stops[0].short.length + 10; // the first name begins at its mark, and may be long
  for (const { i, score, stop } of known) {
    const trained = stop.trained[entry];
    svg.append(draw("circle", { cx: x(i), cy: y(score), r: trained ? 5.5 : 3, fill: trained ? "var(--ink)" : "var(--paper)", stroke: trained ? "var(--ink)" : "var(--coarse)", "stroke-width": 1.6 }));
    if (i === 0 || i === stops.length - 1 || (i % every === 0 && clear(i) && i < stops.length - every)) svg.append(draw("text", { x: x(i), y: height - 4, "text-anchor": i === 0 ? "start" : i === stops.length - 1 ? "end" : "middle", text: stop.short }));
  }
  const mark = draw("circle", { r: 8, fill: "none", stroke: "var(--accent)", "stroke-width": 3.5 });
  svg.append(mark);
  svg.addEventListener("click", (event) => {
    const box = svg.getBoundingClientRect();
    const share = ((event.clientX - box.left) / box.width) * width;
    choose(clampTo(Math.round(((share - left) / (width - left - right)) * (stops.length - 1)), 0, stops.length - 1));
  });
  place.replaceChildren(svg);
  return (i) => {
    const { score } = scene.rungs[stops[i].rungs[entry]];
    mark.setAttribute("visibility", isNumber(score) ? "visible" : "hidden");
    if (isNumber(score)) fill(mark, { cx: x(i), cy: y(score) }, []);
  };
}

function curveWords(record, scene, stops, entry) {
  const some = stops.map((stop) => `${stop.name}: ${scoreWords(record, scene.rungs[stop.rungs[entry]].score)}`);
  return `${metricName(record)} by solver. ${some.join(", ")}`;
}

/** The scores of all models, with room around them. */
function scoresRange(entries) {
  const scores = entries.flatMap(({ scene }) => scene.rungs.map((rung) => rung.score)).filter(isNumber);
  if (!scores.length) return [0, 1];
  if (byPowers(entries[0].record, scores)) return powerRange(scores);
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  const room = 0.08 * (high - low) || 0.05;
  return [low - room, high + room];
}
