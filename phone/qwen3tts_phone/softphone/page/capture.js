// Samples of a stream as the page receives them: for recording a reference voice, and for tests.

const loaded = new WeakMap();

async function load(context) {
  if (!loaded.has(context)) loaded.set(context, context.audioWorklet.addModule("/static/capture_worklet.js"));
  await loaded.get(context);
}

export class Capture {
  constructor(context, { maxSeconds = 600 } = {}) {
    this.context = context;
    this.most = maxSeconds * context.sampleRate;
    this.blocks = [];
    this.count = 0;
    this.startMs = null;
    this.onlevel = null;
  }

  /** Begin with the stream's next sample. */
  async start(stream) {
    await load(this.context);
    this.source = this.context.createMediaStreamSource(stream);
    this.node = new AudioWorkletNode(this.context, "capture", { numberOfOutputs: 0 });
    this.node.port.onmessage = ({ data }) => this.#take(data);
    this.source.connect(this.node);
  }

  #take({ time, samples }) {
    if (this.startMs === null) {
      // currentTime and performance.now() read together tie the two clocks.
      const tie = performance.now() - this.context.currentTime * 1000;
      this.startMs = performance.timeOrigin + tie + time * 1000;
    }
    if (this.count >= this.most) return;
    this.blocks.push(samples);
    this.count += samples.length;
    this.onlevel?.(samples);
  }

  get seconds() {
    return this.count / this.context.sampleRate;
  }

  /** All samples so far: {rate_hz, start_ms, samples}. */
  taken() {
    const samples = new Float32Array(this.count);
    let at = 0;
    for (const block of this.blocks) {
      samples.set(block, at);
      at += block.length;
    }
    return { rate_hz: this.context.sampleRate, start_ms: this.startMs, samples };
  }

  stop() {
    this.source?.disconnect();
    if (this.node) this.node.port.onmessage = null;
    this.node?.disconnect();
    this.source = this.node = null;
  }
}

/** Float samples as the bytes of a WAV file, 16 bits, one channel. */
export function wav(samples, rateHz) {
  const bytes = new DataView(new ArrayBuffer(44 + samples.length * 2));
  const ascii = (at, text) => [...text].forEach((char, i) => bytes.setUint8(at + i, char.charCodeAt(0)));
  ascii(0, "RIFF");
  bytes.setUint32(4, 36 + samples.length * 2, true);
  ascii(8, "WAVEfmt ");
  bytes.setUint32(16, 16, true);
  bytes.setUint16(20, 1, true);
  bytes.setUint16(22, 1, true);
  bytes.setUint32(24, rateHz, true);
  bytes.setUint32(28, rateHz * 2, true);
  bytes.setUint16(32, 2, true);
  bytes.setUint16(34, 16, true);
  ascii(36, "data");
  bytes.setUint32(40, samples.length * 2, true);
  for (let i = 0; i < samples.length; i++) {
    const sample = Math.max(-1, Math.min(1, samples[i]));
    bytes.setInt16(44 + i * 2, Math.round(sample * 32767), true);
  }
  return bytes.buffer;
}

/** Bytes as base64, for programs that drive the browser. */
export function base64(buffer) {
  const bytes = new Uint8Array(buffer);
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) {
    text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  }
  return btoa(text);
}
