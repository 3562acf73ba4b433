// The home page: one click starts a game. Beside it a game in play, or the latest one; below, results.
import { ask, badge, called, capital, crest, h, put, set, style, text } from "../dom.js";
import { STATUS, episodeList, spark } from "./episodes.js";
import { Feed } from "../stream/feed.js";

await style(import.meta.url);

const RECENT = 8;
const newest = () => ask(`/episodes?limit=${RECENT}&outline=true`);

class Home extends HTMLElement {
  async connectedCallback() {
    const page = h("div.page.front", null, h("h1", null, "Play or watch a game"), h("p.dim", null, "Loading games…"));
    this.append(page);
    const [games, found] = await Promise.all([ask("/custom/presets"), newest()]);
    if (this.left) return;
    const trouble = h("div.trouble", { role: "alert" });
    const starts = games.ok ? Object.entries(games.data.games).flatMap(([name, game]) => game.starts.map((start) => this.start(name, game, start, trouble))) : [text("p.error", games.error, { role: "alert" })];
    starts.sort((one, other) => Number(one.disabled) - Number(other.disabled));
    starts[0].classList.add("primary");
    const custom = h("button.custom", { onclick: async () => (await this.app.need("pages/start"))?.openStart(this.app) }, h("b", null, "Custom match"), h("span", null, "Choose the game, its players, its length and its speed"));
    Object.assign(this, { trouble, fronts: h("div.fronts", null, h("section.quick", { "aria-label": "Start a game" }, starts, custom, trouble)), games: h("div") });
    this.show(found);
    // everything at once, so that nothing moves afterwards
    page.replaceChildren(h("h1", null, "Play or watch a game"), this.fronts,
      h("section.card", { "aria-label": "Games" }, h("div.row", null, h("h2", null, "Live and recent games"), h("span.gap"), h("a", { href: "/lobby" }, "All episodes")), this.games));
  }

  disconnectedCallback() {
    this.left = true;
    this.shown?.close();
    this.feed?.close();
  }

  // The featured game and the list of games, in place of those that were shown.
  show(found) {
    this.shown?.close();
    this.shown = this.rematch = null;
    const rows = found.data.episodes || [];
    const feature = this.feature(rows);
    if (this.featured) this.featured.replaceWith(feature);
    else this.fronts.append(feature);
    this.featured = feature;
    const ids = new Set(rows.map((one) => one.episode_id));
    const news = (answer) => {
      const newer = answer.data.episodes;
      if (newer.some((one) => !ids.has(one.episode_id))) return this.show(answer);
      this.follow?.(newer);
      return newer.some((one) => one.status === "running") || this.wait(news);
    };
    this.games.replaceChildren(episodeList({ limit: RECENT }, found, news));
    this.feed?.close();
    this.feed = null;
    if (found.ok && !rows.some((one) => one.status === "running")) this.wait(news);
  }

  // No game of the list is in play: a connection without an episode tells of the next one. It may tell of a game that is
  // too old for the list, and cannot tell of one that ended before the connection was open, so the list decides.
  wait(news) {
    if (this.feed) return;
    let last;
    const look = async () => {
      const answer = await newest();
      if (answer.ok && !this.left && this.feed === feed) news(answer);
    };
    const take = ([event]) => {
      if (event && event.episode_id !== last) look();
      last = event ? event.episode_id : last;
      return true;
    };
    const feed = new Feed({ id: null, token: null, since: () => -1, take, report: (state) => { if (state === "idle") look(); } });
    this.feed = feed;
  }

  async play(request, trouble, button) {
    button.disabled = true;
    await (await this.app.need("pages/start"))?.launch(this.app, request, trouble);
    button.disabled = false;
  }

  start(game, { title, players: known }, { title: says, players, options }, trouble) {
    const missing = players.filter((name) => name !== "human").map((name) => known.find((one) => one.name === name)).find((one) => one && !one.usable);
    const [one, other] = players.map((name) => (name.startsWith("llm:") ? called(name) : capital(called(name, true))));
    const who = players.every((name) => name.startsWith("llm:")) ? `Two language models: ${players.map((name) => name.slice("llm:".length)).join(" and ")}` : `${capital(one)} against ${other}`;
    return h("button", { disabled: Boolean(missing), onclick: (event) => this.play({ game, players, options }, trouble, event.currentTarget) },
      text("b", says), text("span", missing ? `Not available here. ${missing.why}` : `${who} · ${title}`));
  }

  // A silent small view of the game in play, or of the latest one.
  feature(rows) {
    const one = rows.find((row) => row.status === "running") || rows.find((row) => row.status === "ended") || rows[0];
    const stage = h("div.stage.compact.glimpse");
    if (!one) return h("section.card.feature", { "aria-label": "Latest game" }, h("div.empty", null, h("h2", null, "No games yet"), h("p.dim", null, "Start one: it appears here while it is played, and everybody can watch it.")));
    const { sides } = one.outline || {};
    const points = [0, 1].map(() => h("span.num.strong"));
    const [status, crowd, course, line] = [h("span.status"), h("span.dim.small"), h("div"), h("p.small.line")];
    const side = (seat) => h("div.side", null, sides ? crest(sides[seat], seat) : badge(seat), h("span.who", null, text("b", sides?.[seat] || called(one.players[seat])), sides ? text("small.dim", ` ${called(one.players[seat])}`) : null), points[seat],
      h("button", { disabled: !this.rematch, "aria-label": `Play this side: ${sides?.[seat] || called(one.players[seat])}`, onclick: (event) => this.rematch(seat, event.currentTarget) }, "Play this side"));
    const node = h("section.card.feature", { "aria-label": one.status === "running" ? "Live game" : "Latest game" },
      h("div.row", null, status, crowd, h("span.gap"), h("a.primary", { href: `/e/${one.episode_id}` }, "Watch")), side(0), side(1), course, stage, line);
    const show = (now) => {
      const { score, levels, level_name: level, watchers } = now.outline || {};
      set(status, "class", `status ${now.status}`);
      put(status, STATUS[now.status] || now.status);
      put(crowd, watchers ? `${watchers} watching` : "");
      points.forEach((node, seat) => put(node, score?.[seat] || (now.returns && !sides ? String(now.returns[seat]) : "")));
      course.replaceChildren(spark(levels, level, "wide"));
      put(line, now.text);
    };
    show(one);
    this.follow = (newer) => { const now = newer.find((row) => row.episode_id === one.episode_id); if (now) show(now); };
    this.look(stage, one, node);
    return node;
  }

  async look(stage, one, node) {
    const board = await this.app.need("episode/board");
    const shown = board && !this.left && (await board.glimpse(stage, one.episode_id));
    if (!shown) return;
    if (this.left || node !== this.featured) return shown.close();
    this.shown = shown;
    this.rematch = (seat, button) => this.play({ game: one.game, players: one.players.map((name, i) => (i === seat ? "human" : name)), options: shown.data.about.options || {} }, this.trouble, button);
    for (const button of node.querySelectorAll(".side button")) button.disabled = false;
  }
}

customElements.define("kibitz-home", Home);
