// The page: it shows what the server sends, and makes no text, state or order of its own.
// index.html names the field of the view that each element shows. All texts of others are
// set as text, never as HTML.

const byId = (id) => document.getElementById(id);
const RECENT = 300; // points that the server keeps of the last minutes
const GAP = 5; // a plot is interrupted where points are this many usual steps apart
const OPEN_JOBS = 3; // sections of jobs that are open at first
const HEIGHT = 150; // pixels of a plot, as in the style sheet

let view = null;
let series = {}; // iteration -> {recent: [...], whole: [...]}
let paused = false;
let connected = false;
const report = byId("report");
const cards = new Map(); // iteration -> its section and its charts

const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
const moment = (seconds) => new Date(seconds * 1000).toLocaleString("en-GB");

// --- elements that show fields of the view

/** Attributes that name a field, and what each does with its value. */
const WAYS = {
  text: (node, text) => { node.textContent = text; },
  clock: (node, seconds) => { node.textContent = clock(seconds); },
  tone: (node, state) => { node.dataset.is = state; },
  depth: (node, depth) => node.style.setProperty("--depth", depth),
  bar: (node, share) => node.style.setProperty("--share", `${100 * share}%`),
  job: (node, iteration) => node.setAttribute("href", `#job-${iteration}`),
  items: fill,
};
const shownBy = new WeakMap(); // node -> what it shows: looking for it each time is slow

/** Find the elements of a node that show fields, and return the node. */
function bound(node) {
  const found = [];
  for (const one of [node, ...node.querySelectorAll("*")]) {
    for (const [name, field] of Object.entries(one.dataset)) {
      if (name in WAYS) found.push({ one, show: WAYS[name], field, value: null });
    }
  }
  shownBy.set(node, found);
  return node;
}

/** Show an item in a node. Only what has changed is touched. */
function put(node, item) {
  for (const part of shownBy.get(node)) {
    const value = item[part.field];
    if (value === part.value) continue;
    part.value = value;
    part.show(part.one, value);
  }
}

/** Make the children of a node as many as the items, and show an item in each. */
function fill(parent, items) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  while (parent.children.length < items.length) {
    const name = parent.dataset.template;
    parent.append(bound(name ? copy(name).firstElementChild : row(parent.closest("table"))));
  }
  items.forEach((item, index) => put(parent.children[index], item));
}

const copy = (name) => byId(name).content.cloneNode(true);

/** Return a row below the headings of a table, which stacks its cells on a narrow screen.
 * Roles are named, because a changed display would take them away. */
function row(table) {
  const node = document.createElement("tr");
  node.setAttribute("role", "row");
  for (const heading of table.tHead.rows[0].cells) {
    const isName = !node.children.length;
    const cell = document.createElement(isName ? "th" : "td");
    cell.setAttribute("role", isName ? "rowheader" : "cell");
    if (isName) cell.scope = "row";
    else cell.dataset.label = heading.textContent;
    cell.className = heading.className;
    const { field } = heading.dataset;
    if (byId(`cell-${field}`)) cell.append(copy(`cell-${field}`));
    else cell.dataset.text = field;
    node.append(cell);
  }
  return node;
}

// --- jobs

function addJob(job) {
  const section = bound(copy("job").firstElementChild);
  const title = section.querySelector("h2");
  section.id = `job-${job.iteration}`;
  title.id = `title-${job.iteration}`;
  section.setAttribute("aria-labelledby", title.id);
  section.querySelector(".scroll").setAttribute("aria-label", `Training loops of ${job.job}`);
  section.querySelector(".more").open = cards.size < OPEN_JOBS && !job.is_over;
  byId("jobs").append(section);
  cards.set(job.iteration, { section, charts: [...section.querySelectorAll("figure")].map(chart) });
}

function showJobs() {
  const known = new Set(view.jobs.map((job) => job.iteration));
  for (const [iteration, card] of cards) {
    if (known.has(iteration)) continue;
    card.charts.forEach((one) => one.destroy());
    card.section.remove();
    cards.delete(iteration);
  }
  for (const job of view.jobs) {
    if (!cards.has(job.iteration)) addJob(job);
    put(cards.get(job.iteration).section, job);
  }
}

// --- plots

/** Return a function that reads a property of the style sheet: a canvas does not know it. */
const styled = (node, name) => () => getComputedStyle(node)[name];
const percent = (share) => `${Math.round(100 * share)} %`;
const short = (value) => value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });

/** Draw a plot of some columns of the history into a figure, whose caption is its legend. */
function chart(figure) {
  const place = figure.querySelector(".plot");
  const lines = [...figure.querySelectorAll("[data-column]")];
  const isShare = figure.classList.contains("shares");
  const line = { stroke: styled(document.querySelector("header"), "borderBottomColor"), width: 1 };
  const axis = {
    stroke: styled(byId("place"), "color"), grid: line, ticks: line, font: "12px system-ui, sans-serif",
  };
  const options = {
    width: Math.max(120, place.clientWidth),
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    scales: { y: { range: (self, low, high) => (isShare ? [0, 1] : [0, 1.1 * high || 1]) } },
    axes: [
      { ...axis, space: 90, size: 28, values: (self, ticks) => ticks.map(clock) },
      { ...axis, size: 52, values: (self, ticks) => ticks.map(isShare ? percent : short) },
    ],
    series: [{}, ...lines.map((one) => ({
      stroke: styled(one.querySelector(".swatch"), "backgroundColor"),
      width: 2,
      points: { show: (self) => self.data[0].length < 3 },
    }))],
  };
  const plot = new window.uPlot(options, [[], ...lines.map(() => [])], place);
  const observer = new ResizeObserver(() => {
    const width = place.clientWidth;
    if (width && width !== plot.width) plot.setSize({ width, height: HEIGHT });
  });
  observer.observe(place);
  return {
    show: (points) => plot.setData(columnsOf(points, lines.map((one) => one.dataset.column))),
    draw: () => plot.redraw(),
    destroy() {
      observer.disconnect();
      plot.destroy();
    },
  };
}

/** Return columns for a plot, with an empty point where the history has a gap. */
function columnsOf(points, indexes) {
  const usual = points.length > 1 ? (points.at(-1)[0] - points[0][0]) / (points.length - 1) : 1;
  const interrupted = points.flatMap((point, place) => {
    const since = place ? point[0] - points[place - 1][0] : 0;
    return since > GAP * Math.max(1, usual) ? [[point[0] - since / 2], point] : [point];
  });
  return [0, ...indexes].map((index) => interrupted.map((point) => point[index] ?? null));
}

function showPlots() {
  const range = byId("range").value;
  for (const [iteration, card] of cards) {
    const points = series[iteration]?.[range] ?? [];
    card.charts.forEach((one) => one.show(points));
  }
}

// --- bands of workers

const WELL = "connected"; // the state of a worker that needs no attention
const BANDS = [["making", "making"], ["for-readers", "for_readers"], ["for-splits", "for_splits"]];
let layout = { columns: 1, width: 0, height: 0, gap: 0, label: 0 };

/** Choose rows and columns so that one worker has a broad band, and thousands fit. */
function arrange(number, width) {
  if (number <= 32) {
    const named = width >= 600;
    return { columns: 1, width, height: named ? 16 : 12, gap: 5, label: named ? 210 : 0 };
  }
  const least = width < 500 ? 56 : 110;
  const columns = Math.max(1, Math.min(Math.floor(width / least), Math.ceil(number / 16)));
  const dense = number > 400;
  return { columns, width: width / columns, height: dense ? 4 : 8, gap: dense ? 1 : 3, label: 0 };
}

/** Return a pen for a canvas that is emptied and as wide as its box. */
function penOf(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  return pen;
}

function showBands() {
  const { address, state, ...shares } = view.workers;
  const canvas = byId("bands");
  const width = canvas.parentElement.clientWidth;
  layout = arrange(address.length, width);
  const { columns, height, label } = layout;
  const line = height + layout.gap;
  const pen = penOf(canvas, width, Math.max(1, Math.ceil(address.length / columns) * line));
  const room = layout.width - label - (columns > 1 ? 6 : 0);
  const left = (index) => label + (index % columns) * layout.width;
  const top = (index) => Math.floor(index / columns) * line;
  const dip = (tone) => {
    pen.fillStyle = getComputedStyle(byId("legend").querySelector(`.${tone}`)).backgroundColor;
  };
  // One pass for each colour: changing it is dear.
  dip("rest");
  address.forEach((_, index) => pen.fillRect(left(index), top(index), room, height));
  const begins = new Float64Array(address.length);
  for (const [tone, field] of BANDS) {
    dip(tone);
    shares[field].forEach((share, index) => {
      const length = Math.min(100 - begins[index], share);
      pen.fillRect(left(index) + (room * begins[index]) / 100, top(index), (room * length) / 100, height);
      begins[index] += length;
    });
  }
  dip("alarm");
  state.forEach((one, index) => {
    if (one !== WELL) pen.fillRect(left(index), top(index), Math.max(4, room / 12), height);
  });
  if (!label) return;
  pen.fillStyle = getComputedStyle(canvas).color;
  pen.font = "13px system-ui, sans-serif";
  pen.textBaseline = "middle";
  address.forEach((one, index) => pen.fillText(one, 0, top(index) + height / 2 + 1, label - 10));
}

byId("bands").addEventListener("pointermove", (event) => {
  const column = Math.floor(event.offsetX / layout.width);
  const index = Math.floor(event.offsetY / (layout.height + layout.gap)) * layout.columns + column;
  const workers = view?.workers;
  if (!workers || column >= layout.columns || !(index in workers.address)) return;
  const shown = (field) => workers[field][index];
  byId("hint").textContent =
    `${shown("address")}: ${shown("state")}, makes ${shown("making")} %, waits for readers ` +
    `${shown("for_readers")} %, for splits ${shown("for_splits")} %, ${shown("rate")} elements/s`;
});

// --- all of it

function showAll() {
  if (!view) return;
  put(document.body, view);
  document.title = view.title;
  byId("trouble").hidden = !view.trouble;
  showState();
  showJobs();
  showBands();
  showPlots();
}

function showState() {
  const now = clock(view.time);
  const live = paused ? `paused at ${now}` : connected ? `live, ${now}` : "connecting";
  byId("state").textContent = report ? `report of ${moment(view.time)}` : live;
}

let due = false;

/** Draw at most once per frame, and not at all while nobody looks. */
function soon() {
  if (due || paused) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    showAll();
  });
}

function takeWhole(found) {
  view = found.view;
  series = found.history;
  soon();
}

function takeView(found) {
  view = found.view;
  const known = series;
  series = {};
  for (const { iteration } of view.jobs) {
    const { recent, whole } = known[iteration] ?? { recent: [], whole: [] };
    const added = iteration in found.points ? [found.points[iteration]] : [];
    series[iteration] = { recent: [...recent, ...added].slice(-RECENT), whole };
  }
  soon();
}

/** Averages of all the time are made by the server; they are asked for only if shown. */
async function askWhole() {
  if (report || paused || byId("range").value !== "whole" || document.hidden) return;
  try {
    const answer = await fetch("history");
    if (answer.ok) takeWhole(await answer.json());
  } catch {
    // The stream tells that the server is gone.
  }
}

function listen() {
  const stream = new EventSource("events");
  stream.addEventListener("open", () => {
    connected = true;
  });
  stream.addEventListener("whole", (event) => takeWhole(JSON.parse(event.data)));
  stream.addEventListener("view", (event) => takeView(JSON.parse(event.data)));
  stream.addEventListener("error", () => {
    connected = false;
    if (view) view.trouble = "This page's process, `zmqdata dashboard`, does not answer. Is it still running?";
    soon();
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, 5000);
  });
}

// --- controls

/** Return the chosen theme, after it was stored if one is given. */
function theme(chosen) {
  try {
    if (chosen) localStorage.setItem("zmqdata-theme", chosen);
    return localStorage.getItem("zmqdata-theme") || "auto";
  } catch {
    return chosen || "auto"; // a file may have no storage: it lasts as long as the page then
  }
}

function setTheme(chosen) {
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  repaint();
}

function repaint() {
  for (const card of cards.values()) card.charts.forEach((one) => one.draw());
  if (view) showBands();
}

byId("theme").addEventListener("change", (event) => setTheme(theme(event.target.value)));
byId("pause").addEventListener("click", (event) => {
  paused = !paused;
  event.target.setAttribute("aria-pressed", String(paused));
  if (paused && view) showState();
  else soon();
});
byId("range").addEventListener("change", () => {
  askWhole();
  if (view) showPlots();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
new ResizeObserver(() => view && requestAnimationFrame(showBands)).observe(byId("bands").parentElement);

bound(document.body);
byId("theme").value = theme();
setTheme(theme());
if (report) {
  byId("pause").hidden = true;
  takeWhole(JSON.parse(report.textContent));
} else {
  listen();
  setInterval(askWhole, 15000);
}
