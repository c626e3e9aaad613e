--- Messages of a chat before its template sees them, as Transformers prepares them: fields that are null are left out, reasoning is found
--- under each of its names, and the last message can be marked as one to continue. The caller's messages are not changed. Used by
--- chat_template.lua.
local accel = require "accel"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"

local M = {}

-- Templates read reasoning_content, older ones thinking.
local REASONING <const> = { "reasoning_content", "thinking", "reasoning" }

-- Characters for private use, which chats do not have. The blank shows whether the template strips the message.
local MARK <const> = "\u{F8C1}\u{F8C2} "

local function given(value) return value ~= nil and value ~= accel.json.null end

--- The messages without fields that are null.
---@param messages table[]
---@return table[]
function M.without_nulls(messages)
  local out = {}
  for i, message in ipairs(messages) do
    local copy = ordered()
    for name, value in ordered.iterate(message) do
      if given(value) then copy[name] = value end
    end
    out[i] = copy
  end
  return out
end

--- Copies of the messages, in which reasoning is both reasoning_content and thinking.
---@param messages table[]
---@return table[]
function M.with_reasoning(messages)
  local out = {}
  for i, message in ipairs(messages) do
    local reasoning
    for _, name in ipairs(REASONING) do
      if reasoning == nil and given(message[name]) then reasoning = message[name] end
    end
    local copy = ordered()
    copy.thinking = reasoning
    for name, value in ordered.iterate(message) do copy[name] = value end
    if reasoning ~= nil then copy.reasoning_content = reasoning end
    out[i] = copy
  end
  return out
end

local function trimmed(s) return s:match "^%s*(.-)%s*$" end

--- Puts a mark at the end of the last message's text. Returns the text.
---@param messages table[] copies of with_reasoning
---@param field string|boolean the name of the text's field. true: content
---@param source string the template's text
---@return string
function M.mark_last(messages, field, source)
  field = field == true and "content" or field
  local last = messages[#messages]
  local text = last and last[field]
  local fields, read = { field }, false
  for _, name in ipairs(REASONING) do
    if name == field then -- one text under several names
      fields = {}
      for _, other in ipairs(REASONING) do
        if last and last[other] == text then fields[#fields + 1] = other end
      end
    end
  end
  for _, name in ipairs(fields) do read = read or source:find(name, 1, true) ~= nil end
  if type(text) == "string" and read then
    for _, name in ipairs(fields) do last[name] = text .. MARK end
    return text
  end
  if type(text) == "table" and read then
    local parts = {}
    for i, part in ipairs(text) do parts[i] = part end
    for i = #parts, 1, -1 do
      if type(parts[i]) == "table" and type(parts[i].text) == "string" then
        local copy = ordered()
        for name, value in ordered.iterate(parts[i]) do copy[name] = value end
        copy.text = parts[i].text .. MARK
        parts[i], last[field] = copy, parts
        return copy.text:sub(1, -#MARK - 1)
      end
    end
  end
  if not read and given(text) then
    raise("apply_chat_template: the template changes the last message: it cannot be continued, since the template does not read '%s'",
      field)
  end
  raise("apply_chat_template: continue_final_message needs a text in the last message's '%s'", field)
end

--- The rendered chat up to the mark of mark_last.
---@param text string
---@param message string the text that was marked
---@return string
function M.cut_at_mark(text, message)
  local mark, at, from = trimmed(MARK), nil, 1
  while true do
    local a, b = text:find(mark, from, true)
    if not a then break end
    at, from = a, b + 1
  end
  if not at or not text:find(trimmed(message), 1, true) then
    raise "apply_chat_template: the template changes the last message: it cannot be continued"
  end
  local head = text:sub(1, at - 1)
  if text:sub(at, at + #MARK - 1) == MARK then return head end
  return head:match "^(.-)%s*$" -- the template strips messages
end

return M
