// The lobby: recent episodes, newest first.
import { ask, badge, called, h, put, style, text, words } from "./dom.js";
import { ago, empty } from "./pages.js";

await style(import.meta.url);

const STATUS = { running: "in play", ended: "finished", failed: "stopped", interrupted: "interrupted" };

const PLACES = { driver: " · played elsewhere", import: " · imported" };

function episodeRow(one) {
  // a game's own words about its result say more than the points that learners are paid
  const score = one.text ? "" : (one.returns || []).map((x) => (Number.isInteger(x) ? x : x.toFixed(2))).join(" : ");
  return h("li", null, h("a.episode", { href: `/e/${one.episode_id}` },
    h("span", { class: `status ${one.status}` }, STATUS[one.status] || one.status), h("span.names", null, badge(0), ` ${called(one.players[0])} `, h("span.dim", null, "v"), " ", badge(1), ` ${called(one.players[1])}`),
    h("span.num", null, score), one.text && text("span.line.dim", one.text), h("span.dim.small.when", null, `${words(one.game)} · ${ago(one.started_at)}${PLACES[one.origin] || ""}${one.returns && !one.verified ? ", result not verified" : ""}`)));
}

// A list that loads itself, with a button for the next page.
export function episodes(filter) {
  const items = h("ul.episodes");
  const more = h("button.more", { hidden: true }, "More");
  let next = null;
  const trouble = h("p.error", { role: "alert" });
  const load = async () => {
    more.disabled = true;
    put(trouble, "");
    const query = new URLSearchParams(Object.entries({ ...filter, before: next }).filter(([, v]) => v));
    const { ok, data, error } = await ask(`/episodes?${query}`);
    more.disabled = false;
    if (!ok) return put(trouble, error);
    items.append(...data.episodes.map(episodeRow));
    next = data.next;
    more.hidden = !next;
    if (!items.childElementCount) root.replaceChildren(empty("No episodes yet", "Every episode is recorded and can be watched again."));
    return null;
  };
  const root = h("div", null, items, trouble, more);
  more.addEventListener("click", load);
  load();
  return root;
}

export const recent = () =>
  h("section.card", { "aria-label": "Recent episodes" }, h("div.row", null, h("h2", null, "Recent episodes"), h("span.gap"), h("a", { href: "/lobby" }, "All episodes")), episodes({ limit: 8 }));

class Lobby extends HTMLElement {
  async connectedCallback() {
    const place = h("div", null, episodes({ limit: 30 }));
    const filter = {};
    const show = () => place.replaceChildren(episodes({ limit: 30, ...filter }));
    const game = h("select", { onchange: () => { filter.game = game.value; show(); } }, h("option", { value: "" }, "All games"));
    const status = h("select", { onchange: () => { filter.status = status.value; show(); } }, h("option", { value: "" }, "Any status"), Object.entries(STATUS).map(([v, text]) => h("option", { value: v }, text)));
    this.append(h("div.page", null, h("div.row", null, h("h1", null, "Episodes"), h("span.gap"), h("label", null, h("span.sr", null, "Game"), game), h("label", null, h("span.sr", null, "Status"), status), h("a.primary", { href: "/custom" }, "Watch live")), h("section.card", { "aria-label": "Episodes" }, place)));
    const { data } = await ask("/custom/presets");
    game.append(...Object.entries(data.games || {}).map(([name, one]) => h("option", { value: name }, one.title || words(name))));
  }
}

customElements.define("kibitz-episodes", Lobby);
