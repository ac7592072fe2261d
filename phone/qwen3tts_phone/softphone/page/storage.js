// What the browser keeps for us. A browser that refuses storage still works; it only forgets.

function kept(area) {
  const memory = new Map();
  let store = null;
  try {
    store = window[area];
    store.getItem("qwen3tts");
  } catch {
    store = null;
  }
  return {
    get(name) {
      try {
        return store ? store.getItem(`qwen3tts.${name}`) : (memory.get(name) ?? null);
      } catch {
        return null;
      }
    },
    set(name, value) {
      try {
        if (!store) memory.set(name, value);
        else if (value === null) store.removeItem(`qwen3tts.${name}`);
        else store.setItem(`qwen3tts.${name}`, value);
      } catch {
        memory.set(name, value);
      }
    },
  };
}

/** For this tab, until it is closed: the token, and that a call was on. */
export const tab = kept("sessionStorage");

/** For this browser: choices such as the voice. */
export const choices = kept("localStorage");

/** The token in a link or as it is, or null. */
export function tokenIn(text) {
  const trimmed = text.trim();
  const found = /[#&?]token=([^&\s]+)/.exec(trimmed);
  if (found) {
    try {
      return decodeURIComponent(found[1]);
    } catch {
      return found[1];
    }
  }
  return trimmed && !/[\s/#]/.test(trimmed) && trimmed.length <= 512 ? trimmed : null;
}

/** The access token: taken out of the address, so that it is not seen or copied, and kept for the tab. */
export function takeToken() {
  if (/[#&]token=/.test(location.hash)) {
    const token = tokenIn(location.hash);
    if (token) tab.set("token", token);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return tab.get("token");
}
