--- models.register(family): a family of your own. from_pretrained then finds folders of its model_type.
local auto = require "accel.models.auto"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

--- Registers a decoder family, and returns its classes by name. The guide "families" shows how to write one and how to compare it with
--- Transformers.
---
--- example: local describe = require "accel.models.decoder.describe"
---   accel.models.register { model_type = "tiny_llama", prefix = "TinyLlama", keys = describe.keys(), describe = describe.llama }
---   return accel.models.TinyLlamaForCausalLM ~= nil --> true
---@param family accel.models.FamilyDefinition model_type, prefix, keys, describe and further fields of accel.models.decoder.family
---@return table<string, table>
return function(family, ...)
  check.surplus("register", ...)
  if type(family) ~= "table" then raise("register: expected a table that describes a family, got %s", type(family)) end
  local classes = require "accel.models.decoder.family"(family)
  auto.add(family.model_type, classes, family.causal or family.prefix .. "ForCausalLM")
  return classes
end
