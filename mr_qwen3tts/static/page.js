// Shows the plugin's state and asks for it again while the page is seen. Whatever it is told is
// put into the page as text, never as markup.
"use strict";

const EVERY_MS = 2000;
const SLOWEST_MS = 30000;
const TIMEOUT_MS = 8000;
const WAITED_MS = 20; // longer than a frame: it came behind another utterance
const STAGES = ["first_delta", "request_sent", "first_sound", "first_frame"];
const FIGURES = {
  utterances: "Utterances",
  interrupted: "Interrupted",
  failed: "Failed",
  starved: "Starved",
  mixups: "Context mix-ups caught",
  stale_partials: "Stale partials ignored",
  halts: "Halts by the phone",
  halted: "Replies to a halted phone",
  stops: "Stops",
  abandoned: "Commands that never ran",
  unfinished: "Commands broken off",
  barrier_timeouts: "Barrier timeouts",
  fallbacks: "Fallbacks used",
};

const byId = (id) => document.getElementById(id);

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = String(text);
  if (className) element.className = className;
  return element;
}

function within(tag, children, className) {
  const element = make(tag, null, className);
  element.append(...children);
  return element;
}

// --- how numbers and times are written

function ms(value) {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 ? 1 : 0 });
}

function seconds(value) {
  return value.toFixed(value < 10 ? 1 : 0) + " s";
}

function clock(unixS) {
  const at = new Date(unixS * 1000);
  const today = at.toDateString() === new Date().toDateString();
  const time = make("time", (today ? "" : at.toLocaleDateString() + " ") + at.toLocaleTimeString());
  time.dateTime = at.toISOString();
  return time;
}

function lasted(s) {
  if (s < 60) return Math.max(0, Math.round(s)) + " s";
  if (s < 3600) return Math.round(s / 60) + " min";
  if (s < 86400) return Math.round(s / 3600) + " h";
  return Math.round(s / 86400) + " days";
}

// --- parts of the page; a part is built again only when it has changed, for whoever reads it aloud

const shown = {};

function changed(part, value) {
  const now = JSON.stringify(value);
  if (shown[part] === now) return false;
  shown[part] = now;
  return true;
}

function setText(id, text) {
  const element = byId(id);
  if (element.textContent !== text) element.textContent = text;
}

function fact(list, name, value) {
  list.append(make("dt", name), value instanceof Node ? within("dd", [value]) : make("dd", value));
}

function row(cells) {
  const line = make("tr");
  line.setAttribute("role", "row");
  for (const [label, content, className] of cells) {
    const cell = make("td", null, className);
    cell.setAttribute("role", "cell");
    cell.dataset.label = label;
    cell.append(...[content].flat());
    line.append(cell);
  }
  return line;
}

function showConnection(connection, now) {
  const since = connection.since_unix_s;
  const ago = since === null ? "" : " for " + lasted(now - since);
  let [word, tone] = ["Not connected", "bad"];
  if (connection.up) [word, tone] = ["Connected", "good"];
  if (connection.using_fallback) [word, tone] = ["The fallback server speaks", "warn"];
  const status = byId("status");
  if (status.className !== "status " + tone) status.className = "status " + tone;
  setText("status-text", word);
  if (!changed("connection", [connection, ago])) return;
  const trouble = byId("connection-error");
  trouble.hidden = !connection.error;
  trouble.className = connection.up ? "trouble past" : "trouble";
  setText("error-text", connection.error);
  setText("error-remedy", connection.remedy);
  const list = byId("connection");
  list.replaceChildren();
  fact(list, "Server", connection.url || "–");
  fact(list, "Engine", connection.engine || "–");
  fact(list, "Model", connection.model || "–");
  if (since !== null) fact(list, connection.up ? "Since" : "Away since", within("span", [clock(since), ago.replace(" for ", ", ")]));
  if (!connection.up) fact(list, "Attempts", String(connection.attempts));
}

function showFigures(records) {
  const figures = [records.counts, records.first_frame_ms];
  if (!changed("figures", figures)) return;
  byId("figures-since").replaceChildren("since ", clock(records.began_unix_s));
  const list = byId("figures");
  list.replaceChildren();
  const tile = (name, value) => {
    list.append(within("div", [make("dt", name), make("dd", value)]));
  };
  const first = records.first_frame_ms;
  tile("First frame, p50" + (first.n ? " of the last " + first.n : ""), first.n ? ms(first.p50) + " ms" : "–");
  tile("First frame, p95", first.n ? ms(first.p95) + " ms" : "–");
  for (const [name, label] of Object.entries(FIGURES)) {
    if (name in records.counts) tile(label, ms(records.counts[name]));
  }
  for (const [name, count] of Object.entries(records.counts)) {
    if (!(name in FIGURES)) tile(name.replaceAll("_", " "), ms(count));
  }
}

function showProblems(problems) {
  if (!changed("problems", problems)) return;
  byId("problems-section").hidden = problems.length === 0;
  byId("problems").replaceChildren(...problems.map((each) => {
    const when = within("p", [make("strong", each.what), " · ", clock(each.last_unix_s)], "quiet");
    if (each.times > 1) when.append(" · " + each.times + " times since ", clock(each.first_unix_s));
    if (each.log_id) when.append(" · session " + each.log_id);
    const item = within("li", [when, make("p", each.error)]);
    if (each.remedy) item.append(make("p", each.remedy));
    return item;
  }));
}

function showConversations(conversations) {
  if (!changed("conversations", conversations)) return;
  setText("conversations-n", conversations.n ? "(" + conversations.n + ")" : "");
  byId("conversations-none").hidden = conversations.n > 0;
  const table = byId("conversations");
  table.hidden = conversations.n === 0;
  table.tBodies[0].replaceChildren(...conversations.shown.map((each) => row([
    ["Session", each.log_id],
    ["Agent", each.agent || "–"],
    ["Now", make("span", each.speaking ? "speaking" : "silent", each.speaking ? "good" : "quiet")],
    ["Unplayed", seconds(each.unplayed_s), "number"],
  ])));
}

function showTelephone(telephone) {
  if (!changed("telephone", telephone)) return;
  setText("telephone-uri", telephone.uri);
  setText("telephone-trouble", telephone.trouble);
  byId("telephone-trouble").hidden = !telephone.trouble;
  byId("telephone-none").hidden = telephone.n > 0;
  const table = byId("telephone");
  table.hidden = telephone.n === 0;
  table.tBodies[0].replaceChildren(...telephone.calls.map((each) => row([
    ["Session", each.log_id],
    ["Direction", each.direction],
    ["With", each.remote || "–"],
    ["Since", seconds(each.seconds), "number"],
  ])));
}

function bar(utterance, longestMs) {
  const line = make("span", null, "bar");
  line.setAttribute("aria-hidden", "true");
  let before = 0;
  STAGES.forEach((name, index) => {
    const at = utterance.stages_ms[name];
    if (at === null) return;
    const part = make("span", null, "s" + index);
    part.style.flexGrow = String(Math.max(0, at - before));
    before = Math.max(before, at);
    line.append(part);
  });
  line.style.width = (longestMs > 0 ? Math.min(100, 100 * before / longestMs) : 0) + "%";
  return line;
}

function outcome(utterance) {
  let tone = "good";
  if (utterance.outcome === "no_text") tone = "quiet";
  if (utterance.interrupted) tone = "warn";
  if (utterance.error) tone = "bad";
  const cells = [make("span", utterance.outcome.replaceAll("_", " ") || "–", tone)];
  if (utterance.silence_ms !== null) {
    cells.push(make("span", "silent after " + ms(utterance.silence_ms) + " ms", "small"));
  }
  if (utterance.error) cells.push(make("span", utterance.error, "small"));
  if (utterance.heard !== null || utterance.remaining !== null) {
    const words = within("span", [utterance.heard || ""], "small");
    if (utterance.remaining) words.append(make("s", utterance.remaining));
    cells.push(words);
  }
  return cells;
}

function showUtterances(utterances) {
  if (!changed("utterances", utterances)) return;
  byId("utterances-none").hidden = utterances.length > 0;
  const table = byId("utterances");
  table.hidden = utterances.length === 0;
  const own = utterances.filter((each) => each.waited_ms <= WAITED_MS);
  const longestMs = Math.max(0, ...own.map((each) => each.stages_ms.first_frame ?? 0));
  table.tBodies[0].replaceChildren(...utterances.map((each) => {
    const at = each.stages_ms;
    const firstFrame = [ms(at.first_frame), bar(each, longestMs)];
    if (each.waited_ms > WAITED_MS) {
      firstFrame.push(make("span", "waited " + ms(each.waited_ms) + " for its turn", "small"));
    }
    const starved = each.starvations
      ? [make("span", each.starvations + " ×", "bad"), make("span", ms(each.starved_ms) + " ms", "small")]
      : make("span", "no", "quiet");
    return row([
      ["When", clock(each.at_unix_s)],
      ["Session", [each.agent || "–", make("span", each.log_id + " #" + each.number, "small")]],
      ["Voice", [each.voice || "–", make("span", each.engine, "small")]],
      ["First delta", ms(at.first_delta), "number"],
      ["Request sent", ms(at.request_sent), "number"],
      ["First sound", ms(at.first_sound), "number"],
      ["First frame", firstFrame, "number first-frame"],
      ["Outcome", outcome(each)],
      ["Heard", [seconds(each.heard_s), make("span", "of " + seconds(each.generated_s), "small")], "number"],
      ["Starved", starved],
    ]);
  }));
}

function chips(names, n) {
  if (!names.length) return make("span", "none", "quiet");
  const list = within("ul", names.map((name) => make("li", name)), "chips");
  if (n > names.length) list.append(make("li", "and " + (n - names.length) + " more", "quiet"));
  return list;
}

function showVoices(voices) {
  if (!changed("voices", voices)) return;
  const problems = byId("voice-problems");
  problems.hidden = voices.problems.length === 0;
  problems.replaceChildren(...voices.problems.map((each) =>
    within("li", [within("p", [make("strong", each.voice)]), make("p", each.problem)])));
  const list = byId("voices");
  list.replaceChildren();
  fact(list, "At the server", chips(voices.offered, voices.offered_n));
  fact(list, "Used by agents", chips(voices.known, voices.known_n));
}

function showSettings(settings) {
  if (!changed("settings", settings)) return;
  const list = byId("settings");
  list.replaceChildren();
  for (const each of settings) fact(list, each.name, each.value || "–");
}

function notice(text, link) {
  const element = byId("notice");
  if (element.dataset.text === text) return;
  element.dataset.text = text;
  element.hidden = !text;
  element.replaceChildren(text);
  if (link) {
    const anchor = make("a", link.text);
    anchor.href = link.href;
    element.append(" ", anchor);
  }
}

function show(state) {
  const now = state.records ? state.records.now_unix_s : Date.now() / 1000;
  if (state.connection) showConnection(state.connection, now);
  if (state.records) {
    showFigures(state.records);
    showProblems(state.records.problems);
    showUtterances(state.records.utterances);
  }
  if (state.conversations) showConversations(state.conversations);
  byId("telephone-section").hidden = !state.telephone;
  if (state.telephone) showTelephone(state.telephone);
  if (state.voices) showVoices(state.voices);
  if (state.settings) showSettings(state.settings);
  byId("updated").replaceChildren(clock(now));
  notice(state.unread.length ? "Cannot be shown now: " + state.unread.join(", ") + ". The log says why." : "");
}

// --- asking again

let timer = null;
let asking = false;
let paused = false;
let waitMs = EVERY_MS;

function later(inMs) {
  clearTimeout(timer);
  timer = paused || document.hidden ? null : setTimeout(ask, inMs);
}

async function ask() {
  if (asking) return;
  asking = true;
  try {
    const answer = await fetch("mr_qwen3tts/state", {
      cache: "no-store",
      redirect: "manual", // to the login page, when the session is over
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    if (answer.type === "opaqueredirect" || answer.status === 401 || answer.status === 403) {
      notice("You are logged out, or no longer an administrator.", { text: "Log in", href: "login" });
      waitMs = SLOWEST_MS;
    } else if (!answer.ok) {
      throw new Error("status " + answer.status);
    } else {
      show(await answer.json());
      waitMs = EVERY_MS;
    }
  } catch {
    notice("MindRoot does not answer. What you see is of the time above; it is asked again.");
    waitMs = Math.min(SLOWEST_MS, waitMs * 2);
  } finally {
    asking = false;
    later(waitMs);
  }
}

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  if (paused) clearTimeout(timer);
  else ask();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else if (!paused) ask();
});

show(JSON.parse(byId("first").textContent));
later(EVERY_MS);
