#!/usr/bin/env python3
"""What Transformers' generate does: python3 generation.py FILES OUTDIR [--seed N]
FILES holds model folders (gpt2 llama mixtral t5). OUTDIR/generation.json has `cases`: model, name, kwargs of generate, input_ids (rows without padding),
`new` (ids behind the prompt, of every returned sequence) and, of beams, `sequences_scores`. Of sampling `scores`: OUTDIR/generation.safetensors holds
under model/name the processed scores [steps, rows, vocabulary] of the sequences in `new`. Everything in float32 on a CPU."""
import argparse, json, os

import torch
import transformers
from safetensors.torch import save_file

parser = argparse.ArgumentParser()
parser.add_argument("files")
parser.add_argument("out")
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
transformers.logging.set_verbosity_error()
os.makedirs(args.out, exist_ok=True)
PAD = 3

WARPERS = {
    "temperature": dict(temperature=0.6, top_k=0), "top_k": dict(top_k=7), "top_p": dict(top_k=0, top_p=0.8),
    "top_k_top_p": dict(top_k=20, top_p=0.7, temperature=1.3), "min_p": dict(top_k=0, min_p=0.3),
    "typical": dict(top_k=0, typical_p=0.4), "epsilon": dict(top_k=0, epsilon_cutoff=0.011),
    "eta": dict(top_k=0, eta_cutoff=0.02), "default": dict(),
    "all": dict(temperature=0.8, top_k=40, top_p=0.95, min_p=0.02, typical_p=0.9, epsilon_cutoff=0.005, eta_cutoff=0.002),
}


def cases(family, rng):
    common = [int(x) for x in torch.randint(4, 90, (6,), generator=rng)]
    yield "greedy", dict(max_new_tokens=14, eos_token_id=False), "ragged"
    yield "greedy_single", dict(max_new_tokens=14, eos_token_id=False), "single"
    yield "greedy_ends", dict(max_new_tokens=20), "ragged"
    yield "no_cache", dict(max_new_tokens=9, use_cache=False), "ragged"
    yield "max_length", dict(max_length=21), "single"
    for name, kwargs in {
        "beam4": dict(num_beams=4), "beam4_return": dict(num_beams=4, num_return_sequences=3),
        "beam4_short": dict(num_beams=4, length_penalty=-1.0), "beam4_long": dict(num_beams=4, length_penalty=2.0),
        "beam4_early": dict(num_beams=4, early_stopping=True, num_return_sequences=4),
        "beam3_never": dict(num_beams=3, early_stopping="never", length_penalty=0.5),
        "beam2_penalties": dict(num_beams=2, repetition_penalty=1.4, no_repeat_ngram_size=2, renormalize_logits=True),
    }.items():
        yield name, dict(max_new_tokens=12, **kwargs), "ragged"
        yield name + "_single", dict(max_new_tokens=12, **kwargs), "single"
        yield name + "_ends", dict(max_new_tokens=12, eos_token_id="likely", **kwargs), "ragged"
    for name, kwargs in {
        "repetition": dict(repetition_penalty=1.5), "ngram": dict(no_repeat_ngram_size=2), "min_new": dict(min_new_tokens=8, eos_token_id="likely"),
        "min_length": dict(min_length=15, eos_token_id="likely"), "bad_words": dict(bad_words_ids=[[common[0]], common[1:3], common[2:5]]),
        "suppress": dict(suppress_tokens=list(range(20, 60)), begin_suppress_tokens=list(range(60, 80))),
        "forced_eos": dict(forced_eos_token_id=5, eos_token_id=5),
        "decay": dict(exponential_decay_length_penalty=(2, 1.6), eos_token_id="likely"),
        "bias": dict(sequence_bias=[[[common[3]], 2.5], [[common[3], common[4]], 9.0]]),
    }.items():
        yield name, dict(max_new_tokens=12, **kwargs), "ragged"
    # of a model without an encoder these are about the prompt; alone: in a batch the reference also counts what pads the prompts
    yield "encoder_repetition", dict(max_new_tokens=12, encoder_repetition_penalty=1.6), "single"
    yield "encoder_ngram", dict(max_new_tokens=12, encoder_no_repeat_ngram_size=2), "ragged"
    if family != "t5":
        yield "encoder_ngram1", dict(max_new_tokens=12, encoder_no_repeat_ngram_size=1, num_beams=2), "single"
        yield "encoder_repetition_down", dict(max_new_tokens=12, encoder_repetition_penalty=0.4, num_beams=2), "single"
    if family == "t5":
        yield "forced_bos", dict(max_new_tokens=12, forced_bos_token_id=9), "ragged"
    for name, kwargs in WARPERS.items():
        yield "sample_" + name, dict(max_new_tokens=10, do_sample=True, **kwargs), "ragged"
    yield "sample_return", dict(max_new_tokens=8, do_sample=True, num_return_sequences=3, top_k=5, repetition_penalty=1.2), "ragged"


rows, tensors = [], {}
for family in ("gpt2", "llama", "mixtral", "t5"):
    path = os.path.join(args.files, family)
    with open(os.path.join(path, "config.json")) as f:
        cls = getattr(transformers, json.load(f)["architectures"][0])
    model = cls.from_pretrained(path).eval().float()
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    encoder = model.config.is_encoder_decoder
    rng = torch.Generator().manual_seed(args.seed * 1000 + len(family))
    ragged = [[int(x) for x in torch.randint(4, 90, (n,), generator=rng)] for n in (11, 4, 7)]
    likely = None
    for name, kwargs, shape in cases(family, rng):
        prompt = ragged if shape == "ragged" else ragged[:1]
        width = max(map(len, prompt))
        pad = 0 if encoder else PAD
        left = not encoder
        ids = torch.tensor([([pad] * (width - len(r)) if left else []) + r + ([] if left else [pad] * (width - len(r))) for r in prompt])
        mask = torch.tensor([([0] * (width - len(r)) if left else []) + [1] * len(r) + ([] if left else [0] * (width - len(r))) for r in prompt])
        if kwargs.get("eos_token_id") == "likely":  # what this model says often
            kwargs["eos_token_id"] = likely
        given = dict(kwargs)
        if kwargs.get("eos_token_id") is False:
            given["eos_token_id"] = -1  # no id is it
        torch.manual_seed(args.seed + 5)
        sampled = kwargs.get("do_sample", False)
        with torch.no_grad():
            out = model.generate(ids, attention_mask=mask, pad_token_id=pad, return_dict_in_generate=True, output_scores=True, **given)
        start = 1 if encoder else width
        new = out.sequences[:, start:].tolist()
        if name == "greedy":
            flat = [t for r in new for t in r[4:]]
            likely = sorted(set(flat), key=lambda t: (-flat.count(t), t))[:2]
        row = dict(model=family, name=name, kwargs=kwargs, input_ids=prompt, new=new, pad_token_id=pad)
        if kwargs.get("num_beams", 1) > 1:
            row["sequences_scores"] = out.sequences_scores.tolist()
        if sampled:
            tensors[f"{family}/{name}"] = torch.stack(out.scores).contiguous()
        rows.append(row)

versions = {"torch": torch.__version__, "transformers": transformers.__version__}
with open(os.path.join(args.out, "generation.json"), "w") as f:
    f.write(json.dumps({"versions": versions, "cases": rows}, separators=(",", ":")).replace('{"model"', '\n{"model"') + "\n")
save_file(tensors, os.path.join(args.out, "generation.safetensors"))
print(len(rows), "cases")
