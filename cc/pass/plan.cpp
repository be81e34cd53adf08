#include "plan.h"
#include "checks.h"
#include "privacy.h"
#include "runtime.h"

#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace llvm;

namespace comb {

namespace {

// A strip touches every block between its ends; with longer steps it would ask for blocks that the loop never touches.
constexpr int64_t StepMost = StateBlockBytes;
// The runtime fetches no more at once.
constexpr uint64_t RangeBytesMost = 60000;
// A loop that may leave early asks for no more than fifteen blocks ahead, which are looked at inline.
constexpr uint64_t EarlyRangeBytesMost = 15 * StateBlockBytes;
// Loops that advance no further are asked for as a whole.
constexpr uint64_t WholeBytesMost = EarlyRangeBytesMost;
// Accesses further apart are ranges of their own.
constexpr int64_t DistanceMost = 1024;
// A fence, and who has left mail, wait for a strip: about as many instructions, some 10 us.
constexpr uint64_t InstructionsMost = 30000;
constexpr uint64_t TurnsMost = 1024;
// What beginning and ending a strip costs, and each of its ranges, in the time of one checked load.
constexpr uint64_t StripCost = 12, RangeCost = 8;
// A loop inside a strip's loop turns no more often than this for each of its turns.
constexpr uint64_t TurnsInsideMost = 4096;

} // namespace

Planner::Planner(Function &function, const Options &options, LoopInfo &loops, DominatorTree &dominators, ScalarEvolution &evolution,
                 const TargetLibraryInfo &library)
    : options(options), loops(loops), dominators(dominators), evolution(evolution), library(library), layout(function.getParent()->getDataLayout()),
      expander(evolution, layout, "strip") {}

std::optional<StripPlan> Planner::plan(Loop &loop) {
    StripPlan plan;
    if (!has_shape(loop, plan))
        return std::nullopt;
    const SCEV *backward_turns = evolution.getExitCount(&loop, plan.latch);
    if (isa<SCEVCouldNotCompute>(backward_turns) || evolution.getTypeSizeInBits(backward_turns->getType()) > 64)
        return std::nullopt;
    if (auto *constant = dyn_cast<SCEVConstant>(backward_turns); constant && constant->getAPInt().getActiveBits() < 63)
        plan.known_turns = constant->getAPInt().getZExtValue() + 1;
    if (!find_accesses(loop, plan) || plan.ranges.empty())
        return std::nullopt;
    choose_length(loop, plan);
    if (plan.turns_most < plan.turns_least || (plan.known_turns && plan.known_turns < plan.turns_least))
        return std::nullopt;
    if (!expand(plan, backward_turns))
        return std::nullopt;
    return plan;
}

bool Planner::has_shape(Loop &loop, StripPlan &plan) {
    if (!loop.isLoopSimplifyForm() || !loop.isLCSSAForm(dominators))
        return false;
    plan.preheader = loop.getLoopPreheader();
    plan.header = loop.getHeader();
    plan.latch = loop.getLoopLatch();
    auto *branch = dyn_cast<BranchInst>(plan.latch->getTerminator());
    if (!branch || !branch->isConditional() || !loop.isLoopExiting(plan.latch))
        return false;
    plan.after_latch = branch->getSuccessor(branch->getSuccessor(0) == plan.header ? 1 : 0);
    plan.blocks.append(loop.block_begin(), loop.block_end());
    SmallVector<BasicBlock *> exits;
    loop.getUniqueExitBlocks(exits);
    plan.exits.append(exits.begin(), exits.end());
    return none_of(exits, [](BasicBlock *block) { return block->isEHPad(); });
}

bool may_be_between_pins(const Instruction &instruction, const TargetLibraryInfo &library) {
    auto *call = dyn_cast<CallBase>(&instruction);
    if (!call)
        return !instruction.mayReadOrWriteMemory() && !isa<AllocaInst>(instruction);
    if (isa<IntrinsicInst>(call))
        return call->doesNotAccessMemory() || cast<IntrinsicInst>(call)->isAssumeLikeIntrinsic();
    // The C library's mathematics touch nothing but errno, and are over soon.
    const Function *callee = call->getCalledFunction();
    LibFunc known;
    return isa<CallInst>(call) && callee && callee->isDeclaration() && library.getLibFunc(*callee, known) &&
           all_of(call->args(), [](const Use &argument) { return argument->getType()->isFloatingPointTy(); });
}

bool is_checked_alone(Instruction &access, const Options &options) {
    Type *type = type_of(access);
    if (may_store(access) && !options.has_rseq)
        return false;
    uint64_t bits = access.getModule()->getDataLayout().getTypeSizeInBits(type);
    if (type->isFloatTy() || type->isDoubleTy())
        return getLoadStoreAlignment(&access).value() * 8 >= bits;
    if (type->isVectorTy())
        return bits == 128 && type->getScalarSizeInBits() >= 8;
    return type->isPointerTy() || (type->isIntegerTy() && bits <= 64 && isPowerOf2_64(bits) && bits >= 8);
}

// How often a loop turns at most; 0 where that is not known. One that walks along an object ends where the object does.
uint64_t Planner::turns_most(Loop &loop) {
    if (uint64_t turns = evolution.getSmallConstantMaxTripCount(&loop))
        return turns;
    BasicBlock *latch = loop.getLoopLatch();
    for (BasicBlock *block : loop.blocks()) {
        if (!latch || loops.getLoopFor(block) != &loop || !dominators.dominates(block, latch))
            continue;
        for (Instruction &instruction : *block) {
            Value *object = is_access(instruction) ? const_cast<Value *>(getUnderlyingObject(pointer_of(instruction))) : nullptr;
            auto *variable = dyn_cast_or_null<AllocaInst>(object);
            std::optional<TypeSize> bytes = variable ? variable->getAllocationSize(layout) : std::nullopt;
            auto *advancing = bytes ? dyn_cast<SCEVAddRecExpr>(evolution.getSCEV(pointer_of(instruction))) : nullptr;
            if (!advancing || advancing->getLoop() != &loop || !advancing->isAffine())
                continue;
            auto *step = dyn_cast<SCEVConstant>(advancing->getStepRecurrence(evolution));
            if (step && !step->isZero() && step->getAPInt().getSignificantBits() <= 32)
                return bytes->getFixedValue() / uint64_t(std::abs(step->getAPInt().getSExtValue())) + 1;
        }
    }
    return 0;
}

// How often a block of `inner` runs at most in one turn of `loop`, which is around it or the same; 0 where that is not known.
uint64_t Planner::turns_inside(Loop &loop, Loop *inner) {
    uint64_t turns = 1;
    for (; inner != &loop; inner = inner->getParentLoop()) {
        turns *= turns_most(*inner);
        if (turns == 0 || turns > TurnsInsideMost)
            return 0;
    }
    return turns;
}

// In each of the turns that `turns_inside` counts.
bool Planner::is_always_done(Loop &loop, BasicBlock *block) {
    for (Loop *inner = loops.getLoopFor(block);; inner = inner->getParentLoop()) {
        if (!dominators.dominates(block, inner->getLoopLatch()))
            return false;
        if (inner == &loop)
            return true;
        if (inner->getExitingBlock() != inner->getLoopLatch() || evolution.getSmallConstantTripCount(inner) == 0)
            return false;
    }
}

bool Planner::find_accesses(Loop &loop, StripPlan &plan) {
    SmallVector<Instruction *> sometimes;
    for (BasicBlock *block : loop.blocks()) {
        if (turns_inside(loop, loops.getLoopFor(block)) == 0)
            return false;
        for (Instruction &instruction : *block) {
            if (!is_access(instruction)) {
                if (!may_be_between_pins(instruction, library))
                    return false;
                continue;
            }
            auto *load = dyn_cast<LoadInst>(&instruction);
            auto *store = dyn_cast<StoreInst>(&instruction);
            // What others wait for, or what waits for others, must not be between pins.
            if (!(load && load->isSimple()) && !(store && store->isSimple()))
                return false;
            if (is_private(pointer_of(instruction)) || (load && !options.checks_loads()))
                continue;
            if (!is_always_done(loop, block) || !cover(loop, plan, instruction))
                sometimes.push_back(&instruction);
        }
    }
    drop_contained(plan);
    while (plan.ranges.size() > NotedMost) {
        auto fewest = std::min_element(plan.ranges.begin(), plan.ranges.end(),
                                       [](const StripRange &a, const StripRange &b) { return a.accesses.size() < b.accesses.size(); });
        sometimes.append(fewest->accesses.begin(), fewest->accesses.end());
        plan.ranges.erase(fewest);
    }
    for (Instruction *access : sometimes) {
        if (cover_within(loop, plan, *access))
            continue;
        // What runs most must be covered, or inner loops do better for themselves.
        if (loops.getLoopFor(access->getParent()) != &loop || !is_checked_alone(*access, options))
            return false;
        plan.others.push_back(access);
    }
    return true;
}

std::optional<StripRange> Planner::range_of(Loop &loop, StripPlan &plan, Instruction &access) {
    const SCEV *address = evolution.getSCEV(pointer_of(access));
    StripRange range{nullptr, nullptr, 0, 0, int64_t(layout.getTypeStoreSize(type_of(access)).getFixedValue()), may_store(access), {&access}};
    while (auto *advancing = dyn_cast<SCEVAddRecExpr>(address)) {
        if (!loop.contains(advancing->getLoop()))
            break;
        auto *constant = advancing->isAffine() ? dyn_cast<SCEVConstant>(advancing->getStepRecurrence(evolution)) : nullptr;
        if (!constant || constant->getAPInt().getSignificantBits() > 32)
            return std::nullopt;
        int64_t step = constant->getAPInt().getSExtValue();
        // A strip asks for all blocks between its ends.
        if (std::abs(step) > StepMost + range.high - range.low - 1)
            return std::nullopt;
        address = advancing->getStart();
        bool is_around = advancing->getLoop() == &loop;
        uint64_t turns = is_around ? plan.known_turns : turns_most(*const_cast<Loop *>(advancing->getLoop()));
        // A loop that is short as a whole asks for all of it in its first turn: so what goes back, or stands still, may lie within.
        if (is_around && (turns == 0 || turns > TurnsMost || turns * uint64_t(std::abs(step)) > WholeBytesMost)) {
            range.step = step;
            break;
        }
        int64_t reach = step * int64_t(turns - 1);
        (reach < 0 ? range.low : range.high) += reach;
        if (range.high - range.low > int64_t(RangeBytesMost))
            return std::nullopt;
    }
    if (!evolution.isLoopInvariant(address, &loop) || !expander.isSafeToExpandAt(address, plan.preheader->getTerminator()))
        return std::nullopt;
    range.first_start = address;
    return range;
}

// The distance between two ranges that advance together.
static std::optional<int64_t> distance_between(ScalarEvolution &evolution, const StripRange &from, const StripRange &to) {
    if (from.step != to.step)
        return std::nullopt;
    auto *distance = dyn_cast<SCEVConstant>(evolution.getMinusSCEV(to.first_start, from.first_start));
    if (!distance || distance->getAPInt().getSignificantBits() > 32)
        return std::nullopt;
    return distance->getAPInt().getSExtValue();
}

bool Planner::cover(Loop &loop, StripPlan &plan, Instruction &access) {
    std::optional<StripRange> own = range_of(loop, plan, access);
    if (!own)
        return false;
    for (StripRange &range : plan.ranges) {
        std::optional<int64_t> distance = distance_between(evolution, range, *own);
        if (range.is_store != own->is_store || !distance || std::abs(*distance) > DistanceMost)
            continue;
        range.low = std::min(range.low, own->low + *distance);
        range.high = std::max(range.high, own->high + *distance);
        range.accesses.push_back(&access);
        return true;
    }
    plan.ranges.push_back(std::move(*own));
    return true;
}

// What is not always done asks for nothing, but may lie within what is asked for anyway.
bool Planner::cover_within(Loop &loop, StripPlan &plan, Instruction &access) {
    std::optional<StripRange> own = range_of(loop, plan, access);
    if (!own)
        return false;
    for (StripRange &range : plan.ranges) {
        std::optional<int64_t> distance = distance_between(evolution, range, *own);
        if (!distance || (own->is_store && !range.is_store) || own->low + *distance < range.low || own->high + *distance > range.high)
            continue;
        range.accesses.push_back(&access);
        return true;
    }
    return false;
}

// Where a strip stores it may also load.
void Planner::drop_contained(StripPlan &plan) {
    for (size_t index = 0; index < plan.ranges.size();) {
        StripRange &load = plan.ranges[index];
        auto holder = find_if(plan.ranges, [&](const StripRange &store) {
            if (load.is_store || !store.is_store)
                return false;
            std::optional<int64_t> from = distance_between(evolution, store, load);
            return from && *from + load.low >= store.low && *from + load.high <= store.high;
        });
        if (holder == plan.ranges.end()) {
            index++;
            continue;
        }
        holder->accesses.append(load.accesses.begin(), load.accesses.end());
        plan.ranges.erase(plan.ranges.begin() + long(index));
    }
}

void Planner::choose_length(Loop &loop, StripPlan &plan) {
    uint64_t instructions = 0, accesses = 0;
    for (BasicBlock *block : loop.blocks())
        instructions += block->size() * turns_inside(loop, loops.getLoopFor(block));
    plan.turns_most = std::clamp<uint64_t>(InstructionsMost / instructions, loop.isInnermost() ? 16 : 1, TurnsMost);
    uint64_t bytes_most = loop.getExitingBlock() ? RangeBytesMost : EarlyRangeBytesMost;
    for (const StripRange &range : plan.ranges) {
        // A checked store costs about two loads.
        for (Instruction *access : range.accesses)
            accesses += (may_store(*access) ? 2 : 1) * turns_inside(loop, loops.getLoopFor(access->getParent()));
        if (range.step != 0)
            plan.turns_most = std::min(plan.turns_most, (bytes_most - std::min(bytes_most, uint64_t(range.high - range.low))) / uint64_t(std::abs(range.step)));
    }
    plan.turns_least = std::max<uint64_t>(1, (StripCost + RangeCost * plan.ranges.size()) / accesses);
    if (loop.isInnermost())
        plan.turns_most = std::max<uint64_t>(plan.turns_most, 1);
}

bool Planner::expand(StripPlan &plan, const SCEV *backward_turns) {
    Instruction *place = plan.preheader->getTerminator();
    if (!expander.isSafeToExpandAt(backward_turns, place))
        return false;
    Type *number = Type::getInt64Ty(place->getContext());
    for (StripRange &range : plan.ranges)
        range.start = expander.expandCodeFor(range.first_start, range.first_start->getType(), place);
    Value *backward = expander.expandCodeFor(backward_turns, backward_turns->getType(), place);
    IRBuilder<> builder(place);
    plan.turns = builder.CreateAdd(builder.CreateZExtOrTrunc(backward, number), builder.getInt64(1), "turns");
    return true;
}

} // namespace comb
