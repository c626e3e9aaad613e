-- Chat templates in the style of well-known models: the text of each conversation, the assistant's parts, and the errors, as
-- Transformers has them. Used by folders.lua and tests/stdlib/text/folders_test.lua.
local accel = require "accel"
local chat_template = require "accel.text.chat_template"

local M = {}

local function read(path)
  local f <close> = assert(io.open(path, "rb"))
  return f:read "a"
end

--- Arguments of a case: names of the file's tools and documents in their place.
local function arguments_of(case, all)
  local out = {}
  for name, value in pairs(case.arguments) do out[name] = value end
  if out.tools == "all" then
    out.tools = all.tools
  elseif out.tools == "last two, reversed" then
    out.tools = { all.tools[#all.tools], all.tools[#all.tools - 1] }
  end
  if out.custom_tools == "first" then out.custom_tools = { all.tools[1] } end
  if out.documents == "documents" then out.documents = all.documents end
  return out
end

--- Compares one template; report(quantity, distance, bar) is called for what differs.
---@param path string
---@param report fun(quantity: string, distance: any, bar: any)
---@param row table
function M.check(path, report, row)
  local all = accel.json.decode(read(path:sub(1, -#row.name - 1) .. row.expected), { ordered = true, nulls = true })
  local source, name = read(path), row.name:match "([^/]*)%.jinja$"
  local tok = accel.text.train_bpe({ "" }, { vocab_size = 256 })
  tok.chat_template = source
  local template = accel.text.Template(source, name)
  for i, case in ipairs(all.cases) do
    if case.template == name then
      local what = ("case %d (%s)"):format(i, case.conversation)
      local given, o = arguments_of(case, all), { template_limit = 1 }
      o.continue_final_message, given.continue_final_message = given.continue_final_message, nil
      local names = { tools = given.tools, documents = given.documents, add_generation_prompt = false }
      for key, value in next, given do names[key] = value end
      local messages = all.conversations[case.conversation]
      local ok, text, spans = pcall(chat_template.render, template, messages, names, o)
      if case.error then
        local message = ok and text or tostring(type(text) == "table" and text.message or text)
        if ok then
          report(what, "gives " .. text:sub(1, 100), case.error)
        elseif case.error == "TemplateError" and not message:find(case.message, 1, true) then
          report(what .. ": message", message, case.message)
        end
      elseif not ok then
        report(what, tostring(type(text) == "table" and text.message or text), "no error")
      elseif text ~= case.text then
        report(what, ("%q"):format(text), ("%q"):format(case.text))
      end
      if ok and case.assistant_spans then
        local function shown(list)
          local parts = {}
          for k, span in ipairs(list) do parts[k] = span[1] .. "-" .. span[2] end
          return table.concat(parts, " ")
        end
        if shown(spans) ~= shown(case.assistant_spans) then report(what .. ": spans", shown(spans), shown(case.assistant_spans)) end
        -- a token is the assistant's if a part of it is: here tokens are bytes. The mask is that of a text without fields that are null.
        given.tokenize, given.return_assistant_tokens_mask, given.bos_token, given.eos_token = false, true, nil, nil
        text, spans = tok:apply_chat_template(messages, given)
        given.tokenize, given.return_dict = true, true
        local out = tok:apply_chat_template(messages, given)
        local mask, at = {}, 0
        for p, code in utf8.codes(text) do
          for _ = 1, #utf8.char(code) do mask[#mask + 1] = 0 end
          for _, span in ipairs(spans) do
            if at >= span[1] and at < span[2] then
              for byte = p, p + #utf8.char(code) - 1 do mask[byte] = 1 end
            end
          end
          at = at + 1
        end
        if table.concat(mask) ~= table.concat(out.assistant_masks) then
          report(what .. ": mask", table.concat(out.assistant_masks), table.concat(mask))
        end
      end
    end
  end
end

return M
