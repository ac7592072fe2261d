// The telephone: dial an address, and listen in to calls that are under way.

import { byId, clockText, icon, make, show, write } from "./dom.js";

const STATE = { up: "in a call", ringing: "ringing", connecting: "connecting", held: "on hold", ended: "over" };

export class Gateway {
  /** `place(kind, fields)` makes a call. */
  constructor(phone, place) {
    this.phone = phone;
    this.place = place;
    this.rows = new Map();
    byId("dial-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const uri = byId("dial-to").value.trim();
      if (uri && !phone.state.busy) place("dial", { uri });
    });
    phone.addEventListener("calls", () => this.update());
    phone.addEventListener("change", () => this.update());
  }

  update() {
    const sip = this.phone.server?.sip ?? {};
    show((sip.dial === true || sip.listen === true) && !this.phone.state.busy, byId("gateway"));
    show(sip.dial === true, byId("dial-form"));
    show(sip.listen === true, byId("running"));
    const accounts = sip.accounts ?? [];
    write(byId("accounts"), accounts.length ? `Calls go out by ${accounts.join(", ")}.` : "");
    const { calls } = this.phone;
    show(calls.length === 0, byId("calls-empty"));
    const list = byId("calls");
    const alive = new Set(calls.map(({ id }) => id));
    for (const [id, row] of this.rows) {
      if (alive.has(id)) continue;
      row.element.remove();
      this.rows.delete(id);
    }
    for (const call of calls) this.#row(list, call);
  }

  #row(list, call) {
    let row = this.rows.get(call.id);
    const name = call.remote || "unknown";
    if (!row) {
      const button = make("button", { type: "button", className: "button small" }, icon("ear"), "Listen in");
      button.setAttribute("aria-label", `Listen in: ${name}`);
      button.addEventListener("click", () => {
        if (!this.phone.state.busy) this.place("listen", { call_id: call.id, remote: name });
      });
      const remote = make("span", { className: "call-remote", textContent: name, title: name });
      const detail = make("span", { className: "call-detail" });
      const element = make("li", { "data-id": call.id }, remote, button, detail);
      list.append(element);
      row = { element, detail, button };
      this.rows.set(call.id, row);
    }
    const way = call.direction === "outbound" || call.direction === "out" ? "called by us" : "calling us";
    const parts = [way, STATE[call.state] ?? call.state, clockText((call.since_ms ?? 0) / 1000)];
    if (call.speaking) parts.push("speaking");
    write(row.detail, parts.filter(Boolean).join(" · "));
  }
}
