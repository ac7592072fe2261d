// The twelve keys: by pointer, and by the keyboard while the pad has the focus.

import { byId, make } from "./dom.js";

const KEYS = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "*", "0", "#"];
const NAMES = { "*": "star *", "#": "hash #" };
const IDS = { "*": "star", "#": "hash" };
const SHOWN = 24;

export class Keypad {
  constructor(phone) {
    this.phone = phone;
    this.pad = byId("keypad");
    this.toggle = byId("keypad-toggle");
    this.pressed = byId("keypad-pressed");
    for (const digit of KEYS) {
      const button = make("button", {
        type: "button",
        className: "key",
        id: `key-${IDS[digit] ?? digit}`,
        textContent: digit,
        "data-digit": digit,
        "aria-label": NAMES[digit],
      });
      button.addEventListener("click", () => this.press(digit));
      byId("keys").append(button);
    }
    this.toggle.addEventListener("click", () => this.show(this.pad.hidden));
    this.pad.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
      if (KEYS.includes(event.key)) {
        event.preventDefault();
        this.press(event.key);
        byId(`key-${IDS[event.key] ?? event.key}`).focus();
      } else if (event.key === "Escape") {
        event.stopPropagation();
        this.show(false);
        this.toggle.focus();
      }
    });
  }

  show(on) {
    this.pad.hidden = !on;
    this.toggle.setAttribute("aria-expanded", String(on));
    if (on) {
      byId("key-1").focus({ preventScroll: true });
      this.pad.scrollIntoView({ block: "nearest" });
    } else {
      this.pressed.textContent = "";
    }
  }

  press(digit) {
    this.phone.key(digit);
    this.pressed.textContent = (this.pressed.textContent + digit).slice(-SHOWN);
  }
}
