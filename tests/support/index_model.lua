-- What t[key] means, in plain Lua: a model that tests compare the library with, and random keys.
local accel = require "accel"

local M = {}

function M.numel(s)
  local n = 1
  for _, e in ipairs(s) do n = n * e end
  return n
end

-- Which element of a tensor of `shape` stands at each place of t[key]: the shape of the result and a flat list of
-- positions (from 0). An error where the key does not fit the shape. Entries of a key: {"place", p},
-- {"range", first, last, step}, {"all"}, {"new"}, {"dots"}, {"ids", values, shape}, {"mask", booleans, shape}.
---@param shape integer[]
---@param key table[]
---@return integer[] shape
---@return integer[] positions
function M.model(shape, key)
  local used = 0
  for _, k in ipairs(key) do
    used = used + (k[1] == "mask" and #k[3] or (k[1] == "new" or k[1] == "dots") and 0 or 1)
  end
  local strides, s = {}, 1
  for d = #shape, 1, -1 do strides[d], s = s, s * shape[d] end
  -- dims of the view, each a list of offsets; index dims hold their values in `adv`
  local dims, adv, d = {}, {}, 0
  local function whole()
    d = d + 1
    local list = {}
    for i = 0, shape[d] - 1 do list[#list + 1] = i * strides[d] end
    dims[#dims + 1] = { list = list }
  end
  local base = 0
  local function advanced(values, vshape)
    d = d + 1
    local list = {}
    for i, v in ipairs(values) do
      assert(v < shape[d] and v >= -shape[d])
      list[i] = (v < 0 and v + shape[d] or v) * strides[d]
    end
    dims[#dims + 1] = { adv = true }
    adv[#adv + 1] = { list = list, shape = vshape }
  end
  for _, k in ipairs(key) do
    if k[1] == "place" then
      d = d + 1
      base = base + (k[2] < 0 and k[2] + shape[d] or k[2] - 1) * strides[d]
      assert(k[2] ~= 0 and k[2] <= shape[d] and k[2] >= -shape[d])
    elseif k[1] == "range" then
      d = d + 1
      local first = k[2] < 0 and k[2] + shape[d] + 1 or k[2]
      local last = k[3] < 0 and k[3] + shape[d] + 1 or k[3]
      local list = {}
      assert(first >= 1 and last >= first - 1 and last <= shape[d])
      for i = first, last, k[4] or 1 do list[#list + 1] = (i - 1) * strides[d] end
      dims[#dims + 1] = { list = list }
    elseif k[1] == "all" then whole()
    elseif k[1] == "new" then dims[#dims + 1] = { list = { 0 } }
    elseif k[1] == "dots" then
      for _ = 1, #shape - used do whole() end
    elseif k[1] == "ids" then advanced(k[2], k[3])
    else -- a mask: its true places, one list per dim
      local at = {}
      for i = 1, #k[3] do at[i] = {} end
      for i, on in ipairs(k[2]) do
        if on then
          local r = i - 1
          for e = #k[3], 1, -1 do
            table.insert(at[e], r % k[3][e])
            r = r // k[3][e]
          end
        end
      end
      for e = 1, #k[3] do
        assert(k[3][e] == shape[d + 1])
        advanced(at[e], { #at[e] })
      end
    end
  end
  while d < #shape do whole() end
  -- broadcast the index lists
  local rank = 0
  for _, a in ipairs(adv) do rank = math.max(rank, #a.shape) end
  local bshape = {}
  for i = 1, rank do
    bshape[i] = 1
    for _, a in ipairs(adv) do
      local e = a.shape[i - (rank - #a.shape)] or 1
      assert(e == 1 or bshape[i] == 1 or bshape[i] == e)
      if e ~= 1 then bshape[i] = e end
    end
  end
  local boffsets = {}
  for b = 0, M.numel(bshape) - 1 do
    local off = 0
    for _, a in ipairs(adv) do
      local r, at, step = b, 0, 1
      for i = rank, 1, -1 do
        local p = r % bshape[i]
        r = r // bshape[i]
        local own = i - (rank - #a.shape)
        if own >= 1 then
          if a.shape[own] ~= 1 then at = at + p * step end
          step = step * a.shape[own]
        end
      end
      off = off + a.list[at + 1]
    end
    boffsets[#boffsets + 1] = off
  end
  -- the batch stands where the indexed dims are neighbours, else in front
  local first, count, last
  for i, x in ipairs(dims) do
    if x.adv then first, last, count = first or i, i, (count or 0) + 1 end
  end
  local order = {}
  if first and last - first + 1 ~= count then order[1] = { list = boffsets, shape = bshape } end
  for i, x in ipairs(dims) do
    if not x.adv then order[#order + 1] = { list = x.list, shape = { #x.list } }
    elseif i == first and last - first + 1 == count then order[#order + 1] = { list = boffsets, shape = bshape } end
  end
  local out, list = {}, { base }
  for _, o in ipairs(order) do
    for _, e in ipairs(o.shape) do out[#out + 1] = e end
    local next_list = {}
    for _, a in ipairs(list) do
      for _, b in ipairs(o.list) do next_list[#next_list + 1] = a + b end
    end
    list = next_list
  end
  return out, list
end

-- The key as a script writes it.
function M.written(key)
  local k = {}
  for i, e in ipairs(key) do
    if e[1] == "place" then k[i] = e[2]
    elseif e[1] == "range" then k[i] = { e[2], e[3], e[4] }
    elseif e[1] == "all" then k[i] = {}
    elseif e[1] == "new" then k[i] = accel.newaxis
    elseif e[1] == "dots" then k[i] = "..."
    elseif e[1] == "ids" then
      k[i] = M.numel(e[3]) == 0 and accel.zeros(e[3], { dtype = "i64" })
        or accel.tensor(e[2], { dtype = i % 2 == 0 and "i32" or "i64" }):reshape(e[3])
    else k[i] = accel.tensor(e[2]):reshape(e[3]) end
  end
  return k
end

-- ---- random keys ----

local seed = 12345
local function random(n)
  seed = (seed * 1103515245 + 12345) % 2147483648
  return seed // 65536 % n + 1
end

function M.random_key(shape)
  local key, d, dots = {}, 1, false
  local batch = random(3)
  while d <= #shape do
    local n, pick = shape[d], random(11)
    if pick == 1 then key[#key + 1] = { "new" }
    elseif pick == 2 and not dots then
      key[#key + 1] = { "dots" }
      dots = true
      d = d + random(2) - 1 -- dims that it covers
    elseif pick == 3 then break
    elseif pick == 4 then
      key[#key + 1] = { "all" }
      d = d + 1
    elseif pick <= 6 then
      key[#key + 1] = { "place", random(2) == 1 and random(n) or -random(n) }
      d = d + 1
    elseif pick <= 8 then
      local a = random(n)
      local b = a - 1 + random(n - a + 2) - 1
      if b == 0 then b = a end
      if random(2) == 1 then key[#key + 1] = { "range", a, b, random(3) }
      else key[#key + 1] = { "range", a - n - 1, math.max(a, b) - n - 1, 1 } end
      d = d + 1
    elseif pick <= 10 then
      local vshape = ({ { batch }, { 2, batch }, { 2, 1 }, { 1 } })[random(4)]
      local v = {}
      for i = 1, M.numel(vshape) do v[i] = random(2 * n) - 1 - n end
      key[#key + 1] = { "ids", v, vshape }
      d = d + 1
    else
      -- a mask alone among index tensors: others would have to fit the number of its true places
      local mshape = { n, d < #shape and not dots and random(2) == 1 and shape[d + 1] or nil }
      local v, none = {}, true
      for _, k in ipairs(key) do none = none and k[1] ~= "ids" and k[1] ~= "mask" end
      if none then
        for i = 1, M.numel(mshape) do v[i] = random(2) == 1 end
        key[#key + 1] = { "mask", v, mshape }
        d = d + #mshape
        batch = 0 -- no ids behind it
        while d <= #shape do
          key[#key + 1] = { "all" }
          d = d + 1
        end
        break
      end
    end
  end
  return key
end

return M
