"""Whole requests whose bodies are strange, wrong or costly."""
import json

from hostile import ANY, CHEAP, COSTLY, HEAVY, body

CHAT, TOKENIZE, DETOKENIZE = "/v1/chat/completions", "/tokenize", "/detokenize"
MIB = 1 << 20
ASK = {"prompt": "Once", "max_tokens": 2}
TALK = {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 2}

FIELDS = """model prompt messages n best_of max_tokens max_completion_tokens temperature top_p top_k min_p repetition_penalty
presence_penalty frequency_penalty logit_bias stop stop_token_ids seed logprobs top_logprobs echo stream stream_options user
cache_salt priority ttft_deadline_ms ignore_eos include_stop_str_in_output skip_special_tokens add_special_tokens suffix
use_beam_search length_penalty return_token_ids return_tokens_as_token_ids response_format metadata min_tokens bad_words
prompt_logprobs logprob_token_ids truncate_prompt_tokens truncation_side request_id return_prompt_text tools tool_choice functions function_call
parallel_tool_calls store service_tier
modalities audio prediction reasoning_effort verbosity chat_template chat_template_kwargs add_generation_prompt
include_reasoning thinking_token_budget continue_final_message documents structured_outputs guided_json guided_regex guided_choice guided_grammar grammar json_schema
unknown_field""".split()
VALUES = [True, False, 0, -1, 1.5, -0.0, 2**31, 2**53 + 1, 2**63, -2**63, 2**64, 1e308, "", "x", "1", "\0", "\U0001f98a", [], [[]], [None],
          [[1, "a"]], {}, {"a": 1}, {"": {}}, [1, 2, 3], ["a", 1], {"type": "json_object"}, "x" * 2000, [0] * 300, None]


def wrong_types(env, base):
    request = dict(base)
    for name in env.rng.sample(FIELDS, env.rng.choice([1, 1, 1, 2, 5])):
        request[name] = env.rng.choice(VALUES)
    # Not what it costs is asked here.
    if isinstance(request.get("max_tokens"), (int, float)) and request["max_tokens"] > 2:
        request["max_tokens"] = 2
    return request


def broken_json():
    for name, text in {
        "empty": b"", "a space": b" ", "half": b'{"prompt":"Once', "no value": b'{"prompt":}', "comma": b'{"prompt":"a",}', "comment": b'{}//',
        "single quotes": b"{'prompt':'a'}", "NaN": b'{"prompt":"a","top_p":NaN}', "infinity": b'{"prompt":"a","top_p":-Infinity}',
        "two": b'{"prompt":"a"}{"prompt":"b"}', "an array": b"[]", "a string": b'"a"', "a number": b"1", "null": b"null", "true": b"true",
        "noise": bytes(range(256)), "html": b"<html>", "form": b"prompt=a&max_tokens=1", "NUL behind": b'{"prompt":"a"}\0',
        "control in a string": b'{"prompt":"a\nb"}', "bad escape": b'{"prompt":"\\x41"}', "half escape": b'{"prompt":"\\u12"}',
    }.items():
        body(f"json: {name}", text)
    for name, text in {
        "BOM": b'\xef\xbb\xbf{"prompt":"a"}', "UTF-16": '{"prompt":"a"}'.encode("utf-16"), "not UTF-8": b'{"prompt":"\xff\xfe"}',
        "overlong": b'{"prompt":"\xc0\xaf"}', "surrogate in UTF-8": b'{"prompt":"\xed\xa0\x80"}', "cut UTF-8": b'{"prompt":"\xf0\x9f\xa6"}',
        "above Unicode": b'{"prompt":"\xf4\x90\x80\x80"}', "lone surrogate": b'{"prompt":"\\ud800"}',
        "surrogates turned": b'{"prompt":"\\udc00\\ud800"}', "half a pair": b'{"prompt":"\\ud83e\\u0041"}',
    }.items():
        body(f"text: {name}", text)
    body("json: deep arrays", lambda env: b"[" * env.rng.randint(100, 200_000))
    body("json: deep objects", lambda env: b'{"a":' * env.rng.randint(100, 100_000))
    body("json: deep and whole", lambda env: b'{"metadata":' + b'{"a":' * 500 + b"1" + b"}" * 500 + b',"prompt":"a"}')
    body("json: a huge exponent", b'{"prompt":"a","temperature":1e999999999}')
    body("json: a tiny exponent", b'{"prompt":"a","max_tokens":1,"temperature":1e-999999999}', expect=ANY)
    body("json: a long number", lambda env: b'{"prompt":"a","max_tokens":' + b"9" * env.rng.randint(20, 200_000) + b"}")
    body("json: a long fraction", b'{"prompt":"a","max_tokens":1,"top_p":0.' + b"3" * 100_000 + b"}", COSTLY, expect=ANY)
    body("json: a name twice", b'{"prompt":"a","max_tokens":1,"prompt":"b"}', expect=ANY)
    body("json: a long name", b'{"' + b"a" * MIB + b'":1}', COSTLY)
    body("json: 100,000 names", lambda env: {f"n{i}": i for i in range(100_000)}, HEAVY)
    for name, unit in {"objects": b'{"":0}', "arrays": b"[7]", "digits": b"7"}.items():
        body(f"json: 15 MiB of {name}", b'{"prompt":[' + b",".join([unit] * (15 * MIB // (len(unit) + 1))) + b"]}", HEAVY)
    body("json: 1 MiB of spaces", b" " * MIB + b'{"prompt":"a","max_tokens":1}', COSTLY, expect=ANY)


def tool(name, parameters=None):
    return {"type": "function", "function": {"name": name, "parameters": parameters or {}}}


def fields():
    for path, base in (("/v1/completions", ASK), (CHAT, TALK), (TOKENIZE, {"prompt": "Once"}), (DETOKENIZE, {"tokens": [1, 2]})):
        for part in range(3):
            body(f"wrong types for {path}, {part + 1}", lambda env, base=base: wrong_types(env, base), 5 * CHEAP, ANY, path)
    for name, more in {
        "no prompt": {"prompt": None}, "no prompts": {"prompt": []}, "ids above": {"prompt": [1, 2**31 - 1]}, "ids below": {"prompt": [-1]},
        "mixed prompts": {"prompt": ["a", [1]]}, "1,025 prompts": {"prompt": ["a"] * 1025}, "n 129": {"n": 129}, "n 0": {"n": 0},
        "n 2^32+1": {"n": 2**32 + 1}, "tokens -1": {"max_tokens": -1}, "heat": {"temperature": 3}, "top_p 0": {"top_p": 0},
        "logprobs 21": {"logprobs": 21}, "beams 11": {"use_beam_search": True, "best_of": 11}, "100,000 stops": {"stop": ["a"] * 100_000},
        "long stop": {"stop": "a" * 1025}, "empty stop": {"stop": ""}, "stop ids": {"stop_token_ids": [1] * 257},
        "bias storm": {"logit_bias": {str(i): 1 for i in range(4000)}}, "bias of a word": {"logit_bias": {"fox": 1}},
"bias twice": {"logit_bias": {"7": 1, "07": 1}}, "bias 1e300": {"logit_bias": {"7": 1e300}},
        "scores of 21": {"prompt_logprobs": 21}, "129 scores": {"logprobs": 0, "logprob_token_ids": [1] * 129}, "a bad id": {"allowed_token_ids": [2**31 - 1]},
        "another model": {"model": "gpt-4"}, "a long model": {"model": "m" * 100_000}, "a long user": {"user": "u" * 100_000},
        "a schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"not": {}}}}}, "suffix": {"suffix": "x"},
        "a stream's options": {"stream_options": {"include_usage": True}}, "regex": {"guided_regex": "a(?=b)"},
    }.items():
        body(f"field: {name}", {**ASK, **more})
    schemas = {
        "20,000 branches": {"anyOf": [{"type": "integer", "minimum": i} for i in range(20_000)]}, "a loop": {"$ref": "#"},
        "elsewhere": {"$ref": "http://127.0.0.1:1/"}, "100,000 values": {"enum": list(range(100_000))},
        "deep": json.loads('{"items":' * 60 + "{}" + "}" * 60), "doubling": {"$ref": "#/$defs/39", "$defs": {
            str(i): {"anyOf": [{"$ref": f"#/$defs/{i - 1}"}] * 2} if i else {} for i in range(40)}},
        "1,000 long strings": {"properties": {f"p{i}": {"type": "string", "minLength": 500 + i} for i in range(1000)}},
    }
    for name, schema in schemas.items():
        body(f"schema: {name}", {**ASK, "guided_json": schema}, COSTLY, ANY)
    for pattern in ("(a*)*b", "([a-z]{1,120}x){1,120}", "((a{0,99}){0,99}){0,99}", "(" * 5000, "\\p{L}" * 2000):
        body(f"regex: {pattern[:30]}", {**ASK, "guided_regex": pattern}, COSTLY, ANY)
    body("grammar: 3,000 rules", {**ASK, "grammar": "".join(f"r{i} ::= r{i + 1} | \"a\"\n" for i in range(3000))}, COSTLY, ANY)
    for name, text in {
        "ambiguous": "root ::= s\ns ::= s s s | s s | [a-z ]", "palindromes": "root ::= s\ns ::= [a-z ] s [a-z ] | [a-z ]",
        "loops of nothing": 'root ::= (((("a"*)*)*)*)* b\nb ::= ("b"? | b? b?)* "c"',
    }.items():
        # Another one each time.
        body(f"grammar: {name}", lambda env, text=text: {**ASK, "max_tokens": 100, "ignore_eos": True, "grammar": text.replace(
            "root ::=", f'root ::= "{env.rng.random()}"?')}, HEAVY, ANY)
    for name, more in {
        "no messages": {"messages": []}, "a text for messages": {"messages": "hi"}, "no role": {"messages": [{"content": "a"}]},
        "role of a king": {"messages": [{"role": "king", "content": "a"}]}, "an image": {"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/"}}]}]}, "content 7": {"messages": [{"role": "user", "content": 7}]},
        "a template": {"chat_template": "{% for a in range(10**9) %}{{ a }}{% endfor %}"}, "audio": {"modalities": ["audio"]},
    }.items():
        body(f"chat: {name}", {**TALK, **more}, path=CHAT)
    body("chat: template's arguments", {**TALK, "chat_template_kwargs": {f"a{i}": "x" * 100 for i in range(1000)}}, COSTLY, ANY, CHAT)
    body("chat: deep tools", {**TALK, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": [[[[]]]] * 1000}}}]},
         COSTLY, ANY, CHAT)
    for name, more in {
        "a quoted name": {"tools": [tool('a"b\n')]}, "10,000 tools": {"tools": [tool(f"f{i}") for i in range(10_000)]},
        "twice a tool": {"tools": [tool("f"), tool("f")]}, "a tool that is not there": {"tools": [tool("f")], "tool_choice": {
            "type": "function", "function": {"name": "g"}}}, "much effort": {"reasoning_effort": "x" * 100_000},
    }.items():
        body(f"chat: {name}", {**TALK, **more}, COSTLY, path=CHAT)
    # The server's template reads no tools, or the grammars of these calls are tried.
    for name, schema in schemas.items():
        body(f"chat: calls, {name}", {**TALK, "tools": [tool("f", schema)], "tool_choice": "required"}, COSTLY, ANY, CHAT)
    body("chat: calls of 1,000 tools", {**TALK, "tools": [tool(f"f{i}", {"properties": {"a": {"type": "string"}}}) for i in range(1000)],
                                        "tool_choice": "required"}, COSTLY, ANY, CHAT)
    body("chat: 2,000 messages", {**TALK, "messages": TALK["messages"] * 2000}, COSTLY, ANY, CHAT)
    body("chat: 1 MiB of content", {**TALK, "messages": [{"role": "user", "content": "word " * (MIB // 5)}]}, COSTLY, ANY, CHAT)
    body("chat: parts", {**TALK, "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 20_000}]}, HEAVY, ANY, CHAT)


def tokens():
    for name, text in {"one letter": "a" * MIB, "spaces": " " * MIB, "line ends": "\r\n" * (MIB // 2), "accents": "e" + "\u0301" * 200_000,
                       "foxes": "\U0001f98a" * 100_000, "zero width": "\u200d" * 200_000, "digits": "1" * MIB,
                       "specials": "<|im_start|><|im_end|>" * 20_000, "Hangul": "\u1100\u1161" * 100_000}.items():
        body(f"tokenize: {name}", {"prompt": text}, HEAVY, ANY, TOKENIZE)
        body(f"prompt: 1 MiB of {name}", {"prompt": text, "max_tokens": 1}, HEAVY, ANY)
    body("tokenize: 8 MiB", lambda env: {"prompt": env.rng.randbytes(2 * MIB).hex() * 2}, HEAVY, ANY, TOKENIZE)
    body("detokenize: 500,000 ids", {"tokens": [7] * 500_000}, HEAVY, ANY, DETOKENIZE)
    body("detokenize: outside", {"tokens": [0, 2**31]}, path=DETOKENIZE)
    body("prompt: 15 MiB", lambda env: {"prompt": "word " * (3 * MIB)}, HEAVY, ANY)
    body("prompt: 16 MiB and more", lambda env: b'{"prompt":"' + b"a" * (16 * MIB) + b'"}', HEAVY)
    body("prompt: 500,000 ids", {"prompt": [7] * 500_000, "max_tokens": 1}, HEAVY, ANY)


def loads():
    """Right requests that cost much."""
    story = "Once upon a time there was a "
    for name, more in {
        "n 128": {"n": 128, "max_tokens": 4}, "best of 128": {"best_of": 128, "n": 1, "max_tokens": 4}, "1,024 prompts": {"prompt": ["a"] * 1024},
        "1,024 prompts in a stream": {"prompt": ["a"] * 1024, "stream": True}, "128 prompts, n 128": {"prompt": ["a"] * 128, "n": 128},
        "beams": {"use_beam_search": True, "n": 10, "best_of": 10, "max_tokens": 20}, "log-probabilities": {"logprobs": 20, "n": 16, "max_tokens": 30},
        "bias": {"logit_bias": {str(i): -100 + i % 200 for i in range(1024)}, "n": 8, "max_tokens": 10},
        "stops": {"stop": ["x" * 1024] * 16, "max_tokens": 60, "n": 8}, "stop ids": {"stop_token_ids": list(range(2, 258)), "max_tokens": 8},
        "the longest": {"prompt": story, "max_tokens": 2**31 - 1, "ignore_eos": True}, "penalties": {
            "repetition_penalty": 10, "presence_penalty": 2, "frequency_penalty": -2, "n": 8, "max_tokens": 30},
        "scores": {"prompt": story * 40, "echo": True, "logprobs": 20, "max_tokens": 0, "n": 4},
        "bad words": {"bad_words": [f"word{i}" for i in range(200)], "max_tokens": 8},
        "salts": {"prompt": story * 40, "cache_salt": "s", "max_tokens": 1},
    }.items():
        body(f"load: {name}", {**ASK, **more}, HEAVY if "1,024" in name or "128" in name else COSTLY, ANY)
    body("load: bias of -0", {**ASK, "logit_bias": {"-0": 1}}, expect=ANY)
    body("load: a prompt nobody had", lambda env: {**ASK, "prompt": [env.rng.randint(3, 4000) for _ in range(env.rng.randint(1, 500))]},
         COSTLY, ANY)


for make_some in (broken_json, fields, tokens, loads):
    make_some()
