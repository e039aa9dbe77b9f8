// The page at /. Of libraries it uses the globals `marked`, `DOMPurify`, `katex` and `hljs` of the scripts in index.html;
// without one of them, text stays plain.
import { apiKey, setKeyAsker } from "./talk/api.js";
import { byId } from "./talk/dom.js";
import { askKey, openHelp } from "./talk/dialogs.js";
import { notice } from "./talk/notices.js";
import { Talk } from "./talk/talk.js";

const wide = matchMedia("(min-width: 1100px)");
let look;
let lookRuns = false;

async function runLook(wanted) {
  if (wanted === lookRuns) return;
  lookRuns = wanted;
  try {
    look ??= await import("/page/look/look.js");
    if (wanted !== lookRuns) return;
    if (wanted) await look.start(byId("look"), { key: apiKey() });
    else look.stop();
  } catch (error) {
    look = undefined;
    lookRuns = false;
    notice("look", `The live view could not be shown (${error.message}). Reload the page to try again.`);
  }
}

function show(view) {
  const shown = view === "both" && !wide.matches ? "talk" : view;
  document.body.dataset.view = shown;
  byId("talk").hidden = shown === "look";
  byId("look").hidden = shown === "talk";
  const skip = document.querySelector(".skip");
  skip.hash = shown === "look" ? "#look" : "#entry";
  skip.textContent = shown === "look" ? "Skip to the live view" : "Skip to the message box";
  for (const one of byId("views").children) one.setAttribute("aria-pressed", String(one.dataset.view === shown));
  runLook(shown !== "talk");
}

function start() {
  setKeyAsker(askKey);
  for (const one of byId("views").children) one.onclick = () => show(one.dataset.view);
  wide.addEventListener("change", () => show(document.body.dataset.view));
  byId("open-help").onclick = openHelp;
  window.addEventListener("quire-key", async () => {
    if (!lookRuns) return;
    await runLook(false);
    await runLook(true);
  });
  new Talk().start();
}

start();
