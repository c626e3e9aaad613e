--- Outbox: what trackers of servers log, on its way there. It goes into a file of lines, a journal, which a thread of its own (outbox_sender)
--- reads and sends; a server that is slow, refuses, or is not there stops no step, and what it has not taken stays in the file for
--- `accel-run runs sync`. Used by server_tracker.lua.
local accel = require "accel"
local class = require "accel.util.class"
local core = require "accel.track.core"
local environment = require "accel.track.environment"
local raise = require "accel.util.raise"

local LOOK_SECONDS <const>, STOP_SECONDS <const> = 1, 3

--- A journal with its sender.
---@class accel.track.Outbox
---@field path string
local Outbox = class "accel.track.Outbox"

---@param tracker string
---@param setup table plain data for the driver, without secrets
---@param opts {outbox: string, outbox_bytes: integer}
function Outbox:init(tracker, setup, opts)
  local version, message = core.rest_library()
  if not version then raise("tracker '%s': %s", tracker, message) end
  local ok, why = accel.makedirs(opts.outbox)
  if not ok then raise("tracker '%s': %s", tracker, why) end
  self.tracker, self.uid = tracker, environment.random_id(12)
  self.path = ("%s/%s-%s.jsonl"):format(opts.outbox, tracker, self.uid)
  self.left, self.next_look, self.dropped = opts.outbox_bytes, 0, 0
  local head = accel.json.encode { tracker = tracker, uid = self.uid, setup = setup } .. "\n"
  local writer, text = core.lines(self.path, head)
  if not writer then raise("tracker '%s': %s", tracker, text) end
  self.writer = writer
  self.worker = accel.worker.start("accel.track.outbox_sender", { path = self.path }, { name = "accel-" .. tracker })
end

local function say(self, fmt, ...) io.stderr:write(("accel: tracker '%s': "):format(self.tracker), fmt:format(...), "\n") end

--- What the sender has to say: true once everything is sent.
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

--- Puts an entry into the journal: k = "metrics", "params", "tags", "text", "artifact" with what belongs to it.
---@param entry table
function Outbox:add(entry)
  entry.t = entry.t or core.now()
  local text = accel.json.encode(entry) .. "\n"
  self.left = self.left - #text
  if self.left < 0 then
    self.dropped = self.dropped + 1
    if self.dropped == 1 then say(self, "its outbox %s is full (outbox_bytes); what comes now is left out", self.path) end
    return
  end
  self.writer:bytes(0, text)
  local now = accel.clock()
  if now < self.next_look then return end
  self.next_look = now + LOOK_SECONDS
  local why = self.writer:fault()
  if why and not self.faulty then say(self, "%s; training goes on, and it is tried again every second", why) end
  self.faulty = why ~= nil
  if self.worker then
    local heard = hear(self, 0)
    if heard == nil then
      self.worker:close()
      self.worker = nil
    end
  end
end

--- Waits until everything is sent, at most so many seconds; then says what is left and how it gets there.
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
  if not sent then say(self, "not everything could be sent; `accel-run runs sync '%s'` sends the rest", self.path) end
  return sent
end

return Outbox
