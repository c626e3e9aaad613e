--- prepare_pippy: inference of a model whose blocks are shared out over the ranks, with Accelerate's arguments
--- (accel.parallel.pipeline does it).
local accel = require "accel"
local Module = require "accel.nn.module"
local check = require "accel.util.check"
local dist = require "accel.dist"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

local WHO <const> = "prepare_pippy"

--- A list of names, each once. The option's name is for messages.
local function names_of(option, list, before)
  if type(list) ~= "table" then raise("%s: %s must be %sa list of names, got %s", WHO, option, before, check.shown(list)) end
  local seen = {}
  for i, name in ipairs(list) do
    if type(name) ~= "string" then raise("%s: %s[%d] must be a name, got %s", WHO, option, i, check.shown(name)) end
    if seen[name] then raise("%s: %s names '%s' twice", WHO, option, name) end
    seen[name] = true
  end
  return list
end

--- A model in eval mode on all ranks of the run. Each rank keeps its own blocks. model(...) runs the batch in num_chunks parts, one after
--- the other. Every rank gives the same inputs. The last rank gets the output, the others nil. With gather_output all ranks get it. A
--- batch that does not divide is padded with its first rows, which the output is without.
---
--- split_points: "auto" divides the blocks by the size of their products, "even" equally. A list names the blocks at which the 2nd, 3rd,
--- ... rank begins. Blocks are the model's own (pipeline_plan), or modules of the classes no_split_module_classes, or the entries of the
--- longest ModuleList.
--- example: local model = accel.accelerator.prepare_pippy(accel.models.GPT2(accel.models.tiny.gpt2), { num_chunks = 2 })
---   return model(accel.tensor { { 1, 2 }, { 3, 4 }, { 5, 6 } }).shape --> { 3, 2, 9 }
---@param model accel.nn.Module
---@param opts? table
---  split_points "auto"|"even"|string[] = "auto": the cuts between blocks
---  no_split_module_classes string|string[]: classes of blocks
---  example_args table: without effect, since nothing is traced
---  example_kwargs table: without effect, since nothing is traced
---  num_chunks integer: parts of a batch (default: the number of ranks)
---  gather_output boolean = false: all ranks get the output
---@return accel.nn.parallel.PipelineParallel
function M.prepare_pippy(model, opts, ...)
  check.surplus("prepare_pippy", ...)
  if not Module.is_module(model) then raise("%s: %s", WHO, Module.not_a_module(model)) end
  local o = options(WHO, opts, {
    split_points = options.none, no_split_module_classes = options.none, example_args = options.none, example_kwargs = options.none,
    num_chunks = dist.get_world_size(), gather_output = false,
  })
  no_effect("accel.accelerator.prepare_pippy", o)
  o.split_points = o.split_points or "auto"
  if o.split_points ~= "auto" and o.split_points ~= "even" then names_of("split_points", o.split_points, '"auto", "even" or ') end
  check.positive(WHO, "num_chunks", o.num_chunks)
  local names = o.no_split_module_classes
  if type(names) == "string" then names = { names } end
  if names ~= nil then names_of("no_split_module_classes", names, "a name or ") end
  for _, key in ipairs { "example_args", "example_kwargs" } do
    if o[key] ~= nil and type(o[key]) ~= "table" then raise("%s: %s must be a table, got %s", WHO, key, check.shown(o[key])) end
  end
  local mesh = accel.parallel.init_device_mesh("cpu", { dist.get_world_size() }, { mesh_dim_names = { "pp" } })
  local pipeline = accel.nn.parallel.PipelineParallel(model, mesh, {
    num_micro_batches = o.num_chunks, split_points = o.split_points, block_classes = names, gather_output = o.gather_output,
  })
  pipeline:eval()
  rawset(pipeline, "hf_split_points", o.split_points)
  return pipeline
end

return M
