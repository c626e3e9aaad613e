--- Names of machines as ssh and its like take them: a name, an alias, user@name, an address. One that begins with "-" would be read as an
--- option, and `-oProxyCommand=...` runs a program. Every name from a file, the command line or a peer comes through here on its way to ssh.

--- The name, or nil and its error.
---@param name string
---@return string? name
---@return string? message
return function(name)
  if name:find "^[%w%[][%w%.%-_:@%%%]]*$" then return name end
  return nil, ("%q is not a host name; expected letters, digits and .-_:@ after a letter or a digit"):format(name)
end
