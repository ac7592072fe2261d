// The one place where problems are told: what happened, what to do, and a button that does it.

import { icon, make } from "./dom.js";

const GRAVE = new Set(["network_lost", "server_away", "server_lost", "token_wrong", "no_webrtc", "answer_unusable", "no_answer", "session_expired"]);

export class Notice {
  /** `actions(problem)` gives [[label, function], ...] for it. */
  constructor(element, actions) {
    this.element = element;
    this.actions = actions;
    this.code = null;
  }

  show(why) {
    if (this.code === why.code && this.text === why.message) return;
    this.code = why.code;
    this.text = why.message;
    this.element.dataset.code = why.code;
    this.element.dataset.grave = String(why.fatal || GRAVE.has(why.code));
    const actions = make("div", { className: "notice-actions" });
    for (const [label, act] of this.actions(why)) {
      const button = make("button", { type: "button", className: "button small", textContent: label });
      button.addEventListener("click", act);
      actions.append(button);
    }
    const close = make("button", { type: "button", className: "notice-close", "aria-label": "Close this message" }, icon("close"));
    close.addEventListener("click", () => this.clear());
    const body = make(
      "div",
      {},
      make("p", { className: "notice-text", textContent: why.message }),
      make("p", { className: "notice-remedy", textContent: why.remedy ?? "" }),
      actions,
    );
    this.element.replaceChildren(icon("caution"), body, close);
  }

  /** Take it away; with codes, only where it shows one of them. */
  clear(codes = null) {
    if (codes && !codes.includes(this.code)) return;
    this.code = this.text = null;
    delete this.element.dataset.code;
    this.element.replaceChildren();
  }
}
