#include "module.h"

#include "llvm/ADT/StringExtras.h"

#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"

using namespace llvm;

namespace comb {

namespace {

// Instructions that touch no memory of the program's, by their first word.
bool is_harmless(StringRef statement) {
    static const char *const words[] = {"pause",  "mfence", "lfence", "sfence", "rdtsc", "rdtscp", "cpuid", "nop",    "rep",
                                        "rdrand", "rdseed", "xgetbv", "bswap",  "bsf",   "bsr",    "popcnt", "lzcnt", "tzcnt",
                                        "int3",   "ud2",    "rol",    "ror",    "mul",   "imul",   "div",    "idiv"};
    // Where the next instruction begins.
    if (any_of(ArrayRef<StringRef>{".p2align", ".balign", ".align"}, [&](StringRef directive) { return statement.starts_with(directive); }))
        return true;
    StringRef word = statement.take_while([](char c) { return isAlnum(c); });
    // A size's letter behind the word: bswapl, mulq.
    StringRef bare = word.size() > 3 && StringRef("bwlq").contains(word.back()) ? word.drop_back() : word;
    bool is_known = any_of(words, [&](const char *known) { return word == known || bare == known; });
    if (word == "rep")
        return statement.drop_front(3).trim(" \t;").starts_with("nop");
    return is_known && !statement.contains('(');
}

bool is_harmless_text(StringRef text, StringRef constraints) {
    if (text.contains("comb: private"))
        return true;
    SmallVector<StringRef> statements;
    std::string lines = text.str();
    for (char &c : lines)
        if (c == ';')
            c = '\n';
    StringRef(lines).split(statements, '\n', -1, false);
    bool has_memory_operand = constraints.contains('*');
    for (StringRef statement : statements) {
        statement = statement.split('#').first.trim();
        if (statement == "rep" || statement.empty())
            continue;
        if (has_memory_operand || !is_harmless(statement))
            return false;
    }
    return true;
}

} // namespace

void refuse_assembly(Function &function) {
    for (Instruction &instruction : instructions(function)) {
        auto *call = dyn_cast<CallBase>(&instruction);
        auto *assembly = call ? dyn_cast<InlineAsm>(call->getCalledOperand()) : nullptr;
        if (!assembly || is_harmless_text(assembly->getAsmString(), assembly->getConstraintString()))
            continue;
        function.getContext().diagnose(DiagnosticInfoUnsupported(
            function,
            "inline assembly may touch shared memory where it cannot be checked; if it touches none, say so with a comment "
            "'comb: private' in its text",
            instruction.getDebugLoc()));
    }
}

} // namespace comb
