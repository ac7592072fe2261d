// The recording of the last call: fetched with the token, handed to the browser as a file.

import { byId, clockText, make, show, write } from "./dom.js";
import { problem } from "./problems.js";

export class Recording {
  constructor(phone, told) {
    this.phone = phone;
    this.told = told;
    this.id = null;
    phone.addEventListener("recording", ({ detail }) => {
      this.id = detail.id;
      write(byId("download-label"), `Download the recording (${clockText(detail.seconds ?? 0)})`);
      this.update();
    });
    phone.addEventListener("change", () => this.update());
    byId("download").addEventListener("click", () => this.#fetch());
  }

  update() {
    if (this.phone.state.name === "preparing") this.id = null;
    show(this.id !== null && !this.phone.state.busy, byId("after"));
  }

  async #fetch() {
    const button = byId("download");
    button.disabled = true;
    try {
      const answer = await fetch(`/recordings/${encodeURIComponent(this.id)}`, {
        headers: { Authorization: `Bearer ${this.phone.token}` },
      });
      if (!answer.ok) {
        const body = await answer.json().catch(() => ({}));
        throw new Error(body.error?.message ?? `status ${answer.status}`);
      }
      const address = URL.createObjectURL(await answer.blob());
      const link = make("a", { href: address, download: `call-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}.wav` });
      document.body.append(link);
      link.click();
      link.remove();
      setTimeout(() => URL.revokeObjectURL(address), 60000);
    } catch (error) {
      this.told(problem("recording_failed", error.message));
    } finally {
      button.disabled = false;
    }
  }
}
