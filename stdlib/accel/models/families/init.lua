--- The classes of each family, so that a class is found without reading all families: model_type -> {prefix of class names, heads, and if
--- different the names of the base class and of the language model}. A family is in the file of its model_type.
local M = {}

local ALL <const> = { "ForCausalLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering" }
local NO_ANSWERS <const> = { ALL[1], ALL[2], ALL[3] }
local SEQUENCES <const> = { ALL[1], ALL[2] }
local TEXT <const> = { ALL[1] }

local families = {
  bloom = { "Bloom", ALL }, cohere = { "Cohere", TEXT }, cohere2 = { "Cohere2", TEXT }, deepseek_v3 = { "DeepseekV3", NO_ANSWERS },
  falcon = { "Falcon", ALL }, gemma = { "Gemma", NO_ANSWERS }, gemma2 = { "Gemma2", NO_ANSWERS },
  gemma3_text = { "Gemma3", TEXT, base = "Gemma3TextModel" }, glm4 = { "Glm4", NO_ANSWERS }, gpt_bigcode = { "GPTBigCode", NO_ANSWERS },
  gpt_neo = { "GPTNeo", ALL }, gpt_neox = { "GPTNeoX", ALL }, gpt_oss = { "GptOss", NO_ANSWERS },
  gptj = { "GPTJ", { ALL[1], ALL[2], ALL[4] } }, granite = { "Granite", TEXT }, mamba = { "Mamba", TEXT },
  llama4_text = { "Llama4", TEXT, base = "Llama4TextModel" },
  mistral = { "Mistral", ALL }, nemotron = { "Nemotron", ALL }, olmo = { "Olmo", SEQUENCES }, olmo2 = { "Olmo2", SEQUENCES },
  olmo3 = { "Olmo3", SEQUENCES }, opt = { "OPT", { ALL[1], ALL[2], ALL[4] } }, phi = { "Phi", NO_ANSWERS }, phi3 = { "Phi3", NO_ANSWERS },
  qwen2 = { "Qwen2", ALL }, qwen2_moe = { "Qwen2Moe", ALL }, qwen3 = { "Qwen3", ALL }, qwen3_moe = { "Qwen3Moe", ALL },
  smollm3 = { "SmolLM3", ALL }, stablelm = { "StableLm", NO_ANSWERS }, starcoder2 = { "Starcoder2", NO_ANSWERS },
}

local MASKED <const> = { "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering" }
local MASKED_CHOICE <const> = { "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering",
  "ForMultipleChoice" }

local encoders = {
  albert = { "Albert", MASKED }, ["deberta-v2"] = { "DebertaV2", MASKED, file = "deberta_v2" }, distilbert = { "DistilBert", MASKED },
  electra = { "Electra", { "ForPreTraining", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification",
    "ForQuestionAnswering" } },
  modernbert = { "ModernBert", { "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification" } }, mpnet = { "MPNet", MASKED },
  roberta = { "Roberta", MASKED_CHOICE }, ["xlm-roberta"] = { "XLMRoberta", MASKED_CHOICE, file = "xlm_roberta" },
}

local TWO <const> = { "ForConditionalGeneration" }
local encoder_decoders = {
  bart = { "Bart", { "ForConditionalGeneration", "ForSequenceClassification" } }, m2m_100 = { "M2M100", TWO },
    marian = { "Marian", { "MTModel" } },
  mt5 = { "MT5", { "ForConditionalGeneration", "EncoderModel", "ForSequenceClassification" } },
  mbart = { "MBart", { "ForConditionalGeneration", "ForSequenceClassification" } }, pegasus = { "Pegasus", TWO },
    whisper = { "Whisper", TWO },
}

local PICTURES <const> = { "ForImageClassification" }
local vision = {
  deit = { "DeiT", { "ForImageClassification", "ForImageClassificationWithTeacher" } }, dinov2 = { "Dinov2", PICTURES },
  wav2vec2 = { "Wav2Vec2", { "ForCTC" } }, vit_mae = { "ViTMAE", { "ForPreTraining" } }, beit = { "Beit", PICTURES },
    convnext = { "ConvNext", PICTURES },
  convnextv2 = { "ConvNextV2", PICTURES }, swin = { "Swin", PICTURES },
  segformer = { "Segformer", { "ForImageClassification", "ForSemanticSegmentation" } },
}

-- Families of several model_types in one file.
local clip = { "CLIPModel", "CLIPTextModel", "CLIPTextModelWithProjection", "CLIPVisionModel", "CLIPVisionModelWithProjection" }
local siglip = { "SiglipModel", "SiglipTextModel", "SiglipVisionModel" }
local parts = {
  clip = { "CLIPModel", { clip[1] } }, clip_text_model = { "CLIPTextModel", { clip[2], clip[3] } },
  clip_vision_model = { "CLIPVisionModel", { clip[4], clip[5] } }, siglip = { "SiglipModel", { siglip[1] } },
  siglip_text_model = { "SiglipTextModel", { siglip[2] } }, siglip_vision_model = { "SiglipVisionModel", { siglip[3] } },
}

M.usual = {} ---@type table<string, string> model_type -> name of the usual class
M.classes = {} ---@type table<string, string[]> model_type -> names of its classes
M.homes = {} ---@type table<string, string> name of a class -> its file below accel.models

local function add(kind, f, usual)
  local list = { f.base or f[1] .. "Model" }
  for _, head in ipairs(f[2]) do list[#list + 1] = f[1] .. head end
  table.sort(list)
  M.usual[kind], M.classes[kind] = usual, list
  for _, name in ipairs(list) do M.homes[name] = "families." .. (f.file or kind) end
end
for kind, f in next, families do add(kind, f, f[1] .. "ForCausalLM") end
for kind, f in next, encoder_decoders do add(kind, f, f[1] .. f[2][1]) end
for kind, f in next, vision do add(kind, f, f[1] .. "Model") end
for kind, f in next, parts do
  M.usual[kind], M.classes[kind] = f[1], f[2]
  for _, name in ipairs(f[2]) do M.homes[name] = "families." .. kind:match "^%a+" end
end
for kind, f in next, encoders do add(kind, f, f[1] .. "Model") end

return M
