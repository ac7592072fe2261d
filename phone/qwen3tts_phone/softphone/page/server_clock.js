// The server's clock as the page sees it, by pings.

const KEPT = 12;

/** Pure: it is told of pings and their answers, in milliseconds. */
export class ServerClock {
  constructor() {
    this.samples = [];
  }

  /** A ping left at `sent` and its answer came at `arrived` (page), stamped `serverTime` (server). */
  answered(sent, serverTime, arrived) {
    const way = arrived - sent;
    if (!(way >= 0) || !Number.isFinite(serverTime)) return;
    this.samples.push({ way, offset: serverTime - (sent + arrived) / 2 });
    if (this.samples.length > KEPT) this.samples.shift();
  }

  get best() {
    return this.samples.reduce((best, one) => (!best || one.way < best.way ? one : best), null);
  }

  /** Server time minus page time: of the fastest ping, whose error is at most half its way. */
  get offsetMs() {
    return this.best ? this.best.offset : 0;
  }

  get uncertaintyMs() {
    return this.best ? this.best.way / 2 : Infinity;
  }

  /** There and back, of the latest ping. */
  get wayMs() {
    const last = this.samples.at(-1);
    return last ? last.way : null;
  }

  /** A time of the server on the page's clock. */
  here(serverTime) {
    return serverTime - this.offsetMs;
  }
}
