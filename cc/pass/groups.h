// Neighbouring accesses of one basic block are checked together, where that costs less than one by one.
#pragma once

#include "checks.h"
#include "strips.h"

namespace comb {

// Adds what it covers to `members`.
void group_neighbours(llvm::Function &function, const Options &options, Checker &checker, StripMembers &members);

} // namespace comb
