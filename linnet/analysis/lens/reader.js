// A model reads tokens step by step, and everything that its steps compute is kept.

/** Reads texts with one model; what two texts have in common at the start is read once. */
export class Reader {
  constructor(module, info) {
    this.module = module;
    this.info = info;
    this.model = new module.Model();
    this.initial = byLayer(this.model.start(), info.layers);
    info.layers.forEach((layer, number) => (layer.values = sizes(module.layers[number].values, this.initial[number])));
    this.ids = [];
    this.steps = [];
  }

  /** Return a Reading of these tokens. */
  read(tokens) {
    const ids = tokens.map((token) => token.id);
    let same = 0;
    while (same < Math.min(ids.length, this.ids.length) && ids[same] === this.ids[same]) same++;
    this.steps.length = same;
    this.ids = ids;
    const state = same ? copied(this.steps[same - 1].state) : this.model.start();
    for (const id of ids.slice(same)) {
      const output = this.model.step(state, id);
      this.steps.push({ output, values: this.values(state), state: copied(state) });
    }
    return new Reading(this, tokens, this.steps.slice());
  }

  /** What the last step computed, by layer; the name of a state is its value after the step. */
  values(state) {
    const states = byLayer(state, this.info.layers);
    return this.model.values().map((values, layer) => ({ ...values, ...states[layer] }));
  }
}

/** Everything that a model has computed while it read a text. */
export class Reading {
  constructor(reader, tokens, steps) {
    this.reader = reader;
    this.info = reader.info;
    this.tokens = tokens;
    this.steps = steps;
  }

  get length() {
    return this.steps.length;
  }

  /** A named value of a layer after step t. */
  value(layer, name, t) {
    return this.steps[t].values[layer][name];
  }

  /** A state of a layer before step t. */
  before(layer, name, t) {
    return t ? this.value(layer, name, t - 1) : this.reader.initial[layer][name];
  }

  /** What step t added to a state. */
  change(layer, name, t) {
    const before = this.before(layer, name, t);
    return this.value(layer, name, t).map((value, channel) => value - before[channel]);
  }

  /** The probabilities of the outputs after step t; those of a CRF, if the text ended there. */
  probabilities(t) {
    const { crf } = this.info;
    if (!crf) return softmax(this.steps[t].output);
    return softmax(this.scores(crf)[t].map((score, tag) => score + crf.end[tag]));
  }

  /** For each step, the logarithm of the sum over all sequences of tags that end in each tag. */
  scores(crf) {
    if (this.summed) return this.summed;
    this.summed = [];
    for (const { output } of this.steps) {
      const before = this.summed.at(-1);
      const reached = (tag) => logSumExp(before.map((score, other) => score + crf.pairs[other][tag]));
      this.summed.push(Float64Array.from(output, (score, tag) => score + (before ? reached(tag) : crf.start[tag])));
    }
    return this.summed;
  }
}

function logSumExp(values) {
  const largest = values.reduce((most, value) => Math.max(most, value), -Infinity);
  return largest + Math.log(values.reduce((sum, value) => sum + Math.exp(value - largest), 0));
}

export function copied(state) {
  return Object.fromEntries(Object.entries(state).map(([name, values]) => [name, values.slice()]));
}

/** Copies of the states by layer: a state of several layers is one array with all of them. */
export function byLayer(state, layers) {
  const found = layers.map(() => ({}));
  for (const [key, values] of Object.entries(state)) {
    const parts = key.match(/^layers?(\d+)(?:to(\d+))?_(.+)$/);
    if (parts === null) continue;
    const [first, last] = [Number(parts[1]), Number(parts[2] ?? parts[1])];
    const size = values.length / (last - first + 1);
    for (let layer = first; layer <= last; layer++) {
      found[layer][parts[3]] = values.slice((layer - first) * size, (layer - first + 1) * size);
    }
  }
  return found;
}

function sizes(values, states) {
  const own = Object.entries(states).map(([name, { length }]) => [name, length]);
  return { ...values, ...Object.fromEntries(own) };
}

export function softmax(logits) {
  const largest = logits.reduce((most, value) => Math.max(most, value), -Infinity);
  const powers = Float64Array.from(logits, (value) => Math.exp(value - largest));
  const total = powers.reduce((sum, value) => sum + value, 0);
  return powers.map((value) => value / total);
}

/** The numbers of the largest values, largest first. */
export function largest(values, count) {
  const best = [];
  for (let i = 0; i < values.length; i++) {
    if (best.length === count && !(values[i] > values[best.at(-1)])) continue;
    let at = best.length;
    while (at > 0 && values[i] > values[best[at - 1]]) at--;
    best.splice(at, 0, i);
    best.length = Math.min(best.length, count);
  }
  return best;
}

export function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
