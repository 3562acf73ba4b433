// One player: who it is, its ratings, its record against each opponent, its recent games.
import { ask, called, capital, h, many, scroll, style, styled, text, words } from "../dom.js";
import { episodeList } from "./episodes.js";
import { ago, empty } from "./pages.js";
import { between, percent, whole } from "./figures.js";
import { table } from "../parts/table.js";

style(import.meta.url);
await styled();

const KINDS = { bot: "Bot", human: "People", llm: "Language model", policy: "Trained policy" };
const FORM = 10; // games

class Player extends HTMLElement {
  async connectedCallback() {
    const name = decodeURIComponent(location.pathname.slice("/players/".length));
    const page = h("div.page", null, text("h1", capital(called(name))), h("p.dim", null, "Loading…"));
    this.append(page);
    const query = new URLSearchParams({ player: name, outline: true, limit: FORM });
    const [{ ok, data, error }, games] = await Promise.all([ask(`/player.json?${new URLSearchParams({ name })}`), ask(`/episodes?${query}`)]);
    document.title = `${capital(called(name))} · kibitz`;
    if (!ok) return page.replaceChildren(text("h1", capital(called(name))), text("p.error", error, { role: "alert" }));
    const { opponents, ratings, run } = data;
    const played = opponents.reduce((sum, one) => sum + one.episodes + one.fallback_episodes, 0);
    if (!played && !ratings.length && !data.kind && !games.data.episodes?.length) return page.replaceChildren(empty("Player not found", `No game and no tournament on this server names ${name}.`, h("a.primary", { href: "/leaderboard" }, "See the leaderboard")));
    const curve = run?.curve?.length ? await this.curve(run) : null;
    const about = [data.about, data.why && `Cannot play here: ${data.why}`].filter(Boolean).join(" · ") || (called(name) === name ? "" : `Recorded as ${name}.`);
    return page.replaceChildren(h("div.row", null, text("h1", capital(called(name))), h("span.tag", null, KINDS[data.kind] || data.kind || "Player")),
      ...[about && text("p.dim", about), ratings.length && ratingCard(ratings), opponents.length && recordCard(opponents, games.data.episodes || [], name), curve].filter(Boolean),
      h("section.card", { "aria-label": "Recent games" }, h("h2", null, "Recent games"), episodeList({ player: name, limit: FORM }, games)));
  }

  // the learning curve of a trained policy
  async curve(run) {
    const [{ chart }, { curveSpec }] = await Promise.all([import("../chart.js"), import("./curve.js")]);
    const picture = chart("Learning curve", 240);
    picture.draw(curveSpec(run.name, run.curve));
    return h("section.card", { "aria-label": "Learning curve" }, picture.node, h("p.dim.small", null, `Run ${run.name}, seed ${run.seed ?? 0}`));
  }
}

function ratingCard(ratings) {
  const rows = ratings.map((one) => [h("a", { href: `/tournaments/${encodeURIComponent(one.tournament)}` }, one.tournament), words(one.game), one.rated ? String(one.place) : "–", one.rated ? whole(one.rating) : "not rated", between(one.rating_ci95, whole), percent(one.win_share), percent(one.fallback_share), one.tokens.toLocaleString(), one.money.toFixed(4), ago(one.changed)]);
  return h("section.card", { "aria-label": "Ratings" }, h("h2", null, "Ratings in tournaments"), scroll("Ratings", table(["Tournament", "Game", "Place", "Rating", "95 % interval", "Won", "Fallback", "Tokens", "Money", "When"], rows, "", [0, 1])));
}

// "+", "=" or "–" for each of the last games that count, newest first; `won` are the games that have a winner
function formOf(games, name, won) {
  return games.filter((one) => one.returns && won.has(one.game) && one.players.includes(name)).map((one) => {
    const seat = one.players.indexOf(name);
    const [mine, theirs] = [one.returns[seat], one.returns[1 - seat]];
    return mine > theirs ? "+" : mine === theirs ? "=" : "–";
  });
}

function recordCard(opponents, games, name) {
  const won = new Set(opponents.filter((one) => one.wins !== null).map((one) => one.game));
  const form = formOf(games, name, won);
  const record = (one) => (one.wins === null ? ["–", "–", "–"] : [one.wins, one.draws, one.episodes - one.wins - one.draws]);
  const row = (one) => [h("a", { href: `/players/${encodeURIComponent(one.opponent)}` }, called(one.opponent)), words(one.game), one.episodes, ...(won.size ? record(one) : []), one.mean_return === null ? "–" : one.mean_return.toFixed(2), one.fallback_episodes];
  const total = opponents.reduce((sum, one) => sum + one.episodes, 0);
  return h("section.card", { "aria-label": "Record" }, h("h2", null, "Head to head, in casual games"),
    form.length > 1 && h("p", null, "Form: ", h("span.form.num", { role: "img", "aria-label": `The last ${many(form.length, "game")}, newest first: ${form.map((x) => ({ "+": "won", "=": "drawn", "–": "lost" })[x]).join(", ")}` }, form.join(" "))),
    scroll("Head to head", table(["Opponent", "Game", "Games", ...(won.size ? ["Won", "Drawn", "Lost"] : []), "Mean return", "Fallback"], opponents.map(row), "", [0, 1])),
    h("p.dim.small", null, `${total ? `Over ${many(total, "game")}` : "No game counts yet"}. ${opponents.some((one) => one.wins === null) ? "A game in which both sides can gain has no winner; its mean return counts. " : ""}These are averages of casual games, not a rating. Games mostly played by the fallback count apart.`));
}

customElements.define("kibitz-player", Player);
