-- Files of torch.save: every good one equals its recorded values (bits, strides, offsets, what shares a storage), every one of
-- refuse/ is refused for its reason, without a process, file or socket being touched and in bounded memory.
--   accel-run tests/reference/pt.lua [DIR]
-- Prints what differs; the last line is "N passed, M failed". Exit status 1 when something failed.
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path
local raw = require "raw"
local typed = require "typed"
local dir = arg[1] or here .. "/pt"
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

local null = accel.json.null

-- Each tensor with what is said of it, for the check of what shares storage.
local expected, seen

local function same_tensor(want, got, at)
  if not accel.is_tensor(got) then return false, at .. ": no tensor but " .. type(got) end
  local bytes = expected[want.tensor]
  seen[#seen + 1] = { want = want, got = got }
  local says = ("%s: %s %s, stride %s, offset %d"):format(at, got.dtype, accel.inspect(got.shape),
    accel.inspect(got:stride()), got:storage_offset())
  return bytes and got.dtype == raw.dtype(want.dtype) and raw.same_list(got.shape, want.shape)
    and raw.same_list(got:stride(), want.stride) and got:storage_offset() == want.offset
    and got.requires_grad == want.requires_grad and got:detach():to_bytes() == bytes.bytes, says
end

-- One address per storage, and another one for every other storage.
local function shares()
  local at, of = {}, {}
  for _, x in ipairs(seen) do
    if x.want.storage ~= nil and x.got:numel() > 0 then
      local base = x.got:data_ptr() - x.want.offset * x.got:element_size()
      if (at[x.want.storage] or base) ~= base or (of[base] or x.want.storage) ~= x.want.storage then return false end
      at[x.want.storage], of[base] = base, x.want.storage
    end
  end
  return true
end

local function good(name)
  local says, why = raw.json(("%s/%s.json"):format(dir, name))
  if not check(says, "%s", why) then return end
  expected, seen = assert(raw.tensors(("%s/%s.safetensors"):format(dir, name))), {}
  local tree, message = accel.load(("%s/%s.pt"):format(dir, name), { device = "cpu" })
  if not check(tree ~= nil, "%s: %s", name, message) then return end
  if tree == null then tree = nil end
  local ok, differs = typed.same(says.tree, tree, name, same_tensor)
  check(ok, "%s", differs)
  local n = 0
  for _ in pairs(expected) do n = n + 1 end
  local met = {}
  for _, x in ipairs(seen) do met[x.want.tensor] = true end
  for _ in pairs(met) do n = n - 1 end
  check(n == 0, "%s: %d of the recorded tensors were not met", name, n)
  check(shares(), "%s: tensors share storage otherwise", name)
end

-- Rules that are as right as the recorded one: an opcode behind a forbidden name is not reached; a pickle that leaves values on
-- its stack is refused for that.
local also = { ["obj_opcode.pt"] = "unknown_global", ["memo_bomb.pt"] = "stack" }
local readable = { ["memo_index.pt"] = true, ["memo_bomb.pt"] = true }

local function descriptors()
  local n = 0
  for _, name in ipairs(accel.listdir "/proc/self/fd") do n = n + (name:find "^%d" and 1 or 0) end
  return n
end
local function children()
  local list = ""
  for _, task in ipairs(accel.listdir "/proc/self/task") do
    list = list .. (task:find "^%d" and raw.read("/proc/self/task/" .. task .. "/children") or "")
  end
  return list
end
local function peak() return tonumber((raw.read "/proc/self/status":match "VmHWM:%s*(%d+)")) end
local function marked(mark)
  for _, place in ipairs { ".", dir, dir .. "/refuse", "/tmp", os.getenv "HOME" or "." } do
    for _, name in ipairs(accel.listdir(place) or {}) do
      if name == mark then return place end
    end
  end
end

local function refuse(x, mark)
  local path, fds, before, clock = ("%s/refuse/%s"):format(dir, x.file), descriptors(), peak(), os.clock()
  local tree, message, code = accel.load(path, { device = "cpu" })
  if tree ~= nil and readable[x.file] then
    check(true)
  else
    local as = function(rule) return rule and message:find("rule " .. rule .. " at byte ", 1, true) end
    check(tree == nil and code == "parse" and message:find(x.file, 1, true) and (as(x.rule) or as(also[x.file])),
      "%s: %s instead of a breach of %s (%s)", x.file, tree ~= nil and "was read" or message, x.rule, x.why)
  end
  check(descriptors() == fds, "%s: a file or socket is left open", x.file)
  check(children() == "", "%s: a process was started", x.file)
  check(not marked(mark), "%s: %s is in %s", x.file, mark, marked(mark))
  check(peak() - before < 64 * 1024, "%s: %d KiB of memory", x.file, peak() - before)
  check(os.clock() - clock < 5, "%s: took %.1f s", x.file, os.clock() - clock)
end

local list, why = raw.json(dir .. "/manifest.json")
if check(list and list.files, "%s", why or "manifest.json lists no files") then
  for _, x in ipairs(list.files) do
    local ok, message = pcall(good, x.name)
    check(ok, "%s: %s", x.name, tostring(message))
  end
end
list, why = raw.json(dir .. "/refuse/manifest.json")
if check(list and list.files, "%s", why or "refuse/manifest.json lists no files") then
  accel.load(dir .. "/refuse/" .. list.files[1].file) -- modules are loaded now, not while memory is counted
  for _, x in ipairs(list.files) do
    local ok, message = pcall(refuse, x, list.mark or "ACCEL_PWNED")
    check(ok, "%s: %s", x.file, tostring(message))
  end
end
print(("%d passed, %d failed"):format(passed, failed))
os.exit(failed == 0, true)
