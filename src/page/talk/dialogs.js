// The page's dialogs: help, and one that asks for a text or a yes.
import { byId } from "./dom.js";

let asking = Promise.resolve();

// The text that was entered, or undefined. `input` undefined asks for a yes only: then "" is a yes.
export function ask(options) {
  // One at a time: two requests may both find out that a key is missing.
  const next = asking.then(() => show(options));
  asking = next.catch(() => undefined);
  return next;
}

function show({ title, text, ok, label, input, password }) {
  const dialog = byId("ask");
  const box = byId("ask-input");
  byId("ask-title").textContent = title;
  byId("ask-text").textContent = text ?? "";
  byId("ask-ok").textContent = ok ?? "OK";
  byId("ask-label").hidden = input === undefined;
  byId("ask-label").querySelector("span").textContent = label ?? "Text";
  box.type = password ? "password" : "text";
  box.value = input ?? "";
  dialog.returnValue = "";
  byId("ask-cancel").onclick = () => dialog.close("");
  byId("ask-ok").value = "ok";
  dialog.showModal();
  if (input === undefined) byId("ask-cancel").focus();
  else box.select();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const value = box.value;
      box.value = "";
      resolve(dialog.returnValue === "ok" ? value : undefined);
    }, { once: true });
  });
}

// undefined without a key.
export async function askKey(wrong) {
  const key = await ask({
    title: "API key",
    text: wrong ? "The server does not know this key. Enter another." : "This server wants an API key. It is kept until this tab is closed, and sent to this server only.",
    label: "Key", input: "", password: true, ok: "Use it",
  });
  return key?.trim() || undefined;
}

export function openHelp() {
  if (!document.querySelector("dialog[open]")) byId("help").showModal();
}
