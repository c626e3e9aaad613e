--- checked(f): the check of a family's configuration as a whole, by making its description. Used by decoder/family.lua and
--- encoder/family.lua.
---@param f {check: (fun(c: table): string?, string?)?, describe: fun(c: table): table}
---@return fun(c: table): string?, string?
return function(f)
  return function(c)
    if f.check then
      local problem, code = f.check(c)
      if problem then return problem, code end
    end
    if c.pad_token_id and c.pad_token_id >= c.vocab_size then
      return ("pad_token_id %d is outside of the vocabulary of %d"):format(c.pad_token_id, c.vocab_size)
    end
    local ok, why = pcall(f.describe, c)
    if ok then return nil end
    if type(why) == "table" and why.problem then return why.problem, why.code end
    error(why, 0)
  end
end
