// Two episodes side by side, such as a branch and the one that it left. One slider moves both.
import { ask, badge, called, h, many, put, style, text } from "../dom.js";
import { Board } from "./board.js";
import { empty } from "../pages/pages.js";
import { over } from "../stream/reduce.js";

await style(import.meta.url);

class Compare extends HTMLElement {
  async connectedCallback() {
    const query = new URLSearchParams(location.search);
    const ids = [query.get("a"), query.get("b")];
    const answers = await Promise.all(ids.map((id) => ask(`/episodes/${encodeURIComponent(id || "")}`)));
    if (this.left) return;
    if (!answers.every((one) => one.ok)) return this.append(empty("Nothing to compare", "The address should name two episodes of this server, as /compare?a=ID&b=ID.", h("a.primary", { href: "/lobby" }, "See all episodes")));
    const infos = answers.map((one) => one.data);
    const parted = infos.map(({ about }, i) => about.branched_from?.episode_id === ids[1 - i] && about.branched_from.turn).find((turn) => typeof turn === "number");
    this.slider = h("input.slider", { type: "range", min: 0, max: 1, value: 1, step: 1, "aria-label": "Turn of both games", oninput: () => this.go(Number(this.slider.value)) });
    this.where = h("output.num");
    this.first = h("p.strong");
    this.about = h("p.dim", null, "Loading…");
    this.parted = parted;
    this.boards = ids.map((id) => new Board(id, null, () => this.changed()));
    const titles = infos.map(({ episode_id: id, players, about }) => h("div.row", null, text("b", about.branched_from ? "Branch" : "Original"), ...players.flatMap((name, seat) => [badge(seat), text("span", called(name))]), h("span.gap"), h("a", { href: `/e/${id}` }, "Open")));
    this.append(h("div.page.compare", null, h("h1", null, "Side by side"), this.about, this.first,
      h("div.row", null, h("button", { onclick: () => this.go(Number(this.slider.value) - 1) }, "Back"), this.slider, h("button", { onclick: () => this.go(Number(this.slider.value) + 1) }, "Next"), this.where),
      h("div.boards", null, this.boards.map((board, i) => h("section.card", { "aria-label": i ? "Second game" : "First game" }, titles[i], board.node)))));
    this.at = parted ?? null; // shown first: where they part
  }

  disconnectedCallback() {
    this.left = true;
    for (const board of this.boards || []) board.close();
  }

  async go(turn) {
    this.at = Math.max(0, Math.min(turn, Number(this.slider.max)));
    this.slider.value = this.at;
    this.tell();
    await Promise.all(this.boards.map((board) => board.turn(this.at)));
  }

  // Where both games stand and what they share, in the game's own units. A branch may go on like the original for a while
  // after the turns that it kept, so how long both are the same follows from the acts.
  tell() {
    const { unit = "turn" } = this.boards[0].timeline.live.adapter || {};
    put(this.where, `${unit} ${this.slider.value} of ${this.slider.max}`);
    const kept = this.parted !== undefined && `The branch keeps the first ${this.parted === 1 ? unit : many(this.parted, unit)}`;
    const longer = kept && this.apart?.turn > this.parted ? `; both games are the same for the first ${many(this.apart.turn, unit)}` : "";
    put(this.about, kept ? `${kept}${longer}.` : `Two games, ${unit} by ${unit}.`);
  }

  changed() {
    const lives = this.boards.map(({ timeline }) => timeline.live);
    const longest = Math.max(...lives.map((live) => live.turn + 1), 1);
    if (Number(this.slider.max) !== longest) {
      this.slider.max = longest;
      this.slider.value = this.at ?? longest;
    }
    const [one, other] = lives.map((live) => live.turns);
    const apart = one.find((entry, i) => other[i] && entry.acts && other[i].acts && JSON.stringify(entry.acts) !== JSON.stringify(other[i].acts));
    this.apart = apart;
    this.tell();
    if (lives[0].game !== lives[1].game) return;
    if (!apart && one.length === other.length && lives.every(over)) put(this.first, "No turn differs.");
    if (!apart) return;
    const { unit, chosen } = lives[0].adapter;
    const said = (entry) => `“${chosen?.(entry) || entry.text || entry.decisions.map((decision) => decision.text).join(" v ")}”`;
    const label = String(apart.turn + 1);
    put(this.first, `First difference, ${unit} ${label}${apart.label === label ? "" : ` (${apart.label})`}: ${said(apart)} against ${said(other[one.indexOf(apart)])}`);
    if (!this.moved && this.at !== null) { this.moved = true; this.go(apart.turn + 1); }
  }
}

customElements.define("kibitz-compare", Compare);
