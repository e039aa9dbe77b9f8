// The K/V groups of a model whose layers keep different tokens: which is shown, and how many blocks each has.
import { count, plural } from "../draw/05_words.js";
import { element } from "../draw/30_draw.js";

/** What a group keeps: "everything", "the last 512 tokens". */
export const keeps = ({ config }, group) =>
  (config.kv_windows[group] === 0 ? "everything" : `the last ${plural(config.kv_windows[group], "token")}`);

/** In which group a block of the pool is, in a sentence; undefined if it is in none, or there is one alone. */
export function groupOf(house, block) {
  if (house.groups < 2 || !["owned", "shared", "cached"].includes(house.pool.stateOf(block))) return undefined;
  const group = house.pool.group[block];
  return `In K/V group ${group}, which keeps ${keeps(house, group)}.`;
}

/** How many of the blocks of a request are in each group: " (3 and 2 in the K/V groups)"; "" if there is one group. */
export function spread({ pool, groups }, request) {
  if (groups < 2) return "";
  const each = new Array(groups).fill(0);
  for (const block of pool.blocksOf(request)) ++each[pool.group[block]];
  return ` (${each.slice(0, -1).map(count).join(", ")} and ${count(each.at(-1))} in the K/V groups)`;
}

/** Of a model with several groups, in a sentence; "" of others. */
export function groupsText({ groups, config }) {
  if (groups < 2) return "";
  return `The layers of this model form ${groups} K/V groups. All take their blocks from this pool, ` +
    `so ${groups} blocks carry ${config.block_size} tokens of a request, until the windows move on.`;
}

export class GroupChoice {
  /** `onChoose()`: another group is shown. */
  constructor(onChoose) {
    this.onChoose = onChoose;
    this.box = element("div", { class: "groups", role: "group", "aria-label": "K/V group shown", hidden: "" });
    this.chosen = undefined;  // all
  }

  /** Anew, for another house. */
  begin(house) {
    this.house = house;
    this.chosen = undefined;
    this.box.hidden = house.groups < 2;
    this.amounts = [];
    if (this.box.hidden) return;
    const groups = Array.from({ length: house.groups }, (unused, group) => group);
    this.buttons = [undefined, ...groups].map((group) => this.button(group));
    this.box.replaceChildren(...this.buttons);
  }

  button(group) {
    const title = group === undefined ? "All groups" : `Group ${group}: ${keeps(this.house, group)}`;
    const made = element("button", { type: "button", "aria-pressed": String(group === this.chosen), onclick: () => this.choose(group) }, title);
    if (group === undefined) return made;
    this.amounts.push(element("span", { class: "quiet" }));
    made.append(" ", this.amounts.at(-1));
    return made;
  }

  choose(group) {
    this.chosen = group;
    this.buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === (group === undefined ? 0 : group + 1))));
    this.onChoose();
  }

  /** The amounts are those of the frame shown. */
  update() {
    if (this.box.hidden) return;
    const { pool, groups, own } = this.house;
    pool.countGroups(groups).forEach(({ held, cached }, group) => {
      const text = own ? `${count(held)} yours` : `${count(held)} held, ${count(cached)} cached`;
      if (this.amounts[group].textContent !== text) this.amounts[group].textContent = text;
    });
  }
}
