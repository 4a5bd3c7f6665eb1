// Pictures on canvases: decisions over the input plane, and trajectories through the state's plane.
// A scene's paths are [frames + 1][points][2] in the square from -1 to 1.

/** A square canvas that is as sharp as the screen; draws itself again when its size changes. */
function makeCanvas(label, redraw) {
  const canvas = make("canvas", { role: "img", "aria-label": label });
  new ResizeObserver(() => {
    const side = Math.max(1, Math.round(canvas.clientWidth * Math.min(2, window.devicePixelRatio || 1)));
    if (canvas.width !== side) {
      canvas.width = canvas.height = side;
      redraw();
    }
  }).observe(canvas);
  return canvas;
}

const toX = (canvas, x) => (0.5 + x / 2) * canvas.width;
const toY = (canvas, y) => (0.5 - y / 2) * canvas.height;
const unit = (canvas) => canvas.width / Math.max(1, canvas.clientWidth);

/** Which class each point has: its label, or what is decided of it; one colour for all where there is neither. */
const classOf = (scene, rung, point) => (scene.labels ? scene.labels[point] : scene.classes && rung.decided ? rung.decided[point] : 0);

const isWrong = (scene, rung, point) => Boolean(scene.labels && rung.decided && rung.decided[point] !== scene.labels[point]);

/** Regions of a rung as a picture, made once for each scheme. */
function cachedRegions(owner, classes, colours) {
  if (owner.regionsFor !== colours.ink) {
    owner.regions = regionPicture(classes, colours);
    owner.regionsFor = colours.ink;
  }
  return owner.regions;
}

function clear(canvas, regions) {
  const context = canvas.getContext("2d");
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  if (regions) {
    context.imageSmoothingEnabled = true;
    context.drawImage(regions, 0, 0, canvas.width, canvas.height);
  }
  return context;
}

/** What the model decides for every start, and the samples on it: those that it gets wrong are crossed out. */
function drawMap(canvas, scene, rung, colours, followed) {
  const context = clear(canvas, rung.map ? cachedRegions(rung, rung.map, colours) : null);
  const r = 3.4 * unit(canvas);
  const place = (i) => [toX(canvas, scene.inputs[2 * i]), toY(canvas, scene.inputs[2 * i + 1])];
  drawMarks(context, scene, rung, colours, r, place, () => true);
  crossOut(context, colours, r, unit(canvas), place, scene.points, (i) => isWrong(scene, rung, i));
  if (followed !== null) ringAround(context, colours, ...place(followed), 3 * r, unit(canvas));
}

/** Marks of all points that are wanted, class by class. */
function drawMarks(context, scene, rung, colours, r, place, wanted) {
  for (let kind = 0; kind < Math.max(1, scene.classes || 1); kind++) {
    context.beginPath();
    for (let i = 0; i < scene.points; i++) {
      if (classOf(scene, rung, i) === kind && wanted(i)) addMark(context, kind, ...place(i), r);
    }
    context.fillStyle = colours.classes[kind];
    context.fill();
  }
}

function crossOut(context, colours, r, width, place, points, wrong) {
  context.beginPath();
  for (let i = 0; i < points; i++) {
    if (!wrong(i)) continue;
    const [x, y] = place(i);
    const s = 1.2 * r;
    context.moveTo(x - s, y - s);
    context.lineTo(x + s, y + s);
    context.moveTo(x - s, y + s);
    context.lineTo(x + s, y - s);
  }
  context.strokeStyle = colours.ink;
  context.lineWidth = 1.15 * width;
  context.stroke();
}

function ringAround(context, colours, x, y, r, width) {
  context.beginPath();
  context.arc(x, y, r, 0, 2 * Math.PI);
  context.strokeStyle = colours.ink;
  context.lineWidth = 2.5 * width;
  context.stroke();
}

/** Paths between two rungs: `share` of the way from one to the other, for the moment in which the step changes. */
function mixed(from, to, share, room) {
  if (share >= 1 || !from || from === to) return to;
  for (let i = 0; i < to.length; i++) room[i] = from[i] + share * (to[i] - from[i]);
  return room;
}

/** Trajectories over the regions in which they end, from a dot to a mark. */
function drawPaths(canvas, scene, rung, paths, colours, { ghost, moving }) {
  const context = clear(canvas, scene.background ? cachedRegions(scene, scene.background, colours) : null);
  drawRings(context, canvas, scene, colours);
  if (ghost) strokePaths(context, canvas, scene, rung, ghost, { colour: () => colours.coarse, alpha: 0.5, width: 0.8, moving });
  strokePaths(context, canvas, scene, rung, paths, { colour: (kind) => colours.classes[kind], alpha: colours.path, width: 1, moving });
  const row = 2 * scene.points;
  const last = paths.length - row;
  const start = (i) => [toX(canvas, paths[2 * i]), toY(canvas, paths[2 * i + 1])];
  const end = (i) => [toX(canvas, paths[last + 2 * i]), toY(canvas, paths[last + 2 * i + 1])];
  const r = 3.2 * unit(canvas);
  drawMarks(context, scene, rung, colours, 1.1 * unit(canvas), start, () => true);
  drawMarks(context, scene, rung, colours, r, end, () => true);
  crossOut(context, colours, r, unit(canvas), end, scene.points, (i) => isWrong(scene, rung, i));
}

function drawRings(context, canvas, scene, colours) {
  context.strokeStyle = colours.coarse;
  context.fillStyle = colours.muted;
  context.lineWidth = unit(canvas);
  context.globalAlpha = 0.55;
  context.font = `${11 * unit(canvas)}px system-ui, sans-serif`;
  context.textAlign = "left";
  for (const { distance, at } of scene.rings || []) {
    context.beginPath();
    context.arc(canvas.width / 2, canvas.height / 2, (at * canvas.width) / 2, 0, 2 * Math.PI);
    context.setLineDash([2 * unit(canvas), 5 * unit(canvas)]);
    context.stroke();
    context.setLineDash([]);
  }
  context.globalAlpha = 1;
  for (const { distance, at } of scene.rings || []) {
    context.fillText(String(distance), toX(canvas, 0) + 3 * unit(canvas), toY(canvas, -at) - 3 * unit(canvas));
  }
}

/** All trajectories of a class in one stroke, and in hairlines while they move: both keep dragging smooth. */
function strokePaths(context, canvas, scene, rung, paths, { colour, alpha, width, moving }) {
  const row = 2 * scene.points;
  const frames = paths.length / row;
  const half = canvas.width / 2;
  context.globalAlpha = alpha;
  context.lineWidth = moving ? 1 : width * unit(canvas);
  context.lineJoin = moving ? "bevel" : "round";
  for (let kind = 0; kind < Math.max(1, scene.classes || 1); kind++) {
    context.beginPath();
    for (let i = 0; i < scene.points; i++) {
      if (classOf(scene, rung, i) !== kind) continue;
      context.moveTo(half + half * paths[2 * i], half - half * paths[2 * i + 1]);
      for (let k = 1; k < frames; k++) {
        const at = k * row + 2 * i;
        context.lineTo(half + half * paths[at], half - half * paths[at + 1]);
      }
    }
    context.strokeStyle = colour(kind);
    context.stroke();
  }
  context.globalAlpha = 1;
}

/** One trajectory in bold, and the flow's of the same point dashed. */
function drawFollowed(context, canvas, scene, paths, point, colours, ghost) {
  const walk = (from) => {
    context.beginPath();
    const row = 2 * scene.points;
    for (let at = 2 * point; at < from.length; at += row) context.lineTo(toX(canvas, from[at]), toY(canvas, from[at + 1]));
    context.stroke();
  };
  context.strokeStyle = colours.ink;
  if (ghost) {
    context.setLineDash([5 * unit(canvas), 4 * unit(canvas)]);
    context.lineWidth = 2 * unit(canvas);
    walk(ghost);
    context.setLineDash([]);
  }
  context.lineWidth = 3 * unit(canvas);
  walk(paths);
  const last = paths.length - 2 * scene.points + 2 * point;
  ringAround(context, colours, toX(canvas, paths[last]), toY(canvas, paths[last + 1]), 9 * unit(canvas), unit(canvas));
}

/** Points of a plane [points][2], all alike: samples that were drawn, or real ones. */
function drawCloud(canvas, points, colour) {
  const context = clear(canvas, null);
  context.globalAlpha = 0.55;
  context.beginPath();
  for (let i = 0; i < points.length; i += 2) addMark(context, 0, toX(canvas, points[i]), toY(canvas, points[i + 1]), 2.2 * unit(canvas));
  context.fillStyle = colour;
  context.fill();
  context.globalAlpha = 1;
}

/** The first samples as images [images][height][width][colours], in as many rows as columns. */
function drawThumbnails(canvas, bytes, [height, width, colours]) {
  const context = clear(canvas, null);
  if (!bytes) return;
  const side = Math.round(Math.sqrt(bytes.length / (height * width * colours)));
  const picture = document.createElement("canvas");
  [picture.width, picture.height] = [side * (width + 1) - 1, side * (height + 1) - 1];
  for (let i = 0; i < side * side; i++) {
    const image = new ImageData(width, height);
    for (let k = 0; k < width * height; k++) {
      const at = (i * width * height + k) * colours;
      image.data.set([bytes[at], bytes[at + (colours > 1 ? 1 : 0)], bytes[at + (colours > 1 ? 2 : 0)], 255], 4 * k);
    }
    picture.getContext("2d").putImageData(image, (i % side) * (width + 1), Math.floor(i / side) * (height + 1));
  }
  const shrink = Math.min(canvas.width / picture.width, canvas.height / picture.height);
  context.imageSmoothingEnabled = false;
  context.drawImage(picture, 0, 0, picture.width * shrink, picture.height * shrink);
}

/** The point nearest to a click, by its places [points][2] from an offset on; null where none is near. */
function nearest(canvas, event, places, count, offset = 0) {
  const box = canvas.getBoundingClientRect();
  const x = (2 * (event.clientX - box.left)) / box.width - 1;
  const y = 1 - (2 * (event.clientY - box.top)) / box.height;
  let best = null;
  let least = 0.12 ** 2;
  for (let i = 0; i < count; i++) {
    const away = (places[offset + 2 * i] - x) ** 2 + (places[offset + 2 * i + 1] - y) ** 2;
    if (away < least) [best, least] = [i, away];
  }
  return best;
}
