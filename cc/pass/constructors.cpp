// Constructors run once, in the component that main() belongs to, as on one machine. The executable's come to the others never, but a
// shared library's would, and would begin anew what the program has long been working with.
#include "module.h"

#include "llvm/IR/Constants.h"
#include "llvm/IR/IRBuilder.h"

using namespace llvm;

namespace comb {

namespace {

// Calls it where the runtime says so.
Function *only_in_first(Module &module, Function &constructor) {
    LLVMContext &context = module.getContext();
    auto *type = FunctionType::get(Type::getVoidTy(context), false);
    auto *only = Function::Create(type, GlobalValue::InternalLinkage, constructor.getName() + ".comb", module);
    // Of a template's static member each object has one: the linker keeps both, or neither.
    only->setComdat(constructor.getComdat());
    auto *ask = BasicBlock::Create(context, "", only), *call = BasicBlock::Create(context, "", only), *end = BasicBlock::Create(context, "", only);
    IRBuilder<> builder(ask);
    FunctionCallee is_first = module.getOrInsertFunction("comb_runs_constructors", FunctionType::get(builder.getInt32Ty(), false));
    builder.CreateCondBr(builder.CreateICmpNE(builder.CreateCall(is_first), builder.getInt32(0)), call, end);
    builder.SetInsertPoint(call);
    builder.CreateCall(constructor.getFunctionType(), &constructor);
    builder.CreateBr(end);
    builder.SetInsertPoint(end);
    builder.CreateRetVoid();
    return only;
}

} // namespace

void construct_once(Module &module) {
    GlobalVariable *list = module.getGlobalVariable("llvm.global_ctors");
    auto *all = list && list->hasInitializer() ? dyn_cast<ConstantArray>(list->getInitializer()) : nullptr;
    if (!all)
        return;
    SmallVector<Constant *> changed;
    for (Value *one : all->operands()) {
        auto *entry = cast<ConstantStruct>(one);
        auto *constructor = dyn_cast<Function>(entry->getOperand(1)->stripPointerCasts());
        // libc hands its arguments to a constructor that asks for them: those stay as they are.
        if (!constructor || constructor->arg_size() != 0) {
            changed.push_back(entry);
            continue;
        }
        Constant *only = only_in_first(module, *constructor);
        changed.push_back(ConstantStruct::get(entry->getType(), {entry->getOperand(0), only, entry->getOperand(2)}));
    }
    list->setInitializer(ConstantArray::get(all->getType(), changed));
}

} // namespace comb
