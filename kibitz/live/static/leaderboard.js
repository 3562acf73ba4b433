// Each player's record, by game.
import { ask, called, h, scroll, text, words } from "./dom.js";
import { empty } from "./pages.js";
import { table } from "./table.js";

class Leaderboard extends HTMLElement {
  async connectedCallback() {
    const place = h("div.page", null, h("h1", null, "Leaderboard"), h("p.dim", null, "Loading…"));
    this.append(place);
    const { ok, data, error } = await ask("/leaderboard.json");
    const rows = data.players || [];
    if (!ok || !rows.length) return place.replaceChildren(h("h1", null, "Leaderboard"), h("section.card", null, ok ? empty("No results yet", "Every finished episode counts for both players. Start one to fill this table.", h("a.primary", { href: "/custom" }, "Start an episode")) : text("p.error", error)));
    const games = [...new Set(rows.map((one) => one.game))];
    return place.replaceChildren(h("h1", null, "Leaderboard"), ...games.map((game) => {
      const mine = rows.filter((one) => one.game === game).sort((a, b) => (b.mean_return ?? -Infinity) - (a.mean_return ?? -Infinity));
      const replaced = mine.some((one) => one.fallback_episodes);
      const keys = Object.keys(mine[0]).filter((key) => key !== "game" && key !== "player" && (replaced || key !== "fallback_episodes"));
      // all figures of a column have the same number of decimals
      const whole = (key) => mine.every((one) => one[key] === null || Number.isInteger(one[key]));
      const figure = (key, value) => (typeof value === "number" && !whole(key) ? value.toFixed(2) : value ?? "–");
      return h("section.card", { "aria-label": words(game) }, h("h2", null, words(game)), 
        scroll(`${words(game)} table`, table(["", "Player", ...keys.map(words)], mine.map((one, i) => [one.episodes ? i + 1 : "–", called(one.player), ...keys.map((key) => figure(key, one[key]))]), "", [1])));
    }), h("p.dim.small", null, "Averages over recorded games. Opponents differ, so this is not a rating. A game does not count for a player if the fallback played most of its turns. A game played elsewhere counts once a replay has confirmed its result."));
  }
}

customElements.define("kibitz-leaderboard", Leaderboard);
