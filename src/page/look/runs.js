// The requests that run. Their lines change all the time, so they are kept and only their contents are set.
import { element } from "../draw/30_draw.js";
import { place } from "./lists.js";

export class RunList {
  constructor() {
    this.list = element("ul", { class: "lines runs", tabindex: 0, "aria-label": "Running" });
    this.none = element("li", { class: "quiet" }, "Nobody runs.");
    this.rows = new Map();  // by request
  }

  show(requests, teller, now) {
    if (teller !== this.teller) this.rows.clear();
    this.teller = teller;
    const rows = new Map(requests.map((request) => [request, this.rows.get(request) ?? makeRow(request, teller)]));
    this.rows = rows;
    for (const [request, row] of rows) setRow(row, ...teller.running(request, now));
    const items = requests.length === 0 ? [this.none] : [...rows.values()].map(({ item }) => item);
    place(this.list, items);
  }
}

function makeRow(request, teller) {
  const bar = element("progress", { max: 1, "aria-label": `Progress of #${request.id}` });
  const text = element("span", {});
  return { bar, text, item: element("li", {}, teller.ref(request.i), bar, text) };
}

function setRow({ bar, text }, part, said) {
  bar.hidden = part === undefined;
  if (part !== undefined && bar.value !== part) bar.value = part;
  if (text.textContent !== said) text.textContent = said;
}
