// One episode in a small frame of another site, without the page around it. It shows what every watcher may see.
import { button, h, icon, put } from "../dom.js";
import { Board } from "./board.js";
import { Replay } from "../stream/replay.js";

class Embed extends HTMLElement {
  connectedCallback() {
    const where = h("span.dim.small.num");
    this.board = new Board(this.episode, this.seq, (state) => {
      const { live } = this.board.timeline;
      put(where, live.turn < 0 ? "" : `${state.adapter.unit} ${Math.max(state.turn + 1, 0)} of ${live.turn + 1}`);
      play.replaceChildren(icon(this.replay.playing ? "pause" : "play"));
    });
    // the bar itself stays hidden: a small frame has room for three buttons
    this.replay = new Replay(this.board.timeline, { say: () => {}, speak: () => {}, branch: () => {} });
    const play = button("play", "Play or pause", () => this.replay.toggle());
    const open = h("a", { href: `/e/${this.episode}`, onclick: (event) => { event.preventDefault(); window.open(`/e/${this.episode}`, "_blank", "noopener"); } }, "Open on kibitz");
    this.append(h("div.embed", null, this.board.node, h("div.row", null, button("back", "Step back", () => this.replay.move(-1)), play, button("on", "Step forward", () => this.replay.move(1)), where, h("span.gap"), open)));
  }

  disconnectedCallback() {
    this.replay.close();
    this.board.close();
  }
}

customElements.define("kibitz-embed", Embed);
