// Cricket: what each ball adds to the card, and how the match is drawn.
import { badge, card, eachMoment, h, heads, many, put, s, seatClass, set, style, text } from "../../dom.js";
import { charts } from "./charts.js";
import { cards } from "./card.js";
import { chips, nameOf, overs, rate, sideOf } from "./names.js";

style(import.meta.url);

export const unit = "ball";
export const newestFirst = true;
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
  Object.assign(entry, { sign, kind, plan: ball.plan, left: leftHanded(state, inn.seat, ball.batter), over: inn.legal % 6 === 0 && legal, moment: momentOf(state, ball, inn, striker, bat, before) });
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

const leftHanded = (state, seat, i) => /^left/.test(state.cast.sides?.[seat]?.players?.[i]?.bats);

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
  const pace = `run rate ${rate(f.score, f.legal)}`;
  let now = [f.projected ? `Projected ${f.projected}` : `${many(f.balls_left, "ball")} left`, pace];
  if (f.needed !== null && f.needed !== undefined) now = [`Need ${f.needed} from ${many(f.balls_left, "ball")}`, `required ${f.required_rate.toFixed(2)} · ${pace}`];
  return { sides, tags, now: f.over ? [] : now };
}

export function mount(root) {
  const middle = middleCard();
  const field = fieldCard();
  const graphs = charts();
  const sheets = cards();
  root.append(
    h("div.col.one", null, middle.node, field.node, sheets.byOver),
    h("div.col.two", null, ...graphs.nodes, sheets.scorecard));
  return (state) => {
    middle.draw(state);
    field.draw(state);
    graphs.draw(state);
    sheets.draw(state);
  };
}

function middleCard() {
  const body = h("tbody");
  const bowling = h("p.bowling");
  const stand = h("p.dim.small");
  const balls = h("div.balls", { role: "img" });
  const node = card("In the middle", "middle first", h("table.data", null, heads(["Batting", "R", "B", "4s", "6s", "SR"]), body), bowling, stand, balls);
  const draw = eachMoment((state) => {
    const f = state.frame;
    const inn = state.memory.innings.find((x) => x.id === `${f.super_over}-${f.innings}-${f.batting}`);
    const names = nameOf(state, f.batting);
    // in batting order, so that a single moves the mark and not the rows
    const rows = [f.striker, f.other].sort((a, b) => a.player - b.player).map((who) => {
      const got = inn?.batters.get(who.player) || { runs: 0, balls: 0, fours: 0, sixes: 0 };
      return [who.name || names(who.player), who === f.striker, got.runs, got.balls, got.fours, got.sixes, got.balls ? Math.round((100 * got.runs) / got.balls) : "–"];
    });
    body.replaceChildren(...rows.map(([name, strike, ...cells]) => h("tr", { class: strike ? "strike" : "" },
      h("th", { scope: "row" }, badge(f.batting), ` ${name}`, strike && h("span.onstrike", { title: "on strike" }, " *")),
      cells.map((cell, i) => h("td", { class: i ? "" : "strong" }, String(cell))))));
    const last = f.bowler || (inn?.overs.length ? { player: inn.overs[inn.overs.length - 1].bowler } : null);
    const got = last && inn?.bowlers.get(last.player);
    const figures = got ? `${overs(got.balls)}–${got.runs}–${got.wickets}` : "to bowl";
    bowling.replaceChildren(...(last ? [badge(1 - f.batting), " ", text("b", last.name || nameOf(state, 1 - f.batting)(last.player)),
      h("span.dim", null, last.type ? ` ${String(last.type).replaceAll("_", " ")} ` : " "), h("span.num", null, figures)] : [h("span.dim", null, "New over")]));
    const pair = inn?.stand;
    put(stand, `Partnership ${pair ? pair.runs : 0} from ${many(pair ? pair.balls : 0, "ball")}`);
    const recent = inn ? inn.overs.slice(-2) : [];
    set(balls, "aria-label", `Last balls: ${recent.flatMap((over) => over.signs.map(([sign]) => (sign === "•" ? "dot" : sign))).join(", ") || "none yet"}`);
    balls.replaceChildren(...recent.flatMap((over, i) => [i > 0 && h("span.bar"), ...chips(over.signs)]).filter(Boolean));
  });
  return { node, draw };
}

const LENGTHS = { short: [0.3, 0.5], good: [0.5, 0.66], full: [0.66, 0.8], yorker: [0.85, 0.95], variation: [0.5, 0.75], wide_of_off: [0.55, 0.78] };
const up = (at) => 272 - at * 244; // seen from behind the bowler's arm, the batter at the top
const wobble = (n) => ((n * 2654435761) % 1000) / 1000; // spreads the balls of one plan, so that each can be seen

function fieldCard() {
  const men = s("g");
  const where = s("g.land");
  const svg = s("svg.ground", { viewBox: "0 0 300 300", role: "img" },
    s("circle.grass", { cx: 150, cy: 150, r: 142 }), s("circle.rope", { cx: 150, cy: 150, r: 139 }),
    s("circle.ring", { cx: 150, cy: 150, r: 64 }), s("rect.strip", { x: 144, y: 126, width: 12, height: 48, rx: 2 }), men);
  const pitch = s("svg.pitch", { viewBox: "0 0 110 300", role: "img" },
    s("rect.strip", { x: 36, y: 8, width: 72, height: 284, rx: 6 }),
    ...[["short", 0.4], ["good", 0.58], ["full", 0.73], ["yorker", 0.9]].map(([name, at]) => s("text.zone", { x: 31, y: up(at) + 4 }, name)),
    ...[0.5, 0.66, 0.82].map((at) => s("path.crease.faint", { d: `M36 ${up(at)}H108` })),
    s("path.crease", { d: "M40 28H104M40 272H104" }), s("path.stumps", { d: "M66 12v9M72 12v9M78 12v9" }), where);
  const caption = h("p.dim.small");
  let standing = "";
  const node = card("Field and pitch", "second", h("div.grounds", null, svg, pitch), caption);
  const draw = eachMoment((state) => {
    const f = state.frame;
    const placed = (f.fielders || []).map(([angle, radius, name]) => {
      const turn = (angle * Math.PI) / 180;
      // seen from behind the bowler's arm: straight is down the page, off side of a right-hander to the left
      return [150 - Math.sin(turn) * radius * 139, 150 + Math.cos(turn) * radius * 139, name];
    });
    const slips = placed.filter((man) => man[2].includes("slip"));
    const named = placed.filter((man) => !/^(bowler|keeper)$|slip/.test(man[2]));
    if (slips.length) named.push([...slips[0].slice(0, 2), many(slips.length, "slip")]);
    const taken = []; // a name goes above its dot, or below it where another name is
    const label = ([x, y, name]) => {
      const anchor = x < 60 ? "start" : x > 240 ? "end" : "middle";
      const wide = name.length * 5.3;
      const left = { start: x, end: x - wide, middle: x - wide / 2 }[anchor];
      const free = taken.every(([from, to, at]) => left > to || left + wide < from || Math.abs(at - y + 7) > 9);
      const at = y >= 24 && free ? y - 7 : y + 14;
      taken.push([left, left + wide, at]);
      return s("text.pos", { x, y: at, "text-anchor": anchor }, name);
    };
    const field = JSON.stringify([f.fielders, f.batting]);
    if (field !== standing) men.replaceChildren(...placed.map(([x, y]) => s("circle", { class: `man ${seatClass(1 - f.batting)}`, cx: x, cy: y, r: 4.5 })), ...named.map(label),
      s("path", { class: `man ${seatClass(f.batting)}`, d: "M150 124l5 5-5 5-5-5z" }), s("path", { class: `man ${seatClass(f.batting)}`, d: "M139 167l5 5-5 5-5-5z" }));
    set(svg, "aria-label", `${f.field || ""} field: ${placed.map((man) => man[2]).join(", ")}`);
    standing = field;
    const recent = state.turns.slice(-6).filter((entry) => entry.plan);
    where.replaceChildren(...recent.map((entry, i) => {
      const [from, to] = LENGTHS[entry.plan] || [0.5, 0.7];
      const off = (entry.plan === "wide_of_off" ? 26 : 10) - wobble(entry.turn + 1) * 18;
      const x = 72 + (entry.left ? off : -off);
      const y = up(from + (to - from) * wobble(entry.turn * 7 + 3));
      return s("g", { class: `ball ${entry.kind}${i === recent.length - 1 ? " latest" : ""}` }, s("circle", { cx: x, cy: y, r: i === recent.length - 1 ? 9 : 6.5 }), s("text", { x, y: y + 3.6 }, entry.sign));
    }));
    const ball = f.ball;
    set(pitch, "aria-label", `Lengths planned for the last balls: ${recent.map((entry) => `${entry.plan.replaceAll("_", " ")} (${entry.sign})`).join(", ") || "none yet"}`);
    put(caption, ball ? `${ball.field} field · bowled ${ball.plan.replaceAll("_", " ")} · batted to ${ball.intent}. Dots mark where the plan aims.` : "No balls bowled yet.");
  });
  return { node, draw };
}

const WORDS = { intent: "Batting intent", plan: "Delivery", field: "Field", bowler: "Bowler", next_batter: "Next batter" };
export const seatForm = {
  label: (head) => WORDS[head] || head,
  value: (head, value, state, seat) => (typeof value === "number" ? nameOf(state, seat)(value) : value.replaceAll("_", " ")),
};
