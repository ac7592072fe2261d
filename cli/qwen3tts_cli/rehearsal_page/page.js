"use strict";
(() => {
  const { calls } = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const BATCH = 100;
  const PIXELS_PER_S = 16;
  const NAMES = { caller: "caller", agent: "agent" };

  function element(tag, className, content) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (content !== undefined) made.textContent = content;
    return made;
  }

  const seconds = (value) => value.toFixed(value < 10 ? 2 : 1) + "\u202fs";

  // --- one call

  function wave(peaks, side, bins) {
    const half = 48, middle = side ? 147 : 49;
    const heights = [];
    for (let at = 0; at < bins; at++) heights.push((peaks.charCodeAt(side * bins + at) / 255) * half);
    const upper = heights.map((height, at) => `${at} ${(middle - height).toFixed(1)}`);
    const lower = heights.map((height, at) => `${at} ${(middle + height).toFixed(1)}`).reverse();
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", "M" + upper.concat(lower).join("L") + "Z");
    path.setAttribute("class", "wave " + (side ? "agent" : "caller"));
    return path;
  }

  function stage(call, length) {
    const place = element("div", "stage");
    place.style.minWidth = Math.round(length * PIXELS_PER_S) + "px";
    const percent = (at) => Math.max(0, Math.min(100, (at / length) * 100)) + "%";
    const put = (box, from, to) => {
      box.style.left = percent(from);
      box.style.width = Math.max(0, ((Math.min(to, length) - from) / length) * 100) + "%";
      place.append(box);
      return box;
    };
    if (call.peaks) {
      const peaks = atob(call.peaks);
      const bins = peaks.length / 2;
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      svg.setAttribute("viewBox", `0 0 ${Math.max(1, bins - 1)} 196`);
      svg.setAttribute("preserveAspectRatio", "none");
      svg.setAttribute("aria-hidden", "true");
      svg.style.width = (call.recorded_s / length) * 100 + "%";
      svg.append(wave(peaks, 0, bins), wave(peaks, 1, bins));
      place.append(svg);
    }
    for (const [side, from, to, words, note] of call.spans) {
      const box = put(element("div", "turn " + (side === "agent" ? "agent" : "caller"), words || note), from, to);
      if (note) box.classList.add("noted");
      box.title = `${seconds(from)} to ${seconds(to)}${note ? ", " + note : ""}: ${words}`;
    }
    for (const [from, to, bad] of call.waits) {
      const box = put(element("div", bad ? "wait bad" : "wait"), from, to);
      box.append(element("span", "", seconds(to - from)));
      box.title = "wait for the agent: " + seconds(to - from);
    }
    for (const [from, to] of call.overlaps) {
      put(element("div", "both"), from, to).title = "both speak: " + seconds(to - from);
    }
    return place;
  }

  function axis(length) {
    const made = element("div", "axis");
    made.style.minWidth = Math.round(length * PIXELS_PER_S) + "px";
    for (let part = 0; part <= 4; part++) made.append(element("span", "", seconds((length * part) / 4)));
    return made;
  }

  function verdicts(call) {
    const table = element("table", "judged");
    for (const each of call.verdicts) {
      const row = element("tr");
      const name = element("th", "", each.name);
      name.scope = "row";
      row.append(name, element("td", each.passed ? "ok" : "bad", each.passed ? "passed" : "failed"),
        element("td", "measured", each.measured), element("td", "muted", each.limit ? "limit " + each.limit : ""),
        element("td", "detail", each.detail));
      table.append(row);
    }
    return table;
  }

  function turns(call, seek) {
    const table = element("table", "turns");
    for (const [side, from, to, words, note] of call.spans) {
      const row = element("tr");
      row.append(element("th", "", seconds(from)), element("td", "", seconds(to - from)),
        element("td", "hop-name " + (side === "agent" ? "agent" : "client"), NAMES[side] || side),
        element("td", "words", words), element("td", "muted", note));
      row.addEventListener("click", () => seek(from));
      table.append(row);
    }
    return table;
  }

  function open(box, call) {
    if (box.dataset.drawn) return;
    box.dataset.drawn = "yes";
    const length = Math.max(call.seconds, call.recorded_s || 0, 0.1);
    if (call.error) box.append(element("p", "warn", call.error));
    const scroll = element("div", "scroll");
    const picture = stage(call, length);
    scroll.append(picture, axis(length));
    box.append(scroll);
    let seek = () => {};
    if (call.audio) {
      const audio = element("audio");
      audio.controls = true;
      audio.preload = call.audio.startsWith("data:") ? "metadata" : "none";
      audio.src = call.audio;
      const head = element("div", "head");
      picture.append(head);
      const follow = () => {
        head.style.left = (audio.currentTime / length) * 100 + "%";
        if (!audio.paused) requestAnimationFrame(follow);
      };
      audio.addEventListener("play", follow);
      audio.addEventListener("seeked", follow);
      seek = (at) => { audio.currentTime = at; };
      picture.addEventListener("click", (event) => {
        const frame = picture.getBoundingClientRect();
        seek(((event.clientX - frame.left) / frame.width) * length);
      });
      box.append(audio);
    }
    if (call.no_sound) box.append(element("p", "muted", call.no_sound));
    if (call.file) box.append(element("p", "muted", "Recording: " + call.file));
    const judged = element("div", "scroll");
    judged.append(verdicts(call));
    box.append(judged);
    const spoken = element("details");
    spoken.append(element("summary", "", "Turns"));
    const told = element("div", "scroll");
    told.append(turns(call, seek));
    spoken.append(told);
    if (call.left_out) spoken.append(element("p", "muted", call.left_out + " more turns are left out."));
    if (call.figures.length) {
      const about = element("p", "about");
      for (const [name, value] of call.figures) {
        const pair = element("span", "", name + " ");
        pair.append(element("b", "", value));
        about.append(pair);
      }
      box.append(about);
    }
    box.append(spoken);
  }

  function row(call) {
    const box = element("details", "call");
    const summary = element("summary");
    const failed = call.verdicts.filter((each) => !each.passed).map((each) => `${each.name} ${each.measured.length > 40 ? each.measured.slice(0, 39) + "…" : each.measured}`);
    summary.append(
      element("span", "verdict " + (call.passed ? "better" : "worse"), call.passed ? "passed" : call.error ? "not judged" : "failed"),
      element("span", "", call.scenario), element("span", "muted", "seed " + call.seed),
      element("span", "muted", seconds(call.seconds)), element("span", "muted", call.error || failed.join(", ")));
    box.append(summary);
    box.addEventListener("toggle", () => { if (box.open) open(box, call); });
    return box;
  }

  // --- the list

  const list = document.getElementById("list");
  const more = document.getElementById("more");
  const which = document.getElementById("which");
  const scenario = document.getElementById("scenario");
  let chosen = calls;
  let shown = 0;

  function grow() {
    const next = chosen.slice(shown, shown + BATCH);
    list.append(...next.map(row));
    shown += next.length;
    more.hidden = shown >= chosen.length;
    document.getElementById("shown").textContent = chosen.length === shown ? chosen.length + " calls" : `${shown} of ${chosen.length} calls`;
  }

  function choose() {
    chosen = calls.filter((call) => (which.value === "all" || !call.passed) && (!scenario.value || call.scenario === scenario.value));
    list.replaceChildren();
    shown = 0;
    grow();
    const first = list.querySelector("details");
    if (first && (chosen.length === 1 || !chosen[0].passed)) first.open = true;
  }

  for (const name of new Set(calls.map((call) => call.scenario))) scenario.add(new Option(name, name));
  which.addEventListener("change", choose);
  scenario.addEventListener("change", choose);
  more.addEventListener("click", grow);
  for (const line of document.querySelectorAll("tr[data-scenario]")) {
    line.querySelector("button").addEventListener("click", () => {
      scenario.value = line.querySelector("button").textContent;
      which.value = "all";
      choose();
      document.getElementById("calls").scrollIntoView();
    });
  }
  choose();

  const theme = document.getElementById("theme");
  const order = ["auto", "light", "dark"];
  let now = 0;
  const apply = () => {
    if (now) root.dataset.theme = order[now]; else delete root.dataset.theme;
    theme.textContent = "Theme: " + order[now];
  };
  theme.hidden = false;
  theme.addEventListener("click", () => { now = (now + 1) % order.length; apply(); });
  apply();
  root.dataset.ready = "yes";
})();
