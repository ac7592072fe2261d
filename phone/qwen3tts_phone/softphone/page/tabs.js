// Two tabs of one browser: each knows whether another is in a call.

const ASK_MS = 150;

export class Tabs extends EventTarget {
  /** `busy()` says whether this tab is in a call. Event: "end" when another tab asks us to end it. */
  constructor(busy) {
    super();
    this.channel = "BroadcastChannel" in window ? new BroadcastChannel("qwen3tts.softphone") : null;
    if (!this.channel) return;
    this.channel.onmessage = ({ data }) => {
      if (data?.ask === "busy" && busy()) this.channel.postMessage({ answer: "busy" });
      else if (data?.ask === "end" && busy()) this.dispatchEvent(new Event("end"));
      else if (data?.answer === "busy") this.answered?.(true);
    };
  }

  /** Whether another tab is in a call. */
  async otherBusy() {
    if (!this.channel) return false;
    const answer = new Promise((resolve) => {
      this.answered = resolve;
      setTimeout(() => resolve(false), ASK_MS);
    });
    this.channel.postMessage({ ask: "busy" });
    return answer;
  }

  endOthers() {
    this.channel?.postMessage({ ask: "end" });
  }
}
