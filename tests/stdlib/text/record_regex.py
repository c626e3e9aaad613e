#!/usr/bin/env python3
"""What the package `tokenizers` makes of regular expressions: record_regex.py OUT SEED

Writes {texts, replaced: [{pattern, out}], classes: [{pattern, blocks: [[first, left, sum]]}]}: each text with "<>" in the place
of every match, for fixed and for random patterns; and of blocks of 4096 code points how many a class does not match, and
their sum."""
import json, random, sys
from tokenizers import Regex, normalizers

out, seed = sys.argv[1], int(sys.argv[2])
random.seed(seed)
FIXED = [r"\d{1,3}(?=(?:\d{3})*\b)", r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))", r"(?=(\d{3})+(?!\d))", r"(?<=\d)(?=(?:\d\d\d)+(?:\D|$))",
         r"\s++$|\s+", r"(?>\s+)(?!\S)|\s+", r"[[:punct:]]+", r"\p{Punct}", r"(?<=[a-z]{2})[A-Z]", r"(?<!ca|me)[A-Z]", r"\d(?=(\d{3})+$)",
         r"(?!.*\d)\w+", r"(?:(?!ab).)+", r"\R", r"\R{2}", r"\w+(?=\s*\n)", r"^", r"^$", r"^.*$", r"\Z", r"(?<=^|\s)\S+(?=\s|$)",
         "(?x) \\p{N}{1,3} (?= (?:\\p{N}{3})* (?:\\P{N}|$) ) # digits\n | [a-z ] +", r"(?>[a-z]+|[a-z]+[A-Z])", r"(?>\w+?)\d", r"(?>a|aa|aaa)b",
         r"(?>a|ab)c", r"(?>\d{1,3})\d", r"(?>\d{1,3}?)\d", r"(?>\s*[\r\n]+)|\s+(?!\S)|\s+", r"a?+a", r"a*+a", r"(?:ab)++a", r"\O\N",
         r"(?i:ss)", r"(?i:ß)", r"(?i:[ß])", r"(?i:[^ß]x)", r"(?i:sss)", r"(?i:ss?)", r"(?i:ss{2})", r"(?i:strasse)", r"(?i:ffi)", r"(?i:ﬃ)",
         r"(?i:İ)", r"(?i:ŉ)", r"(?i:st)", r"(?i:[ß-ÿ]x)", r"(?i:(?<=ss)x)", r"(?i:x(?=ss))", r"\w+", r"\b.", r"[\w]+", r"\W", r"[^\w]"]
TEXTS = ["Hello World's  café 1234567 don't camelCaseWord 3.14 10,000 日本語 \n\n  x  ", "12345678 1 12 123 1234 ab aab aaabbcc a1b   ",
         "μέ №5 ½ Ⅳ 😀👍🏽 «q» … 。\t\r\nfoo_bar\\n e\u0301é", "1000000\n 1000\n", " \n", "ss SS ß ẞ sS ſs ssx ßx xß", "sß ßs sss Straße STRASSE",
         "ﬁ ﬃ ffi ﬀi fﬁ i̇ İ ŉ ʼN ﬅ ﬆ St", "10 m² ½ x", "a\nb\n\n", "abc ac aab\r\n\r\n"]
CLASSES = [r"\w", r"\W", r"[\w]", r"[^\w]", r"\p{Word}", r"\P{Word}", r"\s", r"\d", r"\R", r"(?i:[a-z])", r"\p{Alpha}", r"\p{Alnum}",
           r"\p{Upper}", r"\p{Lower}", r"\p{Graph}", r"\p{Print}", r"\p{Blank}", r"\p{Cntrl}", r"\p{LC}", r"[[:punct:]]", r"[[:word:]]", r"[[:^alpha:]]"]


def atom(depth):
    r = random.random()
    if depth <= 0 or r < 0.45: return random.choice(["a", "b", "c", "[ab]", "[^a]", "\\d", ".", "1"])
    if r < 0.6: return "(?:" + alternatives(depth - 1) + ")"
    if r < 0.72: return "(?>" + alternatives(depth - 1) + ")"
    if r < 0.9: return random.choice(["(?=", "(?!"]) + alternatives(depth - 1) + ")"
    if r < 0.95: return random.choice(["(?<=", "(?<!"]) + random.choice(["a", "ab", "[ab]c", "a|bc", "1"]) + ")"
    return random.choice(["\\b", "^", "$", "\\B", "\\R", "\\z", "\\A"])


def piece(depth):  # a loop repeats characters alone: engines differ in rounds that may be empty
    a = atom(depth)
    if random.random() > 0.45 or a.startswith("(") or a in ("\\b", "^", "$", "\\B", "\\z", "\\A"): return a
    return a + random.choice(["*", "+", "?", "{2}", "{1,2}", "{0,2}", "*?", "+?", "??", "*+", "++", "?+", "{1,2}?"])


def alternatives(depth):
    return "|".join("".join(piece(depth) for _ in range(random.choice([1, 1, 2, 2, 3, 4]))) for _ in range(random.choice([1, 1, 1, 2, 2, 3])))


def short(): return "".join(random.choice("aaabbcc11 \n\r") for _ in range(random.randint(1, 14)))


def replace(pattern, with_): return normalizers.Replace(Regex(pattern), with_).normalize_str


few = [short() for _ in range(10)]
jobs = [(p, TEXTS) for p in FIXED] + [(alternatives(random.choice([1, 2, 3])), few) for _ in range(600)]
replaced = []
for pattern, texts in jobs:
    try: fn = replace(pattern, "<>")
    except BaseException: continue  # lookbehind that Oniguruma refuses
    replaced.append(dict(pattern=pattern, texts=texts, out=[fn(t) for t in texts]))
FIRSTS = list(range(0, 0x32000, 4096)) + [0xE0000, 0xF0000, 0x10F000]
blocks = [(b, "".join(chr(c) for c in range(b, b + 4096) if not 0xD800 <= c <= 0xDFFF)) for b in FIRSTS]
classes = []
for pattern in CLASSES:
    fn = replace(pattern, "")
    left = [(b, fn(text)) for b, text in blocks]
    classes.append(dict(pattern=pattern, blocks=[[b, len(x), sum(map(ord, x))] for b, x in left]))
json.dump(dict(replaced=replaced, classes=classes), open(out, "w"))
