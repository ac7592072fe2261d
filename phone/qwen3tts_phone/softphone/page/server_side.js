// The softphone's half towards the server: the token, the connection, what the server has to offer.

import { problem, serverProblem } from "./problems.js";
import { Socket } from "./socket.js";
import { tab } from "./storage.js";

/** A softphone is one of these. It has to have `greeted(hello)`, `away(failures)`, `refused(why)` and
 *  `told(message)`. Events: "change" (how it stands), "problem" (a Problem; null: it is over), "welcome". */
export class ServerSide extends EventTarget {
  constructor() {
    super();
    this.server = null;
    this.calls = [];
    this.token = null;
    this.socket = null;
    this.refusedBy = null;
  }

  connect(token) {
    this.socket?.close();
    this.token = token;
    this.refusedBy = null;
    this.socket = null;
    if (!token) {
      this.complain(problem("token_missing"));
      return;
    }
    const socket = new Socket(token);
    this.socket = socket;
    socket.addEventListener("welcome", ({ detail }) => this.#welcome(detail));
    socket.addEventListener("message", ({ detail }) => this.told(detail));
    socket.addEventListener("away", ({ detail }) => this.away(detail.failures));
    socket.addEventListener("refused", ({ detail }) => this.#refused(detail));
    socket.open();
    this.tell("change");
  }

  get connection() {
    return this.socket?.state ?? "refused";
  }

  get clock() {
    return this.socket.clock;
  }

  #welcome(hello) {
    this.server = hello;
    this.calls = hello.calls ?? [];
    this.tell("welcome", hello);
    this.complain(null, ["server_away", "server_lost"]);
    this.greeted(hello);
    this.tell("calls");
    this.tell("change");
  }

  #refused(message) {
    const aboutToken = /token|access/i.test(message.code ?? "");
    const restarted = aboutToken && this.server !== null;
    const why = restarted ? problem("restarted") : message.message ? serverProblem(message) : problem(message.code);
    why.fatal = true;
    if (aboutToken) {
      tab.set("token", null);
      why.code = "token_wrong";
      if (!why.remedy) why.remedy = problem("token_wrong").remedy;
    }
    this.refusedBy = why;
    this.refused(why);
    this.complain(why);
    this.tell("change");
  }

  /** Why nothing can be asked of the server now, or null. */
  get unreachable() {
    if (this.connection === "open") return null;
    this.socket?.retryNow();
    return this.refusedBy ?? problem(this.token ? "server_away" : "token_missing");
  }

  /** Something is wrong; null: it is not any more, with codes only if it was one of them. */
  complain(why, onlyCodes = null) {
    this.tell("problem", { why, onlyCodes });
  }

  tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
