// How much what the model says depends on each word that it has read.
//
// d score / d s at s = 1, where s scales the vector of a word: the gradient with respect to this vector, times the
// vector. A central difference of the model itself, in double precision, so no gradient is written by hand.

import { columns, columnsToPointAt, filled, make, short, svg, text, timeAxis, widthOf } from "./figure.js";
import { Piecewise } from "./piecewise.js";
import { copied, largest } from "./reader.js";

const [LEFT, TOP, HEIGHT] = [44, 10, 180];
const ZERO = TOP + HEIGHT / 2;
// Of the difference.
const STEP = 1e-4;

export const reach = {
  id: "reach",
  title: "Reach",
  about:
    "How much the most probable answer after the selected word depends on each word before it: the gradient of its score with respect to each word. Blue words speak for the answer, orange ones against it.",
  applies: () => true,
  layers: () => [],
  choices: [],
  draw,
};

/** The gradient of the largest output after step t with respect to each word, times the word’s vector. */
export function reachOf(reading, t) {
  return byStep([...gradients(reading, t)]);
}

function byStep(pairs) {
  const found = [];
  for (const [k, value] of pairs) found[k] = value;
  return found;
}

/** The same one by one, from step t backwards: [k, value]. */
function* gradients(reading, t) {
  const model = new reading.reader.module.Model(Float64Array);
  const best = largest(reading.steps[t].output, 1)[0];
  const vectors = reading.tokens.slice(0, t + 1).map((token) => model.vector(token.id));
  const states = [model.start()];
  for (const vector of vectors.slice(0, -1)) {
    const state = copied(states.at(-1));
    model.step(state, vector);
    states.push(state);
  }
  const score = (k, scale) => {
    const state = copied(states[k]);
    let output = model.step(state, vectors[k].map((value) => value * scale));
    for (const vector of vectors.slice(k + 1)) output = model.step(state, vector);
    return output[best];
  };
  for (let k = t; k >= 0; k--) yield [k, (score(k, 1 + STEP) - score(k, 1 - STEP)) / (2 * STEP)];
}

const begun = new WeakMap();

/** What is known of the gradients so far: { found, done }. */
function soFar(reading, t) {
  if (!begun.has(reading)) begun.set(reading, new Map());
  const known = begun.get(reading);
  if (!known.has(t)) known.set(t, new Piecewise(gradients(reading, t)));
  const { found, done } = known.get(t).goOn();
  return { found: byStep(found), done };
}

function draw(reading, { t, width: room, later }) {
  const { found, done } = soFar(reading, t);
  if (!done) later();
  const most = Math.max(1e-12, ...Object.values(found).map(Math.abs));
  const placed = columns(reading.tokens, room - LEFT - 8);
  const sentence = done ? says(reading, found, t) : "Computing the gradients …";
  const figure = svg(LEFT + placed.width + 8, TOP + HEIGHT + 10 + placed.foot, sentence);
  figure.append(timeAxis(placed, LEFT, TOP, HEIGHT, t));
  figure.append(make("path", { d: `M${LEFT} ${ZERO}h${placed.width}`, stroke: "var(--faint)" }));
  found.forEach((value, k) => figure.append(bar(value, placed.found[k], (Math.abs(value) / most) * (HEIGHT / 2 - 14))));
  figure.append(columnsToPointAt(placed, LEFT, 0, TOP + HEIGHT + placed.foot));
  return { figure, says: sentence, table: () => tableOf(reading, found) };
}

function bar(value, column, tall) {
  const { x, width } = filled(column, 3);
  const [y, fill] = value < 0 ? [ZERO, "var(--low)"] : [ZERO - tall, "var(--high)"];
  const made = make("g", {}, make("rect", { x: LEFT + x, y, width, height: tall, fill, rx: 2 }));
  const look = { "text-anchor": "middle", "font-size": 11, fill: "var(--faint)" };
  const label = value < 0 ? ZERO + tall + 12 : ZERO - tall - 4;
  if (widthOf(short(value), 11) < width) made.append(text(LEFT + x + width / 2, label, short(value), look));
  return made;
}

function says(reading, found, t) {
  const best = largest(reading.steps[t].output, 1)[0];
  const answer = reading.info.labels?.[best] ?? `output ${best + 1}`;
  const strongest = largest(found.map(Math.abs), 1)[0];
  return `After “${reading.tokens[t].text}”, the answer “${answer}” depends most on “${reading.tokens[strongest].text}”: ${short(found[strongest])}.`;
}

function tableOf(reading, found) {
  const rows = found.map((value, k) => [reading.tokens[k].text, short(value)]);
  return { head: ["word", "gradient × word"], rows };
}
