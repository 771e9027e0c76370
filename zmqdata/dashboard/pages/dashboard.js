// The page: it draws what the server sends, and decides nothing about it. All texts of
// others are set as text, never as HTML.

const byId = (id) => document.getElementById(id);
const RECENT = 300; // points that the server keeps of the last minutes
const GAP = 5; // a plot is interrupted where points are this many usual steps apart
const OPEN_JOBS = 3; // sections of jobs that are open at first
const MOST_ROWS = 100; // rows of the table of workers

let view = null;
let series = {}; // iteration -> {recent: [...], whole: [...]}
let paused = false;
const cards = new Map(); // iteration -> parts of its section

// --- small pieces

function make(name, className = "", text = "") {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text) node.textContent = text;
  return node;
}

const said = new WeakMap(); // node -> its text: reading it from the document is slow
const named = new WeakMap(); // node -> its class

function say(node, text) {
  if (said.get(node) === text) return;
  said.set(node, text);
  node.textContent = text;
}

function classes(node, text) {
  if (named.get(node) === text) return;
  named.set(node, text);
  node.className = text;
}

/** Make the children of a node as many as the items, and let `show` fill each. */
function fill(parent, items, build, show) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  while (parent.children.length < items.length) parent.append(build());
  items.forEach((item, index) => show(parent.children[index], item, index));
}

/** A table that stacks its cells on a narrow screen. Roles are named, because a changed
 * display would take them away. */
function table(captionText, headings) {
  const node = make("table", "stacks");
  node.setAttribute("role", "table");
  node.append(make("caption", "", captionText));
  const line = make("tr");
  line.setAttribute("role", "row");
  for (const [text, isNumber] of headings) {
    const cell = make("th", isNumber ? "number" : "", text);
    cell.scope = "col";
    cell.setAttribute("role", "columnheader");
    line.append(cell);
  }
  const [head, body] = [make("thead"), make("tbody")];
  head.setAttribute("role", "rowgroup");
  body.setAttribute("role", "rowgroup");
  head.append(line);
  node.append(head, body);
  return node;
}

/** Return a function that builds an empty row below these headings. */
function row(headings) {
  return () => {
    const node = make("tr");
    node.setAttribute("role", "row");
    headings.forEach(([text, isNumber], index) => {
      const cell = make(index ? "td" : "th", isNumber ? "number" : "");
      cell.setAttribute("role", index ? "cell" : "rowheader");
      if (!index) cell.scope = "row";
      else cell.dataset.label = text;
      node.append(cell);
    });
    return node;
  };
}

/** A box that scrolls, also by keys. */
function scrolled(content, label) {
  const box = make("div", "scroll");
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", label);
  box.append(content);
  return box;
}

function barred() {
  const bar = make("div", "bar");
  bar.setAttribute("aria-hidden", "true");
  bar.append(make("div"));
  return bar;
}

function setBar(bar, share) {
  const width = `${Math.round(100 * share)}%`;
  if (said.get(bar) === width) return;
  said.set(bar, width);
  bar.firstChild.style.width = width;
}

const percent = (share) => `${Math.round(100 * share)} %`;

function amount(value) {
  if (value === null || value === undefined) return "";
  if (value === 0) return "0";
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

/** A number for an axis, where there is little room. */
function tick(value) {
  if (Math.abs(value) >= 1e6) return `${amount(value / 1e6)}M`;
  return Math.abs(value) >= 1e4 ? `${amount(value / 1e3)}k` : amount(value);
}

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let place = 0;
  while (value >= 1000 && place < units.length - 1) {
    value /= 1000;
    place += 1;
  }
  return `${amount(value)} ${units[place]}`;
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 120) return `${amount(seconds)} s`;
  if (seconds < 7200) return `${amount(seconds / 60)} min`;
  return `${amount(seconds / 3600)} h`;
}

const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
const moment = (seconds) => new Date(seconds * 1000).toLocaleString("en-GB");
// --- verdicts

let announced = "";

function showVerdicts() {
  const list = byId("verdicts");
  if (!view.jobs.length) {
    fill(list, [0], () => make("li"), (item) => {
      classes(item, "verdict UNKNOWN");
      say(item, view.dispatcher ? "No job runs. It appears here once a training loop reads." : "");
    });
  } else {
    if (list.firstElementChild && !list.firstElementChild.children.length) list.replaceChildren();
    fill(
      list,
      view.jobs,
      () => {
        const item = make("li");
        item.append(make("a"), " ", make("span", "word"), " ", make("span"));
        return item;
      },
      (item, job) => {
        classes(item, `verdict ${job.condition.replace(" ", "-")}`);
        const [link, label, text] = item.children;
        say(link, job.job);
        link.setAttribute("href", `#job-${job.iteration}`);
        say(label, job.condition);
        say(text, job.trouble ? `${job.sentence} ${job.trouble}.` : job.sentence);
      },
    );
  }
  const more = byId("more-jobs");
  more.hidden = !view.more_jobs;
  say(more, `${count(view.more_jobs, "job")} more: zmqdata status lists all of them.`);
  // Only a changed word is read out, not each changed number.
  const words = view.jobs.map((job) => `${job.job}: ${job.condition}`).join(". ");
  if (words !== announced) {
    announced = words;
    say(byId("announce"), words);
    document.title = view.jobs.length ? `${view.jobs[0].condition} - ${view.jobs[0].job} - zmqdata` : "zmqdata";
  }
}

// --- jobs

const STAGES = [["Stage", false], ["Share of time", true], ["Seconds so far", true], ["Threads", true], ["Queue", true]];
const LOOPS = [
  ["Loop", false], ["Waits", true], ["Wait per step", true], ["Own step", true],
  ["Elements/s", true], ["Ready", true], ["First after", true],
];
const LINKS = [["Transport", false], ["Codec", false], ["Bytes", true], ["Elements", true], ["Per element", true]];
const LINK = row(LINKS);

function buildJob(job) {
  const section = make("section", "job");
  section.id = `job-${job.iteration}`;
  const title = make("h2");
  title.id = `title-${job.iteration}`;
  section.setAttribute("aria-labelledby", title.id);
  const facts = make("ul", "facts");
  const poisoned = make("details");
  poisoned.append(make("summary"), make("ul"));
  const parts = make("div", "parts");

  const tree = make("div");
  tree.append(
    make("h3", "", "Pipeline"),
    table(
      "From the training loop back to the source. The share of an operation is its seconds on all workers, without " +
        "its inputs, divided by the seconds of all operations, lately.",
      STAGES,
    ),
  );
  const plots = make("div", "plots");
  const readers = make("div");
  readers.append(
    make("h3", "", "Training loops"),
    make("p", "hint slower"),
    scrolled(table("What each loop did in its last seconds.", LOOPS), `Training loops of ${job.job}`),
    make("p", "hint"),
  );
  const links = make("div");
  links.append(
    make("h3", "", "Links"),
    table("What has arrived, by transport and codec.", LINKS),
    make("p", "hint"),
  );
  parts.append(tree, plots, readers, links);
  const details = make("details");
  details.append(make("summary", "", "Pipeline, loops, links and plots"), parts);
  details.open = cards.size < OPEN_JOBS && !job.is_over;
  section.append(title, facts, poisoned, details);
  byId("jobs").append(section);
  const charts = [
    chart(plots, "Elements per second", [[1, "delivered", "making", amount]]),
    chart(plots, "Share of time", [
      [2, "loop waits", "waits", percent],
      [3, "workers make elements", "making", percent],
    ], [0, 1]),
  ];
  return { section, title, facts, poisoned, tree, readers, links, charts };
}

const STAGE = row(STAGES);

function buildStage() {
  const node = STAGE();
  const branch = make("div");
  branch.append(make("span"), make("span", "kind"), barred());
  node.firstChild.append(branch);
  node.lastChild.append(make("span"), make("span", "unit"));
  return node;
}

function showStage(node, stage) {
  classes(node, stage.kind);
  const branch = node.firstChild.firstChild;
  classes(branch, stage.depth ? `branch depth-${Math.min(6, stage.depth)}` : "");
  say(branch.children[0], stage.label);
  say(branch.children[1], stage.doing);
  setBar(branch.children[2], stage.share);
  say(node.children[1], percent(stage.share));
  say(node.children[2], amount(stage.seconds));
  say(node.children[3], amount(stage.threads));
  classes(node.lastChild, stage.queue === null ? "number nothing" : "number");
  say(node.lastChild.firstChild, stage.queue === null ? "" : stage.queue.toLocaleString("en"));
  say(node.lastChild.lastChild, stage.queue === null ? "" : stage.queued);
}

const READER = row(LOOPS);

function buildReader() {
  const node = READER();
  classes(node, "reader");
  node.firstChild.append(make("span"), " ", make("span", "mark"), barred());
  return node;
}

function showReader(node, reader) {
  const [name, mark, bar] = node.firstChild.children;
  say(name, reader.name);
  say(mark, reader.slower ? `step ${amount(reader.slower)}x the others'` : "");
  mark.hidden = !reader.slower;
  setBar(bar, reader.wait_share);
  const cells = [
    percent(reader.wait_share), `${amount(reader.wait_ms)} ms`, `${amount(reader.step_ms)} ms`,
    amount(reader.rate), amount(reader.buffered), duration(reader.first),
  ];
  cells.forEach((text, index) => say(node.children[index + 1], text));
}

function showJob(job) {
  if (!cards.has(job.iteration)) cards.set(job.iteration, buildJob(job));
  const card = cards.get(job.iteration);
  say(card.title, job.job);
  const facts = [
    [amount(job.delivered), `${job.unit} delivered`],
    [amount(job.rate), `${job.unit}/s taken`],
    [amount(job.made_rate), `${job.unit}/s made by workers`],
    [count(job.workers, "worker"), job.workers && job.workers_needed > job.workers ? `of ${job.workers_needed} that would feed it` : ""],
    [count(job.clients, "training loop"), ""],
    [job.mode, "sharding"],
    ...(job.origin ? [[job.origin, "is read"]] : []),
  ];
  if (job.unit === "batches" && job.rows_rate) facts.push([amount(job.rows_rate), "rows/s"]);
  fill(
    card.facts,
    facts,
    () => {
      const item = make("li");
      item.append(make("b"), " ", make("span"));
      return item;
    },
    (item, [figure, text]) => {
      say(item.children[0], figure);
      say(item.children[1], text);
    },
  );
  const poisoned = job.poisoned.length + job.more_poisoned;
  card.poisoned.hidden = !poisoned;
  say(card.poisoned.firstChild, `${count(poisoned, "element")} left out because workers died of them`);
  fill(card.poisoned.lastChild, job.poisoned, () => make("li"), say);
  fill(card.tree.querySelector("tbody"), job.stages, buildStage, showStage);
  fill(card.readers.querySelector("tbody"), job.readers, buildReader, showReader);
  card.readers.hidden = !job.readers.length;
  const slower = job.readers.filter((one) => one.slower).map((one) => one.name);
  say(
    card.readers.querySelector(".slower"),
    slower.length ? `Slower than the others, which wait for it if they read in step: ${slower.slice(0, 5).join("; ")}${slower.length > 5 ? `; and ${slower.length - 5} more` : ""}.` : "",
  );
  const [least, middle, most] = job.waits.map(percent);
  const spread = `The loops wait ${least} (least), ${middle} (median) and ${most} (most) of their time.`;
  const rest = job.more_readers ? ` ${count(job.more_readers, "loop")} more are not shown: those in the table are marked, or wait most.` : "";
  say(card.readers.lastChild, job.readers.length > 1 ? spread + rest : "");
  card.links.hidden = !job.links.length && !job.bytes_rate;
  card.links.querySelector("table").hidden = !job.links.length;
  fill(
    card.links.querySelector("tbody"),
    job.links,
    LINK,
    (node, link) => {
      const each = link.elements ? bytes(link.bytes / link.elements) : "";
      [link.transport, link.codec, bytes(link.bytes), amount(link.elements), each].forEach((text, index) =>
        say(node.children[index], text),
      );
    },
  );
  const busy = Math.max(0, ...job.stages.filter((stage) => stage.kind === "link").map((stage) => stage.share));
  say(card.links.lastChild, `Workers send ${bytes(job.bytes_rate)}/s; the busiest link has bytes in flight ${percent(busy)} of the time.`);
}

function showJobs() {
  const known = new Set(view.jobs.map((job) => job.iteration));
  for (const [iteration, card] of cards) {
    if (known.has(iteration)) continue;
    card.charts.forEach((one) => one.destroy());
    card.section.remove();
    cards.delete(iteration);
  }
  view.jobs.forEach(showJob);
}

// --- plots

const colours = {};

/** Return a colour of the style sheet as the canvas takes it. */
function colour(name) {
  if (!(name in colours)) {
    const probe = make("span", `swatch ${name}`);
    document.body.append(probe);
    colours[name] = getComputedStyle(probe).backgroundColor;
    probe.remove();
  }
  return colours[name];
}

function textColour() {
  return getComputedStyle(byId("place")).color;
}

function lineColour() {
  return getComputedStyle(document.querySelector("header")).borderBottomColor;
}

/** A plot of some columns of the history, with its legend and newest values in words. */
function chart(parent, title, lines, limits = null) {
  const figure = make("figure");
  const caption = make("figcaption");
  caption.append(make("h3", "", title));
  const values = lines.map(([, name, tone]) => {
    const entry = make("span");
    const value = make("b");
    entry.append(make("span", `swatch ${tone}`), `${name} `, value);
    caption.append(entry);
    return value;
  });
  const place = make("div", "plot");
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", `Plot: ${title}`);
  figure.append(caption, place);
  parent.append(figure);
  let plot = null;
  let columns = [[], ...lines.map(() => [])];

  const axis = () => ({
    stroke: textColour(), grid: { stroke: lineColour(), width: 1 }, ticks: { stroke: lineColour(), width: 1 },
    font: "12px system-ui, sans-serif",
  });

  function draw() {
    if (plot) plot.destroy();
    const width = Math.max(120, Math.floor(place.clientWidth));
    const options = {
      width,
      height: 150,
      legend: { show: false },
      cursor: { show: false },
      scales: { y: { range: (self, low, high) => limits || [0, high > 0 ? 1.1 * high : 1] } },
      axes: [
        { ...axis(), space: 90, size: 28, values: (self, ticks) => ticks.map(clock) },
        { ...axis(), size: 52, values: (self, ticks) => ticks.map(limits ? percent : tick) },
      ],
      series: [{}, ...lines.map(([, name, tone]) => ({ label: name, stroke: colour(tone), width: 2, points: { show: columns[0].length < 3 } }))],
    };
    plot = new window.uPlot(options, columns, place);
  }

  const observer = new ResizeObserver(() => {
    const width = Math.floor(place.clientWidth);
    if (plot && width && width !== plot.width) plot.setSize({ width, height: 150 });
  });
  observer.observe(place);
  return {
    show(points) {
      columns = columnsOf(points, lines.map(([index]) => index));
      const newest = points[points.length - 1];
      lines.forEach(([index, , , shown], place_) => say(values[place_], newest ? shown(newest[index]) : ""));
      if (!plot) draw();
      else plot.setData(columns);
    },
    draw,
    destroy() {
      observer.disconnect();
      if (plot) plot.destroy();
    },
  };
}

/** Return columns for a plot, with an empty point where the history has a gap. */
function columnsOf(points, indexes) {
  const columns = [[], ...indexes.map(() => [])];
  const step = points.length > 1 ? (points[points.length - 1][0] - points[0][0]) / (points.length - 1) : 1;
  points.forEach((point, place) => {
    const since = place ? point[0] - points[place - 1][0] : 0;
    if (since > GAP * Math.max(1, step)) {
      columns[0].push(point[0] - since / 2);
      indexes.forEach((_, column) => columns[column + 1].push(null));
    }
    columns[0].push(point[0]);
    indexes.forEach((index, column) => columns[column + 1].push(point[index]));
  });
  return columns;
}

function showPlots() {
  const range = byId("range").value;
  for (const [iteration, card] of cards) {
    const points = (series[iteration] || { recent: [], whole: [] })[range];
    card.charts.forEach((one) => one.show(points));
  }
}

// --- workers

const WELL = "connected"; // the state of a worker that needs no attention
let layout = { columns: 1, width: 0, height: 0, gap: 0, count: 0 };

/** Choose rows and columns so that one worker has a broad band, and thousands fit. */
function arrange(number, width) {
  if (number <= 32) {
    const named = width >= 600;
    return { columns: 1, width, height: named ? 16 : 12, gap: 5, count: number, label: named ? 210 : 0 };
  }
  const least = width < 500 ? 56 : 110;
  const columns = Math.max(1, Math.min(Math.floor(width / least), Math.ceil(number / 16)));
  const dense = number > 400;
  return { columns, width: width / columns, height: dense ? 4 : 8, gap: dense ? 1 : 3, count: number };
}

function showBands() {
  const workers = view.workers;
  const canvas = byId("bands");
  const width = canvas.parentElement.clientWidth;
  const number = workers.address.length;
  layout = arrange(number, width);
  const rows = Math.ceil(number / layout.columns);
  const height = Math.max(1, rows * (layout.height + layout.gap));
  const scale = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  const label = layout.label || 0;
  const room = layout.width - label - (layout.columns > 1 ? 6 : 0);
  const alarmed = [];
  // One pass for each colour: changing it is dear.
  const passes = [["rest", null], ["making", workers.making], ["for-readers", workers.for_readers], ["for-splits", workers.for_splits]];
  const begins = new Float64Array(number);
  for (const [tone, shares] of passes) {
    pen.fillStyle = colour(tone);
    for (let index = 0; index < number; index += 1) {
      const x = label + (index % layout.columns) * layout.width;
      const y = Math.floor(index / layout.columns) * (layout.height + layout.gap);
      if (shares === null) {
        pen.fillRect(x, y, room, layout.height);
        if (workers.state[index] !== WELL) alarmed.push([x, y]);
        continue;
      }
      const length = (room * Math.min(100 - begins[index], shares[index])) / 100;
      if (length > 0) pen.fillRect(x + (room * begins[index]) / 100, y, length, layout.height);
      begins[index] += shares[index];
    }
  }
  if (label) {
    pen.fillStyle = textColour();
    pen.font = "13px system-ui, sans-serif";
    pen.textBaseline = "middle";
    workers.address.forEach((address, index) =>
      pen.fillText(address, 0, index * (layout.height + layout.gap) + layout.height / 2 + 1, label - 10),
    );
  }
  pen.fillStyle = colour("alarm");
  for (const [x, y] of alarmed) pen.fillRect(x, y, Math.max(4, room / 12), layout.height);
  const states = Object.entries(workers.states).map(([state, found]) => `${found.toLocaleString("en")} ${state}`);
  const mean = number ? workers.making.reduce((sum, one) => sum + one, 0) / number : 0;
  const summary = number
    ? `${count(workers.count, "worker")}: ${states.join(", ")}. On average they make elements ${Math.round(mean)} % of the time.`
    : "No worker is registered. Start some with: zmqdata worker --dispatcher ADDRESS";
  say(byId("workers-summary"), number < workers.count ? `${summary} ${number.toLocaleString("en")} are shown.` : summary);
  canvas.setAttribute("aria-label", `A band for each worker. ${summary}`);
}

const WORKERS = [
  ["Worker", false], ["State", false], ["Tasks", true], ["Makes elements", true],
  ["Waits for readers", true], ["Waits for splits", true], ["Elements/s", true],
];
const WORKER = row(WORKERS);
byId("workers-details").lastElementChild.append(table("Workers", WORKERS));

function showWorkersTable() {
  if (!byId("workers-details").open) return;
  const workers = view.workers;
  const order = workers.address.map((_, index) => index);
  const calm = (index) => (workers.state[index] === WELL ? 1 : 0);
  if (order.length > MOST_ROWS) order.sort((one, other) => calm(one) - calm(other) || workers.rate[one] - workers.rate[other]);
  const shown = order.slice(0, MOST_ROWS);
  const shownAs = byId("workers-details").querySelector("table");
  say(shownAs.caption, order.length > MOST_ROWS ? `${MOST_ROWS} of ${order.length.toLocaleString("en")} workers: those in trouble and the slowest` : "Workers");
  fill(shownAs.tBodies[0], shown, WORKER, (node, index) => {
    const cells = [
      workers.address[index], workers.state[index], amount(workers.tasks[index]), `${workers.making[index]} %`,
      `${workers.for_readers[index]} %`, `${workers.for_splits[index]} %`, amount(workers.rate[index]),
    ];
    cells.forEach((text, place) => say(node.children[place], text));
    classes(node.children[1], workers.state[index] === WELL ? "" : "alert");
  });
}

byId("bands").addEventListener("pointermove", (event) => {
  const box = event.target.getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left) / layout.width);
  const line = Math.floor((event.clientY - box.top) / (layout.height + layout.gap));
  const index = line * layout.columns + column;
  const workers = view && view.workers;
  if (!workers || column >= layout.columns || !(index in workers.address)) return;
  say(
    byId("hint"),
    `${workers.address[index]}: ${workers.state[index]}, makes ${workers.making[index]} %, waits for readers ` +
      `${workers.for_readers[index]} %, for splits ${workers.for_splits[index]} %, ${amount(workers.rate[index])} elements/s`,
  );
});

// --- events

function showEvents() {
  const events = view.events.slice().reverse();
  const body = byId("events").querySelector("tbody");
  if (!events.length) events.push({ time: null, level: "", text: "Nothing has happened yet." });
  fill(
    body,
    events,
    () => {
      const node = make("tr");
      node.append(make("td"), make("td"), make("td"));
      return node;
    },
    (node, one) => {
      classes(node, ["warning", "error", "critical"].includes(one.level) ? one.level : "");
      say(node.children[0], one.time === null ? "" : clock(one.time));
      say(node.children[1], one.level);
      say(node.children[2], one.text);
    },
  );
}

// --- all of it

function showAll() {
  if (!view) return;
  const trouble = byId("trouble");
  trouble.hidden = !view.trouble;
  say(trouble, view.trouble ? `${view.trouble} This page shows what was known at ${clock(view.time)}.` : "");
  showPlace();
  showVerdicts();
  showJobs();
  showBands();
  showWorkersTable();
  showEvents();
  showPlots();
}

let connected = false;
const report = byId("report");

function showPlace() {
  const state = report ? `report of ${moment(view.time)}` : paused ? `paused at ${clock(view.time)}` : connected ? `live, ${clock(view.time)}` : "connecting";
  const insecure = view.insecure ? ", without a key" : "";
  say(byId("place"), `${view.dispatcher}${insecure} - ${state}`);
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
  for (const [iteration, point] of Object.entries(found.points)) {
    const known = (series[iteration] ||= { recent: [], whole: [] });
    known.recent.push(point);
    if (known.recent.length > RECENT) known.recent.shift();
  }
  for (const iteration of Object.keys(series)) {
    if (!view.jobs.some((job) => String(job.iteration) === iteration)) delete series[iteration];
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
    if (view) view.trouble = "The process of this page, `zmqdata dashboard`, does not answer. Is it still running?";
    soon();
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, 5000);
  });
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  repaint();
}

function repaint() {
  for (const name of Object.keys(colours)) delete colours[name];
  for (const card of cards.values()) card.charts.forEach((one) => one.draw());
  if (view) showBands();
}

function remembered() {
  try {
    return localStorage.getItem("zmqdata-theme") || "auto";
  } catch {
    return "auto"; // a file may have no storage
  }
}

byId("theme").addEventListener("change", (event) => {
  setTheme(event.target.value);
  try {
    localStorage.setItem("zmqdata-theme", event.target.value);
  } catch {
    // It lasts as long as the page then.
  }
});
byId("pause").addEventListener("click", (event) => {
  paused = !paused;
  event.target.setAttribute("aria-pressed", String(paused));
  if (paused) showPlace();
  else soon();
});
byId("range").addEventListener("change", () => {
  askWhole();
  if (view) showPlots();
});
byId("workers-details").addEventListener("toggle", () => view && showWorkersTable());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
new ResizeObserver(() => view && requestAnimationFrame(showBands)).observe(byId("bands").parentElement);

byId("theme").value = remembered();
setTheme(byId("theme").value);
if (report) {
  byId("pause").hidden = true;
  takeWhole(JSON.parse(report.textContent));
} else {
  listen();
  setInterval(askWhole, 15000);
}
