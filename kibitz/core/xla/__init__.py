"""Workarounds for the compiler: packing, flat trees, jit settings. It knows nothing about games or players."""
