// How the search orders pages. What the title of a guide says counts more than a name of the reference (16), and
// what its text says counts less. Pages that record what was once so come last.
const RECORDS = /^(log|changelog|diary|contributing|benchmarks|results\w*)$/;
const REFERENCE = /^(reference|genindex|index)$/;
const asked = (new URLSearchParams(window.location.search).get("q") || "").toLowerCase().trim();

function advantageOf(docname, kind) {
  if (RECORDS.test(docname)) return -20;
  if (REFERENCE.test(docname) || kind === "object") return 0;
  return docname.startsWith("gallery/") ? 5 : 6;
}

// Sphinx gives as much to any heading that contains a word; the page about it should come before its sections, and
// these before pages with the same words elsewhere.
function inTitle(title, kind) {
  if (kind === "object" || !title.toLowerCase().includes(asked)) return 0;
  return title.split(" > ")[0].toLowerCase().includes(asked) ? 5 : 3;
}

var Scorer = {
  score: ([docname, title, anchor, descr, score, filename, kind]) =>
    score + advantageOf(docname, kind) + inTitle(title, kind),

  // The rest is what Sphinx has without a scorer.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {0: 15, 1: 5, 2: -5},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
