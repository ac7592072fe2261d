// Type-to-speak: which words leave the box, and when an utterance ends. Pure: time is an argument.

export const PAUSE_MS = 1500;
export const MAX_DELTA_CHARS = 2048;

const COMPLETE = /^[\s\S]*[\s\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}、。，！？]/u;

/** Text split into pieces that one message may carry, never within a surrogate pair. */
export function portions(text) {
  const points = Array.from(text);
  const found = [];
  for (let i = 0; i < points.length; i += MAX_DELTA_CHARS) {
    found.push(points.slice(i, i + MAX_DELTA_CHARS).join(""));
  }
  return found;
}

export class TypedWords {
  /** `send(type, fields)` writes a message. */
  constructor(send) {
    this.send = send;
    this.asCaller = false;
    this.reset();
  }

  /** A new call counts from one. */
  reset() {
    this.number = 0;
    this.open = false;
    this.changedAt = 0;
    this.rest = "";
  }

  /** Whose words are typed from now on: the caller's, sent whole, or the voice's, sent as they are written. */
  speakAs(caller) {
    if (caller === this.asCaller) return;
    this.drop();
    this.asCaller = caller;
  }

  /** The box holds `value`; returns what stays in it: the word that is not complete. */
  typed(value, time) {
    this.changedAt = time;
    if (this.asCaller) return value;
    const complete = COMPLETE.exec(value);
    const words = complete ? complete[0] : "";
    this.rest = value.slice(words.length);
    if (words && (this.open || words.trim())) this.#say(words);
    return this.rest;
  }

  /** Enter: what is in the box is said too, and the utterance is complete. */
  end(value) {
    if (this.asCaller) {
      if (value.trim()) this.send("say", { text: value.trim() });
      return;
    }
    if (value.trim()) this.#say(value);
    this.rest = "";
    if (this.open) this.send("type_end", { utterance: this.number });
    this.open = false;
  }

  /** What was not said is forgotten: the utterance was interrupted. */
  drop() {
    this.rest = "";
    if (this.open) this.send("type_end", { utterance: this.number });
    this.open = false;
  }

  /** Whether the writer has paused for so long that the utterance is taken to be complete. */
  paused(time) {
    return !this.asCaller && (this.open || this.rest.trim() !== "") && time - this.changedAt >= PAUSE_MS;
  }

  #say(text) {
    if (!this.open) {
      this.open = true;
      this.number += 1;
    }
    for (const part of portions(text)) this.send("type", { utterance: this.number, text: part });
  }
}
