// A text as the tokens of a model, split as Python splits it.

/**
 * Return the tokens of a text: { text, id, known }. `spec` says how: level, pattern, rewrites (pairs of a pattern
 * and its replacement), lowercase, tokens, unknown (the id of unknown tokens, or -1), end (the token of a line
 * end, or null) and merges.
 */
export function tokenise(text, spec) {
  const lower = spec.lowercase ? text.toLowerCase() : text;
  const clean = (spec.rewrites ?? []).reduce((old, [pattern, by]) => old.replace(new RegExp(pattern, "gu"), by), lower);
  return split(clean, spec).map((piece) => {
    const id = spec.index.get(piece);
    if (id !== undefined) return { text: shown(piece, spec), id, known: true };
    return { text: shown(piece, spec), id: spec.unknown, known: false };
  });
}

/** Add what is computed once: the number of each token, and the rank of each merge. */
export function prepare(spec) {
  const index = new Map(spec.tokens.map((token, id) => [token, id]));
  const ranks = new Map((spec.merges ?? []).map((merge, rank) => [merge, rank]));
  return { ...spec, index, ranks };
}

function split(text, spec) {
  if (spec.level === "char") return Array.from(text);
  if (spec.level === "byte") return Array.from(new TextEncoder().encode(text), (code) => String.fromCharCode(code));
  if (spec.level === "bpe") return pieces(text, spec);
  const lines = spec.end === null ? text : text.replaceAll("\n", ` ${spec.end} `);
  return lines.match(new RegExp(spec.pattern, "gu")) ?? [];
}

/** How a token is shown: bytes of pieces as the characters that they spell. */
export function shown(token, spec) {
  if (spec.level !== "bpe") return token === "\n" ? "↵" : token;
  const codes = Array.from(token, (letter) => LETTER_BYTES.get(letter) ?? 63);
  return new TextDecoder().decode(Uint8Array.from(codes)).replaceAll("\n", "↵");
}

// ------------------------------------------------------------------------------- byte-level pieces

// Byte-level BPE writes each byte as a visible letter: bytes that are no visible letter come after 255.
const BYTE_LETTERS = byteLetters();
const LETTER_BYTES = new Map(BYTE_LETTERS.map((letter, code) => [letter, code]));
const CHUNK = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;

function byteLetters() {
  const visible = (code) => (code > 32 && code < 127) || (code > 160 && code !== 173);
  let next = 256;
  return Array.from({ length: 256 }, (_, code) => String.fromCharCode(visible(code) ? code : next++));
}

function pieces(text, spec) {
  const lines = text.split(/(?<=\n)/);
  return lines.flatMap((line) => line.match(CHUNK) ?? []).flatMap((chunk) => merged(chunk, spec.ranks));
}

/** Join the pair that was learned first, until no pair is left that was learned. */
function merged(chunk, ranks) {
  let parts = Array.from(new TextEncoder().encode(chunk), (code) => BYTE_LETTERS[code]);
  for (;;) {
    const rank = (at) => ranks.get(`${parts[at]} ${parts[at + 1]}`) ?? Infinity;
    let best = 0;
    for (let at = 1; at + 1 < parts.length; at++) if (rank(at) < rank(best)) best = at;
    if (parts.length < 2 || rank(best) === Infinity) return parts;
    const pair = [parts[best], parts[best + 1]];
    const joined = [];
    for (let at = 0; at < parts.length; at++) {
      const both = parts[at] === pair[0] && parts[at + 1] === pair[1];
      joined.push(both ? pair.join("") : parts[at]);
      if (both) at++;
    }
    parts = joined;
  }
}
