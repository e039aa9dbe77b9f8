"""Clients that behave badly, whatever they say."""
import asyncio

from hostile import ANY, CHEAP, CLOSED, COSTLY, LEFT, kind, send
import wire

MIB = 1 << 20
STREAM = {"prompt": "Once upon a time", "max_tokens": 60, "ignore_eos": True, "stream": True}


def attack(name, weight=CHEAP):
    """A kind that has a connection of its own: `act(env, reader, writer)`; it is LEFT behind in the end."""
    def add(act):
        @kind(name, weight)
        async def run(env):
            writer = None
            try:
                async with asyncio.timeout(wire.PATIENCE):
                    reader, writer = await wire.connect(env.port, env.source, env.rng.choice([None, 4096]))
                    return await act(env, reader, writer) or LEFT
            except (OSError, wire.Broken):
                return CLOSED
            except TimeoutError:
                return LEFT  # it never meant to get an end
            finally:
                if writer is not None:
                    wire.reset(writer) if env.rng.random() < 0.5 else writer.transport.abort()
        return run
    return add


def stream(env, **more):
    return wire.post("/v1/completions", {**STREAM, **more}, key=env.key)


async def drip(env, writer, data, seconds):
    """Some bytes of it, one by one."""
    steps = env.rng.randint(2, 12)
    for i in range(steps):
        writer.write(data[i:i + 1])
        await asyncio.sleep(seconds / steps)


@attack("client: says nothing")
async def says_nothing(env, reader, writer):
    await asyncio.sleep(env.rng.uniform(0, 1))


@attack("client: comes and goes")
async def comes_and_goes(env, reader, writer):
    pass


@attack("client: a slow head")
async def slow_head(env, reader, writer):
    await drip(env, writer, stream(env), env.rng.uniform(0.1, 2))


@attack("client: a slow body")
async def slow_body(env, reader, writer):
    whole = stream(env)
    at = whole.index(b"\r\n\r\n") + 4
    writer.write(whole[:at])
    await drip(env, writer, whole[at:], env.rng.uniform(0.1, 2))


@attack("client: slow chunks")
async def slow_chunks(env, reader, writer):
    writer.write(wire.head("POST", "/v1/completions", env.auth(), "Content-Type: application/json", "Transfer-Encoding: chunked"))
    for _ in range(env.rng.randint(1, 10)):
        writer.write(b"1\r\n \r\n")
        await asyncio.sleep(env.rng.uniform(0, 0.2))


@attack("client: a body that stops", COSTLY)
async def body_stops(env, reader, writer):
    size = env.rng.randint(MIB, 8 * MIB)
    writer.write(wire.head("POST", "/v1/completions", env.auth(), "Content-Type: application/json", f"Content-Length: {2 * size}"))
    writer.write(b'{"prompt":"' + b"a" * size)
    await asyncio.sleep(env.rng.uniform(0, 1))


@attack("client: asks and goes")
async def asks_and_goes(env, reader, writer):
    writer.write(stream(env, n=env.rng.choice([1, 1, 4])))
    await asyncio.sleep(env.rng.uniform(0, 0.1))


@attack("client: goes amid a stream")
async def goes_amid_stream(env, reader, writer):
    writer.write(stream(env))
    for _ in range(env.rng.randint(1, 20)):
        if not await reader.read(200):
            return


@attack("client: reads nothing", COSTLY)
async def reads_nothing(env, reader, writer):
    writer.transport.pause_reading()
    writer.write(stream(env, n=8, logprobs=20, max_tokens=200))
    await asyncio.sleep(env.rng.uniform(0.5, 3))


@attack("client: reads none of a large answer", COSTLY)
async def reads_no_large_answer(env, reader, writer):
    writer.transport.pause_reading()
    text = env.rng.randbytes(env.rng.randint(MIB // 8, MIB)).hex()
    writer.write(wire.post("/tokenize", {"prompt": text, "return_token_strs": True}, key=env.key))
    await asyncio.sleep(env.rng.uniform(0.5, 3))


@attack("client: reads a byte now and then", COSTLY)
async def reads_slowly(env, reader, writer):
    writer.transport.pause_reading()
    writer.write(stream(env, n=4, logprobs=20, max_tokens=100))
    for _ in range(10):
        writer.transport.resume_reading()
        await reader.read(1)
        writer.transport.pause_reading()
        await asyncio.sleep(0.1)


@attack("client: closes its half")
async def closes_half(env, reader, writer):
    writer.write(stream(env) if env.rng.random() < 0.5 else wire.head("GET", "/health"))
    writer.write_eof()
    await reader.read()


@attack("client: closes its half amid a body")
async def closes_half_amid_body(env, reader, writer):
    writer.write(stream(env)[:-env.rng.randint(1, 40)])
    writer.write_eof()
    await reader.read()


@attack("client: closes its half at once")
async def closes_half_at_once(env, reader, writer):
    writer.write_eof()
    await reader.read()


@attack("client: waits for 100", COSTLY)
async def waits_for_100(env, reader, writer):
    writer.write(wire.head("POST", "/v1/completions", env.auth(), "Content-Type: application/json", "Content-Length: 10",
                           "Expect: 100-continue"))
    await reader.readuntil(b"\r\n\r\n")


@attack("client: 500 requests in one go", COSTLY)
async def pipelines(env, reader, writer):
    writer.write(wire.head("GET", "/health") * 500)
    for _ in range(env.rng.randint(0, 500)):
        answer = await wire.read_answer(reader)
        if answer.status >= 500 and answer.status != 503:
            return answer.status


@attack("client: 100 prompts in one go, nothing read", COSTLY)
async def pipelines_prompts(env, reader, writer):
    writer.transport.pause_reading()
    writer.write(wire.post("/v1/completions", {"prompt": "a", "max_tokens": 1}, key=env.key) * 100)
    await asyncio.sleep(env.rng.uniform(0, 1))


@attack("client: sends on behind its request")
async def sends_on(env, reader, writer):
    writer.write(stream(env, max_tokens=4) + b"\0" * env.rng.randint(1, 200_000))
    return (await wire.read_answer(reader)).status


@attack("client: a good request, then a broken one")
async def good_then_broken(env, reader, writer):
    writer.write(wire.head("GET", "/health") + b"BROKEN\r\n\r\n")
    first, second = await wire.read_answer(reader), await wire.read_answer(reader)
    # The first must be answered as it is, whatever comes behind it.
    return second.status if first.status == 200 and second.status >= 400 else 500


@attack("client: many, and one connection")
async def keeps_alive(env, reader, writer):
    for _ in range(env.rng.randint(1, 20)):
        writer.write(wire.post("/tokenize", {"prompt": "a fox"}, key=env.key))
        answer = await wire.read_answer(reader)
        if answer.status != 200:
            return answer.status


async def from_one_address(env):
    return await send(env, stream(env, max_tokens=2), source="127.9.9.9")


kind("client: always the same address", CHEAP, ANY)(from_one_address)
