// Memory that no other thread can see needs no checks.
#pragma once

#include "llvm/IR/Instructions.h"

namespace comb {

// After escaping objects went to the shared stack, what is left on the machine stack is private.
bool is_private(const llvm::Value *pointer);

// Whether an object on the machine stack must move: its address escapes, and it is nothing that only the C library reads.
bool must_be_shared(const llvm::AllocaInst &object);

} // namespace comb
