// Which earlier words a state is made of (RAN paper, section 5).

import { columns, columnsToPointAt, make, short, svg, text, timeAxis, widthOf } from "./figure.js";
import { arrows, weightTable } from "./sums.js";

const LEFT = 8;
const BARS = 64;

export const weights = {
  id: "weights",
  title: "Weights",
  about:
    "Each word’s state is a sum of what was read before. An arrow points from each word to the earlier word that weighs most in it; the thicker, the heavier. The bars show the weights in the selected word.",
  applies: (info) => info.layers.some((layer) => layer.sum),
  layers: (info) => info.layers.flatMap((layer, number) => (layer.sum ? [number] : [])),
  choices: [],
  draw,
};

function draw(reading, { layer, t, width }) {
  const table = weightTable(reading, layer);
  const pointed = arrows(table);
  const placed = columns(reading.tokens, width - 2 * LEFT);
  const longest = Math.max(1, ...pointed.map((j, at) => (j < 0 ? 0 : at - j)));
  const arcs = Math.min(170, 36 + 14 * longest);
  const height = arcs + BARS + 60;
  const middle = ({ x, width }) => LEFT + x + width / 2;
  const figure = svg(placed.width + 2 * LEFT, height, says(reading, table, pointed, t));
  figure.append(timeAxis(placed, LEFT, arcs, 6, t));
  const order = [...pointed.keys()].sort((a, b) => (a === t) - (b === t));
  for (const at of order) {
    if (pointed[at] < 0) continue;
    const weight = table[at][pointed[at]].largest;
    const [from, to] = [middle(placed.found[at]), middle(placed.found[pointed[at]])];
    figure.append(arrow(from, to, arcs, weight, at === t));
  }
  figure.append(bars(reading, table[t] ?? [], placed, arcs + 40, t));
  figure.append(columnsToPointAt(placed, LEFT, 0, height));
  return { figure, says: says(reading, table, pointed, t), table: () => tableOf(reading, table, pointed) };
}

function arrow(from, to, base, weight, chosen) {
  const rise = Math.min(base - 14, 16 + Math.abs(from - to) * 0.32);
  const stroke = chosen ? "var(--orange)" : "var(--high)";
  const path = `M${from} ${base}C${from} ${base - rise} ${to} ${base - rise} ${to} ${base - 4}`;
  const head = `M${to - 4} ${base - 9}L${to} ${base - 2}L${to + 4} ${base - 9}Z`;
  const look = { stroke, fill: "none", "stroke-width": 0.8 + 4 * weight, opacity: chosen ? 1 : 0.55 };
  return make("g", {}, make("path", { d: path, ...look }), make("path", { d: head, fill: stroke }));
}

/** The weight of each word in the state of the selected one. */
function bars(reading, row, placed, top, t) {
  const most = Math.max(1e-9, ...row.map((each) => each.largest));
  const group = make("g", {});
  row.forEach(({ largest }, j) => {
    const { x, width } = placed.found[j];
    const tall = (largest / most) * (BARS - 18);
    const fill = j === t ? "var(--faint)" : "var(--high)";
    group.append(make("rect", { x: LEFT + x + 2, y: top + BARS - 16 - tall, width: width - 4, height: tall, fill }));
    const look = { "text-anchor": "middle", "font-size": 11, fill: "var(--faint)" };
    if (widthOf(short(largest), 11) < width) group.append(text(LEFT + x + width / 2, top + BARS, short(largest), look));
  });
  return group;
}

function says(reading, table, pointed, t) {
  if (!reading.length) return "";
  const word = (at) => `“${reading.tokens[at].text}”`;
  if (pointed[t] < 0) return `${word(t)} is the first word: nothing was read before it.`;
  const weight = short(table[t][pointed[t]].largest);
  return `In the state after ${word(t)}, the heaviest earlier word is ${word(pointed[t])}: its largest weight over all channels is ${weight}.`;
}

function tableOf(reading, table, pointed) {
  const rows = table.map((row, t) => {
    const j = pointed[t];
    const own = [reading.tokens[t].text, short(row[t].largest)];
    return j < 0 ? [...own, "", "", ""] : [...own, reading.tokens[j].text, short(row[j].largest), String(t - j)];
  });
  return { head: ["word", "its own weight", "arrow to", "weight", "words back"], rows };
}
