// How much of an utterance has reached the ear, between the server's messages about it.

const KEPT = 16;
const AHEAD_MS = 160;

/** Pure. Positions are samples; times are milliseconds of the page's clock at which they are heard. */
export class EarPosition {
  constructor() {
    this.points = [];
  }

  /** `position` samples will have been heard at `time`. */
  told(position, time) {
    const last = this.points.at(-1);
    if (last && position < last.position) return;
    if (last && time <= last.time) {
      last.position = position;
      return;
    }
    this.points.push({ position, time });
    if (this.points.length > KEPT) this.points.shift();
  }

  /** Samples heard by `time`. Between two messages it moves evenly; after the last it goes on for a
   *  moment at the rate of sound, and then waits: a line that has stopped must not seem to go on. */
  at(time, rateHz) {
    const points = this.points;
    if (!points.length || time < points[0].time) {
      const first = points[0];
      if (!first) return 0;
      return Math.max(0, first.position - ((first.time - time) * rateHz) / 1000);
    }
    for (let i = points.length - 1; i >= 0; i--) {
      const here = points[i];
      if (time < here.time) continue;
      const next = points[i + 1];
      if (next) {
        const part = (time - here.time) / (next.time - here.time);
        return here.position + part * (next.position - here.position);
      }
      const before = points[i - 1];
      const moving = !before || here.position > before.position;
      const on = moving ? Math.min(time - here.time, AHEAD_MS) : 0;
      return here.position + (on * rateHz) / 1000;
    }
    return 0;
  }
}
