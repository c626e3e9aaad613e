--- Every method of every public class called without an object, as a dot in the place of a colon does: each call returns or raises a message
--- about the arguments, never an error that Lua raised inside the library.
---   accel-run tests/options/wrong_methods_test.lua [accel.optim]       names that begin so
local accel = require "accel"
local class = require "accel.util.class"
local only = arg[1]

-- Wait for peers or people, end the program, or are called by constructors and calls of objects alone.
local LEFT_OUT <const> = { launch = true, ui = true, serve = true, start = true, alloc = true, init = true, forward = true, console = true,
  pdb = true, core = true, _reset_state = true, wait_for_everyone = true, wait = true, notebook_launcher = true }

local makers = { function() end, function() return {} end, function() return 5 end, function() return "x" end,
  function() return accel.ones(2, 2) end, function() return accel.nn.Linear(2, 2) end }

local function is_raw(text)
  return text:find "attempt to " or text:find "bad argument #%d+ to 'for iterator'" or text:find("/lua/5.4/accel/", 1, true)
    or text:find("stdlib/accel/", 1, true)
end

local calls, raw = 0, {}
local function try(name, f, ...)
  calls = calls + 1
  local ok, err = pcall(f, ...)
  if not ok and is_raw(tostring(err)) then raw[#raw + 1] = ("%s: %s"):format(name, tostring(err):gsub("\n.*", "")) end
end

local function methods_of(path, cls)
  for name, f in accel.pairs(cls) do
    if type(f) == "function" and type(name) == "string" and not name:find "^_" and not LEFT_OUT[name] then
      local full = path .. "." .. name
      for i = 1, #makers do try(("%s(value %d)"):format(full, i), f, makers[i]()) end
    end
  end
end

local seen = {}
local function walk(path, module, depth)
  if seen[module] then return end
  seen[module] = true
  local names, meta = {}, getmetatable(module)
  for name in next, module do names[name] = true end
  for name in next, type(meta) == "table" and meta.__names or {} do names[name] = true end
  for name in accel.pairs(names) do
    local found, value = pcall(function() return module[name] end)
    if type(name) == "string" and not name:find "^_" and not LEFT_OUT[name] and found and type(value) == "table" then
      local full = path .. "." .. name
      if not class.isclass(value) then
        if depth < 3 then walk(full, value, depth + 1) end
      elseif not seen[value] and (not only or full:find(only, 1, true)) then
        seen[value] = true
        methods_of(full, value)
      end
    end
  end
end
walk("accel", accel, 0)

io.write(("%d calls, %d errors of Lua\n"):format(calls, #raw))
for _, text in ipairs(raw) do io.write(text:sub(1, 240), "\n") end
assert(only or calls > 4000, "too few calls")
assert(#raw == 0, "errors of Lua from inside the library")
