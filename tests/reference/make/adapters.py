#!/usr/bin/env python3
"""Adapters as PEFT writes them, of two small models: python3 adapters.py OUTDIR"""
import json, os, shutil, sys, warnings
import torch
from peft import IA3Config, LoraConfig, PromptTuningConfig, get_peft_model
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
warnings.filterwarnings("ignore"); torch.manual_seed(0); out = sys.argv[1]; shutil.rmtree(out, ignore_errors=True); os.makedirs(out)
MODELS = {"llama": LlamaForCausalLM(LlamaConfig(vocab_size=17, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32, bos_token_id=1, eos_token_id=2)),
          "gpt2": GPT2LMHeadModel(GPT2Config(vocab_size=17, n_positions=32, n_embd=16, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2))}
for name, m in MODELS.items(): m.save_pretrained(f"{out}/{name}")
CASES = {"lora_llama": LoraConfig(r=4, lora_alpha=8, lora_dropout=.1, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
         "rslora_llama": LoraConfig(r=4, lora_alpha=8, use_rslora=True, target_modules="all-linear", modules_to_save=["lm_head"], task_type="CAUSAL_LM", rank_pattern={"q_proj": 2}, alpha_pattern={"down_proj": 16}),
         "layers_llama": LoraConfig(r=2, target_modules=["o_proj"], layers_to_transform=[1], lora_bias=False, task_type="CAUSAL_LM"),
         "lora_gpt2": LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM", bias="lora_only", fan_in_fan_out=True), "bias_gpt2": LoraConfig(r=2, task_type="CAUSAL_LM", bias="all", fan_in_fan_out=True),
         "ia3_llama": IA3Config(task_type="CAUSAL_LM"), "ia3_gpt2": IA3Config(task_type="CAUSAL_LM", fan_in_fan_out=True), "prompt_llama": PromptTuningConfig(num_virtual_tokens=5, task_type="CAUSAL_LM"),
         "dora_llama": LoraConfig(r=4, lora_alpha=8, lora_dropout=.1, use_dora=True, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM"), "dora_gpt2": LoraConfig(r=2, use_dora=True, use_rslora=True, task_type="CAUSAL_LM", fan_in_fan_out=True)}
rows = []
for name, cfg in CASES.items():
    base = name.split("_")[1]; m = type(MODELS[base]).from_pretrained(f"{out}/{base}"); p = get_peft_model(m, cfg); g = torch.Generator().manual_seed(5)
    trainable = [n for n, q in p.named_parameters() if q.requires_grad]; counts = list(p.get_nb_trainable_parameters())
    for n, q in p.named_parameters():
        if q.requires_grad: q.data.normal_(0, .2, generator=g)
    p.eval(); ids = torch.randint(0, 17, (2, 8), generator=g)
    y = p(ids).logits; y.square().mean().backward(); y = y.detach()
    grads = {f"grad.{n}": q.grad for n, q in p.named_parameters() if q.requires_grad} if "dora" in name else {} # the norm is not a part of the graph
    p.save_pretrained(f"{out}/{name}"); save_file({"y": y.contiguous(), "ids": ids, **grads}, f"{out}/{name}/expected.safetensors"); os.remove(f"{out}/{name}/README.md")
    c = json.load(open(f"{out}/{name}/adapter_config.json")); c["base_model_name_or_path"] = base; json.dump(c, open(f"{out}/{name}/adapter_config.json", "w"), indent=1)
    rows.append({"name": name, "base": base, "trainable": trainable, "counts": counts})
json.dump({"cases": rows}, open(f"{out}/manifest.json", "w"), separators=(",", ":"))
