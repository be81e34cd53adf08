// The plug-in: makes a program's loads and stores of shared memory look before they are done, and its calls of the C library go
// through wrappers. It runs behind the optimiser, which must not see checks, and must not move accesses out of checked ranges.
#include "checks.h"
#include "copies.h"
#include "groups.h"
#include "module.h"
#include "options.h"
#include "polls.h"
#include "privacy.h"
#include "runtime.h"
#include "stacks.h"
#include "strips.h"

#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Passes/PassPlugin.h"

using namespace llvm;

namespace comb {

namespace {

void check_accesses(Function &function, const Options &options, Counts &counts) {
    Checker checker(function, options, counts);
    StripMembers strips = make_strips(function, options, checker);
    group_neighbours(function, options, checker, strips);
    SmallVector<Instruction *> accesses;
    for (Instruction &instruction : instructions(function)) {
        if (!is_access(instruction) || is_own(instruction))
            continue;
        if (strips.covered.contains(&instruction))
            counts.batched++;
        else if (is_private(pointer_of(instruction)))
            counts.removed++;
        else
            accesses.push_back(&instruction);
    }
    SmallPtrSet<Instruction *, 16> part_of_store = checker.find_changes(accesses);
    SmallPtrSet<Instruction *, 16> in_series = checker.check_series(accesses);
    for (Instruction *access : accesses)
        if (!part_of_store.contains(access) && !in_series.contains(access))
            checker.check(*access, strips.inside.contains(access));
    add_polls(function, options, checker, strips);
}

void explain(const Function &function, const Counts &counts) {
    StringRef name = function.getName() == "comb_main" ? "main" : function.getName();
    errs() << "combcc: " << name << ": inserted checks of " << counts.loads << " loads, " << counts.stores << " stores, " << counts.atomics
           << " atomics and " << counts.copies << " copies (" << counts.pinned << " alone with pins, " << counts.series
           << " series of stores); removed " << counts.redundant << " as redundant, " << counts.removed << " as private; batched "
           << counts.batched << "; " << counts.moved_objects << " stack objects shared\n";
}

/* Accesses that were moved, or merged of several lines, have no line. Who waits there is told a line all the same: that of what comes next. */
void give_lines(Function &function) {
    for (BasicBlock &block : function) {
        DebugLoc next;
        for (Instruction &instruction : reverse(block)) {
            const DebugLoc &place = instruction.getDebugLoc();
            if (place && place.getLine() != 0)
                next = place;
            else if (next && instruction.mayReadOrWriteMemory())
                instruction.setDebugLoc(next);
        }
    }
}

class CombPass : public PassInfoMixin<CombPass> {
public:
    // Unoptimised code must be checked too.
    static bool isRequired() { return true; }

    PreservedAnalyses run(Module &module, ModuleAnalysisManager &) {
        Options options = Options::from_environment();
        rename(module, options);
        place_variables(module, options);
        construct_once(module);
        SmallVector<Function *> functions;
        for (Function &function : module)
            if (!function.isDeclaration() && !function.hasFnAttribute(Attribute::Naked) && !function.hasAvailableExternallyLinkage())
                functions.push_back(&function);
        for (Function *function : functions) {
            Counts counts;
            give_lines(*function);
            refuse_assembly(*function);
            take_masks_apart(*function, options);
            counts.moved_objects = share_escaping_objects(*function);
            counts.copies = cover_copies(*function, options);
            check_accesses(*function, options, counts);
            if (options.explains)
                explain(*function, counts);
        }
        // Who wants to know what was done wants to know that it was done well.
        if ((options.explains || options.verifies) && verifyModule(module, &errs()))
            report_fatal_error("comb: the instrumented module is broken");
        return PreservedAnalyses::none();
    }
};

} // namespace

} // namespace comb

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
    return {LLVM_PLUGIN_API_VERSION, "comb", "1", [](PassBuilder &builder) {
                builder.registerOptimizerLastEPCallback(
                    [](ModulePassManager &passes, OptimizationLevel) { passes.addPass(comb::CombPass()); });
            }};
}
