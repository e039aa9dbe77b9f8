// Tokens shaded by how likely they were; the alternatives show on hover and on focus.
import { byId, el } from "./dom.js";
import { visible } from "./text.js";

const mostTokens = 5000;
const percent = (logprob) => {
  const value = 100 * Math.exp(logprob);
  return value >= 10 ? `${value.toFixed(0)} %` : value >= 0.01 ? `${value.toPrecision(2)} %` : "< 0.01 %";
};

// 0 for likely, 5 for a surprise.
function shade(logprob) {
  const limits = [0.9, 0.6, 0.3, 0.1, 0.02];
  const probability = Math.exp(logprob);
  const at = limits.findIndex((limit) => probability >= limit);
  return at < 0 ? limits.length : at;
}

const named = (token) => visible(token).replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/ /g, "␣") || "(nothing)";

export function renderProbabilities(container, logprobs) {
  container.replaceChildren();
  container.blocks = undefined;
  container.plain = undefined;
  const box = el("div", { class: "tokens", dir: "auto", role: "group", "aria-label": "Tokens; arrow keys move among them" });
  logprobs.slice(0, mostTokens).forEach((one, index) => {
    box.append(el("span", {
      class: `token shade-${shade(one[1])}`, text: visible(one[0]), tabindex: index === 0 ? 0 : -1, "data-token": index,
      role: "img", "aria-label": `${named(one[0])}, ${percent(one[1])}`,
    }));
  });
  const tokenAt = (event) => event.target.closest?.(".token");
  const show = (event) => {
    const token = tokenAt(event);
    if (token) showAlternatives(token, logprobs[Number(token.dataset.token)]);
  };
  box.addEventListener("pointerover", show);
  box.addEventListener("focusin", show);
  box.addEventListener("pointerout", hideAlternatives);
  box.addEventListener("focusout", hideAlternatives);
  box.addEventListener("keydown", move);
  container.append(box);
  if (logprobs.length > mostTokens) container.append(el("p", { class: "quiet", text: `The first ${mostTokens} of ${logprobs.length} tokens are shown.` }));
}

function move(event) {
  const token = event.target.closest(".token");
  const next = event.key === "ArrowRight" ? token?.nextElementSibling : event.key === "ArrowLeft" ? token?.previousElementSibling : undefined;
  if (event.key === "Escape" && !byId("alternatives").hidden) {
    hideAlternatives();
    event.stopPropagation();
  }
  if (!next || event.altKey) return;
  event.preventDefault();
  token.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function showAlternatives(token, [text, logprob, others]) {
  const tip = byId("alternatives");
  const rows = others.some(([other]) => other === text) ? others : [[text, logprob], ...others];
  tip.replaceChildren(...rows.map(([other, value]) => el("div", { class: other === text ? "taken" : "" },
    el("bdi", { text: named(other) }), el("span", { text: percent(value) }))));
  tip.hidden = false;
  token.setAttribute("aria-describedby", "alternatives");
  const place = token.getBoundingClientRect();
  const above = place.bottom + tip.offsetHeight + 8 > innerHeight;
  tip.style.top = `${above ? place.top - tip.offsetHeight - 4 : place.bottom + 4}px`;
  tip.style.left = `${Math.max(4, Math.min(place.left, innerWidth - tip.offsetWidth - 4))}px`;
}

export function hideAlternatives() {
  byId("alternatives").hidden = true;
}
