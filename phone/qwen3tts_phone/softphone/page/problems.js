// What can go wrong in the page, in words: the fact, and what to do.

const PROBLEMS = {
  microphone_refused: [
    "The browser did not give the microphone.",
    "You can listen and type. To speak, allow the microphone beside the address of this page, then press “Use the microphone”.",
  ],
  microphone_missing: [
    "No microphone was found.",
    "You can listen and type. To speak, connect a microphone, then press “Use the microphone”.",
  ],
  microphone_in_use: [
    "The microphone cannot be opened; another program may be using it.",
    "You can listen and type. To speak, close the other program, then press “Use the microphone”.",
  ],
  microphone_gone: [
    "The microphone has stopped; it may have been unplugged.",
    "The call goes on, and you can type. Connect a microphone, then press “Use the microphone”.",
  ],
  no_secure_context: [
    "Browsers give the microphone only to pages that come over HTTPS or from this machine.",
    "You can listen and type. To speak, open the page by its https address.",
  ],
  no_webrtc: [
    "This browser cannot make calls: WebRTC is missing or switched off.",
    "Use a current Chrome, Edge, Firefox or Safari, or switch WebRTC on in the settings.",
  ],
  server_away: [
    "The server does not answer.",
    "The page keeps trying. See whether “mr-qwen3tts softphone” is still running, and whether this device is in the same network. If it was started again, open the address that it prints now.",
  ],
  server_lost: [
    "The connection to the server is lost.",
    "The call waits a few seconds while the page tries to return.",
  ],
  network_lost: [
    "The connection was lost, and the call has ended.",
    "See whether the network is there, then call again. If the softphone was started again, open the address that it prints now.",
  ],
  sound_lost: ["No sound comes through at the moment.", "The call goes on if the network returns. Or hang up and call again."],
  token_missing: [
    "This page needs its access token.",
    "Open the link that the server printed when it started, or paste it here.",
  ],
  restarted: [
    "The softphone was started again, and this page belongs to the time before.",
    "Open the address that it prints now, or paste it here.",
  ],
  token_wrong: [
    "The server does not accept this access token.",
    "It may have been started again. Open the link that it prints now, or paste it here.",
  ],
  session_expired: ["The server does not know this call any more.", "Call again."],
  other_tab: ["Another tab of this browser is in a call.", "Hang up there first, or end that call from here."],
  taken_over: ["The call was ended from another tab.", "Only one tab is in a call at a time. Call again to take it back."],
  reloaded: ["The page was loaded anew, and that ended the call.", "Call again when you like."],
  sound_blocked: ["The browser does not play sound yet.", "Press “Turn on the sound”."],
  no_answer: ["The server did not answer the call.", "Try again; if it stays so, see what the server prints."],
  answer_unusable: ["The call could not be set up with this browser.", "Choose another codec, or another browser."],
  no_codec: ["This browser does not offer that codec.", "Choose “automatic”."],
  recording_failed: ["The recording could not be fetched.", "Try again; it stays on the server until that ends."],
  upload_failed: ["The voice could not be sent.", "See whether the server is still running, then try again."],
};

/** An error as it is shown; `remedy` says what to do. */
export class Problem extends Error {
  constructor(code, message, remedy, fatal = false) {
    super(message);
    this.name = "Problem";
    this.code = code;
    this.remedy = remedy;
    this.fatal = fatal;
  }
}

export function problem(code, detail) {
  const [message, remedy] = PROBLEMS[code];
  return new Problem(code, detail ? `${message} (${detail})` : message, remedy);
}

/** Words of the server as a sentence: a capital at its beginning, a full stop at its end. */
export function sentence(words) {
  const text = (words ?? "").trim();
  if (!text) return "";
  const end = /[.!?…]$/u.test(text) ? "" : ".";
  return text[0].toUpperCase() + text.slice(1) + end;
}

/** An error that the server told us. */
export function serverProblem(message) {
  const text = sentence(message.message) || "The server reported an error.";
  return new Problem(message.code || "error", text, sentence(message.remedy), message.fatal === true);
}
