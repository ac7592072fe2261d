// The choice of engine, voice and language.

import { byId, make, show, write } from "./dom.js";
import { choices } from "./storage.js";

// Languages that the browser names by their subtags, or not at all.
const NAMES = { "ca-valencia": "Valencian", mul: "several languages" };

/** The English name of a language; a private tag (RFC 5646, x-…) has its voice's name. */
function languageName(tag, voiceName = "") {
  if (!tag) return "";
  if (NAMES[tag]) return NAMES[tag];
  if (tag.includes("-x-") && voiceName) return voiceName;
  try {
    const name = new Intl.DisplayNames(["en"], { type: "language" }).of(tag) ?? tag;
    return name === tag && voiceName ? voiceName : name;
  } catch {
    return voiceName || tag;
  }
}

export class Voices extends EventTarget {
  /** Event "change": another choice was made. */
  constructor() {
    super();
    this.engines = [];
    this.engine = byId("engine");
    this.voice = byId("voice");
    this.language = byId("language");
    this.engine.addEventListener("change", () => {
      choices.set("engine", this.engine.value);
      this.#fillVoices();
      this.#changed();
    });
    this.voice.addEventListener("change", () => {
      choices.set("voice", this.voice.value);
      this.#changed();
    });
    this.language.addEventListener("change", () => {
      choices.set("language", this.language.value);
      this.#changed();
    });
  }

  /** The engines of the server, as its hello names them. */
  offer(engines) {
    const chosen = { engine: this.engine.value, voice: this.voice.value };
    this.engines = engines;
    const wanted = chosen.engine || choices.get("engine");
    this.engine.replaceChildren(
      ...engines.map(({ id, name }) => make("option", { value: id, textContent: name || id, selected: id === wanted })),
    );
    show(engines.length > 1, byId("engine-field"));
    this.#fillVoices(chosen.voice);
  }

  get current() {
    return this.engines.find(({ id }) => id === this.engine.value) ?? this.engines[0] ?? null;
  }

  /** A voice that the caller has brought. */
  add(voice, engineId) {
    const engine = this.engines.find(({ id }) => id === engineId);
    if (!engine) return;
    engine.voices = [...engine.voices.filter(({ id }) => id !== voice.id), voice];
    if (engine === this.current) this.#fillVoices(voice.id);
    this.#changed();
  }

  /** As the messages want it: what is left out is the server's choice. */
  get choice() {
    const found = {};
    if (this.engine.value) found.engine = this.engine.value;
    if (this.voice.value) found.voice = this.voice.value;
    if (this.language.value) found.language = this.language.value;
    return found;
  }

  #fillVoices(keep = "") {
    const engine = this.current;
    const voices = engine?.voices ?? [];
    const known = (id) => voices.some((voice) => voice.id === id);
    const wanted = [keep, choices.get("voice"), engine?.default_voice].find((id) => id && known(id));
    const option = ({ id, name, language }) => {
      const where = languageName(language, name);
      const known = name || id;
      const told = where && where !== known && !known.toLowerCase().includes(languageName(language.split("-")[0]).toLowerCase());
      const label = told ? `${known} · ${where}` : known;
      return make("option", { value: id, textContent: label, selected: id === wanted });
    };
    if (voices.length) this.voice.replaceChildren(...voices.map(option));
    else this.voice.replaceChildren(make("option", { value: "", textContent: "the engine’s own" }));
    const tags = new Map(voices.filter(({ language }) => language).map(({ language, name }) => [language, name]));
    const named = [...tags].map(([tag, name]) => [tag, languageName(tag, name)]).sort((a, b) => a[1].localeCompare(b[1]));
    const language = this.language.value || choices.get("language");
    this.language.replaceChildren(
      make("option", { value: "", textContent: "that of the voice" }),
      ...named.map(([tag, name]) => make("option", { value: tag, textContent: name, selected: tag === language })),
    );
    write(byId("engine-note"), engine?.note ?? "");
    show(engine !== null && engine.can_clone === true, byId("own-voice"));
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}
