// The softphone without its looks: one session with the server, at most one call in it.

import { CallState } from "./call_state.js";
import { Captions } from "./captions.js";
import { now } from "./dom.js";
import { LineStats } from "./line_stats.js";
import { closeMicrophone } from "./microphone.js";
import { Peer } from "./peer.js";
import { problem, serverProblem } from "./problems.js";
import { ServerSide } from "./server_side.js";
import { Sound } from "./sound.js";
import { tab } from "./storage.js";
import { Tabs } from "./tabs.js";
import { TypedWords } from "./typed_words.js";

const ANSWER_MS = 15000;
const STATS_MS = 250;
const REPORT_EVERY = 4;
const RESUME_MS = 8000;
const USUAL_BUFFER_MS = 40;
const LINE_NEWS = new Set(["utterance", "words", "heard", "spoken", "turn", "caller", "line"]);
const MICROPHONE = ["microphone_refused", "microphone_missing", "microphone_in_use", "microphone_gone", "no_secure_context"];

/** Events besides those of `ServerSide`: "captions", "line", "measured", "caller", "calls", "recording",
 *  "track". Views listen; nothing here touches the document but the element that plays. */
export class Softphone extends ServerSide {
  constructor(player) {
    super();
    this.sound = new Sound(player);
    this.state = new CallState();
    this.captions = new Captions();
    this.stats = new LineStats();
    this.tabs = new Tabs(() => this.state.busy);
    this.tabs.addEventListener("end", () => this.#end(problem("taken_over"), true));
    this.typing = new TypedWords((type, fields) => this.#sendTyped(type, fields));
    this.unsent = [];
    this.leftOne = false;
    this.reset();
  }

  /** As before a call. */
  reset() {
    this.kind = null;
    this.callId = null;
    this.codec = "";
    this.party = "";
    this.line = null;
    this.muted = false;
    this.talking = false;
    this.callerSpeaking = false;
    this.recordingOn = false;
    this.upSince = null;
    this.ending = null;
    this.trouble = null;
  }

  // --- the server ---

  /** The server's hello, the first one or after a break. */
  greeted(hello) {
    if (!hello.resumed) this.leftOne = false;
    clearTimeout(this.awayEnd);
    if (hello.again && this.state.busy && !(hello.resumed && hello.call_id)) {
      this.#end(problem(hello.resumed ? "network_lost" : "session_expired"));
    }
    if (!hello.again && tab.get("call")) {
      tab.set("call", null);
      this.complain(problem("reloaded"));
    }
  }

  away(failures) {
    // One short break is not worth a word.
    if (failures > 1 || this.server === null) this.complain(problem(this.state.busy ? "server_lost" : "server_away"));
    if (this.state.busy && failures === 1) {
      const wait = (this.server?.limits?.resume_ms ?? RESUME_MS) + 1000;
      clearTimeout(this.awayEnd);
      this.awayEnd = setTimeout(() => {
        if (this.state.busy) this.#end(problem("network_lost"));
      }, wait);
    }
    this.tell("change");
  }

  refused(why) {
    if (this.state.busy) this.#end(why);
  }

  // --- a call ---

  /** Make a call; `kind` is "call", "dial" or "listen", `fields` are what that message has besides the SDP. */
  async call(kind, fields, { evenIfOther = false } = {}) {
    if (!this.state.can("prepare")) return;
    this.complain(null);
    if (!window.RTCPeerConnection) return this.complain(problem("no_webrtc"));
    const unreachable = this.unreachable;
    if (unreachable) return this.complain(unreachable);
    this.reset();
    this.state.go("prepare");
    this.kind = kind;
    this.party = fields.uri ?? fields.remote ?? "";
    this.recordingOn = fields.record === true;
    this.captions.clear();
    this.typing.reset();
    this.unsent = [];
    this.stats.reset();
    this.tell("captions");
    this.tell("change");
    const mine = (this.attempt = Symbol("call"));
    const gone = () => this.attempt !== mine;
    this.sound.wake();
    if (evenIfOther) this.tabs.endOthers();
    else if (await this.tabs.otherBusy()) {
      if (!gone()) this.#end(problem("other_tab"));
      return;
    }
    if (kind !== "listen") await this.useMicrophone(gone);
    if (gone()) return;
    try {
      const { remote: _remote, codec = "auto", ...rest } = fields;
      const peer = (this.peer = new Peer(this.server?.ice_servers ?? []));
      peer.addEventListener("state", ({ detail }) => this.#peerState(peer, detail));
      peer.addEventListener("track", () => this.#track(peer));
      const sdp = await peer.offer(this.sound.outgoing, codec);
      if (gone()) return peer.close();
      if (!this.socket.send(kind, { sdp, codec, ...rest })) throw problem("server_away");
      tab.set("call", "1");
      this.#go("offer");
      for (const [type, typed] of this.unsent.splice(0)) this.socket.send(type, typed);
      this.answerDue = setTimeout(() => this.#end(problem("no_answer"), true), ANSWER_MS);
      this.polling = setInterval(() => this.#poll(), STATS_MS);
    } catch (error) {
      if (!gone()) this.#end(error.code ? error : problem("answer_unusable", error.message));
    }
  }

  /** Typed words; the server takes none before it was asked for the call. */
  #sendTyped(type, fields) {
    if (this.state.name === "preparing") this.unsent.push([type, fields]);
    else this.socket.send(type, fields);
  }

  get microphone() {
    return this.sound.microphone;
  }

  /** Whether the microphone's sound goes out. */
  get heard() {
    return !this.muted && (this.kind !== "listen" || this.talking);
  }

  /** Ask for the microphone; a call goes on without. True where there is one now. */
  async useMicrophone(gone = () => !this.state.busy) {
    let stream = null;
    this.asking = true;
    this.tell("change");
    try {
      stream = await this.sound.ask();
    } catch (error) {
      this.asking = false;
      if (!gone()) this.complain(error.code ? error : problem("microphone_missing", error.message));
      this.tell("change");
      return false;
    }
    this.asking = false;
    if (gone()) {
      closeMicrophone(stream);
      return false;
    }
    this.sound.take(stream, () => this.#microphoneGone(stream));
    this.sound.open(this.heard);
    await this.peer?.use(this.sound.outgoing);
    this.complain(null, MICROPHONE);
    this.tell("change");
    return true;
  }

  #microphoneGone(stream) {
    if (stream !== this.microphone) return;
    this.sound.take(null);
    this.peer?.use(this.sound.outgoing);
    this.complain(problem("microphone_gone"));
    this.tell("change");
  }

  hangUp() {
    if (!this.state.busy) return;
    this.#end(null, true);
  }

  mute(on) {
    this.muted = on;
    this.sound.open(this.heard);
    this.socket.send("mute", { on });
    this.tell("change");
  }

  /** In listening: put the microphone into the call, or take it out. */
  async talk(on) {
    if (on && !this.microphone && !(await this.useMicrophone())) return;
    this.talking = on;
    this.sound.open(this.heard);
    this.socket.send("talk", { on });
    this.tell("change");
  }

  key(digit) {
    this.socket.send("key", { digit });
  }

  interrupt() {
    if (this.kind === "listen") return;
    this.typing.drop();
    this.unsent = [];
    this.socket?.send("interrupt");
  }

  setVoice(choice) {
    if (this.state.busy) this.socket.send("voice", choice);
  }

  // --- what the server says ---

  told(message) {
    if (this.#late(message)) return undefined;
    const earTime = (time) => this.clock.here(time) + this.earDelayMs;
    if (this.captions.take(message, earTime)) {
      if (message.type !== "heard") this.tell("captions");
      return undefined;
    }
    switch (message.type) {
      case "answer":
        return this.#answer(message);
      case "state":
        return this.#serverState(message);
      case "caller":
        this.callerSpeaking = message.speaking === true;
        return this.tell("caller");
      case "line":
        this.line = message;
        return this.tell("line");
      case "calls":
        this.calls = message.calls ?? [];
        return this.tell("calls");
      case "recording":
        return this.tell("recording", message);
      case "error":
        return this.#error(message);
      default:
        return undefined;
    }
  }

  /** Whether a message is about the call before this one, which we left without waiting for its end. */
  #late(message) {
    if (!this.leftOne) return false;
    if (message.type === "answer") this.leftOne = false;
    if (message.type !== "state") return this.leftOne && this.state.busy && LINE_NEWS.has(message.type);
    if (message.state === "ended") this.leftOne = false;
    return true;
  }

  /** From what the server says is heard to this ear. Of a call of its own the server takes the way here and
   *  the jitter buffer off itself, by our reports; of a call that others hear it tells what is at their ear. */
  get earDelayMs() {
    if (this.kind === "call") return this.sound.cardMs;
    const { jitter_buffer_ms: buffer, rtt_ms: way } = this.stats.latest;
    return (buffer ?? USUAL_BUFFER_MS) + (way ?? 0) / 2 + this.sound.cardMs;
  }

  async #answer({ sdp, call_id: callId, codec }) {
    clearTimeout(this.answerDue);
    if (!this.state.busy || !this.peer) return;
    this.callId = callId;
    this.codec = codec;
    try {
      await this.peer.accept(sdp);
    } catch (error) {
      this.#end(error, true);
    }
    this.tell("change");
  }

  #serverState({ state, cause, remedy, code }) {
    if (!this.state.busy) return;
    clearTimeout(this.answerDue);
    if (state === "ended") {
      const why = code ? serverProblem({ code, message: cause, remedy }) : null;
      this.ending = { cause: cause ?? "", remedy: remedy ?? "" };
      this.#end(why);
    } else {
      this.#go(state);
      if (state === "lost" && cause) this.complain(serverProblem({ code: "sound_lost", message: cause, remedy }));
    }
  }

  #error(message) {
    const why = serverProblem(message);
    const setsUp = ["call", "dial", "listen"].includes(message.about);
    if (setsUp && this.state.busy && this.state.name !== "up") this.#end(why);
    else if (!message.fatal) this.complain(why);
  }

  // --- the sound ---

  async #track(peer) {
    if (peer !== this.peer) return;
    await this.sound.hear(peer.stream);
    await this.play();
    this.tell("track");
  }

  /** Play; a browser that wants a click first says so. */
  async play() {
    if (await this.sound.play()) this.complain(null, ["sound_blocked"]);
    else this.complain(problem("sound_blocked"));
  }

  #peerState(peer, state) {
    if (peer !== this.peer || !this.state.busy) return;
    if (state === "failed") this.#end(problem("network_lost"), true);
    else if (state === "disconnected" && this.state.name === "up") {
      this.#go("lost");
      this.complain(problem("sound_lost"));
    } else if (state === "connected" && this.state.name === "lost") {
      this.#go("up");
    }
  }

  async #poll() {
    const peer = this.peer;
    if (!peer) return;
    const report = await peer.stats();
    if (peer !== this.peer) return;
    const figures = this.stats.read(report);
    this.polls = (this.polls ?? 0) + 1;
    if (this.polls % REPORT_EVERY === 0 && this.state.name === "up") {
      this.socket.send("report", this.stats.report);
    }
    this.tell("measured", figures);
  }

  // --- the end ---

  #go(move) {
    if (!this.state.can(move)) return;
    const before = this.state.name;
    const name = this.state.go(move);
    if (name === "up") {
      this.upSince ??= now();
      this.complain(null, ["sound_lost"]);
    }
    if (name !== before) this.tell("change");
  }

  #end(why, tellServer = false) {
    if (!this.state.busy) return;
    this.attempt = null;
    clearTimeout(this.answerDue);
    clearTimeout(this.awayEnd);
    clearInterval(this.polling);
    if (tellServer && this.socket?.send("hangup")) this.leftOne = this.state.name !== "preparing";
    tab.set("call", null);
    this.sound.stop();
    this.peer?.close();
    this.peer = null;
    this.callerSpeaking = false;
    this.endedAfter = this.upSince === null ? null : (now() - this.upSince) / 1000;
    this.captions.stop();
    this.trouble = why;
    this.state.go("end");
    this.complain(why);
    this.tell("captions");
    this.tell("change");
  }

  /** The page goes away: the call ends with it. */
  leave() {
    const inCall = this.state.busy;
    const session = this.socket?.session;
    if (session) navigator.sendBeacon?.("/leave", JSON.stringify({ token: this.token, session }));
    this.peer?.close();
    this.sound.take(null);
    this.socket?.close();
    if (inCall) tab.set("call", "1");
  }
}
