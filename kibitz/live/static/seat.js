// A person's seat: what may be chosen now, the time that is left, the adviser's hint.
import { ask, h, put, style } from "./dom.js";
import { field } from "./form.js";
import { over } from "./reduce.js";

await style(import.meta.url);

const FEW = 6; // choices that are buttons; more of them are a list

export class Seat {
  constructor(timeline, token) {
    Object.assign(this, { timeline, token, asking: false, turn: null, drawn: "", wait: 120, closed: false, sent: 0 });
    this.clock = h("span.clock.num", { role: "timer" });
    this.title = h("h2");
    this.view = h("p.dim");
    this.hint = h("p.hintline");
    this.error = h("p.error", { role: "alert" });
    this.body = h("div");
    this.node = h("section.card.seat", { "aria-label": "Your seat", tabindex: -1 }, h("div.row", this.title, h("span.gap"), this.clock), this.view, this.hint, this.body, this.error);
    this.ticker = setInterval(() => this.count(), 500);
    this.look();
  }

  async look() {
    clearTimeout(this.timer);
    if (this.asking || this.closed) return;
    if (over(this.timeline.live)) return void this.draw();
    this.asking = true;
    const { sent } = this;
    const { ok, data } = await ask(`/episodes/${this.timeline.id}/turn?seat_token=${encodeURIComponent(this.token)}`);
    this.asking = false;
    if (this.closed) return;
    if (sent !== this.sent) return void this.look(); // it was the turn before
    this.turn = ok ? data : null;
    this.draw();
    if (over(this.timeline.live)) return;
    // it may be too early: look again, ever more slowly
    this.wait = ok && data.your_turn ? 1500 : Math.min(1000, this.wait * 1.5);
    this.timer = setTimeout(() => this.look(), this.wait);
  }

  changed() {
    this.wait = 120;
    this.look();
  }

  count() {
    const left = this.turn?.your_turn && this.turn.deadline ? Math.max(0, Math.round(this.turn.deadline - Date.now() / 1000)) : null;
    put(this.clock, left === null ? "" : `${left} s left`);
    this.clock.classList.toggle("late", left !== null && left <= 10);
  }

  draw() {
    const { live } = this.timeline;
    const mine = Boolean(this.turn?.your_turn && !over(live));
    // `look` may know of a turn before its events come
    const stamp = `${mine && this.turn.turn}.${live.turn}.${over(live)}`;
    put(this.title, over(live) ? "The episode is over" : mine ? "Your turn" : "Waiting for the other side");
    this.node.classList.toggle("mine", mine);
    this.count();
    const hint = mine && this.turn.hint;
    put(this.hint, hint ? `Your adviser: ${hint.text || hint}${hint.reason ? ` – ${hint.reason}` : ""}` : "");
    if (stamp === this.drawn || (!live.memory && mine)) return;
    this.drawn = stamp;
    put(this.view, mine ? this.turn.view_text : "");
    this.body.replaceChildren();
    if (!mine) return;
    const send = (act) => this.send(act);
    this.body.append(live.adapter.form ? live.adapter.form(this.turn, live, this.turn.seat, send) : this.plain(live, send));
    const lost = document.activeElement === document.body;
    if (lost) (this.body.querySelector("input:checked, button.primary, button") || this.node).focus({ preventScroll: true });
  }

  // one row of choices for each head that counts now; a game's file may draw something better
  plain(live, send) {
    const { heads, masks, fields } = this.turn;
    const words = live.adapter.seatForm || { label: (head) => head, value: (head, value) => String(value) };
    const chosen = masks.map((mask) => mask.indexOf(true));
    const hinted = this.turn.hint?.act || [];
    const last = this.chosen || {};
    const rows = heads.map((head, at) => {
      const values = fields[head];
      const open = masks[at].flatMap((yes, i) => (yes ? [i] : []));
      if (!values || !open.length) return null;
      // what was chosen before, else something in the middle; of many people the first
      chosen[at] = open.includes(last[head]) ? last[head] : open[open.length > FEW ? 0 : Math.floor((open.length - 1) / 2)];
      const pick = (i) => () => { chosen[at] = i; };
      const told = (i, k) => `${words.value(head, values[k], live, this.turn.seat)}${hinted[at] === i ? " ✦" : ""}`;
      if (open.length > FEW) return field(words.label(head), h("select", { onchange: (event) => pick(Number(event.target.value))() }, open.map((i, k) => h("option", { value: i, selected: i === chosen[at] }, told(i, k)))));
      return h("fieldset.pills.choices", h("legend", words.label(head)), open.map((i, k) => h("label", h("input", { type: "radio", name: `head-${head}`, value: i, checked: i === chosen[at], onchange: pick(i) }), h("span", told(i, k)))));
    });
    const go = () => {
      this.chosen = Object.fromEntries(heads.map((head, at) => [head, chosen[at]]));
      send(chosen);
    };
    return h("form", { onsubmit: (event) => { event.preventDefault(); go(); } }, rows, h("button.primary", { type: "submit" }, "Play"));
  }

  // for the turn that is shown: a second click, or a late one, is not for the next
  async send(act) {
    const { turn } = this;
    if (!turn) return;
    this.turn = null;
    this.sent += 1;
    this.body.inert = true;
    this.node.classList.remove("mine");
    put(this.error, "");
    const { ok, error } = await ask(`/episodes/${this.timeline.id}/act`, { seat_token: this.token, act, turn: turn.turn });
    this.body.inert = false;
    if (!ok) this.turn = turn;
    this.draw();
    put(this.error, error); // it stays until the next act
    this.changed();
  }

  close() {
    this.closed = true;
    clearInterval(this.ticker);
    clearTimeout(this.timer);
  }
}
