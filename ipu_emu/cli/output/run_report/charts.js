// Charts: the places of the charts; the library that the page brings along draws those of a tab when it is shown.

"use strict";

/** Of the page: figures by name, the library as packed text, what is said if it is missing. */
const charts = { figures: {}, library: null, missing: null };

async function unpacked(text) {
  const packed = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

/** The place of a chart, null if there is no such chart; a click on the chart calls `choose` with its place on the x axis. */
function chart(name, id, choose) {
  const figure = charts.figures[name];
  if (!figure) return null;
  const place = el("div", { className: "chart", id: "chart-" + (id || name), style: `height: ${figure.layout.height}px` });
  place.dataset.figure = name;
  place.choose = choose;
  return place;
}

/** A chart below its title; nothing if there is no such chart. */
function charted(title, name) {
  const place = chart(name);
  return place ? [el("h3", {}, title), place] : [];
}

/** Run the script of the library, once. */
function chartLibrary() {
  charts.loaded = charts.loaded || unpacked(charts.library).then(code =>
    document.head.append(el("script", { textContent: new TextDecoder().decode(code) })));
  return charts.loaded;
}

/** Drag to zoom, double click to see all again; without buttons, some of which would need a network. */
const CHART_OPTIONS = { responsive: true, displayModeBar: false };

/** Draw the charts of a tab that is shown; fit those that were drawn before to the width of the page. */
async function drawCharts(section) {
  const places = [...section.querySelectorAll(".chart")];
  if (!places.length) return;
  await chartLibrary();
  for (const place of places) {
    if (section.hidden) return;
    if (place.dataset.drawn) Plotly.Plots.resize(place); else await drawChart(place);
  }
}

async function drawChart(place) {
  const { data, layout } = charts.figures[place.dataset.figure];
  await Plotly.newPlot(place, structuredClone(data), structuredClone(layout), CHART_OPTIONS);
  if (place.choose) place.on("plotly_click", event => place.choose(event.points[0].x));
  place.dataset.drawn = "yes";
}

/** A line in a chart at a place on its x axis. */
function markChart(place, x) {
  const line = { type: "line", x0: x, x1: x, y0: 0, y1: 1, yref: "paper", line: { color: "#000", width: 1 } };
  charts.figures[place.dataset.figure].layout.shapes = [line];
  if (place.dataset.drawn) Plotly.relayout(place, { shapes: [line] });
}
