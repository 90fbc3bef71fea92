// Reads a step from each line of standard input and prints the answer after the last:
//
//   node main.mjs < values.csv
//
// A line has @FIELDS@, separated by commas, semicolons or blanks.
// A number that is missing is empty or nan. A first line with names is skipped.
import { readFileSync } from "node:fs";
import { Model, inputSize, stream } from "./model.js";

const numbers = stream.hasTime ? inputSize - 2 : inputSize;

// Days since 1970-01-01, seconds of the day, and the rest of the line; null: it has no time.
function timeOf(line) {
  const found = /^\s*(\d+-\d+)(-\d+)?(?:[T ](\d+:\d+(?::\d+)?))?[^\s,;]*\s*[,;]?(.*)$/.exec(line);
  const seconds = found ? Date.parse(`${found[1]}${found[2] ?? "-01"}T${found[3] ?? "00:00"}Z`) / 1000 : NaN;
  return Number.isNaN(seconds) ? null : [Math.floor(seconds / 86400), seconds % 86400, found[4]];
}

function numbersOf(text) {
  const fields = text.trim().split(/\s*[,;\t]\s*|\s+/);
  return Array.from({ length: numbers }, (_, i) => (fields[i] ? Number(fields[i]) : NaN));
}

const model = new Model();
const state = model.start();
let answer = null;
const lines = readFileSync(0, "utf8").replace(/\r?\n$/, "").split(/\r?\n/);
for (const [number, line] of lines.entries()) {
  const time = stream.hasTime ? timeOf(line) : [];
  if (number === 0 && (time === null || (!stream.hasTime && /^[a-mo-z]/i.test(line)))) continue;
  if (time === null) throw new Error(`line ${number + 1} starts with no time such as 2024-01-31 or 2024-01-31T23:45`);
  answer = model.step(state, [...numbersOf(stream.hasTime ? time[2] : line), ...time.slice(0, 2)]);
}
if (answer === null) throw new Error("standard input has no line with numbers");

// As a field of CSV.
const field = (name) => (/[",]/.test(name) ? `"${name.replaceAll('"', '""')}"` : name);
const { name: last, labels: columns, scores } = stream.axes.at(-1);
const rows = stream.axes.slice(0, -1).reduce((names, axis) => names.flatMap((row) => axis.labels.map((label) => [...row, label])), [[]]);
console.log([...stream.axes.slice(0, -1).map((axis) => axis.name), ...(scores ? [last] : []), ...columns].map(field).join(","));
for (const [row, name] of rows.entries()) {
  const numbers = answer.subarray(row * columns.length, (row + 1) * columns.length);
  const answered = scores ? [columns[numbers.indexOf(Math.max(...numbers))]] : [];
  console.log([...[...name, ...answered].map(field), ...Array.from(numbers, (number) => Number(number.toPrecision(9)))].join(","));
}
