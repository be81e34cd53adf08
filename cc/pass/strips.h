// Loops whose accesses advance regularly are checked a strip of iterations at a time.
#pragma once

#include "checks.h"

#include "llvm/ADT/SmallPtrSet.h"

namespace comb {

// What the strips leave for single checks to know.
struct StripMembers {
    // Checked by their strip.
    llvm::SmallPtrSet<const llvm::Instruction *, 32> covered;
    // In a strip, but for themselves: their strip's pins are held around them.
    llvm::SmallPtrSet<const llvm::Instruction *, 32> inside;
    // Blocks of strips, which are between pins, and of their copies for few turns.
    llvm::SmallPtrSet<const llvm::BasicBlock *, 32> blocks;
};

StripMembers make_strips(llvm::Function &function, const Options &options, Checker &checker);

} // namespace comb
