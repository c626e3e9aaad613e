"""Makes parameter_order.json: names of parameters by class, in the order of Transformers' named_parameters().

parameter_order.py FAMILIES CLASSES OUT. FAMILIES is the folder reference/families with its manifest.json. CLASSES is a JSON file with
{row name: names of the classes of its family}. Each class is built from the row's config.json with drawn weights and saved, so that a
name that Transformers gives the tensor in a file is found by its values. Classes of a family stand in the first row of the family."""
import glob
import json
import os
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file

transformers.logging.set_verbosity_error()
# keys that change no name
UNUSED = set("""transformers_version architectures dtype torch_dtype use_cache _name_or_path initializer_range rope_parameters rope_theta
rope_scaling attention_dropout hidden_dropout hidden_dropout_prob attention_probs_dropout_prob layer_norm_eps rms_norm_eps id2label label2id
chunk_size_feed_forward output_hidden_states output_attentions return_dict is_encoder_decoder is_decoder embd_pdrop attn_pdrop resid_pdrop
dropout activation_dropout classifier_dropout initializer_factor tokenizer_class prefix sep_token_id problem_type final_dropout mask_time_prob
mask_feature_prob cross_attention_hidden_size""".split())


def names_of(name, path):
    """The names in files of a class's parameters, in order. A tied one has the name of the first module."""
    cls = getattr(transformers, name)
    model = cls(cls.config_class.from_pretrained(path)).float()
    torch.manual_seed(0)
    with torch.no_grad():
        for p in list(model.parameters()):
            p.normal_()
    on_disk = {}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        for file in glob.glob(folder + "/model*.safetensors"):
            for key, t in load_file(file).items():
                on_disk.setdefault((tuple(t.shape), t.float().numpy().tobytes()), []).append(key)
    tied, names = getattr(model, "all_tied_weights_keys", None) or {}, []
    for key, p in model.named_parameters():
        found = on_disk.get((tuple(p.shape), p.detach().numpy().tobytes()), [])
        names.append(key if key in found or key in tied or len(found) != 1 else found[0])
    return names


def text_of(names):
    """A(B C) for A.B A.C, and 0-2(A) for 0.A 1.A 2.A."""
    groups = []
    for name in names:
        head, _, rest = name.partition(".")
        if groups and groups[-1][0] == head and rest:
            groups[-1][1].append(rest)
        else:
            groups.append((head, [rest] if rest else []))
    parts, out, i = [(h, text_of(r) if r else None) for h, r in groups], [], 0
    while i < len(parts):
        (head, inner), j = parts[i], i
        while head.isdigit() and inner and parts[j + 1:j + 2] == [(str(int(parts[j][0]) + 1), inner)]:
            j += 1
        out.append((head if j == i else f"{head}-{parts[j][0]}") + (f"({inner})" if inner else ""))
        i = j + 1
    return " ".join(out)


def config_of(c):
    return {k: config_of(v) if isinstance(v, dict) else v for k, v in c.items() if k not in UNUSED and v is not None}


folder, classes, out = sys.argv[1], json.load(open(sys.argv[2])), sys.argv[3]
kinds, seen, rows = set(), {}, []
for row in json.load(open(folder + "/manifest.json"))["rows"]:
    path = os.path.join(folder, row["name"])
    config = json.load(open(path + "/config.json"))
    first = config["model_type"] not in kinds
    kinds.add(config["model_type"])
    wanted = sorted({row["class"], *(classes[row["name"]] if first else [])})
    texts = {name: text_of(names_of(name, path)) for name in wanted if hasattr(transformers, name)}
    if all(seen.get(name) == text for name, text in texts.items()):
        continue
    seen.update(texts)
    bases = [t for n, t in texts.items() if n.endswith("Model") and not n.endswith(("LMHeadModel", "MTModel"))]
    entry = {"name": row["name"], "config": config_of(config)}
    if len(bases) == 1:
        entry["base"] = bases[0]
        texts = {n: t.replace(bases[0], "@") for n, t in texts.items()}
    rows.append(json.dumps({**entry, "classes": texts}, separators=(",", ":")))
about = (f"Names of parameters in the order of Transformers {transformers.__version__}, by class. A(B C) stands for A.B A.C, 0-2(A) for 0.A "
         "1.A 2.A, and @ for base.")
with open(out, "w") as f:
    f.write('{"about":%s,"rows":[\n%s\n]}\n' % (json.dumps(about), ",\n".join(rows)))
