// Names of players, sides and balls.
import { h } from "../../dom.js";

// a player's name by place in the side's batting order
export function nameOf(state, seat) {
  const players = state.cast.sides?.[seat]?.players;
  return (i) => players?.[i]?.name || `No. ${i + 1}`;
}
export const sideOf = (state, seat) => state.cast.sides?.[seat]?.name || state.frame.sides?.[seat] || state.names[seat];

export const overs = (legal) => `${Math.floor(legal / 6)}.${legal % 6}`;
export const rate = (runs, legal) => (legal ? ((6 * runs) / legal).toFixed(2) : "–");
export const chips = (signs) => signs.map(([sign, kind]) => h("span", { class: `chip ${kind}` }, sign));
