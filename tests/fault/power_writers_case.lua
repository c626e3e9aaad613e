--- The writers of test_power_writers.c: each writes version v of what a user keeps into a folder, and reads it back. read returns the
--- version, and raises where the files are of two versions. plain reads as a program that knows no notes of sets (host/file/set.h).
local accel = require "accel"
local A, nn, models, peft = accel.accelerator, accel.nn, accel.models, accel.peft
local writer = require "accel.util.writer"

--- The value that all elements of all tensors have.
local function one_value(tensors)
  local value
  for name, t in accel.pairs(tensors) do
    local low, high = t:to("f32"):min():item(), t:to("f32"):max():item()
    value = value or low
    assert(low == value and high == value, ("two versions: %s has %g to %g, another tensor %g"):format(name, low, high, value))
  end
  return math.tointeger(value)
end

local function filled(model, v)
  accel.no_grad(function() for _, p in ipairs(model:parameters()) do p:fill_(v) end end)
  return model
end

local function linears() return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)) end

local function named(model)
  local out = {}
  for name, p in pairs(model:named_parameters()) do out[name] = p end
  return out
end

local accelerator = accel.Accelerator()
local function save_model(size)
  return function(dir, v) accelerator:save_model(filled(linears(), v), dir, size(v)) end
end
local function load_model(dir)
  local m = filled(linears(), -1)
  A.load_checkpoint_in_model(m, dir, { strict = true })
  return one_value(named(m))
end
local function plain_model(dir)
  local single = io.open(dir .. "/model.safetensors")
  if single then single:close() return one_value((assert(accel.load(dir .. "/model.safetensors")))) end
  local text = assert(io.open(dir .. "/model.safetensors.index.json")):read "a"
  local tensors = {}
  for name, file in accel.pairs(accel.json.decode(text).weight_map) do tensors[name] = assert(accel.load(dir .. "/" .. file))[name] end
  return one_value(tensors)
end

local function shown(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local W = {}

W.file = {
  write = function(dir, v) assert(writer.file(dir .. "/x", tostring(v):rep(100))) end,
  read = function(dir) return math.tointeger(tonumber(shown(dir .. "/x"):match "^(%d)" )) end,
}
W.pieces = {
  write = function(dir, v)
    local file <close> = assert(writer.create(dir .. "/x"))
    for _ = 1, 3 do assert(file:write(tostring(v):rep(50))) end
    assert(file:commit())
  end,
  read = function(dir)
    local text = shown(dir .. "/x")
    assert(#text == 150 and text == text:sub(1, 1):rep(150))
    return math.tointeger(tonumber(text:sub(1, 1)))
  end,
}
W.safetensors = {
  write = function(dir, v) assert(accel.save(dir .. "/x.safetensors", { a = accel.ones(20) * v, b = accel.ones(3) * v })) end,
  read = function(dir) return one_value((assert(accel.load(dir .. "/x.safetensors")))) end,
}
W.shards = { write = save_model(function() return 90 end), read = load_model, plain = plain_model }
W.shards_or_one = { write = save_model(function(v) return v == 2 and "1GB" or 90 end), read = load_model, plain = plain_model }
W.one_or_shards = { write = save_model(function(v) return v == 2 and 90 or "1GB" end), read = load_model, plain = plain_model }
W.pretrained = {
  write = function(dir, v)
    local config = {}
    for key, value in accel.pairs(models.tiny.llama) do config[key] = value end
    config.hidden_size, config.num_hidden_layers = 8 * v, 1
    assert(filled(models.Llama(config), v):save_pretrained(dir, { max_shard_size = v ~= 2 and 1500 or nil }))
  end,
  read = function(dir)
    local m = assert(models.from_pretrained(dir))
    local v = one_value(named(m))
    assert(m.config.hidden_size == 8 * v)
    return v
  end,
}
W.adapter = {
  write = function(dir, v)
    local m = peft.get_peft_model(models.GPT2(models.tiny.gpt2), peft.LoraConfig { r = v, target_modules = { "c_attn" } })
    assert(filled(m, v):save_pretrained(dir))
  end,
  read = function(dir)
    local config, state = require "accel.peft.files".read(dir)
    assert(config, state)
    assert(config.r == one_value(state))
    return config.r
  end,
}
W.tokenizer = {
  write = function(dir, v)
    local tok = accel.text.train_bpe({ "to be or not to be" }, { vocab_size = 257 + v })
    tok.model_max_length, tok.chat_template = v, v ~= 2 and "{{ " .. v .. " }}" or nil
    assert(tok:save_pretrained(dir))
  end,
  read = function(dir)
    local tok = assert(accel.text.Tokenizer.from_pretrained(dir))
    local v = tok.model_max_length
    assert(tok:get_vocab_size() == 257 + v and (tok.chat_template ~= nil) == (v ~= 2))
    return v
  end,
}
W.indexed = {
  write = function(dir, v)
    local b = accel.data.IndexedDatasetBuilder(dir .. "/text")
    for i = 1, v do
      b:add_item { v, v, i }
      b:end_document()
    end
    b:finalize()
  end,
  read = function(dir)
    local ds = accel.data.IndexedDataset(dir .. "/text")
    for i = 1, #ds do assert(accel.equal(ds:get(i), accel.tensor { #ds, #ds, i })) end
    return #ds
  end,
}
W.gguf = {
  write = function(dir, v) assert(models.gguf.save(filled(models.GPT2(models.tiny.gpt2), v), dir .. "/m.gguf", { type = "F32" })) end,
  read = function(dir) return one_value(named((assert(models.gguf.load(dir .. "/m.gguf"))))) end,
}
local function fields(v) return { distributed_type = "MULTI_CPU", num_processes = v, mixed_precision = "no" } end
W.configuration = {
  write = function(dir, v) assert(require "accel.config.write".file(fields(v), dir .. "/c.yaml")) end,
  read = function(dir)
    local text = shown(dir .. "/c.yaml")
    local v = math.tointeger(tonumber(text:match "num_processes: (%d)"))
    assert(text == require "accel.config.write".yaml(fields(v)))
    return v
  end,
}
W.offload = {
  write = function(dir, v) A.offload_state_dict(dir, { a = accel.ones(3, v) * v, b = accel.ones(2) * v }) end,
  read = function(dir)
    local loader = A.OffloadedWeightsLoader { save_folder = dir }
    local a = loader:get "a"
    assert(a.shape[2] == one_value { a, loader:get "b" })
    return a.shape[2]
  end,
}
W.trace = {
  write = function(dir, v) assert(require "accel.profiler.core".trace_add(dir .. "/t.json", ('"run": %d'):format(v), '{"a": 1}', true)) end,
  read = function(dir)
    local t = accel.json.decode(shown(dir .. "/t.json"))
    assert(#t.traceEvents == 1)
    return t.run
  end,
}
W.checkpoint = {
  write = function(dir, v)
    local save = assert(accel.ckpt.create(("%s/step-%d"):format(dir, v)))
    save:add_bytes("x", tostring(v))
    save:start {}
    assert(save:wait())
  end,
  read = function(dir)
    local path = assert(accel.ckpt.newest(dir))
    local c = assert(accel.ckpt.open(path))
    return math.tointeger(tonumber((assert(c:bytes "x"))))
  end,
}


--- Files to which records are appended. What was closed is on disk, and a torn record takes none before it along.
W.journal = {
  write = function(dir, v)
    local lines = assert(require "accel.track.core".lines(dir .. "/j.jsonl"))
    lines:bytes(0, accel.json.encode { v = v } .. "\n")
    assert(lines:close())
  end,
  read = function(dir)
    local last
    for line in shown(dir .. "/j.jsonl"):gmatch "[^\n]*\n" do
      local ok, entry = pcall(accel.json.decode, line)
      if ok and entry.v then
        assert(not last or entry.v > last)
        last = entry.v
      end
    end
    return last
  end,
}
W.events = {
  write = function(dir, v)
    local w = accel.track.SummaryWriter(dir)
    w:add_scalar("v", v, v)
    assert(w:close())
  end,
  read = function(dir) -- each run has a file of its own; a record is length, checksum, event, checksum
    local last = 0
    for _, name in ipairs(accel.listdir(dir)) do
      local text, at = shown(dir .. "/" .. name), 1
      while #text - at >= 15 do
        local n = ("<I8"):unpack(text, at)
        if n <= 0 or n > #text - at - 15 then break end
        local event = text:sub(at + 12, at + 11 + n)
        for v = 1, 3 do
          if event:find("\x15" .. ("<f"):pack(v), 1, true) then last = math.max(last, v) end -- simple_value
        end
        at = at + 16 + n
      end
    end
    return last
  end,
}

-- ---- called by the test ----

local names = {}
for name in pairs(W) do names[#names + 1] = name end
table.sort(names)

--- The i-th writer's name; nil behind the last.
function name_of(i) return names[i] end -- luacheck: ignore

function write(name, dir, v) -- luacheck: ignore
  assert(accel.makedirs(dir))
  W[name].write(dir, v)
  return true
end

--- The version in the folder; 0 and the reason where nothing can be read.
function read(name, dir) -- luacheck: ignore
  local ok, v = pcall(W[name].read, dir)
  return ok and v or 0, ok and "" or tostring(v)
end

function plain(name, dir) -- luacheck: ignore
  if not W[name].plain then return -1, "" end
  local ok, v = pcall(W[name].plain, dir)
  return ok and v or 0, ok and "" or tostring(v)
end

--- A folder of a checkpoint that was killed before it said who writes it: it counts as being made for some seconds (host/ckpt/owner.c).
local function just_made(dir)
  local names = accel.listdir(dir)
  return names and (#names == 0 or #names == 1 and names[1] == "owner-0.lock" and shown(dir .. "/" .. names[1]) == "")
end

--- A left-over in the folder, "" without one.
function left_over(dir) -- luacheck: ignore
  for _, name in ipairs(accel.listdir(dir)) do
    if just_made(dir .. "/" .. name) then goto next end
    if name:find "%.set%-%x+$" or name:find "%.tmp%-%x+$" or name == ".accel-set" then return name end
    ::next::
  end
  return ""
end
