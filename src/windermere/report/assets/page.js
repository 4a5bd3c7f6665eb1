// Puts the page together: scheme, charts, downloads, the switch between verdicts, the player.

const page = { data: JSON.parse(document.getElementById("page-data").textContent), player: null };
const articles = [...document.querySelectorAll("article.verdict")];

function setUpTheme() {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const show = (theme) => {
    root.dataset.theme = theme;
    button.setAttribute("aria-pressed", String(theme === "dark"));
    if (page.player) page.player.recolour();
  };
  button.addEventListener("click", () => show(root.dataset.theme === "dark" ? "light" : "dark"));
  system.addEventListener("change", () => show(system.matches ? "dark" : "light"));
  let before = null;
  window.addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    show("light");
    drawUnseen();
  });
  window.addEventListener("afterprint", () => show(before || root.dataset.theme));
  show(root.dataset.theme);
}

function drawCharts() {
  articles.forEach((article, i) => {
    const record = page.data.records[i];
    const place = (kind) => article.querySelector(`[data-figure="${kind}"]`);
    if (place("metric") && record.own) drawnToFit(place("metric"), (figure) => metricChart(figure, record));
    if (place("safe")) drawnToFit(place("safe"), (figure) => safeChart(figure, record));
  });
}

const cell = (value) => {
  const text = value === null || value === undefined ? "" : String(value);
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

function tableAsCsv(record) {
  const names = ["solver", "method", "precision", "metric", "gap", "gap_low", "gap_high", "agreement_own", "agreement_reference", "error", "evaluations", "counts", "failed"];
  const rows = (record.table || []).map((line) => {
    const gap = line.gap || {};
    const values = { ...line, gap: gap.value, gap_low: gap.low, gap_high: gap.high };
    return names.map((name) => cell(values[name])).join(",");
  });
  return [names.join(","), ...rows].join("\n") + "\n";
}

function setUpDownloads() {
  for (const button of document.querySelectorAll("[data-download]")) {
    button.addEventListener("click", () => {
      const record = page.data.records[Number(button.dataset.index)];
      const csv = button.dataset.download === "csv";
      const text = csv ? tableAsCsv(record) : `${JSON.stringify(record, null, 2)}\n`;
      const address = URL.createObjectURL(new Blob([text], { type: csv ? "text/csv" : "application/json" }));
      const name = String(record.name).replaceAll(/[^\w.-]+/g, "-").replaceAll(/^-+|-+$/g, "") || "audit";
      make("a", { href: address, download: `${name}.${csv ? "csv" : "json"}` }).click();
      setTimeout(() => URL.revokeObjectURL(address), 1000);
    });
  }
}

/** A row of choices above the details: one verdict is shown at a time, and all of them in print. */
function setUpSwitch(choose) {
  if (articles.length < 2) return;
  const labels = page.data.records.map((record, i) => {
    const input = make("input", { type: "radio", name: "verdict", value: i, checked: i === 0, onchange: () => choose(i) });
    return make("label", {}, input, make("span", { class: "text", text: record.name }));
  });
  const row = make("fieldset", { class: "switch" }, make("legend", { text: "In detail" }), make("div", { class: "choices" }, ...labels));
  document.getElementById("verdicts").prepend(row);
  choose(0);
}

/** Histograms and matrices of the details follow the slider. */
function showMoved(entries, rungOf) {
  entries.forEach((entry, e) => {
    const place = articles[entry.index].querySelector('[data-figure="moved"]');
    if (place) place.replaceChildren(movedFigure(entry.record, entry.scene, entry.scene.rungs[rungOf(entry.scene, e)]));
  });
}

async function setUp() {
  setUpTheme();
  drawCharts();
  setUpDownloads();
  const scenes = await Promise.all(page.data.records.map((record) => decodeScene(record.scene)));
  const all = page.data.records.map((record, index) => ({ record, index, scene: scenes[index], badge: articles[index].querySelector("h2 .badge") }));
  const entries = all.filter(({ scene }) => scene);
  entries.forEach(({ scene }) => { scene.points = scene.points || 0; });
  const place = document.getElementById("player");
  showMoved(entries, (scene) => scene.own);
  const play = (some) => {
    if (page.player) page.player.stopPlaying();
    page.player = makePlayer(place, some, (stop) => showMoved(some, (_, e) => stop.rungs[e]), some.length < all.length);
    page.player.redraw();
  };
  const together = page.data.sideBySide && entries.length === all.length;
  setUpSwitch((chosen) => {
    articles.forEach((article, i) => { article.hidden = i !== chosen; });
    if (!place || together) return;
    place.hidden = !all[chosen].scene;
    if (all[chosen].scene) play([all[chosen]]);
  });
  if (place && (together || all.length === 1)) play(entries);
  document.documentElement.dataset.ready = "true";
}

setUp();
