#include "strips.h"
#include "plan.h"
#include "runtime.h"

#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/Local.h"
#include "llvm/Transforms/Utils/LoopSimplify.h"
#include "llvm/Transforms/Utils/LoopUtils.h"

using namespace llvm;

namespace comb {

namespace {

// One planned loop becomes
//
//     preheader: few turns? -> a copy of the loop, with single checks
//     first:     turns of the first strip; pin
//     header…latch: the loop as it was, counting turns down instead of testing its own end
//     strip_end: no turns left? -> unpin, what followed the loop
//     next:      unpin; turns of the next strip; pin -> header
//
// and every other exit unpins. A loop that is one strip at most keeps its own end.
class StripBuilder {
public:
    StripBuilder(Function &function, Checker &checker, StripPlan &plan, StripMembers &members)
        : function(function), checker(checker), plan(plan), members(members), context(function.getContext()) {}

    void build() {
        members.blocks.insert(plan.blocks.begin(), plan.blocks.end());
        auto *first = BasicBlock::Create(context, "strip.first", &function, plan.header);
        enter_through(first);
        if (!plan.known_turns && plan.turns_least > 1)
            keep_copy(first);
        if (plan.known_turns && plan.known_turns <= plan.turns_most)
            pin_once(first);
        else
            count_down(first);
        release_at_exits();
    }

private:
    Function &function;
    Checker &checker;
    StripPlan &plan;
    StripMembers &members;
    LLVMContext &context;
    // Not in a register, which the loop may need.
    AllocaInst *done_so_far = nullptr;
    BasicBlock *strip_end = nullptr;

    // A strip's misses are its first access's.
    const DebugLoc &place_of_strip() const { return plan.ranges.front().accesses.front()->getDebugLoc(); }

    void enter_through(BasicBlock *first) {
        plan.preheader->getTerminator()->replaceSuccessorWith(plan.header, first);
        for (PHINode &phi : plan.header->phis())
            phi.replaceIncomingBlockWith(plan.preheader, first);
    }

    void keep_copy(BasicBlock *first) {
        ValueToValueMapTy copies;
        SmallVector<BasicBlock *, 8> copied;
        for (BasicBlock *block : plan.blocks) {
            BasicBlock *copy = CloneBasicBlock(block, copies, ".checked", &function);
            copies[block] = copy;
            copied.push_back(copy);
            members.blocks.insert(copy);
        }
        copies[first] = plan.preheader;
        remapInstructionsInBlocks(copied, copies);
        for (BasicBlock *exit : plan.exits)
            for (PHINode &phi : exit->phis())
                for (unsigned index = 0, count = phi.getNumIncomingValues(); index < count; index++)
                    if (BasicBlock *from = phi.getIncomingBlock(index); is_contained(plan.blocks, from)) {
                        Value *value = phi.getIncomingValue(index), *copy = copies.lookup(value);
                        phi.addIncoming(copy ? copy : value, cast<BasicBlock>(copies.lookup(from)));
                    }
        Instruction *end = plan.preheader->getTerminator();
        IRBuilder<> builder(end);
        Value *is_short = builder.CreateICmpULT(plan.turns, builder.getInt64(plan.turns_least));
        builder.CreateCondBr(is_short, cast<BasicBlock>(copies.lookup(plan.header)), first);
        end->eraseFromParent();
    }

    // Checks the strip that begins after `done` turns; `builder` stands at the end of a block that is not complete. Returns its turns.
    Value *pin_strip(IRBuilder<> &builder, Value *done) {
        Value *turns = builder.CreateBinaryIntrinsic(Intrinsic::umin, builder.CreateSub(plan.turns, done), builder.getInt64(plan.turns_most));
        Value *last = builder.CreateSub(turns, builder.getInt64(1));
        SmallVector<RangeToCheck, 8> ranges;
        for (const StripRange &range : plan.ranges) {
            Value *bytes = builder.getInt64(uint64_t(range.high - range.low)), *offset = builder.getInt64(uint64_t(range.low));
            if (range.step != 0) {
                Value *lowest_turn = range.step > 0 ? done : builder.CreateAdd(done, last);
                offset = builder.CreateAdd(offset, builder.CreateMul(lowest_turn, builder.getInt64(uint64_t(range.step))));
                bytes = builder.CreateAdd(bytes, builder.CreateMul(last, builder.getInt64(uint64_t(std::abs(range.step)))));
            }
            Value *start = builder.CreatePtrToInt(range.start, builder.getInt64Ty());
            ranges.push_back({builder.CreateAdd(start, offset), bytes, range.is_store});
        }
        checker.pin_ranges(builder, ranges);
        return turns;
    }

    // Returns the turns of the first strip, and the block that goes on to the header.
    std::pair<Value *, BasicBlock *> pin_once(BasicBlock *first) {
        IRBuilder<> builder(first);
        builder.SetCurrentDebugLocation(place_of_strip());
        Value *turns = pin_strip(builder, builder.getInt64(0));
        builder.CreateBr(plan.header);
        for (PHINode &phi : plan.header->phis())
            phi.replaceIncomingBlockWith(first, builder.GetInsertBlock());
        return {turns, builder.GetInsertBlock()};
    }

    void count_down(BasicBlock *first) {
        IRBuilder<> builder(&*function.getEntryBlock().getFirstInsertionPt());
        done_so_far = builder.CreateAlloca(builder.getInt64Ty(), nullptr, "strip.done");
        builder.SetInsertPoint(first);
        builder.CreateStore(builder.getInt64(0), done_so_far);
        auto [first_turns, pinned_first] = pin_once(first);
        strip_end = BasicBlock::Create(context, "strip.end", &function);
        auto *next = BasicBlock::Create(context, "strip.next", &function);
        builder.SetInsertPoint(plan.header, plan.header->begin());
        PHINode *left = builder.CreatePHI(builder.getInt64Ty(), 3, "strip.left");
        auto *branch = cast<BranchInst>(plan.latch->getTerminator());
        auto *old_condition = dyn_cast<Instruction>(branch->getCondition());
        builder.SetInsertPoint(branch);
        Value *less = builder.CreateSub(left, builder.getInt64(1));
        builder.CreateCondBr(builder.CreateICmpNE(less, builder.getInt64(0)), plan.header, strip_end);
        branch->eraseFromParent();
        for (PHINode &phi : plan.after_latch->phis())
            phi.replaceIncomingBlockWith(plan.latch, strip_end);

        builder.SetInsertPoint(strip_end);
        Value *done = builder.CreateAdd(builder.CreateLoad(builder.getInt64Ty(), done_so_far), builder.getInt64(plan.turns_most));
        builder.CreateCondBr(builder.CreateICmpUGE(done, plan.turns), plan.after_latch, next);

        builder.SetInsertPoint(next);
        builder.SetCurrentDebugLocation(place_of_strip());
        checker.unpin(builder);
        checker.poll(builder);
        builder.CreateStore(done, done_so_far);
        Value *next_turns = pin_strip(builder, done);
        builder.CreateBr(plan.header);
        BasicBlock *pinned_next = builder.GetInsertBlock();
        for (PHINode &phi : plan.header->phis())
            if (&phi != left)
                phi.addIncoming(phi.getIncomingValueForBlock(plan.latch), pinned_next);
        left->addIncoming(first_turns, pinned_first);
        left->addIncoming(less, plan.latch);
        left->addIncoming(next_turns, pinned_next);
        if (old_condition)
            RecursivelyDeleteTriviallyDeadInstructions(old_condition);
        DeleteDeadPHIs(plan.header);
    }

    void release_at_exits() {
        for (BasicBlock *exit : plan.exits) {
            SmallVector<BasicBlock *> from;
            for (BasicBlock *block : predecessors(exit))
                if (block == strip_end || is_contained(plan.blocks, block))
                    from.push_back(block);
            if (from.empty())
                continue;
            BasicBlock *release = SplitBlockPredecessors(exit, from, ".unpin");
            IRBuilder<> builder(release->getTerminator());
            builder.SetCurrentDebugLocation(place_of_strip());
            checker.unpin(builder);
        }
    }
};

// The outermost loop that can be a strip is the best: what is asked for once need not be asked for in each turn.
void plan_outermost(Planner &planner, Loop &loop, SmallVector<StripPlan, 0> &plans) {
    if (auto plan = planner.plan(loop)) {
        plans.push_back(std::move(*plan));
        return;
    }
    for (Loop *inner : loop)
        plan_outermost(planner, *inner, plans);
}

// All planning comes before all building: a plan's loops and expressions do not outlive a change of blocks.
SmallVector<StripPlan, 0> plan_strips(Function &function, const Options &options) {
    DominatorTree dominators(function);
    LoopInfo loops(dominators);
    SmallVector<StripPlan, 0> plans;
    if (loops.empty())
        return plans;
    TargetLibraryInfoImpl known{Triple(function.getParent()->getTargetTriple())};
    TargetLibraryInfo library(known, &function);
    AssumptionCache assumptions(function);
    for (Loop *loop : loops) {
        simplifyLoop(loop, &dominators, &loops, nullptr, &assumptions, nullptr, false);
        formLCSSARecursively(*loop, dominators, &loops, nullptr);
    }
    ScalarEvolution evolution(function, library, assumptions, dominators, loops);
    Planner planner(function, options, loops, dominators, evolution, library);
    for (Loop *loop : loops)
        plan_outermost(planner, *loop, plans);
    return plans;
}

} // namespace

StripMembers make_strips(Function &function, const Options &options, Checker &checker) {
    StripMembers members;
    if (function.hasOptNone() || !options.checks_stores())
        return members;
    SmallVector<StripPlan, 0> plans = plan_strips(function, options);
    for (StripPlan &plan : plans) {
        for (const StripRange &range : plan.ranges)
            members.covered.insert(range.accesses.begin(), range.accesses.end());
        members.inside.insert(plan.others.begin(), plan.others.end());
        StripBuilder(function, checker, plan, members).build();
    }
    return members;
}

} // namespace comb
