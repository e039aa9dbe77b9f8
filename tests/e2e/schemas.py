"""Random JSON Schemas, bounded in the length of their instances, over all that docs/structured-output.md says is enforced."""
import random

WORDS = ["name", "age", "kind", "size", "title", "colour", "a b", "café", "x", "note", "id", "type"]
PATTERNS = ["^[a-z]{2,8}$", "^(red|green|blue)$", "^[A-Z][a-z]+( [A-Z][a-z]+)?$", "^\\d{3}-\\d{4}$", "fox", "^a|b$", "^[^\\s,]{1,6}$",
            "^\\w+@\\w+\\.(com|org)$", "^\\(\"x\"\\)\\\\?$", "^(?:[0-9a-f]{2}:){2}[0-9a-f]{2}$"]


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def chance(self, share):
        return self.random.random() < share

    def schema(self, depth=0):
        """A schema of any kind; a tree of at most three levels."""
        kinds = [self.string, self.string, self.number, self.integer, self.listed, self.boolean, self.null]
        if depth < 3:
            kinds += [self.object] * 5 + [self.array] * 3 + [self.any_of, self.all_of, self.one_of, self.types]
        out = self.random.choice(kinds)(depth)
        if self.chance(0.2):
            out["description"] = "what it is"
        if self.chance(0.1):
            out["title"] = self.random.choice(WORDS)
        return out

    def document(self):
        """One whose root is an object or array, with definitions at times."""
        root = self.random.choice([self.object, self.object, self.array])(0)
        if self.chance(0.3):
            root["$defs"] = {"part": self.schema(1)}
            if "properties" in root:
                root["properties"]["part"] = {"$ref": "#/$defs/part"}
        return root

    def boolean(self, depth):
        return {"type": "boolean"}

    def null(self, depth):
        return {"type": "null"}

    def string(self, depth):
        out = {"type": "string"}
        way = self.random.randrange(5)
        if way == 0:
            out["pattern"] = self.random.choice(PATTERNS)
        elif way == 1:
            out["format"] = self.random.choice(["date", "time", "date-time", "uuid", "ipv4", "email"])
            if self.chance(0.3):
                out.update(self.random.choice([{"minLength": 3}, {"maxLength": 254}]))
            elif self.chance(0.05):  # refused, unless the format implies it or a value has it
                out.update(self.random.choice([{"maxLength": 9}, {"pattern": "^[0-9-]+$"},
                                               {"enum": ["zz", "2026-11-30", "127.0.0.1", "a@b.org"]}]))
        elif way == 2:
            out["enum"] = self.random.sample(WORDS, 3) + ["", "q\"uote", "back\\slash", "line\nbreak"][:self.random.randrange(5)]
        else:
            low = self.random.choice([0, 0, 1, 3])
            out["minLength"] = low
            out["maxLength"] = low + self.random.choice([0, 2, 12, 40])
        return out

    def bounds(self, out, values):
        low, high = sorted(self.random.sample(values, 2))
        if self.chance(0.7):
            out[self.random.choice(["minimum", "exclusiveMinimum"])] = low
        if self.chance(0.7):
            out[self.random.choice(["maximum", "exclusiveMaximum"])] = high
        return out

    def number(self, depth):
        out = self.bounds({"type": "number"}, [-1000, -2.5, -0.125, 0, 0.1, 0.75, 3, 17.25, 99.99, 5000, 123456789.12345679, 1e-7])
        if self.chance(0.1):
            out["multipleOf"] = 1
        return out

    def integer(self, depth):
        large = [-2**63, -2**53 - 1, 2**53, 2**53 + 1, 2**53 + 3, 9223372036854770000, 2**63 - 1]
        out = self.bounds({"type": "integer"}, large if self.chance(0.2) else [-1000, -99, -7, 0, 3, 12, 100, 255, 99999])
        if self.chance(0.2) and len([key for key in out if "inimum" in key or "aximum" in key]) == 2:
            out["multipleOf"] = self.random.choice([2, 3])
        return out

    def listed(self, depth):
        values = [None, True, 3, -1.5, "red", "", {"a": [1, "x"]}, [], ["y"], 0]
        if self.chance(0.3):
            return {"const": self.random.choice(values)}
        return {"enum": self.random.sample(values, 3)}

    def object(self, depth):
        names = self.random.sample(WORDS, self.random.randrange(5))
        out = {"type": "object", "properties": {name: self.schema(depth + 1) for name in names}}
        out["required"] = [name for name in names if self.chance(0.6)]
        way = self.random.randrange(6)
        if way < 2:
            out["additionalProperties"] = False
        elif way == 2:
            out["additionalProperties"] = self.schema(depth + 2)
        elif way == 3 and not names:
            out["patternProperties"] = {"^k_[a-z]{1,4}$": self.schema(depth + 2)}
            out["additionalProperties"] = False
        elif way == 4 and not names:
            out["propertyNames"] = {"pattern": "^[a-z]{1,5}$"}
            out["maxProperties"] = 3
        elif way == 5 and names:
            out["additionalProperties"] = False
            out["minProperties"] = self.random.randrange(len(names) + 1)
            out["maxProperties"] = self.random.randrange(out["minProperties"], len(names) + 1)
            if len(out["required"]) > out["maxProperties"]:
                del out["maxProperties"]
        if names and self.chance(0.02):  # refused where the pattern matches the name
            out["properties"][names[0]] = False
            out["patternProperties"] = {self.random.choice(["^[a-z ]+$", "^k_"]): {"type": "integer"}}
            out["required"] = []
        return out

    def array(self, depth):
        out = {"type": "array"}
        if self.chance(0.25):
            out["prefixItems"] = [self.schema(depth + 1) for _ in range(self.random.randrange(1, 3))]
            out["items"] = self.random.choice([False, self.schema(depth + 1)])
            out["maxItems"] = 4
            return out
        out["items"] = self.schema(depth + 1)
        out["minItems"] = self.random.randrange(3)
        out["maxItems"] = out["minItems"] + self.random.randrange(3)
        return out

    def any_of(self, depth):
        out = {"anyOf": [self.schema(depth + 1) for _ in range(self.random.randrange(1, 4))]}
        if self.chance(0.2):
            out["type"] = self.random.choice(["object", "string", ["string", "null", "object", "integer", "number", "array", "boolean"]])
        return out

    def all_of(self, depth):
        way = self.random.randrange(3)
        if way == 0:
            return {"type": "integer", "allOf": [{"minimum": -5}, {"maximum": 60}, {"maximum": 70, "exclusiveMinimum": -4.5}]}
        if way == 1:
            return {"allOf": [{"type": "object", "properties": {"a": self.schema(depth + 1)}, "required": ["a"]},
                              {"properties": {"b": self.schema(depth + 1)}, "additionalProperties": {"type": ["integer", "object", "string"]}}]}
        return {"allOf": [{"type": "string", "minLength": 2}, {"maxLength": 9}]}

    def one_of(self, depth):
        if self.chance(0.1):  # refused, unless the branches drawn exclude each other
            return {"oneOf": self.random.sample([{"type": "integer"}, {"minLength": 2}, {"minimum": 1}, {"type": "null"}, {"type": "object"},
                                                 {"properties": {"a": {"type": "integer"}}}, {"items": {"type": "null"}}], 2)}
        if self.chance(0.5):
            return {"oneOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "string", "maxLength": 5}, {"type": "null"}]}
        return {"oneOf": [{"type": "object", "properties": {"kind": {"const": kind}, kind: self.schema(depth + 1)},
                           "required": ["kind", kind], "additionalProperties": False} for kind in ("fox", "bear")]}

    def types(self, depth):
        return {"type": self.random.sample(["null", "boolean", "integer", "string"], 2), "maxLength": 4, "minimum": 0, "maximum": 10}
