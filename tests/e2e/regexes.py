"""Random regular expressions that mean the same in ECMA-262 (flag u) and in Python's `re` with re.ASCII."""
import random

LITERALS = ["a", "b", "Fox", " the ", "é", "ß", "🦊", ",", "-", "0", "42", '"', "'", "/", "#", "~", "<", "ö"]
ESCAPES = [r"\.", r"\*", r"\(", r"\)", r"\[", r"\\", r"\n", r"\t", r"\x41", r"\u00e9", r"\$", r"\^", r"\|", r"\{", r"\}", r"\+", r"\?"]
CLASSES = ["[a-z]", "[A-Z]", "[0-9a-f]", r"\d", r"\w", "[aeiou]", "[^a-z]", r"[^\s\d]", r"[\w-]", "[à-öø-ÿ]", "[😀-😎]", r"[\x20-\x7e]", r"[.*+?]", "[^x\n]", r"[\]\\^-]", ".", r"\D", r"\W"]


class Regexes:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def atom(self, depth):
        way = self.random.randrange(9 if depth < 3 else 6)
        if way < 2:
            return self.random.choice(LITERALS)
        if way == 2:
            return self.random.choice(ESCAPES)
        if way < 6:
            return self.random.choice(CLASSES)
        return self.random.choice(["(", "(?:"]) + self.choice(depth + 1) + ")"

    def repeated(self, depth):
        atom = self.atom(depth)
        way = self.random.randrange(10)
        if way > 4:
            return atom
        if len(atom) > 1 and atom in LITERALS:
            atom = f"(?:{atom})"
        low = self.random.randrange(4)
        times = ["?", f"{{{low}}}", f"{{{low},{low + self.random.randrange(5)}}}", self.random.choice(["+", "*"]), f"{{{low},}}"][way]
        return atom + times + self.random.choice(["", "", "?"])

    def sequence(self, depth):
        return "".join(self.repeated(depth) for _ in range(self.random.randrange(1, 4)))

    def choice(self, depth):
        return "|".join(self.sequence(depth) for _ in range(self.random.choice([1, 1, 2, 3])))

    def document(self):
        out = self.choice(0)
        return f"^(?:{out})$" if self.random.randrange(4) == 0 else out
