// Which earlier words a state is made of (RAN paper, section 5).

import { columns, columnsToPointAt, filled, make, short, svg, text, timeAxis, widthOf } from "./figure.js";
import { arrows, weightTable } from "./sums.js";

const LEFT = 8;
const BARS = 64;

export const weights = {
  id: "weights",
  title: "Weights",
  about:
    "Each word’s state is a sum of what was read before. An arrow points from each word to the earlier word that weighs most in it; the thicker, the heavier. The bars show the weights in the selected word. A weight is the mean over all channels, or that of the channel with the largest, as in the RAN paper; a channel that never forgets makes that close to 1 for every word.",
  applies: (info) => info.layers.some((layer) => layer.sum),
  layers: (info) => info.layers.flatMap((layer, number) => (layer.sum ? [number] : [])),
  choices: ["by"],
  draw,
};

function draw(reading, { layer, by, t, width }) {
  const table = weightTable(reading, layer);
  const pointed = arrows(table, by);
  const heaviest = Math.max(1e-9, ...pointed.map((j, at) => (j < 0 ? 0 : table[at][j][by])));
  const placed = columns(reading.tokens, width - 2 * LEFT);
  const longest = Math.max(1, ...pointed.map((j, at) => (j < 0 ? 0 : at - j)));
  const arcs = Math.min(170, 36 + 14 * longest);
  const height = arcs + BARS + 36 + placed.foot;
  const middle = ({ x, width }) => LEFT + x + width / 2;
  const figure = svg(placed.width + 2 * LEFT, height, says(reading, table, pointed, t, by));
  figure.append(timeAxis(placed, LEFT, arcs, 6, t));
  const order = [...pointed.keys()].sort((a, b) => (a === t) - (b === t));
  for (const at of order) {
    if (pointed[at] < 0) continue;
    const weight = table[at][pointed[at]][by] / heaviest;
    const [from, to] = [middle(placed.found[at]), middle(placed.found[pointed[at]])];
    figure.append(arrow(from, to, arcs, weight, at === t));
  }
  figure.append(bars((table[t] ?? []).map((each) => each[by]), placed, arcs + 16 + placed.foot, t));
  figure.append(columnsToPointAt(placed, LEFT, 0, height));
  const said = says(reading, table, pointed, t, by);
  return { figure, says: said, table: () => tableOf(reading, table, pointed, by) };
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
function bars(row, placed, top, t) {
  const most = Math.max(1e-9, ...row);
  const group = make("g", {});
  row.forEach((weight, j) => {
    const { x, width } = filled(placed.found[j], 2);
    const tall = (weight / most) * (BARS - 18);
    const fill = j === t ? "var(--faint)" : "var(--high)";
    group.append(make("rect", { x: LEFT + x, y: top + BARS - 16 - tall, width, height: tall, fill }));
    const look = { "text-anchor": "middle", "font-size": 11, fill: "var(--faint)" };
    if (widthOf(short(weight), 11) < width) group.append(text(LEFT + x + width / 2, top + BARS, short(weight), look));
  });
  return group;
}

function says(reading, table, pointed, t, by) {
  if (!reading.length) return "";
  const word = (at) => `“${reading.tokens[at].text}”`;
  if (pointed[t] < 0) return `${word(t)} is the first word: nothing was read before it.`;
  const weight = short(table[t][pointed[t]][by]);
  return `In the state after ${word(t)}, the heaviest earlier word is ${word(pointed[t])}: its ${by} weight over all channels is ${weight}.`;
}

function tableOf(reading, table, pointed, by) {
  const rows = table.map((row, t) => {
    const j = pointed[t];
    const own = [reading.tokens[t].text, short(row[t][by])];
    return j < 0 ? [...own, "", "", ""] : [...own, reading.tokens[j].text, short(row[j][by]), String(t - j)];
  });
  return { head: ["word", "its own weight", "arrow to", "weight", "words back"], rows };
}
