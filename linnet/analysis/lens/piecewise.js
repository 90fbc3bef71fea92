// Long work in pieces, so that the page stays responsive.

// The milliseconds of a piece, after which the page is drawn again.
const MOMENT = 60;

/** What a generator has yielded so far. */
export class Piecewise {
  constructor(steps) {
    this.steps = steps;
    this.found = [];
    this.done = false;
  }

  /** Go on for a moment. */
  goOn() {
    for (const start = performance.now(); !this.done && performance.now() - start < MOMENT; ) {
      const { value, done } = this.steps.next();
      if (done) this.done = true;
      else this.found.push(value);
    }
    return this;
  }
}
