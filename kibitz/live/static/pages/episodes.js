// The lobby: recent episodes, newest first.
import { ask, badge, called, h, put, s, style, text, words } from "../dom.js";
import { ago, empty } from "./pages.js";

await style(import.meta.url);

export const STATUS = { running: "in play", ended: "finished", failed: "stopped", interrupted: "interrupted" };

const PLACES = { driver: " · played elsewhere", import: " · imported" };

// The course of a game in a small line: seat 0's standing from 0 to 1.
export function spark(levels, name, cls = "") {
  if (!levels || levels.length < 2) return h("span", { class: `spark ${cls}` });
  const at = (value, i) => `${i ? "L" : "M"}${((100 * i) / (levels.length - 1)).toFixed(1)} ${(22 - 20 * value).toFixed(1)}`;
  const percent = (value) => `${Math.round(100 * value)} %`;
  return s("svg", { class: `spark ${cls}`, viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": `${name} of the first side: ${percent(levels[0])} at the start, ${percent(levels[levels.length - 1])} now` },
    s("path.half", { d: "M0 12H100" }), s("path.course", { d: levels.map(at).join("") }));
}

function side(one, seat) {
  const name = one.outline?.sides?.[seat];
  const link = text("span", called(one.players[seat]));
  return h("span.who", null, badge(seat), " ", name ? [text("b", name), " ", h("small.dim", null, link)] : h("b", null, link), " ", text("span.num.strong", one.outline?.score?.[seat] || ""));
}

function episodeRow(one) {
  // a game's own words about its result say more than the points that learners are paid
  const score = one.text || one.outline?.score ? "" : (one.returns || []).map((x) => (Number.isInteger(x) ? x : x.toFixed(2))).join(" : ");
  const { levels, level_name: level, watchers } = one.outline || {};
  const facts = [words(one.game), ago(one.started_at) + (PLACES[one.origin] || ""), watchers ? `${watchers} watching` : "", one.returns && !one.verified ? "result not verified" : ""].filter(Boolean);
  return h("li", null, h("a.episode", { href: `/e/${one.episode_id}` },
    h("span", { class: `status ${one.status}` }, STATUS[one.status] || one.status), h("span.names", null, side(one, 0), h("span.dim", null, " v "), side(one, 1)),
    h("span.num", null, score), spark(levels, level), text("span.line.dim", one.text), h("span.dim.small.when", null, facts.join(" · "))));
}

const query = (asked) => new URLSearchParams(Object.entries({ ...asked, outline: true }).filter(([, value]) => value));

const FOLLOW_MS = 3000; // between two looks at the games in play

// A list with a button for the next page. It loads its first page itself unless `first`, an answer of `ask`, has it. Games
// in play are followed where they stand, while the page is visible; `onnews` gets the server's newest answer, too.
export function episodeList(filter, first, onnews = () => {}) {
  const items = h("ul.episodes");
  const more = h("button.more", { hidden: true }, "More");
  let next = null;
  const trouble = h("p.error", { role: "alert" });
  const show = ({ ok, data, error }) => {
    more.disabled = false;
    if (!ok) return put(trouble, error);
    for (const one of data.episodes) {
      const node = episodeRow(one);
      items.append(node);
      if (one.status === "running") live.set(one.episode_id, node);
    }
    if (live.size && !timer) timer = setTimeout(follow, FOLLOW_MS);
    next = data.next;
    more.hidden = !next;
    if (!items.childElementCount) root.replaceChildren(empty("No episodes yet", "Every episode is recorded and can be watched again."));
    return null;
  };
  const live = new Map(); // rows of games in play, by id
  let timer = 0;
  const follow = async () => {
    if (!root.isConnected) return;
    const answer = document.hidden ? {} : await ask(`/episodes?${query({ ...filter, status: "" })}`); // those that have ended, too
    const { ok, data } = answer;
    for (const one of ok ? data.episodes : []) {
      live.get(one.episode_id)?.firstChild.replaceChildren(...episodeRow(one).firstChild.childNodes); // the link itself keeps the focus
      if (one.status !== "running") live.delete(one.episode_id);
    }
    if (ok) onnews(answer);
    timer = live.size ? setTimeout(follow, FOLLOW_MS) : 0;
  };
  const load = async () => {
    more.disabled = true;
    put(trouble, "");
    show(await ask(`/episodes?${query({ ...filter, before: next })}`));
  };
  const root = h("div", null, items, trouble, more);
  more.addEventListener("click", load);
  if (first) show(first);
  else load();
  return root;
}

export const recent = () =>
  h("section.card", { "aria-label": "Recent episodes" }, h("div.row", null, h("h2", null, "Recent episodes"), h("span.gap"), h("a", { href: "/lobby" }, "All episodes")), episodeList({ limit: 8 }));

class Lobby extends HTMLElement {
  async connectedCallback() {
    const filter = { limit: 30 };
    const place = h("div");
    const show = (first) => place.replaceChildren(episodeList(filter, first));
    const pick = (name, label, first, choices) => h("label", null, h("span.sr", null, label), h("select", { onchange: ({ currentTarget }) => { filter[name] = currentTarget.value; show(); } }, h("option", { value: "" }, first), choices.map(([value, says]) => text("option", says, { value }))));
    const page = h("div.page", null, h("h1", null, "Episodes"), h("p.dim", null, "Loading…"));
    this.append(page);
    const [found, { data }] = await Promise.all([ask("/episodes?limit=30&outline=true"), ask("/custom/presets")]);
    const games = Object.entries(data.games || {}).map(([name, one]) => [name, one.title || words(name)]);
    show(found);
    page.replaceChildren(h("div.row", null, h("h1", null, "Episodes"), h("span.gap"), pick("game", "Game", "All games", games), pick("status", "Status", "Any status", Object.entries(STATUS)), h("a.primary", { href: "/custom" }, "Watch live")), h("section.card", { "aria-label": "Episodes" }, place));
  }
}

customElements.define("kibitz-episodes", Lobby);
