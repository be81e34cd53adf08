#include "polls.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace comb {

namespace {

// A loop of no more turns is over before anybody has waited for long.
constexpr unsigned FewTurns = 32;

// Such a loop within another is seldom long, and the compare would be a good part of it.
bool has_no_accesses(const Loop &loop) {
    return all_of(loop.blocks(), [](const BasicBlock *block) {
        return none_of(*block, [](const Instruction &each) { return each.mayReadOrWriteMemory(); });
    });
}

void find_latches(Loop &loop, ScalarEvolution &evolution, const StripMembers &strips, SmallVector<BasicBlock *> &latches) {
    // A strip polls between its parts; all loops in it are between pins.
    if (strips.blocks.contains(loop.getHeader()))
        return;
    for (Loop *inner : loop)
        find_latches(*inner, evolution, strips, latches);
    unsigned turns = loop.isInnermost() ? evolution.getSmallConstantMaxTripCount(&loop) : 0;
    if (turns != 0 && turns <= FewTurns)
        return;
    if (loop.getParentLoop() && has_no_accesses(loop))
        return;
    SmallVector<BasicBlock *> own;
    loop.getLoopLatches(own);
    latches.append(own.begin(), own.end());
}

} // namespace

void add_polls(Function &function, const Options &options, Checker &checker, const StripMembers &strips) {
    if (!options.polls || !options.checks_stores())
        return;
    DominatorTree dominators(function);
    LoopInfo loops(dominators);
    if (loops.empty())
        return;
    TargetLibraryInfoImpl known{Triple(function.getParent()->getTargetTriple())};
    TargetLibraryInfo library(known, &function);
    AssumptionCache assumptions(function);
    ScalarEvolution evolution(function, library, assumptions, dominators, loops);
    SmallVector<BasicBlock *> latches;
    for (Loop *loop : loops)
        find_latches(*loop, evolution, strips, latches);
    for (BasicBlock *latch : SetVector<BasicBlock *>(latches.begin(), latches.end())) {
        IRBuilder<> builder(latch->getTerminator());
        checker.poll(builder);
    }
}

} // namespace comb
