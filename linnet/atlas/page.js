// The page of an atlas: what is chosen, and everything that follows from it.

import { make, svg, text, widthOf } from "./figure.js";

const AGAINST = { step: "µs of a step", update: "ms of an update", size: "kB in int8", parameters: "parameters" };
const DASH = "–";
const find = (id) => document.getElementById(id);

let data, sort, matrixSort, chosen;

/** Show an atlas; `numbers` is what linnet/atlas/page.py writes. */
export function show(numbers) {
  data = numbers;
  sort = { key: "mean", down: undefined };
  matrixSort = undefined;
  const kinds = [...new Set(data.problems.map((each) => each.kind))];
  for (const kind of kinds) {
    const names = data.problems.filter((each) => each.kind === kind).map((each) => each.name);
    find("problem").append(element("optgroup", { label: kind }, ...names.map((name) => option(name, name))));
  }
  find("view").append(...Object.keys(data.views).map((view) => option(view, `equal ${view}`)));
  find("against").append(...Object.entries(AGAINST).map(([key, label]) => option(key, label)));
  const units = Object.entries(data.units).map(([unit, each]) => option(unit, each.label));
  find("unit").append(...units);
  chosen = find("unit").value;
  find("problem").addEventListener("change", () => (sort = { key: "mean", down: undefined }));
  for (const id of ["problem", "view", "against", "names", "most", "better"]) {
    find(id).addEventListener("input", draw);
    find(id).addEventListener("change", draw);
  }
  find("unit").addEventListener("change", () => choose(find("unit").value));
  for (const form of document.forms) form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("resize", drawPlot);
  draw();
}

const problem = () => data.problems.find((each) => each.name === find("problem").value);
const view = () => find("view").value;
const rowsOf = (name, at = view()) => data.rows.filter((row) => row.problem === name && row.view === at);

function choose(unit) {
  chosen = unit;
  find("unit").value = unit;
  draw();
}

function draw() {
  const { about, figure, higher, baseline, levelText } = problem();
  const level = levelText === null ? "" : ` The baseline (${baseline}) has ${levelText}.`;
  const result = `The result is the ${figure}; ${higher ? "higher" : "lower"} is better.`;
  find("about").textContent = `${about} ${result}${level} ${data.views[view()]}`;
  find("verdict").textContent = verdict();
  drawPlot();
  drawTable();
  drawCard();
  drawMatrix();
}

// ---------------------------------------------------------------------------------- what is best

const order = (higher) => (a, b) => (higher ? b.mean - a.mean : a.mean - b.mean);

/** The best row and all whose interval meets that of the best. */
function leaders(rows, higher) {
  const [best, ...others] = rows.filter((row) => row.mean !== null).sort(order(higher));
  if (!best) return [];
  const reach = (row) => (row.half === null || best.half === null ? -1 : row.half + best.half);
  return [best, ...others.filter((row) => Math.abs(row.mean - best.mean) <= reach(row))];
}

function verdict() {
  const found = leaders(rowsOf(problem().name), problem().higher);
  if (!found.length) return "No run of this task has a result yet.";
  const [best] = found;
  const label = (row) => data.units[row.unit].label;
  const first = `Best: ${label(best)}, ${best.text}.`;
  if (best.half === null) {
    return `${first} With a single seed there is no interval: units that are close cannot be told apart.`;
  }
  const others = found.length - 1;
  if (!others) return `${first} No other interval meets its own.`;
  const [fastest] = found.filter((row) => row.step !== null).sort((a, b) => a.step - b.step);
  const one = "The interval of one other unit meets its own.";
  const reach = others === 1 ? one : `The intervals of ${others} other units meet its own.`;
  if (!fastest) return `${first} ${reach}`;
  const step = `${fastest.step.toFixed(1)} µs`;
  return `${first} ${reach} Of all these, ${label(fastest)} has the fastest step (${step}) with ${fastest.text}.`;
}

const isBetter = (row, { level, higher }) =>
  row.mean !== null && (level === null || (higher ? row.mean > level : row.mean < level));

// -------------------------------------------------------------------------------------- the plot

function drawPlot() {
  const key = find("against").value;
  const { higher, figure, baseline } = problem();
  const rows = rowsOf(problem().name).filter((row) => row.mean !== null && row[key]);
  const level = nearLevel(rows);
  find("plot").replaceChildren();
  const without = rowsOf(problem().name).length - rows.length;
  if (!rows.length) {
    find("plot").append(element("p", {}, `No unit has both a result and a value of "${AGAINST[key]}" on this task.`));
    return;
  }
  const width = Math.max(300, Math.min(find("plot").clientWidth, 704));
  const height = Math.round(Math.min(440, 0.5 * width + 140));
  const frame = { left: 50, right: width - 14, top: 12, bottom: height - 44 };
  const x = scale(extent(rows.map((row) => Math.log(row[key]))), frame.left + 14, frame.right - 14);
  const values = rows.flatMap((row) => [row.mean - (row.half ?? 0), row.mean + (row.half ?? 0)]);
  const ends = extent(level === null ? values : [...values, level]);
  // Intervals of a few seeds may be much wider than the range of results.
  const means = extent(level === null ? rows.map((row) => row.mean) : [...rows.map((row) => row.mean), level]);
  const room = 0.25 * (means[1] - means[0]) || 1;
  const shown = [Math.max(ends[0], means[0] - room), Math.min(ends[1], means[1] + room)];
  const y = higher ? scale(shown, frame.bottom, frame.top) : scale(shown, frame.top, frame.bottom);
  const clamp = (value) => Math.min(shown[1], Math.max(shown[0], value));
  const label = `${figure} against ${AGAINST[key]} for ${rows.length} units`;
  const picture = svg(width, height, label, ...axes(frame, x, y, rows, key, shown));
  const taken = [];
  if (level !== null) {
    // Its name is at the side with fewer dots.
    const right = rows.filter((row) => x(Math.log(row[key])) > width / 2).length < rows.length / 2;
    const left = right ? frame.right - widthOf(baseline, 12) - 4 : frame.left + 4;
    taken.push({ left, right: left + widthOf(baseline, 12), top: y(level) - 16, bottom: y(level) });
    const ends = { x1: frame.left, x2: frame.right, y1: y(level), y2: y(level) };
    picture.append(
      make("line", { ...ends, stroke: "var(--c6a6a6a)", "stroke-dasharray": "4 3" }),
      text(left, y(level) - 4, baseline, { fill: "var(--c6a6a6a)", "font-size": 12 }),
    );
  }
  for (const row of [...rows].sort((a, b) => (a.unit === chosen) - (b.unit === chosen))) {
    const [cx, cy, colour] = [x(Math.log(row[key])), y(row.mean), `var(${data.units[row.unit].colour})`];
    if (row.half) {
      const bar = { x1: cx, x2: cx, y1: y(clamp(row.mean - row.half)), y2: y(clamp(row.mean + row.half)) };
      picture.append(make("line", { ...bar, stroke: colour, "stroke-width": 1.5, opacity: 0.45 }));
    }
    const isChosen = row.unit === chosen;
    const ring = { stroke: isChosen ? "var(--ink)" : "var(--page)", "stroke-width": isChosen ? 3 : 1 };
    const dot = make("circle", { cx, cy, r: isChosen ? 7 : 5, fill: colour, ...ring });
    const value = `${shortNumber(row[key])} ${AGAINST[key]}`;
    dot.append(make("title", {}, `${data.units[row.unit].label}: ${row.text}, ${value}`));
    dot.addEventListener("click", () => choose(row.unit));
    picture.append(dot);
    taken.push({ left: cx - 6, right: cx + 6, top: cy - 6, bottom: cy + 6 });
  }
  for (const row of labelled(rows, key)) {
    picture.append(...placed(row, x(Math.log(row[key])), y(row.mean), taken, frame));
  }
  find("plot").append(picture, element("figcaption", {}, caption(key, rows, without)));
}

/** The level of the baseline, or null if it is so far from all results that they would be one line. */
function nearLevel(rows) {
  const { level } = problem();
  const [low, high] = extent(rows.map((row) => row.mean));
  const room = high - low;
  return level !== null && level > low - room && level < high + room ? level : null;
}

function caption(key, rows, without) {
  const left = key === "step" || key === "update" ? "faster" : "smaller";
  const units = without === 1 ? "unit has" : "units have";
  const parts = [
    `Up is better, left is ${left}; the scale from left to right is logarithmic.`,
    rows.some((row) => row.half !== null) ? "Bars are 95 % intervals over seeds, cut at the edge." : "",
    problem().level !== null && nearLevel(rows) === null ? "The baseline is outside the plot." : "",
    without ? `${without} ${units} no point here; the table says why.` : "",
    "Point at a dot for its unit, or click on it.",
  ];
  return parts.filter(Boolean).join(" ");
}

/** The rows that get their name in the plot: the chosen one first, those that no other beats, then the best. */
function labelled(rows, key) {
  const { higher } = problem();
  const better = (a, b) => (higher ? a.mean > b.mean : a.mean < b.mean);
  const front = rows.filter((row) => !rows.some((other) => other[key] <= row[key] && better(other, row)));
  const own = rows.filter((row) => row.unit === chosen);
  return [...new Set([...own, ...front, ...[...rows].sort(order(higher))])];
}

/** The label of a dot where there is room for it, or nothing. */
function placed(row, cx, cy, taken, frame) {
  const { label } = data.units[row.unit];
  const bold = row.unit === chosen ? "bold" : "";
  const width = widthOf(label, 12, bold);
  const middle = cx - width / 2;
  for (const [left, top] of [[cx + 8, cy - 7], [cx - 8 - width, cy - 7], [middle, cy - 22], [middle, cy + 8]]) {
    const box = { left, right: left + width, top, bottom: top + 14 };
    const inside = left >= frame.left && box.right <= frame.right + 10 && top >= 0 && box.bottom <= frame.bottom;
    const free = !taken.some((each) => overlap(box, each));
    if (inside && free) {
      taken.push(box);
      return [text(left, top + 11, label, { "font-size": 12, "font-weight": bold || undefined })];
    }
  }
  return [];
}

const overlap = (a, b) => a.right >= b.left && a.left <= b.right && a.bottom >= b.top && a.top <= b.bottom;

function axes(frame, x, y, rows, key, shown) {
  const parts = [];
  for (const value of ticks(shown[0], shown[1])) {
    parts.push(make("line", { x1: frame.left, x2: frame.right, y1: y(value), y2: y(value), stroke: "var(--cd8d8d8)" }));
    parts.push(text(frame.left - 6, y(value) + 4, shortNumber(value), { "text-anchor": "end", "font-size": 12 }));
  }
  const [low, high] = extent(rows.map((row) => row[key]));
  const marks = logTicks(low, high);
  for (const value of marks) {
    const at = x(Math.log(value));
    parts.push(make("line", { x1: at, x2: at, y1: frame.bottom, y2: frame.bottom + 5, stroke: "var(--ink)" }));
    parts.push(text(at, frame.bottom + 18, shortNumber(value), { "text-anchor": "middle", "font-size": 12 }));
  }
  const bottom = { x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom, stroke: "var(--ink)" };
  const middle = (frame.left + frame.right) / 2;
  const name = text(middle, frame.bottom + 37, AGAINST[key], { "text-anchor": "middle" });
  return [...parts, make("line", bottom), name];
}

const extent = (values) => [Math.min(...values), Math.max(...values)];

/** A linear map from the interval to pixels; an interval of one point is in the middle. */
function scale([low, high], start, end) {
  if (high === low) return () => (start + end) / 2;
  return (value) => start + ((value - low) / (high - low)) * (end - start);
}

function ticks(low, high) {
  const raw = (high - low) / 5 || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-9; value += step) {
    found.push(Number(value.toPrecision(10)));
  }
  return found;
}

/** Up to about six marks: 1, 2 and 5 of each decade, or finer ones for a narrow range. */
function logTicks(low, high) {
  const fine = Array.from({ length: 90 }, (_, i) => 1 + i / 10);
  for (const digits of [[1], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 7], fine]) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      found.push(...digits.map((each) => Number((each * 10 ** power).toPrecision(3))));
    }
    const inside = found.filter((value) => value >= low && value <= high);
    if (inside.length >= 3) return inside.filter((_, i) => i % Math.ceil(inside.length / 7) === 0);
  }
  return [low, high];
}

const shortNumber = (value) =>
  Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));

// ------------------------------------------------------------------------------------- the table

const COLUMNS = [
  { key: "label", title: "unit", show: (row) => name(row.unit) },
  { key: "mean", title: "result", show: (row) => row.text },
  { key: "step", title: "µs of a step", show: (row) => row.step?.toFixed(1) },
  { key: "update", title: "ms of an update", show: (row) => row.update?.toFixed(2) },
  { key: "size", title: "kB in int8", show: (row) => row.size?.toFixed(1) },
  { key: "loss", title: "int8 loses", show: (row) => row.lossText },
  { key: "parameters", title: "parameters", show: (row) => row.parameters.toLocaleString("en") },
  { key: "updates", title: "updates", show: (row) => row.updates.toLocaleString("en") },
];

function name(unit) {
  const dot = element("span", { className: "dot" });
  dot.style.background = `var(${data.units[unit].colour})`;
  const button = element("button", { type: "button" }, dot, data.units[unit].label);
  button.addEventListener("click", () => choose(unit));
  return button;
}

function drawTable() {
  const all = rowsOf(problem().name).map((row) => ({ ...row, label: data.units[row.unit].label.toLowerCase() }));
  const rows = sorted(all.filter(wanted));
  const heads = COLUMNS.map(({ key, title }) => head(title, sort, key, () => sortBy(key), data.columns[title]));
  const body = rows.map((row) => {
    const cells = COLUMNS.map((column) => element("td", { title: why(row, column.key) }, column.show(row) || DASH));
    return element("tr", { className: row.unit === chosen ? "chosen" : "" }, ...cells);
  });
  find("table").replaceChildren(...tableParts(heads, body));
  const hint = "A click on a column sorts by it; a click on a unit shows it below.";
  find("count").textContent = `${rows.length} of ${all.length} units. ${hint}`;
}

/** Whether a row passes the three filters. */
function wanted(row) {
  const words = find("names").value.toLowerCase().split(/[\s,]+/).filter(Boolean);
  if (words.length && !words.some((word) => row.label.includes(word) || row.unit.includes(word))) return false;
  const most = Number.parseFloat(find("most").value);
  if (Number.isFinite(most) && !(row.step !== null && row.step <= most)) return false;
  return !find("better").checked || isBetter(row, problem());
}

function sortBy(key) {
  const usual = key === "mean" ? problem().higher : false;
  const before = sort.key === key ? (sort.down ?? usual) : !usual;
  sort = { key, down: !before };
  draw();
}

function sorted(rows) {
  const down = sort.down ?? problem().higher;
  sort = { ...sort, down };
  const value = (row) => row[sort.key];
  const known = rows.filter((row) => value(row) !== null && value(row) !== undefined);
  const unknown = rows.filter((row) => !known.includes(row));
  // Units with the same value keep their order, as in the sentence about the best.
  const sign = down ? -1 : 1;
  known.sort((a, b) => sign * (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0));
  return [...known, ...unknown];
}

/** What the notes about the column of a cell begin with. */
const NOTES = {
  mean: ["seed"],
  step: ["no stream", "slow step"],
  update: ["no training"],
  size: ["no int8"],
  loss: ["no int8"],
};

/** Why a cell is empty or unusual, for whoever points at it. */
function why(row, key) {
  const begins = NOTES[key] ?? [];
  return row.notes.filter((note) => begins.some((each) => note.startsWith(each))).join("; ");
}

function head(title, state, key, click, about = "") {
  const button = element("button", { type: "button", title: about }, title);
  button.addEventListener("click", click);
  const cell = element("th", { scope: "col" }, button);
  if (state?.key === key) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
  return cell;
}

// -------------------------------------------------------------------------- one unit, and all tasks

function drawCard() {
  const unit = data.units[chosen];
  const heads = ["task", "result", "rank", "baseline", "µs of a step", "int8 loses"];
  const body = data.problems.map((each) => {
    const rows = rowsOf(each.name);
    const row = rows.find((other) => other.unit === chosen);
    const place = rank(rows, row, each.higher);
    const cells = [each.name, row.text, place, each.levelText, row.step?.toFixed(1), row.lossText];
    return element("tr", {}, ...cells.map((cell) => element("td", {}, cell || DASH)));
  });
  const notes = [...new Set(data.rows.filter((row) => row.unit === chosen).flatMap((row) => row.notes))];
  const parts = [element("p", {}, unit.paper, unit.options ? ` Options: ${unit.options}.` : "")];
  const lens = element("a", { href: unit.lens ?? "" }, `Type a text and watch ${unit.label} read it`);
  if (unit.lens) parts.push(element("p", {}, lens));
  const names = heads.map((each) => element("th", { scope: "col" }, each));
  const table = element("table", {}, ...tableParts(names, body));
  const note = element("p", { className: "note" }, "The table scrolls to the side.");
  parts.push(element("div", { className: "scrolls" }, note, table));
  if (notes.length) parts.push(element("ul", { className: "note" }, ...notes.map((note) => element("li", {}, note))));
  find("unit-title").textContent = `One unit: ${unit.label}, at equal ${view()}`;
  find("card").replaceChildren(...parts);
}

function rank(rows, row, higher) {
  if (row.mean === null) return DASH;
  const known = rows.filter((other) => other.mean !== null);
  const ahead = known.filter((other) => (higher ? other.mean > row.mean : other.mean < row.mean)).length;
  return `${ahead + 1} of ${known.length}`;
}

function drawMatrix() {
  const units = Object.keys(data.units);
  const shown = data.rows.filter((row) => row.view === view());
  const cells = new Map(shown.map((row) => [`${row.problem}/${row.unit}`, row]));
  const shares = new Map();
  for (const each of data.problems) {
    const known = rowsOf(each.name).filter((row) => row.mean !== null).sort(order(each.higher));
    known.forEach((row, i) => shares.set(`${each.name}/${row.unit}`, 1 - i / Math.max(1, known.length - 1)));
  }
  if (matrixSort) {
    const position = (unit) => shares.get(`${matrixSort.key}/${unit}`) ?? -1;
    units.sort((a, b) => (matrixSort.down ? position(b) - position(a) : position(a) - position(b)));
  }
  const heads = data.problems.map((each) =>
    head(each.name, matrixSort, each.name, () => {
      matrixSort = { key: each.name, down: matrixSort?.key === each.name ? !matrixSort.down : true };
      drawMatrix();
    }),
  );
  const body = units.map((unit) => {
    const own = data.problems.map((each) => {
      const row = cells.get(`${each.name}/${unit}`);
      const cell = element("td", { title: row.text }, row.mean === null ? DASH : row.text.split(" ")[0]);
      const share = shares.get(`${each.name}/${unit}`);
      const strength = Math.round(45 * (share ?? 0));
      cell.style.background = `color-mix(in srgb, var(--c16a085) ${strength}%, transparent)`;
      return cell;
    });
    return element("tr", { className: unit === chosen ? "chosen" : "" }, element("td", {}, name(unit)), ...own);
  });
  const corner = element("th", { scope: "col" }, "unit");
  find("matrix").replaceChildren(...tableParts([corner, ...heads], body));
}

// --------------------------------------------------------------------------------------- elements

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

const tableParts = (heads, rows) => [
  element("thead", {}, element("tr", {}, ...heads)),
  element("tbody", {}, ...rows),
];

const option = (value, label) => element("option", { value }, label);
