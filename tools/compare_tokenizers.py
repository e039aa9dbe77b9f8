#!/usr/bin/env python3
"""Compares quire's tokenizers with the packages tokenizers, sentencepiece and tiktoken on random lines.

  tools/compare_tokenizers.py --quire build/release/quire [--data ../shared/data] [--lines 10000] [NAME...]
  tools/compare_tokenizers.py --fixture tests/tokenize/fixtures   (writes trained_tokenizers.json and the files
                                                               beside it)

Vocabularies: those of the test data, and small ones of every option that it trains itself on the test data's
texts (English) and on random lines. A line is made of words, numbers, white space, punctuation, the vocabulary's
special tokens, and characters of every script assigned in Unicode 14, combining ones among them. NAME: only the
vocabularies whose name contains one of them. Needs Python 3.11 (its unicodedata is of Unicode 14) and
  pip install tokenizers sentencepiece tiktoken
Exits with 1 if one line differs.
"""

import argparse
import base64
import contextlib
import json
import lzma
import os
import random
import re
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

import sentencepiece
import tiktoken
from tokenizers import (AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, Regex,
                        trainers)

LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                  r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")
O200K_PATTERN = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


# --- lines ---------------------------------------------------------------------------------------------------


class Lines:
  """Random lines, the same for the same seed."""

  def __init__(self, words, seed=1):
    self.rng = random.Random(seed)
    self.words = words
    self.assigned = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    self.bmp = [c for c in self.assigned if c < 0x3000]
    self.marks = [c for c in self.assigned if unicodedata.combining(chr(c))]
    self.decomposing = [c for c in self.assigned if unicodedata.decomposition(chr(c))]
    self.spaces = " \t\n\r\x0b\x0c\x85\u00a0\u1680\u2000\u2003\u2009\u200a\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"

  def piece(self, specials):
    rng = self.rng
    kind = rng.randrange(16)
    if kind < 4:
      return rng.choice(("", " ", " ", " ")) + rng.choice(self.words)
    if kind == 4:
      return str(rng.randrange(10 ** rng.randrange(1, 9)))
    if kind == 5:
      return rng.choice(" \n\t") * rng.randrange(1, 6)
    if kind == 6:
      return "".join(rng.choice(self.spaces) for _ in range(rng.randrange(1, 4)))
    if kind == 7:
      return "".join(rng.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") for _ in range(rng.randrange(1, 5)))
    if kind == 8:
      return rng.choice(("'s", "'T", "n't", "'ll", "'RE", "\u2019s", "'\u017f", "\u2581", "\u2581\u2581", "##",
                         "</w>", "<0x41>", "\x00", "\ufffd", "\u00ad", "don't", "CamelCase", "ß", "İ", "ΣΑΣ"))
    if kind == 9 and specials:
      return rng.choice(("", " ")) + rng.choice(specials) + rng.choice(("", " "))
    if kind == 10:
      return chr(rng.choice(self.decomposing)) + chr(rng.choice(self.marks)) * rng.randrange(2)
    if kind == 11:
      return rng.choice("aeioun가 ") + "".join(chr(rng.choice(self.marks)) for _ in range(rng.randrange(1, 4)))
    if kind == 12:
      return "".join(chr(rng.choice(self.assigned)) for _ in range(rng.randrange(1, 6)))
    if kind == 13:
      start = rng.choice(self.bmp)
      near = [c for c in range(start, start + 30) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
      return "".join(chr(rng.choice(near)) for _ in range(rng.randrange(1, 8)))
    if kind == 14:
      return rng.choice(("日本語テキスト", "한국어", "👩‍👩‍👧", "🇩🇪", "नमस्ते", "مرحبا", "ภาษาไทย", "é", "ｆｕｌｌ", "Ⅳ½²"))
    return rng.choice("abcxyz") * rng.randrange(1, 40)

  def make(self, count, specials=()):
    specials = list(specials)
    return ["".join(self.piece(specials) for _ in range(self.rng.randrange(1, 14))) for _ in range(count)]

  def every_character(self):
    """Each assigned character behind a letter."""
    return ["".join("a" + chr(c) for c in self.assigned[i:i + 100]) for i in range(0, len(self.assigned), 100)]


def english(data, limit=1_500_000):
  texts = []
  for name in ("text-tinystories/tinystories_cased_valid.txt.xz", "text-classics/children_classics.txt.xz"):
    with lzma.open(data / name, "rt", encoding="utf-8") as file:
      texts.append(file.read(limit // 2))
  return "\n".join(texts)


# --- vocabularies --------------------------------------------------------------------------------------------


class Skipped(Exception):
  """The vocabulary was not asked for."""


wanted_names = []


def check_wanted(name):
  if wanted_names and not any(part in name for part in wanted_names) and not name.startswith("helper/"):
    raise Skipped


class Case:
  """A file for quire, and what the reference gives for a line."""

  def __init__(self, name, path, encode, specials=(), decode=None):
    self.name, self.path, self.encode, self.specials, self.decode = name, path, encode, specials, decode


def tokenizers_case(name, path):
  check_wanted(name)
  tokenizer = Tokenizer.from_file(str(path))
  tokenizer.no_truncation()
  tokenizer.no_padding()
  specials = [token.content for token in tokenizer.get_added_tokens_decoder().values()]

  def encode(lines):
    return [encoding.ids for encoding in tokenizer.encode_batch(lines, add_special_tokens=True)]

  def decode(lists):
    return tokenizer.decode_batch(lists, skip_special_tokens=False)

  return Case(name, path, encode, specials[:20], decode)


def sentencepiece_case(name, path):
  check_wanted(name)
  processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
  special = [processor.id_to_piece(i) for i in range(processor.get_piece_size())
             if processor.is_control(i) or processor.is_unknown(i)]
  ids = {text: processor.piece_to_id(text) for text in special}
  cut = re.compile("|".join(re.escape(text) for text in sorted(special, key=len, reverse=True)))
  bos = [processor.bos_id()] if processor.bos_id() >= 0 else []

  def encode_one(line):
    out, done = list(bos), 0
    for match in cut.finditer(line):
      out += processor.encode(line[done:match.start()]) + [ids[match.group()]]
      done = match.end()
    return out + processor.encode(line[done:])

  return Case(name, path, lambda lines: [encode_one(line) for line in lines], special)


def tiktoken_case(name, path, pattern, special_tokens, bos):
  check_wanted(name)
  ranks = {base64.b64decode(line.split()[0]): int(line.split()[1])
           for line in Path(path).read_text().splitlines() if line}
  specials = {text: len(ranks) + i for i, text in enumerate(special_tokens)}
  encoding = tiktoken.Encoding(name=name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)

  def encode(lines):
    return [bos + encoding.encode(line, allowed_special="all") for line in lines]

  return Case(name, path, encode, special_tokens[:12])


def llama3_special_tokens():
  known = {4: "<|finetune_right_pad_id|>", 6: "<|start_header_id|>", 7: "<|end_header_id|>", 8: "<|eom_id|>",
           9: "<|eot_id|>", 10: "<|python_tag|>", 0: "<|begin_of_text|>", 1: "<|end_of_text|>"}
  reserved = iter(range(256))
  return [known.get(i) or f"<|reserved_special_token_{next(reserved)}|>" for i in range(256)]


def data_cases(data):
  for path in sorted((data / "tokenizer-hf-json").glob("*.json")):
    yield lambda path=path: tokenizers_case("data/" + path.stem, path)
  demo = data.parent / "demo-model" / "tokenizer.json"
  if demo.exists():
    yield lambda: tokenizers_case("data/demo-model", demo)
  yield lambda: sentencepiece_case("data/llama2", data / "tokenizer-llama2" / "tokenizer.model")
  yield lambda: tiktoken_case("data/llama3", data / "tokenizer-llama3" / "tokenizer.model", LLAMA3_PATTERN,
                              llama3_special_tokens(), [128000])


class Trainer:
  """Trains small vocabularies into a folder."""

  def __init__(self, folder, text, lines):
    self.folder = Path(folder)
    self.english = text.splitlines()[:6000]
    self.corpus = self.english + lines.make(1500)
    self.plain = [line for line in self.corpus if "\x00" not in line and len(line) < 4000]

  def tokenizer(self, name, model, trainer, normalizer=None, pre_tokenizer=None, decoder=None, post=None,
                added=(), change=None):
    check_wanted(name)
    tokenizer = Tokenizer(model)
    if normalizer:
      tokenizer.normalizer = normalizer
    if pre_tokenizer:
      tokenizer.pre_tokenizer = pre_tokenizer
    if decoder:
      tokenizer.decoder = decoder
    if trainer:
      # A unigram's vocabulary holds every character of its corpus.
      unigram = isinstance(trainer, trainers.UnigramTrainer)
      tokenizer.train_from_iterator(self.english[:1500] if unigram else self.corpus, trainer)
    if post:
      tokenizer.post_processor = post(tokenizer)
    if added:
      tokenizer.add_tokens(list(added))
    document = json.loads(tokenizer.to_str())
    if change:
      change(document)
    path = self.folder / (name.replace("/", "-") + ".json")
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return tokenizers_case(name, path)

  def sentencepiece(self, name, **options):
    check_wanted(name)
    prefix = self.folder / name.replace("/", "-")
    settings = {"vocab_size": 1200, "character_coverage": 0.98, "hard_vocab_limit": False,
                "max_sentence_length": 20000, "num_threads": 2, "minloglevel": 2, **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(self.plain), model_prefix=str(prefix),
                                             **settings)
    return sentencepiece_case(name, Path(str(prefix) + ".model"))


BYTES = pre_tokenizers.ByteLevel.alphabet()


def bpe_trainer(size=1500, **options):
  return trainers.BpeTrainer(vocab_size=size, show_progress=False, **options)


def template(tokenizer):
  bos = tokenizer.token_to_id("<s>")
  return processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[
      ("<s>", bos), ("</s>", tokenizer.token_to_id("</s>"))])


def byte_level_cases(t):
  specials = ["<|end|>", "<|x|>"]
  common = {"decoder": decoders.ByteLevel()}

  def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

  def ignore_merges(document):
    document["model"]["ignore_merges"] = True
    document["model"]["merges"] = document["model"]["merges"][::2]

  for name, normalizer, pre, change in (
      ("gpt2", None, pre_tokenizers.ByteLevel(add_prefix_space=True), None),
      ("llama3", None, split(LLAMA3_PATTERN), ignore_merges),
      ("qwen", normalizers.NFC(), split(QWEN_PATTERN), None),
      ("o200k", None, split(O200K_PATTERN), None),
      ("digits", None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                pre_tokenizers.ByteLevel(add_prefix_space=False)]), None),
      ("falcon", None, pre_tokenizers.Sequence([
          pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
          pre_tokenizers.Digits(), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]), None)):
    yield lambda name=name, n=normalizer, p=pre, c=change: t.tokenizer(
        "bytes/" + name, models.BPE(), bpe_trainer(initial_alphabet=BYTES, special_tokens=specials), n, p,
        change=c, added=[AddedToken("<tool>", special=False, normalized=True),
                         AddedToken("<pad>", special=True, lstrip=True, rstrip=True),
                         AddedToken("word", single_word=True)], **common)


def bpe_cases(t):
  base = ["<unk>", "<s>", "</s>"]
  fallback = base + [f"<0x{byte:02X}>" for byte in range(256)]
  marks = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
  llama_decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                     decoders.Strip(" ", 1, 0)])
  yield lambda: t.tokenizer("bpe/llama", models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
                            bpe_trainer(special_tokens=fallback), marks, decoder=llama_decoder, post=template)
  for scheme in ("first", "always", "never"):
    for cut in (True, False):
      metaspace = {"replacement": "▁", "prepend_scheme": scheme, "split": cut}
      yield lambda scheme=scheme, cut=cut, metaspace=metaspace: t.tokenizer(
          f"bpe/metaspace-{scheme}-{cut}", models.BPE(unk_token="<unk>", byte_fallback=True),
          bpe_trainer(special_tokens=fallback), pre_tokenizer=pre_tokenizers.Metaspace(**metaspace),
          decoder=decoders.Metaspace(**metaspace))
  for fuse in (True, False):
    yield lambda fuse=fuse: t.tokenizer(
        f"bpe/unk-fuse-{fuse}", models.BPE(unk_token="<unk>", fuse_unk=fuse),
        bpe_trainer(special_tokens=base, limit_alphabet=60), pre_tokenizer=pre_tokenizers.Whitespace())
  yield lambda: t.tokenizer("bpe/no-unk", models.BPE(), bpe_trainer(limit_alphabet=60),
                            pre_tokenizer=pre_tokenizers.WhitespaceSplit())
  yield lambda: t.tokenizer(
      "bpe/prefix", models.BPE(unk_token="<unk>", continuing_subword_prefix="##"),
      bpe_trainer(special_tokens=base, continuing_subword_prefix="##", limit_alphabet=200),
      normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece())
  yield lambda: t.tokenizer(
      "bpe/suffix", models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
      bpe_trainer(special_tokens=base, end_of_word_suffix="</w>", limit_alphabet=200),
      normalizers.NFKC(), pre_tokenizers.BertPreTokenizer(), decoders.BPEDecoder("</w>"))


def word_cases(t):
  specials = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]

  def bert(tokenizer):
    return processors.BertProcessing(("[SEP]", tokenizer.token_to_id("[SEP]")),
                                     ("[CLS]", tokenizer.token_to_id("[CLS]")))

  def roberta(tokenizer):
    return processors.RobertaProcessing(("[SEP]", tokenizer.token_to_id("[SEP]")),
                                        ("[CLS]", tokenizer.token_to_id("[CLS]")))

  for name, normalizer, post, cleanup in (
      ("uncased", normalizers.BertNormalizer(), bert, True),
      ("cased", normalizers.BertNormalizer(lowercase=False), roberta, False),
      ("accents", normalizers.BertNormalizer(strip_accents=False, handle_chinese_chars=False), bert, True)):
    yield lambda name=name, n=normalizer, p=post, c=cleanup: t.tokenizer(
        "wordpiece/" + name, models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30),
        trainers.WordPieceTrainer(vocab_size=1500, special_tokens=specials, limit_alphabet=300,
                                  show_progress=False),
        n, pre_tokenizers.BertPreTokenizer(), decoders.WordPiece(cleanup=c), p)
  yield lambda: t.tokenizer(
      "wordlevel", models.WordLevel(unk_token="[UNK]"),
      trainers.WordLevelTrainer(vocab_size=2000, special_tokens=specials, show_progress=False),
      normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]),
      pre_tokenizers.Whitespace())


def unigram_cases(t):
  base = ["<unk>", "<s>", "</s>"]
  metaspace = {"replacement": "▁", "prepend_scheme": "always"}

  def trainer(specials):
    return trainers.UnigramTrainer(vocab_size=1500, unk_token="<unk>", special_tokens=specials,
                                   show_progress=False, max_piece_length=12)

  def charsmap():
    proto = t.sentencepiece("helper/nfkc", model_type="bpe", normalization_rule_name="nmt_nfkc",
                            vocab_size=400).path.read_bytes()
    return charsmap_of(proto)

  yield lambda: t.tokenizer(
      "unigram/t5", models.Unigram(), trainer(base),
      normalizers.Sequence([normalizers.Precompiled(charsmap()), normalizers.Replace(Regex(" {2,}"), "▁")]),
      pre_tokenizers.Metaspace(**metaspace), decoders.Metaspace(**metaspace), template)
  yield lambda: t.tokenizer("unigram/whole", models.Unigram(), trainer(base), normalizers.Nmt(),
                            pre_tokenizers.Metaspace(split=False, **metaspace), decoders.Metaspace(**metaspace))

  def fallback(document):
    document["model"]["byte_fallback"] = True
    document["model"]["vocab"] += [[f"<0x{byte:02X}>", 0.0] for byte in range(256)]

  yield lambda: t.tokenizer("unigram/bytes", models.Unigram(), trainer(base), normalizers.NFKD(),
                            pre_tokenizers.Metaspace(**metaspace), decoders.Sequence([
                                decoders.ByteFallback(), decoders.Metaspace(**metaspace)]), change=fallback)


def probe_cases(t):
  """One model that shows each byte of each piece, and where pieces end, behind every step there is."""

  def probe(name, normalizer=None, pre_tokenizer=None):
    def change(document):
      vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
      document["model"].update({"vocab": vocab, "byte_fallback": True, "end_of_word_suffix": "\x01"})
    return t.tokenizer("probe/" + name, models.BPE(), None, normalizer, pre_tokenizer, change=change,
                       added=[AddedToken("<x>", normalized=True), AddedToken("<y>", normalized=False)])

  n, p = normalizers, pre_tokenizers
  for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"):
    yield lambda form=form: probe("normalizer-" + form, getattr(n, form)())
  yield lambda: probe("normalizer-strip", n.Strip(left=True, right=True))
  yield lambda: probe("normalizer-replace", n.Sequence([n.Replace("a", "bb"), n.Replace(Regex(r"\s+"), "")]))
  for flags in ((True, True, None, True), (True, False, False, True), (False, True, True, False)):
    yield lambda flags=flags: probe("normalizer-bert-" + "-".join(map(str, flags)), n.BertNormalizer(*flags))
  for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
    for invert in (False, True):
      yield lambda b=behavior, i=invert: probe(f"split-{b}-{i}", None, p.Split(Regex(r"\s|\d+|[aeiou]{2}"), b, i))
    yield lambda b=behavior: probe("punctuation-" + b, None, p.Punctuation(b))
  yield lambda: probe("split-string", None, p.Split(" ", "merged_with_next"))
  for each in (True, False):
    yield lambda each=each: probe(f"digits-{each}", None, p.Digits(individual_digits=each))
  yield lambda: probe("whitespace", None, p.Whitespace())
  yield lambda: probe("whitespace-split", None, p.WhitespaceSplit())
  yield lambda: probe("bert", None, p.BertPreTokenizer())
  yield lambda: probe("char", None, p.CharDelimiterSplit("e"))
  for scheme in ("first", "always", "never"):
    yield lambda scheme=scheme: probe("metaspace-" + scheme, None, p.Sequence([
        p.Digits(), p.Metaspace(prepend_scheme=scheme)]))
  for name, pattern in (("llama3", LLAMA3_PATTERN), ("o200k", O200K_PATTERN)):
    yield lambda name=name, pattern=pattern: probe("pattern-" + name, None, p.Split(Regex(pattern), "isolated"))
  yield lambda: probe("pattern-gpt2", None, p.ByteLevel(add_prefix_space=True))


def sentencepiece_cases(t):
  for model in ("bpe", "unigram"):
    for name, options in (
        ("plain", {"normalization_rule_name": "identity"}),
        ("nmt", {"normalization_rule_name": "nmt_nfkc", "byte_fallback": True}),
        ("fold", {"normalization_rule_name": "nfkc_cf", "split_digits": True}),
        ("gemma", {"normalization_rule_name": "identity", "byte_fallback": True, "add_dummy_prefix": False,
                   "remove_extra_whitespaces": False, "split_digits": True,
                   "user_defined_symbols": ["<start_of_turn>", "\n\n", "▁▁", "▁▁▁▁", "<tool>", "abc"]}),
        ("llama", {"normalization_rule_name": "identity", "byte_fallback": True,
                   "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True,
                   "control_symbols": ["[INST]", "[/INST]"]}),
        ("suffix", {"normalization_rule_name": "nmt_nfkc", "treat_whitespace_as_suffix": True}),
        ("across", {"split_by_whitespace": False, "max_sentencepiece_length": 24, "bos_id": -1, "eos_id": 1}),
        ("user", {"user_defined_symbols": ["the", " x", "日本", "..."], "split_by_unicode_script": False})):
      yield lambda model=model, name=name, options=options: t.sentencepiece(
          f"spm/{model}-{name}", model_type=model, **options)
  yield lambda: t.sentencepiece("spm/char", model_type="char")
  yield lambda: gaps_case(t)


def gaps_case(t):
  """A BPE model where pieces are unused, and characters are missing that longer pieces hold."""
  check_wanted("spm/bpe-gaps")
  path = t.sentencepiece("helper/gaps", model_type="bpe", byte_fallback=True).path
  fields = []
  for number, payload in proto_fields(path.read_bytes()):
    if number == 1:
      piece = dict(proto_fields(payload))
      text = piece[1].decode()
      kind = piece.get(3, 1)
      if kind == 1 and text in "eéthan":
        continue
      if kind == 1 and len(text) in (3, 5):
        payload += b"\x18\x05"
    fields.append((number, payload))
  out = t.folder / "spm-gaps.model"
  out.write_bytes(b"".join(proto_bytes(number, payload) for number, payload in fields))
  return sentencepiece_case("spm/bpe-gaps", out)


def varint(data, pos):
  value = shift = 0
  while True:
    value |= (data[pos] & 0x7F) << shift
    shift += 7
    pos += 1
    if data[pos - 1] < 0x80:
      return value, pos


def proto_fields(data):
  pos = 0
  while pos < len(data):
    tag, pos = varint(data, pos)
    if tag & 7 == 0:
      value, pos = varint(data, pos)
    elif tag & 7 == 5:
      value, pos = data[pos:pos + 4], pos + 4
    else:
      size, pos = varint(data, pos)
      value, pos = data[pos:pos + size], pos + size
    yield tag >> 3, value


def proto_bytes(number, payload):
  head, size = bytes([number << 3 | 2]), len(payload)
  while size >= 0x80:
    head, size = head + bytes([size & 0x7F | 0x80]), size >> 7
  return head + bytes([size]) + payload


def charsmap_of(model):
  return next(value for number, spec in proto_fields(model) if number == 3
              for field, value in proto_fields(spec) if field == 2)


def qwen_ranks_case(t, data):
  """Llama 3's ranks and others, as many as Qwen has: it is told by the number of its ranks."""
  check_wanted("tiktoken/qwen")
  lines = (data / "tokenizer-llama3" / "tokenizer.model").read_text().splitlines()
  tokens = [base64.b64decode(line.split()[0]) for line in lines if line]
  known, rng = set(tokens), random.Random(7)
  while len(tokens) < 151643:
    token = rng.choice(tokens) + rng.choice(tokens)
    if token not in known and len(token) < 20:
      known.add(token)
      tokens.append(token)
  path = t.folder / "qwen.tiktoken"
  path.write_text("".join(f"{base64.b64encode(token).decode()} {i}\n" for i, token in enumerate(tokens)))
  specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [f"<|extra_{i}|>" for i in range(205)]
  case = tiktoken_case("tiktoken/qwen", path, QWEN_PATTERN, specials, [])
  nfc, encode = normalizers.NFC(), case.encode
  case.encode = lambda lines: encode([nfc.normalize_str(line) for line in lines])
  return case


# --- comparing -----------------------------------------------------------------------------------------------


def run_quire(quire, command, path, values, folder):
  file = Path(folder) / "lines.json"
  file.write_text(json.dumps(values), encoding="ascii")
  done = subprocess.run([quire, command, str(path), "--lines", str(file)], stdout=subprocess.PIPE, check=False)
  rows = done.stdout.decode("utf-8").split("\n")[:-1]
  if done.returncode or len(rows) != len(values):
    return None
  return [json.loads(row) for row in rows]


def compare(case, lines, quire, folder):
  expected = case.encode(lines)
  got = run_quire(quire, "tokenize", case.path, lines, folder)
  if got is None:
    return "quire failed"
  wrong = [i for i in range(len(lines)) if list(expected[i]) != got[i]]
  for i in wrong[:3]:
    at = next((k for k, (a, b) in enumerate(zip(expected[i], got[i])) if a != b),
              min(len(expected[i]), len(got[i])))
    print(f"    line {i} {lines[i]!r}: from token {at} expected {expected[i][at:at + 8]}, got {got[i][at:at + 8]}")
  result = f"{len(lines) - len(wrong)} of {len(lines)} lines equal"
  texts = 0
  if case.decode:
    texts = compare_decoded(case, expected, quire, folder)
    result += f", {len(lines) - texts} decoded equal"
  return result if wrong or texts else None


def compare_decoded(case, expected, quire, folder):
  texts = case.decode([list(ids) for ids in expected])
  got = run_quire(quire, "detokenize", case.path, [list(ids) for ids in expected], folder)
  if got is None:
    return len(texts)
  wrong = [i for i in range(len(texts)) if texts[i] != got[i]]
  for i in wrong[:2]:
    print(f"    decoded {expected[i][:12]}...: expected {texts[i]!r}, got {got[i]!r}")
  return len(wrong)


def write_fixture(folder, trainer_of, lines):
  """Four small tokenizers and 60 lines each with their ids."""
  folder = Path(folder)
  with tempfile.TemporaryDirectory() as work:
    rules = Path(work) / "rules.tsv"
    pairs = (("\uff41", "a"), ("e\u0301", "\u00e9"), ("\ufb01", "fi"), ("\t", " "), ("\u00a0", " "), ("\u200b", ""))
    rules.write_text("".join(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n"
                             for a, b in pairs))
    t = trainer_of(work)
    t.plain = t.corpus = t.english  # few characters: small files
    specials = ["[UNK]", "[CLS]", "[SEP]"]
    cases = [
        t.sentencepiece("trained_bpe", model_type="bpe", vocab_size=600, byte_fallback=True,
                        normalization_rule_tsv=str(rules), user_defined_symbols=["<tool>", "the"]),
        t.sentencepiece("trained_unigram", model_type="unigram", vocab_size=400,
                        normalization_rule_tsv=str(rules), character_coverage=0.98),
        t.tokenizer("trained_unigram", models.Unigram(),
                    trainers.UnigramTrainer(vocab_size=300, unk_token="<unk>", special_tokens=["<unk>", "<s>"],
                                            show_progress=False),
                    normalizers.Sequence([normalizers.Precompiled(charsmap_of(
                        (Path(work) / "trained_bpe.model").read_bytes())), normalizers.NFKC()]),
                    pre_tokenizers.Metaspace(), decoders.Metaspace()),
        t.tokenizer("trained_wordpiece", models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30),
                    trainers.WordPieceTrainer(vocab_size=300, special_tokens=specials, limit_alphabet=80,
                                              show_progress=False),
                    normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece())]
    rows = {}
    for case in cases:
      (folder / case.path.name).write_bytes(case.path.read_bytes())
      made = [line for line in lines.make(300, case.specials) if len(line) < 120][:60]
      rows[case.path.name] = [[line, list(ids)] for line, ids in zip(made, case.encode(made))]
    (folder / "trained_tokenizers.json").write_text(
        "{" + ",\n".join(json.dumps(name) + ": [\n" + ",\n".join(map(json.dumps, each)) + "]"
                         for name, each in rows.items()) + "}\n")


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("names", nargs="*")
  parser.add_argument("--quire", default="build/release/quire")
  parser.add_argument("--data", type=Path, default=Path("../shared/data"))
  parser.add_argument("--lines", type=int, default=10000)
  parser.add_argument("--seed", type=int, default=1)
  parser.add_argument("--work", help="keep the trained files here")
  parser.add_argument("--fixture")
  options = parser.parse_args()
  if unicodedata.unidata_version != "14.0.0":
    sys.exit("this Python's unicodedata is not of Unicode 14: use Python 3.11")
  os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
  wanted_names.extend(options.names)
  text = english(options.data)
  words = sorted(set(re.findall(r"\S+", text)))
  lines = Lines(words, options.seed)
  if options.fixture:
    write_fixture(options.fixture, lambda folder: Trainer(folder, text[:200_000], Lines(words, seed=2)), lines)
    return 0
  with contextlib.ExitStack() as stack:
    work = options.work or stack.enter_context(tempfile.TemporaryDirectory())
    Path(work).mkdir(parents=True, exist_ok=True)
    trainer = Trainer(work, text, lines)
    makers = [*data_cases(options.data), *byte_level_cases(trainer), *bpe_cases(trainer), *word_cases(trainer),
              *unigram_cases(trainer), *sentencepiece_cases(trainer), *probe_cases(trainer),
              lambda: qwen_ranks_case(trainer, options.data)]
    bad = total = 0
    for make in makers:
      try:
        case = make()
      except Skipped:
        continue
      texts = lines.make(options.lines, case.specials)
      if case.name.startswith("probe/"):
        texts += lines.every_character()
      wrong = compare(case, texts, options.quire, work)
      print(f"{case.name}: {wrong or 'equal'}", flush=True)
      total += 1
      bad += 1 if wrong else 0
  print(f"{total - bad} of {total} vocabularies give the same ids and texts on {options.lines} lines each")
  return 1 if bad else 0


if __name__ == "__main__":
  sys.exit(main())
