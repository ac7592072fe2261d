// The microphone, and why there may be none.

import { problem } from "./problems.js";

const measuring = new URLSearchParams(location.search).get("measure") === "1";

function constraints() {
  const on = !measuring;
  return {
    audio: { echoCancellation: on, noiseSuppression: on, autoGainControl: on, channelCount: 1 },
    video: false,
  };
}

/** What a failed getUserMedia means, as one of the page's problems. */
export function microphoneProblem(error) {
  if (!window.isSecureContext || !navigator.mediaDevices) return problem("no_secure_context");
  switch (error?.name) {
    case "NotAllowedError":
    case "SecurityError":
      return problem("microphone_refused");
    case "NotFoundError":
    case "OverconstrainedError":
      return problem("microphone_missing");
    case "NotReadableError":
    case "AbortError":
      return problem("microphone_in_use");
    default:
      return problem("microphone_missing", error?.message);
  }
}

/** A stream of the microphone; throws one of the page's problems. */
export async function openMicrophone() {
  if (!navigator.mediaDevices?.getUserMedia) throw microphoneProblem(null);
  try {
    return await navigator.mediaDevices.getUserMedia(constraints());
  } catch (error) {
    throw microphoneProblem(error);
  }
}

/** Let go of it, so that the browser's sign for it goes out. */
export function closeMicrophone(stream) {
  for (const track of stream?.getTracks() ?? []) track.stop();
}
