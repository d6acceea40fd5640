"""codegen: kernels made to order, in LLVM's terms."""
