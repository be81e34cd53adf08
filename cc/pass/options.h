// What the driver asks of the pass. It travels in one environment variable, because a plug-in's own options are not known yet when
// clang reads its command line.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"

#include <cstdint>
#include <string>

namespace comb {

enum class Access { Check, Hybrid, Mmu, Page };

struct Options {
    Access access = Access::Check;
    bool explains = false;
    // COMB_VERIFY is set: LLVM's verifier looks at what comes out.
    bool verifies = false;
    // Stores in restartable sequences; else each is pinned.
    bool has_rseq = true;
    // Loops look for mail.
    bool polls = true;
    uint64_t block_bytes = 128;
    // Further instructions for each check.
    unsigned lookup_cost = 0;
    // Lists of functions that the library covers, one name a line.
    llvm::StringSet<> covered;

    bool checks_loads() const { return access == Access::Check; }
    bool checks_stores() const { return access == Access::Check || access == Access::Hybrid; }
    const char *access_name() const;

    // From COMB_PASS: words `name=value` with commas between. What it does not know ends the compiler.
    static Options from_environment();
};

} // namespace comb
