// One step of a recurrent model (@ABOUT@), written by Linnet. It needs nothing but this file.
//
//   import { Model } from "./model.js";
//   const model = new Model();
//   const state = model.start();              // one for each stream
//   const output = model.step(state, input);  // a new Float32Array; `state` is now that after the step
//   const outputs = model.run(state, inputs); // many steps: inputs, and the outputs, one after the other
//   const values = model.values();            // what the last step computed, by layer: values[0].h
//
// new Model(Float64Array) computes in double precision. If the input is a token, `step` also takes its vector,
// model.vector(token), or a changed one.

/** The number of tokens if the input is a token, 0 if it is a vector. */
export const tokens = @TOKENS@;
/** The size of the vector of a token, or of the input if that is a vector. */
export const vectorSize = @VECTOR_SIZE@;
/** The size of the input: 1 for a token. */
export const inputSize = @INPUT_SIZE@;
export const outputSize = @OUTPUT_SIZE@;
/** The unit of each layer, and the sizes of the values that `values()` returns for it. */
export const layers = @LAYERS@;
/** Equal for equal models. */
export const fingerprint = "@FINGERPRINT@";
/** The text of each token, or null. */
export const vocabulary = @VOCABULARY@;
/** The names of the numbers of the input and of the output, or null. */
export const stream = @STREAM@;

const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// y = W x + b for each row of x; W is [outputs, inputs]. With several heads, x has so many times as many numbers,
// and each block of `size` outputs reads the next head in turn.
// The outputs are written from y[first] on.
function product(matrix, bias, x, offset, rows, inputs, outputs, y, heads = 1, size = outputs, first = 0) {
  if (matrix.scales) return int8Product(matrix, bias, x, offset, rows, inputs, outputs, y, heads, size, first);
  const w = matrix.values;
  const whole = inputs - (inputs % 4);
  for (let row = 0; row < rows; row++) {
    for (let out = 0; out < outputs; out++) {
      const start = offset + (row * heads + (Math.floor(out / size) % heads)) * inputs;
      const at = out * inputs;
      let a = 0, b = 0, c = 0, d = 0, i = 0;
      for (; i < whole; i += 4) {
        a += w[at + i] * x[start + i];
        b += w[at + i + 1] * x[start + i + 1];
        c += w[at + i + 2] * x[start + i + 2];
        d += w[at + i + 3] * x[start + i + 3];
      }
      for (; i < inputs; i++) a += w[at + i] * x[start + i];
      y[first + row * outputs + out] = a + b + (c + d) + (bias ? bias[out] : 0);
    }
  }
}

// Weights and x as whole numbers from -127 to 127, with one scale for x and one for each row of weights.
// Each head of x has a scale.
function int8Product(matrix, bias, x, offset, rows, inputs, outputs, y, heads, size, first) {
  const w = matrix.values;
  const parts = Array.from({ length: heads }, () => new Int8Array(inputs));
  for (let row = 0; row < rows; row++) {
    const scales = parts.map((part, head) => quantise(x, offset + (row * heads + head) * inputs, inputs, part));
    for (let out = 0; out < outputs; out++) {
      const head = Math.floor(out / size) % heads;
      const scale = scales[head], quantised = parts[head];
      const at = out * inputs;
      let sum = 0;
      for (let i = 0; i < inputs; i++) sum = (sum + w[at + i] * quantised[i]) | 0;
      const scaled = Math.fround(Math.fround(Math.fround(sum) * matrix.scales[out]) * scale);
      y[first + row * outputs + out] = scaled + (bias ? bias[out] : 0);
    }
  }
}

function quantise(x, offset, size, quantised) {
  let largest = 0;
  for (let i = 0; i < size; i++) largest = Math.max(largest, Math.abs(x[offset + i]));
  const scale = Math.fround(largest / 127);
  for (let i = 0; i < size; i++) {
    // The sum has no digits after the point: it is rounded half to even.
    const ratio = scale === 0 ? 0 : Math.fround(x[offset + i] / scale);
    quantised[i] = Math.fround(ratio + 12582912) - 12582912;
  }
  return scale;
}

function lookup(table, token, size, y) {
  const from = token * size;
  const scale = table.scales ? table.scales[token] : 1;
  for (let i = 0; i < size; i++) y[i] = table.values[from + i] * scale;
}

function bytes(text) {
  const letters = atob(text);
  const made = new Int8Array(letters.length);
  for (let i = 0; i < made.length; i++) made[i] = letters.charCodeAt(i);
  return made;
}

// Weights that are stored as whole numbers, with a scale for each row.
function scaled(whole, scales) {
  const made = new Float32Array(whole.length);
  const inputs = whole.length / scales.length;
  for (let i = 0; i < made.length; i++) made[i] = whole[i] * scales[Math.floor(i / inputs)];
  return made;
}

function numbers(text) {
  return new Float32Array(bytes(text).buffer);
}

function integers(text) {
  return new Int32Array(bytes(text).buffer);
}

const initial = {
  @START@
};

// The parts of the state, with their sizes.
const parts = Object.entries(initial).map(([name, make]) => [name, make().length]);

const weights = {
  @WEIGHTS@
};

const { @VECTORS@ } = weights;

export class Model {
  constructor(Numbers = Float32Array) {
    this.Numbers = Numbers;
    this.buffers = {
      @BUFFERS@
    };
  }

  /** The state before the first step. */
  start() {
    const made = Object.entries(initial).map(([name, make]) => [name, this.Numbers.from(make())]);
    return Object.fromEntries(made);
  }

  /** Read one input, change `state`, and return the output: a new array, or `into` if that is given. */
  step(state, input, into = new this.Numbers(outputSize)) {
    check(input);
    checkState(state);
    const { @NAMES@ } = this.buffers;
    @STEP@
    into.set(output);
    return into;
  }

  /** Many steps in one call: inputs one after the other, and the outputs likewise. */
  run(state, inputs, into = new this.Numbers(countOf(inputs) * outputSize)) {
    const count = countOf(inputs);
    const output = new this.Numbers(outputSize);
    for (let at = 0; at < count; at++) {
      this.step(state, tokens ? inputs[at] : inputs.subarray(at * inputSize, (at + 1) * inputSize), output);
      into.set(output, at * outputSize);
    }
    return into;
  }

  /** The vector of a token. */
  vector(token) {
    check(token);
    const made = new this.Numbers(vectorSize);
    lookup(@TABLE@, token, vectorSize, made);
    return made;
  }

  /** Copies of what the last step computed: for each layer the values by their names in the unit's step. */
  values() {
    const { @NAMES@ } = this.buffers;
    return [
      @VALUES@
    ];
  }
}

function checkState(state) {
  for (const [name, size] of parts) {
    const got = state?.[name]?.length;
    if (got === size) continue;
    throw new RangeError(`the part ${name} of the state is an array of ${size} numbers, as start() makes it; got ${got}`);
  }
}

function check(input) {
  if (tokens) {
    if (Number.isInteger(input) && input >= 0 && input < tokens) return;
    if (input?.length === vectorSize) return;
    throw new RangeError(`the input is a token, a whole number from 0 to ${tokens - 1}, or its vector; got ${input}`);
  }
  if (input?.length !== inputSize) {
    throw new RangeError(`the input is an array of ${inputSize} numbers; got ${input?.length ?? input}`);
  }
}

function countOf(inputs) {
  const count = inputs?.length / inputSize;
  if (Number.isInteger(count)) return count;
  throw new RangeError(`the inputs are a multiple of ${inputSize} numbers, one input after the other; got ${inputs?.length ?? inputs}`);
}
