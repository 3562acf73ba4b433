// While a player is being asked: its seat shows it with the seconds, and a model's words as they come.
import { h, put, signed } from "../dom.js";
import { answerWords } from "./thoughts.js";

const TICK_MS = 500;
const FIRST_MS = 700; // a bot that answers at once is not announced

export class Thinking {
  constructor(timeline) {
    Object.assign(this, { timeline, spots: [0, 1].map(() => h("span.thinks.num", { hidden: true }, h("span.wideonly"), h("span"))), words: h("p.words", { hidden: true, "aria-live": "off" }), since: 0, of: "", reader: null });
    this.ticker = setInterval(() => this.draw(), TICK_MS);
  }

  draw() {
    const { live, following } = this.timeline;
    const asked = following && live.status === "running" && live.asked?.seat !== live.mine ? live.asked : null;
    const now = asked ? `${asked.seat}.${asked.turn}` : "";
    if (now !== this.of) {
      Object.assign(this, { of: now, since: performance.now() });
      put(this.words, "");
      this.words.hidden = true;
      this.reader?.cancel().catch(() => {});
      this.reader = null;
      if (asked && String(live.players[asked.seat]).startsWith("llm:")) this.listen(asked, now);
    }
    const waited = performance.now() - this.since;
    this.spots.forEach((spot, seat) => {
      spot.hidden = asked?.seat !== seat || waited <= FIRST_MS;
      if (spot.hidden) return;
      put(spot.firstChild, live.players[seat] === "human" ? "choosing · " : "thinking · "); // a phone has no room for it
      put(spot.lastChild, `${Math.floor(waited / 1000)} s`);
    });
  }

  // The server streams what the model has written, if the table is open; 404 if it may not or cannot.
  async listen({ seat, turn }, of) {
    const answer = await fetch(signed(`/episodes/${this.timeline.id}/thinking?seat=${seat}&turn=${turn}`)).catch(() => null);
    if (!answer?.ok || this.of !== of) return;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    this.reader = reader;
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read().catch(() => ({ done: true }));
      if (done || this.of !== of) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      const last = lines.filter(Boolean).pop();
      if (!last) continue;
      put(this.words, answerWords(JSON.parse(last).text) || "Writing its answer…");
      this.words.hidden = false;
    }
  }

  close() {
    clearInterval(this.ticker);
    this.of = "closed";
    this.reader?.cancel().catch(() => {});
  }
}
