--- Names of modules in today's Transformers where they are not those of accel and of files of weights, by the family (config.model_type).
--- Configurations and files of adapters have today's. Used by targets.lua and state.lua.
local M = {}

--- Patterns of accel's names and their replacements, tried one after another on a name.
local NEW <const> = {
  vit = { { "encoder%.layer%.", "layers." }, { "attention%.attention%.query", "attention.q_proj" },
    { "attention%.attention%.key", "attention.k_proj" }, { "attention%.attention%.value", "attention.v_proj" },
    { "attention%.output%.dense", "attention.o_proj" }, { "intermediate%.dense", "mlp.fc1" }, { "(layers%.%d+%.)output%.dense", "%1mlp.fc2" } },
  mixtral = { { "block_sparse_moe", "mlp" } },
}

--- Today's name of a module, or of a parameter below it: nil if it is the same.
---@param model accel.nn.Module
---@param name string
---@return string?
function M.today(model, name)
  local changes = model.config and NEW[model.config.model_type]
  if not changes then return nil end
  local new = name
  for _, change in ipairs(changes) do new = new:gsub(change[1], change[2], 1) end
  return new ~= name and new or nil
end

return M
