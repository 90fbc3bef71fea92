// One channel colours the text; the channels that follow something are offered first.

import { colour, diverging, legend, make, short, svg, text, visible, widthOf } from "./figure.js";
import { correlation } from "./ranks.js";
import { rarity } from "./pace.js";

const [ROW, WIDTH, OFFERED, SIZE] = [32, 900, 6, 15];
// The least correlation that is worth an offer.
const LEAST = 0.3;

export const channels = {
  id: "channels",
  title: "Channels",
  about:
    "One channel of the model colours the text: blue where it is positive, orange where it is negative. The channels that follow something in this text most closely are offered first.",
  applies: () => true,
  layers: (info) => [...info.layers.keys()],
  choices: ["value", "channel"],
  draw,
};

/** What a channel might follow: a number for each token. */
export function features(reading) {
  const texts = reading.tokens.map((token) => token.text);
  const rare = rarity(reading);
  return {
    "the position in the text": texts.map((_, t) => t),
    "the place since the last full stop": since(texts, /[.!?]|<eos>|↵/),
    "being inside quotes": inside(texts, /["“”]|''|``/),
    "being inside brackets": depth(texts),
    "the length of the word": texts.map((each) => each.length),
    "capital letters": texts.map((each) => Number(/\p{Lu}/u.test(each))),
    "digits": texts.map((each) => Number(/\d/.test(each))),
    "punctuation and blanks": texts.map((each) => Number(!/[\p{L}\p{N}]/u.test(each))),
    ...(rare ? { "how rare the word is": rare } : {}),
    "the certainty of the model": reading.tokens.map((_, t) => Math.max(...reading.probabilities(t))),
  };
}

function since(texts, mark) {
  let place = 0;
  return texts.map((each) => (mark.test(each) ? (place = 0) : ++place));
}

function inside(texts, mark) {
  let open = 0;
  return texts.map((each) => (mark.test(each) ? (open = 1 - open) : open));
}

function depth(texts) {
  let open = 0;
  return texts.map((each) => {
    open = Math.max(0, open + (each.match(/[([{]/g) ?? []).length - (each.match(/[)\]}]/g) ?? []).length);
    return open;
  });
}

/** The channels of a value that follow a feature best: { channel, feature, r }, one for each feature. */
export function offered(reading, layer, value) {
  if (reading.length < 5) return [];
  const size = reading.info.layers[layer].values[value];
  const series = Array.from({ length: size }, (_, c) => reading.tokens.map((__, t) => reading.value(layer, value, t)[c]));
  const best = Object.entries(features(reading)).map(([feature, numbers]) => {
    const found = series.map((own) => correlation(own, numbers));
    const channel = found.reduce((top, r, c) => (Math.abs(r) > Math.abs(found[top]) ? c : top), 0);
    return { channel, feature, r: found[channel] };
  });
  const close = best.filter(({ r }) => Math.abs(r) >= LEAST);
  return close.sort((a, b) => Math.abs(b.r) - Math.abs(a.r)).slice(0, OFFERED);
}

function draw(reading, { layer, value, channel, t, width }) {
  const numbers = reading.tokens.map((_, at) => reading.value(layer, value, at)[channel]);
  const most = Math.max(1e-9, ...numbers.map(Math.abs));
  const scale = diverging(most);
  const { boxes, height } = wrapped(reading.tokens, Math.min(WIDTH, width));
  const figure = svg(Math.min(WIDTH, width), height + 52, says(reading, value, channel, numbers, t));
  boxes.forEach(({ x, y, width: wide, label }, at) => {
    const fill = `rgb(${softened(scale(numbers[at])).join(" ")})`;
    const stroke = at === t ? "var(--ink)" : "none";
    figure.append(
      make("rect", { x, y, width: wide, height: ROW - 6, fill, stroke, "stroke-width": 2, rx: 3, "data-t": at }),
      text(x + wide / 2, y + 18, label, { "text-anchor": "middle", "pointer-events": "none", "font-size": SIZE }),
    );
  });
  figure.append(legend(4, height + 14, most, (each) => softened(scale(each)), "value of the channel"));
  return { figure, says: says(reading, value, channel, numbers, t), table: () => tableOf(reading, numbers) };
}

/** A colour under text: halfway to the page, so that the text stays readable. */
function softened(rgb) {
  return rgb.map((part, i) => Math.round((part + colour("--page")[i]) / 2));
}

function wrapped(tokens, most) {
  let [x, y] = [4, 4];
  const boxes = tokens.map((token) => {
    const label = visible(token.text);
    const width = Math.max(12, widthOf(label, SIZE) + 8);
    if (x + width > most - 4 && x > 4) [x, y] = [4, y + ROW];
    x += width + 2;
    return { x: x - width - 2, y, width, label };
  });
  return { boxes, height: y + ROW };
}

function says(reading, value, channel, numbers, t) {
  if (!reading.length) return "";
  return `Channel ${channel + 1} of ${value} is ${short(numbers[t])} at “${reading.tokens[t].text}”.`;
}

function tableOf(reading, numbers) {
  return { head: ["word", "value"], rows: numbers.map((number, t) => [reading.tokens[t].text, short(number)]) };
}
