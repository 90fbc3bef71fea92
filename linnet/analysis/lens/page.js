// The page: a text, one or two models that read it, and views of what they compute.

import { channels, offered } from "./channels.js";
import { decay } from "./decay.js";
import { gates } from "./gates.js";
import { memory } from "./memory.js";
import { next } from "./next.js";
import { moves, pace, rarity } from "./pace.js";
import { Reader } from "./reader.js";
import { reach, reachOf } from "./reach.js";
import { savePng, saveSvg } from "./save.js";
import { similar, similarities } from "./similar.js";
import { arrows, weightTable } from "./sums.js";
import { prepare, shown, tokenise } from "./text.js";
import { variance } from "./variance.js";
import { weights } from "./weights.js";

export const VIEWS = [next, weights, decay, memory, pace, channels, gates, similar, reach, variance];
const MOST_TOKENS = 400;
// As in style.css.
const [PANEL, GAP] = [460, 28];
const MOST_SPAN = 8;
const THEMES = ["auto", "light", "dark"];

/** What the views compute, by name: for the console, and to be compared with Python. */
export const analyses = { arrows, moves, offered, rarity, reachOf, similarities, tokenise, weightTable };

/** Show models in `root`, which has the elements of page.html. `models` are { module, info }. */
export class Page {
  constructor(root, models, start) {
    this.root = root;
    this.analyses = analyses;
    this.find = (what) => root.querySelector(what);
    this.models = models.map(({ module, info }) => ({
      reader: new Reader(module, info),
      info,
      spec: prepare({ ...info.text, tokens: info.text.tokens ?? module.vocabulary }),
    }));
    for (const model of this.models) {
      model.reader.passages = model.info.passages.map((text) => known(text, model.spec));
      if (model.info.says === "next") model.info.labels = model.spec.tokens.map((token) => shown(token, model.spec));
    }
    this.views = VIEWS.filter((view) => this.models.some(({ info }) => view.applies(info)));
    this.view = this.views[0];
    this.chosen = { layer: 0 };
    this.selected = 0;
    this.find("textarea").value = start;
    this.addTabs();
    this.addModels();
    this.listen();
    this.read();
  }

  // ------------------------------------------------------------------------------------- building

  addTabs() {
    const tabs = this.views.map((view) => {
      const tab = element("button", { role: "tab", id: `tab-${view.id}`, "aria-controls": "view" }, view.title);
      tab.addEventListener("click", () => this.show(view));
      return tab;
    });
    this.find(".tabs").replaceChildren(...tabs);
  }

  addModels() {
    const cards = this.models.map(({ info }) => element("p", {}, element("b", {}, info.name), ` ${info.about}`));
    this.find(".models").replaceChildren(...cards);
  }

  listen() {
    this.find("textarea").addEventListener("input", () => this.soon(() => this.read()));
    this.find(".tabs").addEventListener("keydown", (event) => this.moveTab(event));
    this.find(".words").addEventListener("keydown", (event) => this.moveWord(event));
    this.find(".words").addEventListener("pointerover", (event) => this.point(event));
    this.find(".words").addEventListener("click", (event) => this.point(event));
    const panels = this.find(".panels");
    panels.addEventListener("pointermove", (event) => this.point(event));
    panels.addEventListener("click", (event) => (this.point(event), this.write(event)));
    panels.addEventListener("keydown", (event) => ["Enter", " "].includes(event.key) && this.write(event));
    this.find(".theme").addEventListener("click", () => this.nextTheme());
    // To draw changes the height; only another width asks for another drawing.
    new ResizeObserver(() => this.room() === this.drawn || this.soon(() => this.draw())).observe(panels);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Run once before the next frame, however often it is asked for. */
  soon(work) {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(work);
  }

  // -------------------------------------------------------------------------------------- reading

  /** Let the models read the text. */
  read() {
    const text = this.find("textarea").value;
    this.readings = this.models.map(({ reader, spec }) => {
      return reader.read(known(text, spec).slice(0, MOST_TOKENS));
    });
    this.notice(text);
    this.selected = Math.max(0, this.readings[0].length - 1);
    this.draw();
  }

  /** Say what the models do not read as it was typed. */
  notice(text) {
    const all = this.models.flatMap(({ spec }) => tokenise(text, spec));
    const unknown = [...new Set(all.filter((token) => !token.known).map((token) => token.text))];
    const long = this.models.some(({ spec }) => tokenise(text, spec).length > MOST_TOKENS);
    const parts = [];
    if (unknown.length) parts.push(`Not in the vocabulary: ${unknown.slice(0, 8).join(", ")}.`);
    if (long) parts.push(`Only the first ${MOST_TOKENS} tokens are read.`);
    this.find(".notice").textContent = parts.join(" ");
  }

  // ------------------------------------------------------------------------------------- choosing

  show(view) {
    this.view = view;
    this.draw();
  }

  moveTab(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const at = (this.views.indexOf(this.view) + by + this.views.length) % this.views.length;
    this.show(this.views[at]);
    this.find(`#tab-${this.view.id}`).focus();
  }

  moveWord(event) {
    const last = this.readings[0].length - 1;
    const to = { ArrowRight: this.selected + 1, ArrowLeft: this.selected - 1, Home: 0, End: last }[event.key];
    if (to === undefined || to < 0 || to > last) return;
    event.preventDefault();
    this.select(to);
    this.find(".words [tabindex='0']").focus();
  }

  point(event) {
    const target = event.target.closest?.("[data-t]");
    if (target) this.select(Number(target.dataset.t));
  }

  select(t) {
    if (t === this.selected) return;
    this.selected = t;
    this.soon(() => this.draw());
  }

  /** Write the word that was chosen among those that the model expects next. */
  write(event) {
    const row = event.target.closest?.("[data-write]");
    if (!row) return;
    event.preventDefault();
    const { spec } = this.models[Number(row.closest("[data-model]").dataset.model)];
    const [area, token] = [this.find("textarea"), shown(spec.tokens[Number(row.dataset.write)], spec)];
    const glued = spec.level !== "word" || !area.value || /\s$/.test(area.value);
    area.value += (glued ? "" : " ") + (token === spec.end || token === "↵" ? "\n" : token);
    this.read();
  }

  nextTheme() {
    const { dataset } = document.documentElement;
    const at = THEMES.indexOf(dataset.theme ?? "auto");
    dataset.theme = THEMES[(at + 1) % THEMES.length];
    this.find(".theme").textContent = `Theme: ${dataset.theme}`;
    this.draw();
  }

  // -------------------------------------------------------------------------------------- drawing

  draw() {
    for (const view of this.views) {
      const tab = this.find(`#tab-${view.id}`);
      tab.setAttribute("aria-selected", view === this.view);
      tab.tabIndex = view === this.view ? 0 : -1;
    }
    this.find(".about").textContent = this.view.about;
    this.find("#view").setAttribute("aria-labelledby", `tab-${this.view.id}`);
    this.drawn = this.room();
    this.drawWords();
    const scrolled = [...this.root.querySelectorAll(".panel > .figure")].map((box) => box.scrollLeft);
    this.find(".panels").replaceChildren(...this.models.map((_, number) => this.panel(number)));
    this.root.querySelectorAll(".panel > .figure").forEach((box, number) => this.scroll(box, scrolled[number] ?? 0));
  }

  /** Scroll a wide figure to where it was, or further to the selected word. */
  scroll(box, before) {
    box.scrollLeft = before;
    const column = box.querySelector(`[data-t="${this.selected}"]`)?.getBoundingClientRect();
    const { left, right } = box.getBoundingClientRect();
    if (column && column.right > right) box.scrollLeft += column.right - right + 40;
    if (column && column.left < left) box.scrollLeft -= left - column.left + 40;
  }

  drawWords() {
    const spans = this.readings[0].tokens.map((token, t) => {
      const chosen = t === this.selected;
      const name = { role: "option", "data-t": t, tabindex: chosen ? 0 : -1, "aria-selected": chosen };
      return element("span", { ...name, class: token.known ? "" : "unknown" }, token.text);
    });
    const box = this.find(".words");
    const focused = box.contains(document.activeElement);
    box.replaceChildren(...spans);
    if (focused) spans[this.selected]?.focus();
    this.reveal(box, spans[this.selected]);
  }

  /** Scroll the words, not the page, until the selected one is seen. */
  reveal(box, span) {
    if (!span) return;
    const [whole, own] = [box.getBoundingClientRect(), span.getBoundingClientRect()];
    if (own.bottom > whole.bottom) box.scrollTop += own.bottom - whole.bottom + 4;
    if (own.top < whole.top) box.scrollTop -= whole.top - own.top + 4;
  }

  panel(number) {
    const { info } = this.models[number];
    const panel = element("section", { class: "panel", "data-model": number });
    if (this.models.length > 1) panel.append(element("h2", {}, info.name));
    const reading = this.readings[number];
    if (!reading.length) return append(panel, element("p", {}, "Type something for the model to read."));
    if (!this.view.applies(info)) {
      return append(panel, element("p", {}, this.absence(info)));
    }
    const choice = this.choice(number);
    const drawn = this.view.draw(reading, choice);
    panel.append(
      this.controls(number, choice),
      element("div", { class: "figure", tabindex: 0, role: "group", "aria-label": `${this.view.title} of ${info.name}` }, drawn.figure),
      element("p", { class: "says", "aria-live": "polite" }, drawn.says),
      this.savers(number, drawn.figure),
      this.numbers(drawn.table),
    );
    return panel;
  }

  /** Why a view has nothing to show for a model. */
  absence(info) {
    const reason = info.layers.map((layer) => layer.without).find(Boolean);
    return `This view has nothing to show for ${info.unit}${reason ? `: ${reason}` : ""}.`;
  }

  /** What to draw: the choices of the reader as far as they fit this view and this model. */
  choice(number) {
    const { info } = this.models[number];
    const layers = this.view.layers(info);
    const layer = layers.includes(this.chosen.layer) ? this.chosen.layer : (layers.at(-1) ?? 0);
    const { states, values } = info.layers[layer];
    const state = states.includes(this.chosen.state) ? this.chosen.state : states.at(-1);
    const value = this.chosen.value in values ? this.chosen.value : state;
    const t = Math.min(this.selected, this.readings[number].length - 1);
    const channel = this.channel(number, layer, value, values[value]);
    const span = Math.min(this.chosen.span ?? 1, t + 1);
    const by = this.chosen.by ?? "mean";
    return { layer, state, value, channel, span, by, t, width: this.room(), later: () => this.soon(() => this.draw()) };
  }

  /** The chosen channel, or the one that would be offered first. */
  channel(number, layer, value, size) {
    if (!this.view.choices.includes("channel")) return 0;
    const chosen = this.chosen.channel ?? offered(this.readings[number], layer, value)[0]?.channel ?? 0;
    return Math.min(chosen, size - 1);
  }

  /** The width of a panel: two stand side by side if there is room. */
  room() {
    const whole = this.find(".panels").clientWidth;
    return this.models.length > 1 && whole >= 2 * PANEL + GAP ? (whole - GAP) / 2 : whole;
  }

  controls(number, choice) {
    const { info } = this.models[number];
    const box = element("div", { class: "controls" });
    const layers = this.view.layers(info);
    if (layers.length > 1) {
      box.append(this.dropdown("layer", layers.map((each) => [each, `layer ${each + 1}`]), choice.layer, Number));
    }
    const { states, values } = info.layers[choice.layer];
    if (this.view.choices.includes("state") && states.length > 1) {
      box.append(this.dropdown("state", states.map((each) => [each, `state ${each}`]), choice.state, String));
    }
    if (this.view.choices.includes("value")) {
      box.append(this.dropdown("value", Object.keys(values).map((each) => [each, each]), choice.value, String));
    }
    if (this.view.choices.includes("by")) {
      box.append(this.dropdown("by", [["mean", "mean of the channels"], ["largest", "largest channel"]], choice.by, String));
    }
    if (this.view.choices.includes("channel")) box.append(...this.channelControls(number, choice));
    if (this.view.choices.includes("span")) {
      box.append(this.numberField("words", choice.span, Math.min(MOST_SPAN, choice.t + 1), (span) => ({ span })));
    }
    return box;
  }

  dropdown(name, options, chosen, kind) {
    const select = element("select", { "aria-label": name });
    for (const [value, label] of options) {
      select.append(element("option", { value, ...(value === chosen ? { selected: "" } : {}) }, label));
    }
    select.addEventListener("change", () => this.choose({ [name]: kind(select.value) }, `select[aria-label=${name}]`));
    return select;
  }

  channelControls(number, { layer, value, channel }) {
    const size = this.models[number].info.layers[layer].values[value];
    const field = this.numberField("channel", channel + 1, size, (typed) => ({ channel: typed - 1 }));
    const offers = offered(this.readings[number], layer, value).map(({ channel: other, feature, r }) => {
      const button = element("button", { class: "offer", "aria-pressed": other === channel }, `${other + 1}: ${feature} (${r.toFixed(2)})`);
      button.addEventListener("click", () => this.choose({ channel: other }, ".offer[aria-pressed=true]"));
      return button;
    });
    return [field, ...offers];
  }

  /** A field for a number from 1 to `most`; `choice` turns the number into what is chosen. */
  numberField(name, value, most, choice) {
    const field = element("input", { type: "number", min: 1, max: most, value, "aria-label": name });
    field.addEventListener("change", () => {
      const typed = Math.round(Number(field.value)) || 1;
      this.choose(choice(Math.min(most, Math.max(1, typed))), `input[aria-label=${name}]`);
    });
    return element("label", {}, `${name} `, field);
  }

  choose(choice, focus) {
    Object.assign(this.chosen, choice);
    this.draw();
    this.find(focus)?.focus();
  }

  /** A table of what the figure shows, made when it is opened; it stays open. */
  numbers(table) {
    const box = element("div", { class: "figure", tabindex: 0, role: "group", "aria-label": "numbers" });
    const details = element("details", {}, element("summary", {}, "Numbers"), box);
    const fill = () => details.open && !box.hasChildNodes() && box.append(tableElement(table()));
    details.open = this.opened ?? false;
    details.addEventListener("toggle", () => ((this.opened = details.open), fill()));
    fill();
    return details;
  }

  savers(number, figure) {
    const name = `${this.view.id}-${this.models[number].info.name}`.replace(/[^\w.-]+/g, "_");
    const svg = element("button", { "aria-label": `save ${this.view.title} as SVG` }, "Save SVG");
    const png = element("button", { "aria-label": `save ${this.view.title} as PNG` }, "Save PNG");
    svg.addEventListener("click", () => saveSvg(figure, name));
    png.addEventListener("click", () => savePng(figure, name));
    return element("div", { class: "savers" }, svg, png);
  }
}

/** The tokens of a text that the model can read. */
function known(text, spec) {
  return tokenise(text, spec).filter((token) => token.id >= 0);
}

function tableElement({ head, rows }) {
  const cells = (kind, row) => element("tr", {}, ...row.map((each) => element(kind, {}, each)));
  const body = element("tbody", {}, ...rows.map((row) => cells("td", row)));
  return element("table", {}, element("thead", {}, cells("th", head)), body);
}

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function append(parent, child) {
  parent.append(child);
  return parent;
}
