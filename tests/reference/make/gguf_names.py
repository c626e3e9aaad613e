#!/usr/bin/env python3
"""Names of llama.cpp's files, from its Python package: python3 gguf_names.py OUT.json
tensors: by architecture, {bid} being the number of a block, without .weight and .bias. keys: metadata, {arch} being the architecture."""
import json, sys

from gguf.constants import Keys, MODEL_ARCH_NAMES, MODEL_TENSORS, TENSOR_NAMES

keys = set()
for group in vars(Keys).values():
    for value in getattr(group, "__dict__", {}).values():
        if isinstance(value, str) and "." in value: keys.add(value)
tensors = {MODEL_ARCH_NAMES[arch]: sorted(TENSOR_NAMES[t] for t in names) for arch, names in MODEL_TENSORS.items()}
kept = """llama qwen2 qwen3 qwen3moe qwen2moe olmo gemma gemma2 gemma3 phi2 phi3 olmo2 gptneox stablelm granite smollm3 command-r cohere2 starcoder2
nemotron glm4 gpt2 bloom falcon starcoder gpt-oss deepseek2 llama4 mamba""".split()
with open(sys.argv[1], "w") as f: f.write(json.dumps({"keys": sorted(keys), "tensors": {k: tensors[k] for k in kept}}, indent=0) + "\n")
