// Reports of studies and tournaments; each opens as a page of its own.
import { ask, h, many, signed, text } from "../dom.js";
import { ago, empty } from "./pages.js";

class Studies extends HTMLElement {
  async connectedCallback() {
    const page = h("div.page", null, h("h1", null, "Studies"), h("p.dim", null, "Loading…"));
    this.append(page);
    const { ok, data, error } = await ask("/reports.json");
    const reports = data.reports || [];
    page.replaceChildren(h("h1", null, "Studies"), ...(reports.length ? reports.map(reportCard) : [h("section.card", null, ok ? empty("No studies yet", "Reports of studies and tournaments in the runs folder appear here.", h("code", null, "kibitz study hints --game GAME")) : text("p.error", error, { role: "alert" }))]));
  }
}

function reportCard(report) {
  const shown = report.verdicts.filter((verdict) => verdict.shown), rest = report.verdicts.length - shown.length;
  return h("section.card", { "aria-label": report.title },
    h("h3", null, h("a", { href: signed(`/reports/${encodeURIComponent(report.name)}.html`) }, report.title)),
    text("p.dim.small", `${report.name} · ${ago(report.changed)}`), text("p", report.summary),
    shown.length ? h("ul.small", null, shown.map((verdict) => text("li", verdict.text))) : null,
    rest ? text("p.dim.small", `No difference was shown in ${rest} of ${many(report.verdicts.length, "comparison")}.`) : null);
}

customElements.define("kibitz-studies", Studies);
