// An episode without the page around it: the score, the game's own drawing and the caption. Used where a game is shown
// beside other things: on the home page, embedded in another site, next to the game that it was branched from.
import { ask, badge, crest, h, put, seatClass, style, text } from "../dom.js";
import { Feed } from "../stream/feed.js";
import { fetchGame, fresh, over, reduce } from "../stream/reduce.js";
import { Timeline } from "../stream/timeline.js";

await style(import.meta.url);

// Only the heart of a game's page: what the page would show in tabs stays away.
const drawn = (stage, { mount }, caption) => (mount ? mount(stage, { caption, end: h("div"), tab: () => {}, say: () => {} }) : () => {});

// Two lines, one for each side.
function scores(state) {
  const { sides } = state.adapter.scoreboard?.(state) || { sides: [] };
  return sides.map((one) => h("div", { class: `side ${seatClass(one.seat)}` }, one.by ? crest(one.name, one.seat) : badge(one.seat), text("b", one.name), h("span.gap"), text("span.num.strong", one.main), text("small.dim", one.sub)));
}

const FEW_EVENTS = 150; // whose history is cheap enough to show what led to the position

// The newest position of an episode, which then follows the game. Of a long one it reads no history.
export async function glimpse(stage, id) {
  const { ok, data } = await ask(`/episodes/${id}`);
  if (!ok || !data.frame) return null;
  await fetchGame(data.game);
  const state = fresh();
  const take = (event) => reduce(state, event);
  if (data.last_seq < FEW_EVENTS) (await new Timeline(id).read(-1, data.last_seq)).forEach(take);
  else take({ seq: data.last_seq, type: "episode.started", episode_id: id, payload: data });
  const draw = drawn(stage, state.adapter, h("p"));
  draw(state);
  if (data.status !== "running") return { data, close: () => {} };
  const feed = new Feed({ id, token: null, since: () => state.seq, take: (events) => { events.forEach(take); draw(state); return true; }, report: () => {} });
  return { data, close: () => feed.close() };
}

export class Board {
  // `onchange` is called after every drawing
  constructor(id, seq, onchange = () => {}) {
    Object.assign(this, { id, wanted: seq, onchange, draw: null });
    this.score = h("div.boardscore");
    this.stage = h("div.stage.compact");
    this.caption = h("p.caption");
    this.node = h("section.board", null, this.score, this.stage);
    const timeline = new Timeline(id, null);
    this.timeline = timeline;
    timeline.onchange = () => this.paint();
    this.feed = new Feed({ id, token: null, since: () => timeline.expected - 1, take: (events) => timeline.push(events), report: () => {} });
  }

  paint() {
    const { timeline } = this;
    const state = timeline.shown;
    if (this.wanted !== null && timeline.last >= 0 && (timeline.last >= this.wanted || over(timeline.live))) {
      const seq = this.wanted;
      this.wanted = null;
      timeline.seek(seq);
      return;
    }
    if (!state.game) return;
    if (!this.draw) {
      this.draw = drawn(this.stage, state.adapter, this.caption);
      if (!this.caption.isConnected) this.node.append(this.caption); // a game may place it elsewhere
    }
    this.score.replaceChildren(...scores(state));
    put(this.caption, state.caption);
    this.draw(state);
    this.onchange(state);
  }

  // Shows the position after so many turns.
  turn(number) {
    const { stops } = this.timeline;
    return this.timeline.seek(stops[Math.min(number, stops.length - 1)] ?? 0);
  }

  close() {
    this.feed.close();
    this.timeline.onchange = () => {};
    this.node.remove();
  }
}
