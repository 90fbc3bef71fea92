// Where else the model is in a similar state (as LSTMVis searches).

import { fitted, make, short, svg, text, widthOf } from "./figure.js";
import { Piecewise } from "./piecewise.js";
import { byLayer, largest } from "./reader.js";

const [LEFT, ROW, MOST, SHOWN, SIZE] = [58, 34, 900, 8, 15];
// A channel that hardly changes would otherwise be scaled to the size of its rounding.
const LEAST = 1e-6;
// The number of tokens of the context that may be drawn on each side of a place.
const CONTEXT = 120;

export const similar = {
  id: "similar",
  title: "Similar",
  about:
    "Where else the model is in a state like the one after the selected word: the model reads other texts and the states are compared. 1 is the same direction, 0 has nothing in common; each channel counts in units of its own deviation. With several words, the states after each of them are compared in order.",
  applies: () => true,
  layers: (info) => [...info.layers.keys()],
  choices: ["state", "span"],
  draw,
};

/**
 * The similarity of the states `pattern` to the states that end at each place of `states`: the mean cosine, after
 * each channel is shifted and scaled to mean 0 and deviation 1 over all places. NaN where there are too few before.
 */
export function similarities(pattern, states) {
  const scale = scaling(states);
  const [wanted, given] = [pattern.map(scale), states.map(scale)];
  return given.map((_, t) => {
    const first = t - wanted.length + 1;
    if (first < 0) return NaN;
    return wanted.reduce((sum, vector, k) => sum + cosine(vector, given[first + k]), 0) / wanted.length;
  });
}

/** A function that shifts and scales the channels of a state. */
function scaling(states) {
  const [count, size] = [states.length, states[0].length];
  const [mean, square] = [new Float64Array(size), new Float64Array(size)];
  for (const state of states) for (let c = 0; c < size; c++) mean[c] += state[c] / count;
  for (const state of states) for (let c = 0; c < size; c++) square[c] += (state[c] - mean[c]) ** 2 / count;
  const deviation = square.map((each) => Math.max(Math.sqrt(each), LEAST));
  return (state) => Float64Array.from(state, (value, c) => (value - mean[c]) / deviation[c]);
}

function cosine(a, b) {
  let [both, ownA, ownB] = [0, 0, 0];
  for (let c = 0; c < a.length; c++) {
    both += a[c] * b[c];
    ownA += a[c] * a[c];
    ownB += b[c] * b[c];
  }
  return ownA && ownB ? both / Math.sqrt(ownA * ownB) : 0;
}

// ------------------------------------------------------------------------------------------ places

const archives = new WeakMap();

/** The places that are searched, { tokens, t, states }: those of the other texts, or of this one if there are none. */
function archiveOf(reading) {
  const { reader } = reading;
  if (!reader.passages.length) return { found: ownPlaces(reading), done: true };
  if (!archives.has(reader)) archives.set(reader, new Piecewise(placesOf(reader)));
  return archives.get(reader).goOn();
}

function ownPlaces({ tokens, steps }) {
  return steps.map(({ values }, t) => ({ tokens, t, states: values }));
}

function* placesOf({ module, info, passages }) {
  const model = new module.Model();
  for (const tokens of passages) {
    const state = model.start();
    for (const [t, token] of tokens.entries()) {
      model.step(state, token.id);
      yield { tokens, t, states: byLayer(state, info.layers) };
    }
  }
}

/** The most similar places, best first: { tokens, t, similarity }. */
function nearest(reading, places, { layer, state, span, t }) {
  const pattern = Array.from({ length: span }, (_, k) => reading.value(layer, state, t - span + 1 + k));
  const found = similarities(pattern, places.map((place) => place.states[layer][state]));
  // A window lies within one text, and does not overlap with the pattern itself.
  const isOwn = (place) => place.tokens === reading.tokens && Math.abs(place.t - t) < span;
  const scores = found.map((score, at) => (places[at].t < span - 1 || isOwn(places[at]) ? -Infinity : score));
  const best = [];
  for (const at of largest(scores, SHOWN * (2 * span + 1))) {
    const place = { ...places[at], similarity: scores[at] };
    const isNear = (other) => other.tokens === place.tokens && Math.abs(other.t - place.t) < span;
    if (scores[at] > -Infinity && !best.some(isNear)) best.push(place);
  }
  return best.slice(0, SHOWN);
}

// --------------------------------------------------------------------------------------- the figure

function draw(reading, choice) {
  const archive = archiveOf(reading);
  if (!archive.done) choice.later();
  const width = Math.min(MOST, choice.width);
  const best = archive.found.length ? nearest(reading, archive.found, choice) : [];
  const said = archive.done ? says(reading, best, choice) : progress(reading, archive);
  const figure = svg(width, Math.max(1, best.length) * ROW + 8, said);
  best.forEach((place, row) => figure.append(line(reading, place, choice.span, row * ROW + 4, width)));
  return { figure, says: said, table: () => tableOf(reading, best, choice.span) };
}

/** A place: its similarity, and its words with those around them. */
function line(reading, { tokens, t, similarity }, span, y, width) {
  const room = width - LEFT - 12;
  const words = (from, to) => joined(reading, tokens.slice(Math.max(0, from), to));
  const match = fitted(words(t - span + 1, t + 1), room, SIZE, 700);
  const wide = widthOf(match, SIZE, 700);
  const [x, space] = [LEFT + (room - wide) / 2, (room - wide) / 2 - 8];
  const look = { fill: "var(--faint)", "font-size": SIZE };
  return make(
    "g",
    {},
    text(4, y + 17, similarity.toFixed(2), { "font-size": 13 }),
    make("rect", { x: 4, y: y + 22, width: 40 * Math.max(0, similarity), height: 4, fill: "var(--high)", rx: 2 }),
    text(x - 8, y + 18, endOf(words(t - span - CONTEXT, t - span + 1), space), { ...look, "text-anchor": "end" }),
    text(x, y + 18, match, { "font-weight": 700, "font-size": SIZE }),
    text(x + wide + 8, y + 18, fitted(words(t + 1, t + CONTEXT), space, SIZE), look),
  );
}

/** Tokens as a text; a blank that does not break stays at the end of a line. */
function joined(reading, tokens) {
  const between = reading.info.text.level === "word" ? "\u00a0" : "";
  return tokens.map((token) => token.text.replaceAll(" ", "\u00a0")).join(between);
}

/** The end of a text, as much as fits into `most` pixels. */
function endOf(content, most) {
  const turned = (each) => Array.from(each).reverse().join("");
  return turned(fitted(turned(content), most, SIZE));
}

function progress(reading, archive) {
  const all = reading.reader.passages.reduce((sum, tokens) => sum + tokens.length, 0);
  return `Reading the other texts: ${archive.found.length} of ${all} tokens …`;
}

function says(reading, best, { span, t }) {
  if (!best.length) return "There is no other place to compare with.";
  const quoted = (tokens, at) => `“${joined(reading, tokens.slice(at - span + 1, at + 1))}”`;
  const [{ tokens, t: at, similarity }] = best;
  return `The states after ${quoted(reading.tokens, t)} are most like those after ${quoted(tokens, at)}: ${short(similarity)}.`;
}

function tableOf(reading, best, span) {
  const rows = best.map(({ tokens, t, similarity }) => [
    short(similarity),
    joined(reading, tokens.slice(Math.max(0, t - span - 4), t - span + 1)),
    joined(reading, tokens.slice(t - span + 1, t + 1)),
    joined(reading, tokens.slice(t + 1, t + 6)),
  ]);
  return { head: ["similarity", "before", span > 1 ? "words" : "word", "after"], rows };
}
