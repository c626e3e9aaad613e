--- Argument checks from annotations: their messages, arguments by name, and what stays as it was in front of a function.
local accel = require "accel"
local checked = require "accel.util.checked"

local path = os.getenv "ACCEL_TEST_TMP" .. "/annotated.lua"
local file <close> = assert(io.open(path, "w"))
file:write [[
local M = {}

---@param name string
---@param count? integer
---@param opts? table
---  scale number = 1: a factor
---  names string[]: some
function M.open(name, count, opts) return name .. (count or 1), opts end

---@param model accel.nn.Module
---@param fn fun(x: integer|string): boolean
---@param mode? "a"|"b"|false
function M.each(model, fn, mode) return #model.anything, fn.x, mode end

---@param a boolean|integer[]
function M.raises(a) if a == 7 then error "its own message" end return a.b.c end

function M.bare(x) return x.y end

return M
]]
file:close()
local M = dofile(path)
local open, each = checked.wrap(M.open, "open"), checked.wrap(M.each, "each")

local function says(want, f, ...)
  local ok, message = pcall(f, ...)
  assert(not ok and message:find(want, 1, true), ("expected %q, got %s"):format(want, tostring(message)))
end

-- types and nil, with the form of ops
says("bad argument #1 'name' to 'open' (expected string, got nil)", open)
says("bad argument #1 'name' to 'open' (expected string, got a table)", open, {})
says("bad argument #2 'fn' to 'each' (expected function, got integer 5)", each, accel.nn.Linear(1, 1), 5)
says("bad argument #1 'model' to 'each' (expected accel.nn.Module, got integer 5)", each, 5, print)
says("checked_test.lua:", open) -- the line of the script

-- what a function takes passes, and its own message is kept
assert(open("x", 2) == "x2" and open("x") == "x1")
says("its own message", checked.wrap(M.raises, "raises"), 7)
says("bad argument #1 'a' to 'raises' (expected boolean or list, got integer 8)", checked.wrap(M.raises, "raises"), 8)
assert(open(3) == "31", "a value that the function takes was refused")

-- by name; what is left are options
local text, rest = open { name = "y", count = 3, scale = 2 }
assert(text == "y3" and rest.scale == 2 and rest.name == nil)
assert(open("z", { count = 4 }) == "z4")
assert(select(2, open("z", { scale = 4 })).scale == 4)

-- one check for a function, at its own place in the file, none in front of a function of C
assert(checked.wrap(M.open, "other") == open and checked.wrap(open, "open") == open and checked.original(open) == M.open)
assert(checked.wrap(print, "print") == print)
local a, b = debug.getinfo(open, "S"), debug.getinfo(M.open, "S")
assert(a.source == b.source and a.linedefined == b.linedefined)

-- required arguments of layers by name, as help states
local nn = accel.nn
assert(tostring(nn.Linear { in_features = 3, out_features = 2 }) == tostring(nn.Linear(3, 2)))
assert(nn.Linear { in_features = 3, out_features = 2, bias = false }.bias == nil)
assert(#accel.data.DataLoader { dataset = accel.data.TensorDataset(accel.ones(4, 2)), batch_size = 2 } == 2)

-- ops have checks of their own: the functions of C stay as they are
assert(nn.functional.relu == accel.relu and nn.functional.cross_entropy == accel.cross_entropy)

-- right calls of the library do not go the way of errors, at each step of each rank
do
  local faults = require "accel.util.checked_faults"
  local handle, surplus, slow = faults.handle, faults.surplus, {}
  faults.handle = function(whole, f, who, ...)
    slow[#slow + 1] = who
    return handle(whole, f, who, ...)
  end
  faults.surplus = function(who, ...)
    slow[#slow + 1] = who
    return surplus(who, ...)
  end
  local optim = accel.optim
  for _, name in ipairs { "SGD", "Adam", "AdamW", "Adafactor", "AdamW8bit", "Lion8bit", "Rprop", "NAdam" } do
    local model = nn.Linear(8, 1)
    local optimizer = optim[name](model:parameters(), { lr = 1e-3 })
    local schedules = optim.lr_scheduler
    local schedule = name == "SGD" and schedules.CosineAnnealingLR(optimizer, 10) or schedules.LambdaLR(optimizer, function() return 1 end)
    for batch in accel.data.DataLoader(accel.data.TensorDataset(accel.ones(16, 8)), { batch_size = 4, shuffle = true })() do
      model(batch[1]):sum():backward()
      optimizer:step()
      schedule:step()
      optimizer:zero_grad()
    end
  end
  faults.handle, faults.surplus = handle, surplus
  assert(#slow == 0, table.concat(slow, " "))
end
