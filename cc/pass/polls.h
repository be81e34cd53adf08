// Loops look for mail: who computes serves those who have asked for something, and nobody has to be woken for it.
#pragma once

#include "strips.h"

namespace comb {

// When all accesses have their checks.
void add_polls(llvm::Function &function, const Options &options, Checker &checker, const StripMembers &strips);

} // namespace comb
