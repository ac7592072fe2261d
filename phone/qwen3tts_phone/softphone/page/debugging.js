// window.softphone: how the call stands, for tests and for whoever looks into a bad line.

import { base64 } from "./capture.js";

export function debugging(phone) {
  return {
    get state() {
      return phone.state.name;
    },
    get connection() {
      return phone.connection;
    },
    get kind() {
      return phone.kind;
    },
    get session() {
      return phone.socket?.session ?? null;
    },
    get callId() {
      return phone.callId;
    },
    captions: () => phone.captions.plain(),
    clock: () => ({ offset_ms: phone.clock.offsetMs, uncertainty_ms: phone.clock.uncertaintyMs }),
    startCapture: () => phone.sound.startCapture(),
    capture: async () => phone.sound.capture?.taken() ?? null,
    async captureBase64() {
      const taken = phone.sound.capture?.taken();
      if (!taken) return null;
      return { ...taken, samples: base64(taken.samples.buffer) };
    },
    async stats() {
      const raw = [];
      (await phone.peer?.stats())?.forEach((entry) => raw.push(entry));
      const levels = phone.sound.peaks;
      const line = phone.line ?? {};
      return {
        ...phone.stats.latest,
        level_voice: levels.voice,
        level_microphone: levels.microphone,
        first_sound_ms: line.first_sound_ms ?? null,
        starvations: line.starvations ?? null,
        longest_gap_ms: line.longest_gap_ms ?? null,
        queued_ms: line.queued_ms ?? null,
        raw,
      };
    },
  };
}
