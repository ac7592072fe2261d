// The box that speaks while one types.

import { byId, now } from "./dom.js";
import { choices } from "./storage.js";

const LOOK_MS = 100;

export class TypingView {
  constructor(phone) {
    this.phone = phone;
    this.box = byId("type");
    this.pauseEnds = byId("pause-ends");
    this.pauseEnds.checked = choices.get("pause-ends") !== "no";
    this.pauseEnds.addEventListener("change", () => choices.set("pause-ends", this.pauseEnds.checked ? null : "no"));
    this.composing = false;
    this.box.addEventListener("compositionstart", () => (this.composing = true));
    this.box.addEventListener("compositionend", () => {
      this.composing = false;
      this.#typed();
    });
    this.box.addEventListener("input", () => this.#typed());
    this.box.addEventListener("keydown", (event) => this.#key(event));
    byId("typing").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#end();
      this.box.focus();
    });
  }

  #typed() {
    if (this.composing) return;
    const { value } = this.box;
    const rest = this.phone.typing.typed(value, now());
    if (rest !== value) this.box.value = rest;
    clearInterval(this.looking);
    this.looking = setInterval(() => this.#look(), LOOK_MS);
  }

  #key(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      this.#end();
    }
  }

  #end() {
    clearInterval(this.looking);
    this.phone.typing.end(this.box.value);
    this.box.value = "";
  }

  #look() {
    if (this.composing || !this.phone.state.busy) return;
    if (!this.pauseEnds.checked) return;
    if (this.phone.typing.paused(now())) this.#end();
  }

  clear() {
    clearInterval(this.looking);
    this.box.value = "";
  }
}
