// From the settings and the messages to the body of a request.

const numbers = {
  temperature: { low: 0, high: 2 },
  top_p: { low: 0, high: 1, above: true },
  top_k: { low: -1, high: 2147483647, whole: true },
  min_p: { low: 0, high: 1 },
  max_tokens: { low: 1, high: 2147483647, whole: true },
  repetition_penalty: { low: 0, high: 10, above: true },
  presence_penalty: { low: -2, high: 2 },
  frequency_penalty: { low: -2, high: 2 },
  seed: { low: Number.MIN_SAFE_INTEGER, high: Number.MAX_SAFE_INTEGER, whole: true },
};

export const settingNames = ["system", ...Object.keys(numbers), "stop", "schema", "tools", "tool_choice", "logprobs"];

// A setting with a value that cannot be sent: `field` is its name.
export class BadSetting extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

function number(name, text) {
  const { low, high, above, whole } = numbers[name];
  const value = Number(text.trim().replace(",", ".").replace("−", "-"));
  const good = Number.isFinite(value) && (above ? value > low : value >= low) && value <= high && (!whole || Number.isInteger(value));
  if (good) return value;
  throw new BadSetting(name, `This has to be a ${whole ? "whole " : ""}number ${above ? "above" : "from"} ${low} ${above ? "and up " : ""}to ${high}.`);
}

function json(name, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new BadSetting(name, `This is not JSON: ${error.message}`);
  }
}

function stops(text) {
  const lines = text.split("\n").filter((line) => line !== "");
  if (lines.length > 16) throw new BadSetting("stop", "At most 16 stop strings are allowed.");
  return lines;
}

function tools(text) {
  const given = json("tools", text);
  const all = Array.isArray(given) ? given : [given];
  return all.map((one) => {
    const tool = one?.function ? one : { type: "function", function: one };
    if (typeof tool.function?.name !== "string") throw new BadSetting("tools", "Each tool needs a \"function\" with a \"name\".");
    return tool;
  });
}

// The fields that the settings stand for; throws BadSetting.
export function fieldsOf(settings) {
  const fields = {};
  for (const name of Object.keys(numbers)) {
    if (settings[name]?.trim()) fields[name] = number(name, settings[name]);
  }
  if (settings.stop) {
    const lines = stops(settings.stop);
    if (lines.length > 0) fields.stop = lines;
  }
  if (settings.schema?.trim()) {
    const schema = json("schema", settings.schema);
    if (typeof schema !== "object" && typeof schema !== "boolean") throw new BadSetting("schema", "A JSON schema is an object.");
    fields.response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
  }
  if (settings.tools?.trim()) {
    fields.tools = tools(settings.tools);
    if (settings.tool_choice) fields.tool_choice = settings.tool_choice;
  }
  if (settings.logprobs) {
    fields.logprobs = true;
    fields.top_logprobs = 5;
  }
  return fields;
}

// Those of the settings that can be sent.
export function withoutBad(settings) {
  const kept = { ...settings };
  for (;;) {
    try {
      fieldsOf(kept);
      return kept;
    } catch (error) {
      if (!(error instanceof BadSetting)) throw error;
      delete kept[error.field];
    }
  }
}

function sent(message) {
  if (message.role === "tool") return { role: "tool", tool_call_id: message.callId, content: message.content };
  if (message.role !== "assistant" || !message.calls?.length) return { role: message.role, content: message.content };
  const calls = message.calls.map((one) => ({ id: one.id, type: "function", function: { name: one.name, arguments: one.arguments } }));
  return { role: "assistant", content: message.content || null, tool_calls: calls };
}

// `going` is the answer to be continued, if there is one: the last of `messages`.
export function bodyOf(settings, messages, model, going) {
  const list = messages.filter((message) => message.role !== "assistant" || message.content || message.calls?.length).map(sent);
  if (settings.system?.trim()) list.unshift({ role: "system", content: settings.system });
  const body = { ...fieldsOf(settings), messages: list, stream: true, stream_options: { include_usage: true } };
  if (model) body.model = model;
  if (going) Object.assign(body, { continue_final_message: true, add_generation_prompt: false });
  return body;
}
