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

// Nothing but registers and numbers, by an instruction that has no other operands than those that are written.
bool is_of_registers(StringRef statement) {
    static const char *const with_hidden[] = {"push", "pop",  "call", "ret",  "leave", "enter", "sys",  "int",  "iret", "stos", "movs", "lods", "scas",
                                              "cmps", "ins",  "outs", "xlat", "jmp",   "maskmov", "rep", "lock", "clzero", "monitor", "mwait", "wr", "rd"};
    StringRef word = statement.take_while([](char c) { return isAlnum(c); });
    // movsd and cmpsd of two registers are of numbers with a point, movsbl and its like extend.
    StringRef operands = statement.drop_front(word.size()).trim();
    if (word.empty() || operands.empty() || operands.find_first_of("([*") != StringRef::npos)
        return false;
    bool is_conversion = word.starts_with("movs") || word.starts_with("cmps");
    if (!is_conversion && any_of(with_hidden, [&](const char *one) { return word.starts_with(one); }))
        return false;
    SmallVector<StringRef> each;
    operands.split(each, ',');
    return all_of(each, [](StringRef operand) {
        operand = operand.trim();
        // A segment before an address has a colon; that of an operand's size stands in braces.
        return (operand.starts_with("$") || operand.starts_with("%")) && (operand.contains('{') || !operand.contains(':'));
    });
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
        if (has_memory_operand || !(is_harmless(statement) || is_of_registers(statement)))
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
        StringRef name = function.getName() == "comb_main" ? "main" : function.getName();
        function.getContext().diagnose(DiagnosticInfoUnsupported(
            function,
            "inline assembly in " + name + " (" + function.getParent()->getSourceFileName() + ") may touch shared memory where it cannot be checked; "
            "if it touches none, say so with a comment 'comb: private' in its text",
            instruction.getDebugLoc()));
    }
}

} // namespace comb
