-- GGUF files of llama.cpp: tensors of every type bit for bit, metadata, logits of models, ids of tokenizers. Used by folders.lua and
-- tests/stdlib/models/gguf_folders_test.lua.
local accel = require "accel"
local core = require "accel.file.core"
local gguf = accel.models.gguf

local M = {}

local BAR <const> = 1e-4 -- the README's, of logits: of the largest

local function read_json(path)
  local f <close> = assert(io.open(path, "rb"))
  return accel.json.decode(f:read "a")
end

local function largest(t) return t:to("f64"):abs():max():item() end

local function distance(got, want)
  if got.shape ~= want.shape then return ("shape %s, not %s"):format(tostring(got.shape), tostring(want.shape)) end
  return largest(got:to "f64" - want:to "f64") / largest(want)
end

--- Whether a value of metadata is the expected one: large integers and a rounded 0.1 are written as text.
local function same_value(got, want)
  if type(want) == "table" then
    if type(got) ~= "table" or #got ~= #want then return false end
    for i, v in ipairs(want) do
      if not same_value(got[i], v) then return false end
    end
    return true
  end
  local rounded = type(want) == "string" and want:match "^([%d.]+) in f32$"
  if rounded then return got == accel.tensor(tonumber(rounded), { dtype = "f32" }):item() end
  if type(want) == "string" and type(got) == "number" then return got == tonumber(want) end
  if want == "" and got == nil then return true end -- gguf-py writes no empty text
  return got == want
end

--- Files of tensors: row.expected names a safetensors file, and perhaps a JSON file with `metadata`.
local function check_tensors(path, report, row, root)
  local file <close>, message = core.open_gguf(path)
  if not file then
    if not (row["how to check"]:find "refused" and message:find "big%-endian") then report("open", message, "opens") end
    return
  end
  local refusable = row["how to check"]:find "may be refused by name" or row["how to check"]:find "reads as "
  local expected = assert(accel.load(root .. row.expected:match "([%w._/]+%.safetensors)"))
  local seen = {}
  for i, t in ipairs(file:tensors()) do
    local want = expected[t.name]
    seen[t.name] = true
    local got, why = file:get(i)
    if not want then
      report(t.name, "there", "nothing")
    elseif not got then
      if not (refusable and t.type:find "^[IT]Q" and why:find(t.type, 1, true)) then report(t.name, why, "reads") end
    elseif tostring(got.shape) ~= tostring(want.shape) then
      report(t.name, tostring(got.shape), tostring(want.shape))
    elseif got:to(want.dtype):contiguous():to_bytes() ~= want:to_bytes() then
      report(t.name, "other bits", "the same")
    end
  end
  for name in next, expected do
    if not seen[name] then report(name, "missing", "there") end
  end
  local json = io.open(root .. row.expected:match "([%w._/]+)%.safetensors" .. ".json") -- beside it, if there is one
  if json then
    local meta = file:metadata()
    local about = accel.json.decode(json:read "a")
    json:close()
    for key, want in accel.pairs(about.metadata or {}) do
      if not same_value(meta[key], want) then report(key, accel.json.encode { meta[key] }, accel.json.encode { want }) end
    end
  end
end

--- Models: row.expected names an entry of logits.safetensors.
local function check_logits(path, report, row, root)
  local all = assert(accel.load(root .. "logits.safetensors"))
  local entry = row.expected:match ": ([^,]-)/[%w.*]+"
  local model, message = gguf.load(row.files and path .. "/" .. row.files[1] or path)
  if not model then return report("load", message, "loads") end
  local _ <close> = accel.no_grad()
  local got = model(all.input_ids)[1]
  local d = distance(got, all[entry .. "/dequantised"])
  if type(d) == "string" or not (d <= BAR) then report("logits", d, BAR) end
  local by_tool, limit = all[entry .. "/llama.cpp"], row.llama_cpp_distance
  if by_tool and limit then
    d, limit = distance(got, by_tool), limit * 1.05 + BAR -- the row has two digits
    if type(d) == "string" or not (d <= limit) then report("logits of llama.cpp", d, limit) end
  end
end

local function same_ids(got, want) return table.concat(got, " ") == table.concat(want, " ") end

local function check_tokenizer(path, report, row, root)
  local tok, message = gguf.tokenizer(path)
  if not tok then return report("tokenizer", message, "reads") end
  for _, case in ipairs(read_json(root .. row.expected:gsub("^gguf/", "")).cases) do
    for key, opts in accel.pairs {
      ids = { add_special_tokens = false, split_special_tokens = true }, ids_special = { add_special_tokens = true },
    } do
      if type(case[key]) == "table" then
        local got = tok:encode(case.text, opts).ids
        if not same_ids(got, case[key]) then
          report(("%s of %q"):format(key, case.text), accel.json.encode(got), accel.json.encode(case[key]))
        end
      end
    end
  end
end

--- Compares one file, or the parts of one in a folder; report(quantity, distance, bar) is called for what differs.
---@param path string
---@param report fun(quantity: string, distance: any, bar: any)
---@param row table of the manifest
function M.check(path, report, row)
  local root = path:sub(1, #path - #row.name) .. "gguf/"
  if row.expected:find "logits%.safetensors" then return check_logits(path, report, row, root) end
  if row.cases then return check_tokenizer(path, report, row, root) end
  if row.expected:find "^none" then return end
  return check_tensors(path, report, row, path:sub(1, #path - #row.name))
end

return M
