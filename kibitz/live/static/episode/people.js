// Opens the episode that was just started, and gives people their seats: one person plays in this tab; two get a link each.
import { badge, copy, h, keepSeat, noteStarted, put, text } from "../dom.js";
import { openDialog } from "../parts/dialog.js";

export function goTo(app, { episode_id: id, url, seats }) {
  noteStarted(id);
  if (seats.length === 1) keepSeat(id, seats[0].token);
  app.go(url);
  if (seats.length > 1) openLinks(seats);
}

function openLinks(seats) {
  const handOut = async ({ currentTarget }, link) => await copy(link) && put(currentTarget, "Copied");
  openDialog("Two people play", "", (dialog) => [
    h("h2", null, "Two people play"),
    h("p.dim", null, "Send each person one link. A link opens one seat and shows only that seat's private values; keep it from the other person."),
    ...seats.map(({ seat, url }) => h("div.row", null, badge(seat), h("b", null, `Seat ${seat}`), text("a.wrap", location.origin + url, { href: url, onclick: () => dialog.close() }),
      h("button", { "aria-label": `Copy the link of seat ${seat}`, onclick: (event) => handOut(event, location.origin + url) }, "Copy"))),
    h("div.row", null, h("button.primary", { onclick: () => dialog.close() }, "Watch")),
  ]);
}
