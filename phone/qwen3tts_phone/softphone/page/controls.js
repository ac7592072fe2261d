// The buttons of the call, and how it stands in words.

import { byId, clockText, now, show, write } from "./dom.js";
import { sentence } from "./problems.js";

const LINK = {
  opening: "Connecting",
  open: "Connected",
  away: "Server away",
  refused: "Not connected",
};

const STATUS = {
  idle: "Ready",
  preparing: "Getting ready",
  connecting: "Connecting",
  ringing: "Ringing",
  up: "In a call",
  lost: "No sound at the moment",
  ended: "The call has ended",
};

function statusText(phone) {
  const { state, kind, connection } = phone;
  if (state.name === "idle" && connection !== "open") {
    return connection === "refused" ? "Not connected" : "Waiting for the server";
  }
  if (state.busy && connection === "away") return "Connection lost, trying to return";
  if (state.name === "up" && kind === "listen") {
    return phone.talking ? "Listening in, and you are heard" : "Listening in; nobody hears you";
  }
  if (state.name === "up" && phone.muted) return "In a call, muted";
  if (state.name === "preparing" && phone.asking) return "Waiting for the microphone: the browser asks for it";
  return STATUS[state.name];
}

/** What there is to say of a call that is over, or of one that could begin. */
function summary(phone) {
  if (phone.state.name !== "ended") return "";
  const { cause = "", remedy = "" } = phone.trouble ? {} : (phone.ending ?? {});
  const lasted = phone.endedAfter === null ? "" : `It lasted ${clockText(phone.endedAfter)}.`;
  return [sentence(cause), sentence(remedy), lasted].filter(Boolean).join(" ");
}

export class Controls {
  /** `place(kind)` makes a call. */
  constructor(phone, place) {
    this.phone = phone;
    byId("call").addEventListener("click", () => place("call"));
    byId("hang-up").addEventListener("click", () => phone.hangUp());
    byId("interrupt").addEventListener("click", () => phone.interrupt());
    byId("talk").addEventListener("click", () => phone.talk(!phone.talking));
    byId("mute").addEventListener("click", () => {
      if (phone.microphone) phone.mute(!phone.muted);
      else phone.useMicrophone();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && phone.state.busy && !event.defaultPrevented) phone.interrupt();
    });
    phone.addEventListener("change", () => this.update());
    phone.addEventListener("caller", () => this.#speaking());
    this.update();
  }

  update() {
    const { phone } = this;
    const { busy, name } = phone.state;
    const listening = phone.kind === "listen";
    const before = document.body.dataset.state;
    document.body.dataset.state = name;
    document.body.dataset.kind = phone.kind ?? "";
    byId("link").dataset.link = phone.connection;
    write(byId("link-text"), LINK[phone.connection]);
    write(byId("status"), statusText(phone));
    write(byId("summary"), summary(phone));
    show(!busy, byId("call"));
    show(busy, byId("hang-up"));
    show(busy && !listening, byId("mute"), byId("keypad-toggle"), byId("interrupt"), byId("typing"));
    show(busy && listening, byId("talk"));
    if (!busy || listening) show(false, byId("keypad"));
    if (!busy) byId("keypad-toggle").setAttribute("aria-expanded", "false");
    show(name !== "idle" && (busy || phone.captions.entries.length > 0), byId("captions-frame"));
    show(busy, byId("line"));
    const served = phone.server !== null;
    show(served && !(busy && listening), byId("voice-card"));
    show(served && !busy, byId("options-card"));
    document.body.dataset.served = served ? "yes" : "no";
    document.body.dataset.captions = phone.captions.entries.length ? "some" : "none";
    this.#microphone();
    write(byId("hang-up-label"), listening ? "Leave" : "Hang up");
    byId("talk").setAttribute("aria-pressed", String(phone.talking));
    // It may be pressed all the same, and then says what is missing.
    byId("call").dataset.shut = String(phone.connection !== "open");
    this.#chip("party", phone.kind === "call" ? "" : phone.party);
    this.#chip("codec-chip", busy ? phone.codec : "");
    show(busy && phone.recordingOn, byId("recording-chip"));
    this.tick();
    this.#focus(before, name);
  }

  #chip(id, text) {
    const chip = byId(id);
    write(chip, text);
    chip.title = text;
    show(text !== "", chip);
  }

  #microphone() {
    const { phone } = this;
    const button = byId("mute");
    const there = Boolean(phone.microphone);
    write(byId("mute-label"), there ? "Mute" : "Use the microphone");
    button.setAttribute("aria-pressed", String(there && phone.muted));
    byId("mute-icon").setAttribute("href", there && !phone.muted ? "#icon-microphone" : "#icon-muted");
    this.#speaking();
  }

  #speaking() {
    const on = this.phone.callerSpeaking && !this.phone.muted;
    byId("mute").classList.toggle("speaking", on && Boolean(this.phone.microphone));
    byId("talk").classList.toggle("speaking", on && this.phone.talking);
  }

  /** The focus goes where the next step is, where the element that had it is hidden: never onto a button,
   *  as a key pressed once more would make or end a call. */
  #focus(before, name) {
    if (before === name) return;
    const active = document.activeElement;
    if (active && active !== document.body && active.checkVisibility()) return;
    const { busy } = this.phone.state;
    const typing = busy && this.phone.kind !== "listen";
    // The box would open the keyboard of a touch screen; its form is next to it.
    const next = typing ? (matchMedia("(hover: hover)").matches ? "type" : "typing") : "controls";
    byId(next).focus({ preventScroll: true });
  }

  /** The clock of the call. */
  tick() {
    const { upSince, state } = this.phone;
    const timer = byId("timer");
    const running = upSince !== null && state.busy;
    show(running, timer);
    if (running) write(timer, clockText((now() - upSince) / 1000));
  }
}
