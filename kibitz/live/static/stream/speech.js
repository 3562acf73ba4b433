// Spoken commentary, loaded when the person turns it on. Captions are always shown.
import { signed } from "../dom.js";

let waiting = null;
let playing = null;

// Plays audio of this server only. When lines arrive faster than they can be spoken, only the newest one waits.
export function speak(url) {
  if (!url || !url.startsWith("/audio/")) return;
  waiting = url;
  if (!playing) next();
}

export function hush() {
  if (playing) playing.pause();
  waiting = playing = null;
}

function next() {
  playing = waiting && new Audio(signed(waiting));
  waiting = null;
  if (!playing) return;
  const mine = playing;
  const done = () => { if (playing === mine) next(); };
  playing.onended = playing.onerror = done;
  playing.play().catch(done);
}
