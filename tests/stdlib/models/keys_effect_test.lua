-- Every key that the schema of a family declares does something: another value of it changes the shapes of parameters, initial values,
-- outputs, the loss, gradients, dropout or what generate reads; or there is a warning or an error. Keys that the schema declares as unused, and
-- the table EXCEPTED with its reasons, are left out. Configurations are those of shared/reference/families.
-- tier: slow
--   accel-run tests/stdlib/models/keys_effect_test.lua [FAMILY]
local accel = require "accel"
local auto = require "accel.models.auto"
local no_effect = require "accel.util.no_effect"
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
  ["deepseek_v3.router_aux_loss_coef"] = "Transformers has no such loss for the family: output_router_logits warns",
  ["llama4_text.router_aux_loss_coef"] = "as deepseek_v3", encoder_stride = "of ViTForMaskedImageModeling",
  ["beit.vocab_size"] = "of BeitForMaskedImageModeling, which accel does not have",
  quantization_config = "from_pretrained quantises by it", use_cache = "generate decides", pruned_heads = "no other value is taken",
}

-- Keys that another one has to make room for: it is taken out.
local ROPE <const>, TYPES <const> = { "rope_parameters" }, { "layer_types" }
local WITHOUT <const> = { rope_theta = ROPE, rope_scaling = ROPE, partial_rotary_factor = ROPE, rotary_pct = ROPE, rotary_emb_base = ROPE,
  rope_local_base_freq = ROPE, global_rope_theta = ROPE, local_rope_theta = ROPE, sliding_window_pattern = TYPES,
  _sliding_window_pattern = TYPES, max_window_layers = TYPES, use_sliding_window = TYPES, sliding_window = TYPES,
  global_attn_every_n_layers = TYPES, no_rope_layer_interval = { "no_rope_layers", "layer_types" }, attention_types = { "attention_layers" },
  interleave_moe_layer_step = { "moe_layers" }, expand = { "intermediate_size" }, feed_forward_proj = { "dense_act_fn", "is_gated_act" },
  num_labels = { "id2label", "label2id" }, id2label = { "num_labels", "label2id" } }

-- Conditions under which a key acts: other keys, set where the family declares them, inputs of the call, or the dtype of the weights.
-- By key, or by family and key.
local WIDE <const> = { initializer_range = 3.0 } -- weights whose products reach a limit
local WHOLE <const> = { keys = { rotary_pct = 1.0, partial_rotary_factor = 1.0 } } -- of one pair of columns the base is no part
local NEEDS <const> = {
  rope_theta = WHOLE, rotary_emb_base = WHOLE,
  conv_act = { keys = { conv_kernel_size = 3 } }, conv_groups = { keys = { conv_kernel_size = 3 } },
  swiglu_limit = { keys = WIDE }, clip_qkv = { keys = WIDE },
  router_aux_loss_coef = { keys = { output_router_logits = true } },
  sliding_window = { keys = { use_sliding_window = true } }, use_sliding_window = { keys = { sliding_window = 3 } },
  max_window_layers = { keys = { use_sliding_window = true, sliding_window = 3 } },
  ["qwen2_moe.intermediate_size"] = { keys = { mlp_only_layers = { 0 } } }, -- the width of layers without experts
  mask_feature_prob = { keys = { mask_time_prob = 0.0 } }, -- either one masks
  residual_in_fp32 = { dtype = "bf16" }, -- in f32 it is the dtype of everything
  semantic_loss_ignore_index = { inputs = function(inputs) -- labels that no value leaves out of the classes
    return { pixel_values = inputs.pixel_values, labels = inputs.labels and inputs.labels:clamp(0, 1) }
  end },
  norm_pix_loss = { inputs = function(inputs) return { pixel_values = inputs.pixel_values, noise = inputs.noise, return_loss = true } end },
  ctc_zero_infinity = { inputs = function(inputs) -- more letters than features, so that no path has them
    local waves = inputs.input_values
    return { input_values = waves, labels = accel.ones({ waves.shape[1], waves.shape[2] }, { dtype = "i64" }) }
  end },
}

local FIRST <const> = { input_ids = true, pixel_values = true, input_features = true, input_values = true }

local warned
rawset(_G, "warn", function(text) warned = warned .. text .. "\n" end)

--- What can be seen of a model of this configuration, as text; its warnings; what it raises.
local function seen(class, config, inputs, dtype)
  warned = ""
  no_effect.reset()
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
    if dtype then model:to(dtype) end
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
local function others(value, config)
  if type(value) == "boolean" then return { not value } end
  if type(value) == "number" then
    if math.type(value) == "integer" or value % 1 == 0 and value > 1 then
      return { value + 1, value * 2, math.max(value // 2, 1), 0, 1, 2, 3, 4 }
    end
    return { value * 1.5 + 0.05, value * 0.5 + 0.01, 0.5, 0.9, 1, 2, 0.0 }
  end
  return { true, false, 1, 2, 3, 4, 0.5, 0.9, "relu", "gelu", "silu", "linear", "no", { 1 }, { 1, 2 }, { 2, 2 }, { 1, 2, 3 }, {},
    { a = 1 }, { { { "local" }, config.num_layers or 1 } }, { rope_type = "default", rope_theta = 77.0 },
    { full_attention = { rope_type = "default", rope_theta = 77.0 }, sliding_attention = { rope_type = "default", rope_theta = 33.0 } },
    { rope_type = "linear", factor = 2.0, rope_theta = 1e4 },
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
      local taken, ids, last = seen(row.class, row.config, row.inputs), row.inputs.input_ids, row.config.eos_token_id
      if not taken and ids and math.type(last) == "integer" then -- its class reads the place of the token that ends a text
        ids = ids:masked_fill(ids:eq(last), last + 1)
        ids:select(2, ids.shape[2]):fill_(last)
        row.inputs = { input_ids = ids }
        taken = seen(row.class, row.config, row.inputs)
      end
      if taken then list[#list + 1] = row end
    end
  end
end

--- A row's configuration, inputs and dtype under the conditions of a key.
local function conditions(family, key, row)
  local needs, config = NEEDS[family .. "." .. key] or NEEDS[key] or {}, plain(row.config)
  for _, other in ipairs(WITHOUT[key] or {}) do config[other] = nil end
  for other, value in next, needs.keys or {} do
    if row.class.schema.fields[other] then config[other] = value end
  end
  return config, needs.inputs and needs.inputs(row.inputs) or row.inputs, needs.dtype
end

--- What other values of a key do with a row: "effect" or "warn". nil: nothing. The second result: all were refused, by name.
local function verdict(family, key, row, default)
  local config, inputs, dtype = conditions(family, key, row)
  local base, warnings = row.base, row.warned
  if WITHOUT[key] or NEEDS[key] or NEEDS[family .. "." .. key] then base, warnings = seen(row.class, config, inputs, dtype) end
  local now, refused, accepted = row.config[key], false, false
  if now == nil then now = default end
  for _, value in ipairs(others(now, config)) do
    config[key] = value
    local text, told, why = seen(row.class, config, inputs, dtype)
    if text then
      if told ~= warnings and (told .. warnings):find(key, 1, true) then return "warn" end
      base = base or text -- the row's own value needs what was taken out
      if text ~= base then return "effect" end
      accepted = accepted or value ~= now
    elseif why:find(key, 1, true) then
      refused = true
    end
  end
  return nil, refused and not accepted
end

local total, silent = { keys = 0, effect = 0, warn = 0, raise = 0, excepted = 0 }, {}
for _, family in ipairs(names) do
  if not ONLY or ONLY == family then
    local list = rows[family]
    for _, row in ipairs(list) do
      local why
      row.base, row.warned, why = seen(row.class, row.config, row.inputs)
      assert(row.base, ("%s: %s"):format(row.name, why))
    end
    for key, f in accel.pairs(list[1].class.schema.fields) do
      total.keys = total.keys + 1
      local kind, raises
      if f.unused or LABELS[key] and not classifies[family] then kind = "excepted" end
      for i = 1, kind and 0 or #list do
        local refused
        kind, refused = verdict(family, key, list[i], f.default)
        if kind then break end
        if i == 1 then raises = refused else raises = raises and refused end
      end
      kind = kind or raises and "raise" or (EXCEPTED[key] or EXCEPTED[family .. "." .. key]) and "excepted"
      local name = family .. "." .. key
      if kind then total[kind] = total[kind] + 1 else silent[#silent + 1] = name end
    end
  end
end
print(("%d keys of %d families: %d act, %d warn, %d raise, %d excepted, %d silent"):format(total.keys, #names, total.effect,
  total.warn, total.raise, total.excepted, #silent))
assert(#silent == 0, "silent: " .. table.concat(silent, " "))
