--- Parameters of every class stand in the order of Transformers. States of optimizers that PyTorch wrote count parameters by number, so another
--- order would give a parameter the state of another one. tests/reference/parameter_order.json holds the names that Transformers lists.
---
--- Where the order cannot be equal, such states must be refused: the number of parameters differs, or a shape does.
local accel = require "accel"
local models = accel.models

local here = debug.getinfo(1, "S").source:match "^@(.*)/[^/]*$"
local golden
do
  local file <close> = assert(io.open(here .. "/../../reference/parameter_order.json", "rb"))
  golden = accel.json.decode(file:read "a")
end

--- Classes by the reason why their order is not that of Transformers.
local UNEQUAL <const> = {
  number = { qwen3_moe = true, qwen2_moe = true, mixtral = true, deepseek_v3 = true, dinov2 = true, marian = true },
  shape = { swin = true, beit = true, segformer = true },
}

--- The names of a text: A(B C) stands for A.B A.C, 0-2(A) for 0.A 1.A 2.A.
local function names_of(text)
  local function read(at, prefix, out)
    while true do
      local from, name, stop, mark = text:match("^ ?()([^%s()]+)()(.?)", at)
      if not from then return at end
      if mark == "(" then
        local first, last, to = name:match "^(%d+)%-(%d+)$", name:match "%-(%d+)$", nil
        for i = tonumber(first or 0), tonumber(first and last or 0) do
          to = read(stop + 1, prefix .. (first and ("%d"):format(i) or name) .. ".", out)
        end
        at = to + 1 -- behind ")"
      else
        out[#out + 1], at = prefix .. name, stop
      end
      if text:sub(at, at) ~= " " then return at end
    end
  end
  local out = {}
  read(1, "", out)
  return out
end
do
  local list = names_of "a(b 0-1(w v)) c"
  assert(table.concat(list, " ") == "a.b a.0.w a.0.v a.1.w a.1.v c", table.concat(list, " "))
end

local checked, refused = 0, {}
for _, row in ipairs(golden.rows) do
  for name, text in pairs(row.classes) do
    local what = ("%s of %s"):format(name, row.name)
    local model = models[name](row.config, { device = "meta" })
    local here_, shapes = {}, {}
    for key, p in pairs(model:named_parameters()) do here_[#here_ + 1], shapes[key] = key, table.concat(p.shape, ",") end
    local want = names_of((text:gsub("@", function() return row.base end)))
    local first
    for i = 1, math.max(#here_, #want) do
      if here_[i] ~= want[i] then first = first or i end
    end
    local kind = row.config.model_type
    if not first then
      checked = checked + 1
    elseif #here_ ~= #want then
      assert(UNEQUAL.number[kind], ("%s: %d parameters, %d in Transformers"):format(what, #here_, #want))
      refused[kind] = true
    else
      assert(UNEQUAL.shape[kind], ("%s: parameter %d is %s, %s in Transformers"):format(what, first, here_[first], want[first]))
      local differs = false
      for i, key in ipairs(here_) do differs = differs or shapes[key] ~= assert(shapes[want[i]], what .. " has no " .. want[i]) end
      assert(differs, what .. ": a state of Transformers would load into other parameters")
      refused[kind] = true
    end
  end
end
for _, list in pairs(UNEQUAL) do
  for kind in pairs(list) do assert(refused[kind], kind .. " now has the order of Transformers; take it from the list") end
end
assert(checked > 200, checked)
print(("ok: %d classes"):format(checked))
