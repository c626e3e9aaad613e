#!/usr/bin/env python3
"""How Transformers' tokenizers answer calls with options: record_calls.py OUT REFERENCE

Writes a list of {name, text, pair, options, error | result} for the tokenizers of the folder REFERENCE."""
import json, sys
from transformers import PreTrainedTokenizerFast

out, reference = sys.argv[1:]
A = ["To be, or not to be, that is the question", "Whether 'tis nobler", "", "in the mind to suffer the slings and arrows of fortune"]
B = ["that is", "to take arms against a sea of troubles, and by opposing end them", "x", "no more"]
OPTIONS = [
    {}, dict(add_special_tokens=False), dict(padding=True), dict(padding="longest", pad_to_multiple_of=8),
    dict(padding="max_length", max_length=9, truncation=True), dict(padding="max_length", max_length=30),
    dict(truncation=True, max_length=7), dict(truncation="longest_first", max_length=12), dict(truncation="only_first", max_length=16),
    dict(truncation=True, max_length=8, stride=2, return_overflowing_tokens=True, padding=True),
    dict(truncation="only_second", max_length=22, stride=1, return_overflowing_tokens=True),
    dict(return_special_tokens_mask=True, return_offsets_mapping=True, return_length=True),
    dict(padding=True, padding_side="left"), dict(truncation="only_second", max_length=8), dict(padding=True, return_token_type_ids=True),
]
calls = []
for name, side in [("wordpiece", "right"), ("wordpiece", "left"), ("roberta", "right"), ("bpe_split", "right"), ("unigram", "right")]:
    pad = {"wordpiece": "[PAD]", "roberta": "<pad>", "bpe_split": "<|end_of_text|>", "unigram": "<pad>"}[name]
    tok = PreTrainedTokenizerFast(tokenizer_file=f"{reference}/{name}.json", pad_token=pad, truncation_side=side)
    for options in OPTIONS:
        for text, pair in [(A[0], None), (A[3], B[1]), (A, None), (A, B)]:
            call = dict(name=name, side=side, pad=pad, text=text, pair=pair, options=options)
            try:
                r = tok(text, pair, **options)
                call["result"] = {k: v for k, v in r.items()}
            except BaseException as ex:  # the reference's panics are no Exceptions
                call["error"] = str(ex)[:200]
            calls.append(call)
json.dump(calls, open(out, "w"))
