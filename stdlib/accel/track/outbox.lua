--- Outbox: transfers the logs of server trackers. It appends them to a file of lines, a journal, which a separate thread (outbox_sender)
--- reads and sends. A server that is slow, refuses, or is down blocks no step, and unsent entries stay in the file for
--- `accel-run runs sync`. Used by server_tracker.lua.
local accel = require "accel"
local class = require "accel.util.class"
local core = require "accel.track.core"
local environment = require "accel.track.environment"
local raise = require "accel.util.raise"
local terminal = require "accel.util.terminal"

local LOOK_SECONDS <const>, STOP_SECONDS <const> = 1, 3

--- A journal with its sender.
---@class accel.track.Outbox
---@field path string
local Outbox = class "accel.track.Outbox"

---@param tracker string
---@param setup table plain data for the driver, without secrets
---@param opts {outbox: string, outbox_bytes: integer}
---@param credentials? string "user:password" of the server, for the sender
function Outbox:init(tracker, setup, opts, credentials)
  local version, message = core.rest_library()
  if not version then raise("tracker '%s': %s", tracker, message) end
  local ok, why = accel.makedirs(opts.outbox)
  if not ok then raise("tracker '%s': %s", tracker, why) end
  self.tracker, self.uid = tracker, environment.random_id(12)
  self.path = ("%s/%s-%s.jsonl"):format(opts.outbox, tracker, self.uid)
  self.left, self.next_look, self.dropped = opts.outbox_bytes, 0, 0
  local head = accel.json.encode { tracker = tracker, uid = self.uid, setup = setup } .. "\n"
  local made, problem = accel.write_file(self.path, head, { private = true }) -- parameters may be secret
  if not made then raise("tracker '%s': %s", tracker, problem) end
  local writer, text = core.lines(self.path)
  if not writer then raise("tracker '%s': %s", tracker, text) end
  self.writer = writer
  self.worker = accel.worker.start("accel.track.outbox_sender", { path = self.path, credentials = credentials }, { name = "accel-" .. tracker })
end

local function say(self, fmt, ...) io.stderr:write(("accel: tracker '%s': "):format(self.tracker), terminal.visible(fmt:format(...)), "\n") end

--- Reports the sender's messages. true once everything is sent.
local function hear(self, seconds)
  local ok, event = self.worker:receive(seconds)
  if ok == nil then -- the thread has ended by an error
    say(self, "its sender ended: %s", tostring(event))
    return nil
  end
  if not ok then return false end
  if event.warn then say(self, "%s", event.warn) end
  return event.done or false
end

--- Appends an entry to the journal: k = "metrics", "params", "tags", "text", "artifact" with its fields.
---@param entry table
function Outbox:add(entry)
  entry.t = entry.t or core.now()
  local text = accel.json.encode(entry) .. "\n"
  self.left = self.left - #text
  if self.left < 0 then
    self.dropped = self.dropped + 1
    if self.dropped == 1 then say(self, "its outbox %s is full (outbox_bytes); new entries are left out", self.path) end
    return
  end
  self.writer:bytes(0, text)
  local now = accel.clock()
  if now < self.next_look then return end
  self.next_look = now + LOOK_SECONDS
  local why = self.writer:fault()
  if why and not self.faulty then say(self, "%s; training continues, and sending is retried every second", why) end
  self.faulty = why ~= nil
  if self.worker then
    local heard = hear(self, 0)
    if heard == nil then
      self.worker:close()
      self.worker = nil
    end
  end
end

--- Waits until everything is sent, with a limit in seconds. Then reports unsent entries and how to send them.
---@param seconds number
---@return boolean sent
function Outbox:finish(seconds)
  local ok, message = self.writer:close()
  if not ok then say(self, "the end of the run is lost: %s", message) end
  local deadline, sent = accel.clock() + seconds, false
  while self.worker and not sent and accel.clock() < deadline do
    local heard = hear(self, math.max(0, math.min(0.2, deadline - accel.clock())))
    if heard == nil then break end
    sent = heard
  end
  if self.worker and not sent then -- a request under way is given up
    accel.write_file(self.path .. ".stop", "")
    local until_ = accel.clock() + STOP_SECONDS
    while accel.clock() < until_ do
      local got, event = self.worker:receive(0.1)
      if got == nil then break end
      if got and event.warn then say(self, "%s", event.warn) end
      if got and event.done then sent = true end
      if got and (event.done or event.stopped) then break end
    end
  end
  if self.worker then self.worker:close() end
  self.worker = nil
  os.remove(self.path .. ".stop")
  if not sent then say(self, "not everything was sent; send the rest with `accel-run runs sync '%s'`", self.path) end
  return sent
end

return Outbox
