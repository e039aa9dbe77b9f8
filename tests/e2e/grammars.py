"""Random grammars in GBNF, and which texts they are for: by trying all ways, for they are small."""
import functools
import random

# An expression: ("text", s), ("set", inverted, ((low, high), ...)), ("any",), ("rule", number), ("all", (e, ...)), ("one", (e, ...)),
# ("times", e, least, most), most None if there is no bound.
TEXTS = ["fox", "bear", " ", ", ", "é", "🦊", '"', "\\", "\n", "\t", "[", "]", "a", "1", "::=", "#", "{}"]
SETS = [(("a", "z"),), (("A", "Z"), ("0", "9")), (("à", "ö"),), (("]", "]"), ("\\", "\\")), (("a", "c"), ("-", "-")), (("🦊", "🦊"), (" ", " ")), (("^", "^"), ('"', '"'))]


class Grammar:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.rules = []
        for number in range(self.random.randrange(2, 6)):
            self.rules.append(self.rule(number))

    def rule(self, number):
        """Rules lead to later ones, or back to any behind a text: no left recursion. The first way leads nowhere."""
        self.number, self.back = number, False
        ways = [self.sequence(3)]
        self.back = True
        ways += [self.sequence(0) for _ in range(self.random.randrange(3))]
        return ("one", tuple(ways))

    def sequence(self, depth):
        return ("all", tuple(self.item(depth, place) for place in range(self.random.randrange(1, 4))))

    def item(self, depth, place):
        way = self.random.randrange(10)
        if depth < 2 and way < 2:
            return self.times(("one", tuple(self.sequence(depth + 1) for _ in range(self.random.randrange(1, 3)))))
        if depth < 3 and way < 4 and place > 0 and self.back:
            return ("all", (("text", self.random.choice(["(", "a ", ","])), ("rule", self.random.randrange(self.number + 1))))
        if way < 7:
            return self.times(("text", self.random.choice(TEXTS)))
        return self.times(("any",) if way == 9 and depth > 1 else ("set", self.random.randrange(4) == 0, self.random.choice(SETS)))

    def times(self, what):
        low = self.random.randrange(3)
        bounds = self.random.choice([None, None, None, None, (0, 1), (low, low + self.random.randrange(1, 4)), (low + 1, low + 1), (0, None), (1, None), (low, None)])
        return what if bounds is None else ("times", what, *bounds)

    def connect(self):
        """Each rule follows at the end of the one before it, so that all are used."""
        for number in range(len(self.rules) - 1):
            first, *others = self.rules[number][1]
            self.rules[number] = ("one", (("all", (first, ("rule", number + 1))), *others))
        return self

    def text(self):
        lines = [f"{self.name(number)} ::= {self.written(rule)}" for number, rule in enumerate(self.rules)]
        self.random.shuffle(lines)
        return "# a grammar\n" + "\n".join(lines) + "\n"

    @staticmethod
    def name(number):
        return "root" if number == 0 else f"rule-{number}"

    def written(self, what, inside=False):
        kind = what[0]
        if kind == "text":
            return '"' + "".join(self.escaped(c, '"') for c in what[1]) + '"'
        if kind == "set":
            return "[" + ("^" if what[1] else "") + "".join(self.escaped(a, "^]-") + ("" if a == b else "-" + self.escaped(b, "^]-")) for a, b in what[2]) + "]"
        if kind == "any":
            return "."
        if kind == "rule":
            return self.name(what[1])
        if kind == "all":
            return " ".join(self.written(each, True) for each in what[1])
        if kind == "one":
            out = " | ".join(self.written(each) for each in what[1])
            return f"({out})" if inside else out
        _, one, low, high = what
        suffix = {(0, 1): "?", (0, None): "*", (1, None): "+"}.get((low, high), f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}")
        out = self.written(one, True)
        return (f"({out})" if one[0] == "all" else out) + suffix

    def escaped(self, c, special):
        if c in special:
            return f"\\x{ord(c):02x}"
        return {"\n": "\\n", "\t": "\\t", "\\": "\\\\", '"': '\\"'}.get(c, c)

    def has(self, text):
        return self.read(text)[0]

    def begins(self, text):
        """Whether more may follow `text`."""
        return self.read(text)[1]

    def read(self, text):
        open_ended = False

        @functools.cache
        def rule_ends(number, at):
            return frozenset(ends(self.rules[number], at))

        def ends(what, at):
            """Where a match that begins at `at` may end."""
            nonlocal open_ended
            kind = what[0]
            if kind in ("text", "set", "any"):
                rest = text[at:]
                open_ended = open_ended or not rest or (kind == "text" and len(rest) < len(what[1]) and what[1].startswith(rest))
            if kind == "text":
                return {at + len(what[1])} if text.startswith(what[1], at) else set()
            if kind in ("set", "any"):
                fits = at < len(text) and (kind == "any" or any(a <= text[at] <= b for a, b in what[2]) != what[1])
                return {at + 1} if fits else set()
            if kind == "rule":
                return rule_ends(what[1], at)
            if kind == "one":
                return set().union(*(ends(each, at) for each in what[1]))
            if kind == "all":
                places = {at}
                for each in what[1]:
                    places = set().union(*(ends(each, place) for place in places))
                return places
            _, one, low, high = what
            out, places, done = set(), {at}, 0
            while places and (high is None or done <= high):
                new = places - out if done >= low else places
                out |= places if done >= low else set()
                places = set().union(*(ends(one, place) for place in new)) if done != high else set()
                done += 1
            return out

        return len(text) in rule_ends(0, 0), open_ended


def grammar(seed):
    return Grammar(seed).connect()
