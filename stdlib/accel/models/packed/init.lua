--- Folders whose weights another tool quantised: GPTQ, AWQ, FP8, compressed-tensors, MXFP4. Several tensors of a file make one weight, by
--- a formula. models.from_pretrained reads these parts weight by weight and keeps the values in the model's dtype, so memory holds the
--- model and the parts of one weight. One file here per method. Each returns a function of the quantization_config that gives a
--- description, or nil and the reason.
---
--- bitsandbytes' weights stay packed and are not among these (accel.quant).
local accel = require "accel"
local check = require "accel.util.check"
local ordered = require "accel.util.ordered"
local read_json = require "accel.util.read_json"
local lfs = require "lfs"

local M = {}

---@class accel.models.PackedFormat
---@field name string for messages
---@field main fun(key: string, info: table): string? the common begin of the names of a weight's parts, from the name of the first part
---@field weight string the name of the weight after the common begin
---@field parts table<string, {[1]: string, optional: boolean?}> names of the other parts after the common begin
---@field ignored? string[] patterns of names that concern activations
---@field shape fun(parts: table<string, table>, get: fun(part: string): accel.Tensor?, string?): integer[]?, string? of the weight, from
---  the dtypes and shapes of its parts
---@field make fun(parts: table<string, accel.Tensor>, shape: integer[], name: string): accel.Tensor f32 on the host. Raises a text
---@field linear? boolean weights are [out, in] whatever the layer

local METHODS <const> = { gptq = "gptq", awq = "awq", fp8 = "fp8", fbgemm_fp8 = "fp8", mxfp4 = "mxfp4",
  ["compressed-tensors"] = "compressed_tensors" }

-- Files that older versions of a tool wrote next to config.json, and the method that they describe.
local BESIDE <const> = { { "quantize_config.json", "gptq" }, { "quant_config.json", "awq" } }

--- A table of JSON without its nulls, which mean the same as absent keys there.
local function without_nulls(t)
  if type(t) ~= "table" then return t end
  local out = {}
  for key, value in next, t do
    if value ~= accel.json.null then out[key] = without_nulls(value) end
  end
  return out
end

--- The quantization_config of a folder: of config.json, or of the file that older tools wrote next to it. nil: none. On failure returns
--- nil, message, code.
---@param dir string
---@param config table of config.json
---@return table?, string?, string?
function M.config_of(dir, config)
  if config.quantization_config then return without_nulls(config.quantization_config) end
  for _, row in ipairs(BESIDE) do
    local path = dir .. "/" .. row[1]
    if lfs.attributes(path, "mode") then
      local given, message, code = read_json(path)
      if not given then return nil, message, code end
      given.quant_method = given.quant_method or row[2]
      return given
    end
  end
  return nil
end

--- Whether this quantization_config is of a method whose weights are kept as they are (bitsandbytes, and accel's own).
---@param q table
---@return boolean
function M.is_kept(q) return q.quant_method == nil or q.quant_method == "bitsandbytes" end

--- The description for a quantization_config. nil, message, code if accel cannot read the method.
---@param q table
---@return accel.models.PackedFormat?, string?, string?
function M.format(q)
  local file = METHODS[q.quant_method]
  if not file then
    local known = { "bitsandbytes" }
    for name in accel.pairs(METHODS) do known[#known + 1] = name end
    table.sort(known)
    return nil, ("quantization_config names the method %s, which accel cannot read; save the model without quantization by the tool that "
      .. "wrote it, or take a folder of one of %s"):format(check.shown(q.quant_method), table.concat(known, ", ")), "unsupported"
  end
  local format, why, code = require("accel.models.packed." .. file)(q)
  if format then return format end
  return nil, ("quantization_config: %s"):format(why), code or "unsupported"
end

local function ignored(format, key)
  for _, pattern in ipairs(format.ignored or {}) do
    if key:find(pattern) then return true end
  end
  return false
end

--- The weights of files, from their tensors: name -> {shape, dtype, and for a weight of several parts make()}, and the number of those.
--- nil, message if a part is missing or does not fit.
---@param format accel.models.PackedFormat
---@param found table<string, table> name -> {shape =, dtype =, ...}, ordered
---@param get fun(entry: table): accel.Tensor?, string?, string? reads a tensor on the host
---@return table<string, table>?, integer|string
function M.compose(format, found, get)
  local stems, taken = {}, {}
  for key, entry in ordered.iterate(found) do
    local stem = format.main(key, entry)
    if stem then
      local parts = { main = entry }
      for part, row in next, format.parts do
        local other = rawget(found, stem .. row[1])
        if not other and not row.optional then return nil, ("'%s' has no '%s'"):format(key, stem .. row[1]) end
        parts[part] = other
        if other then taken[stem .. row[1]] = true end
      end
      stems[key], taken[key] = { name = stem .. format.weight, parts = parts }, true
    end
  end
  local out, n = ordered(), 0
  for key, entry in ordered.iterate(found) do
    local s = stems[key]
    if s then
      local shape, why = format.shape(s.parts, function(part) return get(s.parts[part]) end)
      if not shape then return nil, ("'%s' %s"):format(key, why) end
      out[s.name] = { key = s.name, file = entry.file, shape = shape, dtype = "f32", linear = format.linear, make = function()
        local _ <close> = accel.no_grad()
        local scope <close> = accel.scope() -- the parts and what is computed of them are freed before the next weight is read
        local tensors = {}
        for part, info in next, s.parts do
          local t, message, code = get(info)
          if not t then return nil, message, code end
          tensors[part] = t
        end
        local ok, w = pcall(format.make, tensors, shape, s.name)
        if ok then return scope:keep(w) end
        if type(w) == "table" and w.unfit then return nil, ("'%s' %s"):format(s.name, w.unfit), "format" end
        error(w, 0)
      end }
      n = n + 1
    elseif not taken[key] and not ignored(format, key) then
      out[key] = entry
    end
  end
  return out, n
end

--- Ends a make with the reason why a weight's parts do not fit. Its name is put before it.
function M.unfit(fmt, ...) error({ unfit = fmt:format(...) }, 0) end

return M
