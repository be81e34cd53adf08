#include "groups.h"
#include "addresses.h"
#include "plan.h"
#include "privacy.h"
#include "runtime.h"

#include "llvm/ADT/MapVector.h"

#include <deque>

using namespace llvm;

namespace comb {

namespace {

// In instructions: what a group costs, and each of its ranges, against checks of single accesses.
constexpr int GroupCost = 14, RangeCost = 11;
constexpr int LoadCost = 3, VectorLoadCost = 5, StoreCost = 6;
// Stores beside each other can be one sequence without a group.
constexpr int NextStoreCost = 2;
// A range goes on over a gap as wide: nothing is asked for but blocks that the accesses touch, or one between two of them.
constexpr int64_t GapMost = 64;
// A group's ranges are looked at with a few loads of state bytes.
constexpr int64_t RangeBytesMost = 3 * StateBlockBytes;
// A fence waits for a group.
constexpr size_t InstructionsMost = 4000;
// Where groups begin is tried at so many places.
constexpr unsigned PlacesMost = 8;
// Addresses are computed earlier than they were, when they are computed from no more than this.
constexpr unsigned AddressDepth = 5;

struct Member {
    Instruction *access;
    Value *base;
    int64_t offset, bytes;
};

struct Range {
    Value *base;
    int64_t low, high;
    bool is_store;
    int worth;
    SmallVector<Instruction *, 8> accesses;
};

struct Group {
    SmallVector<Range, NotedMost> ranges;
    int gain = 0;
};

int worth_of(const Member &member, bool is_first_store) {
    if (may_store(*member.access))
        return is_first_store ? StoreCost : NextStoreCost;
    return member.bytes > 8 ? VectorLoadCost : LoadCost;
}

// Groups the accesses of one stretch of a block, in which nothing waits.
class Stretch {
public:
    Stretch(const Options &options, Checker &checker, StripMembers &members, const DataLayout &layout)
        : options(options), checker(checker), members(members), addresses(layout) {}

    void add(Instruction &instruction) {
        unsigned place = unsigned(places.size());
        places[&instruction] = place;
    }

    void add_access(Instruction &access, const DataLayout &layout) {
        Addresses::Place place = addresses.place_of(pointer_of(access));
        accesses.push_back({&access, place.first, place.distance, int64_t(layout.getTypeStoreSize(type_of(access)).getFixedValue())});
    }

    size_t size() const { return places.size(); }

    // Chooses groups, and then checks them: that changes blocks.
    void group() { group_among(accesses); }

private:
    const Options &options;
    Checker &checker;
    StripMembers &members;
    Addresses addresses;
    DenseMap<const Instruction *, unsigned> places;
    SmallVector<Member, 32> accesses;

    // Whether `value` is known at `place`, or can be computed there.
    bool is_available(Value *value, const Instruction &place, unsigned depth = 0) const {
        auto *instruction = dyn_cast<Instruction>(value);
        if (!instruction)
            return true;
        auto found = places.find(instruction);
        // Before the stretch, or in a block that dominates this one.
        if (found == places.end() || found->second < places.lookup(&place))
            return true;
        bool is_address = isa<GetElementPtrInst>(instruction) || isa<SExtInst>(instruction) || isa<ZExtInst>(instruction) ||
                          (isa<BinaryOperator>(instruction) && !instruction->isIntDivRem() && instruction->getType()->isIntegerTy());
        return is_address && depth < AddressDepth &&
               all_of(instruction->operands(), [&](Value *operand) { return is_available(operand, place, depth + 1); });
    }

    void compute_before(Value *value, Instruction &place) {
        auto *instruction = dyn_cast<Instruction>(value);
        if (!instruction || instruction->getParent() != place.getParent() || instruction->comesBefore(&place))
            return;
        for (Value *operand : instruction->operands())
            compute_before(operand, place);
        instruction->moveBefore(&place);
    }

    // The ranges that these accesses have if they are checked before the first of them.
    Group plan(ArrayRef<Member> from) const {
        const Instruction &place = *from.front().access;
        MapVector<Value *, SmallVector<Member, 8>> by_base;
        for (const Member &member : from)
            if (is_available(member.base, place))
                by_base[member.base].push_back(member);
        Group group;
        for (auto &[base, here] : by_base) {
            SmallVector<Range, 4> own = ranges_of(base, here);
            group.ranges.append(own.begin(), own.end());
        }
        erase_if(group.ranges, [](const Range &range) { return range.worth <= RangeCost; });
        llvm::sort(group.ranges, [](const Range &a, const Range &b) { return std::pair(-a.worth, a.low) < std::pair(-b.worth, b.low); });
        if (group.ranges.size() > NotedMost)
            group.ranges.truncate(NotedMost);
        group.gain = -GroupCost;
        for (const Range &range : group.ranges)
            group.gain += range.worth - RangeCost;
        return group;
    }

    // Where a range stores it may also load.
    SmallVector<Range, 4> ranges_of(Value *base, SmallVector<Member, 8> &here) const {
        SmallVector<Range, 4> ranges;
        llvm::sort(here, [](const Member &a, const Member &b) {
            return std::tuple(!may_store(*a.access), a.offset, a.bytes) < std::tuple(!may_store(*b.access), b.offset, b.bytes);
        });
        for (const Member &member : here) {
            bool is_store = may_store(*member.access);
            int64_t end = member.offset + member.bytes;
            Range *fitting = nullptr;
            for (Range &range : ranges) {
                bool is_within = member.offset >= range.low && end <= range.high;
                int64_t high = std::max(range.high, end);
                bool goes_on = range.is_store == is_store && member.offset >= range.low && member.offset <= range.high + GapMost &&
                               high - range.low <= RangeBytesMost;
                if (!is_within && !goes_on)
                    continue;
                range.high = high;
                fitting = &range;
                break;
            }
            if (!fitting) {
                ranges.push_back({base, member.offset, end, is_store, 0, {}});
                fitting = &ranges.back();
            }
            // A range of stores begins with one.
            fitting->worth += worth_of(member, fitting->accesses.empty());
            fitting->accesses.push_back(member.access);
        }
        return ranges;
    }

    void group_among(ArrayRef<Member> among) {
        Group best;
        size_t best_start = 0;
        SmallPtrSet<Value *, 8> bases;
        for (size_t start = 0; start < among.size() && bases.size() < PlacesMost; start++) {
            if (!bases.insert(among[start].base).second)
                continue;
            Group group = plan(among.drop_front(start));
            if (group.gain > best.gain) {
                best = std::move(group);
                best_start = start;
            }
        }
        if (best.gain <= 0)
            return;
        SmallPtrSet<Instruction *, 32> covered;
        for (const Range &range : best.ranges)
            covered.insert(range.accesses.begin(), range.accesses.end());
        size_t end = among.size();
        while (!covered.contains(among[end - 1].access))
            end--;
        while (!covered.contains(among[best_start].access))
            best_start++;
        for (const Member &member : among.slice(best_start, end - best_start))
            if (!covered.contains(member.access) && !is_checked_alone(*member.access, options))
                return;
        for (const Member &member : among.slice(best_start, end - best_start))
            (covered.contains(member.access) ? members.covered : members.inside).insert(member.access);
        // From behind: what stands before stays in its block.
        group_among(among.drop_front(end));
        pin(best, *among[best_start].access, *among[end - 1].access);
        group_among(among.take_front(best_start));
    }

    void pin(const Group &group, Instruction &first_access, Instruction &last_access) {
        for (const Range &range : group.ranges)
            compute_before(range.base, first_access);
        IRBuilder<> after(last_access.getNextNode());
        after.SetCurrentDebugLocation(last_access.getDebugLoc());
        checker.unpin(after);
        BasicBlock *before = first_access.getParent();
        BasicBlock *rest = before->splitBasicBlock(&first_access, "group");
        before->getTerminator()->eraseFromParent();
        IRBuilder<> builder(before);
        builder.SetCurrentDebugLocation(first_access.getDebugLoc());
        SmallVector<RangeToCheck, NotedMost> ranges;
        for (const Range &range : group.ranges) {
            Value *start = builder.CreatePtrToInt(range.base, builder.getInt64Ty());
            start = builder.CreateAdd(start, builder.getInt64(uint64_t(range.low)));
            ranges.push_back({start, builder.getInt64(uint64_t(range.high - range.low)), range.is_store});
        }
        checker.pin_ranges(builder, ranges);
        builder.CreateBr(rest);
    }
};

} // namespace

void group_neighbours(Function &function, const Options &options, Checker &checker, StripMembers &members) {
    if (function.hasOptNone() || !options.checks_stores())
        return;
    const DataLayout &layout = function.getParent()->getDataLayout();
    TargetLibraryInfoImpl known{Triple(function.getParent()->getTargetTriple())};
    TargetLibraryInfo library(known, &function);
    // All stretches are found before blocks are split.
    std::deque<Stretch> stretches;
    auto begin_stretch = [&] { stretches.emplace_back(options, checker, members, layout); };
    for (BasicBlock &block : function) {
        begin_stretch();
        for (Instruction &instruction : block) {
            if (isa<PHINode>(instruction))
                continue;
            bool is_plain = false;
            if (is_access(instruction) && !is_own(instruction) && !members.covered.contains(&instruction) && !members.inside.contains(&instruction)) {
                is_plain = true;
                auto *load = dyn_cast<LoadInst>(&instruction);
                auto *store = dyn_cast<StoreInst>(&instruction);
                bool is_simple = (load && load->isSimple()) || (store && store->isSimple());
                bool is_unchecked = is_private(pointer_of(instruction)) || (load && !options.checks_loads());
                if (is_simple && !is_unchecked)
                    stretches.back().add_access(instruction, layout);
                else if (!is_unchecked)
                    is_plain = false;
            }
            if (!is_plain && (is_access(instruction) || !may_be_between_pins(instruction, library)))
                begin_stretch();
            else
                stretches.back().add(instruction);
            if (stretches.back().size() == InstructionsMost)
                begin_stretch();
        }
    }
    for (Stretch &stretch : stretches)
        stretch.group();
}

} // namespace comb
