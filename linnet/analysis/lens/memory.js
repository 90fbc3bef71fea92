// What each step wrote and erased (NRU paper, Figure 6).

import { columns, columnsToPointAt, diverging, filled, heat, legend, make, short, svg, text, timeAxis } from "./figure.js";
import { mean } from "./reader.js";

const [LEFT, TOP] = [44, 8];

export const memory = {
  id: "memory",
  title: "Memory",
  about:
    "What each word wrote into the memory and what it erased: a column for each word, a row for each memory cell. Blue: the cell rose; orange: it fell; no colour: it stayed.",
  applies: () => true,
  layers: (info) => [...info.layers.keys()],
  choices: ["state"],
  draw,
};

function draw(reading, { layer, state, t, width: room }) {
  const changes = reading.tokens.map((_, at) => reading.change(layer, state, at));
  const cells = reading.info.layers[layer].values[state];
  const most = Math.max(1e-9, ...changes.map((row) => row.reduce((a, b) => Math.max(a, Math.abs(b)), 0)));
  const placed = columns(reading.tokens, room - LEFT - 8);
  const height = Math.max(120, Math.min(280, 4 * cells));
  const scale = diverging(most);
  const figure = svg(LEFT + placed.width + 8, TOP + height + 54 + placed.foot, says(reading, changes, state, t));
  figure.append(timeAxis(placed, LEFT, TOP, height, t));
  placed.found.forEach((each, at) => {
    const column = Array.from(changes[at], (value) => [value]);
    const { x, width } = filled(each, 1);
    figure.append(heat(column, scale, { x: LEFT + x, y: TOP, width, height }));
  });
  const look = { "text-anchor": "end", fill: "var(--faint)", "font-size": 12 };
  figure.append(text(LEFT - 6, TOP + 10, "1", look), text(LEFT - 6, TOP + height, String(cells), look));
  figure.append(legend(LEFT, TOP + height + 14 + placed.foot, most, scale, "change of a cell"));
  figure.append(columnsToPointAt(placed, LEFT, 0, TOP + height + placed.foot));
  return { figure, says: says(reading, changes, state, t), table: () => tableOf(reading, changes) };
}

function size(change) {
  return mean(change.map(Math.abs));
}

function says(reading, changes, state, t) {
  if (!reading.length) return "";
  const sizes = changes.map(size);
  const strongest = sizes.indexOf(Math.max(...sizes));
  const word = (at) => `“${reading.tokens[at].text}”`;
  return `${word(t)} changed a cell of ${state} by ${short(sizes[t])} on average. The largest change came at ${word(strongest)}: ${short(sizes[strongest])}.`;
}

function tableOf(reading, changes) {
  const part = (change, keep) => short(mean(change.map((value) => (keep(value) ? Math.abs(value) : 0))));
  const rows = changes.map((change, t) => [
    reading.tokens[t].text,
    part(change, (value) => value > 0),
    part(change, (value) => value < 0),
  ]);
  return { head: ["word", "mean rise of a cell", "mean fall of a cell"], rows };
}
