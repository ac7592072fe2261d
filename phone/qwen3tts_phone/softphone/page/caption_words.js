// A caption cut into words for showing, and into sentences for reading aloud. Pure.

/** How a word stands: "heard", "waiting" (will be), "unheard" (never was). */
export function wordState(caption, start) {
  if (caption.done) return start < caption.heardPoints ? "heard" : "unheard";
  return start < caption.lit ? "heard" : "waiting";
}

const SPACE = /\s/u;
// Scripts that write no spaces between words: one sign is one piece.
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u;

/** [start, end, text] of each word, in code points, spaces with the word before. A word that was cut by
 *  an interruption is split there, so that what was heard stays and the rest is struck through. */
export function pieces(caption) {
  const points = caption.points;
  let cut = caption.done && caption.heardPoints < points.length ? caption.heardPoints : -1;
  while (cut >= 0 && cut < points.length && SPACE.test(points[cut])) cut += 1;
  const found = [];
  let start = 0;
  let spaced = false;
  for (let i = 0; i < points.length; i++) {
    const space = SPACE.test(points[i]);
    const newWord = i > start && !space && (spaced || UNSPACED.test(points[i]));
    if (newWord || (i === cut && i > start)) {
      found.push([start, i, points.slice(start, i).join("")]);
      start = i;
    }
    spaced = space;
  }
  if (start < points.length) found.push([start, points.length, points.slice(start).join("")]);
  return found;
}

const SENTENCE_END = /[.!?…。！？]/u;

/** The end of the last sentence that lies wholly in points[from:to], or `from` where none does. */
export function sentenceEnd(points, from, to) {
  let end = from;
  for (let i = from; i < to; i++) {
    const last = i + 1 >= points.length || SPACE.test(points[i + 1]) || UNSPACED.test(points[i]);
    const wide = /[。！？]/u.test(points[i]);
    if (SENTENCE_END.test(points[i]) && (last || wide)) end = i + 1;
  }
  return end;
}
