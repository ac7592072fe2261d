// What is heard and what is said, on this side: the element that plays, the meters, the microphone.

import { Capture } from "./capture.js";
import { Levels } from "./levels.js";
import { closeMicrophone, openMicrophone } from "./microphone.js";

const LONGEST_CARD_MS = 200;

export class Sound {
  /** `player` is the audio element. */
  constructor(player) {
    this.player = player;
    this.context = null;
    this.levels = null;
    this.microphone = null;
    this.capture = null;
    this.stream = null;
  }

  /** Called from a click, or browsers keep it silent. */
  wake() {
    this.context ??= new AudioContext();
    this.context.resume().catch(() => {});
    this.levels ??= new Levels(this.context);
  }

  /** The far end's sound has come. */
  async hear(stream) {
    this.stream = stream;
    this.player.srcObject = stream;
    this.levels.hear(stream);
    if (this.capture && this.capture.startMs === null) await this.capture.start(stream);
  }

  /** True where it plays; false where the browser wants a click first. */
  async play() {
    this.context?.resume().catch(() => {});
    try {
      await this.player.play();
      return true;
    } catch (error) {
      return error.name !== "NotAllowedError";
    }
  }

  /** Ask for the microphone; throws a Problem. Not ours yet: see `take`. */
  async ask() {
    return openMicrophone();
  }

  /** This is the microphone now, or null; `gone` is called when it ends by itself. */
  take(stream, gone = null) {
    closeMicrophone(this.microphone);
    this.microphone = stream;
    const track = this.track;
    if (track) track.onended = gone;
    this.levels?.listen(stream);
  }

  /** What goes out: the microphone, or else silence, so that the line is seen to be alive. */
  get outgoing() {
    if (this.track) return this.track;
    this.silence ??= this.context.createMediaStreamDestination();
    return this.silence.stream.getAudioTracks()[0];
  }

  get track() {
    return this.microphone?.getAudioTracks()[0] ?? null;
  }

  /** Let the microphone's sound through, or silence instead. */
  open(on) {
    if (this.track) this.track.enabled = on;
  }

  get peaks() {
    return this.levels?.read() ?? { voice: 0, microphone: 0 };
  }

  /** How long the sound card keeps sound. */
  get cardMs() {
    return Math.min(LONGEST_CARD_MS, (this.context?.outputLatency || 0) * 1000);
  }

  /** Keep what is received from now on, or from the next call on (a debugging aid). */
  async startCapture() {
    this.wake();
    this.capture?.stop();
    this.capture = new Capture(this.context);
    if (this.stream) await this.capture.start(this.stream);
  }

  stop() {
    this.capture?.stop();
    this.levels?.close();
    this.take(null);
    this.stream = null;
    this.player.srcObject = null;
    this.context?.suspend().catch(() => {});
  }
}
