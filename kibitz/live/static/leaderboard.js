// Each player's record, by game, and tournaments with their ratings.
import { ask, called, h, many, scroll, text, words } from "./dom.js";
import { ago, empty } from "./pages.js";
import { table } from "./table.js";

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
      const keys = Object.keys(mine[0]).filter((key) => key !== "game" && key !== "player" && (replaced || key !== "fallback_episodes"));
      // all figures of a column have the same number of decimals
      const whole = (key) => mine.every((one) => one[key] === null || Number.isInteger(one[key]));
      const figure = (key, value) => (typeof value === "number" && !whole(key) ? value.toFixed(2) : value ?? "–");
      return h("section.card", { "aria-label": words(game) }, h("h2", null, words(game)), 
        scroll(`${words(game)} table`, table(["", "Player", ...keys.map(words)], mine.map((one, i) => [one.episodes ? i + 1 : "–", called(one.player), ...keys.map((key) => figure(key, one[key]))]), "", [1])));
    }), h("p.dim.small", null, "Averages over recorded games. Opponents differ, so this is not a rating. A game does not count for a player if the fallback played most of its turns. A game played elsewhere counts once a replay has confirmed its result."));
  }
}

const percent = (value) => (value === null ? "–" : `${(100 * value).toFixed(1)} %`);
const between = (limits, show) => (limits && limits[0] !== null ? `${show(limits[0])} to ${show(limits[1])}` : "–");
const whole = (value) => (value === null ? "–" : value.toFixed(0));

// Ratings, then who won how much against whom; both best first.
function tournament(one) {
  const names = one.players.map((player) => player.name);
  const title = `${one.name}: ${words(one.game)}`;
  const cost = one.players.some((player) => player.tokens || player.fallback_share);
  const head = ["", "Player", "Rating", "95 % interval", "Won", "Return", ...(cost ? ["Illegal", "Fallback", "Tokens", "Money"] : [])];
  const lines = one.players.map((player, i) => [
    player.rated ? i + 1 : "–", called(player.name), player.rated ? whole(player.rating) : "not rated", between(player.rating_ci95, whole), percent(player.win_share),
    player.return_mean === null ? "–" : player.return_mean.toFixed(2), ...(cost ? [percent(player.illegal_share), percent(player.fallback_share), player.tokens.toLocaleString(), player.money.toFixed(4)] : []),
  ]);
  const record = (row, column) => (row === column ? "" : percent(one.matrix[row]?.[column]?.win_share ?? null));
  return h("section.card", { "aria-label": title }, h("h2", null, `Tournament ${title}`),
    h("p.dim.small", null, `${many(one.episodes, "game")} of every pairing, ${one.pack ? `pack ${one.pack}` : `seed ${one.seed}`}, ${ago(one.changed)}.${one.unfinished ? ` Unfinished, because ${one.unfinished}.` : ""}`),
    scroll(`${title}, ratings`, table(head, lines, "", [1])),
    h("h2", null, "Head to head"),
    scroll(`${title}, head to head`, table(["Won by", ...names.map((name) => `against ${called(name)}`)], names.map((row) => [called(row), ...names.map((column) => record(row, column))]), "", [0])),
    one.players.every((player) => player.rated) ? "" : h("p.dim.small", null, "Players whose turns the fallback mostly played are not rated."));
}

customElements.define("kibitz-leaderboard", Leaderboard);
