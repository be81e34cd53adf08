// Copies that the compiler makes of whole objects.
#pragma once

#include "options.h"

#include "llvm/IR/Function.h"

namespace comb {

// memcpy, memmove and memset of shared memory become single accesses or calls of the library; structures passed by value are copied
// before the call. Returns how many.
unsigned cover_copies(llvm::Function &function, const Options &options);

} // namespace comb
