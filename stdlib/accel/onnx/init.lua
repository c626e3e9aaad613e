--- accel.onnx: inference graphs for ONNX Runtime and other programs. export.lua describes it.
return require "accel.util.lazy" ("accel.onnx", { export = "export" })
