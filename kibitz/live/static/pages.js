// Lobby, leaderboard, training runs.
import { ago, ask, badge, h, many, put, s } from "./dom.js";
import { chart, line, table, ticks } from "./chart.js";

const words = (text) => String(text).replaceAll("_", " ");
const empty = (head, text, ...more) => h("div", { class: "empty" }, h("h2", {}, head), h("p", { class: "dim" }, text), ...more);
const STATUS = { running: "in play", ended: "finished", failed: "stopped", interrupted: "interrupted" };

function episodeRow(one) {
  const score = (one.returns || []).map((x) => (Number.isInteger(x) ? x : x.toFixed(2))).join(" : ");
  return h("li", {}, h("a", { class: "episode", href: `/e/${one.episode_id}` },
    h("span", { class: `status ${one.status}` }, STATUS[one.status] || one.status), h("span", { class: "names" }, badge(0), ` ${one.players[0]} `, h("span", { class: "dim" }, "v"), " ", badge(1), ` ${one.players[1]}`),
    h("span", { class: "num" }, score), h("span", { class: "line dim" }, one.text || words(one.game)), h("span", { class: "dim small when" }, `${words(one.game)} · ${ago(one.started_at)}`)));
}

// a list that fetches itself, with a button for the next page
export function episodes(filter) {
  const items = h("ul", { class: "episodes" });
  const more = h("button", { type: "button", class: "more", hidden: true }, "More");
  const root = h("div", {}, items, more);
  let next = null;
  const load = async () => {
    const query = new URLSearchParams(Object.entries({ ...filter, before: next }).filter(([, v]) => v));
    const { ok, data, error } = await ask(`/episodes?${query}`);
    if (!ok) return root.replaceChildren(h("p", { class: "error" }, error));
    items.append(...data.episodes.map(episodeRow));
    next = data.next;
    more.hidden = !next;
    if (!items.childElementCount) root.replaceChildren(empty("No episodes yet", "What is played here is kept and can be watched again."));
    return null;
  };
  more.addEventListener("click", load);
  load();
  return root;
}

class Lobby extends HTMLElement {
  async connectedCallback() {
    const place = h("div", {}, episodes({ limit: 30 }));
    const filter = {};
    const show = () => place.replaceChildren(episodes({ limit: 30, ...filter }));
    const game = h("select", { onchange: () => { filter.game = game.value; show(); } }, h("option", { value: "" }, "every game"));
    const status = h("select", { onchange: () => { filter.status = status.value; show(); } }, h("option", { value: "" }, "any state"), Object.entries(STATUS).map(([v, text]) => h("option", { value: v }, text)));
    this.append(h("div", { class: "page" }, h("div", { class: "row" }, h("h1", {}, "Episodes"), h("span", { class: "gap" }), h("label", { class: "field inline" }, h("span", { class: "sr" }, "Game"), game), h("label", { class: "field inline" }, h("span", { class: "sr" }, "State"), status), h("a", { class: "primary", href: "/custom" }, "Watch live")), h("section", { class: "card", "aria-label": "Episodes" }, place)));
    const { data } = await ask("/custom/presets");
    game.append(...Object.entries(data.games || {}).map(([name, one]) => h("option", { value: name }, one.title || words(name))));
  }
}

// a list of records, or records by key, as a list
const records = (data, key) => (Array.isArray(data) ? data : Object.entries(data || {}).map(([name, one]) => ({ [key]: name, ...one })));
const tidy = (value) => (typeof value === "number" && !Number.isInteger(value) ? value.toFixed(3) : value ?? "–");

class Leaderboard extends HTMLElement {
  async connectedCallback() {
    const place = h("div", { class: "page" }, h("h1", {}, "Leaderboard"), h("p", { class: "dim" }, "Loading…"));
    this.append(place);
    const { ok, data, error } = await ask("/leaderboard.json");
    const rows = records(data.players || [], "player");
    if (!ok || !rows.length) return place.replaceChildren(h("h1", {}, "Leaderboard"), h("section", { class: "card" }, ok ? empty("Nobody has a record yet", "Every finished episode counts for both of its players. Start one, and the table fills.", h("a", { class: "primary", href: "/custom" }, "Start an episode")) : h("p", { class: "error" }, error)));
    const games = [...new Set(rows.map((one) => one.game))];
    return place.replaceChildren(h("h1", {}, "Leaderboard"), ...games.map((game) => {
      const mine = rows.filter((one) => one.game === game).sort((a, b) => (b.rating ?? b.mean_return ?? 0) - (a.rating ?? a.mean_return ?? 0));
      const keys = Object.keys(mine[0]).filter((key) => key !== "game" && key !== "player" && typeof mine[0][key] !== "object");
      return h("section", { class: "card", "aria-label": words(game) }, h("h2", {}, words(game)), h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": `${words(game)} table` }, table(["", "Player", ...keys.map(words)], mine.map((one, i) => [i + 1, one.player, ...keys.map((key) => tidy(one[key]))]), "", [1])));
    }), h("p", { class: "dim small" }, "What the store has, not a rating: opponents differ."));
  }
}

class Runs extends HTMLElement {
  async connectedCallback() {
    const place = h("div", { class: "page" }, h("h1", {}, "Training runs"), h("p", { class: "dim" }, "Loading…"));
    this.append(place);
    const { ok, data, error } = await ask("/runs.json");
    const runs = records(data.runs || data, "name");
    if (!ok || !runs.length) return place.replaceChildren(h("h1", {}, "Training runs"), h("section", { class: "card" }, ok ? empty("No runs here", "A training run's folder under runs/ appears with its curve, while it learns and after.", h("code", {}, "kibitz train --algo ppo --hint none --config configs/ppo_fast.yaml")) : h("p", { class: "error" }, error)));
    const curve = chart("Learning curve", 280);
    const about = h("p", { class: "dim small" });
    const show = async (name, pressed) => {
      for (const one of buttons) one.setAttribute("aria-pressed", String(one === pressed));
      const answer = await ask(`/runs/${encodeURIComponent(name)}.json`);
      if (!answer.ok) return put(about, answer.error);
      const run = answer.data;
      const points = run.curve || [];
      put(about, `${words(run.game)} · seed ${run.seed ?? 0}${(run.advisers || []).length ? ` · advised by ${run.advisers.join(", ")}` : ""} · ${many(points.length, "evaluation")}`);
      return curve.draw(curveSpec(name, points));
    };
    const buttons = runs.map((run) => h("button", { type: "button", "aria-pressed": "false", onclick: (event) => show(run.name, event.currentTarget) }, h("b", {}, run.name), h("span", { class: "dim small" }, [words(run.game), run.changed && ago(run.changed)].filter(Boolean).join(" · "))));
    place.replaceChildren(h("h1", {}, "Training runs"), h("div", { class: "runs" }, h("div", { class: "card runlist", role: "group", "aria-label": "Runs" }, buttons), h("section", { class: "card", "aria-label": "Curve" }, curve.node, about)));
    buttons[0].click();
  }
}

const MEASURES = ["share_of_ceiling", "win_share", "return_mean"];

function curveSpec(name, points) {
  const measure = MEASURES.find((key) => points.some((p) => typeof p[key] === "number")) || "return_mean";
  const told = points.filter((p) => typeof p[measure] === "number");
  const seeds = [...new Set(told.map((p) => p.seed))];
  const each = seeds.map((seed) => told.filter((p) => p.seed === seed).map((p) => [p.step, p[measure]]));
  // the mean over seeds, with every seed behind it
  const xy = [...new Set(told.map((p) => p.step))].map((step) => {
    const there = told.filter((p) => p.step === step);
    return [step, there.reduce((sum, p) => sum + p[measure], 0) / there.length];
  });
  const end = xy.length ? xy[xy.length - 1][0] : 1;
  const lowest = Math.min(...told.map((p) => p[measure]), 1);
  const top = Math.max(measure === "share_of_ceiling" ? 1 : 0.01, ...told.map((p) => p[measure]));
  const low = lowest < 0 ? lowest : Math.max(0, Math.floor((lowest - 0.05) * 10) / 10);
  const short = (v) => (v >= 1e6 ? `${v / 1e6}M` : v >= 1e3 ? `${v / 1e3}k` : String(v));
  return {
    x: [0, end], y: [low, top], xt: ticks(end).map((v) => [v, short(v)]), yt: ticks(top, 5, low).map((v) => [v, String(v)]),
    label: xy.length ? `${words(measure)} of ${name}: ${tidy(xy[0][1])} at first, ${tidy(xy[xy.length - 1][1])} after ${many(end, "step")}.` : "No points yet.",
    head: ["Step", words(measure)], rows: () => xy.map(([x, y]) => [x.toLocaleString(), tidy(y)]),
    draw: (px, py, size) => (xy.length ? [seeds.length > 1 ? each.map((one) => line(one, px, py, "line thin")) : [], line(xy, px, py, "line seat0"), label(px(end), py(xy[xy.length - 1][1]), tidy(xy[xy.length - 1][1]), size, words(measure))].flat() : []),
  };
}

const label = (x, y, text, size, measure) => [
  s("text", { class: "value", x: x - 4, y: y > 30 ? y - 8 : y + 18, "text-anchor": "end" }, text),
  s("text", { class: "axis", x: size.left + 6, y: size.top + 8 }, `↑ ${measure}`),
];

customElements.define("kibitz-lobby", Lobby);
customElements.define("kibitz-leaderboard", Leaderboard);
customElements.define("kibitz-runs", Runs);
