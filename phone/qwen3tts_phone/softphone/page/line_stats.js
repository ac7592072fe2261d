// What the browser measures of the line: getStats put into the few numbers that matter. Pure.

const NOTHING = {
  codec: "",
  jitter_buffer_ms: null,
  rtt_ms: null,
  lost: 0,
  received: 0,
  concealed: 0,
  concealment_events: 0,
  inserted: 0,
  removed: 0,
  total_samples: 0,
  rate_hz: 0,
};

const whole = (value) => (Number.isFinite(value) && value > 0 ? value : 0);

export class LineStats {
  constructor() {
    this.reset();
  }

  reset() {
    this.latest = { ...NOTHING };
    this.delay = 0;
    this.emitted = 0;
  }

  /** What the server wants to know, without what is not known. */
  get report() {
    const { jitter_buffer_ms, rtt_ms, lost, concealed, received } = this.latest;
    const all = { jitter_buffer_ms, rtt_ms, lost, concealed, received };
    return Object.fromEntries(Object.entries(all).filter(([, value]) => Number.isFinite(value) && value >= 0));
  }

  /** Read a report of getStats (a Map); returns the numbers, and what was concealed since the last time. */
  read(report) {
    const found = { ...NOTHING, jitter_buffer_ms: this.latest.jitter_buffer_ms };
    let codecId = null;
    let pair = null;
    report.forEach((entry) => {
      if (entry.type === "inbound-rtp" && entry.kind === "audio") {
        codecId = entry.codecId;
        found.lost = whole(entry.packetsLost);
        found.received = whole(entry.packetsReceived);
        found.concealed = whole(entry.concealedSamples) - whole(entry.silentConcealedSamples);
        found.concealment_events = whole(entry.concealmentEvents);
        found.inserted = whole(entry.insertedSamplesForDeceleration);
        found.removed = whole(entry.removedSamplesForAcceleration);
        found.total_samples = whole(entry.totalSamplesReceived);
        const seconds = whole(entry.totalSamplesDuration);
        found.rate_hz = seconds ? Math.round(found.total_samples / seconds) : 0;
        const emitted = whole(entry.jitterBufferEmittedCount) - this.emitted;
        const delay = whole(entry.jitterBufferDelay) - this.delay;
        if (emitted > 0) {
          found.jitter_buffer_ms = (delay / emitted) * 1000;
          this.emitted += emitted;
          this.delay += delay;
        }
      } else if (entry.type === "candidate-pair" && entry.currentRoundTripTime !== undefined) {
        if (entry.nominated || entry.selected || !pair) pair = entry;
      }
    });
    if (pair) found.rtt_ms = pair.currentRoundTripTime * 1000;
    if (codecId) found.codec = (report.get(codecId)?.mimeType ?? "").replace(/^audio\//i, "");
    found.concealed = Math.max(0, found.concealed);
    const fresh = Math.max(0, found.concealed - this.latest.concealed);
    this.latest = found;
    return { ...found, newly_concealed: fresh };
  }
}
