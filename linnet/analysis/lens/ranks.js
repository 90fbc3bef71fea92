// Correlations.

export function correlation(a, b) {
  const [meanA, meanB] = [average(a), average(b)];
  let [both, ownA, ownB] = [0, 0, 0];
  for (let i = 0; i < a.length; i++) {
    both += (a[i] - meanA) * (b[i] - meanB);
    ownA += (a[i] - meanA) ** 2;
    ownB += (b[i] - meanB) ** 2;
  }
  return ownA && ownB ? both / Math.sqrt(ownA * ownB) : 0;
}

/** Spearman's rank correlation; equal values share the mean of their ranks. */
export function rankCorrelation(a, b) {
  return correlation(ranks(a), ranks(b));
}

function ranks(values) {
  const order = Array.from(values.keys()).sort((i, j) => values[i] - values[j]);
  const found = new Float64Array(values.length);
  for (let start = 0; start < order.length; ) {
    let end = start;
    while (end < order.length && values[order[end]] === values[order[start]]) end++;
    for (let i = start; i < end; i++) found[order[i]] = (start + end + 1) / 2;
    start = end;
  }
  return found;
}

function average(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
