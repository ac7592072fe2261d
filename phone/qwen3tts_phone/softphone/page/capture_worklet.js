// Hands blocks of samples to the page, unchanged, with the time of the first.

class Capture extends AudioWorkletProcessor {
  process(inputs) {
    const block = inputs[0]?.[0];
    if (block) this.port.postMessage({ time: currentTime, samples: block.slice() });
    return true;
  }
}

registerProcessor("capture", Capture);
