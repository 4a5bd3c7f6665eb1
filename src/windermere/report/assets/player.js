// The part to play with: one slider moves the step of every model, and pictures, scores and curves follow together.

/** A player of entries { record, scene }. One model stands beside its flow; several stand beside each other. One of many
 * is `chosen` elsewhere on the page, so that it is named here. */
function makePlayer(place, entries, onStop, chosen) {
  const stops = makeStops(entries);
  const state = { stop: trainedStop(stops), from: null, began: 0, followed: null, ghost: false, timer: null, colours: currentColours() };
  const columns = makeColumns(entries, stops, state, go);
  const controls = makeControls(entries, stops, state, { go, toggle, follow, ghost });

  function go(stop, { quiet = false } = {}) {
    if (stop === state.stop && !quiet) return;
    state.from = state.stop;
    state.stop = stop;
    state.began = calm() ? -Infinity : performance.now();
    controls.show();
    columns.forEach((column) => column.words());
    onStop(stops[stop]);
    requestAnimationFrame(frame);
  }

  /** Draws everything; again until the change of the step has come to its end. */
  function frame(now) {
    const share = Math.min(1, (now - state.began) / 160);
    redraw(share);
    if (share < 1) requestAnimationFrame(frame);
  }

  function redraw(share = 1) {
    const eased = share >= 1 || share <= 0 ? Math.max(0, share) : 1 - (1 - share) ** 3;
    columns.forEach((column) => column.draw(eased));
  }

  function toggle() {
    if (state.timer !== null) {
      clearInterval(state.timer);
      state.timer = null;
    } else {
      state.timer = setInterval(() => go((state.stop + 1) % stops.length), 700);
      go((state.stop + 1) % stops.length);
    }
    controls.show();
  }

  function follow(point) {
    state.followed = point;
    controls.show();
    redraw();
  }

  function ghost(shown) {
    state.ghost = shown;
    redraw();
  }

  columns.forEach((column) => column.onFollow(follow));
  place.replaceChildren(
    make("h2", { text: `Drag the step${chosen ? ` of ${entries[0].record.name}` : ""}: the same weights, solved more and more accurately` }),
    chosen ? make("p", { class: "hint", text: "Another model is chosen below, under “In detail”." }) : "",
    controls.bar, controls.tools,
    make("div", { class: "columns" }, ...columns.map((column) => column.element)),
    ...columns.map((column) => column.below),
    playerLegend(entries[0].record, entries[0].scene),
  );
  controls.show();
  columns.forEach((column) => column.words());
  onStop(stops[state.stop]);
  return {
    stops, go, redraw,
    get stop() { return state.stop; },
    stopPlaying: () => state.timer !== null && toggle(),
    recolour() {
      state.colours = currentColours();
      redraw();
    },
  };
}

/** A column for each model; one model alone gets a second column in which the flow stands still. */
function makeColumns(entries, stops, state, go) {
  const range = scoresRange(entries);
  const columns = entries.map((entry, e) => makeColumn(entry, state, {
    title: entries.length > 1 ? entry.record.name : null, badge: entries.length > 1 ? entry.badge : null, wide: entries.length === 1,
    rungAt: (stop) => entry.scene.rungs[stops[stop].rungs[e]],
    curve: makeCurve(entry.record, entry.scene, stops, e, range, go),
  }));
  const [{ record, scene }] = entries;
  const flow = scene.rungs.find((rung) => rung.flow);
  if (entries.length === 1 && flow) columns.push(makeColumn(entries[0], state, { title: "The flow: the exact solution", rungAt: () => flow, curve: null, record }));
  return columns;
}

function makeColumn({ record, scene }, state, { title, badge, wide, rungAt, curve }) {
  const heading = make("h3", { text: title || "" });
  const score = make("strong");
  const solver = make("span");
  const flow = scene.rungs.find((rung) => rung.flow);
  const followers = [];
  const fewer = scene.samples && scene.samples !== record.samples ? `, on ${scene.samples} samples` : "";
  const redraw = () => draw(1);
  const pictures = makePictures(record, scene, state, rungAt, flow, redraw, (point) => followers.forEach((tell) => tell(point)));
  const head = make("div", { class: "column-head" }, heading, badge ? badge.cloneNode(true) : null, make("div", { class: "score" }, score, solver));
  const element = make("div", { class: "column" }, head,
    make("div", { class: `pictures${pictures.length === 1 ? " one" : ""}` }, ...pictures.map((picture) => picture.element)), curve && !wide ? curve.element : null);
  const below = curve && wide ? curve.element : "";

  function draw(share) {
    pictures.forEach((picture) => picture.draw(share));
  }

  function words() {
    const rung = rungAt(state.stop);
    if (!title) heading.textContent = rung.flow ? "Solved exactly: the flow" : `Solved with ${nameOfRung(record, rung)}`;
    score.textContent = scoreWords(record, rung.score);
    solver.textContent = `${scoreLabel(record)}, ${nameOfRung(record, rung)}${fewer}`;
    pictures.forEach((picture) => picture.words(rung));
    if (curve) curve.show(state.stop);
  }

  return { element, below, draw, words, onFollow: (tell) => followers.push(tell) };
}

/** The pictures that a scene has: its map, its paths, its samples. */
function makePictures(record, scene, state, rungAt, flow, redraw, follow) {
  const made = [];
  if (scene.rungs.some((rung) => rung.map)) made.push(mapPicture(record, scene, state, rungAt, redraw, follow));
  if (scene.rungs.some((rung) => rung.paths)) made.push(pathPicture(record, scene, state, rungAt, flow, redraw, follow));
  if (scene.thumbnail) {
    made.push(thumbnailPicture("Real samples", scene, () => scene.real_thumbnails, redraw));
    made.push(thumbnailPicture("Generated samples", scene, () => rungAt(state.stop).thumbnails, redraw, (rung) => `, with ${nameOfRung(record, rung)}`));
  }
  if (scene.real) made.push(cloudPicture("Real samples", scene, () => scene.real, state, 0, redraw));
  if (scene.rungs.some((rung) => rung.samples)) made.push(cloudPicture("Generated samples", scene, () => rungAt(state.stop).samples || [], state, 1, redraw));
  return made;
}

function pictureOf(canvas, paint, caption, describe) {
  const text = make("figcaption", { text: caption });
  const element = make("figure", { class: "picture" }, canvas, text);
  const words = (rung) => {
    const [label, below] = describe(rung);
    canvas.setAttribute("aria-label", label);
    text.textContent = below;
  };
  return { element, draw: paint, words };
}

const wrongOf = (scene, rung) => Array.from({ length: scene.points }, (_, i) => i).filter((i) => isWrong(scene, rung, i)).length;

function mapPicture(record, scene, state, rungAt, redraw, follow) {
  const canvas = makeCanvas("decisions", redraw);
  canvas.addEventListener("click", (event) => follow(nearest(canvas, event, scene.inputs, scene.points)));
  return pictureOf(canvas, () => drawMap(canvas, scene, rungAt(state.stop), state.colours, state.followed), "", (rung) => {
    const wrong = scene.labels ? ` ${wrongOf(scene, rung)} of ${scene.points} wrong.` : "";
    const below = `What it decides, by starting point.${wrong}`;
    return [`Map of decisions over the input plane with ${nameOfRung(record, rung)}. ${below}`, below];
  });
}

function pathPicture(record, scene, state, rungAt, flow, redraw, follow) {
  const canvas = makeCanvas("paths", redraw);
  const room = new Float32Array(scene.rungs.find((rung) => rung.paths).paths.length);
  const at = (stop) => rungAt(stop).paths || null;
  canvas.addEventListener("click", (event) => {
    const paths = at(state.stop);
    if (!paths) return;
    const end = nearest(canvas, event, paths, scene.points, paths.length - 2 * scene.points);
    follow(end ?? nearest(canvas, event, paths, scene.points));
  });
  const paint = (share) => {
    const rung = rungAt(state.stop);
    if (!rung.paths) return void clear(canvas, null);
    const before = state.from === null ? null : at(state.from);
    const ghost = flow && flow !== rung && (state.ghost || state.followed !== null) ? flow.paths : null;
    const all = state.ghost ? ghost : null;
    drawPaths(canvas, scene, rung, mixed(before, rung.paths, share, room), state.colours, { ghost: all, moving: share < 1 });
    if (state.followed !== null) drawFollowed(canvas.getContext("2d"), canvas, scene, rung.paths, state.followed, state.colours, ghost);
  };
  return pictureOf(canvas, paint, "", (rung) => [`Trajectories of ${scene.points} points with ${nameOfRung(record, rung)}.`, pathWords(scene, rung)]);
}

function pathWords(scene, rung) {
  const words = ["Where the points go."];
  if (scene.logarithmic) words.push("Far distances are drawn closer.");
  if (scene.dimension > 2) words.push(`${scene.dimension} dimensions seen in two (${Math.round(100 * scene.explained)}% of their variance); crossings here mean nothing.`);
  if (rung.outside) words.push(`${rung.outside} end outside.`);
  return words.join(" ");
}

function cloudPicture(title, scene, pointsNow, state, kind, redraw) {
  const canvas = makeCanvas(title, redraw);
  const words = scene.dimension > 2 ? `${title}: ${scene.dimension} dimensions seen in two (${Math.round(100 * scene.explained)}% of the real ones' variance)` : title;
  return pictureOf(canvas, () => drawCloud(canvas, pointsNow(), state.colours.classes[kind]), words, () => [words, words]);
}

function thumbnailPicture(title, scene, bytesNow, redraw, more = () => "") {
  const canvas = makeCanvas(title, redraw);
  return pictureOf(canvas, () => drawThumbnails(canvas, bytesNow(), scene.thumbnail), title, (rung) => [`The first ${title.toLowerCase()} as images${more(rung)}`, title + more(rung)]);
}

function playerLegend(record, scene) {
  const items = [];
  const shaded = Boolean(scene.background) || scene.rungs.some((rung) => rung.map);
  for (let kind = 0; kind < (canFollow(scene) ? scene.classes || 0 : 0); kind++) {
    const r = kind === 1 ? 4.6 : 5;
    items.push(legendItem(draw("path", { d: markPath(Math.min(kind, 4), r), fill: `var(--class-${kind})` }), !scene.labels ? `decided as class ${kind}` : shaded ? `class ${kind} (pale area: decided as ${kind})` : `class ${kind}`));
  }
  if (scene.labels && canFollow(scene)) items.push(legendItem(draw("path", { d: "M-5,-5L5,5M-5,5L5,-5", stroke: "var(--ink)", "stroke-width": 2 }), "decided wrongly"));
  items.push(legendItem(draw("circle", { r: 5, fill: "var(--ink)" }), isSampler(record) ? "its own solver" : "the solver it was trained with"));
  return make("ul", { class: "legend" }, ...items);
}
