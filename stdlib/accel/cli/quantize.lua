--- accel-run quantize DIR OUT: a model folder with its linear layers in 4 or 8 bits, as Transformers with bitsandbytes writes it.
local command = require "accel.cli.command"
local open_read = require("accel.file.core").open_read

local ENOENT <const> = 2

local NAME <const> = "accel-run quantize"

--- Whether a module of the model has this name, or one that ends in it or holds it, as skip_modules are matched.
local function named(model, name)
  for full in pairs(model:named_modules()) do
    if full == name or ("." .. full .. "."):find("." .. name .. ".", 1, true) then return true end
  end
  return false
end

--- The model of a folder without values, for names before any weight is read. nil if there is none, which loading reports.
local function bare(dir, asked)
  local config = require "accel.models.pretrained".read_config(dir)
  local class = config and require "accel.models.auto".class_of(config, asked)
  local ok, model = pcall(class or error, config, { device = "meta" })
  return ok and model or nil
end

--- The quantisation of a folder's weights, by its config.json. nil: none.
local function quantised_as(dir)
  local file <close> = open_read(dir .. "/config.json")
  local ok, config = pcall(require("accel").json.decode, file and file:read "a" or "")
  local q = ok and type(config) == "table" and config.quantization_config
  if type(q) ~= "table" then return nil end
  return q.load_in_8bit and "int8" or q.load_in_4bit and tostring(q.bnb_4bit_quant_type or "4 bits") or tostring(q.quant_method or "unknown")
end

--- Files of a model's folder that say how its texts become ids, and how it is talked to.
local BESIDE <const> = { "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
  "vocab.txt", "tokenizer.model", "spiece.model", "chat_template.jinja", "chat_template.json", "preprocessor_config.json" }

--- Their texts by name, so that OUT can be used like DIR. nil and the reason if one cannot be read.
local function beside_of(dir)
  local texts = {}
  for _, name in ipairs(BESIDE) do
    local file <close>, why, errno = open_read(dir .. "/" .. name)
    if not file and errno ~= ENOENT then return nil, why end
    texts[name] = file and file:read "a"
  end
  return texts
end

--- A path without its redundant parts.
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
      .. " next to it. Transformers with bitsandbytes and accel.models.from_pretrained can read the result.",
    { "nf4", "flag", false, nil, "4 bits: quantiles of a normal distribution (the default)", excludes = "fp4" },
    { "fp4", "flag", false, nil, "4 bits: floats", excludes = "int8" },
    { "int8", "flag", false, nil, "8 bits by row", excludes = "nf4" },
    { "double_quant", "flag", false, nil, "of 4 bits: quantise the blocks' magnitudes as well", excludes = "int8" },
    { "dtype", { "bf16", "fp16", "fp32" }, "bf16", "DTYPE", "of the rest and of products" },
    { "head", { "int8", "nf4", "fp4" }, nil, "TYPE", "also quantise the modules that the default skips; only accel reads that" },
    { "class", "string", nil, "NAME", "load this class of DIR, in place of the one that config.json names" },
    { "skip", "string", nil, "LIST", "modules to leave unquantised; default: tied ones and the head" },
  }, 2, 2, ...)
  if plain(words[1]) == plain(words[2]) then return command.refuse(NAME, "OUT is DIR, which would overwrite the original; give another folder") end
  local writable, reason = require "accel.util.writable".folder(words[2])
  if not writable then return command.refuse(NAME, "cannot write %s", reason) end
  local accel = require "accel"
  local already = quantised_as(words[1])
  if already then return command.refuse(NAME, "%s is quantised already (%s); give the original folder", words[1], already) end
  local skip
  if o.skip then
    skip = {}
    for name in o.skip:gmatch "[^,%s]+" do skip[#skip + 1] = name end
    if #skip == 0 then return command.refuse(NAME, "--skip names no module") end
    local names = bare(words[1], o.class)
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
  local done, model, message = command.try(accel.models.from_pretrained, words[1], { quantization_config = config, class = o.class })
  if not done then model, message = nil, tostring(model):gsub("^[^ ]*:%d+: ", "") end
  if not model then
    return command.refuse(NAME, "%s", message)
  end
  local bytes, weights = 0, 0
  for _, p in ipairs(model:parameters()) do
    bytes, weights = bytes + p:numel() * p:element_size(), weights + (p.quant_state and p.quant_state.shape[1] * p.quant_state.shape[2] or p:numel())
  end
  local beside, problem = beside_of(words[1])
  if not beside then return command.refuse(NAME, "%s", problem) end
  local saved, why = model:save_pretrained(words[2], { beside = beside })
  if not saved then return command.refuse(NAME, "%s", why) end
  local size = bytes < 1e6 and ("%.1f kB"):format(bytes / 1e3) or ("%.1f MB"):format(bytes / 1e6)
  command.say("%s: %d weights in %s, %.2f bits each", words[2], weights, size, 8 * bytes / math.max(weights, 1))
  return true
end

return function(...) return command.until_interrupted(NAME, "OUT has no new weights", run, ...) end
