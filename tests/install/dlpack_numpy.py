#!/usr/bin/env python3
"""DLPack with somebody else's implementation: numpy reads and writes the memory of accel's tensors, and accel that of its arrays.

  dlpack_numpy.py <libaccel.so> <folder of the Lua library>      77: no numpy here
"""
import ctypes
import gc
import sys

try:
    import numpy
    assert hasattr(numpy, "from_dlpack")
except (ImportError, AssertionError):
    print("skipped: no numpy with from_dlpack (pip: numpy)")
    sys.exit(77)

P, I64, INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
lib = ctypes.CDLL(sys.argv[1])
for name, result, args in [
        ("ac_host_open", INT, [P, P, P]), ("ac_host_close", None, [P]), ("ac_host_ctx", P, [P]), ("ac_ctx_default_device", P, [P]),
        ("ac_tensor_new", INT, [P, INT, INT, P, P, P]), ("ac_tensor_data", P, [P]), ("ac_tensor_release", None, [P]),
        ("ac_tensor_numel", I64, [P]), ("ac_tensor_stride", ctypes.POINTER(I64), [P]), ("ac_tensor_live", I64, []),
        ("ac_tensor_to_dlpack", INT, [P, P, P]), ("ac_tensor_from_dlpack", INT, [P, P, P, P])]:
    function = getattr(lib, name)
    function.restype, function.argtypes = result, args

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [P, ctypes.c_char_p, P]
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = P, [ctypes.py_object, ctypes.c_char_p]
rename = ctypes.pythonapi.PyCapsule_SetName
rename.restype, rename.argtypes = INT, [ctypes.py_object, ctypes.c_char_p]
USED = b"used_dltensor"


def ok(status):
    assert status == 0, f"status {status}"


class Exported:
    """What numpy asks for a capsule."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **_):
        m = P()
        ok(lib.ac_tensor_to_dlpack(self.tensor, ctypes.byref(m), None))
        return new_capsule(m, b"dltensor", None)

    def __dlpack_device__(self):
        return (1, 0)


class Options(ctypes.Structure):  # ac_host_options
    _fields_ = [("size", ctypes.c_size_t), ("threads", INT), ("memory", ctypes.c_size_t), ("seed", ctypes.c_uint64),
                ("lua_dir", ctypes.c_char_p), ("strict", ctypes.c_bool), ("sorted", ctypes.c_bool), ("keep_gc", ctypes.c_bool),
                ("join", ctypes.c_bool), ("script", ctypes.c_char_p), ("device", ctypes.c_char_p)]


options = Options(size=ctypes.sizeof(Options), threads=1, lua_dir=sys.argv[2].encode(), strict=True, sorted=True)
host = P()
ok(lib.ac_host_open(ctypes.byref(options), ctypes.byref(host), None))
cpu = lib.ac_ctx_default_device(lib.ac_host_ctx(host))

# out: numpy sees the memory, and keeps it alive
shape, t = (I64 * 2)(3, 4), P()
ok(lib.ac_tensor_new(cpu, 1, 2, shape, ctypes.byref(t), None))  # f32
data = lib.ac_tensor_data(t)
array = numpy.from_dlpack(Exported(t))
assert array.shape == (3, 4) and array.dtype == numpy.float32 and array.ctypes.data == data
ctypes.cast(data, ctypes.POINTER(ctypes.c_float))[5] = 2.5
assert array[1, 1] == 2.5
lib.ac_tensor_release(t)
assert lib.ac_tensor_live() == 1
del array
gc.collect()
assert lib.ac_tensor_live() == 0

# in: strides are kept, the array lives as long as the tensor
source = numpy.arange(24, dtype=numpy.int64).reshape(4, 6).copy()
count = sys.getrefcount(source)
turned = source.T[1:5:2]
capsule = turned.__dlpack__()
m, t = pointer_of(capsule, b"dltensor"), P()
ok(lib.ac_tensor_from_dlpack(cpu, m, ctypes.byref(t), None))
rename(capsule, USED)
assert lib.ac_tensor_data(t) == turned.ctypes.data and lib.ac_tensor_numel(t) == 8
assert [lib.ac_tensor_stride(t)[i] for i in range(2)] == [2, 6]
address = turned.ctypes.data
del turned, capsule
gc.collect()
assert sys.getrefcount(source) > count
assert ctypes.cast(lib.ac_tensor_data(t), ctypes.POINTER(I64))[0] == 1 and lib.ac_tensor_data(t) == address
lib.ac_tensor_release(t)
gc.collect()
assert sys.getrefcount(source) == count and lib.ac_tensor_live() == 0
lib.ac_host_close(host)
print(f"numpy {numpy.__version__}: the same memory both ways")
