// Objects on the stack whose address escapes move to a second stack, in shared memory.
#pragma once

#include "llvm/IR/Function.h"

namespace comb {

// Returns how many objects moved.
unsigned share_escaping_objects(llvm::Function &function);

} // namespace comb
