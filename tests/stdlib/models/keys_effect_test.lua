-- Every key that the schema of a family declares does something: another value of it changes the shapes of parameters, initial values,
-- outputs, the loss, gradients, dropout or what generate reads; or there is a warning or an error. Keys that the schema declares as unused, and
-- the table EXCEPTED with its reasons, are left out. Configurations are those of shared/reference/families.
-- tier: slow
--   accel-run tests/stdlib/models/keys_effect_test.lua [FAMILY]
local accel = require "accel"
local auto = require "accel.models.auto"
local src = os.getenv "ACCEL_TEST_SRC" or "."
local folder, ONLY = src .. "/../shared/reference/families", arg[1]

local file = io.open(folder .. "/manifest.json", "rb")
if not file then
  print("skip: " .. folder .. "/manifest.json is not there")
  os.exit(77, true)
end
local manifest = accel.json.decode(file:read "a")
file:close()

-- By key, or by family and key.
local EXCEPTED <const> = {
  architectures = "from_pretrained chooses the class by it", dtype = "from_pretrained loads weights in it", torch_dtype = "as dtype",
  transformers_version = "of the program that wrote the file", label2id = "id2label, turned around: a file's own is not used",
  chunk_size_feed_forward = "the same sums in parts", is_encoder_decoder = "of the class", return_dict = "of Python's results",
  initializer_factor = "scales initial values in Transformers; accel draws by initializer_range",
  max_position_embeddings = "where positions have no table it bounds what generate is meant for",
  original_max_position_embeddings = "of kinds of rope_parameters that name none", tie_word_embeddings = "of models with words and a head for them",
  n_positions = "as max_position_embeddings where positions have no table",
  moe_layer_freq = "only 1 is taken", ["deepseek_v3.num_key_value_heads"] = "its attention has as many as heads",
  ["deepseek_v3.router_aux_loss_coef"] = "Transformers has no such loss for the family", encoder_stride = "of ViTForMaskedImageModeling",
  ["beit.vocab_size"] = "of BeitForMaskedImageModeling, which accel does not have",
  quantization_config = "from_pretrained quantises by it", use_cache = "generate decides", pruned_heads = "no other value is taken",
}

-- Keys that another one has to make room for.
-- Keys that showed nothing here and whose reason nobody has looked for yet. A family or key that is not among them fails.
local OPEN <const> = {}
for name in ([[
  deberta-v2.conv_act deberta-v2.conv_groups distilbert.qa_dropout gemma3_text.rope_local_base_freq gpt_neo.attention_types
  gpt_oss.experts_per_token gpt_oss.hidden_act gpt_oss.router_aux_loss_coef gpt_oss.swiglu_limit llama4_text.interleave_moe_layer_step
  llama4_text.no_rope_layer_interval llama4_text.router_aux_loss_coef mamba.expand mamba.residual_in_fp32 mbart.classifier_dropout
  mbart.id2label mbart.num_labels mixtral.partial_rotary_factor modernbert.cls_token_id modernbert.global_attn_every_n_layers
  modernbert.global_rope_theta modernbert.local_rope_theta modernbert.rope_parameters modernbert.sep_token_id mt5.classifier_dropout
  mt5.feed_forward_proj mt5.id2label mt5.num_labels olmo.clip_qkv phi3.embd_pdrop qwen2_moe.intermediate_size qwen2_moe.max_window_layers
  qwen2_moe.router_aux_loss_coef qwen2_moe.sliding_window qwen2_moe.use_sliding_window qwen3_moe.max_window_layers qwen3_moe.sliding_window
  qwen3_moe.use_sliding_window segformer.semantic_loss_ignore_index smollm3.no_rope_layer_interval smollm3.sliding_window
  smollm3.use_sliding_window t5.feed_forward_proj vit_mae.norm_pix_loss wav2vec2.apply_spec_augment wav2vec2.ctc_zero_infinity
  wav2vec2.mask_feature_prob wav2vec2.mask_time_prob]]):gmatch "%S+" do OPEN[name] = true end

local ROPE <const>, TYPES <const> = { "rope_parameters" }, { "layer_types" }
local WITHOUT <const> = { rope_theta = ROPE, rope_scaling = ROPE, partial_rotary_factor = ROPE, rotary_pct = ROPE, rotary_emb_base = ROPE,
  sliding_window_pattern = TYPES, _sliding_window_pattern = TYPES, max_window_layers = TYPES, use_sliding_window = TYPES,
  num_labels = { "id2label", "label2id" }, id2label = { "num_labels", "label2id" } }

local ROWS <const> = 6 -- of a family, at most

local FIRST <const> = { input_ids = true, pixel_values = true, input_features = true, input_values = true }

local warned
rawset(_G, "warn", function(text) warned = warned .. text .. "\n" end)

--- What can be seen of a model of this configuration, as text; what it raises.
local function seen(class, config, inputs)
  warned = ""
  local told = require "accel.models.config".warned
  for name in next, told do told[name] = nil end
  local lines = {}
  local function put(x)
    if accel.is_tensor(x) then
      local y = x:detach():to "f64"
      lines[#lines + 1] = ("%s %.12g %.12g"):format(table.concat(x.shape, ","), y:sum():item(), (y * y):sum():item())
    elseif type(x) == "table" then
      for key, value in accel.pairs(x) do
        lines[#lines + 1] = tostring(key)
        put(value)
      end
    else
      lines[#lines + 1] = tostring(x)
    end
  end
  local ok, why = pcall(function()
    accel.manual_seed(3)
    local model = class(config)
    for name, t in pairs(model:state_dict()) do
      lines[#lines + 1] = name
      put(t)
    end
    local first, rest = nil, {}
    for name, t in next, inputs do
      if FIRST[name] and not (name ~= "input_ids" and inputs.input_ids) then first = t else rest[name] = t end
    end
    for _, training in ipairs { false, true } do
      model:train(training)
      accel.manual_seed(5)
      local out = next(rest) and table.pack(model(first, rest)) or table.pack(model(first))
      put(out)
      local loss = out[1]
      if type(loss) == "table" then loss = loss.loss or loss[1] end
      if accel.is_tensor(loss) and loss.requires_grad then
        model:zero_grad()
        loss:sum():backward()
        for _, p in ipairs(model:parameters()) do put(p.grad or "none") end
      end
    end
    if model.generate then put { (select(2, require "accel.models.generation.config".from_model_config(model.config):_file())) } end
  end)
  return ok and table.concat(lines, "\n") or nil, warned, not ok and tostring(why) or nil
end

--- Other values of a key.
local function others(value)
  if type(value) == "boolean" then return { not value } end
  if type(value) == "number" then
    if math.type(value) == "integer" or value % 1 == 0 and value > 1 then
      return { value + 1, value * 2, math.max(value // 2, 1), 0, 1, 2, 3, 4 }
    end
    return { value * 1.5 + 0.05, value * 0.5 + 0.01, 0.5, 0.9, 1, 2 }
  end
  return { true, false, 1, 2, 3, 4, 0.5, 0.9, "relu", "gelu", "silu", "linear", "no", { 1 }, { 1, 2 }, { 2, 2 }, { 1, 2, 3 }, {},
    { a = 1 }, { rope_type = "default", rope_theta = 77.0 }, { rope_type = "linear", factor = 2.0, rope_theta = 1e4 },
    { ["0"] = "yes", ["1"] = "no", ["2"] = "x", ["3"] = "y", ["4"] = "z", ["5"] = "w" } }
end

local function plain(t)
  local out = {}
  for key, value in next, t do out[key] = value end
  return out
end

-- ---- the rows of each family ----
local rows, names = {}, {}
for _, row in ipairs(manifest.rows) do
  local handle <close> = assert(io.open(("%s/%s/config.json"):format(folder, row.name), "rb"))
  local config = accel.json.decode(handle:read "a")
  local class = auto.class_of(config)
  if class then
    local list = rows[config.model_type]
    if not list then
      list = {}
      rows[config.model_type], names[#names + 1] = list, config.model_type
    end
    local expected, inputs = assert(accel.load(("%s/%s/expected.safetensors"):format(folder, row.name))), {}
    for name, t in pairs(expected) do
      local short = name:match "^in/(.*)$"
      if short then inputs[short] = t.dtype == "f64" and t:to "f32" or t end
    end
    list[#list + 1] = { name = row.name, class = class, config = config, inputs = inputs }
  end
end
table.sort(names)

-- The base and a classifier of each family, of which the rows have no class that reads their keys.
local LABELS <const> = { id2label = true, num_labels = true }
local classifies = {} -- families with a classifier
for family, list in next, rows do
  for _, name in ipairs(auto.classes_of(family)) do
    if name:find "ForSequenceClassification$" or name:find "ForImageClassification$" or name:find "ForQuestionAnswering$"
      or name:find "ForTokenClassification$" or name:find "[^k]Model$" then
      local first = list[1]
      local row = { name = family .. " as " .. name, class = accel.models[name], config = first.config, inputs = {
        input_ids = first.inputs.input_ids, attention_mask = first.inputs.attention_mask, pixel_values = first.inputs.pixel_values } }
      classifies[family] = classifies[family] or name:find "Classification$" ~= nil
      if seen(row.class, row.config, row.inputs) then table.insert(list, 1, row) end -- one that ends with a certain token takes other texts
    end
  end
end

local total, silent, open = { keys = 0, effect = 0, warn = 0, raise = 0, excepted = 0 }, {}, {}
for _, family in ipairs(names) do
  if not ONLY or ONLY == family then
    local list = rows[family]
    for i = 1, math.min(#list, ROWS) do
      local row, why = list[i], nil
      row.base, row.warned, why = seen(row.class, row.config, row.inputs)
      assert(row.base, ("%s: %s"):format(row.name, why))
    end
    for key, f in accel.pairs(list[1].class.schema.fields) do
      total.keys = total.keys + 1
      local kind, refused, accepted
      if f.unused or LABELS[key] and not classifies[family] then kind = "excepted" end
      for i = 1, kind and 0 or math.min(#list, ROWS) do
        local row = list[i]
        local now = row.config[key]
        if now == nil then now = f.default end
        for _, value in ipairs(others(now)) do
          local config = plain(row.config)
          for _, other in ipairs(WITHOUT[key] or {}) do config[other] = nil end
          config[key] = value
          local text, told, why = seen(row.class, config, row.inputs)
          if text and told:find(key, 1, true) then kind = "warn"
          elseif text and text ~= row.base then kind = "effect"
          elseif text then accepted = accepted or value ~= now
          elseif why:find(key, 1, true) then refused = true end
          if kind then break end
        end
        if kind then break end
      end
      kind = kind or refused and not accepted and "raise" or (EXCEPTED[key] or EXCEPTED[family .. "." .. key]) and "excepted"
      local name = family .. "." .. key
      if kind then total[kind] = total[kind] + 1 elseif OPEN[name] then open[#open + 1] = name else silent[#silent + 1] = name end
    end
  end
end
print(("%d keys of %d families: %d act, %d warn, %d raise, %d excepted, %d open, %d silent"):format(total.keys, #names, total.effect,
  total.warn, total.raise, total.excepted, #open, #silent))
print("open: " .. table.concat(open, " "))
assert(#silent == 0, "silent: " .. table.concat(silent, " "))
