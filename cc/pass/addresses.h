// Addresses at constant distances from each other.
#pragma once

#include "llvm/IR/DataLayout.h"
#include "llvm/IR/Value.h"

#include <map>
#include <vector>

namespace comb {

class Addresses {
public:
    explicit Addresses(const llvm::DataLayout &layout) : layout(&layout) {}

    struct Place {
        // The first address that was asked for of those at constant distances from this one.
        llvm::Value *first;
        int64_t distance;
    };
    Place place_of(llvm::Value *pointer);

private:
    using Variables = std::vector<std::pair<llvm::Value *, int64_t>>;
    const llvm::DataLayout *layout;
    // By what the addresses are computed from, and what that is multiplied with: the first, and its constant.
    std::map<std::pair<llvm::Value *, Variables>, std::pair<llvm::Value *, int64_t>> firsts;
};

} // namespace comb
