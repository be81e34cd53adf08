#include "series.h"
#include "addresses.h"
#include "runtime.h"

#include "llvm/Analysis/AliasAnalysis.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/BasicAliasAnalysis.h"
#include "llvm/Analysis/MemoryLocation.h"
#include "llvm/Analysis/ScopedNoAliasAA.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/Analysis/TypeBasedAliasAnalysis.h"
#include "llvm/IR/IntrinsicInst.h"

#include <optional>

using namespace llvm;

namespace comb {

namespace {

// What a sequence holds in registers beside these, the compiler needs for itself.
constexpr unsigned StoresMost = 6, BlocksMost = 3, NumbersMost = 3;
// Values of the first store wait in registers until the last.
constexpr unsigned InstructionsMost = 48;

// Grows one series after the other, along a block.
class Finder {
public:
    Finder(Function &function, const SmallPtrSetImpl<Instruction *> &stores)
        : stores(stores), layout(function.getParent()->getDataLayout()), known(Triple(function.getParent()->getTargetTriple())),
          library(known, &function), assumptions(function), basic(layout, function, library, assumptions), aliases(library) {
        aliases.addAAResult(basic);
        aliases.addAAResult(by_type);
        aliases.addAAResult(by_scope);
    }

    void look_at(Instruction &instruction) {
        auto *store = dyn_cast<StoreInst>(&instruction);
        if (store && stores.contains(store)) {
            if (!join(*store)) {
                end();
                join(*store);
            }
            return;
        }
        if (!series.stores.empty() && (++instructions > InstructionsMost || !may_be_passed(instruction)))
            end();
    }

    void end() {
        if (series.stores.size() > 1)
            found.push_back(series);
        series = {};
        addresses = Addresses(layout);
        numbers = instructions = 0;
    }

    SmallVector<Series, 0> found;

private:
    const SmallPtrSetImpl<Instruction *> &stores;
    const DataLayout &layout;
    TargetLibraryInfoImpl known;
    TargetLibraryInfo library;
    AssumptionCache assumptions;
    BasicAAResult basic;
    TypeBasedAAResult by_type;
    ScopedNoAliasAAResult by_scope;
    AAResults aliases;
    Series series;
    Addresses addresses{layout};
    unsigned numbers = 0, instructions = 0;

    static bool is_number(const StoreInst &store) {
        Type *type = store.getValueOperand()->getType();
        return (type->isIntegerTy() || type->isPointerTy()) && !isa<Constant>(store.getValueOperand());
    }

    bool join(StoreInst &store) {
        if (series.stores.size() == StoresMost || numbers + is_number(store) > NumbersMost)
            return false;
        Addresses::Place place = addresses.place_of(store.getPointerOperand());
        Value *first = place.first;
        int64_t distance = place.distance;
        int64_t end = distance + int64_t(layout.getTypeStoreSize(store.getValueOperand()->getType()).getFixedValue());
        auto block = find_if(series.blocks, [&](const SeriesBlock &block) {
            return block.first == first && std::max(end, block.high) - std::min(distance, block.low) <= int64_t(StateBlockBytes);
        });
        if (block == series.blocks.end()) {
            if (series.blocks.size() == BlocksMost)
                return false;
            series.blocks.push_back({first, distance, end, store.getPointerOperand(), store.getAlign()});
            block = &series.blocks.back();
        }
        if (distance < block->low) {
            block->low = distance;
            block->lowest = store.getPointerOperand();
            block->lowest_alignment = store.getAlign();
        }
        block->high = std::max(block->high, end);
        series.stores.push_back({&store, unsigned(block - series.blocks.begin()), distance});
        numbers += is_number(store);
        return true;
    }

    // The series' stores may as well be done behind it.
    bool may_be_passed(Instruction &instruction) {
        if (!instruction.mayReadOrWriteMemory() && !instruction.mayHaveSideEffects())
            return true;
        if (auto *intrinsic = dyn_cast<IntrinsicInst>(&instruction))
            return intrinsic->isAssumeLikeIntrinsic();
        auto *load = dyn_cast<LoadInst>(&instruction);
        auto *other = dyn_cast<StoreInst>(&instruction);
        if (!(load && load->isSimple()) && !(other && other->isSimple()))
            return false;
        MemoryLocation location = MemoryLocation::get(&instruction);
        return all_of(series.stores, [&](const SeriesStore &member) { return aliases.isNoAlias(MemoryLocation::get(member.store), location); });
    }
};

} // namespace

SmallVector<Series, 0> find_series(Function &function, const SmallPtrSetImpl<Instruction *> &stores) {
    if (stores.size() < 2 || function.hasOptNone())
        return {};
    Finder finder(function, stores);
    for (BasicBlock &block : function) {
        for (Instruction &instruction : block)
            finder.look_at(instruction);
        finder.end();
    }
    return std::move(finder.found);
}

} // namespace comb
