// Spoken commentary. Nothing sounds before somebody has asked for it; captions are always there.
let on = false;
let queue = [];
let playing = null;

export const speaking = () => on;

export function toggle() {
  on = !on;
  if (!on) {
    queue = [];
    if (playing) playing.pause();
    playing = null;
  }
  return on;
}

// an audio address of this server only; when lines come faster than they can be said, the newest is said
export function speak(url) {
  if (!on || !url || !url.startsWith("/audio/")) return;
  queue = [url];
  if (!playing) next();
}

function next() {
  const url = queue.shift();
  if (!url || !on) {
    playing = null;
    return;
  }
  playing = new Audio(url);
  playing.onended = next;
  playing.onerror = next;
  playing.play().catch(next);
}
