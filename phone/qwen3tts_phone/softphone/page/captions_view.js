// The captions on the page: words lit as they are heard, sentences read aloud, and what was not heard.

import { pieces, sentenceEnd, wordState } from "./caption_words.js";
import { byId, make, now, show } from "./dom.js";

const WHO = { agent: "The voice", typed: "You typed", caller: "You said" };
const LISTENING = { ...WHO, typed: "The voice", caller: "The caller said" };
const LIVE_ENTRIES = 40;

export class CaptionsView {
  constructor(phone) {
    this.phone = phone;
    this.list = byId("captions");
    this.aloud = byId("spoken-aloud");
    this.follow = byId("follow");
    this.items = new Map();
    this.following = true;
    phone.addEventListener("captions", () => this.update());
    this.list.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.follow.addEventListener("click", () => {
      this.following = true;
      this.#toEnd();
    });
  }

  /** Everything that is new; called when the server has said something. */
  update() {
    const entries = this.phone.captions.entries;
    const alive = new Set(entries);
    for (const [entry, item] of this.items) {
      if (alive.has(entry)) continue;
      item.element.remove();
      this.items.delete(entry);
    }
    if (!entries.length) {
      this.aloud.replaceChildren();
      this.following = true;
    }
    for (const entry of entries) {
      let item = this.items.get(entry);
      if (!item) {
        item = this.#item(entry);
        this.items.set(entry, item);
        this.list.append(item.element);
      }
      if (item.version !== entry.version) this.#build(entry, item);
      this.#light(entry, item);
    }
    show(entries.length === 0, byId("captions-empty"));
    if (this.following) this.#toEnd();
    this.#scrolled();
  }

  /** Move the light on; called for every picture. */
  tick() {
    for (const entry of this.phone.captions.advance(now())) {
      const item = this.items.get(entry);
      if (item) this.#light(entry, item);
    }
  }

  #item(entry) {
    const text = make("span", { className: "caption-text", lang: entry.language });
    const end = make("span", { className: "caption-end", hidden: true });
    const who = make("span", { className: "caption-who", textContent: this.#who(entry) });
    const element = make("li", { "data-id": String(entry.id), "data-who": entry.who }, who, text, end);
    return { element, text, end, who, version: -1, words: [], told: 0, toldEnd: false };
  }

  #who(entry) {
    return (this.phone.kind === "listen" ? LISTENING : WHO)[entry.who] ?? WHO.agent;
  }

  #build(entry, item) {
    item.version = entry.version;
    item.element.dataset.who = entry.who;
    item.who.textContent = this.#who(entry);
    const found = pieces(entry);
    // Words that stand already are kept, so that nothing flickers while text grows.
    let same = 0;
    while (same < found.length && same < item.words.length) {
      const word = item.words[same];
      if (word.start !== found[same][0] || word.end !== found[same][1] || word.text !== found[same][2]) break;
      same += 1;
    }
    for (const word of item.words.splice(same)) word.span.remove();
    item.text.querySelectorAll(".unheard-mark").forEach((mark) => mark.remove());
    for (const [start, end, text] of found.slice(same)) {
      const span = make("span", { className: "word", textContent: text });
      item.words.push({ start, end, text, span, state: "" });
      item.text.append(span);
    }
    this.#ending(entry, item);
  }

  #light(entry, item) {
    let now = null;
    let firstUnheard = null;
    for (const word of item.words) {
      const state = wordState(entry, word.start);
      if (state !== word.state) {
        word.state = state;
        word.span.dataset.state = state;
      }
      if (state === "heard") now = word;
      else if (state === "unheard") firstUnheard ??= word;
    }
    for (const word of item.words) word.span.classList.toggle("now", word === now && !entry.done);
    if (firstUnheard && !item.text.querySelector(".unheard-mark")) {
      firstUnheard.span.before(make("span", { className: "unseen unheard-mark", textContent: " (not heard:) " }));
    }
    this.#tell(entry, item);
  }

  #ending(entry, item) {
    const { end } = item;
    end.classList.toggle("fault", Boolean(entry.error));
    let words = "";
    if (entry.error) words = [entry.error, entry.remedy].filter(Boolean).join(" ");
    else if (entry.who === "caller" && entry.bargeIn) words = "Cut in";
    else if (entry.done && entry.interrupted) {
      words = entry.heard.trim() ? "Stopped here; what is struck through was not heard." : "Stopped before anything was heard.";
    }
    end.textContent = words;
    end.hidden = words === "";
  }

  /** For screen readers: whole sentences once they have been heard, and what an interruption left out. */
  #tell(entry, item) {
    if (entry.who === "caller") {
      if (!item.toldEnd) this.#say(`${this.#who(entry)}: ${entry.text}`);
      item.toldEnd = true;
      return;
    }
    const heard = entry.done ? entry.heardPoints : entry.lit;
    const end = entry.done ? heard : sentenceEnd(entry.points, item.told, heard);
    if (end > item.told) {
      this.#say(entry.points.slice(item.told, end).join(""));
      item.told = end;
    }
    if (entry.done && !item.toldEnd) {
      item.toldEnd = true;
      const rest = entry.remaining.trim();
      if (entry.error) this.#say(entry.error);
      else if (entry.interrupted && rest) this.#say(`Stopped. Not heard: ${rest}`);
    }
  }

  #say(text) {
    const words = text.trim();
    if (!words) return;
    this.aloud.append(make("p", { textContent: words }));
    while (this.aloud.childElementCount > LIVE_ENTRIES) this.aloud.firstElementChild.remove();
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.list;
    const atEnd = scrollHeight - scrollTop - clientHeight < 24;
    this.following = atEnd;
    show(!atEnd && this.items.size > 0, this.follow);
  }

  #toEnd() {
    this.list.scrollTop = this.list.scrollHeight;
  }
}
