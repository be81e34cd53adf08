// What instrumented code uses of the runtime: fields of comb_thread.h, and names.
#pragma once

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

namespace comb {

constexpr uint64_t StateTable = 0x2fe000000000;
constexpr unsigned StateShift = 7;
constexpr uint64_t StateBlockBytes = 1 << StateShift;
// A byte that is not 0 when somebody has asked for something.
constexpr uint32_t Mail = 0x100000 + 96;
constexpr uint32_t Flag = 0xf1f1f1f1;
constexpr unsigned NotedMost = 8;

// Offsets in struct comb_thread.
enum class ThreadField : uint64_t { Pins = 0, SharedStack = 8, SharedStackEnd = 16, NotedCount = 24, Noted = 32 };

llvm::Value *thread_field(llvm::IRBuilder<> &builder, ThreadField field, uint64_t further = 0);
llvm::FunctionCallee more_stack(llvm::Module &module);

// Weights for a branch that is hardly ever taken.
llvm::MDNode *unlikely(llvm::LLVMContext &context);

// An access that the pass itself inserted is not checked.
void mark_own(llvm::Instruction &instruction);
bool is_own(const llvm::Instruction &instruction);

// Code for a shared library, which cannot name absolute addresses.
bool is_position_independent(const llvm::Module &module);

} // namespace comb
