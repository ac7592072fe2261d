// The line in numbers, beneath its picture.

import { byId, make, write } from "./dom.js";

const ROWS = [
  ["first_sound", "First sound", "From the first words to their first sound on the wire"],
  ["round_trip", "Round trip", "There and back on the network"],
  ["jitter_buffer", "Jitter buffer", "How long the browser keeps sound to even out the network"],
  ["gaps", "Gaps", "How often the voice ran dry while it spoke"],
  ["longest_gap", "Longest gap", "The longest of them"],
  ["queued", "Buffered", "Audio that waits for its place on the line"],
  ["lost", "Lost", "Packets that never came"],
  ["concealed", "Concealed", "Sound that the browser filled in where packets were missing or late"],
  ["codec", "Codec", "How the sound is packed"],
];

// A share says little of the first moments.
const JUDGED_S = 10;

const ms = (value) => (Number.isFinite(value) ? `${Math.round(value)} ms` : "–");

export class Figures {
  constructor(phone) {
    this.phone = phone;
    this.cells = new Map();
    const list = byId("figures");
    for (const [key, title, meaning] of ROWS) {
      const value = make("dd", { "data-figure": key, textContent: "–" });
      list.append(make("div", { className: `figure ${key}`, title: meaning }, make("dt", { textContent: title }), value));
      this.cells.set(key, value);
    }
    phone.addEventListener("measured", () => this.update());
    phone.addEventListener("line", () => this.update());
  }

  clear() {
    for (const cell of this.cells.values()) {
      write(cell, "–");
      cell.dataset.poor = "false";
      cell.dataset.marked = "false";
    }
  }

  #set(key, text, poor = false) {
    const cell = this.cells.get(key);
    write(cell, text);
    cell.dataset.poor = String(poor);
  }

  update() {
    const { latest } = this.phone.stats;
    const line = this.phone.line ?? {};
    this.#set("first_sound", ms(line.first_sound_ms));
    this.#set("round_trip", ms(latest.rtt_ms), latest.rtt_ms > 300);
    this.#set("jitter_buffer", ms(latest.jitter_buffer_ms), latest.jitter_buffer_ms > 200);
    this.#set("gaps", String(line.starvations ?? "–"), line.starvations > 0);
    // The mark is the key to the picture of the line: there only when the picture has one.
    this.cells.get("gaps").dataset.marked = String(line.starvations > 0);
    this.#set("longest_gap", line.starvations > 0 ? ms(line.longest_gap_ms) : "–", line.longest_gap_ms > 0 && line.starvations > 0);
    this.#set("queued", ms(line.queued_ms));
    const all = latest.lost + latest.received;
    this.#set("lost", all ? `${((100 * latest.lost) / all).toFixed(1)} %` : "–", latest.lost / all > 0.01);
    const { total_samples: total, rate_hz: rate } = latest;
    const part = latest.concealed / total;
    this.#set("concealed", rate ? ms((latest.concealed / rate) * 1000) : "–", part > 0.01 && total > JUDGED_S * rate);
    this.cells.get("concealed").dataset.marked = String(latest.concealed > 0);
    this.#set("codec", latest.codec || this.phone.codec || "–");
  }
}
