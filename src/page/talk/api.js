// The server's HTTP interface, and its errors in words.

const keyName = "quire-api-key";
let keyInMemory;  // where the browser keeps nothing
let askForKey = async () => undefined;

export function setKeyAsker(asker) {
  askForKey = asker;
}

export function apiKey() {
  try {
    return sessionStorage.getItem(keyName) ?? keyInMemory;
  } catch {
    return keyInMemory;
  }
}

function keepKey(key) {
  keyInMemory = key;
  try {
    sessionStorage.setItem(keyName, key);
  } catch {
    // The key is then asked for again after a reload.
  }
  window.dispatchEvent(new CustomEvent("quire-key", { detail: key }));
}

export class HttpError extends Error {
  constructor(status, message, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

// Asks for a key, and again for another, as long as the server answers 401.
export async function call(path, options = {}) {
  let key = apiKey();
  for (let attempt = 0; ; attempt += 1) {
    const headers = { ...options.headers };
    if (key) headers.Authorization = `Bearer ${key}`;
    const response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
    if (response.status !== 401) {
      if (key && attempt > 0) keepKey(key);
      return response;
    }
    const kept = apiKey();
    if (kept && kept !== key) {
      key = kept;
      continue;
    }
    key = await askForKey(Boolean(key));
    if (!key) throw new HttpError(401, "The server wants an API key. Send again to enter one.");
  }
}

export async function models() {
  const response = await call("/v1/models");
  if (!response.ok) throw await problem(response);
  const { data } = await response.json();
  return Array.isArray(data) ? data.map((one) => String(one.id)) : [];
}

export async function healthy() {
  try {
    const response = await fetch("/health", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    return response.ok;
  } catch {
    return false;
  }
}

export async function problem(response) {
  let error;
  try {
    const text = await response.text();
    ({ error } = JSON.parse(text));
  } catch {
    // Not JSON: a proxy answered, and its page would help nobody here.
  }
  const retry = response.headers.get("Retry-After");
  return new HttpError(response.status, words(response.status, error?.code, error?.message ?? "", retry), retry);
}

function words(status, code, said, retry) {
  const detail = said ? ` The server says: ${said}` : "";
  if (status === 429) {
    const wait = /^\d+$/.test(retry ?? "") ? ` It asks to wait ${retry} s.` : retry ? ` It asks to wait until ${retry}.` : "";
    return `The server is busy.${wait} Then try again.${detail}`;
  }
  if (status === 413 || code === "context_length_exceeded") {
    return `The conversation is too long. Begin a new one, edit an earlier message, or lower Max tokens in the settings.${detail}`;
  }
  if (status === 400 || status === 422) return `The server refused the request. Change the setting that it names, then try again.${detail}`;
  if (status === 403) return `The server does not let this page use it. Open the page under the server's own address.${detail}`;
  if (status === 404) return `The server does not know this model. Choose another at the top.${detail}`;
  if (status === 503) return `The server cannot answer now. Try again in a moment; if that does not help, it has to be restarted.${detail}`;
  if (status >= 500) return `The server failed (status ${status}). Try again; its log says more.${detail}`;
  return `The server answered with status ${status}, which this page does not know. Try again; its log may say more.${detail}`;
}
