--- How a tokenizer's chat template is found and applied: Tokenizer:apply_chat_template. Templates come from chat_template.jinja
--- or from chat_template in tokenizer_config.json: one, or several by name.
local accel = require "accel"
local chat_messages = require "accel.text.chat_messages"
local limits = require "accel.text.jinja.limits"
local nearest = require "accel.util.nearest"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local special_tokens = require "accel.text.special_tokens"
local read_file = require "accel.util.read_file"

local M = { FILE = "chat_template.jinja" }

--- The template texts of a folder by name ("default" is the usual one), or nil if it has none.
---@param dir string
---@param config table the content of tokenizer_config.json
---@return table<string, string>?
---@return string? message a chat_template.jinja that cannot be read
---@return string? code
function M.find(dir, config)
  local out = {}
  local given = config.chat_template
  if type(given) == "string" then out.default = given end
  if type(given) == "table" then
    for _, entry in ipairs(given) do
      if type(entry) == "table" and type(entry.name) == "string" and type(entry.template) == "string" then
        out[entry.name] = entry.template
      end
    end
  end
  local text, message, code = read_file(dir .. "/" .. M.FILE, limits.SOURCE)
  if not text and code ~= "not_found" then return nil, message, code end
  out.default = text or out.default
  return next(out) and out or nil
end

--- The text of chat_template.jinja. nil without a template, or if several by name go into tokenizer_config.json (`config`), as
--- Transformers reads them.
---@param config table
---@param templates? string|table<string, string>
---@return string?
function M.place(config, templates)
  config.chat_template = nil
  if templates == nil then return end
  if type(templates) == "string" then templates = { default = templates } end
  local n, named = 0, {}
  for name, template in accel.pairs(templates) do
    n = n + 1
    named[n] = { name = name, template = template }
  end
  if n > 1 or not templates.default then
    config.chat_template = named
    return
  end
  return templates.default
end

--- The template that a call means: its text, its name, or the tokenizer's own.
local function chosen(tok, o)
  local all, wanted = tok.chat_template, o.chat_template
  if type(all) == "string" then all = { default = all } end
  if wanted and not (all and all[wanted]) then return wanted, "chat_template" end
  if not all then
    raise "apply_chat_template: this tokenizer has no chat template; give one by chat_template = text"
  end
  local name = wanted or (o.tools and all.tool_use and "tool_use") or "default"
  if not all[name] then
    local names = {}
    for key in next, all do names[#names + 1] = "'" .. key .. "'" end
    table.sort(names)
    raise("apply_chat_template: say which template by chat_template: %s", table.concat(names, ", "))
  end
  return all[name], "chat template" .. (name ~= "default" and " " .. name or "")
end

local compiled = setmetatable({}, { __mode = "k" }) -- the names below serve the tokenizer alone

local function template_of(tok, o)
  local source, name = chosen(tok, o)
  local mine = compiled[tok]
  if mine and mine.source == source then return mine end
  local made, message = require("accel.text.template").parse(source, name)
  if not made then raise("apply_chat_template: %s", message) end
  compiled[tok] = made
  return made
end

local function check_messages(messages)
  if type(messages) ~= "table" or (#messages == 0 and next(messages) ~= nil) then
    raise("apply_chat_template: messages must be a list of { role =, content = }, got %s", type(messages))
  end
  for i, message in ipairs(messages) do
    if type(message) ~= "table" or type(message.role) ~= "string" then
      raise("apply_chat_template: message %d must be a table with a role", i)
    end
  end
end

local declared <const> = {
  tools = options.none, documents = options.none, chat_template = options.none, add_generation_prompt = false,
  continue_final_message = options.none, tokenize = true, variables = {}, return_tensors = false, return_dict = false,
  return_assistant_tokens_mask = false, template_limit = 1,
}

--- Declared options, completed, and all others, which are variables of the template.
local function split(opts, ...)
  if opts ~= nil and type(opts) ~= "table" then return options("apply_chat_template", opts, declared, ...), {} end
  local own, variables = {}, {}
  for name, value in next, opts or {} do
    if declared[name] ~= nil or type(name) ~= "string" then own[name] = value else variables[name] = value end
  end
  return options("apply_chat_template", own, declared, ...), variables
end

--- Raises or warns if a template reads no variable of this name: it may be a misspelt option.
local function check_variable(template, name, is_option)
  if template:reads(name) then return end
  if is_option then
    require("accel.util.absent").refuse_option("apply_chat_template", name)
    local near = nearest(name, declared)
    if near then raise("apply_chat_template: unknown option '%s'; did you mean '%s'?", name, near) end
  end
  no_effect.once("apply_chat_template", name, "because the chat template reads no variable of this name; leave it out")
end

--- The text that apply_chat_template gives to a tokenizer, and the parts of it that the assistant wrote.
---@param template accel.text.Template
---@param messages table[]
---@param names table<string, any> variables of the template
---@param o {continue_final_message: string|boolean|nil, template_limit: number?}
---@return string
---@return integer[][] spans pairs of characters, from 0 and half open
function M.render(template, messages, names, o)
  local list = chat_messages.with_reasoning(messages)
  local continued
  if o.continue_final_message then continued = chat_messages.mark_last(list, o.continue_final_message, template.source) end
  names.messages = list
  local text, more = template:try_render(names, { limit = o.template_limit or 1, generation_spans = true })
  if not text then raise("apply_chat_template: %s", more) end
  if continued then text = chat_messages.cut_at_mark(text, continued) end
  local n, spans = utf8.len(text), {}
  for i, span in ipairs(more) do spans[i] = { math.min(span[1], n), math.min(span[2], n) } end
  return text, spans
end

--- 1 for each token of the assistant's parts, 0 for the others.
local function mask_of(offsets, spans)
  local mask = {}
  for i = 1, #offsets do mask[i] = 0 end
  for _, span in ipairs(spans) do
    for i, o in ipairs(offsets) do
      if o[2] > span[1] and o[1] < span[2] then mask[i] = 1 end
    end
  end
  return mask
end

--- See Tokenizer:apply_chat_template.
function M.apply(tok, messages, opts, ...)
  local o, variables = split(opts, ...)
  check_messages(messages)
  local continues = o.continue_final_message
  if continues ~= nil and type(continues) ~= "boolean" and type(continues) ~= "string" then
    raise("apply_chat_template: option 'continue_final_message' must be a boolean or the name of a field, got %s", type(continues))
  end
  if continues and o.add_generation_prompt then
    raise "apply_chat_template: add_generation_prompt begins a message, continue_final_message continues one; set only one"
  end
  local template = template_of(tok, o)
  local names = { tools = o.tools, documents = o.documents, add_generation_prompt = o.add_generation_prompt }
  for _, name in ipairs(special_tokens.names) do names[name] = tok[name] end
  for name, value in next, o.variables do
    check_variable(template, name)
    names[name] = value
  end
  for name, value in next, variables do
    check_variable(template, name, true)
    names[name] = value
  end
  local wants_mask = o.return_assistant_tokens_mask
  if wants_mask and o.tokenize and not o.return_dict then
    raise("apply_chat_template: return_assistant_tokens_mask needs return_dict = true, or tokenize = false for the places in the text")
  end
  if wants_mask and not template:generates() then
    no_effect.once("apply_chat_template", "return_assistant_tokens_mask",
      "because the chat template has no {% generation %}: no token is the assistant's")
  end
  local text, spans = M.render(template, chat_messages.without_nulls(messages), names, o)
  if not o.tokenize then
    no_effect.given("apply_chat_template", o, { "return_tensors", "return_dict" }, "with tokenize = false; leave it out")
    if wants_mask then return text, spans end
    return text
  end
  local encoding = tok:encode(text, { add_special_tokens = false, offsets = wants_mask })
  local function shaped(list)
    return o.return_tensors and accel.tensor({ list }, { dtype = "i64" }) or list
  end
  if not o.return_dict then return shaped(encoding.ids) end
  return {
    input_ids = shaped(encoding.ids), attention_mask = shaped(encoding.attention_mask),
    assistant_masks = wants_mask and shaped(mask_of(encoding.offsets, spans)) or nil,
  }
end

return M
