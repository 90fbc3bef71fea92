// What the model says after each word.

import { fitted, make, short, svg, text, visible } from "./figure.js";
import { largest } from "./reader.js";

const [LEFT, ROW, MOST, SHOWN] = [130, 28, 560, 10];
const TITLES = { next: "next", class: "the class", tags: "the tag of this word", answers: "the answer" };

export const next = {
  id: "next",
  title: "Next",
  about:
    "What the model would say after the selected word, with its probabilities. For a language model these are the words it expects next: choose one to write on.",
  applies: (info) => info.labels !== null,
  layers: () => [],
  choices: [],
  draw,
};

function draw(reading, { t, width: room }) {
  const width = Math.min(MOST, room);
  const { labels, says: kind } = reading.info;
  const probabilities = reading.probabilities(t);
  const best = largest(probabilities, SHOWN);
  const figure = svg(width, best.length * ROW + 8, sentence(reading, best, probabilities, t));
  best.forEach((number, rank) => {
    const y = rank * ROW + 4;
    const long = Math.max(1, (width - LEFT - 64) * probabilities[number]);
    const writes = kind === "next";
    const label = fitted(visible(labels[number]), LEFT - 16);
    const row = make(
      "g",
      writes ? { class: "write", tabindex: 0, role: "button", "data-write": number, "aria-label": `write ${labels[number]}` } : {},
      make("rect", { x: 0, y, width, height: ROW - 2, fill: "transparent" }),
      text(LEFT - 8, y + 17, label, { "text-anchor": "end" }),
      make("rect", { x: LEFT, y: y + 4, width: long, height: ROW - 12, fill: rank ? "var(--high)" : "var(--orange)", rx: 2 }),
      text(LEFT + long + 6, y + 17, short(probabilities[number]), { "font-size": 12, fill: "var(--faint)" }),
    );
    figure.append(row);
  });
  return { figure, says: sentence(reading, best, probabilities, t), table: () => tableOf(reading) };
}

function sentence(reading, best, probabilities, t) {
  const { labels, says: kind } = reading.info;
  const answer = `“${labels[best[0]]}” (${short(probabilities[best[0]])})`;
  return `After “${reading.tokens[t].text}”, ${TITLES[kind]} is most probably ${answer}.`;
}

function tableOf(reading) {
  const { labels } = reading.info;
  const rows = reading.tokens.map((token, t) => {
    const probabilities = reading.probabilities(t);
    const [best, second] = largest(probabilities, 2);
    const pair = (number) => (number === undefined ? ["", ""] : [labels[number], short(probabilities[number])]);
    return [token.text, ...pair(best), ...pair(second)];
  });
  return { head: ["word", "most probable", "probability", "second", "probability"], rows };
}
