// A state as the weighted sum of what was read: w(t, j) = input(j) forget(j + 1) ... forget(t).
// Which values of the step are its gates, Python finds in the traced step.

const OPERATIONS = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  div: (a, b) => a / b,
  neg: (a) => -a,
};

/** The value of an expression such as ["sub", 1, "f"] in one channel. */
function evaluate(expression, values, channel) {
  if (typeof expression === "number") return expression;
  if (typeof expression === "string") return values[expression][channel];
  const [op, ...operands] = expression;
  return OPERATIONS[op](...operands.map((each) => evaluate(each, values, channel)));
}

function gates(reading, layer, t) {
  const { sum, size } = reading.info.layers[layer];
  const values = reading.steps[t].values[layer];
  const make = (expression) => Float64Array.from({ length: size }, (_, c) => evaluate(expression, values, c));
  return { input: make(sum.input), forget: make(sum.forget) };
}

/** For each step t and each j <= t, the largest and the mean weight over channels. */
export function weightTable(reading, layer) {
  const { size } = reading.info.layers[layer];
  const rows = [];
  let weights = [];
  for (let t = 0; t < reading.length; t++) {
    const { input, forget } = gates(reading, layer, t);
    weights = weights.map((row) => row.map((weight, channel) => weight * forget[channel]));
    weights.push(input);
    rows.push(weights.map((row) => ({ largest: row.reduce((a, b) => Math.max(a, b), 0), mean: total(row) / size })));
  }
  return rows;
}

function total(values) {
  return values.reduce((sum, value) => sum + value, 0);
}

/** For each step the earlier step with the largest weight, by the `largest` channel or by the `mean`; -1 for the first. */
export function arrows(table, by = "largest") {
  return table.map((row, t) => {
    let best = t ? 0 : -1;
    for (let j = 1; j < t; j++) if (row[j][by] > row[best][by]) best = j;
    return best;
  });
}
