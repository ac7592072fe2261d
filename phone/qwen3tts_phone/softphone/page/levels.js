// The loudness of both signals, for the picture of the line.

/** Peaks of a stream since they were read last, 0 to 1. */
class Meter {
  constructor(context, stream) {
    this.analyser = context.createAnalyser();
    this.analyser.fftSize = 2048;
    this.samples = new Float32Array(this.analyser.fftSize);
    this.source = context.createMediaStreamSource(stream);
    this.source.connect(this.analyser);
  }

  peak() {
    this.analyser.getFloatTimeDomainData(this.samples);
    let most = 0;
    for (const sample of this.samples) {
      const size = sample < 0 ? -sample : sample;
      if (size > most) most = size;
    }
    return Math.min(1, most);
  }

  close() {
    this.source.disconnect();
  }
}

export class Levels {
  constructor(context) {
    this.context = context;
    this.voice = null;
    this.microphone = null;
  }

  hear(stream) {
    this.voice?.close();
    this.voice = stream ? new Meter(this.context, stream) : null;
  }

  listen(stream) {
    this.microphone?.close();
    this.microphone = stream ? new Meter(this.context, stream) : null;
  }

  read() {
    return { voice: this.voice?.peak() ?? 0, microphone: this.microphone?.peak() ?? 0 };
  }

  close() {
    this.hear(null);
    this.listen(null);
  }
}
