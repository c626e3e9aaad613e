-- One case of the mismatch matrix, on every rank: rank arg[1] runs the program arg[3], the others arg[2]. Programs are lists of calls
-- "op dtype count reduction root" separated by ";", a call each on a line of its own of a chunk called odd.lua or rest.lua.
local accel = require "accel"
local odd, rest, other = math.tointeger(tonumber(arg[1])), arg[2], arg[3]
local rank = accel.dist.get_rank()

local calls = {
  all_reduce = "dist.all_reduce(new(n), { op = op })",
  reduce = "dist.reduce(new(n), root, { op = op })",
  broadcast = "dist.broadcast(new(n), root)",
  all_gather = "dist.all_gather_into_tensor(new(n * P), new(n))",
  gather = "dist.gather(new(n), { dst = root, gather_list = rank == root and list() or nil })",
  scatter = "dist.scatter(new(n), { src = root, scatter_list = rank == root and list() or nil })",
  reduce_scatter = "dist.reduce_scatter_tensor(new(n), new(n * P), { op = op })",
  all_to_all = "dist.all_to_all_single(new(n * P), new(n * P))",
  barrier = "dist.barrier()",
}

local function chunk(program, name)
  local lines = { "local accel, dist, rank, P = ..." }
  for call in program:gmatch "[^;]+" do
    local op, dtype, n, reduction, root = call:match "(%S+) (%S+) (%S+) (%S+) (%S+)"
    lines[#lines + 1] = ([[do local n, op, root = %s, "%s", %s ]]):format(n, reduction, root)
      .. ([[local function new(k) return accel.ones(k, { dtype = "%s" }) end ]]):format(dtype)
      .. "local function list() local t = {} for i = 1, P do t[i] = new(n) end return t end " .. calls[op] .. " end"
  end
  return load(table.concat(lines, "\n"), "@" .. name)
end

local program = rank == odd and chunk(other, "odd.lua") or chunk(rest, "rest.lua")
program(accel, accel.dist, rank, accel.dist.get_world_size())
