// Put into every page of the tests before its own scripts: keeps the page's WebRTC connections, and takes the
// sound that they bring as the browser plays it (behind its jitter buffer), without the page's help.
(() => {
  const peers = [];
  const brought = []; // [connection, track] in the order in which they came
  const pieces = [];
  let reading = null;
  const Real = window.RTCPeerConnection;
  if (!Real) return;
  window.RTCPeerConnection = class RTCPeerConnection extends Real {
    constructor(configuration, ...rest) {
      super(configuration, ...rest);
      peers.push(this);
      this.addEventListener("track", ({ track }) => { if (track.kind === "audio") brought.push([this, track]); });
      for (const server of configuration?.iceServers ?? []) {
        console.error(`test: the page asks an outside server: ${[server.urls].flat().join(" ")}`);
      }
    }
  };

  function remoteTrack() {
    return brought.findLast(([peer]) => peer.connectionState !== "closed")?.[1];
  }

  async function read(track) {
    const reader = new MediaStreamTrackProcessor({ track }).readable.getReader();
    const mine = { reader };
    reading = mine;
    while (reading === mine) {
      const { done, value } = await reader.read();
      if (done) break;
      const samples = new Float32Array(value.numberOfFrames);
      value.copyTo(samples, { planeIndex: 0, format: "f32-planar" });
      pieces.push({ at: performance.timeOrigin + performance.now(), rate: value.sampleRate, samples });
      value.close();
    }
  }

  function loudFrom(samples, level) {
    return samples.findIndex((each) => Math.abs(each) >= level);
  }

  window.testEars = {
    peers,
    start() {
      this.stop();
      pieces.length = 0;
      const track = remoteTrack();
      if (!track) return false;
      read(track);
      return true;
    },
    stop() {
      if (reading) reading.reader.cancel();
      reading = null;
    },
    // Seconds of sound above the level (0 to 1), in blocks as they came (10 ms).
    loudS(level) {
      return pieces.reduce((sum, { samples, rate }) => sum + (loudFrom(samples, level) < 0 ? 0 : samples.length / rate), 0);
    },
    // Milliseconds (Unix) at which the first sample above the level could be heard; null: none yet.
    firstMs(level) {
      for (const { at, rate, samples } of pieces) {
        const index = loudFrom(samples, level);
        if (index >= 0) return at - ((samples.length - index) / rate) * 1000;
      }
      return null;
    },
    // Milliseconds (Unix) of the last block with sound above the level; null: none.
    lastMs(level) {
      for (let place = pieces.length - 1; place >= 0; place--) {
        if (loudFrom(pieces[place].samples, level) >= 0) return pieces[place].at;
      }
      return null;
    },
    // All that was heard since start(): 16-bit samples in base64, and of each block when it came, its rate and length.
    taken() {
      const length = pieces.reduce((sum, { samples }) => sum + samples.length, 0);
      const whole = new Int16Array(length);
      let place = 0;
      for (const { samples } of pieces) {
        for (const each of samples) whole[place++] = Math.max(-32768, Math.min(32767, Math.round(each * 32767)));
      }
      const bytes = new Uint8Array(whole.buffer);
      let text = "";
      for (let from = 0; from < bytes.length; from += 32768) {
        text += String.fromCharCode(...bytes.subarray(from, from + 32768));
      }
      return { base64: btoa(text), blocks: pieces.map(({ at, rate, samples }) => [at, rate, samples.length]) };
    },
    async stats() {
      const all = [];
      for (const peer of peers) {
        if (peer.connectionState === "closed") continue;
        for (const each of (await peer.getStats()).values()) all.push(each);
      }
      return all;
    },
  };
})();
