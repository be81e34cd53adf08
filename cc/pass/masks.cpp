#include "module.h"
#include "privacy.h"

#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/PassInstrumentation.h"
#include "llvm/Transforms/Scalar/ScalarizeMaskedMemIntrin.h"

using namespace llvm;

namespace comb {

namespace {

bool is_masked_access(const IntrinsicInst &call, const Options &options) {
    switch (call.getIntrinsicID()) {
    case Intrinsic::masked_load:
    case Intrinsic::masked_gather:
    case Intrinsic::masked_expandload: return options.checks_loads();
    case Intrinsic::masked_store:
    case Intrinsic::masked_scatter:
    case Intrinsic::masked_compressstore: return options.checks_stores();
    default: return false;
    }
}

// One of the processor's own instructions, by its name in <immintrin.h>, that accesses memory. What it is given it does not keep: an
// object on the machine stack may stay there.
bool is_own_access(IntrinsicInst &call, const Options &options) {
    StringRef name = call.getCalledFunction()->getName();
    if (!name.consume_front("llvm.x86.") || name.starts_with("cl") || name == "sse2.clflush")
        return false;
    bool is_checked = call.onlyReadsMemory() ? options.checks_loads() : options.checks_stores();
    bool is_shared = false;
    for (unsigned index = 0; index < call.arg_size(); index++) {
        Value *argument = call.getArgOperand(index);
        if (argument->getType()->isPointerTy())
            call.addParamAttr(index, Attribute::NoCapture);
        is_shared |= argument->getType()->isPtrOrPtrVectorTy() && (argument->getType()->isVectorTy() || !is_private(argument));
    }
    return is_checked && is_shared;
}

} // namespace

void take_masks_apart(Function &function, const Options &options) {
    bool has_masks = false;
    for (Instruction &instruction : instructions(function)) {
        auto *call = dyn_cast<IntrinsicInst>(&instruction);
        has_masks |= call && is_masked_access(*call, options);
        if (call && is_own_access(*call, options))
            function.getContext().diagnose(DiagnosticInfoUnsupported(
                function, "the processor's own instruction " + call->getCalledFunction()->getName() + " accesses memory, which cannot be checked here",
                instruction.getDebugLoc()));
    }
    if (!has_masks)
        return;
    // An analysis that knows no processor: none of the masked accesses is one of its own, and LLVM takes all apart.
    FunctionAnalysisManager analyses;
    analyses.registerPass([] { return TargetIRAnalysis(); });
    analyses.registerPass([] { return DominatorTreeAnalysis(); });
    analyses.registerPass([] { return PassInstrumentationAnalysis(); });
    ScalarizeMaskedMemIntrinPass().run(function, analyses);
}

} // namespace comb
