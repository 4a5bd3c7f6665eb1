// The slider and what stands beside it.

function makeControls(entries, stops, state, { go, toggle, follow, ghost }) {
  const slider = make("input", { type: "range", id: "step", min: 0, max: stops.length - 1, step: 1, value: state.stop, "aria-describedby": "follow-words" });
  const name = make("output", { for: "step", "aria-live": "off" });
  const said = make("p", { class: "visually-hidden", "aria-live": "polite", id: "said" });
  const play = make("button", { type: "button", id: "play", onclick: toggle });
  const trained = make("button", { type: "button", id: "as-trained", text: isSampler(entries[0].record) ? "Own solver" : "As trained", onclick: () => go(trainedStop(stops)) });
  const flow = stops.some((stop) => stop.flow) ? make("button", { type: "button", id: "as-flow", text: "As the flow", onclick: () => go(stops.length - 1) }) : null;
  const words = make("p", { id: "follow-words", "aria-live": "polite" });
  slider.addEventListener("input", () => go(Number(slider.value)));
  const label = make("label", { for: "step", class: "visually-hidden" }, "Step of the solver, from coarse to fine");
  const track = make("div", { class: "track" }, label, slider, makeTicks(stops));
  const followed = followInput(entries[0].scene, follow);
  const buttons = make("div", { class: "buttons" }, play, trained, flow, ghostBox(entries, ghost), followed.element);
  const bar = make("div", { class: "slider-row" }, name, track, said);
  const tools = make("div", { class: "tools" }, buttons, words);

  let waiting = null;

  function show() {
    const stop = stops[state.stop];
    slider.value = state.stop;
    slider.setAttribute("aria-valuetext", stop.name);
    name.textContent = stop.name;
    play.textContent = state.timer === null ? "▶ Play" : "❚❚ Pause";
    play.setAttribute("aria-label", state.timer === null ? "Play" : "Pause");
    followed.show(state.followed);
    const hint = canFollow(entries[0].scene) ? "Click a point to follow it." : "";
    words.textContent = state.followed === null ? hint : followWords(entries, stops[state.stop], state.followed);
    clearTimeout(waiting);
    if (state.timer === null) waiting = setTimeout(() => { said.textContent = stopWords(entries, stop); }, SETTLED);
  }

  return { bar, tools, show };
}

/** Milliseconds after which a screen reader is told where the slider came to rest: not of every stop on its way. */
const SETTLED = 400;

/** A stop with every model's score, for who cannot see the pictures. */
function stopWords(entries, stop) {
  const told = entries.map(({ record, scene }, e) => {
    const score = `${scoreWords(record, scene.rungs[stop.rungs[e]].score)} ${scoreLabel(record)}`;
    return entries.length > 1 ? `${record.name}: ${score}` : score;
  });
  return `${stop.name}: ${told.join("; ")}`;
}

/** Names below the slider; all of them stay where there is room, and every third on a phone. */
function makeTicks(stops) {
  const every = Math.ceil(stops.length / 20);
  const spans = stops.map((stop, i) => {
    const kept = i === 0 || i === stops.length - 1 || (i % every === 0 && i < stops.length - 1);
    const minor = i !== 0 && i !== stops.length - 1 && (i % 4 !== 0 || i > stops.length - 3);
    const name = [stop.apart ? "apart" : stop.trained.some(Boolean) ? "trained" : "", minor ? "minor" : ""].join(" ").trim();
    return kept ? make("span", { class: name || null, style: `left: ${(100 * i) / Math.max(1, stops.length - 1)}%`, text: stop.short }) : null;
  });
  return make("div", { class: "ticks", "aria-hidden": "true" }, ...spans);
}

function ghostBox(entries, ghost) {
  if (!entries.some(({ scene }) => scene.rungs.some((rung) => rung.flow && rung.paths))) return null;
  const box = make("input", { type: "checkbox", id: "ghost" });
  box.addEventListener("change", () => ghost(box.checked));
  return make("label", {}, box, "Show the flow's paths too");
}

/** Whether there is a picture that shows single points. */
const canFollow = (scene) => scene.points > 0 && scene.rungs.some((rung) => rung.map || rung.paths);

/** Following a point without a mouse: by its number. */
function followInput(scene, follow) {
  if (!canFollow(scene)) return { element: null, show: () => {} };
  const input = make("input", { type: "number", id: "follow", min: 1, max: scene.points, placeholder: "none" });
  input.addEventListener("input", () => {
    const point = Number.parseInt(input.value, 10) - 1;
    follow(point >= 0 && point < scene.points ? point : null);
  });
  const show = (point) => {
    if (document.activeElement !== input) input.value = point === null ? "" : point + 1;
  };
  return { element: make("label", { class: "follow" }, "Follow point", input), show };
}

function followWords(entries, stop, point) {
  const told = entries.map(({ record, scene }, e) => {
    const rung = scene.rungs[stop.rungs[e]];
    const flow = scene.rungs.find((each) => each.flow);
    if (!scene.labels || !rung.decided || point >= scene.points) return null;
    const answer = (each) => `class ${each.decided[point]}${each.decided[point] === scene.labels[point] ? "" : " (wrong)"}`;
    const who = entries.length > 1 ? `${record.name}: ` : "";
    return `${who}${answer(rung)} with ${nameOfRung(record, rung)}${flow && flow.decided ? `, ${answer(flow)} under the flow` : ""}`;
  });
  const kept = told.filter(Boolean);
  return kept.length ? `Point ${point + 1}: ${kept.join("; ")}.` : `Point ${point + 1}: its path is bold, the flow's is dashed.`;
}
