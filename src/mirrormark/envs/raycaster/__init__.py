"""A ray-caster with one true mirror, on the CPU and on CUDA; it needs no OpenGL."""
