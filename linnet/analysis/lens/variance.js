// The variance of state and output by depth (SRU paper, Figure 6).

import { LOOKS, line, make, short, svg, text, valueAxis } from "./figure.js";

const [LEFT, TOP, MOST, HEIGHT] = [52, 14, 640, 200];

export const variance = {
  id: "variance",
  title: "Variance",
  about:
    "How strong the signal is at each layer: the variance of its state and of its output, divided by that of the first input. A stack that keeps it near 1 can be deep. For SRU, the curves at the start of training show what the correction alpha is for.",
  applies: (info) => Boolean(info.variances?.length),
  layers: () => [],
  choices: [],
  draw,
};

function draw(reading, { width: room }) {
  const curves = reading.info.variances;
  const most = Math.max(...curves.flatMap((curve) => curve.values));
  const depth = curves[0].values.length;
  const width = Math.min(MOST, room - LEFT - 8);
  const at = (layer) => LEFT + 24 + ((width - 48) * layer) / (depth - 1);
  const figure = svg(LEFT + width + 8, TOP + HEIGHT + 34 + 20 * curves.length, says(curves));
  figure.append(valueAxis(most, LEFT, LEFT + width, TOP, HEIGHT));
  for (let layer = 0; layer < depth; layer++) {
    figure.append(text(at(layer), TOP + HEIGHT + 18, `layer ${layer + 1}`, { "text-anchor": "middle", "font-size": 12 }));
  }
  curves.forEach(({ label, values }, number) => {
    const { stroke, dash } = LOOKS[number % LOOKS.length];
    const points = values.map((value, layer) => [at(layer), TOP + HEIGHT * (1 - value / most)]);
    const y = TOP + HEIGHT + 42 + 20 * number;
    figure.append(line(points, { stroke, "stroke-dasharray": dash }));
    points.forEach(([cx, cy]) => figure.append(make("circle", { cx, cy, r: 3.5, fill: stroke })));
    figure.append(line([[LEFT, y - 4], [LEFT + 26, y - 4]], { stroke, "stroke-dasharray": dash }));
    figure.append(text(LEFT + 34, y, label));
  });
  return { figure, says: says(curves), table: () => tableOf(curves) };
}

function says(curves) {
  const last = curves.map(({ label, values }) => `${label}: ${short(values.at(-1))}`);
  return `In the last layer, relative to the first input: ${last.join("; ")}.`;
}

function tableOf(curves) {
  const rows = curves[0].values.map((_, layer) => [
    String(layer + 1),
    ...curves.map(({ values }) => short(values[layer])),
  ]);
  return { head: ["layer", ...curves.map(({ label }) => label)], rows };
}
