#!/usr/bin/env python3
"""What the package `tokenizers` does with real and random texts: record_tokenizers.py OUTDIR REFERENCE SEED TEXT...

Writes NAME.json and NAME.cases.json into OUTDIR, in the form of tests/reference/tokenizers, for the tokenizers of the
folder REFERENCE, for three more that it builds, and train.json: the vocabulary and merges that it learns from the first TEXT.
"""
import json, os, random, sys
os.environ["TOKENIZERS_PARALLELISM"] = "true"
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers as nz, pre_tokenizers as pre,
                        processors, trainers)

out, reference, seed, paths = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
os.makedirs(out, exist_ok=True)
random.seed(seed)
POOLS = [(32, 126), (160, 591), (0x300, 0x36F), (0x370, 0x58F), (0x590, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF),
         (0x1E00, 0x206F), (0x2070, 0x24FF), (0x3000, 0x30FF), (0x4E00, 0x4FFF), (0xAC00, 0xD7A3), (0xF900, 0xFDFF),
         (0xFE00, 0xFFFF), (0x1D400, 0x1D7FF), (0x1F100, 0x1F64F), (0xE0000, 0xE01EF)]
WORDS = ["<s>", "</s>", "[MASK]", "[CLS]", "<|endoftext|>", "<unk>", " <mask> ", "don't", "\r\n", "  "]


def char():
    r = random.random()
    if r < 0.4: return random.choice(" abcdefgh.,'\nABC 019")
    if r < 0.44: return random.choice(WORDS)
    a, b = random.choice(POOLS) if r < 0.9 else (0, 0x10FFFF)
    c = random.randint(a, b)
    return chr(c) if not 0xD800 <= c <= 0xDFFF else "?"


texts = [open(p, encoding="utf-8", errors="replace").read() for p in paths]
blocks = [t[i : i + 4000] for t in texts for i in range(0, len(t), 4000)]
strings = ["".join(char() for _ in range(random.randint(0, 24))) for _ in range(10000)]


def record(name, t):
    path = f"{out}/{name}.json"
    t.save(path)
    t = Tokenizer.from_file(path)
    cases = []
    for x, e in zip(blocks, t.encode_batch(blocks)): cases.append(dict(text=x, ids=e.ids))
    for i, (x, e) in enumerate(zip(strings, t.encode_batch(strings))):
        c = dict(text=x, ids=e.ids, offsets=e.offsets)
        if i % 10 == 0:
            c.update(decoded=t.decode(e.ids), decoded_keep=t.decode(e.ids, skip_special_tokens=False),
                     tokens_plain=t.encode(x, add_special_tokens=False).tokens)
        cases.append(c)
    pairs = []
    for _ in range(200):
        a, b = random.choice(strings), random.choice(strings)
        e = t.encode(a, b)
        pairs.append(dict(a=a, b=b, ids=e.ids, type_ids=e.type_ids))
    json.dump(dict(cases=cases, pairs=pairs), open(f"{out}/{name}.cases.json", "w"), separators=(",", ":"))


for f in sorted(os.listdir(reference)):
    if f.endswith(".cases.json"): record(f[: -len(".cases.json")], Tokenizer.from_file(f"{reference}/{f[:-11]}.json"))

# GPT-4o's expression, digits apart, a contiguous split; BERT that keeps case; SentencePiece-like BPE over Metaspace
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
t = Tokenizer.from_file(f"{reference}/bpe_bytes.json")
t.normalizer = nz.NFC()
t.pre_tokenizer = pre.Sequence([pre.Split(Regex(O200K), "isolated"), pre.Digits(True), pre.Split(Regex(r"\bthe\b|,+"), "contiguous"),
                                pre.ByteLevel(add_prefix_space=False, use_regex=False)])
t.add_tokens([AddedToken("Hello", single_word=True), AddedToken("\u00e9"), AddedToken("ab", rstrip=True, normalized=False)])
t.add_special_tokens([AddedToken("<X>", lstrip=True, rstrip=True)])
record("more_split", t)
t = Tokenizer.from_file(f"{reference}/wordpiece.json")
t.normalizer = nz.Sequence([nz.NFKD(), nz.Replace(Regex(r"\s+"), " "), nz.BertNormalizer(lowercase=False, strip_accents=True), nz.Strip()])
t.pre_tokenizer = pre.Sequence([pre.Whitespace(), pre.Punctuation("merged_with_previous")])
record("more_wordpiece", t)
t = Tokenizer.from_file(f"{reference}/bpe_fallback.json")
t.normalizer = nz.NFKC()
t.pre_tokenizer = pre.Metaspace(prepend_scheme="first", split=False)
t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
record("more_metaspace", t)

t = Tokenizer(models.BPE())
t.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
t.train([paths[0]], trainers.BpeTrainer(vocab_size=3000, special_tokens=["<a>", "<b>"], initial_alphabet=pre.ByteLevel.alphabet(),
                                        min_frequency=2, show_progress=False))
model = json.loads(t.to_str())["model"]
json.dump(dict(vocab=model["vocab"], merges=model["merges"]), open(f"{out}/train.json", "w"))
