// One episode, live or replayed: score line, the game's own drawing, the list of turns, the replay bar.
// chart.js is imported here, although only games use it, so that it is fetched with everything else.
import "../chart.js";
import { ask, badge, crest, dropSeat, h, icon, keptSeat, list, many, mayStop, moment, put, seatClass, set, style, text } from "../dom.js";
import { Feed } from "../stream/feed.js";
import { over } from "../stream/reduce.js";
import { Replay } from "../stream/replay.js";
import { tabCard } from "../parts/tabs.js";
import { hasThoughts, thoughts, warnings } from "./thoughts.js";
import { Thinking } from "./thinking.js";
import { Timeline } from "../stream/timeline.js";

style(import.meta.url); // not awaited: the connection opens meanwhile

const MAX_TURNS = 25; // in the page at a time
const MAX_BUILT = 8; // turns built in one frame
const SPOKEN_MS = 900; // between two lines for a screen reader

class Watch extends HTMLElement {
  connectedCallback() {
    const kept = keptSeat();
    this.token = this.episode ? sessionStorage.getItem(`seat:${this.episode}`) || (kept.id === this.episode ? kept.token : null) : null;
    this.wanted = this.seq ?? null;
    this.log = h("div.sr", { role: "log", "aria-live": "polite", "aria-label": "Commentary" });
    this.place = h("div.place", null, h("p.wait.dim", null, "Connecting…"));
    this.append(this.place, this.log);
    if (this.token) this.app.need("episode/seat");
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
    this.place.replaceChildren((await this.app.need("pages/pages")).noEpisode(this.episode));
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
    const start = await this.app.need("pages/start");
    if (!start) this.home = false;
    else if (this.home) this.place.replaceChildren(start.home(this.app));
  }

  take(events) {
    if (!events.length) return true;
    const id = events[0].episode_id;
    if (!this.episode && (sessionStorage.getItem(`seat:${id}`) || keptSeat().id === id)) { // one's own game: back to the seat
      if (this.app.shown === this) this.app.go(`/e/${id}`, true);
      return true;
    }
    if (!this.timeline || this.timeline.id !== id) this.begin(id);
    return this.timeline.push(events);
  }

  clear() {
    this.replay?.close();
    this.chair?.close();
    this.mind?.close();
    if (this.timeline) this.timeline.onchange = () => {};
    this.replay = this.chair = this.mind = null;
  }

  begin(id) {
    this.clear();
    this.home = false;
    const timeline = new Timeline(id, this.token);
    Object.assign(this, { timeline, draw: null, from: null, lastLine: 0, revealed: false, thinking: false, filter: null });
    this.replay = new Replay(timeline, { say: (text) => this.app.toast(text), speak: (url) => this.app.speak(url), share: async (...moment) => (await this.app.need("episode/share"))?.openShare(...moment), branch: async () => (await this.app.need("episode/branch"))?.openBranch(this.app, timeline) });
    timeline.onchange = () => this.paint();
    timeline.onevent = (event) => this.heard(event);
    this.score = h("div.card.score", { role: "group", "aria-label": "Score" });
    this.caption = h("p.caption");
    this.meta = h("div.meta");
    this.crowd = h("span.dim.num");
    this.app.need("episode/audience").then((part) => part?.audience(this.crowd, id, () => this.timeline === timeline && this.isConnected && timeline.live.status !== "ended" && timeline.live.status !== "failed"));
    this.stage = h("div.stage");
    this.turns = h("ol.turns");
    this.scroller = h("div.scroller", null, this.turns);
    this.older = h("button.more", { hidden: true, onclick: () => this.page(-1) }, "Earlier");
    this.newer = h("button.more", { hidden: true, onclick: () => this.page(1) }, "Later");
    this.filters = h("div.seg.filters", { role: "group", "aria-label": "Show" });
    this.mind = new Thinking(timeline);
    this.talk = h("div.talk", null, this.filters, this.older, this.scroller, this.newer, this.mind.words);
    this.turns.addEventListener("keydown", (event) => this.walk(event));
    this.tabs = tabCard("About this episode");
    this.column = h("div.col.three", null, this.tabs.node);
    this.end = h("div.endcard", { hidden: true });
    this.tabs.node.hidden = Boolean(this.token); // until the seat has its place above them
    document.body.classList.toggle("seated", Boolean(this.token)); // the seat itself loads later
    if (this.token) this.sit(timeline);
    this.top = h("div.top", null, this.meta, this.score);
    this.place.replaceChildren(h("div.match", null, this.top, this.stage, this.replay.node));
  }

  async sit(timeline) {
    const seat = await this.app.need("episode/seat");
    this.tabs.node.hidden = false;
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
      this.announce(lineOf(timeline.live), event.type !== "commentary");
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

  // The turns of the open tab and filter. The newest one waits for its commentary, so that it does not grow afterwards.
  listed({ turns, adapter }) {
    const { thinking, filter } = this;
    const silent = adapter.say || !turns.some((entry) => entry.text);
    return turns.filter(thinking ? hasThoughts : (entry) => entry.acts && (entry.text || silent) && (!filter || entry.kind === filter));
  }

  page(by) {
    const count = this.listed(this.timeline.shown).length;
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
    const arriving = this.wanted !== null && this.wanted <= this.feed.caught;
    if (!state.game || arriving || (state === timeline.live && !timeline.following)) return; // the moment, not the way to it
    if (!this.draw) {
      this.lay(state);
      document.title = `${state.names.join(" v ")} · kibitz`;
    }
    this.drawScore(state);
    this.drawMeta(state);
    put(this.caption, lineOf(state));
    this.drawEnd(state);
    this.mind.draw();
    this.later();
    this.replay.draw();
    this.chair?.draw();
    this.remember();
    if (over(timeline.live) && !this.revealed) this.finish();
  }

  // The game's page places the caption and the card at the end, and adds tabs; without one they stand above the tabs.
  lay({ adapter }) {
    const { mount, heading, unit, filters } = adapter;
    const mode = (thinking) => () => { if (this.thinking !== thinking) { this.thinking = thinking; this.later(); } };
    this.tabs.add(heading || "Commentary", this.talk, mode(false));
    set(this.turns, "aria-label", heading || `${unit[0].toUpperCase()}${unit.slice(1)} by ${unit}`);
    this.draw = mount ? mount(this.stage, { caption: this.caption, end: this.end, tab: (name, node) => this.tabs.add(name, node), say: (line) => this.app.toast(line) }) : () => {};
    this.tabs.add("Thinking", this.talk, mode(true));
    if (!this.caption.isConnected) this.top.append(this.caption);
    if (!this.end.isConnected) this.column.prepend(this.end);
    this.stage.append(this.column);
    this.stage.classList.toggle("bare", !mount);
    this.talk.classList.toggle("chat", Boolean(adapter.say));
    this.filters.hidden = !filters;
    if (filters) this.filters.append(...[["All", null], ...Object.entries(filters)].map(([name, kind]) => h("button", { "aria-pressed": String(!kind), onclick: ({ currentTarget }) => {
      for (const one of this.filters.children) set(one, "aria-pressed", String(one === currentTarget));
      Object.assign(this, { filter: kind, from: null });
      this.later();
    } }, name)));
  }

  // the arrow keys move through the list, which is one tab stop
  walk(event) {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const all = [...this.turns.querySelectorAll(".at")];
    const next = by && all[all.indexOf(event.target) + by];
    if (!next || !all.includes(event.target)) return;
    event.preventDefault();
    for (const one of all) set(one, "tabindex", one === next ? 0 : -1);
    next.focus();
  }

  async drawEnd(state) {
    const stamp = over(state) ? moment(state) : "";
    if (stamp === this.endStamp) return;
    this.endStamp = stamp;
    const part = stamp && (await this.app.need("episode/end"));
    if (this.endStamp !== stamp) return;
    this.end.replaceChildren(...(part ? part.endCard(this.app, state, (seq) => this.replay.go(seq)) : []));
    this.end.hidden = !part;
  }

  finish() {
    this.revealed = true;
    dropSeat(this.timeline.id);
    this.app.showGame();
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
      h("div.who", null, one.by && crest(one.name, one.seat), badge(one.seat), text("b", one.name), one.active && h("span.turnmark", { title: "to play" }, "◂"), this.mind.spots[one.seat]), text("div.main.num", one.main), h("div.sub", null, text("span", one.sub), one.by && text("span", one.by)));
    this.score.replaceChildren(side(board.sides[0]), h("div.now", null, board.now.slice(0, 1).map((one) => text("span.num.need", one)), h("span.tags", null, board.now.slice(1).map((one) => text("span.num.dim", one)), board.tags.map((tag) => text("span.tag", tag)))), side(board.sides[1]));
  }

  drawMeta(state) {
    const { live } = this.timeline;
    const stamp = `${live.status}.${state.status}.${state.spent.fallbacks}.${state.spent.tokens}.${state.id}`;
    if (stamp === this.metaStamp) return;
    this.metaStamp = stamp;
    const { spent, about } = state;
    const words = { running: "In play", ended: "Finished", failed: live.failed?.kind === "error" ? "Failed" : "Stopped", waiting: "" }[live.status];
    const facts = [about.eval_pack_id && about.eval_pack_id !== "default" && `${about.eval_pack_id} pack`, about.open && Object.values(state.private).some((own) => Object.keys(own).length) && "both hands shown", spent.tokens && `${spent.tokens.toLocaleString()} tokens`, spent.money && `$${spent.money.toFixed(4)}`, spent.fallbacks && many(spent.fallbacks, "fallback")].filter(Boolean);
    const from = about.branched_from;
    const origin = from?.episode_id || from;
    this.meta.replaceChildren(...[h("span", { class: `status ${live.status}` }, words), text("span.title", state.adapter.title), h("span.dim.facts", null, facts.map((one, i) => text("span", i ? `· ${one}` : one))),
      origin && h("a", { href: `/compare?a=${origin}&b=${state.id}` }, "compare with the original"), this.crowd, h("span.gap"),
      live.status === "running" ? (this.token || mayStop(live.id)) && h("button.stop", { onclick: () => this.stop() }, icon("stop"), "Stop") : h("button.primary", { onclick: async () => (await this.app.need("pages/start"))?.openStart(this.app) }, "New episode")].filter(Boolean));
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
      requestAnimationFrame((now) => {
        this.drawing = false;
        if (!this.isConnected) return;
        if (now === this.slidBack) this.later(); // one change of the list per frame
        else this.drawTurns(this.timeline.shown);
      });
    });
  }

  drawTurns(state) {
    const { thinking } = this;
    this.filters.hidden = thinking || !state.adapter.filters;
    const all = this.listed(state);
    const count = all.length;
    const from = Math.min(this.from ?? Infinity, Math.max(0, count - MAX_TURNS));
    const shown = all.slice(from, from + MAX_TURNS);
    const up = state.adapter.newestFirst;
    if (up) shown.reverse();
    let built = 0;
    const { scroller } = this;
    const atEnd = !up && scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;
    const top = up && [...this.turns.children].find((one) => one.stamp); // the first that has its height
    const was = top && top.offsetTop;
    list(this.turns, shown, (entry) => entry.turn, () => h("li.turn"), (node, entry) => {
      const stamp = `${thinking}.${state.id}.${entry.seq}.${entry.decisions.length}.${entry.hints.length}.${entry.decisions.some((d) => d.reason)}.${state.adapter.say ? moment({ ...state, turn: 0 }) : ""}`;
      if (node.stamp === stamp) return;
      built += 1;
      if (built > MAX_BUILT) return;
      node.stamp = stamp;
      this.drawTurn(node, entry, state);
    });
    if (built > MAX_BUILT) this.later();
    const newest = up ? this.turns.firstChild : this.turns.lastChild;
    for (const node of this.turns.children) node.classList.toggle("latest", node === newest && this.from === null);
    const reach = [...this.turns.querySelectorAll(".at")];
    if (!reach.some((one) => one === document.activeElement)) reach.forEach((one, i) => set(one, "tabindex", i === (up ? 0 : reach.length - 1) ? 0 : -1));
    if (!up && atEnd) scroller.scrollTop = scroller.scrollHeight;
    if (top && top.isConnected && top.offsetTop > was) this.slide(top.offsetTop - was);
    this.older.hidden = from === 0;
    this.newer.hidden = this.from === null;
    // earlier turns are below when the newest comes first
    set(this.talk, "data-up", Boolean(up));
  }

  // A new turn at the top moves nothing that is being read: the list first stays where it is, then scrolls to the new turn,
  // unless the reader has scrolled down.
  slide(by) {
    const { scroller, turns } = this;
    const reading = scroller.scrollTop > 60 && !this.slides;
    const to = scroller.scrollTop + by;
    turns.style.minHeight = `${scroller.clientHeight + to}px`; // a short list has no room to scroll
    scroller.scrollTop = to;
    if (reading) return;
    this.slides = (this.slides || 0) + 1;
    const mine = this.slides;
    requestAnimationFrame(() => requestAnimationFrame((now) => {
      if (this.slides !== mine) return;
      Object.assign(this, { slides: 0, slidBack: now });
      scroller.scrollTop = 0;
      turns.style.minHeight = "";
    }));
  }

  drawTurn(node, entry, state) {
    const { adapter, mine } = state;
    const go = h("button.at.num", { title: "Go to this moment", "aria-label": `Go to ${adapter.unit} ${entry.label}`, tabindex: -1, onclick: () => this.replay.go(entry.seq) }, entry.label);
    if (this.thinking) {
      node.className = "turn";
      return node.replaceChildren(h("div.mark", null, go), h("div.body", null, thoughts(entry, mine, adapter.inWords && ((one) => adapter.inWords(one, state, entry)))));
    }
    const said = adapter.say?.(entry, state);
    node.className = `turn ${entry.kind}${entry.over ? " over" : ""}${said ? ` by${entry.seat}` : ""}`;
    return node.replaceChildren(...[adapter.after?.(entry, state), h("div.mark", null, go, !said && entry.sign && h("span", { class: `chip ${entry.kind}` }, entry.sign)),
      h("div.body", null, said || text("p", plainText(entry)), adapter.chosen?.(entry) && text("span.tag", adapter.chosen(entry)), warnings(entry, mine))].filter(Boolean));
  }
}

// The verdict or the latest commentary, in words that address the player at this page where the game's page has them.
const lineOf = (state) => state.adapter.verdict?.(state)?.head || (!over(state) && state.adapter.caption?.(state)) || state.caption;

// The commentary without its label, which the page shows beside it. Only a game's own label ("3.4") can open a line;
// the number of a turn may open one by chance ("2 against 5").
function plainText({ label, turn, text: line }) {
  return label !== String(turn + 1) && line.startsWith(`${label} `) ? line.slice(label.length + 1) : line;
}

customElements.define("kibitz-watch", Watch);
