// Steps over a whole module, each in a file of its name.
#pragma once

#include "options.h"

#include "llvm/IR/Module.h"

namespace comb {

// Covered functions get the library's names; `main` becomes `comb_main`.
void rename(llvm::Module &module, const Options &options);

// Constructors of shared libraries run in one component.
void construct_once(llvm::Module &module);

// Variables go where tasks can share them; the object says how it was compiled.
void place_variables(llvm::Module &module, const Options &options);

// Inline assembly could touch shared memory unseen. Prints an error for each that is not known to be harmless.
void refuse_assembly(llvm::Function &function);

// Vector accesses of which a mask decides what they touch become single ones, which can be checked. Prints an error for each of the
// processor's own instructions that accesses shared memory unseen.
void take_masks_apart(llvm::Function &function, const Options &options);

} // namespace comb
