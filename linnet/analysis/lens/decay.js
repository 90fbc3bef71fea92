// How much of each word is left (LRN paper, Figure 1).

import { LOOKS, columns, columnsToPointAt, curveNames, line, make, short, svg, timeAxis, valueAxis } from "./figure.js";
import { weightTable } from "./sums.js";

const [LEFT, TOP, HEIGHT] = [44, 10, 200];

export const decay = {
  id: "decay",
  title: "Decay",
  about:
    "One curve for each word: how much weight it still has in the state while the model reads on, as a mean over all channels. Words whose curves fall slowly are remembered.",
  applies: (info) => info.layers.some((layer) => layer.sum),
  layers: (info) => info.layers.flatMap((layer, number) => (layer.sum ? [number] : [])),
  choices: [],
  draw,
};

function draw(reading, { layer, t, width: room }) {
  const table = weightTable(reading, layer);
  const placed = columns(reading.tokens, room - LEFT - 8);
  const middle = (at) => LEFT + placed.found[at].x + placed.found[at].width / 2;
  const most = Math.max(1e-9, ...table.map((row, at) => row[at].mean));
  const points = (k) => table.slice(k).map((row, i) => [middle(k + i), TOP + HEIGHT * (1 - row[k].mean / most)]);
  const width = LEFT + placed.width + 8;
  const named = [t, ...lasting(table).filter((k) => k !== t)].slice(0, 4);
  const names = curveNames(named.map((k, number) => nameOf(reading, table, k, number)), LEFT, TOP + HEIGHT + 12 + placed.foot, width - LEFT);
  const figure = svg(width, TOP + HEIGHT + 16 + placed.foot + names.height, says(reading, table, t));
  figure.append(timeAxis(placed, LEFT, TOP, HEIGHT, t), valueAxis(most, LEFT, width - 8, TOP, HEIGHT));
  for (const k of reading.tokens.keys()) {
    if (!named.includes(k)) figure.append(line(points(k), { stroke: "var(--faint)", "stroke-width": 1, opacity: 0.5 }));
  }
  named.forEach((k, number) => {
    const { stroke, dash } = LOOKS[number];
    figure.append(line(points(k), { stroke, "stroke-dasharray": dash, "stroke-width": number ? 2 : 3 }));
    const [x, y] = points(k)[0];
    figure.append(make("circle", { cx: x, cy: y, r: number ? 3 : 5, fill: stroke }));
  });
  figure.append(names.group, columnsToPointAt(placed, LEFT, 0, TOP + HEIGHT + 30));
  return { figure, says: says(reading, table, t), table: () => tableOf(reading, table) };
}

/** The words of which most is left after half of the text, compared at the same age. */
function lasting(table) {
  const later = Math.floor(table.length / 2);
  const old = [...Array(Math.max(0, table.length - later)).keys()];
  return old.sort((a, b) => table[b + later][b].mean - table[a + later][a].mean);
}

function nameOf(reading, table, k, number) {
  return { ...LOOKS[number], label: `${reading.tokens[k].text} (${short(table.at(-1)[k].mean)} left)` };
}

function says(reading, table, t) {
  if (!reading.length) return "";
  const [entered, left] = [table[t][t].mean, table.at(-1)[t].mean];
  return `“${reading.tokens[t].text}” enters with a mean weight of ${short(entered)}; ${short(left)} is left at the end.`;
}

function tableOf(reading, table) {
  const rows = reading.tokens.map((token, k) => [token.text, short(table[k][k].mean), short(table.at(-1)[k].mean)]);
  return { head: ["word", "when it is read", "at the end"], rows };
}
