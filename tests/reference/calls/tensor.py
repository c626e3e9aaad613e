# The surface of tensors.
case("Tensor,torch narrow", "x.narrow(0, 1, 2)", "x:narrow(1, 2, 2)", x=f(4, 3))
case("torch,Tensor hsplit", "torch.hsplit(x, 2)", "accel.split(x, 2, 2)", x=f(3, 4))
case("Tensor tril", "x.tril()", x=f(3, 3))
case("Tensor add_", "y.add_(x)", x=f(3, 3))
case("Tensor sum", "x.sum()", x=f(3, 3))
case("Tensor item", "x.sum().item()", x=f(3, 3))
fails("Tensor narrow", "x.narrow(0, 3, 2)", "x:narrow(1, 4, 2)", x=f(4, 3))
