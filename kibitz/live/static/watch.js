// One episode, live or replayed: score line, the game's own drawing, the list of turns, the replay bar.
// chart.js is imported here, although only games use it, so that it is fetched with everything else.
import "./chart.js";
import { ask, badge, called, h, icon, list, many, moment, put, seatClass, set, style, text } from "./dom.js";
import { Feed } from "./feed.js";
import { costOf, over } from "./reduce.js";
import { Replay } from "./replay.js";
import { Timeline } from "./timeline.js";

style(import.meta.url); // not awaited: the connection opens meanwhile

const MAX_TURNS = 25; // in the page at a time
const MAX_BUILT = 4; // turns built in one frame
const SPOKEN_MS = 900; // between two lines for a screen reader

class Watch extends HTMLElement {
  connectedCallback() {
    this.token = this.episode ? sessionStorage.getItem(`seat:${this.episode}`) : null;
    this.wanted = this.seq ?? null;
    this.log = h("div.sr", { role: "log", "aria-live": "polite", "aria-label": "Commentary" });
    this.place = h("div.place", null, h("p.wait.dim", null, "Connecting…"));
    this.append(this.place, this.log);
    if (this.token) this.app.need("seat");
    if (this.episode) this.check();
    this.connect();
  }

  disconnectedCallback() {
    this.feed.close();
    this.clear();
  }

  async check() {
    const { status } = await ask(`/episodes/${this.episode}${this.token ? `?seat_token=${this.token}` : ""}`);
    if (status !== 404 && status !== 422) return;
    this.feed.close();
    this.app.connection("gone");
    this.place.replaceChildren((await this.app.need("pages")).noEpisode(this.episode));
  }

  connect() {
    this.feed = new Feed({
      id: this.episode, token: this.token,
      since: () => (this.timeline && this.feed && this.timeline.id === this.feed.id ? this.timeline.expected - 1 : -1),
      take: (events) => this.take(events),
      report: (state, delay) => this.connection(state, delay),
    });
  }

  connection(state, delay) {
    const done = this.timeline && over(this.timeline.live);
    this.app.connection(done && state !== "reconnecting" ? "replay" : state, delay);
    if (state === "idle" && !this.timeline) this.showHome();
    // a server whose episodes only token holders may watch refuses the socket without saying why; this asks for the token
    if (state === "reconnecting" && !this.episode && !this.timeline && !this.home && !this.refused) this.refused = ask("/custom/status");
  }

  async showHome() {
    if (this.home) return;
    this.home = true;
    const start = await this.app.need("start");
    if (!start) this.home = false;
    else if (this.home) this.place.replaceChildren(start.home(this.app));
  }

  take(events) {
    if (!events.length) return true;
    const id = events[0].episode_id;
    if (!this.episode && sessionStorage.getItem(`seat:${id}`)) { // one's own game: back to the seat
      if (this.app.shown === this) this.app.go(`/e/${id}`, true);
      return true;
    }
    if (!this.timeline || this.timeline.id !== id) this.begin(id);
    return this.timeline.push(events);
  }

  clear() {
    this.replay?.close();
    this.chair?.close();
    if (this.timeline) this.timeline.onchange = () => {};
    this.replay = this.chair = null;
  }

  begin(id) {
    this.clear();
    this.home = false;
    const timeline = new Timeline(id, this.token);
    Object.assign(this, { timeline, draw: null, from: null, lastLine: 0, revealed: false });
    this.replay = new Replay(timeline, { say: (text) => this.app.toast(text), speak: (url) => this.app.speak(url), share: async (...moment) => (await this.app.need("share"))?.openShare(...moment), branch: async () => (await this.app.need("branch"))?.openBranch(this.app, timeline) });
    timeline.onchange = () => this.paint();
    timeline.onevent = (event) => this.heard(event);
    this.score = h("div.card.score", { role: "group", "aria-label": "Score" });
    this.caption = h("p.caption");
    this.meta = h("div.meta");
    this.crowd = h("span.dim.num");
    this.app.need("audience").then((part) => part?.audience(this.crowd, id, () => this.timeline === timeline && this.isConnected && timeline.live.status !== "ended" && timeline.live.status !== "failed"));
    this.stage = h("div.stage");
    this.turns = h("ol.turns");
    this.older = h("button.more", { onclick: () => this.page(-1) }, "Earlier");
    this.newer = h("button.more", { onclick: () => this.page(1) }, "Later");
    this.talk = h("section.card.talk", { "aria-label": "Turn by turn" }, h("h2", null, "Turn by turn"), this.older, this.turns, this.newer);
    this.column = h("div.col.three", null, this.talk);
    if (this.token) this.sit(timeline);
    this.place.replaceChildren(h("div.match", null, h("div.top", null, this.meta, this.score, this.caption), this.stage, this.replay.node));
  }

  async sit(timeline) {
    const seat = await this.app.need("seat");
    if (!seat || timeline !== this.timeline || !this.isConnected) return;
    this.chair = new seat.Seat(timeline, this.token, (seq) => seq > this.feed.caught);
    this.column.prepend(this.chair.node);
  }

  heard(event) {
    const { timeline } = this;
    const fresh = event.seq > this.feed.caught;
    if (event.type === "commentary" || event.type === "episode.ended") {
      const kept = event.payload.turn < timeline.live.about.branched_from?.turn; // a branch arrives with its prefix
      if (fresh && timeline.following && !kept) this.app.speak(event.payload.audio);
      this.announce(event.payload.text, event.type !== "commentary");
    }
    if (event.type === "episode.failed") this.announce(event.payload.reason, true);
  }

  // At most about one line per second, so that a screen reader can keep up.
  announce(line, always) {
    const now = performance.now();
    if (!line || (!always && now - this.lastLine < SPOKEN_MS)) return;
    this.lastLine = now;
    this.log.append(text("p", line));
    while (this.log.childElementCount > 20) this.log.firstChild.remove();
  }

  page(by) {
    const count = this.timeline.shown.turns.length;
    const from = this.from ?? Math.max(0, count - MAX_TURNS);
    const next = Math.max(0, from + by * MAX_TURNS);
    this.from = next >= count - MAX_TURNS ? null : next;
    this.paint();
  }

  paint() {
    const { timeline } = this;
    const state = timeline.shown;
    if (this.wanted !== null && timeline.last >= 0 && (timeline.last >= this.wanted || timeline.live.status !== "running")) {
      const seq = this.wanted;
      this.wanted = null;
      timeline.seek(seq);
      return;
    }
    if (!state.game) return;
    if (!this.draw) {
      const { mount } = state.adapter;
      this.draw = mount ? mount(this.stage) : () => {};
      this.stage.append(this.column);
      this.stage.classList.toggle("bare", !mount);
      this.talk.classList.toggle("chat", Boolean(state.adapter.say));
      const { heading, unit } = state.adapter;
      const title = heading || `${unit[0].toUpperCase()}${unit.slice(1)} by ${unit}`;
      put(this.talk.querySelector("h2"), title);
      set(this.talk, "aria-label", title);
      document.title = `${state.names.join(" v ")} · kibitz`;
    }
    this.drawScore(state);
    this.drawMeta(state);
    put(this.caption, state.adapter.verdict?.(state) || state.caption);
    this.later();
    this.replay.draw();
    this.chair?.draw();
    this.remember();
    if (over(timeline.live) && !this.revealed) this.finish();
  }

  finish() {
    this.revealed = true;
    this.connection(this.feed.state, null);
    this.timeline.reveal();
  }

  remember() {
    if (!this.episode && this.timeline.following) return;
    clearTimeout(this.addressTimer);
    const { replay } = this;
    this.addressTimer = setTimeout(() => { if (this.app.shown === this && location.pathname + location.search !== replay.address) history.replaceState(null, "", replay.address); }, 250);
  }

  drawScore(state) {
    const board = state.adapter.scoreboard?.(state);
    const stamp = JSON.stringify(board);
    if (!board || stamp === this.scoreStamp) return;
    this.scoreStamp = stamp;
    const side = (one) => h("div", { class: `side ${seatClass(one.seat)}${one.active ? " active" : ""}${one.won ? " won" : ""}` },
      h("div.who", null, badge(one.seat), text("b", one.name), one.active && h("span.turnmark", { title: "to play" }, "◂")), text("div.main.num", one.main), h("div.sub", null, text("span", one.sub), one.by && text("span", one.by)));
    this.score.replaceChildren(side(board.sides[0]), h("div.now", null, board.now.map((one, i) => text(i ? "span.num.dim" : "span.num.need", one)), h("span.tags", null, board.tags.map((tag) => text("span.tag", tag)))), side(board.sides[1]));
  }

  drawMeta(state) {
    const { live } = this.timeline;
    const stamp = `${live.status}.${state.status}.${state.spent.fallbacks}.${state.spent.tokens}.${state.id}`;
    if (stamp === this.metaStamp) return;
    this.metaStamp = stamp;
    const { spent, about } = state;
    const words = { running: "In play", ended: "Finished", failed: live.failed?.kind === "error" ? "Failed" : "Stopped", waiting: "" }[live.status];
    const facts = [about.eval_pack_id && about.eval_pack_id !== "default" && `${about.eval_pack_id} pack`, about.open && "open table", spent.tokens && `${spent.tokens.toLocaleString()} tokens`, spent.money && `$${spent.money.toFixed(4)}`, spent.fallbacks && many(spent.fallbacks, "fallback")].filter(Boolean);
    const from = about.branched_from;
    const origin = from?.episode_id || from;
    this.meta.replaceChildren(...[h("span", { class: `status ${live.status}` }, words), text("span", state.adapter.title), h("span.dim", null, facts.join(" · ")),
      origin && h("a", { href: `/compare?a=${origin}&b=${state.id}` }, "compare with the original"), this.crowd, h("span.gap"),
      live.status === "running" ? (this.token || sessionStorage.getItem(`started:${live.id}`)) && h("button.stop", { onclick: () => this.stop() }, icon("stop"), "Stop") : h("button.primary", { onclick: async () => (await this.app.need("start"))?.openStart(this.app) }, "New episode")].filter(Boolean));
  }

  async stop() {
    const { error } = await ask("/custom/stop_episode", { episode_id: this.timeline.id });
    if (error) this.app.toast(error);
  }

  // Score, game and list are drawn in a frame each, and after a jump the list in several, so that no frame is long.
  later() {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.draw?.(this.timeline.shown);
      requestAnimationFrame(() => {
        this.drawing = false;
        if (this.isConnected) this.drawTurns(this.timeline.shown);
      });
    });
  }

  drawTurns(state) {
    const count = state.turns.length;
    const from = Math.min(this.from ?? Infinity, Math.max(0, count - MAX_TURNS));
    const shown = state.turns.slice(from, from + MAX_TURNS);
    const up = state.adapter.newestFirst;
    if (up) shown.reverse();
    let built = 0;
    const atEnd = !up && this.turns.scrollHeight - this.turns.scrollTop - this.turns.clientHeight < 60;
    list(this.turns, shown, (entry) => entry.turn, () => h("li.turn"), (node, entry) => {
      const stamp = `${state.id}.${entry.seq}.${entry.decisions.length}.${entry.hints.length}.${entry.decisions.some((d) => d.reason)}.${state.adapter.say ? moment({ ...state, turn: 0 }) : ""}`;
      if (node.stamp === stamp) return;
      built += 1;
      if (built > MAX_BUILT) return;
      node.stamp = stamp;
      this.drawTurn(node, entry, state);
    });
    if (built > MAX_BUILT) this.later();
    const newest = up ? this.turns.firstChild : this.turns.lastChild;
    for (const node of this.turns.children) node.classList.toggle("latest", node === newest && this.from === null);
    if (!up && atEnd) this.turns.scrollTop = this.turns.scrollHeight;
    this.older.hidden = from === 0;
    this.newer.hidden = this.from === null;
    // earlier turns are below when the newest comes first
    set(this.talk, "data-up", Boolean(up));
  }

  drawTurn(node, entry, state) {
    const go = h("button.at.num", { title: "Go to this moment", "aria-label": `Go to ${state.adapter.unit} ${entry.label}`, onclick: () => this.replay.go(entry.seq) }, entry.label);
    const said = state.adapter.say?.(entry, state);
    node.className = `turn ${entry.kind}${entry.over ? " over" : ""}${said ? ` by${entry.seat}` : ""}`;
    const notes = [...entry.hints.map((hint) => hintNote(hint)), ...entry.decisions.map((one) => thought(one, said, one.seat === state.mine))];
    const calls = entry.decisions.flatMap((one) => one.calls.map((call) => [one.seat, call]));
    if (calls.length) notes.push(h("details.calls", null, h("summary", null, "Tool calls"), h("ul", null, calls.map(([seat, call]) => h("li", null, badge(seat), " ", h("code", null, `${call.tool}(${Object.entries(call.arguments || {}).map(([k, v]) => `${k}=${JSON.stringify(v)}`).join(", ")})`))))));
    node.replaceChildren(h("div.mark", null, go, !said && entry.sign && h("span", { class: `chip ${entry.kind}` }, entry.sign)),
      h("div.body", null, said || text("p", plainText(entry)), notes));
  }
}

// The commentary without its label, which the page shows beside it. Only a game's own label ("3.4") can open a line;
// the number of a turn may open one by chance ("2 against 5").
function plainText({ label, turn, text: line }) {
  return label !== String(turn + 1) && line.startsWith(`${label} `) ? line.slice(label.length + 1) : line;
}

const cost = ({ usage, latency }) => {
  const { tokens, money } = costOf(usage);
  return [tokens && `${tokens} tokens`, money && `$${money.toFixed(5)}`, latency >= 0.05 && `${latency.toFixed(1)} s`].filter(Boolean).join(" · ");
};

// a model's failures in plain words, by the kind that the record names
const FAILURES = {
  transport: "the model could not be reached", refused: "the provider refused the question", empty: "the model’s answer was empty", not_json: "the model’s answer was not readable",
  wrong_shape: "the model’s answer had the wrong form", illegal: "the model’s move was not legal", breaker: "the provider has failed too often", budget: "the budget is used up",
};
const whyFallback = (why) => FAILURES[String(why).match(/^NoAnswer: (\w+)/)?.[1]] || why;

// A note beside a turn: the seat, the words, a fallback with its cause, the cost and the reason.
const note = (cls, one, words, spent) => h("div", { class: `note ${cls}` }, badge(one.seat), h("span", null, words), one.fallback && h("span.fallback", null, "⚠ The fallback played this turn: ", whyFallback(one.fallback)),
  spent && h("span.cost.num", null, spent), one.reason && text("blockquote", one.reason));

function hintNote(hint) {
  const sure = hint.confidence === null || hint.confidence === undefined ? "" : ` (${Math.round(hint.confidence * 100)}% sure)`;
  return note("hint", hint, hint.text ? `Hint: ${hint.text}${sure}` : "A hint, private to this seat until the end", [called(hint.source), cost(hint)].filter(Boolean).join(" · "));
}

function thought(one, said, mine) {
  const given = one.calls.flatMap((call) => Object.entries(call.arguments || {})).map(([name, x]) => `${name} ${String(x).replaceAll("_", " ")}`);
  const spent = cost(one);
  if (said && !one.reason && !one.fallback && !spent) return null;
  return note("", one, [h("b", null, called(one.source, mine)), ` ${given.join(", ") || (said ? "" : one.text)}`], spent);
}

customElements.define("kibitz-watch", Watch);
