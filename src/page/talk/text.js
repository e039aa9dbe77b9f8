// What a model writes may hold characters that act instead of being seen.

const controls = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
const bidi = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

// Escape sequences of terminals and other controls as pictures: ESC becomes ␛.
export function visible(text) {
  return text.replace(/\r\n?/g, "\n").replace(controls, (c) => {
    const code = c.charCodeAt(0);
    if (code < 32) return String.fromCharCode(0x2400 + code);
    return code === 127 ? "␡" : `\\x${code.toString(16)}`;
  });
}

// In code, reordering hides what a compiler reads, so there the controls are named.
export function nameBidi(text) {
  return text.replace(bidi, (c) => `⟨U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

// Within a sentence of the page: what a text does to the direction of writing ends with it.
export function isolated(text) {
  return `\u2068${text.replace(/[\u2066-\u2069]/g, "")}\u2069`;
}

const pieceSize = 8192;

// Beyond this an answer is plain text: Markdown in one line of a megabyte would stop the page.
export const longText = 200000;

// Pieces of their own, because laying out one paragraph again at each token costs its whole length.
export function renderPlain(container, text) {
  let state = container.plain;
  if (!state || !text.startsWith(state.head) || text.length < state.length) {
    container.replaceChildren();
    state = container.plain = { head: text.slice(0, 64), begin: 0, length: 0 };
  }
  if (text.length === state.length) return;
  while (state.begin < text.length) {
    const end = pieceEnd(text, state.begin);
    const last = end >= text.length;
    const piece = document.createElement("div");
    piece.dir = "auto";
    piece.className = "piece";
    piece.textContent = visible(text.slice(state.begin, end).replace(/\n$/, ""));
    if (state.open) container.lastChild.replaceWith(piece);
    else container.append(piece);
    state.open = last;
    if (last) break;
    state.begin = end;
  }
  state.length = text.length;
}

function pieceEnd(text, begin) {
  const limit = begin + pieceSize;
  if (limit >= text.length) return text.length;
  for (const mark of ["\n", " "]) {
    const at = text.lastIndexOf(mark, limit - 1);
    if (at > begin + pieceSize / 2) return at + 1;
  }
  const low = text.charCodeAt(limit);
  return low >= 0xdc00 && low < 0xe000 ? limit + 1 : limit;
}
