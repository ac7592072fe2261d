// The box that speaks while one types.

import { byId, now, show, write } from "./dom.js";
import { choices } from "./storage.js";

const LOOK_MS = 100;

export class TypingView {
  constructor(phone) {
    this.phone = phone;
    this.box = byId("type");
    this.pauseEnds = byId("pause-ends");
    this.pauseEnds.checked = choices.get("pause-ends") !== "no";
    this.pauseEnds.addEventListener("change", () => choices.set("pause-ends", this.pauseEnds.checked ? null : "no"));
    this.forVoice = byId("type-for-voice");
    this.forVoice.checked = choices.get("type-for-voice") === "yes";
    this.forVoice.addEventListener("change", () => {
      choices.set("type-for-voice", this.forVoice.checked ? "yes" : null);
      this.update();
    });
    phone.addEventListener("change", () => this.update());
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

  /** With an agent on the call, what is typed is the caller's, unless it is to be the voice's. */
  update() {
    const agent = this.phone.server?.agent === true && this.phone.kind === "call";
    const caller = agent && !this.forVoice.checked;
    show(agent, byId("type-for-voice-field"));
    if (caller === this.asCaller) return;
    this.asCaller = caller;
    this.phone.typing.speakAs(caller);
    const name = caller ? "Type what you say" : "Type to speak";
    write(byId("type-label"), name);
    this.box.placeholder = name;
    byId("type-send").setAttribute("aria-label", caller ? "Send it" : "Say it");
    write(byId("typing-how"), caller ? "The agent gets it as if you had said it." : "Each word is spoken as soon as it is complete.");
    write(byId("typing-enter"), caller ? "sends it" : "ends the sentence");
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
