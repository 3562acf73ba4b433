// The home page: one click starts a game; below, the episodes that are in play or have finished.
import { ask, called, h, style, text } from "./dom.js";
import { recent } from "./episodes.js";
import { launch } from "./start.js";

await style(import.meta.url);

class Home extends HTMLElement {
  async connectedCallback() {
    const games = h("div.quick", null, h("p.dim", null, "Loading games…"));
    const page = h("div.page", null, h("h1", null, "Play or watch a game"), games);
    this.append(page);
    const { ok, data, error } = await ask("/custom/presets");
    if (ok) games.replaceChildren(...Object.entries(data.games).map(([name, game]) => this.game(name, game)));
    else games.replaceChildren(text("p.error", error, { role: "alert" }));
    page.append(h("p", null, h("a", { href: "/custom" }, "Choose players, length and other settings")), recent()); // last, so that nothing below the games moves
  }

  game(name, { title, players: known, default_players: [first, second] }) {
    const titled = (player) => known.find((one) => one.name === player)?.title || called(player);
    const trouble = h("div.trouble", { role: "alert" });
    const start = (verb, players, cls) => h("button", { class: cls, "aria-label": `${verb} ${title}`, onclick: async ({ currentTarget: button }) => {
      button.disabled = true;
      await launch(this.app, { game: name, players }, trouble);
      button.disabled = false;
    } }, verb);
    return h("section.card", { "aria-label": title }, text("h2", title), h("p.dim", null, `Play against ${titled(second)}, or watch ${titled(first)} against ${titled(second)}.`),
      h("div.row", null, start("Play", ["human", second], "primary"), start("Watch", [first, second], "")), trouble);
  }
}

customElements.define("kibitz-home", Home);
