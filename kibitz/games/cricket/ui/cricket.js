// Cricket: what each ball adds to the card, and how the match is drawn.
import { badge, h, many, style, words } from "../../dom.js";
import { charts } from "./charts.js";
import { cards } from "./card.js";
import { fieldCard } from "./field.js";
import { chips, nameOf, overs, rate, sideOf } from "./names.js";

style(import.meta.url);

export const unit = "ball";
export const newestFirst = true;
export const filters = { Wickets: "wicket", Fours: "four", Sixes: "six" };
const MAX_POINTS = 450; // of a line; beyond that every second point goes
const MAX_INNINGS = 8; // the match has two and each super over two more
const MAX_OVERS = 60; // kept of an innings

export const begin = ({ frame }) => ({ innings: [], win: [], start: frame.win_probability?.[0] ?? 0.5, streak: 0 });

function inningsFor(memory, frame) {
  const id = `${frame.super_over}-${frame.innings}-${frame.batting}`;
  const now = memory.innings[memory.innings.length - 1];
  if (now?.id === id) return now;
  const opened = {
    id, seat: frame.batting, superOver: frame.super_over, number: frame.innings, total: frame.score, wickets: frame.wickets, legal: frame.legal,
    batters: new Map(), bowlers: new Map(), extras: { wides: 0, no_balls: 0, byes: 0, leg_byes: 0 }, falls: [], overs: [],
    worm: [[frame.legal, frame.score]], stands: [], stand: null,
  };
  memory.innings.push(opened);
  if (memory.innings.length > MAX_INNINGS) memory.innings.shift();
  return opened;
}

const line = (map, player, empty) => map.get(player) || (map.set(player, { player, ...empty }), map.get(player));
const batter = (inn, player) => line(inn.batters, player, { runs: 0, balls: 0, fours: 0, sixes: 0, how: "", bowler: null });
const bowler = (inn, player) => line(inn.bowlers, player, { balls: 0, runs: 0, wickets: 0, wides: 0, noBalls: 0 });

const offBat = (ball) => ({ no_ball: ball.runs - 1, wide: 0, bye: 0 })[ball.outcome] ?? ball.runs;

function signOf(ball) {
  const extra = (word) => (ball.runs > 1 ? `${ball.runs}${word}` : word);
  if (ball.how) return ["W", "wicket"];
  if (ball.outcome === "wide") return [extra("wd"), "extra"];
  if (ball.outcome === "no_ball") return [extra("nb"), "extra"];
  if (ball.outcome === "bye") return [`${ball.runs}${ball.leg_bye ? "lb" : "b"}`, "extra"];
  if (ball.runs === 0) return ["•", "dot"];
  return [String(ball.runs), ball.runs >= 6 ? "six" : ball.runs >= 4 ? "four" : "run"];
}

// How a ball counts on the scorecard: byes do not count against the bowler, a run out is not the bowler's wicket,
// and a wide is not a ball faced.
export function step(state, before, entry) {
  const { memory, frame } = state;
  const { ball } = frame;
  if (!ball) return;
  const inn = inningsFor(memory, before);
  const [sign, kind] = signOf(ball);
  const legal = ball.outcome !== "wide" && ball.outcome !== "no_ball";
  const bat = offBat(ball);
  const striker = batter(inn, ball.batter);
  const hand = bowler(inn, ball.bowler);
  for (const who of [before.striker, before.other]) if (who) batter(inn, who.player);
  if (!inn.stand) inn.stand = { runs: 0, balls: 0, pair: [before.striker.player, before.other.player], parts: {} };
  entry.label = ball.at || overs(inn.legal + 1);
  striker.runs += bat;
  striker.balls += ball.outcome !== "wide" ? 1 : 0;
  striker.fours += bat === 4 && !ball.how ? 1 : 0;
  striker.sixes += bat === 6 ? 1 : 0;
  inn.total += ball.runs;
  inn.stand.runs += ball.runs;
  inn.stand.balls += legal ? 1 : 0;
  inn.stand.parts[ball.batter] = (inn.stand.parts[ball.batter] || 0) + bat;
  hand.balls += legal ? 1 : 0;
  if (ball.outcome !== "bye") hand.runs += ball.runs;
  if (ball.outcome === "wide") { inn.extras.wides += ball.runs; hand.wides += ball.runs; }
  if (ball.outcome === "no_ball") { inn.extras.no_balls += 1; hand.noBalls += 1; }
  if (ball.outcome === "bye") inn.extras[ball.leg_bye ? "leg_byes" : "byes"] += ball.runs;
  const number = Math.floor(inn.legal / 6);
  inn.legal += legal ? 1 : 0;
  let over = inn.overs[inn.overs.length - 1];
  if (!over || over.number !== number) {
    over = { number, runs: 0, wickets: 0, signs: [], bowler: ball.bowler, total: 0, lost: 0, seq: entry.seq };
    inn.overs.push(over);
    if (inn.overs.length > MAX_OVERS) inn.overs.shift();
  }
  if (ball.how) {
    inn.wickets += 1;
    over.wickets += 1;
    const gone = batter(inn, ball.out);
    Object.assign(gone, { how: ball.how, bowler: ball.how === "run out" || ball.how === "run_out" ? null : ball.bowler });
    if (gone.bowler !== null) hand.wickets += 1;
    inn.falls.push({ wicket: inn.wickets, score: inn.total, player: ball.out, over: overs(inn.legal) });
    inn.stands.push(inn.stand);
    inn.stand = null;
    // the laws allow ten; the bound keeps the page small if a stream never ends its innings
    if (inn.falls.length > 12) { inn.falls.shift(); inn.stands.shift(); }
  }
  over.runs += ball.runs;
  over.signs.push([sign, kind]);
  if (over.signs.length > 30) over.signs.shift();
  Object.assign(over, { total: inn.total, lost: inn.wickets });
  inn.worm.push([inn.legal, inn.total]);
  if (inn.worm.length > MAX_POINTS) inn.worm = inn.worm.filter((_, i) => i % 2 === 0);
  memory.win.push([entry.turn, frame.win_probability[0], entry.seq]);
  if (memory.win.length > MAX_POINTS) memory.win = memory.win.filter((_, i) => i % 2 === 0);
  memory.streak = ball.runs >= 4 && !ball.how ? memory.streak + 1 : 0;
  const ended = inn.legal % 6 === 0 && legal;
  Object.assign(entry, { sign, kind, batting: inn.seat, chose: `${ball.intent} v ${planned(ball.plan)}, ${ball.field} field`, over: ended, moment: momentOf(state, ball, inn, striker, bat, before), icon: frame.over ? "flag" : "" });
  if (ended) entry.card = { ...over, signs: [...over.signs], seat: inn.seat, hand: nameOf(state, 1 - inn.seat)(over.bowler) };
}

function momentOf(state, ball, inn, striker, bat, before) {
  const { frame, memory } = state;
  const names = nameOf(state, inn.seat);
  if (frame.over) return "Result";
  if (ball.how) return `Wicket: ${names(ball.out)}, ${ball.how}`;
  if (frame.innings !== before.innings || frame.super_over !== before.super_over) return "End of innings";
  for (const mark of [50, 100]) if (striker.runs >= mark && striker.runs - bat < mark) return `${names(ball.batter)} reaches ${mark}`;
  if (Math.abs(ball.win_change || 0) >= 0.1) return `Swing of ${Math.round(Math.abs(ball.win_change) * 100)} points`;
  if (memory.streak === 3) return "Three boundaries in a row";
  return ball.runs >= 6 ? "Six" : "";
}

const planned = (plan) => (plan === "good" ? "good length" : words(plan));

// what both captains chose for a ball
export const chosen = (entry) => entry.chose || "";

// the card after each over
export const after = ({ card }) => card && h("div.overcard", null, h("div.overhead", null, badge(card.seat), h("b", null, ` End of over ${card.number + 1} `), h("span.dim", null, card.hand), h("span.num.end", null, `${many(card.runs, "run")} · ${card.total}/${card.lost}`)), h("div.balls", null, chips(card.signs)));

// the score line at the top of the page
export function scoreboard(state) {
  const f = state.frame;
  const m = state.memory;
  const innings = [0, 1].map((seat) => m.innings.filter((inn) => inn.seat === seat).pop());
  const sides = [0, 1].map((seat) => {
    const bats = f.batting === seat && !f.over;
    const inn = innings[seat];
    const mine = bats ? { total: f.score, wickets: f.wickets, legal: f.legal } : inn;
    return {
      seat, name: sideOf(state, seat), by: `played by ${seat === state.mine ? "you" : state.names[seat]}`, active: bats, won: f.winner === seat,
      main: mine ? `${mine.total}/${mine.wickets}` : "–", sub: mine ? `${overs(mine.legal)} overs` : "yet to bat",
    };
  });
  const tags = [];
  if (f.super_over) tags.push(`Super over ${f.super_over > 1 ? f.super_over : ""}`.trim());
  if (f.powerplay && !f.over) tags.push("Powerplay");
  if (f.free_hit && !f.over) tags.push("Free hit");
  if (f.over) tags.push("Match over");
  const pace = `run rate ${rate(f.score, f.legal)}`;
  const begun = f.legal || f.score; // before the first ball there is nothing to project
  let now = [f.projected && begun ? `Projected ${f.projected}` : `${many(f.balls_left, "ball")} left`, ...(begun ? [pace] : [])];
  if (f.needed !== null && f.needed !== undefined) now = [`Need ${f.needed} from ${many(f.balls_left, "ball")}`, `required ${f.required_rate.toFixed(2)} · ${pace}`];
  return { sides, tags, now: f.over ? [] : now };
}

export function mount(root, { caption, end, tab }) {
  const field = fieldCard(caption, end);
  const graphs = charts();
  const sheets = cards();
  root.classList.add("hero");
  root.append(h("div.col.one", null, field.node));
  tab("Scorecard", sheets.node);
  tab("Charts", h("div.graphs", null, ...graphs.nodes));
  return (state) => {
    field.draw(state);
    graphs.draw(state);
    sheets.draw(state);
  };
}

// The result; the player at this page is addressed.
export function verdict(state) {
  const { ended, frame, mine, review, turns } = state;
  if (!ended) return null;
  const line = String(ended.text || "");
  const winner = sideOf(state, frame.winner);
  const own = mine !== undefined && typeof frame.winner === "number";
  const head = !own ? line : frame.winner === mine ? line.replace(`${winner} win`, "You win") : `You lose. ${line}`;
  const [top] = [...(review.moments || [])].sort((a, b) => Math.abs(b.change) - Math.abs(a.change));
  const entry = top && turns.find((one) => one.turn === top.turn);
  const points = top && Math.round(100 * Math.abs(top.change));
  return { head, lines: [], moment: entry && { seq: entry.seq, text: `${entry.text} It moved the win probability by ${many(points, "point")}, towards ${sideOf(state, top.change > 0 ? 0 : 1)}.` } };
}

const WORDS = { intent: "Batting intent", plan: "Delivery", field: "Field", bowler: "Bowler", next_batter: "If a wicket falls, next in" };
export const seatForm = {
  label: (head) => WORDS[head] || head,
  value: (head, value, state, seat) => (typeof value === "number" ? nameOf(state, seat)(value) : planned(value)),
  cards: (head) => head === "bowler",
  folded: (head) => head === "next_batter", // a list: it matters only if a wicket falls
};

// an act of the captain in this seat, for the hint
const INTENTS = ["block", "rotate", "accumulate", "attack", "slog"];
const PLANS = ["yorker", "full", "good length", "short", "wide of off", "variation"];
const FIELDS = ["attacking", "balanced", "defensive", "death"];
export function actText([intent, plan, field, bowler], state, seat) {
  if (state.frame.batting === seat) return INTENTS[intent];
  return `${PLANS[plan]}, ${FIELDS[field]} field${state.frame.bowler ? "" : `, ${nameOf(state, seat)(bowler)} to bowl`}`;
}

// what a captain chose or was advised, with the players' names
export function inWords({ act, text, seat }, state, { batting }) {
  if (!Array.isArray(act) || batting === undefined) return text;
  const [intent, plan, field, bowler, coming] = act;
  const name = nameOf(state, seat);
  if (seat === batting) return `${INTENTS[intent]}${coming ? `; if a wicket falls, ${name(coming)} is next` : ""}`;
  return `${PLANS[plan]}, ${FIELDS[field]} field; ${name(bowler)} bowls`;
}

// the same choices until the over ends or a wicket falls
export const playOut = {
  label: "Play out the over",
  since: ({ frame }) => [Math.floor(frame.legal / 6), frame.wickets, frame.innings, frame.super_over].join(),
  goesOn: (state, since) => playOut.since(state) === since && !state.frame.over,
};
