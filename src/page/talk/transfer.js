// Export and import. What is imported is copied field by field, so that nothing unknown enters the page.
import { Conversation, newId, titleOf } from "./tree.js";
import { settingNames } from "./request.js";

const format = "quire-conversations";
const roles = new Set(["user", "assistant", "tool"]);
const states = new Set(["done", "stopped", "cut", "error"]);

export function exported(conversations) {
  const all = conversations.map(({ meta, nodes }) => ({
    title: meta.title, created: meta.created, updated: meta.updated, settings: meta.settings, chosen: meta.chosen,
    messages: [...nodes.values()].map(({ conversation, ...rest }) => ({ ...rest, state: rest.state === "streaming" ? "cut" : rest.state })),
  }));
  return `${JSON.stringify({ format, version: 1, conversations: all }, undefined, 1)}\n`;
}

const refuse = (why) => { throw new Error(`Nothing was imported: ${why}`); };
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const finite = (value) => (typeof value === "number" && Number.isFinite(value) ? value : undefined);
const textOr = (value, other) => (typeof value === "string" ? value : other);

export function imported(text) {
  let data;
  try {
    data = JSON.parse(text);
  } catch (error) {
    refuse(`the file is not JSON (${error.message}).`);
  }
  if (!isObject(data) || data.format !== format) refuse("the file was not exported by this page (its \"format\" is another).");
  if (data.version !== 1) refuse(`the file has version ${JSON.stringify(data.version)}, and this page reads version 1.`);
  if (!Array.isArray(data.conversations) || data.conversations.length === 0) refuse("the file has no conversations.");
  return data.conversations.map((one, index) => conversation(one, `conversation ${index + 1}`));
}

function conversation(one, place) {
  if (!isObject(one) || !Array.isArray(one.messages)) refuse(`${place} has no list of messages.`);
  const now = Date.now();
  const meta = {
    id: newId(), title: textOr(one.title, "").slice(0, 200), created: finite(one.created) ?? now, updated: now,
    settings: settings(one.settings), chosen: {},
  };
  const ids = new Map();
  const messages = one.messages.map((message, index) => {
    const where = `message ${index + 1} of ${place}`;
    const copy = messageOf(message, where, ids);
    copy.conversation = meta.id;
    copy.order = index;
    return copy;
  });
  if (isObject(one.chosen)) {
    for (const [parent, child] of Object.entries(one.chosen)) {
      const to = ids.get(child);
      const from = parent === "" ? "" : ids.get(parent);
      if (to !== undefined && from !== undefined) meta.chosen[from] = to;
    }
  }
  meta.title ||= titleOf(messages.find((message) => message.role === "user")?.content ?? "Imported");
  return new Conversation(meta, messages);
}

function settings(given) {
  const result = { system: "" };
  if (!isObject(given)) return result;
  for (const name of settingNames) {
    if (typeof given[name] === "string") result[name] = given[name];
    else if (name === "logprobs" && typeof given[name] === "boolean") result[name] = given[name];
  }
  return result;
}

// Parents come before their children, so a tree without cycles is all that can be read.
function messageOf(message, where, ids) {
  if (!isObject(message)) refuse(`${where} is not an object.`);
  if (typeof message.id !== "string" || ids.has(message.id)) refuse(`${where} has no id of its own.`);
  if (!roles.has(message.role)) refuse(`${where} has the role ${JSON.stringify(message.role)}; known are user, assistant and tool.`);
  if (typeof message.content !== "string") refuse(`${where} has no content.`);
  const parent = message.parent ?? "";
  if (parent !== "" && !ids.has(parent)) refuse(`${where} answers a message that does not stand before it.`);
  const id = newId();
  ids.set(message.id, id);
  const copy = {
    id, parent: parent === "" ? "" : ids.get(parent), role: message.role, content: message.content,
    created: finite(message.created) ?? Date.now(), state: states.has(message.state) ? message.state : "done",
  };
  for (const name of ["reasoning", "model", "finish", "problem", "callId", "toolName"]) {
    if (typeof message[name] === "string") copy[name] = message[name];
  }
  for (const name of ["promptTokens", "tokens", "timed", "ttft", "took"]) {
    if (finite(message[name]) !== undefined) copy[name] = message[name];
  }
  if (message.estimated === true) copy.estimated = true;
  if (message.calls !== undefined) copy.calls = calls(message.calls, where);
  if (message.logprobs !== undefined) copy.logprobs = logprobs(message.logprobs, where);
  return copy;
}

function calls(given, where) {
  if (!Array.isArray(given)) refuse(`the calls of ${where} are not a list.`);
  return given.map((one) => {
    if (!isObject(one) || typeof one.id !== "string" || typeof one.name !== "string" || typeof one.arguments !== "string") {
      refuse(`a call of ${where} has no id, name or arguments.`);
    }
    return { id: one.id, name: one.name, arguments: one.arguments };
  });
}

function logprobs(given, where) {
  const good = (one) => Array.isArray(one) && typeof one[0] === "string" && finite(one[1]) !== undefined;
  if (!Array.isArray(given) || !given.every((one) => good(one) && Array.isArray(one[2]) && one[2].every(good))) {
    refuse(`the log probabilities of ${where} are not as this page writes them.`);
  }
  return given.map(([token, value, top]) => [token, value, top.map(([other, its]) => [other, its])]);
}
