// Spoken commentary, fetched when somebody asks for it. Captions are always there.
let waiting = null;
let playing = null;

// an audio address of this server only; when lines come faster than they can be said, the newest is said
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
  playing = waiting && new Audio(waiting);
  waiting = null;
  if (!playing) return;
  const mine = playing;
  const done = () => { if (playing === mine) next(); };
  playing.onended = playing.onerror = done;
  playing.play().catch(done);
}
