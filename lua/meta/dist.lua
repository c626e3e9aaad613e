---@meta
-- Functions of accel.dist that come from C, for editors and for the reference page dist.md; the tests run the examples,
-- in a world of one, and find names that are missing here. A line "-- ## TITLE" begins a section of the page.

---@class accel.dist
local dist = {}
accel.dist = dist

---Some of the ranks, from accel.dist.new_group; accel.dist.group.WORLD is all of them.
---@class accel.dist.Group
local Group = {}

---A collective under way: what the functions return when they are given async_op = true.
---@class accel.dist.Work
local Work = {}

---@alias accel.dist.Op "sum"|"avg"|"min"|"max"|"prod"
---@class accel.dist.Options: {group: accel.dist.Group?, async_op: boolean?}

-- ## The world

---Joins the other ranks, when the launcher has not done so already. backend: "shm", "tcp", "mpi", "solo"; "gloo"
---and "auto" are the best that serves. "sim" plays rank `rank` of a world of `world_size` that is not there:
---collectives count bytes and return, also for tensors on meta; machines (1) is how many the ranks are on, and shares_memory whether those of
---one have memory in common. timeout: seconds of every wait for another rank. device_id: the device
---that this rank works on ("cuda:1"), given on all ranks alike: where each has a GPU of its own and NCCL, their communicator is made at once,
---and send, recv, isend and irecv of tensors on it go from GPU to GPU; without it they go through memory of the host. An Accelerator says so.
---example: accel.dist.init_process_group("gloo", { timeout = 60 }) return accel.dist.get_timeout() --> 60
---@param backend? string
---@param opts? {backend: string?, timeout: number?, rank: integer?, world_size: integer?, machines: integer?, shares_memory: boolean?,
---  device_id: string?}
function accel.dist.init_process_group(backend, opts) end

---Lets a group go; without one, leaves the world: ranks that still wait for this one are told. A script need not:
---its end leaves, too.
---example: local g = accel.dist.new_group { 0 } accel.dist.destroy_process_group(g) return tostring(g)
---  --> "Group(destroyed)"
---@param group? accel.dist.Group
function accel.dist.destroy_process_group(group) end

---Whether a world was joined or made. Any other function makes one.
---example: accel.dist.barrier() return accel.dist.is_initialized() --> true
---@return boolean
function accel.dist.is_initialized() end

---This rank's number, from 0, in the world or in a group: -1 when it is not a member.
---example: accel.dist.get_rank() --> 0
---@param group? accel.dist.Group
---@return integer
function accel.dist.get_rank(group) end

---How many ranks there are in the world or in a group: -1 when this one is not a member.
---example: accel.dist.get_world_size() --> 1
---@param group? accel.dist.Group
---@return integer
function accel.dist.get_world_size(group) end

---This rank's number among those of its machine.
---example: accel.dist.get_local_rank() --> 0
---@return integer
function accel.dist.get_local_rank() end

---The same, by its longer name.
---example: accel.dist.get_node_local_rank() --> 0
---@return integer
function accel.dist.get_node_local_rank() end

---How many ranks this machine has.
---example: accel.dist.get_local_world_size() --> 1
---@return integer
function accel.dist.get_local_world_size() end

---This machine's number, from 0.
---example: accel.dist.get_node_rank() --> 0
---@return integer
function accel.dist.get_node_rank() end

---How many machines there are.
---example: accel.dist.get_num_nodes() --> 1
---@return integer
function accel.dist.get_num_nodes() end

---What carries the bytes: "solo", "shm", "tcp", "mpi" or "sim".
---example: accel.dist.get_backend() --> "solo"
---@param group? accel.dist.Group
---@return string
function accel.dist.get_backend(group) end

---Seconds after which a wait for another rank is an error with code "timeout" (accel-run --timeout,
---ACCEL_TIMEOUT).
---example: accel.dist.set_timeout(90) return accel.dist.get_timeout() --> 90
---@param seconds number
function accel.dist.set_timeout(seconds) end

---The seconds that set_timeout sets.
---example: accel.dist.get_timeout() > 0 --> true
---@return number
function accel.dist.get_timeout() end

-- ## Groups

---A group of some ranks, put in rising order; nil is all of them. Every rank of the world calls it, members or
---not, with the same list. Collectives of a group are called by its members alone.
---example: tostring(accel.dist.new_group { 0 }) --> "Group(rank 0)"
---@param ranks? integer[]
---@return accel.dist.Group
function accel.dist.new_group(ranks) end

---The members of a group as ranks of the world.
---example: accel.dist.get_process_group_ranks() --> { 0 }
---@param group? accel.dist.Group
---@return integer[]
function accel.dist.get_process_group_ranks(group) end

---The rank in the world of a group's member.
---example: accel.dist.get_global_rank(accel.dist.new_group { 0 }, 0) --> 0
---@param group accel.dist.Group?
---@param group_rank integer
---@return integer
function accel.dist.get_global_rank(group, group_rank) end

---The rank in a group of a rank of the world; nil when it is not a member.
---example: accel.dist.get_group_rank(accel.dist.new_group { 0 }, 0) --> 0
---@param group accel.dist.Group?
---@param global_rank integer
---@return integer?
function accel.dist.get_group_rank(group, global_rank) end

---This rank's number in the group; -1 when it is not a member.
---example: accel.dist.group.WORLD:rank() --> 0
---@return integer
function Group:rank() end

---How many members the group has; -1 when this rank is none.
---example: accel.dist.group.WORLD:size() --> 1
---@return integer
function Group:size() end

---The members as ranks of the world.
---example: accel.dist.group.WORLD:ranks() --> { 0 }
---@return integer[]
function Group:ranks() end

-- ## Collectives

---Reduces t over all ranks, element by element, in place. op: "sum" (if not given), "avg", "min", "max", "prod",
---or what accel.dist.ReduceOp has. The order of additions is fixed; 16-bit floats are added in f32 and rounded
---once.
---example: local t = accel.tensor { 1, 2 } accel.dist.all_reduce(t, "max") return t --> { 1, 2 }
---@param tensor accel.Tensor
---@param op? accel.dist.Op
---@param opts? accel.dist.Options|{op: accel.dist.Op?}
---@return accel.dist.Work?
function accel.dist.all_reduce(tensor, op, opts) end

---all_reduce whose result rank dst alone gets; the tensors of the others stay as they are.
---example: local t = accel.tensor { 1, 2 } accel.dist.reduce(t, 0) return t --> { 1, 2 }
---@param tensor accel.Tensor
---@param dst integer
---@param op? accel.dist.Op
---@param opts? accel.dist.Options|{op: accel.dist.Op?, dst: integer?, group_dst: integer?}
---@return accel.dist.Work?
function accel.dist.reduce(tensor, dst, op, opts) end

---Gives rank src's tensor to all, in place.
---example: local t = accel.tensor { 1, 2 } accel.dist.broadcast(t, 0) return t --> { 1, 2 }
---@param tensor accel.Tensor
---@param src integer
---@param opts? accel.dist.Options|{src: integer?, group_src: integer?}
---@return accel.dist.Work?
function accel.dist.broadcast(tensor, src, opts) end

---Puts the tensor of rank r into entry r + 1 of the list, on all ranks. First extents may differ from rank to
---rank: the list says them, so it must be the same everywhere. What lies in a row (out:chunk(n), out:unbind())
---needs no copy.
---example: local list = { accel.zeros(2) } accel.dist.all_gather(list, accel.ones(2)) return list --> { { 1, 1 } }
---@param tensor_list accel.Tensor[]
---@param tensor accel.Tensor
---@param opts? accel.dist.Options
---@return accel.dist.Work?
function accel.dist.all_gather(tensor_list, tensor, opts) end

---all_gather into one tensor, which has world_size times the elements of input_tensor. The input may be its own
---part of the output.
---example: local out = accel.zeros(1, 2) accel.dist.all_gather_into_tensor(out, accel.ones(2)) return out
---  --> { { 1, 1 } }
---@param output_tensor accel.Tensor
---@param input_tensor accel.Tensor
---@param opts? accel.dist.Options
---@return accel.dist.Work?
function accel.dist.all_gather_into_tensor(output_tensor, input_tensor, opts) end

---all_gather for one rank: dst (0, if not given) has a gather_list of tensors in the shape of its own.
---example: local list = { accel.zeros(2) } accel.dist.gather(accel.ones(2), { gather_list = list }) return list
---  --> { { 1, 1 } }
---@param tensor accel.Tensor
---@param opts? accel.dist.Options|{gather_list: accel.Tensor[]?, dst: integer?, group_dst: integer?}
---@return accel.dist.Work?
function accel.dist.gather(tensor, opts) end

---Puts entry r + 1 of the scatter_list of rank src (0, if not given) into the tensor of rank r.
---example: local t = accel.zeros(2) accel.dist.scatter(t, { scatter_list = { accel.ones(2) } }) return t
---  --> { 1, 1 }
---@param tensor accel.Tensor
---@param opts? accel.dist.Options|{scatter_list: accel.Tensor[]?, src: integer?, group_src: integer?}
---@return accel.dist.Work?
function accel.dist.scatter(tensor, opts) end

---Reduces the lists of all ranks entry by entry; rank r gets entry r + 1. First extents may differ from entry to
---entry.
---example: local t = accel.zeros(2) accel.dist.reduce_scatter(t, { accel.ones(2) }) return t --> { 1, 1 }
---@param output accel.Tensor
---@param input_list accel.Tensor[]
---@param op? accel.dist.Op
---@param opts? accel.dist.Options|{op: accel.dist.Op?}
---@return accel.dist.Work?
function accel.dist.reduce_scatter(output, input_list, op, opts) end

---reduce_scatter of one tensor, which has world_size times the elements of the output. The output may be its own
---part of the input.
---example: local t = accel.zeros(2) accel.dist.reduce_scatter_tensor(t, accel.ones(1, 2)) return t --> { 1, 1 }
---@param output accel.Tensor
---@param input accel.Tensor
---@param op? accel.dist.Op
---@param opts? accel.dist.Options|{op: accel.dist.Op?}
---@return accel.dist.Work?
function accel.dist.reduce_scatter_tensor(output, input, op, opts) end

---Sends entry r + 1 of input_list to rank r, and puts what comes from rank r into entry r + 1 of output_list.
---example: local list = { accel.zeros(2) } accel.dist.all_to_all(list, { accel.ones(2) }) return list
---  --> { { 1, 1 } }
---@param output_list accel.Tensor[]
---@param input_list accel.Tensor[]
---@param opts? accel.dist.Options
---@return accel.dist.Work?
function accel.dist.all_to_all(output_list, input_list, opts) end

---all_to_all of tensors that are cut along the first dim: equally, or by lists of rows for each rank.
---example: local t = accel.zeros(2) accel.dist.all_to_all_single(t, accel.ones(2), { input_split_sizes = { 2 } })
---  return t --> { 1, 1 }
---@param output accel.Tensor
---@param input accel.Tensor
---@param opts? accel.dist.Options|{output_split_sizes: integer[]?, input_split_sizes: integer[]?}
---@return accel.dist.Work?
function accel.dist.all_to_all_single(output, input, opts) end

---Returns when all ranks have called it.
---example: accel.dist.barrier() return true --> true
---@param opts? accel.dist.Options
---@return accel.dist.Work?
function accel.dist.barrier(opts) end

-- ## One to one

---Sends a tensor to rank dst, which has to receive as many elements of the same dtype. Messages between two ranks
---keep their order; a tag tells them apart.
---example: select(2, pcall(accel.dist.send, accel.ones(1), 0)).code --> "invalid_argument"
---@param tensor accel.Tensor
---@param dst integer
---@param opts? {group: accel.dist.Group?, group_dst: integer?, dst: integer?, tag: integer?}
function accel.dist.send(tensor, dst, opts) end

---Receives what rank src sends into the tensor; returns src.
---example: select(2, pcall(accel.dist.recv, accel.ones(1), 0)).code --> "invalid_argument"
---@param tensor accel.Tensor
---@param src integer
---@param opts? {group: accel.dist.Group?, group_src: integer?, src: integer?, tag: integer?}
---@return integer src
function accel.dist.recv(tensor, src, opts) end

---send that returns at once.
---example: select(2, pcall(accel.dist.isend, accel.ones(1), 0)).code --> "invalid_argument"
---@param tensor accel.Tensor
---@param dst integer
---@param opts? {group: accel.dist.Group?, group_dst: integer?, dst: integer?, tag: integer?}
---@return accel.dist.Work
function accel.dist.isend(tensor, dst, opts) end

---recv that returns at once.
---example: select(2, pcall(accel.dist.irecv, accel.ones(1), 0)).code --> "invalid_argument"
---@param tensor accel.Tensor
---@param src integer
---@param opts? {group: accel.dist.Group?, group_src: integer?, src: integer?, tag: integer?}
---@return accel.dist.Work
function accel.dist.irecv(tensor, src, opts) end

-- ## Works

---Waits until the collective is done and its results are in place; true, or raises what it failed with. Works run
---in the order in which they were started, also those that nobody waits for; what such a work brings to a tensor
---whose bytes do not lie in order is lost.
---example: accel.dist.all_reduce(accel.ones(2), { async_op = true }):wait() --> true
---@return boolean
function Work:wait() end

---Whether wait would return at once.
---example: local w = accel.dist.barrier { async_op = true } w:wait() return w:is_completed() --> true
---@return boolean
function Work:is_completed() end

-- ## Memory and records

---A tensor of undefined contents in memory that all ranks of this machine map: collectives on it need no copy
---between processes. It lies on the CPU whatever the default device is, but for meta. Parameters of the CPU lie there by
---themselves.
---example: accel.dist.empty(2, 3, { dtype = "bf16" }).shape --> { 2, 3 }
---@param ... integer|integer[]|{dtype: accel.DType?, device: string?}
---@return accel.Tensor
function accel.dist.empty(...) end

---Bytes of such memory that this rank uses; 0 where there is none.
---example: accel.dist.heap_bytes() --> 0
---@return integer
function accel.dist.heap_bytes() end

---Bytes that this rank handed to collectives so far; with backend "sim", that the usual algorithms would send.
---example: accel.dist.bytes_sent() >= 0 --> true
---@return integer
function accel.dist.bytes_sent() end

---The flight recorder: the last n collectives (all that are kept, ACCEL_RECORDS), oldest first: number, group,
---seq, kind, dtype, op, root, count, bytes, async, status, site, and queued, began, ended (nil: under way) as
---times of accel.clock().
---example: accel.dist.all_reduce(accel.ones(5)) return accel.dist.records(1)[1].count --> 5
---@param n? integer
---@return table[]
function accel.dist.records(n) end
