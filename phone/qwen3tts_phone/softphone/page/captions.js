// What was said and how much of it was heard, word by word. Pure: no document, no clock.

import { EarPosition } from "./ear_position.js";

const KEPT_UTTERANCES = 400;

/** One utterance of the voice. Offsets are code points, as the server counts. */
export class Caption {
  constructor(id, who) {
    this.id = id;
    this.who = who;
    this.points = [];
    this.words = [];
    this.rateHz = 0;
    this.ear = new EarPosition();
    this.lit = 0;
    this.done = false;
    this.interrupted = false;
    this.heardPoints = 0;
    this.error = "";
    this.remedy = "";
    this.version = 0;
  }

  get text() {
    return this.points.join("");
  }

  get heard() {
    return this.points.slice(0, this.done ? this.heardPoints : this.lit).join("");
  }

  get remaining() {
    return this.points.slice(this.done ? this.heardPoints : this.lit).join("");
  }

  setText(text) {
    this.points = Array.from(text);
    this.version += 1;
  }

  addWords(words, rateHz) {
    this.rateHz = rateHz;
    for (const [charStart, charEnd, from, to] of words) {
      if (![charStart, charEnd, from, to].every(Number.isFinite)) continue;
      this.words.push({ charStart, charEnd, from, to });
    }
  }

  /** Move the light on to what is heard at `time` (page ms); true where something changed. */
  advance(time) {
    if (this.done || !this.rateHz) return false;
    const position = this.ear.at(time, this.rateHz);
    let lit = this.lit;
    for (const word of this.words) {
      if (position <= word.from) break;
      if (word.charEnd > lit) lit = word.charEnd;
    }
    if (lit === this.lit) return false;
    this.lit = Math.min(lit, this.points.length || lit);
    return true;
  }

  /** The server's word for what was heard is the last one. */
  settle({ heard, remaining, interrupted, error, remedy }) {
    const whole = heard + remaining;
    const points = Array.from(whole);
    if (points.length >= this.points.length) this.points = points;
    this.heardPoints = Math.min(Array.from(heard).length, this.points.length);
    if (!interrupted && !error) this.heardPoints = this.points.length;
    this.lit = this.heardPoints;
    this.done = true;
    this.interrupted = Boolean(interrupted);
    this.error = error ?? "";
    this.remedy = remedy ?? "";
    this.version += 1;
  }
}

export class Captions {
  constructor() {
    this.entries = [];
    this.byId = new Map();
    this.turns = 0;
  }

  clear() {
    this.entries = [];
    this.byId.clear();
    this.turns = 0;
  }

  /** The caption of an utterance; made where it is new. */
  of(id, who = "agent") {
    let caption = this.byId.get(id);
    if (!caption) {
      caption = new Caption(id, who);
      this.byId.set(id, caption);
      this.#add(caption);
    }
    return caption;
  }

  /** What the caller said; it is whole when it comes. */
  turn(text, bargeIn) {
    this.turns += 1;
    const entry = new Caption(`turn-${this.turns}`, "caller");
    entry.setText(text);
    entry.done = true;
    entry.heardPoints = entry.points.length;
    entry.lit = entry.heardPoints;
    entry.bargeIn = bargeIn;
    this.#add(entry);
    return entry;
  }

  /** The captions whose light has moved by `time`. */
  advance(time) {
    return this.entries.filter((entry) => entry.advance(time));
  }

  /** A message of the server, if it is about words; true where it was. `earTime` gives the page's time
   *  at which what the server sent at a time of its own reaches the ear. */
  take(message, earTime) {
    const { type, id } = message;
    switch (type) {
      case "utterance":
        this.of(id, message.who).setText(message.text ?? "");
        return true;
      case "words":
        this.of(id).addWords(message.words ?? [], message.rate_hz);
        return true;
      case "heard":
        this.of(id).ear.told(message.position, earTime(message.time));
        return true;
      case "spoken":
        this.of(id, message.typed === undefined ? "agent" : "typed").settle({ heard: "", remaining: "", ...message });
        return true;
      case "turn":
        // Without a recogniser nobody knows what was said.
        if (message.text?.trim()) this.turn(message.text, message.barge_in === true);
        return true;
      default:
        return false;
    }
  }

  /** The call is over: what was not heard by now is not heard any more, until the server knows better. */
  stop() {
    for (const entry of this.entries) {
      if (!entry.done) entry.settle({ heard: entry.heard, remaining: entry.remaining, interrupted: true });
    }
  }

  #add(entry) {
    this.entries.push(entry);
    while (this.entries.length > KEPT_UTTERANCES) {
      const gone = this.entries.shift();
      this.byId.delete(gone.id);
    }
  }

  plain() {
    return this.entries.map((entry) => ({
      id: entry.id,
      who: entry.who,
      text: entry.text,
      heard: entry.heard,
      remaining: entry.remaining,
      lit: entry.lit,
      interrupted: entry.interrupted,
      done: entry.done,
    }));
  }
}
