// The settings of the conversation that is shown.
import { byId, closeBehindFocus, el } from "./dom.js";
import { BadSetting, fieldsOf, settingNames } from "./request.js";

const field = (name) => byId(`set-${name}`);

export class Settings {
  // `onchange(settings)` after each change.
  constructor(onchange) {
    this.onchange = onchange;
    byId("settings-form").addEventListener("input", () => this.#changed());
    byId("settings-form").addEventListener("reset", () => setTimeout(() => this.#changed()));
    byId("settings-form").addEventListener("submit", (event) => event.preventDefault());
    byId("open-settings").onclick = () => (byId("settings").hidden ? this.show() : this.#hide());
    byId("close-settings").onclick = () => {
      this.#hide();
      byId("open-settings").focus();
    };
    byId("settings").addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      byId("close-settings").click();
    });
    closeBehindFocus(byId("settings"), () => this.#hide());
  }

  show() {
    byId("settings").hidden = false;
    byId("open-settings").setAttribute("aria-expanded", "true");
    field("system").focus();
  }

  #hide() {
    byId("settings").hidden = true;
    byId("open-settings").setAttribute("aria-expanded", "false");
  }

  set(settings) {
    for (const name of settingNames) {
      if (name === "logprobs") field(name).checked = Boolean(settings[name]);
      else field(name).value = settings[name] ?? "";
    }
    this.check();
  }

  #changed() {
    const settings = {};
    for (const name of settingNames) {
      const box = field(name);
      if (name === "logprobs") settings[name] = box.checked;
      else if (box.value !== "") settings[name] = box.value;
    }
    settings.system ??= "";
    this.onchange(settings);
    this.check(settings);
  }

  // Says at the field what is wrong with it.
  check(settings) {
    for (const name of settingNames) {
      field(name).removeAttribute("aria-invalid");
      byId(`bad-${name}`)?.remove();
    }
    if (!settings) return;
    try {
      fieldsOf(settings);
    } catch (error) {
      if (!(error instanceof BadSetting)) throw error;
      this.#complain(error);
    }
  }

  #complain(error) {
    const box = field(error.field);
    box.setAttribute("aria-invalid", "true");
    box.setAttribute("aria-describedby", `bad-${error.field}`);
    box.after(el("span", { class: "bad", id: `bad-${error.field}`, text: error.message }));
  }

  // Opens the panel at the field that keeps a message from being sent.
  point(error) {
    this.show();
    this.check();
    this.#complain(error);
    field(error.field).focus();
  }
}
