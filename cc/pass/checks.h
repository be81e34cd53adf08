// Checks of single accesses.
#pragma once

#include "options.h"
#include "series.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Instructions.h"

namespace comb {

// What --explain tells of a function.
struct Counts {
    unsigned loads = 0;
    unsigned stores = 0;
    unsigned atomics = 0;
    // Accesses checked alone, with pins, because no cheaper way fits their type.
    unsigned pinned = 0;
    // Sequences of more than one store.
    unsigned series = 0;
    // Accesses of private memory.
    unsigned removed = 0;
    // Accesses that another look at their block in the same restartable sequence is for.
    unsigned redundant = 0;
    // Accesses checked together with others.
    unsigned batched = 0;
    unsigned copies = 0;
    unsigned moved_objects = 0;
};

// Addresses and bytes are 64-bit numbers.
struct RangeToCheck {
    llvm::Value *address, *bytes;
    bool is_store;
};

class Checker {
public:
    Checker(llvm::Function &function, const Options &options, Counts &counts);

    // The access is checked; the instruction may be replaced. `is_in_batch`: other accesses' pins are held around it.
    void check(llvm::Instruction &access, bool is_in_batch);

    // Before any access is checked: finds loads that will be part of a store. They need no check.
    llvm::SmallPtrSet<llvm::Instruction *, 16> find_changes(llvm::ArrayRef<llvm::Instruction *> accesses);

    // Behind `find_changes`: stores that can be done together are, and are gone. Returns them, to be compared with.
    llvm::SmallPtrSet<llvm::Instruction *, 16> check_series(llvm::ArrayRef<llvm::Instruction *> accesses);

    // Until `unpin`, the ranges may be accessed; at most 8. The builder stands at the end of a block that is not complete, and goes on
    // in another.
    void pin_ranges(llvm::IRBuilder<> &builder, llvm::ArrayRef<RangeToCheck> ranges);
    void unpin(llvm::IRBuilder<> &builder);
    // Looks for mail, not between pins.
    void poll(llvm::IRBuilder<> &builder);

private:
    llvm::Function &function;
    const Options &options;
    const llvm::DataLayout &layout;
    Counts &counts;
    bool is_position_independent;
    bool has_avx, has_avx2;
    llvm::Value *rseq_offset = nullptr;
    // A store whose value is computed from a load of the same place.
    llvm::DenseMap<llvm::StoreInst *, llvm::LoadInst *> changes;

    void note(llvm::IRBuilder<> &builder, llvm::ArrayRef<RangeToCheck> ranges);
    void add_pin(llvm::IRBuilder<> &builder);
    void look_again(llvm::IRBuilder<> &builder);
    void check_load(llvm::LoadInst &load, bool is_in_batch);
    // One store inside a sequence: its text, and its value with the constraint of that.
    struct Move {
        std::string text, constraint;
        llvm::Value *value;
    };
    Move move_of(llvm::IRBuilder<> &builder, llvm::StoreInst &store, unsigned value_operand, const std::string &memory);
    bool has_move(llvm::Type *type);
    void check_together(const Series &series);
    void check_store(llvm::StoreInst &store, bool is_in_batch);
    bool change_in_place(llvm::StoreInst &store);
    void pin_around(llvm::Instruction &access, llvm::Value *pointer, llvm::Type *type, bool is_store, bool is_in_batch);
    llvm::Value *check_general(llvm::LoadInst &load, bool is_in_batch);
    llvm::Value *check_floating(llvm::LoadInst &load, bool is_in_batch);
    llvm::Value *check_vector(llvm::LoadInst &load, bool is_in_batch);
    void replace_load(llvm::LoadInst &load, llvm::Instruction *first_use, llvm::Value *checked);
    llvm::Value *offset_of_rseq();
    llvm::CallInst *assemble(llvm::IRBuilder<> &builder, llvm::Type *result, llvm::StringRef text, llvm::StringRef constraints,
                             llvm::ArrayRef<llvm::Value *> operands, llvm::ArrayRef<std::pair<unsigned, llvm::Type *>> memories);
};

// Whether an instruction loads or stores by itself, and so must be checked; calls are others' business.
bool is_access(const llvm::Instruction &instruction);
llvm::Value *pointer_of(llvm::Instruction &access);
llvm::Type *type_of(llvm::Instruction &access);
bool may_store(const llvm::Instruction &access);

} // namespace comb
