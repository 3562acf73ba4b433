// The scorecard with the fall of wickets.
import { badge, eachMoment, h, heads, put, rows, scroll, text } from "../../dom.js";
import { nameOf, overs, rate, sideOf } from "./names.js";

const by = (how, name) => ({ bowled: `b ${name}`, "caught and bowled": `c and b ${name}` })[how] ?? `${how}, b ${name}`;

// a row: name, how out, figures
const line = ([name, how, ...cells]) =>
  h("tr", null, h("th", { scope: "row" }, name, how && text("span.how", how)), cells.map((x, i) => h("td", { class: i ? "" : "strong" }, String(x))));
const figures = (names) => {
  const body = h("tbody");
  const foot = h("tfoot");
  const node = h("table.data", null, heads(names), body, foot);
  const fill = (part) => (lines) => rows(part, lines, (one) => one[0], (one) => one, line);
  return { node, body: fill(body), foot: fill(foot) };
};

export function cards() {
  const batting = figures(["Batting", "R", "B", "4s", "6s", "SR"]);
  const bowling = figures(["Bowling", "O", "R", "W", "Econ", "wd+nb"]);
  const falls = h("span");
  const empty = h("p.dim", null, "The scorecard starts with the first ball.");
  const sheet = h("div.sheet", null, scroll("Batting", batting.node), h("p.falls.small", null, h("b", null, "Fall of wickets "), falls), scroll("Bowling", bowling.node));
  const pick = h("div.seg", { role: "group", "aria-label": "Innings" });
  const node = h("div.scorecard", null, pick, empty, sheet);
  let chosen = null;
  let last = null;

  const paint = (state) => {
    last = state;
    const { innings } = state.memory;
    const now = innings.find((inn) => inn.id === chosen) || innings[innings.length - 1];
    rows(pick, innings, (inn) => inn.id, (inn) => [sideOf(state, inn.seat), inn === now],
      (inn) => h("div", null, h("button", { "aria-pressed": String(inn === now), onclick: () => { chosen = inn.id; paint(last); } }, badge(inn.seat), ` ${sideOf(state, inn.seat)}${inn.superOver ? " (super over)" : ""}`)));
    empty.hidden = Boolean(now);
    sheet.hidden = !now;
    if (now) fill(state, now);
  };

  const fill = (state, inn) => {
    const names = nameOf(state, inn.seat);
    const hands = nameOf(state, 1 - inn.seat);
    const f = state.frame;
    const there = f.batting === inn.seat && !f.over && f.innings === inn.number ? [f.striker.player, f.other.player] : [];
    const how = (b) => (b.how ? (b.bowler === null ? b.how : by(b.how, hands(b.bowler))) : there.includes(b.player) ? "batting" : "not out");
    const e = inn.extras;
    batting.body([...inn.batters.values()].map((b) => [names(b.player), how(b), b.runs, b.balls, b.fours, b.sixes, b.balls ? Math.round((100 * b.runs) / b.balls) : "–"]));
    batting.foot([["Extras", `wides ${e.wides}, no-balls ${e.no_balls}, byes ${e.byes}, leg byes ${e.leg_byes}`, e.wides + e.no_balls + e.byes + e.leg_byes, "", "", "", ""],
      ["Total", `${inn.wickets} wicket${inn.wickets === 1 ? "" : "s"}, ${overs(inn.legal)} overs`, inn.total, "", "", "", rate(inn.total, inn.legal)]]);
    put(falls, inn.falls.map((fall) => `${fall.wicket}–${fall.score} (${names(fall.player)}, ${fall.over})`).join(" · ") || "none yet");
    bowling.body([...inn.bowlers.values()].map((b) => [hands(b.player), "", overs(b.balls), b.runs, b.wickets, rate(b.runs, b.balls), b.wides + b.noBalls]));
  };
  return { node, draw: eachMoment(paint) };
}
