// The events of one episode that are kept in memory, the newest state, and the state that is shown.
import { signed } from "../dom.js";
import { fetchGame, fresh, reduce } from "./reduce.js";

const MAX_EVENTS = 2400; // in memory; older events are read again from the server when needed
const MAX_STOPS = 12000;
const PAINT_MS = 120; // between two drawings while events stream in
const SLICE_MS = 8; // of work between two frames

const frame = () => new Promise((done) => {
  if (document.hidden) setTimeout(done, 50);
  else requestAnimationFrame(done);
});

export class Timeline {
  constructor(id, token) {
    const mine = token ? Number(token[0]) : undefined; // a token begins with the number of its seat
    Object.assign(this, { id, token, mine, log: [], base: 0, live: fresh(mine), following: true, queue: [], pumping: false, job: 0, stops: [], goal: null, drawn: 0, timer: 0 });
    this.shown = this.live;
    this.onchange = () => {};
    this.onevent = () => {};
  }

  get last() { return this.base + this.log.length - 1; }
  get expected() { return this.last + this.queue.length + 1; }

  // Takes events in order. Returns false if one is missing; the feed then asks again from there.
  push(events) {
    for (const event of events) {
      if (event.seq < this.expected) continue;
      if (event.seq > this.expected) return false;
      this.queue.push(event);
    }
    if (this.queue.length && !this.pumping) this.pump();
    return true;
  }

  async pump() {
    this.pumping = true;
    while (this.queue.length) {
      const first = this.queue[0];
      if (first.type === "episode.started") await fetchGame(first.payload.game);
      const until = performance.now() + SLICE_MS;
      let taken = 0;
      while (taken < this.queue.length && performance.now() < until) this.take(this.queue[taken++]);
      this.queue.splice(0, taken);
      await frame();
      this.changed();
    }
    this.pumping = false;
  }

  // Draws at once, but at most every PAINT_MS: events that arrive together are drawn together.
  changed() {
    const wait = this.drawn + PAINT_MS - performance.now();
    if (this.timer) return;
    if (wait <= 0) {
      this.drawn = performance.now();
      this.onchange();
    } else {
      this.timer = setTimeout(() => {
        this.timer = 0;
        requestAnimationFrame(() => { this.drawn = performance.now(); this.onchange(); });
      }, wait);
    }
  }

  take(event) {
    this.log.push(event);
    if (this.log.length > MAX_EVENTS) this.base += this.log.splice(0, MAX_EVENTS / 6).length;
    this.mark(event);
    reduce(this.live, event);
    this.onevent(event);
  }

  // Remembers where a step forward or back stops: after each turn and its commentary.
  mark({ type, seq }) {
    if (type === "commentary" && this.stops[this.stops.length - 1] === seq - 1) this.stops[this.stops.length - 1] = seq;
    else if (!["hint", "turn.requested", "decision", "commentary"].includes(type)) this.stops.push(seq);
    if (this.stops.length > MAX_STOPS) this.stops.splice(0, MAX_STOPS / 4);
  }

  follow() {
    this.job += 1;
    Object.assign(this, { following: true, goal: null, shown: this.live });
    this.onchange();
  }

  // Shows the state after event `seq`. States are rebuilt from events; going back starts from the first one.
  async seek(seq) {
    const goal = Math.max(0, Math.min(seq, this.last));
    const job = (this.job += 1);
    this.following = false;
    this.goal = goal;
    let state = this.shown !== this.live && this.shown.seq <= goal ? this.shown : fresh(this.mine);
    let older = [];
    if (state.seq + 1 < this.base) older = await this.read(state.seq, Math.min(goal, this.base - 1));
    if (job !== this.job) return;
    const events = (seq) => (seq < this.base ? older.shift() : this.log[seq - this.base]);
    if (!(await replay(state, goal, events, () => job === this.job))) return;
    this.shown = state;
    this.onchange();
  }

  stop(direction) {
    const at = this.goal ?? this.shown.seq;
    const { stops } = this;
    if (direction > 0) return stops.find((seq) => seq > at) ?? this.last;
    for (let i = stops.length - 1; i >= 0; i--) if (stops[i] < at) return stops[i];
    return 0;
  }

  async read(since, until) {
    const token = this.token ? `&seat_token=${encodeURIComponent(this.token)}` : "";
    const answer = await fetch(signed(`/episodes/${this.id}/events?since=${since}${token}`));
    const found = [];
    for (const line of (await answer.text()).split("\n")) {
      if (!line) continue;
      const event = JSON.parse(line);
      if (event.seq > until) break;
      found.push(event);
    }
    return found;
  }

  // After the end nothing is private: reads the events again if any were shown without their private part.
  async reveal() {
    if (this.base > 0 || !this.log.some((event) => withheld(event))) return;
    const events = await this.read(-1, Infinity).catch(() => []);
    if (events.length !== this.log.length || events.every((event, i) => seatsShown(event) === seatsShown(this.log[i]))) return;
    const live = fresh(this.mine);
    await replay(live, events.length - 1, (seq) => events[seq], () => true);
    this.log = events;
    this.live = live;
    if (this.following) this.shown = live;
    else await this.seek(this.goal);
    this.onchange();
  }
}

// Brings `state` up to event `goal`, in slices, so that no frame has to wait for the work.
async function replay(state, goal, events, wanted) {
  let until = performance.now() + SLICE_MS;
  let event;
  while (state.seq < goal && (event = events(state.seq + 1))) {
    reduce(state, event);
    if (performance.now() < until) continue;
    await frame();
    if (!wanted()) return false;
    until = performance.now() + SLICE_MS;
  }
  return true;
}

const seatsShown = ({ payload }) => Object.keys(payload.private || {}).length;
const withheld = ({ type, payload }) =>
  type === "step" ? Boolean(payload.private) && !seatsShown({ payload }) : (type === "decision" || type === "hint") && !payload.private?.[payload.seat];
