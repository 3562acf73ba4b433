// A person's seat: the legal choices, the time left, the adviser's hint.
//
// A private `turn.requested` event opens a turn and the seat's decision closes it (reduce.js keeps the open one as
// `asked`), so the seat needs nothing but the events that the page receives anyway, after a reload too.
import { ask, capital, h, put, style, text, words } from "../dom.js";
import { field } from "../parts/form.js";
import { over } from "../stream/reduce.js";

await style(import.meta.url);

const MAX_BUTTONS = 6; // more choices than this become a list
const CLOCK_MS = 250;

export class Seat {
  // `isNews(seq)` says whether an event has just happened
  constructor(timeline, token, isNews) {
    Object.assign(this, { timeline, token, isNews, drawn: "", sent: null, chosen: {}, ends: null, playingOut: null });
    this.clock = h("span.clock.num", { role: "timer" });
    this.title = h("h2");
    this.view = h("p.dim.view");
    this.hint = h("button.hintline", { hidden: true, title: "Fill in the hint (H)", onclick: () => this.takeHint() });
    this.error = h("p.error", { role: "alert" });
    this.body = h("div");
    this.node = h("section.card.seat", { "aria-label": "Your seat", tabindex: -1 }, h("div.row", null, this.title, h("span.gap"), this.clock), this.view, this.hint, this.body, this.error);
    this.ticker = setInterval(() => this.count(), CLOCK_MS);
    this.onkey = (event) => this.key(event);
    document.addEventListener("keydown", this.onkey);
    this.draw();
  }

  // 1 to 9 choose what is marked with that number, H takes the hint, Enter presses the main button
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.turn || `${this.turn.turn}` !== this.drawn || document.querySelector("dialog[open]")) return;
    if (event.target.closest("select, textarea, input:not([type=radio])")) return;
    if (event.key === "h" && !this.hint.hidden) this.takeHint();
    else if (event.key === "Enter" && !event.target.closest("button, a, summary")) this.body.querySelector(".primary")?.click();
    else if (/^[1-9]$/.test(event.key)) {
      const one = this.body.querySelector(`[aria-keyshortcuts="${event.key}"]`);
      if (!one) return;
      one.click();
      if (one.matches("input")) one.focus({ preventScroll: true });
    } else return;
    event.preventDefault();
  }

  takeHint() {
    if (!this.turn?.hint) return; // the last turn's
    this.fill?.(this.turn.hint.act);
    this.body.querySelector(".hinted, .primary")?.focus({ preventScroll: true });
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
    this.node.hidden = over(live); // the card at the end takes its place
    put(this.title, turn ? "Your turn" : this.playingOut ? "Playing out" : "Waiting for the other side");
    this.node.classList.toggle("mine", Boolean(turn));
    document.body.classList.toggle("seated", !over(live));
    this.body.inert = !turn; // what was chosen stays until the act is accepted
    const stamp = `${asked?.turn}`;
    if (stamp !== this.drawn && asked) this.time(asked);
    this.count();
    if (stamp === this.drawn) return;
    this.drawn = stamp;
    if (!asked) return; // the last form stays, inert, so that nothing moves before the next turn
    const { hint } = asked;
    put(this.hint, hint ? `✦ Your adviser: ${live.adapter.actText?.(hint.act, live, asked.seat) || hint.text || hint}${hint.reason ? `. ${hint.reason}` : ""}` : "");
    this.hint.hidden = !hint;
    put(this.view, asked.view_text);
    this.body.replaceChildren();
    const send = (act) => this.send(act);
    const form = live.adapter.form ? live.adapter.form(asked, live, asked.seat, send) : this.choices(asked, live, send);
    this.fill = form.fill; // enters an act, such as the hint's
    this.body.append(form);
    if (this.goesOn(asked, live)) return;
    // the control that had the focus is gone: give it to the new form, but never take it from elsewhere
    const lost = document.activeElement === document.body;
    if (lost) (this.body.querySelector("input:checked, button.primary, button") || this.node).focus({ preventScroll: true });
  }

  // Repeats the last choice until the game's page says that the stretch has ended.
  goesOn({ masks, heads }, live) {
    if (!this.playingOut) return false;
    if (!live.adapter.playOut.goesOn(live, this.playingOut.since)) {
      this.playingOut = null;
      put(this.title, "Your turn");
      return false;
    }
    this.send(heads.map((head, at) => (masks[at][this.chosen[head]] ? this.chosen[head] : masks[at].indexOf(true))));
    return true;
  }

  // One row of choices for each head that matters now. A game's page may export `form` for something better, or
  // `seatForm` for better words.
  choices({ heads, masks, fields, notes = {}, hint, seat }, live, send) {
    const names = live.adapter.seatForm || { label: (head) => capital(words(head)), value: (head, value) => words(value) };
    const chosen = masks.map((mask) => mask.indexOf(true));
    const hinted = hint?.act || [];
    let numbered = false; // the first row has the keys 1 to 9
    const rows = heads.map((head, at) => {
      const values = fields[head];
      const open = masks[at].flatMap((yes, i) => (yes ? [i] : []));
      if (!values || !open.length) return null;
      // start from the last choice, else from the middle one; from the first of a long list
      const last = this.chosen[head];
      const kept = names.folded?.(head);
      chosen[at] = open.includes(last) ? last : open[open.length > MAX_BUTTONS ? 0 : Math.floor((open.length - 1) / 2)];
      const pick = (i) => () => { chosen[at] = i; };
      const named = (i, k) => `${names.value(head, values[k], live, seat)}${hinted[at] === i ? " ✦" : ""}`;
      const note = (k) => String(notes[head]?.[k] ?? "").replace(/(\d%?) (?!·)/g, "$1\u00a0"); // a number stays with its unit
      if (kept || (open.length > MAX_BUTTONS && !notes[head])) {
        const select = h("select", { onchange: (event) => pick(Number(event.target.value))() }, open.map((i, k) => text("option", `${named(i, k)}${note(k) && ` (${note(k)})`}`, { value: i, selected: i === chosen[at] })));
        return field(names.label(head), select);
      }
      const keyed = !numbered;
      numbered = true;
      return h("fieldset", { class: `pills choices${notes[head] ? " noted" : ""}${names.cards?.(head) ? " cards" : ""}` }, text("legend", names.label(head)), open.map((i, k) => h("label", null,
        h("input", { type: "radio", name: `head-${head}`, value: i, checked: i === chosen[at], onchange: pick(i), "aria-keyshortcuts": keyed && k < 9 ? String(k + 1) : null }),
        h("span", null, keyed && k < 9 && h("kbd", { "aria-hidden": "true" }, String(k + 1)), text("b", named(i, k)), note(k) && note(k).split(" · ").map((part) => text("small", part))))));
    });
    const go = () => {
      this.chosen = Object.fromEntries(heads.map((head, at) => [head, chosen[at]]));
      send(chosen);
    };
    const { playOut } = live.adapter;
    const out = playOut && h("button", { onclick: () => { this.playingOut = { since: playOut.since(live) }; go(); } }, playOut.label);
    const form = h("form", { onsubmit: (event) => { event.preventDefault(); go(); } }, rows, h("div.row.go", null, h("button.primary", { type: "submit" }, "Play"), out));
    form.fill = (act) => {
      act.forEach((value, at) => { if (masks[at][value]) chosen[at] = value; });
      heads.forEach((head, at) => {
        for (const input of form.querySelectorAll(`input[name="head-${CSS.escape(head)}"]`)) input.checked = Number(input.value) === chosen[at];
      });
      for (const select of form.querySelectorAll("select")) { const at = heads.findIndex((head) => names.label(head) === select.closest("label")?.firstChild?.textContent); if (at >= 0) select.value = chosen[at]; }
    };
    return form;
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
    if (!ok && this.sent === turn.turn) this.sent = this.playingOut = null;
    this.draw();
    put(this.error, error); // stays until the next act
  }

  close() {
    clearInterval(this.ticker);
    document.removeEventListener("keydown", this.onkey);
    document.body.classList.remove("seated");
  }
}
