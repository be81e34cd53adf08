#include "module.h"

#include "llvm/IR/GlobalVariable.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"

using namespace llvm;

namespace comb {

namespace {

// The linker script gathers both; the second needs no room in the file, which LLVM knows by the name's beginning.
const char Filled[] = ".comb.data";
const char Zeros[] = ".bss.comb";

bool is_placed(const GlobalVariable &variable) {
    if (variable.isDeclarationForLinker() || variable.isConstant() || variable.isThreadLocal() || variable.hasSection())
        return false;
    return !variable.getName().starts_with("llvm.") && variable.getAddressSpace() == 0;
}

// What tells libstdc++'s facets from each other must be libstdc++'s own: plain code numbers them, in each component for itself.
bool is_of_facet(const GlobalVariable &variable) {
    StringRef name = variable.getName();
    return !variable.isDeclarationForLinker() && variable.isWeakForLinker() && name.starts_with("_ZNSt") && name.ends_with("2idE");
}

void leave_to_library(GlobalVariable &variable) {
    variable.setInitializer(nullptr);
    variable.setComdat(nullptr);
    variable.setLinkage(GlobalValue::ExternalLinkage);
    variable.setDSOLocal(false);
}

// What the linker and the runtime must know of an object: files of different access do not go together.
void write_note(Module &module, const Options &options) {
    std::string text = "comb 1 access=" + std::string(options.access_name()) + " block=" + std::to_string(options.block_bytes);
    module.appendModuleInlineAsm(".pushsection .comb.note,\"MS\",@progbits,1\n.asciz \"" + text + "\"\n.popsection\n");
}

// On a miss no more is kept of vectors than compiled code knows: keeping all that a processor has takes longer than the rest of the way.
void tell_of_wide_vectors(Module &module) {
    bool has_them = any_of(module, [](const Function &function) {
        return function.getFnAttribute("target-features").getValueAsString().contains("+avx");
    });
    if (!has_them)
        return;
    FunctionCallee tell = module.getOrInsertFunction("comb_keep_wide_vectors", Type::getVoidTy(module.getContext()));
    appendToGlobalCtors(module, cast<Function>(tell.getCallee()), 0);
}

} // namespace

void place_variables(Module &module, const Options &options) {
    for (GlobalVariable &variable : module.globals()) {
        if (is_of_facet(variable))
            leave_to_library(variable);
        if (!is_placed(variable))
            continue;
        // A tentative definition has no section of its own; the first of several counts.
        if (variable.hasCommonLinkage())
            variable.setLinkage(GlobalValue::WeakAnyLinkage);
        variable.setSection(variable.getInitializer()->isNullValue() ? Zeros : Filled);
    }
    write_note(module, options);
    tell_of_wide_vectors(module);
}

} // namespace comb
