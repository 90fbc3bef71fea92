// Every value that the step names, over time.

import { columns, columnsToPointAt, diverging, filled, heat, make, sequential, short, svg, text, timeAxis } from "./figure.js";
import { mean } from "./reader.js";

const [LEFT, ROW, GAP] = [76, 40, 10];

export const gates = {
  id: "gates",
  title: "Gates",
  about:
    "Everything that the unit computes at each word, by the letters of its paper: f is the forget gate, i the input gate, and so on. A line for each channel; the number is the mean over channels at the selected word. Values between 0 and 1 go from no colour to blue, others from orange (negative) to blue (positive).",
  applies: () => true,
  layers: (info) => [...info.layers.keys()],
  choices: [],
  draw,
};

function draw(reading, { layer, t, width }) {
  const names = Object.keys(reading.info.layers[layer].values);
  const placed = columns(reading.tokens, width - LEFT - 8);
  const height = names.length * (ROW + GAP);
  const figure = svg(LEFT + placed.width + 8, height + 10 + placed.foot, says(reading, layer, names, t));
  figure.append(timeAxis(placed, LEFT, 0, height, t));
  names.forEach((name, number) => figure.append(band(reading, layer, name, placed, number * (ROW + GAP) + 4, t)));
  figure.append(columnsToPointAt(placed, LEFT, 0, height + placed.foot));
  return { figure, says: says(reading, layer, names, t), table: () => tableOf(reading, layer, names) };
}

function band(reading, layer, name, placed, y, t) {
  const values = reading.tokens.map((_, at) => reading.value(layer, name, at));
  const all = values.flatMap((row) => [...row]);
  const [low, high] = [all.reduce((a, b) => Math.min(a, b)), all.reduce((a, b) => Math.max(a, b))];
  const share = low >= 0 && high <= 1;
  const scale = share ? sequential(1) : diverging(Math.max(-low, high));
  const group = make("g", {}, text(8, y + 16, name, { "font-weight": 700 }));
  if (values.length) {
    group.append(text(8, y + 34, short(mean(values[t])), { "font-size": 12, fill: "var(--faint)" }));
  }
  placed.found.forEach((each, at) => {
    const column = Array.from(values[at], (value) => [value]);
    const { x, width } = filled(each, 1);
    group.append(heat(column, scale, { x: LEFT + x, y, width, height: ROW }));
  });
  return group;
}

function says(reading, layer, names, t) {
  if (!reading.length) return "";
  const means = names.map((name) => `${name} ${short(mean(reading.value(layer, name, t)))}`);
  return `Means over channels at “${reading.tokens[t].text}”: ${means.join(", ")}.`;
}

function tableOf(reading, layer, names) {
  const rows = reading.tokens.map((token, t) => [
    token.text,
    ...names.map((name) => short(mean(reading.value(layer, name, t)))),
  ]);
  return { head: ["word", ...names], rows };
}
