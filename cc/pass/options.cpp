#include "options.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cstdlib>

using namespace llvm;

namespace comb {

namespace {

[[noreturn]] void refuse(const Twine &message) { report_fatal_error("comb: " + message, false); }

uint64_t number(StringRef name, StringRef value) {
    uint64_t result;
    if (value.getAsInteger(10, result))
        refuse(name + " must be a number: " + value);
    return result;
}

void read_names(StringRef path, StringSet<> &names) {
    auto file = MemoryBuffer::getFile(path, true);
    if (!file)
        refuse("cannot read the list " + path + ": " + file.getError().message());
    SmallVector<StringRef> lines;
    (*file)->getBuffer().split(lines, '\n', -1, false);
    for (StringRef line : lines)
        if (StringRef name = line.split('#').first.trim(); !name.empty())
            names.insert(name);
}

Access access_of(StringRef name) {
    for (Access access : {Access::Check, Access::Hybrid, Access::Mmu, Access::Page}) {
        Options options;
        options.access = access;
        if (name == options.access_name())
            return access;
    }
    refuse("no such access: " + name);
}

} // namespace

const char *Options::access_name() const {
    switch (access) {
    case Access::Check: return "check";
    case Access::Hybrid: return "hybrid";
    case Access::Mmu: return "mmu";
    case Access::Page: return "page";
    }
    return "";
}

Options Options::from_environment() {
    Options options;
    const char *text = std::getenv("COMB_PASS");
    SmallVector<StringRef> words;
    StringRef(text ? text : "").split(words, ',', -1, false);
    for (StringRef word : words) {
        auto [name, value] = word.split('=');
        if (name == "access")
            options.access = access_of(value);
        else if (name == "explain")
            options.explains = number(name, value) != 0;
        else if (name == "stores")
            options.has_rseq = value != "pinned";
        else if (name == "poll")
            options.polls = number(name, value) != 0;
        else if (name == "block")
            options.block_bytes = number(name, value);
        else if (name == "lookup-cost")
            options.lookup_cost = unsigned(number(name, value));
        else if (name == "covered")
            read_names(value, options.covered);
        else
            refuse("COMB_PASS has a word that this pass does not know: " + word);
    }
    options.verifies = std::getenv("COMB_VERIFY") != nullptr;
    return options;
}

} // namespace comb
