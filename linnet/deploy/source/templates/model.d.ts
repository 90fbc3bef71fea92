/** The state of one stream: its parts by name. */
export type State = Record<string, Float32Array>;
/** The number of tokens if the input is a token, 0 if it is a vector. */
export declare const tokens: number;
/** The size of the vector of a token, or of the input if that is a vector. */
export declare const vectorSize: number;
/** The size of the input: 1 for a token. */
export declare const inputSize: number;
export declare const outputSize: number;
/** The unit of each layer, and the sizes of the values that `values()` returns for it. */
export declare const layers: { unit: string; values: Record<string, number> }[];
/** Equal for equal models. */
export declare const fingerprint: string;
/** The text of each token, or null. */
export declare const vocabulary: string[] | null;
/** The names of the numbers of the input and of the output, or null. With `hasTime`, the last two inputs are the time; with `scores`, the class with the highest is the answer. */
export declare const stream: { inputs: string[]; axes: { name: string; labels: string[]; scores: boolean }[]; hasTime: boolean } | null;

export declare class Model {
  /** Float64Array computes in double precision. */
  constructor(Numbers?: Float32ArrayConstructor | Float64ArrayConstructor);
  /** The state before the first step. */
  start(): State;
  /** Read one input, change `state`, and return the output: a new array, or `into` if that is given. */
  step(state: State, input: @INPUT@, into?: Float32Array): Float32Array;
  /** Many steps in one call: inputs one after the other, and the outputs likewise. */
  run(state: State, inputs: @INPUTS@, into?: Float32Array): Float32Array;
  /** The vector of a token, which `step` takes in place of the token. */
  vector(token: number): Float32Array;
  /** Copies of what the last step computed: for each layer the values by their names in the unit's step. */
  values(): Record<string, Float32Array>[];
}
