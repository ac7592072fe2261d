// A voice of one's own: recorded here or from a file, sent to the engine that is chosen.

import { Capture, wav } from "./capture.js";
import { byId, show, write } from "./dom.js";
import { closeMicrophone, openMicrophone } from "./microphone.js";

const MOST_S = 30;
const LEAST_S = 3;

export class OwnVoice {
  /** `ready(voice, engineId)` is called when the server has taken it. */
  constructor(phone, voices, ready) {
    this.phone = phone;
    this.voices = voices;
    this.ready = ready;
    this.sound = null;
    this.record = byId("voice-record");
    this.file = byId("voice-file");
    this.send = byId("voice-send");
    this.record.addEventListener("click", () => (this.capture ? this.#stop() : this.#start()));
    this.file.addEventListener("change", () => this.#chosen());
    this.send.addEventListener("click", () => this.#upload());
  }

  #say(text, grave = false) {
    const status = byId("voice-status");
    status.dataset.grave = String(grave);
    write(status, text);
  }

  #take(sound, name, words) {
    this.sound = sound;
    this.name = name;
    write(byId("voice-chosen"), words);
    this.send.disabled = sound === null;
  }

  #chosen() {
    const file = this.file.files?.[0];
    if (!file) return;
    const most = this.phone.server?.limits?.upload_bytes;
    if (most && file.size > most) {
      this.#take(null, "", "Nothing chosen yet.");
      this.#say(`The file is too large: at most ${(most / 1e6).toFixed(0)} MB. Cut it to the best fifteen seconds.`, true);
      return;
    }
    this.#say("");
    this.#take(file, file.name, file.name);
  }

  async #start() {
    this.#say("");
    try {
      this.stream = await openMicrophone();
    } catch (error) {
      this.#say(`${error.message} Choose a file instead, or allow the microphone and try again.`, true);
      return;
    }
    this.context = new AudioContext();
    this.capture = new Capture(this.context, { maxSeconds: MOST_S });
    const level = byId("voice-level");
    this.capture.onlevel = (samples) => {
      let most = 0;
      for (const sample of samples) most = Math.max(most, Math.abs(sample));
      level.value = Math.max(Math.sqrt(most), level.value * 0.97);
      write(byId("voice-chosen"), `Recording: ${this.capture.seconds.toFixed(0)} s`);
      if (this.capture.seconds >= MOST_S - 0.1) this.#stop();
    };
    await this.capture.start(this.stream);
    this.record.setAttribute("aria-pressed", "true");
    write(byId("voice-record-label"), "Stop recording");
    show(true, level);
  }

  #stop() {
    const { capture } = this;
    if (!capture) return;
    this.capture = null;
    capture.stop();
    closeMicrophone(this.stream);
    this.context.close();
    this.record.setAttribute("aria-pressed", "false");
    write(byId("voice-record-label"), "Record again");
    show(false, byId("voice-level"));
    const { samples, rate_hz: rate } = capture.taken();
    if (capture.seconds < LEAST_S) {
      this.#take(null, "", "Nothing chosen yet.");
      this.#say(`That was ${capture.seconds.toFixed(1)} s. Speak for at least ${LEAST_S} s; five to fifteen are best.`, true);
      return;
    }
    const sound = new Blob([wav(samples, rate)], { type: "audio/wav" });
    this.#take(sound, "recorded.wav", `Recorded: ${capture.seconds.toFixed(1)} s`);
  }

  async #upload() {
    const engine = this.voices.current;
    if (!this.sound || !engine) return;
    const form = new FormData();
    form.append("audio", this.sound, this.name);
    form.append("engine", engine.id);
    const text = byId("voice-text").value.trim();
    if (text) form.append("ref_text", text);
    this.send.disabled = true;
    this.#say("Sending the voice …");
    try {
      const answer = await fetch("/voices", {
        method: "POST",
        headers: { Authorization: `Bearer ${this.phone.token}` },
        body: form,
      });
      const body = await answer.json().catch(() => ({}));
      if (!answer.ok) {
        const { message = `The server answered ${answer.status}.`, remedy = "" } = body.error ?? {};
        this.#say([message, remedy].filter(Boolean).join(" "), true);
        return;
      }
      const { id, name, language = "" } = body.voice ?? body;
      this.ready({ id, name: name || "My voice", language }, engine.id);
      this.#say("This voice is chosen now; the next sentence is in it.");
    } catch {
      this.#say("The voice could not be sent. See whether the server is still running, then try again.", true);
    } finally {
      this.send.disabled = this.sound === null;
    }
  }
}
