"""Document, sample and shuffle indices of GPT data sets, and blends, by megatron-core's helpers and numpy: writes gpt_indices.json.

    pip install numpy megatron-core        # 0.8
    python gpt_indices.py > ../indexed/gpt_indices.json
"""
import importlib.util
import json
import pathlib
import sys

import numpy


def load_helpers():
    """The compiled module alone: the package around it asks for CUDA."""
    root = pathlib.Path(importlib.util.find_spec("megatron").submodule_search_locations[0])
    path = next((root / "core" / "datasets").glob("helpers*.so"))
    spec = importlib.util.spec_from_file_location("helpers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


helpers = load_helpers()


def build(lengths, first, count, length, wanted, seed, extra):
    sizes = numpy.array(lengths, dtype=numpy.int32)
    indices = numpy.arange(first, first + count, dtype=numpy.int32)
    per_epoch = int(sizes[indices].sum())
    epochs = 1
    while wanted is not None and epochs * per_epoch < wanted * length + extra:
        epochs += 1
    separate, before = False, 0
    if epochs > 1:
        before = ((epochs - 1) * per_epoch - extra) // length
        separate = wanted - before < int(0.8 * ((per_epoch - extra) // length))
    state = numpy.random.RandomState(seed)

    def shuffled(values):
        state.shuffle(values)
        return values

    def documents(n):
        return shuffled(numpy.tile(indices, n))

    document = numpy.concatenate((documents(epochs - 1), documents(1))) if separate else documents(epochs)
    sample = helpers.build_sample_idx(sizes, document, length, epochs, per_epoch, True, extra)
    total = sample.shape[0] - 1
    shuffle = shuffled(numpy.arange(before if separate else total, dtype=numpy.uint32))
    if separate:
        shuffle = numpy.concatenate((shuffle, shuffled(numpy.arange(before, total, dtype=numpy.uint32))))
    return document.tolist(), sample.reshape(-1).tolist(), shuffle.tolist()


def main():
    lengths_of, cases, blends = numpy.random.RandomState(7), [], []
    for n, first, count, length, wanted, seed, extra in [(40, 0, 39, 16, None, 1234, 1), (40, 3, 30, 7, 200, 5, 1), (12, 0, 12, 32, 60, 99, 1),
                                                         (25, 5, 20, 8, None, 1, 0), (9, 0, 9, 5, 300, 2**31, 1)]:
        lengths = lengths_of.randint(1, 30, size=n).tolist()
        document, sample, shuffle = build(lengths, first, count, length, wanted, seed, extra)
        cases.append(dict(lengths=lengths, first=first, count=count, sequence_length=length, num_samples=wanted, seed=seed, extra=extra,
                          document=document, sample=sample, shuffle=shuffle))
    for weights, size in [([0.3, 0.7], 50), ([1 / 3] * 3, 31), ([0.05, 0.15, 0.8], 64)]:
        sets, samples = numpy.zeros(size, dtype=numpy.int16), numpy.zeros(size, dtype=numpy.int64)
        helpers.build_blending_indices(sets, samples, weights, len(weights), size, False)
        blends.append(dict(weights=weights, size=size, sets=sets.tolist(), samples=samples.tolist()))
    json.dump(dict(indices=cases, blends=blends), sys.stdout, separators=(",", ":"))


main()
