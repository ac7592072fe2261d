// The connection that carries the sound: one audio line, offered by us, with all candidates in it.

import { problem } from "./problems.js";

const GATHERING_MS = 3000;

export class Peer extends EventTarget {
  /** `iceServers` are those of the server's hello. */
  constructor(iceServers) {
    super();
    this.connection = new RTCPeerConnection({ iceServers, bundlePolicy: "max-bundle" });
    this.stream = new MediaStream();
    this.connection.ontrack = ({ track }) => {
      this.stream.addTrack(track);
      this.dispatchEvent(new CustomEvent("track", { detail: track }));
    };
    this.connection.onconnectionstatechange = () => {
      this.dispatchEvent(new CustomEvent("state", { detail: this.connection.connectionState }));
    };
  }

  /** The offer as SDP. The line is sendrecv also without a microphone: one can be plugged in later. */
  async offer(track, codec) {
    const line = this.connection.addTransceiver(track, { direction: "sendrecv" });
    this.sender = line.sender;
    if (codec !== "auto") this.#prefer(line, codec);
    await this.connection.setLocalDescription(await this.connection.createOffer());
    await this.#gathered();
    return this.connection.localDescription.sdp;
  }

  #prefer(line, codec) {
    const all = RTCRtpReceiver.getCapabilities?.("audio")?.codecs ?? [];
    const name = (entry) => entry.mimeType.split("/")[1].toLowerCase();
    const wanted = all.filter((entry) => name(entry) === codec.toLowerCase());
    if (all.length && !wanted.length) throw problem("no_codec");
    const keys = all.filter((entry) => name(entry) === "telephone-event");
    if (wanted.length && line.setCodecPreferences) line.setCodecPreferences([...wanted, ...keys]);
  }

  async #gathered() {
    const connection = this.connection;
    if (connection.iceGatheringState === "complete") return;
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, GATHERING_MS);
      connection.onicegatheringstatechange = () => {
        if (connection.iceGatheringState !== "complete") return;
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async accept(sdp) {
    try {
      await this.connection.setRemoteDescription({ type: "answer", sdp });
    } catch (error) {
      throw problem("answer_unusable", error.message);
    }
  }

  /** Another track goes out; needs no new offer. */
  async use(track) {
    await this.sender?.replaceTrack(track);
  }

  async stats() {
    return this.connection.signalingState === "closed" ? new Map() : this.connection.getStats();
  }

  close() {
    this.connection.ontrack = null;
    this.connection.onconnectionstatechange = null;
    this.connection.onicegatheringstatechange = null;
    this.connection.close();
  }
}
