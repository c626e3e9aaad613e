--- accel-run quantize DIR OUT: a model folder with its linear layers in 4 or 8 bits, as Transformers with bitsandbytes writes it.
local command = require "accel.cli.command"

local NAME <const> = "accel-run quantize"

--- Whether a module of the model has this name, or one that ends in it or holds it, as skip_modules are matched.
local function named(model, name)
  for full in pairs(model:named_modules()) do
    if full == name or ("." .. full .. "."):find("." .. name .. ".", 1, true) then return true end
  end
  return false
end

--- The model of a folder without values, to look names up in before any weight is read; nil where there is none, of which loading tells.
local function bare(dir)
  local config = require "accel.models.pretrained".read_config(dir)
  local class = config and require "accel.models.auto".class_of(config)
  local ok, model = pcall(class or error, config, { device = "meta" })
  return ok and model or nil
end

--- What the weights of a folder are quantised as, by its config.json; nil: they are not.
local function quantised_as(dir)
  local file <close> = io.open(dir .. "/config.json", "rb")
  local ok, config = pcall(require("accel").json.decode, file and file:read "a" or "")
  local q = ok and type(config) == "table" and config.quantization_config
  if type(q) ~= "table" then return nil end
  return q.load_in_8bit and "int8" or q.load_in_4bit and tostring(q.bnb_4bit_quant_type or "4 bits") or tostring(q.quant_method or "unknown")
end

--- Files of a model's folder that say how its texts become ids, and how it is talked to.
local BESIDE <const> = { "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
  "vocab.txt", "tokenizer.model", "spiece.model", "chat_template.jinja", "chat_template.json", "preprocessor_config.json" }

--- Copies them, so that OUT can be used as DIR can. true; or nil and the message.
local function copy_beside(from, to)
  for _, name in ipairs(BESIDE) do
    local file <close> = io.open(from .. "/" .. name, "rb")
    if file then
      local ok, message = require("accel").write_file(to .. "/" .. name, file:read "a")
      if not ok then return nil, message end
    end
  end
  return true
end

--- A path without what says nothing in it.
local function plain(path)
  if path:sub(1, 1) ~= "/" then path = (os.getenv "PWD" or ".") .. "/" .. path end
  local out = path:gsub("/+", "/")
  repeat
    local n
    out, n = (out .. "/"):gsub("/%./", "/")
    out = out:gsub("/+$", "")
  until n == 0
  return out
end

local function run(...)
  local o, words = command.parse({
    name = NAME, usage = "DIR OUT [--nf4 | --fp4 | --int8]",
    summary = "Writes the model of DIR, a folder of save_pretrained, to OUT with its linear layers in 4 or 8 bits a weight, and the tokenizer"
      .. " beside it. The folder is one that Transformers with bitsandbytes reads, and accel.models.from_pretrained.",
    { "nf4", "flag", false, nil, "4 bits: quantiles of a normal distribution (the default)" },
    { "fp4", "flag", false, nil, "4 bits: floats" },
    { "int8", "flag", false, nil, "8 bits by row" },
    { "double_quant", "flag", false, nil, "with 4 bits: the blocks' magnitudes are quantised, too" },
    { "dtype", { "bf16", "fp16", "fp32" }, "bf16", "DTYPE", "of the rest and of products" },
    { "head", { "int8", "nf4", "fp4" }, nil, "TYPE", "what the default skips is quantised so; accel alone reads that" },
    { "skip", "string", nil, "LIST", "modules left as they are; default: tied ones and the head" },
  }, 2, 2, ...)
  if (o.nf4 and 1 or 0) + (o.fp4 and 1 or 0) + (o.int8 and 1 or 0) > 1 then
    return command.refuse(NAME, "give one of --nf4, --fp4 and --int8")
  end
  if o.int8 and o.double_quant then return command.refuse(NAME, "--double-quant is of 4 bits, --int8 has a scale a row") end
  if plain(words[1]) == plain(words[2]) then return command.refuse(NAME, "OUT is DIR; what cannot be made again would be lost") end
  local accel = require "accel"
  local already = quantised_as(words[1])
  if already then return command.refuse(NAME, "%s is quantised already (%s); give the folder that it was made from", words[1], already) end
  local skip
  if o.skip then
    skip = {}
    for name in o.skip:gmatch "[^,%s]+" do skip[#skip + 1] = name end
    if #skip == 0 then return command.refuse(NAME, "--skip names no module") end
    local names = bare(words[1])
    for _, name in ipairs(names and skip or {}) do
      if not named(names, name) then return command.refuse(NAME, "--skip: no module of the model is called '%s'", name) end
    end
  end
  local made, config = pcall(accel.quant.BnbQuantizationConfig, {
    load_in_8bit = o.int8, load_in_4bit = not o.int8, bnb_4bit_quant_type = not o.int8 and (o.fp4 and "fp4" or "nf4") or nil,
    bnb_4bit_use_double_quant = o.double_quant, torch_dtype = o.dtype, skip_modules = skip,
    bnb_4bit_compute_dtype = (not o.int8 or o.head and o.head ~= "int8") and o.dtype or nil,
    head_quant_type = o.head,
  })
  if not made then return command.refuse(NAME, "%s", tostring(config)) end
  config._absent_ok = true -- an absent name was refused above
  local done, model, message = command.try(accel.models.from_pretrained, words[1], { quantization_config = config })
  if not done then model, message = nil, tostring(model):gsub("^[^ ]*:%d+: ", "") end
  if not model then
    return command.refuse(NAME, "%s", message)
  end
  local bytes, weights = 0, 0
  for _, p in ipairs(model:parameters()) do
    bytes, weights = bytes + p:numel() * p:element_size(), weights + (p.quant_state and p.quant_state.shape[1] * p.quant_state.shape[2] or p:numel())
  end
  local saved, why = accel.makedirs(words[2])
  if saved then saved, why = copy_beside(words[1], words[2]) end -- first: a folder that has weights has all
  if saved then saved, why = model:save_pretrained(words[2]) end
  if not saved then return command.refuse(NAME, "%s", why) end
  local size = bytes < 1e6 and ("%.1f kB"):format(bytes / 1e3) or ("%.1f MB"):format(bytes / 1e6)
  print(("%s: %d weights in %s, %.2f bits each"):format(words[2], weights, size, 8 * bytes / math.max(weights, 1)))
  return true
end

return function(...) return command.until_interrupted(NAME, "OUT has no new weights", run, ...) end
