// Figures in SVG. Colours are CSS variables, so that a figure follows the theme of the page.

const SVG = "http://www.w3.org/2000/svg";
const ruler = document.createElement("canvas").getContext("2d");
export const FONT = "ui-sans-serif, system-ui, sans-serif";

/** An SVG element; attributes that are undefined are left out. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

export function svg(width, height, label, ...children) {
  const box = { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label };
  return make("svg", { ...box, "font-family": FONT, "font-size": 13 }, ...children);
}

export function text(x, y, content, attributes = {}) {
  return make("text", { x, y, fill: "var(--ink)", ...attributes }, content);
}

export function line(points, attributes = {}) {
  const path = points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  return make("path", { d: path, fill: "none", "stroke-width": 2, "stroke-linejoin": "round", ...attributes });
}

/** The width of a text in pixels. */
export function widthOf(content, size = 13, weight = "") {
  ruler.font = `${weight} ${size}px ${FONT}`;
  return ruler.measureText(content).width;
}

/** A text that is cut with … if it is wider than `most`. */
export function fitted(content, most, size = 13, weight = "") {
  if (widthOf(content, size, weight) <= most) return content;
  let end = content.length;
  while (end > 1 && widthOf(`${content.slice(0, end)}…`, size, weight) > most) end--;
  return `${content.slice(0, end)}…`;
}

/** A token as it is drawn: blanks are visible. */
export function visible(token) {
  return token.replaceAll(" ", "␣") || "∅";
}

/**
 * Columns for tokens, side by side, never wider than `room`: { found: [{ x, width, label }], width, foot, upright,
 * every }. `foot` is the height of the labels. If they do not fit side by side, they stand upright; if there are too
 * many for that, only one of `every` has its label.
 */
export function columns(tokens, room) {
  const labels = tokens.map((token) => fitted(visible(token.text), LONGEST));
  const sizes = labels.map((label) => widthOf(label));
  const widths = fittedWidths(sizes, room) ?? tokens.map(() => room / tokens.length);
  const upright = labels.some((label, t) => label.length > 1 && sizes[t] > widths[t]);
  // Letters may touch each other.
  const least = upright ? UPRIGHT : Math.max(0, ...sizes.map((size) => size - 4));
  const foot = upright ? Math.ceil(Math.max(...sizes)) + 14 : 24;
  let x = 0;
  const found = labels.map((label, t) => {
    x += widths[t];
    return { x: x - widths[t], width: widths[t], label };
  });
  return { found, width: x, foot, upright, every: Math.max(1, Math.ceil(least / (x / tokens.length))) };
}

// Pixels: of the longest label, and of a line of text that stands upright.
const [LONGEST, UPRIGHT] = [100, 15];

/** Widths with which all labels fit side by side, or undefined. Few columns fill the room. */
function fittedWidths(sizes, room) {
  const widths = sizes.map((size) => Math.max(16, Math.ceil(size) + 10));
  const whole = widths.reduce((sum, width) => sum + width, 0);
  const stretch = Math.min(2, room / whole);
  const fit = sizes.every((size, t) => size + 1 <= widths[t] * stretch);
  return fit ? widths.map((width) => width * stretch) : undefined;
}

/** The part of a column that is filled: with a gap to its neighbours that narrow columns do not have. */
export function filled({ x, width }, gap) {
  const each = Math.min(gap, width / 8);
  return { x: x + each, width: width - 2 * each };
}

/** Names of curves with samples of their lines, in as many rows as they need; with the height of all. */
export function curveNames(curves, left, top, room) {
  const group = make("g", { "font-size": 12 });
  let [x, y] = [left, top];
  for (const { label, stroke, dash } of curves) {
    const width = widthOf(label, 12) + 46;
    if (x > left && x + width > left + room) [x, y] = [left, y + 20];
    group.append(line([[x, y + 8], [x + 24, y + 8]], { stroke, "stroke-dasharray": dash, "stroke-width": 2.5 }));
    group.append(text(x + 30, y + 12, label));
    x += width;
  }
  return { group, height: y + 20 - top };
}

/** Round numbers between 0 and `most` for the labels of an axis. */
export function ticks(most, count = 4) {
  if (!(most > 0)) return [0];
  const rough = most / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(6)));
}

/** Three digits are enough to compare. */
export function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 0.001 && size < 10000 ? String(Number(value.toPrecision(3))) : value.toExponential(1);
}

// ------------------------------------------------------------------------------------- heat maps

/** An RGB colour of the theme, from its CSS variable. */
export function colour(name) {
  const value = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((at) => parseInt(value.slice(at, at + 2), 16));
}

/**
 * A scale from a number to RGB: [-most, most] from `--low` over `--page` to `--high`. The colour grows with the
 * square root, so that small numbers are seen beside large ones.
 */
export function diverging(most) {
  const [low, middle, high] = ["--low", "--page", "--high"].map(colour);
  return (value) => mixed(middle, value < 0 ? low : high, Math.min(1, Math.sqrt(Math.abs(value) / (most || 1))));
}

/** A scale from a number to RGB: [0, most] from `--page` to `--high`. */
export function sequential(most) {
  const [start, end] = ["--page", "--high"].map(colour);
  return (value) => mixed(start, end, Math.max(0, Math.min(1, value / (most || 1))));
}

function mixed(a, b, share) {
  return a.map((value, i) => Math.round(value + (b[i] - value) * share));
}

/** A picture with one pixel for each number of `rows`, as an SVG image that is drawn with sharp edges. */
export function heat(rows, scale, box) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [rows[0].length, rows.length];
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(canvas.width, canvas.height);
  rows.forEach((row, y) =>
    row.forEach((value, x) => pixels.data.set([...scale(value), 255], 4 * (y * canvas.width + x))),
  );
  context.putImageData(pixels, 0, 0);
  // An attribute of its own: the policy of the page allows no `style`.
  const whole = { preserveAspectRatio: "none", "image-rendering": "pixelated" };
  return make("image", { ...box, href: canvas.toDataURL(), ...whole });
}

/** A bar with the colours of a scale, from -most to most. */
export function legend(x, y, most, scale, label) {
  const values = [Array.from({ length: 61 }, (_, i) => (most * (i - 30)) / 30)];
  const look = { fill: "var(--faint)", "font-size": 12 };
  return make(
    "g",
    {},
    heat(values, scale, { x, y, width: 180, height: 10 }),
    make("rect", { x, y, width: 180, height: 10, fill: "none", stroke: "var(--line)" }),
    text(x, y + 25, short(-most), look),
    text(x + 90, y + 25, "0", { ...look, "text-anchor": "middle" }),
    text(x + 180, y + 25, short(most), { ...look, "text-anchor": "end" }),
    text(x + 192, y + 10, label, look),
  );
}

// -------------------------------------------------------------------------------------- time axis

/** The tokens along the bottom, and a band behind the selected one. */
export function timeAxis(placed, left, top, height, selected) {
  const group = make("g", { class: "time" });
  placed.found.forEach(({ x, width, label }, t) => {
    const chosen = t === selected;
    if (chosen) {
      group.append(make("rect", { x: left + x, y: top, width, height: height + placed.foot, fill: "var(--band)", rx: 3 }));
    }
    if (!isLabelled(t, selected, placed.every)) return;
    const weight = { "font-weight": chosen ? 700 : 400 };
    const middle = left + x + width / 2;
    if (placed.upright) {
      const turned = `translate(${middle + 4} ${top + height + 8}) rotate(-90)`;
      group.append(text(0, 0, label, { ...weight, transform: turned, "text-anchor": "end" }));
    } else group.append(text(middle, top + height + 17, label, { ...weight, "text-anchor": "middle" }));
  });
  return group;
}

/** Whether a token has its label: the selected one has, and those for which there is room beside it. */
function isLabelled(t, selected, every) {
  return t === selected || (t % every === 0 && Math.abs(t - selected) >= every);
}

/** Invisible columns over a figure: to point at one selects its token. */
export function columnsToPointAt(placed, left, top, height) {
  const made = placed.found.map(({ x, width }, t) =>
    make("rect", { x: left + x, y: top, width, height, fill: "transparent", "data-t": t }),
  );
  return make("g", { class: "hits" }, ...made);
}

/** A vertical axis with round numbers and thin lines. */
export function valueAxis(most, left, right, top, height) {
  const group = make("g", { "font-size": 12 });
  for (const value of ticks(most)) {
    const y = top + height - (value / most) * height;
    group.append(make("path", { d: `M${left} ${y}H${right}`, stroke: "var(--line)" }));
    group.append(text(left - 6, y + 4, short(value), { "text-anchor": "end", fill: "var(--faint)" }));
  }
  return group;
}

export const LOOKS = [
  { stroke: "var(--orange)", dash: undefined },
  { stroke: "var(--high)", dash: "7 4" },
  { stroke: "var(--magenta)", dash: "2 4" },
  { stroke: "var(--teal)", dash: "9 3 2 3" },
  { stroke: "var(--ink)", dash: "14 4" },
  { stroke: "var(--faint)", dash: "3 2" },
];
