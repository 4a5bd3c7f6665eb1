// What all parts of the page share: making elements, writing numbers, and a tooltip for pointer and keyboard.
const SVG = "http://www.w3.org/2000/svg";

/** An HTML element with attributes and children; `text` and `on...` functions are attributes too. */
function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for SVG. */
function draw(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") element.textContent = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** A score as people read it: accuracies in percent; the estimate of a distance may fall below 0, and no distance does. */
function scoreWords(record, value) {
  if (!isNumber(value)) return "not known";
  if (isFarMove(record, value)) return `${Math.round(value).toLocaleString("en-US")} times`;
  if (isShare(record)) return `${(100 * value).toFixed(1)}%`;
  return record.kind === "sets" && value < 0 ? "about 0" : numberWords(value);
}

/** A number with digits enough to tell scores apart. */
function numberWords(value) {
  if (value === 0 || (Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5)) return String(Number(value.toPrecision(4)));
  return value.toExponential(2).replace(/\.?0+e/, "e");
}

/** A number of which only the size matters. */
function roughWords(value) {
  return value === 0 || (value >= 1e-3 && value < 1e5) ? String(Number(value.toPrecision(2))) : value.toExponential(1);
}

/** A score along an axis. */
function tickWords(record, tick) {
  if (isFarMove(record, tick)) return `${tick.toLocaleString("en-US", { notation: "compact" })}×`;
  return isShare(record) ? scoreWords(record, tick).replace(".0%", "%") : numberWords(tick);
}

/** Whether outputs move by so many times their spread that percents would say less. */
const isFarMove = (record, value) => record.kind === "movement" && value >= 10;

const pointsWords = (points) => `${points} point${points === 1 ? "" : "s"}`;

/** 0.015625 as 1/64, and so is what float32 makes of such a step. */
function stepWords(value) {
  const parts = Math.round(1 / value);
  if (parts > 1 && parts < 10000 && Math.abs(parts * value - 1) < 1e-6) return `1/${parts}`;
  return value >= 1e-3 ? String(Number(value.toPrecision(4))) : value.toExponential(1);
}

function precisionWords(record, value) {
  return record.precision_name === "tolerance" ? value.toExponential(0) : stepWords(value);
}

/** Whether scores are shares of the samples. */
const isShare = (record) => record.metric === "accuracy" || ["classes", "decisions", "movement"].includes(record.kind);

/** Whether the verdict looks at the flow, and at no other solver. */
const isOfFlowAlone = (record) => ["movement", "sets"].includes(record.kind);

/** Whether it draws samples: nothing says that it was trained with a solver. */
const isSampler = (record) => record.kind === "sets";

const metricName = (record) => String(record.metric || "score").replaceAll("_", " ");

/** The mean score in words of its own: "63.0% right" for accuracies. */
function scoreLabel(record) {
  if (record.kind === "decisions") return "of decisions change";
  if (record.kind === "movement") return "moved, of their spread";
  return isShare(record) ? "right" : metricName(record);
}

const calm = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

const tooltip = {
  show(text, x, y) {
    const box = document.getElementById("tooltip");
    box.textContent = text;
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    box.style.left = `${Math.max(6, Math.min(x + 12, window.innerWidth - width - 6))}px`;
    box.style.top = `${y - height - 12 < 0 ? y + 16 : y - height - 12}px`;
  },
  hide() {
    document.getElementById("tooltip").hidden = true;
  },
};

/** Points of a chart: one tab stop for all of them, arrow keys between them, words for pointer and screen reader. */
function describePoints(points) {
  points.forEach(({ element, words }, i) => {
    fill(element, { role: "img", "aria-label": words.replaceAll("\n", ", "), tabindex: i === 0 ? "0" : "-1" }, []);
    const show = () => {
      const box = element.getBoundingClientRect();
      tooltip.show(words, box.right, box.top);
    };
    element.addEventListener("pointerenter", show);
    element.addEventListener("pointerleave", tooltip.hide);
    element.addEventListener("focus", show);
    element.addEventListener("blur", tooltip.hide);
    element.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") tooltip.hide();
      if (!move) return;
      event.preventDefault();
      const next = points[(i + move + points.length) % points.length].element;
      element.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  });
}

const unseen = new Map();

/** Draws the figures of places that have no width yet: those of hidden verdicts, which paper shows. */
const drawUnseen = () => unseen.forEach((paint, place) => paint(place));

/** Draws a figure, and again whenever its place gets another width. */
function drawnToFit(place, paint) {
  let width = -1;
  unseen.set(place, paint);
  new ResizeObserver(() => {
    if (place.clientWidth === width || !place.clientWidth) return;
    width = place.clientWidth;
    unseen.delete(place);
    paint(place);
  }).observe(place);
}
