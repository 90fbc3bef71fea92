// One step of a recurrent model (@ABOUT@) in WebAssembly, written by Linnet. It needs nothing but this file.
//
//   import { Model } from "./model.js";
//   const model = new Model();
//   const state = model.start();              // one for each stream
//   const output = model.step(state, input);  // a new Float32Array; `state` is now that after the step
//   const outputs = model.run(state, inputs); // many steps: inputs, and the outputs, one after the other

/** The number of tokens if the input is a token, 0 if it is a vector. */
export const tokens = @TOKENS@;
/** The size of the input: 1 for a token. */
export const inputSize = @INPUT_SIZE@;
export const outputSize = @OUTPUT_SIZE@;
/** Equal for equal models. */
export const fingerprint = "@FINGERPRINT@";
/** The text of each token, or null. */
export const vocabulary = @VOCABULARY@;
/** The names of the numbers of the input and of the output, or null. */
export const stream = @STREAM@;

// The parts of the state, in the order in which they are in memory.
const parts = @PARTS@;
const code = Uint8Array.from(atob("@CODE@"), (letter) => letter.charCodeAt(0));
const { instance } = await WebAssembly.instantiate(code);
const { memory, address_of_state, address_of_inputs, address_of_outputs, start, run } = instance.exports;
// The inputs that are copied at once.
const block = @BLOCK@;

// The memory does not grow: these are its parts for good.
const part = (address, size) => new Float32Array(memory.buffer, address, size);
let end = address_of_state();
const held = parts.map(([name, size]) => [name, part((end += 4 * size) - 4 * size, size)]);
const given = new (tokens ? Int32Array : Float32Array)(memory.buffer, address_of_inputs(), block * inputSize);
const found = part(address_of_outputs(), block * outputSize);

export class Model {
  /** The state before the first step. */
  start() {
    start();
    return Object.fromEntries(held.map(([name, numbers]) => [name, numbers.slice()]));
  }

  /** Read one input, change `state`, and return the output: a new array, or `into` if that is given. */
  step(state, input, into = new Float32Array(outputSize)) {
    check(input);
    return this.run(state, tokens ? [input] : input, into);
  }

  /** Many steps in one call: inputs one after the other, and the outputs likewise. */
  run(state, inputs, into = new Float32Array(countOf(inputs) * outputSize)) {
    const count = countOf(inputs);
    if (tokens) for (const token of inputs) check(token);
    checkState(state);
    for (const [name, numbers] of held) numbers.set(state[name]);
    for (let at = 0; at < count; at += block) {
      const size = Math.min(block, count - at);
      given.set(size === count ? inputs : inputs.slice(at * inputSize, (at + size) * inputSize));
      run(size);
      into.set(size === block ? found : found.subarray(0, size * outputSize), at * outputSize);
    }
    for (const [name, numbers] of held) state[name].set(numbers);
    return into;
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
    throw new RangeError(`the input is a token, a whole number from 0 to ${tokens - 1}; got ${input}`);
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
