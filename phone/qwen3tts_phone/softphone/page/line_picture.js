// The live picture of the line: both signals above, the jitter buffer below, faults as marks.

import { now } from "./dom.js";

const SPAN_MS = 10000;
const STEP_MS = 50;
const STILL_EVERY_MS = 1000;
const LEAST_BUFFER_MS = 100;

/** Newest last; each: time, peaks (0 to 1), jitter buffer (ms or null), whether sound was missing. */
export class LineHistory {
  constructor() {
    this.points = [];
  }

  add(point) {
    this.points.push(point);
    const first = this.points.findIndex((one) => one.time >= point.time - SPAN_MS - 500);
    if (first > 0) this.points.splice(0, first);
  }

  clear() {
    this.points = [];
  }
}

function shown(peak) {
  // Speech spends most of its time far below full scale; a square root keeps it visible.
  return Math.sqrt(Math.min(1, peak));
}

export class LinePicture {
  constructor(canvas, phone) {
    this.canvas = canvas;
    this.phone = phone;
    this.history = new LineHistory();
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.lastPoint = 0;
    this.lastDraw = 0;
    this.fault = null;
    this.buffer = null;
    this.starvations = 0;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (this.colours = null));
    phone.addEventListener("measured", ({ detail }) => {
      this.buffer = detail.jitter_buffer_ms;
      if (detail.newly_concealed > 0) this.fault = "concealed";
    });
    phone.addEventListener("line", () => {
      const { starvations } = phone.line;
      if (starvations > this.starvations) this.fault = "gap";
      this.starvations = starvations;
    });
  }

  clear() {
    this.history.clear();
    this.buffer = this.fault = null;
    this.starvations = 0;
  }

  /** Called for every picture while there is a call. */
  tick() {
    const time = now();
    if (time - this.lastPoint >= STEP_MS) {
      const { voice, microphone } = this.phone.sound.peaks;
      this.history.add({ time, voice, microphone: this.phone.heard ? microphone : 0, buffer: this.buffer, fault: this.fault });
      this.fault = null;
      this.lastPoint = time;
    }
    if (this.still.matches && time - this.lastDraw < STILL_EVERY_MS) return;
    this.lastDraw = time;
    this.draw(time);
  }

  #colour(name) {
    if (!this.colours) {
      const style = getComputedStyle(document.documentElement);
      const keys = ["plot-voice", "plot-microphone", "plot-buffer", "plot-fault", "line", "soft", "tint"];
      this.colours = Object.fromEntries(keys.map((key) => [key, style.getPropertyValue(`--${key}`).trim()]));
    }
    return this.colours[name];
  }

  draw(time) {
    const { canvas } = this;
    const scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (!width || !height) return;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = `12px ${getComputedStyle(canvas).fontFamily}`;
    const x = (at) => width - ((time - at) / SPAN_MS) * width;
    const lane = height / 3;
    this.#signal(pen, "voice", "Voice", this.#colour("plot-voice"), 0, lane - 8, width, x);
    this.#signal(pen, "microphone", "You", this.#colour("plot-microphone"), lane, lane - 8, width, x);
    this.#bufferLane(pen, lane * 2, lane - 2, width, x);
    this.#faults(pen, lane * 3 - 2, x);
  }

  #title(pen, text, top, right = "") {
    pen.fillStyle = this.#colour("soft");
    pen.textAlign = "left";
    pen.fillText(text, 0, top + 12);
    if (!right) return;
    pen.textAlign = "right";
    pen.fillText(right, this.canvas.clientWidth, top + 12);
  }

  #signal(pen, key, title, colour, top, height, width, x) {
    this.#title(pen, title, top);
    const middle = top + 18 + (height - 18) / 2;
    const reach = (height - 20) / 2;
    pen.fillStyle = this.#colour("line");
    pen.fillRect(0, middle - 0.5, width, 1);
    const points = this.history.points;
    if (points.length < 2) return;
    pen.beginPath();
    pen.moveTo(x(points[0].time), middle);
    for (const point of points) pen.lineTo(x(point.time), middle - shown(point[key]) * reach);
    for (const point of [...points].reverse()) pen.lineTo(x(point.time), middle + shown(point[key]) * reach);
    pen.closePath();
    pen.fillStyle = colour;
    pen.fill();
  }

  #bufferLane(pen, top, height, width, x) {
    const points = this.history.points.filter((point) => point.buffer !== null);
    const most = points.reduce((high, point) => Math.max(high, point.buffer), 0);
    const full = Math.max(LEAST_BUFFER_MS, Math.ceil(most / 100) * 100);
    this.#title(pen, "Jitter buffer", top, `${full} ms`);
    const bottom = top + height;
    const reach = height - 20;
    pen.strokeStyle = this.#colour("line");
    pen.lineWidth = 1;
    pen.setLineDash([3, 4]);
    pen.beginPath();
    pen.moveTo(0, bottom - reach + 0.5);
    pen.lineTo(width, bottom - reach + 0.5);
    pen.stroke();
    pen.setLineDash([]);
    pen.beginPath();
    pen.moveTo(0, bottom - 0.5);
    pen.lineTo(width, bottom - 0.5);
    pen.stroke();
    if (points.length < 2) return;
    const y = (level) => bottom - 1 - (level / full) * reach;
    pen.beginPath();
    points.forEach((point, i) => pen[i ? "lineTo" : "moveTo"](x(point.time), y(point.buffer)));
    pen.strokeStyle = this.#colour("plot-buffer");
    pen.lineWidth = 1.6;
    pen.lineJoin = "round";
    pen.stroke();
    pen.lineTo(x(points.at(-1).time), bottom - 1);
    pen.lineTo(x(points[0].time), bottom - 1);
    pen.closePath();
    pen.globalAlpha = 0.12;
    pen.fillStyle = this.#colour("plot-buffer");
    pen.fill();
    pen.globalAlpha = 1;
  }

  #faults(pen, bottom, x) {
    pen.fillStyle = this.#colour("plot-fault");
    for (const point of this.history.points) {
      if (!point.fault) continue;
      const at = x(point.time);
      pen.globalAlpha = 0.35;
      pen.fillRect(at - 0.75, 18, 1.5, bottom - 18);
      pen.globalAlpha = 1;
      pen.beginPath();
      if (point.fault === "gap") pen.rect(at - 3.5, 14, 7, 7);
      else pen.arc(at, 18, 3.5, 0, Math.PI * 2);
      pen.fill();
    }
  }
}
