-- The part of dap.lua for what an editor shows of a stopped rank: its stack, variables, expressions, completions, error, files. Requests
-- are answered in the rank (lua/repl/variables.lua).
local accel = ...
local commands = accel.host_chunk "repl/commands"
local array = accel.json.array

local function path_of(path)
  if path:sub(1, 1) ~= "@" then return path end
  path = path:sub(2)
  return path:sub(1, 1) == "/" and path or ("%s/%s"):format(os.getenv "PWD" or ".", path)
end

local function source_of(path) return { name = path:match "[^/]*$", path = path_of(path) } end

--- Adds these requests to the table of handlers. o.here(client, thread): its rank, if it stands. o.ask(client, rank, request): the rank's
--- answer. o.number(client, thing): by which an editor refers to it.
---@param serve table<string, function>
---@param o {here: function, ask: function, number: function}
return function(serve, o)
  local here, ask, number = o.here, o.ask, o.number

  -- A value that a rank answered, under this key. A tensor's bytes can be read.
  local function shown(self, key, rank, answer)
    local ref = answer.ref and number(self, { rank = rank, ref = answer.ref })
    return { [key] = answer.value, type = answer.type, variablesReference = ref or 0,
      memoryReference = answer.type == "tensor" and tostring(ref) or nil }
  end

  function serve.stackTrace(session, a)
    local self = session.client
    local rank, why = here(self, a.threadId)
    if not rank then return nil, why end
    local answer
    answer, why = ask(self, rank, { op = "stack" })
    if not answer then return nil, why end
    local list, first = array {}, math.tointeger(a.startFrame) or 0
    local count = math.tointeger(a.levels) or 0
    local last = count > 0 and math.min(#answer.frames, first + count) or #answer.frames
    for i = math.max(0, first) + 1, last do
      local frame = answer.frames[i]
      list[#list + 1] = { id = number(self, { rank = rank, frame = i }), name = frame.name, line = frame.line, column = 1,
        source = source_of(frame.path), presentationHint = frame.library and "subtle" or "normal" }
    end
    return { stackFrames = list, totalFrames = #answer.frames }
  end

  function serve.scopes(session, a)
    local self = session.client
    local frame = self.things[a.frameId]
    if not frame then return nil, "the stack is not shown any more" end
    local list = array {}
    for _, scope in ipairs { { "Locals", "local" }, { "Upvalues", "upvalue" }, { "Globals", "global" } } do
      list[#list + 1] = { name = scope[1], expensive = scope[2] == "global",
        variablesReference = number(self, { rank = frame.rank, frame = frame.frame, scope = scope[2] }) }
    end
    return { scopes = list }
  end

  function serve.variables(session, a)
    local self = session.client
    local what = self.things[a.variablesReference]
    if not what then return nil, "the value is not shown any more" end
    local answer, why = ask(self, what.rank, { op = "variables", ref = what.ref, frame = what.frame, scope = what.scope })
    if not answer then return nil, why end
    local list = array {}
    for _, v in ipairs(answer.variables) do
      list[#list + 1] = shown(self, "value", what.rank, v)
      list[#list].name = v.name
    end
    return { variables = list }
  end

  --- What a rank does not send at once, editors ask for again.
  function serve.readMemory(session, a)
    local self = session.client
    local what = self.things[math.tointeger(tonumber(a.memoryReference)) or 0]
    if not what or not what.ref then return nil, "the tensor is not shown any more" end
    local offset, count = math.tointeger(a.offset) or 0, math.max(0, math.tointeger(a.count) or 0)
    local answer, why = ask(self, what.rank, { op = "bytes", ref = what.ref, offset = offset, count = count })
    if not answer then return nil, why end
    return { address = ("0x%x"):format(math.max(0, math.min(offset, answer.bytes))), data = answer.data,
      unreadableBytes = offset + count > answer.bytes and offset + count - math.max(offset, answer.bytes) or nil }
  end

  function serve.setVariable(session, a)
    local self = session.client
    local what = self.things[a.variablesReference]
    if not what then return nil, "the value is not shown any more" end
    local answer, why = ask(self, what.rank, { op = "set_variable", ref = what.ref, frame = what.frame, name = tostring(a.name),
      text = tostring(a.value) })
    if not answer then return nil, why end
    return shown(self, "value", what.rank, answer)
  end

  --- In every context. In the editor's console, ":stats x" is a command of the prompt.
  function serve.evaluate(session, a)
    local self = session.client
    local frame = a.frameId and self.things[a.frameId]
    local rank = frame and frame.rank or self:alive()[1]
    if not rank then return nil, "no rank stands" end
    local text = commands.normal(tostring(a.expression))
    local name, rest = nil, nil
    if a.context == "repl" then name, rest = commands.split(text) end
    if name then
      local answer, why = ask(self, rank, { op = "command", name = name, rest = rest, frame = frame and frame.frame })
      return answer and { result = table.concat(answer.lines, "\n"), variablesReference = 0 }, why
    end
    local answer, why = ask(self, rank, { op = "evaluate_at", text = text, frame = frame and frame.frame })
    if not answer then return nil, why end
    return shown(self, "result", rank, answer)
  end

  function serve.completions(session, a)
    local self = session.client
    local frame = a.frameId and self.things[a.frameId]
    local rank = frame and frame.rank or self:alive()[1]
    if not rank then return nil, "no rank stands" end
    local column = math.tointeger(a.column) or 1
    local line = tostring(a.text):sub(1, math.max(0, column - 1))
    local word = line:match "[%w_.:]*$"
    local answer, why = ask(self, rank, { op = "complete_at", text = line, word = word, frame = frame and frame.frame })
    if not answer then return nil, why end
    local targets = array {}
    for i, text in ipairs(answer.lines) do
      targets[i] = { label = text, text = text, start = column - #word, length = #word }
    end
    return { targets = targets }
  end

  function serve.exceptionInfo(session, a)
    local self = session.client
    local rank, why = here(self, a.threadId)
    if not rank then return nil, why end
    why = self.ranks[rank].hello.why
    if why.reason ~= "an error" and why.reason ~= "exception" then return nil, ("rank %d has no error"):format(rank) end
    return { exceptionId = "error", description = why.message, breakMode = why.reason == "an error" and "unhandled" or "always",
      details = { message = why.message, typeName = "error" } }
  end

  function serve.loadedSources(session)
    local self = session.client
    local rank, list, why = self:alive()[1], array {}, nil
    if not rank then return nil, "no rank stands" end
    local answer
    answer, why = ask(self, rank, { op = "sources" })
    if not answer then return nil, why end
    for i, path in ipairs(answer.paths) do list[i] = source_of(path) end
    return { sources = list }
  end
end
