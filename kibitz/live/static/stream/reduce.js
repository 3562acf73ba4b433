// The one reducer, for live events and for replay: turns events into the state that is drawn. It changes `state`.
import { called, capital, styled, words } from "../dom.js";

const MAX_TURNS = 600; // kept for the list of turns
const MAX_MOMENTS = 120;
const games = new Map();
const PLAIN = { unit: "turn", begin: () => ({}), step: () => {} }; // what a game's page may omit

// The server offers `games/NAME.js` for every name: the game's own page, or generic.js. A page that cannot be
// loaded is replaced by generic.js too.
export async function fetchGame(name) {
  if (games.has(name)) return;
  const file = /^[a-z0-9_]{1,64}$/.test(name) ? `../games/${name}.js` : "../episode/generic.js";
  const adapter = await import(file).catch(() => import("../episode/generic.js")).catch(() => ({}));
  await styled();
  games.set(name, { ...PLAIN, title: capital(words(name)), ...adapter });
}

export const over = ({ status }) => status === "ended" || status === "failed";

// `mine` is the seat of the person at this page, if any
export const fresh = (mine) => ({
  seq: -1, id: "", game: "", mine, players: ["", ""], names: ["", ""], cast: {}, about: {}, frame: {}, private: {}, status: "waiting",
  turns: [], turn: -1, moments: [], caption: "", audio: null, memory: null, adapter: PLAIN,
  asked: null, ended: null, failed: null, review: {}, spent: { tokens: 0, money: 0, fallbacks: 0 },
});

function turnOf(state, number, seq) {
  let entry = state.turns[state.turns.length - 1];
  if (entry?.turn === number) return entry;
  entry = { turn: number, seq, label: "…", sign: "", kind: "", text: "", decisions: [], hints: [], moment: "" };
  state.turns.push(entry);
  if (state.turns.length > MAX_TURNS) state.turns.splice(0, MAX_TURNS / 4);
  return entry;
}

export function costOf(usage) {
  const { total_tokens: total, prompt_tokens: asked = 0, completion_tokens: answered = 0, cost, usd } = usage || {};
  return { tokens: total ?? asked + answered, money: cost ?? usd ?? 0 };
}

function count(state, payload) {
  const { spent } = state;
  const { tokens, money } = costOf(payload.usage);
  spent.tokens += tokens;
  spent.money += money;
  spent.fallbacks += payload.fallback ? 1 : 0;
}

// private values may change during an episode; each event carries those that did
function learn(state, given) {
  for (const [seat, { reward, ...values }] of Object.entries(given || {})) state.private = { ...state.private, [seat]: { ...state.private[seat], ...values } };
}

const kinds = {
  "episode.started"(state, p, event) {
    Object.assign(state, {
      id: event.episode_id, game: p.game, players: p.players, names: p.players.map((name, seat) => called(name, seat === state.mine)), cast: p.cast || {}, about: p.about || {}, frame: p.frame || {},
      private: { ...p.private }, status: "running", adapter: games.get(p.game) || PLAIN,
    });
    state.memory = state.adapter.begin(state);
  },
  hint(state, p, event) {
    const entry = turnOf(state, p.turn, event.seq);
    entry.hints.push({ seat: p.seat, source: p.source, latency: p.latency, usage: p.usage, fallback: p.fallback, ...p.private?.[p.seat] });
    entry.seq = event.seq;
    count(state, p);
  },
  // who is being asked; the choices are private to that seat
  "turn.requested"(state, p, event) {
    state.asked = { ...p.private?.[p.seat], seat: p.seat, turn: p.turn, seconds: p.seconds, seq: event.seq };
  },
  decision(state, p, event) {
    if (state.asked?.seat === p.seat) state.asked = null;
    const entry = turnOf(state, p.turn, event.seq);
    entry.decisions.push({
      seat: p.seat, act: p.act, text: p.text, calls: p.calls || [], source: p.source, latency: p.latency, usage: p.usage || {},
      fallback: p.fallback, reason: p.private?.[p.seat]?.reason || "",
    });
    entry.seq = event.seq;
    count(state, p);
  },
  step(state, p, event) {
    const before = state.frame;
    const entry = turnOf(state, p.turn, event.seq);
    state.frame = { ...before, ...p.frame };
    state.turn = p.turn;
    entry.seq = event.seq;
    entry.label = String(p.turn + 1);
    entry.acts = p.acts;
    // a reward is private to its seat unless the game publishes it
    entry.rewards = [0, 1].map((seat) => p.rewards?.[seat] ?? p.private?.[seat]?.reward ?? null);
    learn(state, p.private);
    state.adapter.step(state, before, entry);
    if (entry.moment) {
      state.moments.push({ seq: event.seq, label: entry.moment, at: entry.label, icon: entry.icon, sign: entry.sign, kind: entry.kind, text: "" });
      if (state.moments.length > MAX_MOMENTS) state.moments.shift();
    }
  },
  commentary(state, p, event) {
    Object.assign(state, { caption: p.text, audio: p.audio || null });
    if (state.turn < 0) return;
    const entry = turnOf(state, p.turn, event.seq);
    const last = state.moments[state.moments.length - 1];
    if (last?.seq === entry.seq) Object.assign(last, { seq: event.seq, text: p.text }); // a moment shows its own words, not those of the turn before
    entry.text = p.text;
    entry.seq = event.seq;
  },
  "episode.ended"(state, p) {
    Object.assign(state, { status: "ended", ended: p, frame: p.frame || state.frame, review: p.review || {}, caption: p.text || "", audio: p.audio || null });
    state.private = { ...state.private, ...p.private };
  },
  "episode.failed"(state, p) {
    Object.assign(state, { status: "failed", failed: p, frame: p.frame || state.frame, caption: p.reason || "" });
    state.private = { ...state.private, ...p.private };
  },
};

export function reduce(state, event) {
  if (event.seq <= state.seq) return state;
  state.seq = event.seq;
  if (kinds[event.type]) kinds[event.type](state, event.payload, event);
  return state;
}
