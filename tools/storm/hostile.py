"""The kinds of hostile requests there are, and what one of them came to."""
import asyncio
import dataclasses

import wire

# What a kind may be answered. Nothing may ever be answered with 500, 502 or 504.
ANY = "any"          # it may even be a right request, if a costly one
REFUSED = "refused"  # a status that refuses, or a closed connection; never 2xx

CHEAP, COSTLY, HEAVY = 40, 8, 1  # how often a kind comes, beside others

CLOSED, SILENT, LEFT = "closed", "silent", "left"
KINDS = []


@dataclasses.dataclass
class Kind:
    """`attack(env)` returns a status, CLOSED, SILENT (no answer in wire.PATIENCE) or LEFT (the client went first)."""
    name: str
    weight: int
    expect: str
    attack: object

    def bears(self, outcome):
        if outcome in (CLOSED, LEFT):
            return True
        if outcome == SILENT or outcome in (500, 502, 504) or not 200 <= outcome < 600:
            return False
        return self.expect == ANY or outcome >= 400


@dataclasses.dataclass
class Env:
    """What an attack is made with; one an attack, so that the whole storm follows from one seed."""
    port: int
    rng: object
    key: str  # of a tenant that may ask

    @property
    def source(self):
        return wire.loopback(self.rng)

    def auth(self):
        return f"Authorization: Bearer {self.key}"


def kind(name, weight=CHEAP, expect=ANY):
    def add(attack):
        KINDS.append(Kind(name, weight, expect, attack))
        return attack
    return add


async def send(env, data, patience=wire.PATIENCE, held=False, source=None):
    """Sends bytes and reads one answer while they are still going out. `held`: they are not a whole request,
    so that an answer need not come."""
    writer = None
    try:
        async with asyncio.timeout(patience):
            reader, writer = await wire.connect(env.port, source or env.source)
            writer.write(data)
            return (await wire.read_answer(reader, data.startswith(b"HEAD "))).status
    except TimeoutError:
        return LEFT if held else SILENT
    except (OSError, wire.Broken):
        return CLOSED
    finally:
        if writer is not None:
            wire.reset(writer) if env.rng.random() < 0.3 else writer.transport.abort()


def raw(name, make, weight=CHEAP, expect=REFUSED, held=False):
    """A kind that is some bytes: `make` is those, or makes them of an Env."""
    async def attack(env):
        data = make(env) if callable(make) else make
        return await send(env, data, env.rng.uniform(0.05, 0.5) if held else wire.PATIENCE, held)
    KINDS.append(Kind(name, weight, expect, attack))


def body(name, make, weight=CHEAP, expect=REFUSED, path=None):
    """A kind that is a whole request with a strange body: `make` is that, or makes it of an Env."""
    async def attack(env):
        what = make(env) if callable(make) else make
        return await send(env, wire.post(path or "/v1/completions", what, key=env.key))
    KINDS.append(Kind(name, weight, expect, attack))
