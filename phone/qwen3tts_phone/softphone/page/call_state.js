// How a call stands: the states, and the moves between them as a table.

const MOVES = {
  idle: { prepare: "preparing" },
  ended: { prepare: "preparing" },
  preparing: { offer: "connecting", end: "idle" },
  connecting: { connecting: "connecting", ringing: "ringing", up: "up", lost: "lost", end: "ended" },
  ringing: { connecting: "ringing", ringing: "ringing", up: "up", lost: "lost", end: "ended" },
  up: { connecting: "up", ringing: "up", up: "up", lost: "lost", end: "ended" },
  lost: { connecting: "lost", ringing: "ringing", up: "up", lost: "lost", end: "ended" },
};

export class CallState {
  constructor() {
    this.name = "idle";
  }

  /** Whether there is a call, or one is being made. */
  get busy() {
    return this.name !== "idle" && this.name !== "ended";
  }

  can(move) {
    return move in MOVES[this.name];
  }

  /** The next state. A move that the table does not have is a mistake of the program. */
  go(move) {
    const next = MOVES[this.name][move];
    if (next === undefined) throw new Error(`a call that is ${this.name} cannot ${move}`);
    this.name = next;
    return next;
  }
}
