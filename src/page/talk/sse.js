// Server-sent events from a fetch, by hand: EventSource can only GET.

// Feeds `data` of each event to `take`; true if "[DONE]" came.
export async function readEvents(stream, take) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let rest = [];
  let done = false;
  const end = (line) => {
    const text = line.endsWith("\r") ? line.slice(0, -1) : line;
    if (!text.startsWith("data:")) return;
    const data = text.slice(5).trimStart();
    if (data === "[DONE]") done = true;
    else if (data) take(data);
  };
  for (;;) {
    const { value, done: over } = await reader.read();
    const lines = decoder.decode(value, { stream: !over }).split("\n");
    // A line of a megabyte comes in many parts: joined once, not at each part.
    for (let i = 0; i < lines.length; i += 1) {
      rest.push(lines[i]);
      if (i + 1 === lines.length) break;
      end(rest.join(""));
      rest = [];
    }
    if (over) break;
  }
  if (rest.length > 0) end(rest.join(""));
  return done;
}
