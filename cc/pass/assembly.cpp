#include "assembly.h"
#include "runtime.h"

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

// Jumps to `miss` when a state byte is not zero: the block's, and the block's at the other end.
std::string look_at_state(const Site &site, const std::string &memory, const std::string &table, const std::string &miss, unsigned bytes,
                          bool may_straddle) {
    std::string scratch = "$0", text = lookup_cost(site);
    if (may_straddle) {
        text += std::string("leaq ") + memory + ", $0\nleaq " + std::to_string(bytes - 1) + "($0), $0\nshrq $$7, $0\ncmpb $$0, (" + table +
                ",$0)\njne " + miss + "\n";
    }
    text += std::string("leaq ") + memory + ", $0\nshrq $$7, $0\ncmpb $$0, (" + table + ",$0)\njne " + miss + "\n";
    return text;
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

std::string restartable(const Site &site, const std::string &work, unsigned first, unsigned bytes, bool may_straddle) {
    std::string memory = "$" + std::to_string(first), offset = "$" + std::to_string(first + 1), table = "$" + std::to_string(first + 2);
    std::string describe = site.is_position_independent ? "leaq " + label("descriptor") + "(%rip), $0\nmovq $0, %fs:8(" + offset + ")\n"
                                                        : "movq $$" + label("descriptor") + ", %fs:8(" + offset + ")\n";
    std::string text = label("again") + ":\n" + describe + label("start") + ":\n";
    text += look_at_state(site, memory, table, label("miss"), bytes, may_straddle);
    text += work + label("end") + ":\n" + Aside;
    // The kernel goes to an abort handler only where glibc's signature stands before it; as an instruction it is an illegal one.
    text += ".byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n" + label("abort") + ":\njmp " + label("again") + "\n";
    text += label("miss") + ":\n" + call_entry(site, memory, "$0", label("start"), bytes, Kind::Store);
    text += "jmp " + label("again") + "\n" + Back;
    // struct rseq_cs: version and flags, start, length, abort handler.
    text += ".pushsection .data.rel.ro.comb,\"aw?\",@progbits\n.balign 32\n" + label("descriptor") + ":\n.long 0, 0\n.quad " +
            label("start") + ", " + label("end") + "-" + label("start") + ", " + label("abort") + "\n.popsection\n";
    return text;
}

std::string poll(const Site &site) {
    return "cmpb $$0, " + std::to_string(Mail) + "\njne " + label("mail") + "\n" + label("polled") + ":\n" + Aside + label("mail") +
           ":\nleaq -128(%rsp), %rsp\n" + call_keeping(site, "comb_poll") + "leaq 128(%rsp), %rsp\njmp " + label("polled") + "\n" + Back;
}

std::string pinned_begin(const Site &site, unsigned bytes, Kind kind) {
    // The report wants a byte of this code before the place that it is told.
    std::string text = label("again") + ":\nincq $3\n" + label("look") + ":\n";
    text += look_at_state(site, "$1", "$2", label("miss"), bytes, bytes > 1);
    text += Aside + label("miss") + ":\n";
    // Even again, because the entry may wait. A load's entry returns pinned; after a store's we look again.
    text += "incq $3\n" + call_entry(site, "$1", "$0", label("look"), bytes, kind);
    text += "jmp " + (kind == Kind::Load ? label("done") : label("again")) + "\n" + Back + label("done") + ":\n";
    return text;
}

} // namespace comb
