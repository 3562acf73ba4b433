"""Everything that exists for the compiler's sake: packing, flat trees, jit settings. Nothing about games or players."""
