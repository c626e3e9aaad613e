-- Checkpoints of torch.distributed.checkpoint, saved by several ranks: both of its formats (.distcp, and safetensors sharded
-- or consolidated) equal the recorded full tensors and plain values, as does torch's own conversion to one file; what the
-- metadata says of chunks and bytes is read right; boxes of sharded tensors equal those of the whole.
--   accel-run tests/reference/dcp.lua [DIR]
-- Prints what differs; the last line is "N passed, M failed". Exit status 1 when something failed.
local accel = require "accel"
local core = require "accel.file.core"
local ordered = require "accel.util.ordered"
local here = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path
local raw = require "raw"
local dir = arg[1] or here .. "/dcp"
local passed, failed = 0, 0

local function check(ok, fmt, ...)
  if ok then
    passed = passed + 1
  else
    failed = failed + 1
    if failed <= 50 then print("FAIL " .. fmt:format(...)) end
  end
  return ok
end

local short = { F64 = "f64", F32 = "f32", F16 = "f16", BF16 = "bf16", I64 = "i64", I32 = "i32", I16 = "i16", I8 = "i8",
  U8 = "u8", BOOL = "bool" }
local function equal(t, want)
  return accel.is_tensor(t) and t.dtype == short[want.dtype] and raw.same_list(t.shape, want.shape)
    and t:to_bytes() == want.bytes
end

-- Tensors and plain values by their path, joined by dots; lists are values.
local function flatten(t, prefix, tensors, plain)
  for key, value in pairs(t) do
    local name = prefix .. tostring(key)
    if accel.is_tensor(value) then tensors[name] = value
    elseif ordered.is(value) then flatten(value, name .. ".", tensors, plain)
    else plain[name] = value end
  end
end

local function same_plain(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for key, value in pairs(a) do -- null is absent from objects of JSON as it is from dicts
    if not same_plain(value, b[key]) then return false end
  end
  for key in pairs(b) do
    if a[key] == nil then return false end
  end
  return true
end

local function compare(what, state, expected, plain)
  local tensors, others = {}, {}
  flatten(state, "", tensors, others)
  for name, want in pairs(expected) do
    check(equal(tensors[name], want), "%s: tensor %s differs", what, name)
    tensors[name] = nil
  end
  check(next(tensors) == nil, "%s: tensor %s is not among the recorded ones", what, tostring(next(tensors)))
  for name, want in pairs(plain or {}) do
    check(same_plain(want, others[name]), "%s: %s is %s instead of %s", what, name, accel.inspect(others[name]),
      accel.inspect(want))
    others[name] = nil
  end
  check(next(others) == nil, "%s: value %s is not among the recorded ones", what, tostring(next(others)))
end

-- Sizes and chunks of every tensor, file and bytes of every part.
local function compare_metadata(what, path, says)
  local meta, message = core.dcp_metadata(path .. "/.metadata")
  if not check(meta, "%s: %s", what, message) then return end
  for name, want in pairs(says.metadata) do
    local got = meta.state_dict_metadata[name]
    local ok = got ~= nil and (got.chunks ~= nil) == (want.chunks ~= nil)
    if ok and want.chunks then
      ok = raw.same_list(got.size, want.size) and got.properties[1] == raw.dtype(want.dtype) and #got.chunks == #want.chunks
      for i, c in ipairs(ok and want.chunks or {}) do
        ok = ok and raw.same_list(got.chunks[i].offsets, c[1]) and raw.same_list(got.chunks[i].sizes, c[2])
      end
    end
    check(ok, "%s: metadata of %s differ", what, name)
  end
  local parts = {}
  for key, at in pairs(meta.storage_data) do
    local offset = key.offset and "[" .. table.concat(key.offset, ", ") .. "]" or "None"
    parts[("%s|%s|%s"):format(key.fqn, offset, key.index == nil and "None" or key.index)] = at
  end
  for name, want in pairs(says.storage) do
    local got = parts[name]
    check(got and got.relative_path == want[1] and got.offset == want[2] and got.length == want[3],
      "%s: the place of %s differs", what, name)
  end
end

-- The bytes of a box of a tensor of which all bytes are known.
local function cut(want, size_of, start, size)
  local rows, step = {}, {}
  local n = size_of
  for d = #want.shape, 1, -1 do
    step[d] = n
    n = n * want.shape[d]
  end
  local function walk(d, at)
    if d > #want.shape then
      rows[#rows + 1] = want.bytes:sub(at + 1, at + size_of)
      return
    end
    for i = start[d] - 1, start[d] + size[d] - 2 do walk(d + 1, at + i * step[d]) end
  end
  walk(1, 0)
  return table.concat(rows)
end

local function compare_boxes(what, path, expected)
  local files <close>, message = accel.open_sharded(path)
  if not check(files, "%s: %s", what, message) then return end
  local seed = 1
  local function draw(n)
    seed = (seed * 1103515245 + 12345) % 2147483648
    return seed // 65536 % n
  end
  for name, want in pairs(expected) do
    local info = files:info(name)
    check(info.dtype == short[want.dtype] and raw.same_list(info.shape, want.shape), "%s: %s is described wrongly", what, name)
    for _ = 1, 5 do
      local start, size = {}, {}
      for d, extent in ipairs(want.shape) do
        start[d] = draw(extent) + 1
        size[d] = draw(extent - start[d] + 2)
      end
      local box = files:get(name, start, size)
      check(box:to_bytes() == cut(want, box:element_size(), start, size) and raw.same_list(box.shape, size),
        "%s: box %s from %s of %s differs", what, accel.inspect(size), accel.inspect(start), name)
    end
  end
end

-- Tensors that are no DTensors (running statistics of a BatchNorm) differ from rank to rank; torch saves those of one rank and
-- the recorded ones are rank 0's. Where they differ, what torch's own conversion to one file holds counts.
local function take_saved_rank(w, state, says, ...)
  local saved = {}
  flatten(state, "", saved, {})
  for name, t in pairs(saved) do
    for _, expected in ipairs { ... } do
      local want = expected[name]
      if want and not says.placements[name] and not equal(t, want) then
        print(("%d ranks: %s is another rank's in the files than in %s; torch's conversion counts"):format(w, name,
          expected == select(1, ...) and "expected" or "expected_hf"))
        want.bytes = t:to_bytes()
      end
    end
  end
end

local function world(w)
  local function at(form) return ("%s/%s"):format(dir, form:format(w)) end
  local says = assert(raw.json(at "expected_%d.json"))
  local full, hf = assert(raw.tensors(at "expected_%d.safetensors")), assert(raw.tensors(at "expected_hf_%d.safetensors"))
  local converted, problem = accel.load(at "distcp_%d.as_torch_save.pt", { device = "cpu" })
  if check(converted, "%s", problem) then take_saved_rank(w, converted, says, full, hf) end
  for _, form in ipairs { "distcp_%d", "distcp_%d.as_torch_save.pt" } do
    local state, message = accel.load(at(form), { device = "cpu" })
    if check(state, "%s: %s", form, message) then compare(form:format(w), state, full, says.plain) end
  end
  compare_metadata("distcp_" .. w, at "distcp_%d", says)
  local floating = {}
  for name, want in pairs(hf) do -- torch's consolidation fails on integers
    if short[want.dtype]:find "f" then floating[name] = want end
  end
  for form, expected in pairs { ["hf_sharded_%d"] = hf, ["hf_consolidated_%d"] = floating } do
    local state, message = accel.load(at(form), { device = "cpu" })
    local what = form:format(w)
    if check(state, "%s: %s", what, message) then
      local tensors = {}
      for name, t in pairs(state) do tensors[name] = t end
      for name, want in pairs(expected) do
        check(equal(tensors[name], want), "%s: tensor %s differs", what, name)
        tensors[name] = nil
      end
      check(next(tensors) == nil, "%s: tensor %s is not among the recorded ones", what, tostring(next(tensors)))
      compare_boxes(what, at(form), expected)
    end
  end
end

local list, why = raw.json(dir .. "/manifest.json")
if check(list and list.worlds, "%s", why or "manifest.json lists no worlds") then
  for _, w in ipairs(list.worlds) do
    local ok, message = pcall(world, w)
    check(ok, "%s ranks: %s", w, tostring(message))
  end
end
print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0, true)
