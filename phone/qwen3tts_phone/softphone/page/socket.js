// The WebSocket to the server: hello, answers, the server's clock, and coming back after a loss.

import { now } from "./dom.js";
import { ServerClock } from "./server_clock.js";

const PROTOCOL = "qwen3tts.softphone.v1";
const HELLO_MS = 6000;
const GOODBYE = 1000;
const COMING_BACK = 4000;
const TAKEN_OVER = 4409;
const SESSION_OVER = 4410;
const PING_MS = 2000;
const FIRST_PING_MS = 250;
const DEAD_MS = 7000;
const WAITS_MS = [200, 500, 1000, 2000, 4000];

/** Events: "welcome" (hello), "away" (lost, will be tried again), "refused" (will not be), "message". */
export class Socket extends EventTarget {
  constructor(token) {
    super();
    this.token = token;
    this.clock = new ServerClock();
    this.session = null;
    this.state = "opening";
    this.failures = 0;
    this.closed = false;
    this.refusal = null;
    window.addEventListener("online", () => this.#hurry());
  }

  open() {
    if (this.closed || this.socket) return;
    clearTimeout(this.retry);
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}/ws`, PROTOCOL);
    this.socket = socket;
    this.refusal = null;
    this.helloDue = setTimeout(() => this.#lost(socket), HELLO_MS);
    socket.onopen = () => {
      const resume = this.session;
      this.#write({ type: "hello", token: this.token, ...(resume ? { resume } : {}) });
    };
    socket.onmessage = (event) => this.#read(socket, event.data);
    socket.onclose = ({ code }) => {
      if (code === SESSION_OVER) this.session = null;
      if (code === TAKEN_OVER) this.refusal ??= { code: "taken_over" };
      this.#lost(socket);
    };
  }

  /** For good. */
  close() {
    this.closed = true;
    this.state = "refused";
    clearTimeout(this.retry);
    this.#drop(GOODBYE);
  }

  /** Write a message; false where there is nobody to read it. */
  send(type, fields = {}) {
    if (this.state !== "open") return false;
    return this.#write({ type, ...fields });
  }

  /** Try again now instead of after the wait. */
  #hurry() {
    if (this.closed || this.socket) return;
    this.failures = 0;
    this.open();
  }

  retryNow() {
    this.#hurry();
  }

  #write(message) {
    const socket = this.socket;
    if (!socket || socket.readyState !== WebSocket.OPEN) return false;
    socket.send(JSON.stringify(message));
    return true;
  }

  #read(socket, data) {
    if (socket !== this.socket) return;
    let message;
    try {
      message = JSON.parse(data);
    } catch {
      return;
    }
    if (!message || typeof message.type !== "string") return;
    this.seenAt = now();
    if (message.type === "hello") {
      clearTimeout(this.helloDue);
      this.failures = 0;
      this.state = "open";
      const before = this.session;
      this.session = message.session;
      this.clock = new ServerClock();
      this.#ping(FIRST_PING_MS, 6);
      this.#tell("welcome", { ...message, resumed: Boolean(before) && message.resumed === true, again: Boolean(before) });
    } else if (message.type === "pong") {
      this.clock.answered(message.time, message.server_time, now());
    } else {
      if (message.type === "error" && message.fatal) this.refusal = message;
      this.#tell("message", message);
    }
  }

  #ping(wait, quick) {
    clearTimeout(this.pinging);
    this.pinging = setTimeout(() => {
      if (this.state !== "open") return;
      if (now() - this.seenAt > DEAD_MS) {
        this.#lost(this.socket);
        return;
      }
      this.#write({ type: "ping", time: now() });
      this.#ping(quick > 0 ? FIRST_PING_MS : PING_MS, quick - 1);
    }, wait);
  }

  /** 1000 is a goodbye; with any other code the server keeps the session for a while. */
  #drop(code = COMING_BACK) {
    clearTimeout(this.helloDue);
    clearTimeout(this.pinging);
    const socket = this.socket;
    this.socket = null;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close(code);
  }

  #lost(socket) {
    if (socket !== this.socket || this.closed) return;
    this.#drop();
    if (this.refusal) {
      this.closed = true;
      this.state = "refused";
      this.#tell("refused", this.refusal);
      return;
    }
    this.state = "away";
    const wait = WAITS_MS[Math.min(this.failures, WAITS_MS.length - 1)];
    this.failures += 1;
    this.#tell("away", { failures: this.failures });
    this.retry = setTimeout(() => this.open(), wait);
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
