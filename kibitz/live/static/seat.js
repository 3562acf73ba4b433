// A person's seat: the legal choices, the time left, the adviser's hint.
//
// A private `turn.requested` event opens a turn and the seat's decision closes it (reduce.js keeps the open one as
// `asked`), so the seat needs nothing but the events that the page receives anyway, after a reload too.
import { ask, capital, h, put, style, text, words } from "./dom.js";
import { field } from "./form.js";
import { over } from "./reduce.js";

await style(import.meta.url);

const MAX_BUTTONS = 6; // more choices than this become a list
const CLOCK_MS = 250;

export class Seat {
  // `isNews(seq)` says whether an event has just happened
  constructor(timeline, token, isNews) {
    Object.assign(this, { timeline, token, isNews, drawn: "", sent: null, chosen: {}, ends: null });
    this.clock = h("span.clock.num", { role: "timer" });
    this.title = h("h2");
    this.view = h("p.dim");
    this.hint = h("p.hintline");
    this.error = h("p.error", { role: "alert" });
    this.body = h("div");
    this.node = h("section.card.seat", { "aria-label": "Your seat", tabindex: -1 }, h("div.row", null, this.title, h("span.gap"), this.clock), this.view, this.hint, this.body, this.error);
    this.ticker = setInterval(() => this.count(), CLOCK_MS);
    this.draw();
  }

  // the turn that is open for this person
  get asked() {
    const { live } = this.timeline;
    const { asked, mine } = live;
    if (!asked?.your_turn || over(live)) return null;
    return mine === undefined || mine === asked.seat ? asked : null;
  }

  // the same while no act for it is on its way
  get turn() {
    const { asked } = this;
    return asked?.turn === this.sent ? null : asked;
  }

  // The server says how many seconds are left, and this page's own stopwatch counts them down. An older event, after a
  // reload, no longer says it, so the server is asked.
  async time({ turn, seconds, seq }) {
    const start = (left) => { this.ends = Number.isFinite(left) ? performance.now() + 1000 * left : null; };
    start(seconds);
    if (this.isNews(seq)) return;
    const { data } = await ask(`/episodes/${this.timeline.id}/turn?seat_token=${encodeURIComponent(this.token)}`);
    if (data.turn !== turn || this.asked?.turn !== turn) return;
    start(data.seconds_left);
    this.count();
  }

  count() {
    const { turn } = this;
    const left = turn && this.ends !== null ? Math.max(0, Math.round((this.ends - performance.now()) / 1000)) : null;
    put(this.clock, left === null ? "" : `${left} s left`);
    this.clock.classList.toggle("late", left !== null && left <= 10);
  }

  draw() {
    const { live } = this.timeline;
    const { asked, turn } = this;
    put(this.title, over(live) ? "The episode is over" : turn ? "Your turn" : "Waiting for the other side");
    this.node.classList.toggle("mine", Boolean(turn));
    this.body.inert = !turn; // what was chosen stays until the act is accepted
    const stamp = `${asked?.turn}`;
    if (stamp !== this.drawn && asked) this.time(asked);
    this.count();
    if (stamp === this.drawn) return;
    this.drawn = stamp;
    const hint = asked?.hint;
    put(this.hint, hint ? `Your adviser: ${hint.text || hint}${hint.reason ? ` – ${hint.reason}` : ""}` : "");
    put(this.view, asked?.view_text);
    this.body.replaceChildren();
    if (!asked) return;
    const send = (act) => this.send(act);
    this.body.append(live.adapter.form ? live.adapter.form(asked, live, asked.seat, send) : this.choices(asked, live, send));
    // the control that had the focus is gone: give it to the new form, but never take it from elsewhere
    const lost = document.activeElement === document.body;
    if (lost) (this.body.querySelector("input:checked, button.primary, button") || this.node).focus({ preventScroll: true });
  }

  // One row of choices for each head that matters now. A game's page may export `form` for something better, or
  // `seatForm` for better words.
  choices({ heads, masks, fields, hint, seat }, live, send) {
    const names = live.adapter.seatForm || { label: (head) => capital(words(head)), value: (head, value) => words(value) };
    const chosen = masks.map((mask) => mask.indexOf(true));
    const hinted = hint?.act || [];
    const rows = heads.map((head, at) => {
      const values = fields[head];
      const open = masks[at].flatMap((yes, i) => (yes ? [i] : []));
      if (!values || !open.length) return null;
      // start from the last choice, else from the middle one; from the first of a long list
      const last = this.chosen[head];
      chosen[at] = open.includes(last) ? last : open[open.length > MAX_BUTTONS ? 0 : Math.floor((open.length - 1) / 2)];
      const pick = (i) => () => { chosen[at] = i; };
      const named = (i, k) => `${names.value(head, values[k], live, seat)}${hinted[at] === i ? " ✦" : ""}`;
      if (open.length > MAX_BUTTONS) return field(names.label(head), h("select", { onchange: (event) => pick(Number(event.target.value))() }, open.map((i, k) => text("option", named(i, k), { value: i, selected: i === chosen[at] }))));
      return h("fieldset.pills.choices", null, text("legend", names.label(head)), open.map((i, k) => h("label", null, h("input", { type: "radio", name: `head-${head}`, value: i, checked: i === chosen[at], onchange: pick(i) }), text("span", named(i, k)))));
    });
    const go = () => {
      this.chosen = Object.fromEntries(heads.map((head, at) => [head, chosen[at]]));
      send(chosen);
    };
    return h("form", { onsubmit: (event) => { event.preventDefault(); go(); } }, rows, h("button.primary", { type: "submit" }, "Play"));
  }

  // The act names the turn it is for, so a second click or a late one never plays in the next turn. A refused act
  // opens the turn again, unless the next one has come meanwhile.
  async send(act) {
    const { turn } = this;
    if (!turn) return;
    this.sent = turn.turn;
    put(this.error, "");
    this.draw();
    const { ok, error } = await ask(`/episodes/${this.timeline.id}/act`, { seat_token: this.token, act, turn: turn.turn });
    if (!ok && this.sent === turn.turn) this.sent = null;
    this.draw();
    put(this.error, error); // stays until the next act
  }

  close() {
    clearInterval(this.ticker);
  }
}
