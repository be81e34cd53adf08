// Which loops become strips, and what each strip asks for. Planning expands addresses before the loops, and changes no block.
#pragma once

#include "options.h"

#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/Transforms/Utils/ScalarEvolutionExpander.h"

#include <optional>

namespace comb {

// Accesses at a constant distance from each other, in every iteration.
struct StripRange {
    const llvm::SCEV *first_start;
    llvm::Value *start = nullptr;
    // Bytes from one iteration to the next.
    int64_t step;
    // From `start`: the lowest byte, and behind the highest.
    int64_t low, high;
    bool is_store;
    llvm::SmallVector<llvm::Instruction *, 4> accesses;
};

struct StripPlan {
    llvm::BasicBlock *preheader, *header, *latch, *after_latch;
    llvm::SmallVector<llvm::BasicBlock *, 8> blocks;
    llvm::SmallVector<llvm::BasicBlock *, 4> exits;
    llvm::SmallVector<StripRange, 8> ranges;
    // Checked for themselves.
    llvm::SmallVector<llvm::Instruction *, 8> others;
    // How often the latch is reached when no other exit is taken first.
    llvm::Value *turns = nullptr;
    // Constant where it is known, else 0.
    uint64_t known_turns = 0;
    // What one strip may be long, and from where on one pays.
    uint64_t turns_most = 0, turns_least = 0;
};

// An instruction that neither waits nor accesses what the pass does not see.
bool may_be_between_pins(const llvm::Instruction &instruction, const llvm::TargetLibraryInfo &library);
// Types whose single check needs no pins: they may stand between pins without being covered.
bool is_checked_alone(llvm::Instruction &access, const Options &options);

class Planner {
public:
    Planner(llvm::Function &function, const Options &options, llvm::LoopInfo &loops, llvm::DominatorTree &dominators,
            llvm::ScalarEvolution &evolution, const llvm::TargetLibraryInfo &library);

    std::optional<StripPlan> plan(llvm::Loop &loop);

private:
    const Options &options;
    llvm::LoopInfo &loops;
    llvm::DominatorTree &dominators;
    llvm::ScalarEvolution &evolution;
    const llvm::TargetLibraryInfo &library;
    const llvm::DataLayout &layout;
    llvm::SCEVExpander expander;

    bool has_shape(llvm::Loop &loop, StripPlan &plan);
    uint64_t turns_most(llvm::Loop &loop);
    uint64_t turns_inside(llvm::Loop &loop, llvm::Loop *inner);
    bool is_always_done(llvm::Loop &loop, llvm::BasicBlock *block);
    bool cover_within(llvm::Loop &loop, StripPlan &plan, llvm::Instruction &access);
    bool find_accesses(llvm::Loop &loop, StripPlan &plan);
    // An access's bytes of one turn of `loop` as a range, if they advance regularly.
    std::optional<StripRange> range_of(llvm::Loop &loop, StripPlan &plan, llvm::Instruction &access);
    bool cover(llvm::Loop &loop, StripPlan &plan, llvm::Instruction &access);
    void drop_contained(StripPlan &plan);
    void choose_length(llvm::Loop &loop, StripPlan &plan);
    bool expand(StripPlan &plan, const llvm::SCEV *backward_turns);
};

} // namespace comb
