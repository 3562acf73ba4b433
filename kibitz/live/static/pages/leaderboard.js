// Each player's record, by game, and tournaments with their ratings.
import { ask, capital, h, scroll, text, words } from "../dom.js";
import { between, percent, whole } from "./figures.js";
import { empty } from "./pages.js";
import { playerLink } from "./tournament.js";
import { table } from "../parts/table.js";

const BEST = 5; // players of a tournament

class Leaderboard extends HTMLElement {
  async connectedCallback() {
    const place = h("div.page", null, h("h1", null, "Leaderboard"), h("p.dim", null, "Loading…"));
    this.append(place);
    const [{ ok, data, error }, found] = await Promise.all([ask("/leaderboard.json"), ask("/tournaments.json")]);
    const rows = data.players || [];
    const tournaments = (found.data.tournaments || []).map(tournament);
    if (!ok || !rows.length) return place.replaceChildren(h("h1", null, "Leaderboard"), ...tournaments, h("section.card", null, ok ? empty("No results yet", "Every finished episode counts for both players. Start one to fill this table.", h("a.primary", { href: "/custom" }, "Start an episode")) : text("p.error", error)));
    const games = [...new Set(rows.map((one) => one.game))];
    return place.replaceChildren(h("h1", null, "Leaderboard"), ...tournaments, ...games.map((game) => {
      const mine = rows.filter((one) => one.game === game).sort((a, b) => (b.mean_return ?? -Infinity) - (a.mean_return ?? -Infinity));
      const replaced = mine.some((one) => one.fallback_episodes);
      const keys = Object.keys(mine[0]).filter((key) => key !== "game" && key !== "player" && mine.some((one) => one[key] !== null) && (replaced || key !== "fallback_episodes"));
      // all figures of a column have the same number of decimals
      const whole = (key) => mine.every((one) => one[key] === null || Number.isInteger(one[key]));
      const figure = (key, value) => (typeof value === "number" && !whole(key) ? value.toFixed(2) : value ?? "–");
      return h("section.card", { "aria-label": words(game) }, h("h2", null, `${capital(words(game))}: averages of casual games`),
        scroll(`${words(game)} table`, table(["", "Player", ...keys.map((key) => capital(words(key)))], mine.map((one, i) => [one.episodes ? i + 1 : "–", playerLink(one.player), ...keys.map((key) => figure(key, one[key]))]), "", [1])));
    }), h("p.dim.small", null, "Averages over recorded games. Opponents differ, so this is not a rating. A game does not count for a player if the fallback played most of its turns. A game played elsewhere counts once a replay has confirmed its result."));
  }
}

// The best of a tournament; its own page has the rest.
function tournament(one) {
  const href = `/tournaments/${encodeURIComponent(one.name)}`;
  const rows = one.players.slice(0, BEST).map((player, i) => [player.rated ? i + 1 : "–", playerLink(player.name), player.rated ? whole(player.rating) : "not rated", between(player.rating_ci95, whole), percent(player.win_share)]);
  return h("section.card", { "aria-label": `Tournament ${one.name}` }, h("div.row", null, h("h2", null, `Tournament ${one.name}: ${words(one.game)}`), h("span.gap"), h("a", { href }, one.players.length > BEST ? `All ${one.players.length} players, head to head` : "Head to head")),
    scroll(`Tournament ${one.name}, ratings`, table(["", "Player", "Rating", "95 % interval", "Won"], rows, "", [1])));
}

customElements.define("kibitz-leaderboard", Leaderboard);
