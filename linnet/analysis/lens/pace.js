// How far each state moves at each word, beside how rare the word is (SCRN paper).

import { LOOKS, columns, columnsToPointAt, filled, line, make, short, svg, text, timeAxis, valueAxis } from "./figure.js";
import { rankCorrelation } from "./ranks.js";
import { mean } from "./reader.js";

const [LEFT, TOP, HEIGHT, RARITY] = [64, 24, 150, 70];

export const pace = {
  id: "pace",
  title: "Pace",
  about:
    "How far the states move at each word, as a mean over their channels. A slow state keeps the topic; a quick one follows the words. The bars below show how rare each word is in the training text.",
  applies: () => true,
  layers: (info) => [...info.layers.keys()],
  choices: [],
  draw,
};

/** By state, the mean absolute change of its channels at each step. */
export function moves(reading, layer) {
  const states = reading.info.layers[layer].states;
  const move = (state, t) => mean(reading.change(layer, state, t).map(Math.abs));
  return Object.fromEntries(states.map((state) => [state, reading.tokens.map((_, t) => move(state, t))]));
}

/** -log of the share of each token in the training text, or null if its counts are not known. */
export function rarity(reading) {
  const { counts } = reading.info;
  if (!counts) return null;
  const all = counts.reduce((sum, count) => sum + count, 0);
  return reading.tokens.map((token) => Math.log(all / Math.max(1, counts[token.id] ?? 0)));
}

function draw(reading, { layer, t, width: room }) {
  const found = moves(reading, layer);
  const rare = rarity(reading);
  const most = Math.max(1e-9, ...Object.values(found).flat());
  const placed = columns(reading.tokens, room - LEFT - 8);
  const middle = (at) => LEFT + placed.found[at].x + placed.found[at].width / 2;
  const width = Math.max(LEFT + placed.width + 8, 260);
  const below = TOP + HEIGHT + 6 + placed.foot;
  const figure = svg(width, below + (rare ? RARITY + 20 : 0), says(reading, found, rare, t));
  figure.append(timeAxis(placed, LEFT, TOP, HEIGHT, t), valueAxis(most, LEFT, LEFT + placed.width, TOP, HEIGHT));
  Object.entries(found).forEach(([state, values], number) => {
    const { stroke, dash } = LOOKS[number % LOOKS.length];
    const points = values.map((value, at) => [middle(at), TOP + HEIGHT * (1 - value / most)]);
    figure.append(line(points, { stroke, "stroke-dasharray": dash }));
    points.forEach(([cx, cy]) => figure.append(make("circle", { cx, cy, r: 3, fill: stroke })));
    const x = LEFT + 90 * number;
    figure.append(line([[x, 10], [x + 24, 10]], { stroke, "stroke-dasharray": dash }), text(x + 30, 14, state));
  });
  if (rare) figure.append(bars(rare, placed, below));
  figure.append(columnsToPointAt(placed, LEFT, 0, below));
  return { figure, says: says(reading, found, rare, t), table: () => tableOf(reading, found, rare) };
}

function bars(rare, placed, top) {
  const most = Math.max(...rare);
  const group = make("g", {});
  rare.forEach((value, t) => {
    const { x, width } = filled(placed.found[t], 2);
    const height = (value / most) * RARITY;
    const box = { x: LEFT + x, y: top + RARITY - height + 8, width, height };
    group.append(make("rect", { ...box, fill: "var(--faint)" }));
  });
  const label = { "font-size": 12, fill: "var(--faint)", "text-anchor": "end" };
  group.append(text(LEFT - 6, top + 18, "rare", label), text(LEFT - 6, top + RARITY + 8, "frequent", label));
  return group;
}

function says(reading, found, rare, t) {
  if (!reading.length) return "";
  const moved = Object.entries(found).map(([state, values]) => `${state} moves by ${short(values[t])}`);
  const start = `At “${reading.tokens[t].text}”, ${moved.join(" and ")}.`;
  if (!rare || reading.length < 3) return start;
  const follows = Object.entries(found).map(
    ([state, values]) => `${short(rankCorrelation(values, rare))} for ${state}`,
  );
  return `${start} Rank correlation with rarity in this text: ${follows.join(", ")}.`;
}

function tableOf(reading, found, rare) {
  const rows = reading.tokens.map((token, t) => [
    token.text,
    ...Object.values(found).map((values) => short(values[t])),
    ...(rare ? [short(rare[t])] : []),
  ]);
  return { head: ["word", ...Object.keys(found), ...(rare ? ["rarity"] : [])], rows };
}
