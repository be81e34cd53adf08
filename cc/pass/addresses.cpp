#include "addresses.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/IR/Operator.h"

using namespace llvm;

namespace comb {

Addresses::Place Addresses::place_of(Value *pointer) {
    constexpr unsigned Bits = 64;
    Value *base = pointer->stripPointerCasts();
    MapVector<Value *, APInt> scaled;
    APInt constant(Bits, 0);
    while (auto *step = dyn_cast<GEPOperator>(base)) {
        if (layout->getIndexTypeSizeInBits(step->getType()) != Bits || !step->collectOffset(*layout, Bits, scaled, constant))
            break;
        base = step->getPointerOperand()->stripPointerCasts();
    }
    Variables variables;
    for (const auto &[variable, scale] : scaled)
        variables.emplace_back(variable, scale.getSExtValue());
    llvm::sort(variables);
    int64_t own = constant.getSExtValue();
    auto [first, is_new] = firsts.try_emplace({base, std::move(variables)}, pointer, own);
    return {first->second.first, own - first->second.second};
}

} // namespace comb
