// Scorecard with falls of wickets, and the overs one by one.
import { badge, card, h, when } from "../../dom.js";
import { chips, nameOf, rate, sideOf } from "../cricket.js";

const overs = (legal) => `${Math.floor(legal / 6)}.${legal % 6}`;
const heads = (names) => h("thead", {}, h("tr", {}, names.map((x) => h("th", { scope: "col" }, x))));
const row = (name, how, cells, cls) =>
  h("tr", { class: cls || "" }, h("th", { scope: "row" }, name, how && h("span", { class: "how" }, how)), cells.map((x, i) => h("td", { class: i ? "" : "strong" }, String(x))));

export function cards(kit) {
  const sheet = h("div", { class: "sheet" });
  const summary = h("ol", { class: "overs" });
  let shown = null;
  const pick = h("div", { class: "seg", role: "group", "aria-label": "Innings" });
  const scorecard = card("Scorecard", "scorecard", pick, sheet);
  const byOver = card("Over by over", "byover", h("div", { class: "scroll tall", tabindex: 0, role: "group", "aria-label": "Over by over" }, summary));
  let last = null;
  const paint = (state) => {
    last = state;
    const { innings } = state.memory;
    const now = innings.find((inn) => inn.id === shown) || innings[innings.length - 1];
    pick.replaceChildren(...innings.map((inn) => h("button", { type: "button", "aria-pressed": String(inn === now), onclick: () => { shown = inn.id; paint(last); } },
      badge(inn.seat), ` ${sideOf(state, inn.seat)}${inn.superOver ? " (super over)" : ""}`)));
    sheet.replaceChildren(...(now ? innings1(state, now) : [h("p", { class: "dim" }, "The card fills with the first ball.")]));
    const all = innings.flatMap((inn) => inn.overs.map((over) => ({ over, inn }))).reverse().slice(0, 40);
    summary.replaceChildren(...(all.length ? all : []).map(({ over, inn }) => h("li", {}, h("div", { class: "overhead" }, badge(inn.seat), h("b", {}, ` Over ${over.number + 1} `),
      h("span", { class: "dim" }, nameOf(state, 1 - inn.seat)(over.bowler)), h("span", { class: "num end" }, `${over.runs} run${over.runs === 1 ? "" : "s"} · ${over.total}/${over.lost}`)), h("div", { class: "balls" }, chips(over.signs)))));
  };
  const draw = when(paint);
  return { scorecard, byOver, draw: (state) => draw(`${state.id}.${state.seq}`, state) };
}

function innings1(state, inn) {
  const names = nameOf(state, inn.seat);
  const hands = nameOf(state, 1 - inn.seat);
  const f = state.frame;
  const there = f.batting === inn.seat && !f.over && f.innings === inn.number ? [f.striker.player, f.other.player] : [];
  const by = (how, name) => ({ bowled: `b ${name}`, "caught and bowled": `c and b ${name}` })[how] ?? `${how}, b ${name}`;
  const how = (b) => (b.how ? (b.bowler === null ? b.how : by(b.how, hands(b.bowler))) : there.includes(b.player) ? "batting" : "not out");
  const batting = [...inn.batters.values()].map((b) => row(names(b.player), how(b), [b.runs, b.balls, b.fours, b.sixes, b.balls ? Math.round((100 * b.runs) / b.balls) : "–"], b.how ? "" : "strike"));
  const extras = Object.values(inn.extras).reduce((a, b) => a + b, 0);
  const e = inn.extras;
  const bowling = [...inn.bowlers.values()].map((b) => row(hands(b.player), "", [overs(b.balls), b.runs, b.wickets, rate(b.runs, b.balls), b.wides + b.noBalls]));
  const falls = inn.falls.map((fall) => `${fall.wicket}–${fall.score} (${names(fall.player)}, ${fall.over})`).join(" · ");
  const scroll = (label, node) => h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": label }, node);
  return [
    scroll("Batting", h("table", { class: "data" }, heads(["Batting", "R", "B", "4s", "6s", "SR"]), h("tbody", {}, batting),
      h("tfoot", {}, row("Extras", `wides ${e.wides}, no-balls ${e.no_balls}, byes ${e.byes}, leg byes ${e.leg_byes}`, [extras, "", "", "", ""]), row("Total", `${inn.wickets} wicket${inn.wickets === 1 ? "" : "s"}, ${overs(inn.legal)} overs`, [inn.total, "", "", "", rate(inn.total, inn.legal)])))),
    h("p", { class: "falls small" }, h("b", {}, "Fall of wickets "), falls || "none yet"),
    scroll("Bowling", h("table", { class: "data" }, heads(["Bowling", "O", "R", "W", "Econ", "wd+nb"]), h("tbody", {}, bowling))),
  ];
}
