#include "assembly.h"
#include "runtime.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace comb {

namespace {

// Labels must differ in every copy that the compiler makes of a site.
std::string label(const char *name) { return std::string(".Lcomb_") + name + "${:uid}"; }

// What Blizzard's first figure varies.
std::string lookup_cost(const Site &site) {
    if (site.lookup_cost == 0)
        return "";
    return ".rept " + std::to_string(site.lookup_cost) + "\nnop\n.endr\n";
}

// Out of line: behind the function's section, so that the code that always runs stays together.
const char Aside[] = ".subsection 1\n";
const char Back[] = ".subsection 0\n";

// Jumps to `miss` when the state byte of the address that is `offset` behind `memory` is not zero, nor, with `and_next`, that of the next block.
std::string look_at_state(const std::string &memory, unsigned offset, const std::string &table, const std::string &miss, bool and_next) {
    // An address in a register is a pair of parentheses around it.
    bool is_register = memory.front() == '(';
    std::string text = is_register ? "movq " + memory.substr(1, memory.size() - 2) + ", $0\n" : "leaq " + memory + ", $0\n";
    if (offset)
        text += "leaq " + std::to_string(offset) + "($0), $0\n";
    return text + "shrq $$7, $0\ncmp" + (and_next ? "w" : "b") + " $$0, (" + table + ",$0)\njne " + miss + "\n";
}

std::string miss_of(size_t look) { return label(("miss" + std::to_string(look) + "_").c_str()); }

// One sequence from its description to its end; labels have `suffix`.
std::string sequence(const Site &site, ArrayRef<Look> looks, const std::string &work, const std::string &offset, const std::string &table,
                     const std::string &suffix, const std::string &far) {
    auto named = [&](const char *name) { return label((name + suffix).c_str()); };
    std::string text = site.is_position_independent ? "leaq " + named("descriptor") + "(%rip), $0\nmovq $0, %fs:8(" + offset + ")\n"
                                                    : "movq $$" + named("descriptor") + ", %fs:8(" + offset + ")\n";
    text += named("start") + ":\n" + lookup_cost(site);
    for (size_t index = 0; index < looks.size(); index++) {
        const Look &look = looks[index];
        if (look.may_straddle && !far.empty()) {
            text += look_at_state(look.memory, 0, table, far, true);
            continue;
        }
        if (look.may_straddle)
            text += look_at_state(look.memory, look.bytes - 1, table, miss_of(index), false);
        text += look_at_state(look.memory, 0, table, miss_of(index), false);
    }
    return text + work + named("end") + ":\n";
}

// The kernel goes to an abort handler only where glibc's signature stands before it; as an instruction it is an illegal one.
std::string abort_of(const std::string &suffix) {
    return ".byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n" + label(("abort" + suffix).c_str()) + ":\njmp " + label("again") + "\n";
}

// struct rseq_cs: version and flags, start, length, abort handler.
std::string descriptor_of(const std::string &suffix) {
    auto named = [&](const char *name) { return label((name + suffix).c_str()); };
    return named("descriptor") + ":\n.long 0, 0\n.quad " + named("start") + ", " + named("end") + "-" + named("start") + ", " +
           named("abort") + "\n";
}

} // namespace

std::string operand(unsigned index, uint64_t bytes) {
    const char *modifier = bytes == 1 ? "b" : bytes == 2 ? "w" : bytes == 4 ? "k" : "q";
    return "${" + std::to_string(index) + ":" + modifier + "}";
}

char width_letter(uint64_t bytes) { return bytes == 1 ? 'b' : bytes == 2 ? 'w' : bytes == 4 ? 'l' : 'q'; }

std::string call_keeping(const Site &site, const std::string &name) {
    return site.is_position_independent ? "call *" + name + "@GOTPCREL(%rip)\n" : "call " + name + "\n";
}

std::string call_entry(const Site &site, const std::string &memory, const std::string &scratch, const std::string &back, unsigned bytes,
                       Kind kind) {
    std::string what = std::to_string(bytes << 2 | unsigned(kind));
    // The address is computed before the stack pointer moves, in case it is relative to that.
    return "leaq " + memory + ", " + scratch + "\nleaq -128(%rsp), %rsp\npushq " + scratch + "\nleaq " + back + "(%rip), " + scratch +
           "\npushq " + scratch + "\npushq $$" + what + "\n" + call_keeping(site, "comb_entry") + "leaq 152(%rsp), %rsp\n";
}

std::string flag_check(const Site &site, const std::string &compare, const std::string &memory, const std::string &scratch,
                       const std::string &load_again, unsigned bytes, Kind kind) {
    std::string text = lookup_cost(site) + compare + label("back") + ":\n" + Aside + label("miss") + ":\n";
    text += call_entry(site, memory, scratch, label("back") + "-1", bytes, kind) + load_again;
    if (kind == Kind::Load)
        text += "leaq -128(%rsp), %rsp\n" + call_keeping(site, "comb_load_end") + "leaq 128(%rsp), %rsp\n";
    return text + "jmp " + label("back") + "\n" + Back;
}

std::string restartable(const Site &site, ArrayRef<Look> looks, const std::string &work, unsigned offset_operand) {
    std::string offset = "$" + std::to_string(offset_operand), table = "$" + std::to_string(offset_operand + 1);
    bool may_straddle = any_of(looks, [](const Look &look) { return look.may_straddle; });
    std::string far = may_straddle ? label("far") : "";
    std::string text = label("again") + ":\n" + sequence(site, looks, work, offset, table, "", far) + Aside + abort_of("");
    // The next block is another's, but it may not be this store's. There is no way back into a sequence: this is another one.
    if (may_straddle)
        text += far + ":\n" + sequence(site, looks, work, offset, table, "_far", "") + "jmp " + label("end") + "\n" + abort_of("_far");
    for (size_t index = 0; index < looks.size(); index++)
        text += miss_of(index) + ":\n" + call_entry(site, looks[index].memory, "$0", label("start"), looks[index].bytes, Kind::Store) +
                "jmp " + label("again") + "\n";
    text += Back;
    text += ".pushsection .data.rel.ro.comb,\"aw?\",@progbits\n.balign 32\n" + descriptor_of("");
    if (may_straddle)
        text += descriptor_of("_far");
    return text + ".popsection\n";
}

std::string poll(const Site &site) {
    return "cmpb $$0, " + std::to_string(Mail) + "\njne " + label("mail") + "\n" + label("polled") + ":\n" + Aside + label("mail") +
           ":\nleaq -128(%rsp), %rsp\n" + call_keeping(site, "comb_poll") + "leaq 128(%rsp), %rsp\njmp " + label("polled") + "\n" + Back;
}

std::string pinned_begin(const Site &site, unsigned bytes, Kind kind) {
    // The report wants a byte of this code before the place that it is told.
    std::string text = label("again") + ":\nincq $3\n" + label("look") + ":\n";
    text += lookup_cost(site);
    if (bytes > 1)
        text += look_at_state("$1", bytes - 1, "$2", label("miss"), false);
    text += look_at_state("$1", 0, "$2", label("miss"), false);
    text += Aside + label("miss") + ":\n";
    // Even again, because the entry may wait. A load's entry returns pinned; after a store's we look again.
    text += "incq $3\n" + call_entry(site, "$1", "$0", label("look"), bytes, kind);
    text += "jmp " + (kind == Kind::Load ? label("done") : label("again")) + "\n" + Back + label("done") + ":\n";
    return text;
}

} // namespace comb
