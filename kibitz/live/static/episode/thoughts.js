// What a player thought: its reason, its tool calls, hints, fallbacks and what the answer cost.
import { badge, called, capital, h, text, words as plain } from "../dom.js";
import { costOf } from "../stream/reduce.js";

const cost = ({ usage, latency }) => {
  const { tokens, money } = costOf(usage);
  return [tokens && `${tokens} tokens`, money && `$${money.toFixed(5)}`, latency >= 0.05 && `${latency.toFixed(1)} s`].filter(Boolean).join(" · ");
};

// a failure in plain words, by the kind that the record names
const FAILURES = {
  transport: "the model could not be reached", refused: "the provider refused the question", empty: "the model’s answer was empty", not_json: "the model’s answer was not readable",
  wrong_shape: "the model’s answer had the wrong form", illegal: "the move was not legal", breaker: "the provider has failed too often", budget: "the budget is used up",
};
function whyFallback({ fallback, failure, source }, mine) {
  const line = String(fallback);
  const [, seconds] = line.match(/no answer in ([\d.]+) s/) || [];
  if (seconds) return source === "human" || line.startsWith("TimeoutError: no answer") ? `${mine ? "you" : "the person"} did not answer within ${seconds} s` : `the player did not answer within ${seconds} s`;
  if (/still busy/.test(line)) return "the player was still busy with an earlier turn";
  return FAILURES[line.match(/^NoAnswer: (\w+)/)?.[1]] || FAILURES[failure] || fallback;
}

const fallen = (one, mine) => one.fallback && h("span.fallback", null, "⚠ The fallback played this turn: ", whyFallback(one, mine));

// A model's answer in words: the texts of its JSON fields and how sure it was. Its numbers encode the act, which the page
// shows in words anyway. The answer may still be on its way, so this does not wait for its last brace.
const FIELD = /"(\w+)"\s*:\s*(?:"((?:[^"\\]|\\.)*)|([\d.]+))/g;
export function answerWords(answer) {
  const at = answer.search(/\{\s*("|$)/);
  if (at < 0) return answer;
  const said = [...answer.slice(at).matchAll(FIELD)].map(([, name, line, number]) => (line ? `${capital(plain(name))}: ${unescaped(line)}` : name === "confidence" && number ? `${Math.round(100 * number)}% sure` : ""));
  return [answer.slice(0, at).trim(), ...said].filter(Boolean).join("\n");
}
function unescaped(line) {
  if (/^\w+$/.test(line)) return plain(line); // a value such as wide_of_off
  try { return JSON.parse(`"${line}"`); } catch { return line; }
}

function quoted(reason) {
  const said = typeof reason === "string" ? answerWords(reason) : reason;
  return [said && text("blockquote", said), said !== reason && h("details", null, h("summary", null, "The answer as sent"), text("code", reason))];
}

// A note beside a turn: the seat, the words, a fallback with its cause, the cost and the reason.
const note = (cls, one, words, spent, mine) => h("div", { class: `note ${cls}` }, badge(one.seat), h("span", null, words), fallen(one, mine),
  spent && h("span.cost.num", null, spent), one.reason && quoted(one.reason));

// in the list of turns: only what went wrong
export const warnings = (entry, mine) => entry.decisions.filter((one) => one.fallback).map((one) => h("div.note", null, badge(one.seat), fallen(one, one.seat === mine)));

// `inWords(one)` is how a game's page puts an act, because its text is written for models
export function thoughts(entry, mine, inWords = ({ text: line }) => line) {
  const calls = entry.decisions.flatMap((one) => (isModel(one) ? one.calls.map((call) => [one.seat, call]) : []));
  return [...entry.hints.map((one) => hintNote(one, inWords)), ...entry.decisions.map((one) => thought(one, mine, inWords)).filter(Boolean),
    calls.length > 0 && h("ul.calls", { "aria-label": "Tool calls" }, calls.map(([seat, call]) => h("li", null, badge(seat), " ", h("code", null, `${call.tool}(${Object.entries(call.arguments || {}).map(([k, v]) => `${k}=${JSON.stringify(v)}`).join(", ")})`))))].filter(Boolean);
}

const isModel = ({ source }) => String(source).startsWith("llm:");
export const hasThoughts = (entry) => entry.hints.length > 0 || entry.decisions.some((one) => one.reason || one.fallback || isModel(one));

function hintNote(hint, inWords) {
  const sure = hint.confidence === null || hint.confidence === undefined ? "" : ` (${Math.round(hint.confidence * 100)}% sure)`;
  return note("hint", hint, hint.text ? `Hint: ${inWords(hint)}${sure}` : "A hint, private to this seat until the end", [called(hint.source), cost(hint)].filter(Boolean).join(" · "));
}

function thought(one, mine, inWords) {
  if (!one.reason && !one.fallback && !isModel(one)) return null;
  return note("", one, [h("b", null, `${called(one.source, one.seat === mine)}:`), " ", text("span", inWords(one))], cost(one), one.seat === mine);
}
