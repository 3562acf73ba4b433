// One tournament: ratings, then who won how much against whom; both best first.
import { ask, called, capital, h, many, scroll, signed, text, words } from "../dom.js";
import { between, percent, whole } from "./figures.js";
import { ago, empty } from "./pages.js";
import { table } from "../parts/table.js";

class Tournament extends HTMLElement {
  async connectedCallback() {
    const name = decodeURIComponent(location.pathname.slice("/tournaments/".length));
    const page = h("div.page", null, text("h1", name), h("p.dim", null, "Loading…"));
    this.append(page);
    const { ok, data, error } = await ask("/tournaments.json");
    const found = (data.tournaments || []).find((one) => one.name === name);
    if (found) page.replaceChildren(text("h1", `Tournament ${name}`), ...parts(found));
    else page.replaceChildren(ok ? empty("Tournament not found", `The runs folder has no tournament ${name}.`, h("a.primary", { href: "/leaderboard" }, "See the leaderboard")) : text("p.error", error, { role: "alert" }));
  }
}

export const playerLink = (name) => h("a", { href: `/players/${encodeURIComponent(name)}` }, called(name));

function parts(one) {
  const names = one.players.map((player) => player.name);
  const cost = one.players.some((player) => player.tokens || player.fallback_share);
  const head = ["", "Player", "Rating", "95 % interval", "Won", "Return", ...(cost ? ["Illegal", "Fallback", "Tokens", "Money"] : [])];
  const lines = one.players.map((player, i) => [
    player.rated ? i + 1 : "–", playerLink(player.name), player.rated ? whole(player.rating) : "not rated", between(player.rating_ci95, whole), percent(player.win_share),
    player.return_mean === null ? "–" : player.return_mean.toFixed(2), ...(cost ? [percent(player.illegal_share), percent(player.fallback_share), player.tokens.toLocaleString(), player.money.toFixed(4)] : []),
  ]);
  const record = (row, column) => (row === column ? "" : percent(one.matrix[row]?.[column]?.win_share ?? null));
  return [
    h("p.dim", null, `${capital(words(one.game))}: ${many(one.episodes, "game")} of every pairing, ${one.pack ? `pack ${one.pack}` : `seed ${one.seed}`}, ${ago(one.changed)}.${one.unfinished ? ` Unfinished, because ${one.unfinished}.` : ""}`),
    h("section.card", { "aria-label": "Ratings" }, h("h2", null, "Ratings"), scroll("Ratings", table(head, lines, "", [1])), one.players.every((player) => player.rated) ? "" : h("p.dim.small", null, "Players whose turns the fallback mostly played are not rated.")),
    h("section.card", { "aria-label": "Head to head" }, h("h2", null, "Head to head"), scroll("Head to head", table(["Won by", ...names.map((name) => `against ${called(name)}`)], names.map((row) => [called(row), ...names.map((column) => record(row, column))]), "", [0]))),
    h("p", null, h("a", { href: signed(`/reports/${encodeURIComponent(one.name)}.html`) }, "The whole report")),
  ];
}

customElements.define("kibitz-tournament", Tournament);
