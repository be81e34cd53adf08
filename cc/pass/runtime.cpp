#include "runtime.h"

#include "llvm/IR/GlobalVariable.h"
#include "llvm/IR/MDBuilder.h"

using namespace llvm;

namespace comb {

Value *thread_field(IRBuilder<> &builder, ThreadField field, uint64_t further) {
    Module &module = *builder.GetInsertBlock()->getModule();
    GlobalVariable *thread = module.getGlobalVariable("comb_thread");
    if (!thread) {
        thread = new GlobalVariable(module, ArrayType::get(builder.getInt8Ty(), 192), false, GlobalValue::ExternalLinkage, nullptr,
                                    "comb_thread", nullptr, GlobalValue::InitialExecTLSModel);
        thread->setAlignment(Align(8));
        if (!is_position_independent(module))
            thread->setDSOLocal(true);
    }
    Value *here = builder.CreateThreadLocalAddress(thread);
    return builder.CreateConstGEP1_64(builder.getInt8Ty(), here, uint64_t(field) + further);
}

FunctionCallee more_stack(Module &module) {
    auto *pointer = PointerType::get(module.getContext(), 0);
    auto *type = FunctionType::get(pointer, {Type::getInt64Ty(module.getContext())}, false);
    FunctionCallee callee = module.getOrInsertFunction("comb_more_stack", type);
    cast<Function>(callee.getCallee())->addFnAttr(Attribute::NoUnwind);
    return callee;
}

MDNode *unlikely(LLVMContext &context) { return MDBuilder(context).createBranchWeights(1, 1 << 20); }

void mark_own(Instruction &instruction) { instruction.setMetadata("comb.own", MDNode::get(instruction.getContext(), {})); }

bool is_own(const Instruction &instruction) { return instruction.hasMetadata("comb.own"); }

bool is_position_independent(const Module &module) { return module.getPICLevel() != PICLevel::NotPIC; }

} // namespace comb
