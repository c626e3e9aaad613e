--- DeviceMesh: the ranks of a world as a grid with named dimensions, the last of which runs fastest, and for each dimension the
--- group of ranks that differ in it alone. Made by init_device_mesh, ParallelismConfig and MegatronLMPlugin.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local dist = require "accel.dist"
local nearest = require "accel.util.nearest"
local raise = require "accel.util.raise"

--- Ranks that differ in one dimension, or in several joint ones, as this rank sees them.
---@class accel.parallel.Axis
---@field name string
---@field size integer
---@field rank integer this rank's place, from 0
---@field group accel.dist.Group? nil if size is 1: no communication
---@field ranks integer[] ranks of the world, in order
local Axis = class("accel.parallel.Axis")

function Axis:init(name, ranks, me, group)
  self.name, self.ranks, self.size, self.group = name, ranks, #ranks, group
  for i, r in ipairs(ranks) do
    if r == me then self.rank = i - 1 end
  end
end

--- The tensors of all ranks side by side along dim, and the sum over the ranks, with a gradient
--- (accel.parallel.collectives).
---@param x accel.Tensor
---@param dim integer
---@return accel.Tensor
function Axis:all_parts(x, dim) return require "accel.parallel.collectives".all_parts(x, self, dim) end

---@param x accel.Tensor
---@return accel.Tensor
function Axis:total(x) return require "accel.parallel.collectives".total(x, self) end

function Axis.__tostring(self) return ("Axis(%s, rank %d of %d)"):format(self.name, self.rank, self.size) end

--- Ranks as a grid with named dimensions: see the head of this file.
--- example: accel.parallel.init_device_mesh("cpu", { 1 }, { mesh_dim_names = { "dp" } }):size() --> 1
---@class accel.parallel.DeviceMesh
---@field mesh_dim_names string[] outermost first
---@field shape integer[]
local Mesh = class("accel.parallel.DeviceMesh")

--- Sets of ranks that differ in the marked dimensions alone: lists in the order of the first rank, each in rank order.
local function partition(shape, marked)
  local strides, total = {}, 1
  for d = #shape, 1, -1 do
    strides[d] = total
    total = total * shape[d]
  end
  local sets, of = {}, {}
  for rank = 0, total - 1 do
    local key = 0
    for d = 1, #shape do
      if not marked[d] then key = key + rank // strides[d] % shape[d] * strides[d] end
    end
    local set = of[key]
    if not set then
      set = {}
      of[key], sets[#sets + 1] = set, set
    end
    set[#set + 1] = rank
  end
  return sets
end

--- The axis of which this rank's set of the sets is part. Collective: every rank makes the groups of all, in the same order.
local function make_axis(name, sets)
  local me, mine, group = dist.get_rank(), nil, nil
  for _, ranks in ipairs(sets) do
    local made = #ranks > 1 and (#ranks == dist.get_world_size() and dist.group.WORLD or dist.new_group(ranks)) or nil
    for _, r in ipairs(ranks) do
      if r == me then mine, group = ranks, made end
    end
  end
  return Axis(name, mine, me, group)
end

--- Stages and rings send to each other, from GPU to GPU if ranks have them. Groups are split off the communicator that this makes.
local function tell_device()
  local device = accel.get_default_device()
  if dist.get_world_size() > 1 and device ~= "cpu" and not device:find "^meta" then dist.init_process_group(nil, { device_id = device }) end
end

--- Collective over the world.
---@param names string[] outermost first
---@param shape integer[] their product is the number of ranks
---@param joints? table<string, string[]> names of dimensions that are one axis as well
function Mesh:init(names, shape, joints, ...)
  check.surplus("DeviceMesh", ...)
  local total = 1
  if #names ~= #shape then raise("DeviceMesh: %d names for %d dimensions", #names, #shape) end
  tell_device()
  self.mesh_dim_names, self.shape, self.axes, self.at, self.joints = names, shape, {}, {}, joints or {}
  for d, n in ipairs(shape) do
    total = total * check.positive("DeviceMesh", ("size of '%s'"):format(names[d]), n)
    if self.at[names[d]] then raise("DeviceMesh: two dimensions '%s'", names[d]) end
    self.at[names[d]] = d
  end
  if total ~= dist.get_world_size() then
    raise("DeviceMesh: %s need %d ranks, but there are %d; the product of the sizes must be the number of processes",
      table.concat(shape, " x "), total, dist.get_world_size())
  end
  for d, name in ipairs(names) do self.axes[name] = make_axis(name, partition(shape, { [d] = true })) end
  for name, list in accel.pairs(self.joints) do
    if type(list) ~= "table" or type(list[1]) ~= "string" then
      raise("DeviceMesh: joints must be lists of names of dimensions by name, got %s for '%s'", check.shown(list), tostring(name))
    end
    local marked, known = self:marked(list)
    self.axes[name] = #known == 1 and self.axes[known[1]] or make_axis(name, partition(shape, marked))
  end
end

--- Those of some dimensions that the mesh has: as a set of places, and as names.
---@param list string[] names of dimensions
function Mesh:marked(list)
  local marked, known = {}, {}
  for _, dim in ipairs(list) do
    if self.at[dim] then
      marked[self.at[dim]] = true
      known[#known + 1] = dim
    end
  end
  return marked, known
end

--- Cuts an axis into runs of `size` ranks next to each other: the axis `inner` is one within a run, `outer` one of those at the same place
--- of all runs. Collective over the world.
---@param name string a dimension or joint
---@param size integer divides the axis
---@param inner string
---@param outer string
function Mesh:divide(name, size, inner, outer)
  local within, across = {}, {}
  for _, ranks in ipairs(partition(self.shape, (self:marked(self.joints[name] or { name })))) do
    for first = 1, #ranks, size do within[#within + 1] = table.move(ranks, first, first + size - 1, 1, {}) end
    for place = 1, size do
      local set = {}
      for i = place, #ranks, size do set[#set + 1] = ranks[i] end
      across[#across + 1] = set
    end
  end
  self.axes[inner], self.axes[outer] = make_axis(inner, within), make_axis(outer, across)
end

--- The axis of a dimension or joint. An axis of size 1 for a dimension that the mesh leaves out.
---@param name string
---@return accel.parallel.Axis
function Mesh:axis(name)
  local axis = self.axes[name]
  if not axis then
    local me = dist.get_rank()
    axis = Axis(name, { me }, me)
    self.axes[name] = axis
  end
  return axis
end

local function known(self, name)
  if not self.axes[name] then
    local near = type(name) == "string" and nearest(name, self.axes)
    raise("DeviceMesh: no dimension %s; choose from %s%s", check.shown(name), table.concat(self.mesh_dim_names, ", "),
      near and ("; did you mean '%s'?"):format(near) or "")
  end
  return self.axes[name]
end

--- The group of ranks that differ from this one in a dimension (default: the only one). nil if its size is 1.
---@param name? string
---@return accel.dist.Group?
function Mesh:get_group(name, ...)
  check.surplus("DeviceMesh:get_group", ...)
  if name == nil and #self.shape ~= 1 then raise "DeviceMesh:get_group: the mesh has several dimensions; name one" end
  return known(self, name or self.mesh_dim_names[1]).group
end

--- This rank's place in a dimension, from 0.
---@param name? string
---@return integer
function Mesh:get_local_rank(name, ...)
  check.surplus("DeviceMesh:get_local_rank", ...)
  return known(self, name or self.mesh_dim_names[1]).rank
end

--- Ranks of a dimension, of all without a name.
---@param name? string
---@return integer
function Mesh:size(name, ...)
  check.surplus("DeviceMesh:size", ...)
  if name ~= nil then return known(self, name).size end
  local total = 1
  for _, n in ipairs(self.shape) do total = total * n end
  return total
end

--- This rank's place in every dimension, by name.
---@return table<string, integer>
function Mesh:get_coordinate()
  local out = {}
  for _, name in ipairs(self.mesh_dim_names) do out[name] = self.axes[name].rank end
  return out
end

function Mesh.__tostring(self)
  local parts = {}
  for d, name in ipairs(self.mesh_dim_names) do parts[d] = ("%s=%d"):format(name, self.shape[d]) end
  return ("DeviceMesh(%s)"):format(table.concat(parts, ", "))
end

--- A mesh over all ranks, as torch.distributed has it. Collective over the world.
---@param device string kind of device. Ranks have theirs already
---@param shape integer[]
---@param opts? {mesh_dim_names: string[]?}
---@return accel.parallel.DeviceMesh
local function init_device_mesh(device, shape, opts, ...)
  local options = require "accel.util.options"
  if type(device) ~= "string" then raise("init_device_mesh: the kind of device comes first, got %s", check.shown(device)) end
  local o = options("init_device_mesh", opts, { mesh_dim_names = options.none }, ...)
  local names = o.mesh_dim_names
  if not names then
    names = {}
    for d in ipairs(shape) do names[d] = ("dim_%d"):format(d - 1) end
  end
  return Mesh(names, shape)
end

--- The ranks of the whole world, in a job without a mesh.
---@param size integer
---@param rank integer
---@return accel.parallel.Axis
local function world(size, rank)
  local ranks = {}
  for r = 0, size - 1 do ranks[r + 1] = r end
  return Axis("world", ranks, rank)
end

return { DeviceMesh = Mesh, init_device_mesh = init_device_mesh, world = world }
