// Puts the page together.

import { CaptionsView } from "./captions_view.js";
import { Controls } from "./controls.js";
import { debugging } from "./debugging.js";
import { byId, make, show, write } from "./dom.js";
import { Figures } from "./figures.js";
import { Gateway } from "./gateway.js";
import { Keypad } from "./keypad.js";
import { LinePicture } from "./line_picture.js";
import { Notice } from "./notice.js";
import { OwnVoice } from "./own_voice.js";
import { problem } from "./problems.js";
import { Recording } from "./recording.js";
import { Softphone } from "./softphone.js";
import { choices, tab, takeToken, tokenIn } from "./storage.js";
import { TypingView } from "./typing_view.js";
import { Voices } from "./voices.js";

const MICROPHONE = ["microphone_refused", "microphone_missing", "microphone_in_use", "microphone_gone"];
const TOKEN = ["token_missing", "token_wrong"];
const CODEC_NAMES = { opus: "Opus (wide band)", PCMU: "PCMU (as on the telephone)" };

const phone = new Softphone(byId("player"));
const voices = new Voices();
let last = null;
let wanted = false;

/** Make a call as the page is set; `again` repeats one that something stood in the way of. */
function place(kind, more = {}, again = {}) {
  last = { kind, more };
  wanted = true;
  const codec = byId("codec").value;
  const common = { codec, ...more };
  if (kind !== "listen") {
    Object.assign(common, voices.choice, { record: byId("record").checked, barge_in: byId("barge-in").checked });
  }
  phone.call(kind, common, again);
}

const notice = new Notice(byId("notice"), (why) => {
  const again = (options) => () => place(last?.kind ?? "call", last?.more, options);
  if (MICROPHONE.includes(why.code) && phone.state.busy) return [["Use the microphone", () => phone.useMicrophone()]];
  if (why.code === "sound_blocked") return [["Turn on the sound", () => phone.play()]];
  if (why.code === "other_tab") return [["End it there and call here", again({ evenIfOther: true })]];
  if (why.code === "server_away" || why.code === "server_lost") return [["Try now", () => phone.socket.retryNow()]];
  if (why.fatal && !TOKEN.includes(why.code)) return [["Connect again", () => phone.connect(phone.token)]];
  if (["network_lost", "no_answer", "session_expired"].includes(why.code)) return [["Call again", again()]];
  return [];
});

phone.addEventListener("problem", ({ detail: { why, onlyCodes } }) => {
  // Why a call ended is worth more than that the server is still away.
  const kept = why?.code === "server_away" && notice.code === "network_lost" && !wanted;
  wanted = false;
  if (why === null) notice.clear(onlyCodes);
  else if (!kept) notice.show(why);
  if (TOKEN.includes(notice.code)) {
    show(true, byId("token-form"));
    byId("token").focus();
  }
});

phone.addEventListener("welcome", ({ detail: hello }) => {
  notice.clear(TOKEN);
  show(false, byId("token-form"));
  voices.offer(hello.engines ?? []);
  show(hello.recording === true, byId("record-field"));
  const codecs = ["auto", ...(hello.codecs ?? [])];
  const chosen = byId("codec").value || "auto";
  byId("codec").replaceChildren(
    ...codecs.map((name) =>
      make("option", { value: name, textContent: name === "auto" ? "automatic" : (CODEC_NAMES[name] ?? name), selected: name === chosen }),
    ),
  );
  if (hello.agent) {
    write(byId("title"), "Talk to the agent");
    write(byId("lead"), "Call, and speak. Cut in whenever you like: it falls silent and listens, as on the telephone.");
  }
});

function connectWith(text) {
  const token = tokenIn(text);
  if (!token) return notice.show(problem("token_wrong"));
  tab.set("token", token);
  notice.clear();
  phone.connect(token);
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  connectWith(byId("token").value);
  byId("token").value = "";
});
window.addEventListener("hashchange", () => {
  if (/[#&]token=/.test(location.hash)) {
    takeToken();
    connectWith(tab.get("token") ?? "");
  }
});

voices.addEventListener("change", () => phone.setVoice(voices.choice));
new OwnVoice(phone, voices, (voice, engine) => voices.add(voice, engine));
new Keypad(phone);
new Recording(phone, (why) => notice.show(why));
new Gateway(phone, place);
const typing = new TypingView(phone);
const captions = new CaptionsView(phone);
const picture = new LinePicture(byId("line-picture"), phone);
const figures = new Figures(phone);
const controls = new Controls(phone, place);

for (const id of ["barge-in", "record"]) {
  const box = byId(id);
  const kept = choices.get(id);
  if (kept !== null) box.checked = kept === "yes";
  box.addEventListener("change", () => choices.set(id, box.checked ? "yes" : "no"));
}

// A phone's screen stays on while somebody talks.
let lock = null;
async function keepAwake(on) {
  try {
    if (on && !lock) lock = (await navigator.wakeLock?.request("screen")) ?? null;
    else if (!on && lock) await lock.release();
    if (!on) lock = null;
  } catch {
    lock = null;
  }
}

let shown = "idle";
let drawing = false;
function frame() {
  drawing = phone.state.busy;
  if (!drawing) return;
  captions.tick();
  picture.tick();
  controls.tick();
  requestAnimationFrame(frame);
}

phone.addEventListener("change", () => {
  const { name, busy } = phone.state;
  if (name === shown) return;
  const wasBusy = shown !== "idle" && shown !== "ended";
  shown = name;
  if (name === "preparing") {
    picture.clear();
    figures.clear();
    typing.clear();
  }
  if (busy && !drawing) {
    drawing = true;
    requestAnimationFrame(frame);
  }
  if (busy !== wasBusy) keepAwake(busy);
});

window.addEventListener("pagehide", () => phone.leave());
window.addEventListener("pageshow", (event) => {
  // Back from the browser's memory: the connection is gone, and a fresh page is the honest answer.
  if (event.persisted) location.reload();
});

window.softphone = debugging(phone);
phone.connect(takeToken());
