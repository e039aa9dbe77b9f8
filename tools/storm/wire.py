"""HTTP/1.1 as hostile and friendly clients need it: raw bytes over asyncio, from any loopback address."""
import asyncio
import dataclasses
import json
import socket
import struct

PATIENCE = 120  # seconds that an answer may take on a slow machine
LINE_LIMIT = 1 << 20


class Broken(Exception):
    """The connection ended, or went silent, before a whole answer was there. `got`: bytes that had come."""

    def __init__(self, what, got=0):
        super().__init__(what)
        self.got = got


@dataclasses.dataclass
class Answer:
    status: int
    headers: dict
    body: bytes = b""

    def json(self):
        return json.loads(self.body)


def loopback(rng):
    """Any address of 127.0.0.0/8 but the ones that good clients use."""
    return f"127.{rng.randint(1, 250)}.{rng.randint(0, 255)}.{rng.randint(1, 254)}"


async def connect(port, source=None, receive_buffer=None, first=b""):
    """A connection to the server, from the address `source`. `first`, a few hundred bytes, is sent at once, however
    many connections this process is about to make."""
    raw = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        raw.setblocking(False)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source:
            raw.bind((source, 0))
        # Not wait_for: in Python 3.11 it may swallow a cancellation.
        async with asyncio.timeout(PATIENCE):
            await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
        if first and raw.send(first) != len(first):
            raise Broken("not sent")
        return await asyncio.open_connection(sock=raw, limit=LINE_LIMIT)
    except BaseException:
        raw.close()
        raise


def reset(writer):
    """Cuts the connection as a crash does: RST, and what was not yet sent is gone."""
    raw = writer.get_extra_info("socket")
    try:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    writer.transport.abort()


def head(method, path, *headers, host="127.0.0.1"):
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def post(path, body, *headers, key=None):
    """A whole request; `body`: bytes, or what becomes JSON."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    if key:
        headers = (*headers, f"Authorization: Bearer {key}")
    return head("POST", path, "Content-Type: application/json", f"Content-Length: {len(body)}", *headers) + body


async def read_head(reader):
    try:
        text = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as ended:
        raise Broken("closed without a byte" if not ended.partial else "closed in the head", len(ended.partial)) from None
    lines = text.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
        raise Broken(f"no HTTP answer: {lines[0][:80]!r}", len(text))
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.lower()] = value.strip()
    return Answer(int(parts[1]), headers)


async def read_chunks(reader):
    """The chunks of a body, to its end."""
    got = 0
    try:
        while True:
            size = int(await reader.readline() or b"closed", 16)
            if size == 0:
                await reader.readline()
                return
            chunk = await reader.readexactly(size + 2)
            got += size
            yield chunk[:-2]
    except (asyncio.IncompleteReadError, ValueError):
        raise Broken("closed in the middle of a stream", got + 1) from None


async def read_answer(reader, is_head=False):
    while True:
        answer = await read_head(reader)
        if answer.status != 100:
            break
    if is_head or answer.status in (204, 304):
        return answer
    try:
        if answer.headers.get("transfer-encoding") == "chunked":
            answer.body = b"".join([chunk async for chunk in read_chunks(reader)])
        elif "content-length" in answer.headers:
            answer.body = await reader.readexactly(int(answer.headers["content-length"]))
        else:
            answer.body = await reader.read()
    except asyncio.IncompleteReadError as ended:
        raise Broken("closed in the body", len(ended.partial) + 1) from None
    return answer


async def ask(port, request, source=None, patience=PATIENCE):
    """Sends a whole request over a connection of its own; its answer. Throws Broken, OSError."""
    try:
        async with asyncio.timeout(patience):
            reader, writer = await connect(port, source)
            try:
                writer.write(request)
                await writer.drain()
                return await read_answer(reader, request.startswith(b"HEAD "))
            finally:
                writer.transport.abort()
    except TimeoutError:
        raise Broken(f"no answer in {patience} s") from None


async def get(port, path, source=None, patience=PATIENCE):
    return await ask(port, head("GET", path, "Connection: close"), source, patience)


def events(body):
    """What a stream of server-sent events carried, and whether it ended as it should."""
    data = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
    done = bool(data) and data[-1] == b"[DONE]"
    return [json.loads(item) for item in data if item != b"[DONE]"], done
