// The texts that checks consist of. Operands are named by their place: $0 is the result.
#pragma once

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <string>

namespace comb {

enum class Kind { Load = 0, Store = 1, LoadInBatch = 2 };

struct Site {
    bool is_position_independent;
    unsigned lookup_cost;
};

// A general register's name has its width: ${0:k} is four bytes of $0.
std::string operand(unsigned index, uint64_t bytes);
// An instruction's letter for a width, as in `movq`.
char width_letter(uint64_t bytes);

// Calls comb_entry for the memory operand `memory`. `scratch` is a general register whose value is not needed; `back` is the label
// of the instruction that the report names.
std::string call_entry(const Site &site, const std::string &memory, const std::string &scratch, const std::string &back, unsigned bytes,
                       Kind kind);

// A function of the runtime that keeps all registers; the red zone below the stack pointer is kept too.
std::string call_keeping(const Site &site, const std::string &name);

// Compares with the flag, then the slow path, out of line, which loads again. `compare` ends with a jump to .Lcomb_miss.
std::string flag_check(const Site &site, const std::string &compare, const std::string &memory, const std::string &scratch,
                       const std::string &load_again, unsigned bytes, Kind kind);

// What a sequence looks at before its stores: `bytes` bytes from the operand `memory`, no more than a block has.
struct Look {
    std::string memory;
    unsigned bytes;
    bool may_straddle;
};

// Stores in a restartable sequence, or what else may be done again until its last instruction: `work`. `offset_operand` is the number of
// the offset of the rseq area, behind which is the state table. $0 is scratch.
std::string restartable(const Site &site, llvm::ArrayRef<Look> looks, const std::string &work, unsigned offset_operand);

// Looks for mail.
std::string poll(const Site &site);

// Pins, and looks at the block's state: $0 scratch, $1 memory, $2 state table, $3 the pins.
std::string pinned_begin(const Site &site, unsigned bytes, Kind kind);

} // namespace comb
