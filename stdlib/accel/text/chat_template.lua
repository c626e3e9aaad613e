--- How a tokenizer's chat template is found and applied: Tokenizer:apply_chat_template. Templates come from chat_template.jinja
--- or from chat_template in tokenizer_config.json: one, or several by name.
local accel = require "accel"
local Template = require "accel.text.template"
local limits = require "accel.text.jinja.limits"
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
  local made, message = Template.parse(source, name)
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

--- Cuts a rendered chat after the text of its last message, so that a model continues it.
local function without_end(text, messages)
  local last = messages[#messages].content
  if type(last) ~= "string" then raise "apply_chat_template: continue_final_message needs a text in the last message" end
  last = last:match "^%s*(.-)%s*$"
  local at, from = nil, 1
  while true do
    local a, b = text:find(last, from, true)
    if not a then break end
    at, from = b, a + 1
  end
  if not at then raise "apply_chat_template: the template changes the last message: it cannot be continued" end
  return text:sub(1, at)
end

--- See Tokenizer:apply_chat_template.
function M.apply(tok, messages, opts, ...)
  local o = options("apply_chat_template", opts, {
    tools = options.none, documents = options.none, chat_template = options.none, add_generation_prompt = false,
    continue_final_message = false, tokenize = true, variables = {}, return_tensors = false, template_limit = 1,
  }, ...)
  check_messages(messages)
  if o.continue_final_message and o.add_generation_prompt then
    raise "apply_chat_template: add_generation_prompt begins a message, continue_final_message continues one; set only one"
  end
  local names = { messages = messages, tools = o.tools, documents = o.documents, add_generation_prompt = o.add_generation_prompt }
  for _, name in ipairs(special_tokens.names) do names[name] = tok[name] end
  for name, value in next, o.variables do names[name] = value end
  local text, message = template_of(tok, o):try_render(names, { limit = o.template_limit })
  if not text then raise("apply_chat_template: %s", message) end
  if o.continue_final_message then text = without_end(text, messages) end
  if not o.tokenize then
    if o.return_tensors then no_effect.once("apply_chat_template", "return_tensors", "with tokenize = false; leave it out") end
    return text
  end
  local ids = tok:encode(text, { add_special_tokens = false }).ids
  if not o.return_tensors then return ids end
  return accel.tensor({ ids }, { dtype = "i64" })
end

return M
