--- Names for a message: "'a', 'b'", and their total number if not all are shown.

---@param names string[]
---@param most? integer maximum number shown. Default 40
---@return string
return function(names, most)
  local shown = {}
  most = most or 40
  for i = 1, math.min(#names, most) do shown[i] = "'" .. names[i] .. "'" end
  if #names > most then shown[#shown + 1] = ("... (%d in all)"):format(#names) end
  return table.concat(shown, ", ")
end
