-- Messages of Jupyter's protocol (version 5) as frames of ZeroMQ, and back: names of peers, a delimiter, the signature, and four JSON
-- objects. It does not depend on sockets. Used by kernel.lua.
local accel = ...

local M = {}

M.VERSION = "5.3"
local DELIMITER <const> = "<IDS|MSG>"
local EMPTY <const> = "{}"

local random -- of the kernel of the operating system

--- 32 random digits in the groups of a UUID.
---@return string
function M.uuid()
  random = random or assert(io.open("/dev/urandom", "rb"))
  local digits = random:read(16):gsub(".", function(c) return ("%02x"):format(c:byte()) end)
  return ("%s-%s-%s-%s-%s"):format(digits:sub(1, 8), digits:sub(9, 12), digits:sub(13, 16), digits:sub(17, 20), digits:sub(21))
end

--- The header of a new message.
function M.header(kind, session)
  return { msg_id = M.uuid(), session = session, username = os.getenv "USER" or "accel", date = os.date "!%Y-%m-%dT%H:%M:%SZ", msg_type = kind,
    version = M.VERSION }
end

--- The signature of the four parts. "" without a key.
---@param key string
---@param parts string[]
---@return string
function M.sign(key, parts) return key == "" and "" or accel.console.hmac(key, table.concat(parts)) end

--- Text of any bytes as JSON takes it: invalid UTF-8 becomes U+FFFD.
---@return string
function M.utf8(text)
  if utf8.len(text) then return text end
  local out, at = {}, 1
  while at <= #text do
    local _, bad = utf8.len(text, at)
    if not bad then break end
    out[#out + 1] = text:sub(at, bad - 1) .. "\u{FFFD}"
    at = bad + 1
  end
  return table.concat(out) .. text:sub(at)
end

--- Frames of a message to the peers `ids` (for a publisher: its topic).
---@param key string
---@param ids string[]
---@param message {header: table, parent: table?, metadata: table?, content: table}
---@return string[]
function M.pack(key, ids, message)
  local parts = {}
  for i, part in ipairs { message.header, message.parent or {}, message.metadata or {}, message.content } do parts[i] = accel.json.encode(part) end
  local frames = table.move(ids, 1, #ids, 1, {})
  frames[#frames + 1] = DELIMITER
  frames[#frames + 1] = M.sign(key, parts)
  return table.move(parts, 1, #parts, #frames + 1, frames)
end

local function object(text)
  if text == EMPTY then return {} end
  local ok, value = pcall(accel.json.decode, text)
  return ok and type(value) == "table" and text:find "^%s*{" and value or nil
end

--- A message from frames: {ids, header, parent, metadata, content, signature}. nil, reason: it is malformed, or its signature is wrong, so
--- that nothing in it may be believed. Never raises.
---@param key string
---@param frames string[]
---@return table? message
---@return string? why
function M.unpack(key, frames)
  local at
  for i, frame in ipairs(frames) do
    if frame == DELIMITER then
      at = i
      break
    end
  end
  if not at then return nil, "a message without a delimiter" end
  if #frames < at + 5 then return nil, ("a message of %d parts after its delimiter; expected 5"):format(#frames - at) end
  local signature, parts = frames[at + 1], table.move(frames, at + 2, at + 5, 1, {})
  if key ~= "" then
    if signature == "" then return nil, "a message without a signature" end
    if not accel.console.same(M.sign(key, parts), signature) then return nil, "a message with a wrong signature" end
  end
  local m = { ids = table.move(frames, 1, at - 1, 1, {}), signature = signature }
  for i, name in ipairs { "header", "parent", "metadata", "content" } do
    m[name] = object(parts[i])
    if not m[name] then return nil, ("a message whose %s is not a JSON object"):format(name) end
  end
  local h = m.header
  if type(h.msg_type) ~= "string" or type(h.msg_id) ~= "string" then return nil, "a message whose header lacks msg_type or msg_id" end
  return m
end

return M
