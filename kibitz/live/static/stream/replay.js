// The bar at the bottom: slider, steps, play, speed, key moments, permalink, branch, back to live.
import { button, h, icon, label, put, s, set } from "../dom.js";

const SPEEDS = [0.5, 1, 2, 4, 8];
const TRACK_EDGE_PX = 8; // half of the slider's thumb
const NEAR_PX = 8; // from the pointer to a moment's mark
const TURN_MS = 1100; // how long a turn is shown at speed 1

export class Replay {
  constructor(timeline, { branch, say, speak, share }) {
    Object.assign(this, { timeline, say, speak, playing: false, timer: 0 });
    this.slider = h("input.slider", { type: "range", min: 0, max: 0, value: 0, step: 1, "aria-label": "Position in the episode", oninput: () => this.go(Number(this.slider.value)) });
    this.ticks = s("svg.moments", { "aria-hidden": "true", preserveAspectRatio: "none", viewBox: "0 0 1000 10" });
    this.peek = h("div.peek", { hidden: true });
    this.track = h("div.track", { onpointermove: (event) => this.point(event), onpointerleave: () => this.point(null) }, this.ticks, this.slider, this.peek);
    this.where = h("output.where.num");
    this.playButton = button("play", "Play (space)", () => this.toggle());
    this.speed = h("select.speed", { "aria-label": "Replay speed" }, SPEEDS.map((x) => h("option", { value: x, selected: x === 1 }, `${x}×`)));
    this.liveButton = h("button.live", { onclick: () => this.follow() }, h("span.pulse"), h("span", null, "Live"));
    this.moments = h("ol.momentlist");
    this.menu = h("details.menu", { ontoggle: () => this.draw() }, h("summary", { title: "Key moments" }, icon("star"), h("span.wideonly", null, "Moments")), this.moments);
    const link = button("link", "Share this moment", () => share(timeline.id, timeline.shown.seq));
    const fork = button("branch", "Branch from here with another player", branch);
    this.node = h("div.replay", { role: "region", "aria-label": "Replay" },
      button("first", "Go to the start (Home)", () => this.go(0), { class: "ghost wideonly" }), button("back", "Step back (←)", () => this.move(-1)), this.playButton,
        button("on", "Step forward (→)", () => this.move(1)), button("last", "Go to the end (End)", () => this.go(timeline.last), { class: "ghost wideonly" }), this.track, this.where, this.speed, this.menu, link, fork, this.liveButton);
    this.onkey = (event) => this.key(event);
    document.addEventListener("keydown", this.onkey);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape" && this.menu.open) {
      this.menu.open = false;
      this.menu.querySelector("summary").focus();
    }
    const field = event.target.closest("input:not([type=range]), select, textarea, [contenteditable]");
    if (field) return;
    const pressed = event.target.closest("button, summary, a");
    const acts = {
      ArrowLeft: () => (event.shiftKey ? this.moment(-1) : this.move(-1)), ArrowRight: () => (event.shiftKey ? this.moment(1) : this.move(1)),
      Home: () => this.go(0), End: () => this.go(this.timeline.last), l: () => this.follow(),
    };
    if (!pressed) acts[" "] = () => this.toggle();
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  go(seq) {
    this.pause();
    this.timeline.seek(seq);
  }

  move(by) {
    this.pause();
    this.timeline.seek(this.timeline.stop(by));
  }

  moment(by) {
    const at = this.timeline.shown.seq;
    const all = this.timeline.live.moments;
    const found = by > 0 ? all.find((m) => m.seq > at) : [...all].reverse().find((m) => m.seq < at);
    if (found) this.go(found.seq);
  }

  // Previews the key moment under the pointer; null: the pointer has left.
  async point(pointer) {
    this.pointer = pointer;
    const near = pointer && this.near(pointer.clientX);
    const { preview } = near ? await import("./moments.js") : {};
    if (this.pointer !== pointer) return; // it moved on while the module loaded
    this.peek.hidden = !near;
    if (!near) return;
    this.peek.style.setProperty("--at", near.seq / Math.max(this.timeline.last, 1));
    this.peek.replaceChildren(...preview(near));
  }

  near(x) {
    const { left, width } = this.track.getBoundingClientRect();
    const scale = (width - 2 * TRACK_EDGE_PX) / Math.max(this.timeline.last, 1); // pixels per event
    const away = ({ seq }) => Math.abs(left + TRACK_EDGE_PX + seq * scale - x);
    return this.timeline.live.moments.reduce((best, one) => (away(one) < (best ? away(best) : NEAR_PX) ? one : best), null);
  }

  follow() {
    this.pause();
    this.timeline.follow();
  }

  toggle() {
    if (this.playing) return this.pause();
    this.playing = true;
    const { timeline } = this;
    if (timeline.following || timeline.shown.seq >= timeline.last) timeline.seek(0);
    this.tick();
    return this.draw();
  }

  tick() {
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      const { timeline } = this;
      const heard = timeline.shown.audio;
      await timeline.seek(timeline.stop(1));
      if (this.playing && timeline.shown.audio !== heard) this.speak(timeline.shown.audio);
      if (timeline.shown.seq >= timeline.last) {
        this.pause();
        if (timeline.live.status === "running") timeline.follow();
      } else if (this.playing) this.tick();
    }, TURN_MS / Number(this.speed.value));
  }

  pause() {
    clearTimeout(this.timer);
    this.playing = false;
    this.draw();
  }

  get address() {
    const { timeline } = this;
    return `/e/${timeline.id}${timeline.following ? "" : `?seq=${timeline.shown.seq}`}`;
  }

  draw() {
    const { timeline } = this;
    const { live, shown } = timeline;
    const unit = live.adapter.unit;
    set(this.slider, "max", Math.max(timeline.last, 0));
    const at = timeline.following ? timeline.last : timeline.goal ?? shown.seq;
    if (Number(this.slider.value) !== at) this.slider.value = at;
    const text = live.turn < 0 ? "" : `${unit} ${Math.max(shown.turn + 1, 0)} of ${live.turn + 1}`;
    this.where.replaceChildren(...(text ? [h("span.wideonly", null, `${unit} `), text.slice(unit.length + 1)] : []));
    const now = live.moments.find((m) => m.seq === at);
    set(this.slider, "aria-valuetext", `${text || "start"}${now ? `, ${now.label}` : ""}`);
    label(this.playButton, this.playing ? "Pause (space)" : "Play (space)");
    if (this.playButton.dataset.on !== String(this.playing)) {
      this.playButton.dataset.on = String(this.playing);
      this.playButton.replaceChildren(icon(this.playing ? "pause" : "play"));
    }
    const running = live.status === "running";
    this.liveButton.hidden = !running;
    set(this.liveButton, "aria-pressed", String(timeline.following));
    set(this.node, "data-live", running && timeline.following);
    this.drawMoments(live);
  }

  drawMoments({ moments }) {
    if (this.menu.open) import("./moments.js").then((part) => part.fill(this.moments, moments, (seq) => { this.menu.open = false; this.go(seq); }));
    const marks = moments.map((m) => Math.round((1000 * m.seq) / Math.max(this.timeline.last, 1))).join();
    if (marks !== this.marks) {
      this.marks = marks;
      this.ticks.replaceChildren(s("path", { d: marks.split(",").filter(Boolean).map((x) => `M${x} 0v10`).join("") }));
    }
  }

  close() {
    clearTimeout(this.timer);
    document.removeEventListener("keydown", this.onkey);
    this.node.remove();
  }
}
