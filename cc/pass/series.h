// Stores that are done together: one restartable sequence looks at the blocks of all of them.
#pragma once

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/Instructions.h"

namespace comb {

// Bytes that several stores touch; no more than a block has.
struct SeriesBlock {
    // That addresses are at constant distances from.
    llvm::Value *first;
    int64_t low, high;
    // The address of `low`.
    llvm::Value *lowest;
    llvm::Align lowest_alignment;
};

struct SeriesStore {
    llvm::StoreInst *store;
    unsigned block;
    int64_t distance;
};

// Stores of one basic block, in their order. All wait for the last. Who restarts a sequence may do its first stores again: of memory that
// others may see meanwhile these are not, or the program has a race.
struct Series {
    llvm::SmallVector<SeriesStore, 6> stores;
    llvm::SmallVector<SeriesBlock, 3> blocks;
};

// `stores` are those that are to be checked by themselves.
llvm::SmallVector<Series, 0> find_series(llvm::Function &function, const llvm::SmallPtrSetImpl<llvm::Instruction *> &stores);

} // namespace comb
