"""Broken and boundless HTTP."""
from hostile import ANY, COSTLY, HEAVY, raw
import wire

MIB = 1 << 20
BODY = b'{"prompt":"Once","max_tokens":2}'


def with_lengths(*lengths, body=BODY):
    def make(env):
        return wire.head("POST", "/v1/completions", env.auth(), "Content-Type: application/json",
                         *[f"Content-Length: {length}" for length in lengths]) + body
    return make


def with_headers(*headers, path="/v1/completions", length=True):
    def make(env):
        given = [f"Content-Length: {len(BODY)}"] if length else []
        return wire.head("POST", path, env.auth(), *given, *headers) + BODY
    return make


def chunked(*parts):
    """A body of chunks, as bytes or as what makes them of an Env."""
    def make(env):
        head = wire.head("POST", "/v1/completions", env.auth(), "Content-Type: application/json", "Transfer-Encoding: chunked")
        return head + b"".join(part(env) if callable(part) else part for part in parts)
    return make


def noise(least, most):
    return lambda env: env.rng.randbytes(env.rng.randint(least, most))


ONE = b"%x\r\n%s\r\n" % (len(BODY), BODY)


def start_lines():
    for name, line in {
        "no version": b"GET /health\r\n\r\n", "version 9.9": b"GET /health HTTP/9.9\r\nHost: a\r\n\r\n",
        "version 2.0": b"GET /health HTTP/2.0\r\nHost: a\r\n\r\n", "lower case http": b"GET /health http/1.1\r\nHost: a\r\n\r\n",
        "two spaces": b"GET  /health  HTTP/1.1\r\nHost: a\r\n\r\n", "tab": b"GET\t/health\tHTTP/1.1\r\nHost: a\r\n\r\n",
        "no target": b"GET HTTP/1.1\r\nHost: a\r\n\r\n", "no method": b" /health HTTP/1.1\r\nHost: a\r\n\r\n",
        "only CR": b"GET /health HTTP/1.1\rHost: a\r\r", "NUL in the target": b"GET /hea\0lth HTTP/1.1\r\nHost: a\r\n\r\n",
        "zeros": b"\0" * 4096, "a shell": b"; cat /etc/passwd\r\n\r\n", "asterisk": wire.head("GET", "*"),
        "unknown method": wire.head("BREW", "/v1/completions"), "CONNECT": wire.head("CONNECT", "127.0.0.1:22"),
        "TRACE": wire.head("TRACE", "/health"), "a path upwards": wire.head("GET", "/v1/../../../../etc/passwd"),
        "broken percent": wire.head("GET", "/%zz%4"), "percent zero": wire.head("GET", "/v1/models/%00%00"),
        "colon first": b"GET /health HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
        "space in a header's name": b"GET /health HTTP/1.1\r\nHost : a\r\n\r\n",
        "header without colon": b"GET /health HTTP/1.1\r\nHost: a\r\nnothing\r\n\r\n",
        "NUL in a header": b"GET /health HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n",
        "two hosts": b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "no host": b"GET /health HTTP/1.1\r\n\r\n",
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
        "TLS": bytes.fromhex("16030100c8010000c40303") + b"\x42" * 190, "SOCKS": b"\5\1\0\5\1\0\1\x7f\0\0\1\0\x50\r\n\r\n",
        "PROXY": b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n",
        "redis": b"*1\r\n$4\r\nPING\r\n", "ssh": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    }.items():
        # Some of them are the beginning of something, for all that a server can tell.
        raw(f"start line: {name}", line, held=name in ("only CR", "TLS", "zeros", "SOCKS"))
    raw("start line: only LF", b"GET /health HTTP/1.1\nHost: a\n\n", expect=ANY, held=True)
    raw("start line: noise", noise(1, 4000), held=True)
    raw("start line: HTTP/0.9", b"GET /\r\n", held=True)
    raw("start line: empty lines before", lambda env: b"\r\n" * env.rng.randint(1, 50_000) + wire.head("GET", "/health"),
        expect=ANY, held=True)
    raw("start line: long method", lambda env: wire.head("A" * env.rng.randint(100, 60_000), "/"))
    raw("start line: long target", lambda env: wire.head("GET", "/" + "a" * env.rng.randint(8_000, 400_000)))
    raw("start line: a part", lambda env: wire.head("GET", "/health")[:env.rng.randint(1, 30)], held=True)


def bombs():
    raw("header: 1 MiB", lambda env: wire.head("GET", "/health", "X: " + "a" * MIB), COSTLY)
    raw("header: long name", lambda env: wire.head("GET", "/health", "X" * 70_000 + ": a"))
    raw("header: 20,000", lambda env: wire.head("GET", "/health", *[f"X-{i}: a" for i in range(20_000)]), COSTLY)
    raw("header: just within", lambda env: wire.head("GET", "/health", "X: " + "a" * env.rng.randint(15_000, 16_200)), expect=ANY)
    raw("header: folded", lambda env: wire.head("GET", "/health", "X: a" + "\r\n a" * 3000), expect=ANY)
    raw("header: the same 500 times", lambda env: wire.head("GET", "/health", *["Accept: a"] * 500), expect=ANY)
    raw("header: without end", lambda env: b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"a" * env.rng.randint(1, 12_000), held=True)


def lengths():
    for name, given in {
        "2^63": [2**63], "2^64": [2**64], "2^64+40": [2**64 + len(BODY)], "huge": ["9" * 400], "negative": [-1], "plus": [f"+{len(BODY)}"],
        "hex": ["0x20"], "text": ["many"], "empty": [""], "a list": [f"{len(BODY)}, {len(BODY) + 1}"], "spaces": ["3 2"],
        "two": [len(BODY), len(BODY) + 5], "three": [1, 2, 3], "float": ["32.0"], "over the limit": [17 * MIB],
    }.items():
        raw(f"length: {name}", with_lengths(*given))
    raw("length: twice the same", with_lengths(len(BODY), len(BODY)), expect=ANY)
    raw("length: more than comes", with_lengths(len(BODY) + 100), held=True)
    raw("length: less than comes", with_lengths(len(BODY) - 5))
    raw("length: 16 MiB and nothing", with_lengths(16 * MIB, body=b""), held=True)
    raw("length: and chunks", with_headers("Transfer-Encoding: chunked", "Content-Type: application/json"))
    raw("length: none at all", with_headers("Content-Type: application/json", length=False))
    for name in ("gzip", "identity", "chunked, chunked", "xchunked", "chunked, identity", "\x0bchunked"):
        raw(f"transfer-encoding: {name.strip()}", with_headers(f"Transfer-Encoding: {name}", length=False), held=True)


def chunks():
    for name, part in {"text": b"ready\r\n", "negative": b"-1\r\n", "overflow": b"f" * 17 + b"\r\n", "2^64": b"10000000000000000\r\n",
                       "0x": b"0x5\r\n", "empty": b"\r\nabc\r\n", "over the limit": b"ffffffff\r\n", "space": b" 5\r\nhello\r\n"}.items():
        raw(f"chunk: size {name}", chunked(part), held=True)
    raw("chunk: no line end behind it", chunked(b"5\r\nhelloworld\r\n0\r\n\r\n"))
    raw("chunk: noise", chunked(noise(1, 3000)), held=True)
    raw("chunk: one byte each", chunked(*[b"1\r\n%c\r\n" % byte for byte in BODY], b"0\r\n\r\n"), expect=ANY)
    raw("chunk: 50,000 of a space", chunked(b"1\r\n \r\n" * 50_000, ONE, b"0\r\n\r\n"), COSTLY, expect=ANY)
    raw("chunk: no last one", chunked(ONE), held=True)
    raw("chunk: a trailer", chunked(ONE, b"0\r\nX: a\r\n\r\n"), expect=ANY)
    raw("chunk: a broken trailer", chunked(ONE, b"0\r\n\0\0: a\r\n\r\n"), held=True)
    raw("chunk: a trailer that lies", chunked(ONE, b"0\r\nContent-Length: 5\r\nHost: evil\r\n\r\n"), expect=ANY)
    for name, before, unit, after in BOUNDLESS:
        size = MIB // len(unit)
        raw(f"chunk: {name}, 1 MiB", chunked(before, unit * size, after), COSTLY)
        raw(f"chunk: {name}, 8 MiB and no end", chunked(before, unit * (8 * size)), HEAVY, held=True)


# What a parser keeps until it ends: name, what stands before it, what it is made of, and its end.
BOUNDLESS = [
    ("a line", b"", b"0", b"5\r\nhello\r\n0\r\n\r\n"),
    ("an extension", b"5;a=", b"x", b"\r\nhello\r\n0\r\n\r\n"),
    ("a trailer", ONE + b"0\r\nX: ", b"x", b"\r\n\r\n"),
    ("many trailers", ONE + b"0\r\n", b"X-Name: value\r\n", b"\r\n"),
]


def who_asks():
    json_type = "Content-Type: application/json"
    for name, headers in {
        "a foreign origin": [json_type, "Origin: https://evil.example"], "origin null": [json_type, "Origin: null"],
        "plain text": ["Content-Type: text/plain"], "a form": ["Content-Type: application/x-www-form-urlencoded"],
        "multipart": ["Content-Type: multipart/form-data; boundary=x"], "no type": [],
        "two types": ["Content-Type: a/b", "Content-Type: c/d"], "gzip": [json_type, "Content-Encoding: gzip"],
    }.items():
        raw(f"asked with {name}", with_headers(*headers))
    for name, headers in {
        "expect": ["Expect: 200-maybe", json_type], "a range": [json_type, "Range: bytes=0-18446744073709551615"],
        "an upgrade": ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA", json_type],
    }.items():
        raw(f"asked with {name}", with_headers(*headers), expect=ANY)
    for name, key in {"wrong": "Bearer wrong", "empty": "Bearer ", "basic": "Basic dXNlcjpwYXNz", "long": "Bearer " + "k" * 9000,
                      "noise": "Bearer \xff\xfe\x80", "none": None, "several": "Bearer a, Bearer b"}.items():
        headers = [f"Authorization: {key}"] if key is not None else []
        raw(f"key: {name}", wire.head("POST", "/v1/completions", *headers, "Content-Type: application/json",
                                      f"Content-Length: {len(BODY)}") + BODY)
    raw("asked with two origins", with_headers(json_type, "Origin: http://127.0.0.1", "Origin: https://evil.example"))
    raw("host: empty", lambda env: wire.head("GET", "/v1/models", env.auth(), host=""))
    raw("key: two", with_headers("Authorization: Bearer other", "Content-Type: application/json"))
    raw("host: foreign", lambda env: wire.head("GET", "/v1/models", env.auth(), host="evil.example"))
    raw("host: a page's", lambda env: wire.head("GET", "/v1/models", env.auth(), host="evil.example:80@127.0.0.1"))
    raw("host: long", lambda env: wire.head("GET", "/v1/models", env.auth(), host="a" * 10_000))
    raw("host: absolute", b"GET http://evil.example/health HTTP/1.1\r\nHost: evil.example\r\n\r\n")
    raw("preflight: foreign", wire.head("OPTIONS", "/v1/completions", "Origin: https://evil.example",
                                        "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: " + "x," * 2000), expect=ANY)


for make_some in (start_lines, bombs, lengths, chunks, who_asks):
    make_some()
