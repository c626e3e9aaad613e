"""Sample indices and samples of masked data sets by megatron-core's BERT and T5 data sets: writes masked_samples.json.

    pip install numpy torch megatron-core        # 0.16.1
    python masked_samples.py > ../indexed/masked_samples.json
"""
import json
import tempfile
import types

import numpy
import torch

import megatron.core.datasets.bert_dataset as bert
import megatron.core.datasets.t5_dataset as t5
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
from megatron.core.datasets.utils import Split

torch.distributed.get_rank = lambda *_: 0
VOCABULARY = 120
CONTINUING = list(range(60, 90))


class Tokenizer:
    """Ids 0 .. 119; 60 .. 89 go on with a word; the last 20 are sentinels, from the end."""
    pad, cls, sep, mask, bos, eos = 0, 1, 2, 3, 5, 4
    inv_vocab = {i: ("##" if i in CONTINUING else "") + str(i) for i in range(VOCABULARY)}
    additional_special_tokens_ids = list(range(VOCABULARY - 1, VOCABULARY - 21, -1))
    unique_identifiers = {"class": "Tokenizer"}
    vocab_size = VOCABULARY


def write(prefix, documents):
    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=numpy.uint16)
    for sentences in documents:
        for ids in sentences:
            builder.add_item(torch.tensor(ids))
        builder.end_document()
    builder.finalize(prefix + ".idx")


def make(module, name, prefix, n, options, folder):
    cls, config = getattr(module, name + "MaskedWordPieceDataset"), getattr(module, name + "MaskedWordPieceDatasetConfig")
    common = dict(random_seed=options["seed"], sequence_length=options["sequence_length"], split="1", tokenizer=Tokenizer(),
                  path_to_cache=folder, mmap_bin_files=False)
    keys = ["masking_probability", "short_sequence_probability", "masking_max_ngram", "masking_do_full_word",
            "masking_use_longer_ngrams", "masking_use_geometric_distribution", "classification_head", "sequence_length_decoder"]
    common.update({k: options[k] for k in keys if k in options}, masking_do_permutation=False)
    made = config(**common)
    low = IndexedDataset(prefix, mmap=True)
    data = cls(low, prefix, numpy.arange(n, dtype=numpy.int32), options["num_samples"], Split.train, made)
    samples = []
    for i in range(0, len(data), max(1, len(data) // 12)):
        row = {k: v.tolist() if isinstance(v, numpy.ndarray) else v for k, v in data[i].items()}
        samples.append({"i": i + 1, "sample": row})
    return {"kind": name, "options": options, "index": data.sample_index.reshape(-1).tolist(), "samples": samples}


def main():
    state, documents = numpy.random.RandomState(3), []
    for d in range(30):
        documents.append([state.randint(6, 100, size=state.randint(1, 14)).tolist() for _ in range(state.randint(0, 9))])
    documents[4] = [[7] * 600, [8, 9]]
    documents[7] = [[7, 60, 61] * 250]
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        prefix = folder + "/text"
        write(prefix, documents)
        common = dict(masking_probability=0.15, short_sequence_probability=0.1, masking_max_ngram=3, masking_do_full_word=True,
                      masking_use_longer_ngrams=False, masking_use_geometric_distribution=False, classification_head=True)
        for change in [dict(sequence_length=32, num_samples=100, seed=1234), dict(sequence_length=64, num_samples=40, seed=7,
                       masking_do_full_word=False, classification_head=False, short_sequence_probability=0.5),
                       dict(sequence_length=24, num_samples=60, seed=99, masking_use_longer_ngrams=True,
                            masking_max_ngram=6, masking_probability=0.3)]:
            cases.append(make(bert, "BERT", prefix, len(documents), {**common, **change}, folder))
        del common["classification_head"]
        common.update(masking_max_ngram=10, masking_use_geometric_distribution=True)
        for change in [dict(sequence_length=40, sequence_length_decoder=20, num_samples=80, seed=1234),
                       dict(sequence_length=60, sequence_length_decoder=40, num_samples=50, seed=11, masking_probability=0.3,
                            masking_max_ngram=3, masking_use_geometric_distribution=False, short_sequence_probability=0.0)]:
            cases.append(make(t5, "T5", prefix, len(documents), {**common, **change}, folder))
    print(json.dumps({"documents": documents, "vocab_size": VOCABULARY, "continuing": CONTINUING,
                      "sentinels": Tokenizer.additional_special_tokens_ids, "cases": cases}, separators=(",", ":")))


main()
